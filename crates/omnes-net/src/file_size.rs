//! How long this process's files may be.

use rustix::process::{Resource, getrlimit};
use std::io;

/// An error if a file of so many bytes is longer than this process may make one: the kernel would
/// end it with SIGXFSZ.
pub(crate) fn check(bytes: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => {
            let reason = format!("{bytes} bytes, where files may have {limit} (ulimit -f)");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        _ => Ok(()),
    }
}
