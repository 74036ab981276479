//! Number of descriptors that this process may have open.
//!
//! The default limit, 1,024, suits programs that cannot handle more; a process that needs many may
//! raise it, up to a hard limit that the system sets. Child processes inherit the raised limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit of open files to `wanted`, if it is lower, as far as the hard limit
/// allows. Returns the resulting limit.
pub fn allow(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let present = limit.current.unwrap_or(u64::MAX);
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    if raised <= present {
        return present;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        Ok(()) => raised,
        Err(_) => present,
    }
}

/// Number of open descriptors; 0 if the kernel does not report it.
pub(crate) fn count_open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}
