//! One rank's file, mapped into its memory, as the rank writes it.
//!
//! The constant parts are written before the file gets its name. Values change under a sequence
//! word ([`sequence`]), so a reader has values of one moment and neither side waits for the other.
//!
//! The blocks are allocated by writing them, so that a full file system is an error at the start
//! and not a signal later. Only its owner can shorten the file; doing so to a running rank kills
//! it.

use super::LiveError;
use super::directory::Directory;
use super::layout::{self, Identity};
use super::sequence;
use crate::file_size;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::OsString;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Indices of the words that change, after the sequence: last update, end, values.
const UPDATED: usize = 1;
const ENDED: usize = 2;
const VALUES: usize = 3;

/// See the module header.
pub(super) struct LiveFile {
    directory: Directory,
    name: OsString,
    base: NonNull<AtomicU64>,
    bytes: usize,
    counters: usize,
}

// SAFETY: the mapping belongs to this value alone, and is reached through atomics only.
unsafe impl Send for LiveFile {}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl LiveFile {
    /// Creates the file of a rank; all values are 0.
    ///
    /// # Errors
    /// [`LiveError::File`] if it cannot be created, written or mapped; no file remains then.
    pub(super) fn create(
        directory: Directory,
        identity: &Identity,
        names: &[&str],
    ) -> Result<Self, LiveError> {
        let name = OsString::from(format!("{:08x}-{}.live", identity.job, identity.rank));
        let content = layout::emit(identity, names);
        let bytes = content.len();
        file_size::check(bytes as u64)?;
        let file = directory.create(&name, &content)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let mapped = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)
        };
        let base = mapped.map_err(|error| {
            // A file that cannot be removed remains as that of a silent rank.
            let _ = directory.remove(&name);
            std::io::Error::from(error)
        })?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Self { directory, name, base, bytes, counters: names.len() })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8);
        // SAFETY: the mapping has `bytes` bytes, begins at a page and lives as long as `self`; it
        // is only reached through atomics.
        unsafe { self.base.add(index).as_ref() }
    }

    fn changing(&self, index: usize) -> &AtomicU64 {
        self.word(layout::values_at(self.counters) / 8 + index)
    }

    /// Publishes new values, in the order of the names; values beyond the names are ignored.
    pub(super) fn publish(&mut self, values: &[u64]) {
        sequence::change(self.changing(0), || {
            for (index, value) in values.iter().take(self.counters).enumerate() {
                self.changing(VALUES + index).store(*value, Ordering::Relaxed);
            }
            self.changing(UPDATED).store(now_ns(), Ordering::Relaxed);
        });
    }

    /// Records that the rank has ended, although its process may continue.
    pub(super) fn end(&mut self) {
        self.changing(ENDED).store(now_ns(), Ordering::Relaxed);
    }

    /// Removes the file.
    pub(super) fn remove(self) {
        // The file may have been removed by hand; there is nobody to report an error to.
        let _ = self.directory.remove(&self.name);
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `create` with this length, and no reference to it exists
        // now.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
