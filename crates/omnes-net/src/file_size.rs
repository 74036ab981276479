//! Maximum length of this process's files.

use rustix::process::{Resource, getrlimit};
use std::io;

/// Returns an error if a file of `bytes` bytes exceeds this process's limit: the kernel would end
/// the process with SIGXFSZ.
pub(crate) fn check(bytes: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => {
            let reason = format!("{bytes} bytes, where files may have {limit} (ulimit -f)");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        _ => Ok(()),
    }
}
