//! A map of the firmware in the process's memory.

use crate::NicError;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// The value of a mappable map, laid out as `T`; each side sees what the other writes.
pub(crate) struct Mapping<T> {
    base: NonNull<T>,
}

// SAFETY: shared memory that belongs to no thread; its users control access.
unsafe impl<T> Send for Mapping<T> {}

impl<T> Mapping<T> {
    /// Mappings consist of whole pages.
    const BYTES: usize = size_of::<T>().next_multiple_of(4096);

    /// Maps the map behind a descriptor.
    ///
    /// # Errors
    /// [`NicError::System`] with `what` if the kernel refuses.
    pub(crate) fn of(map: BorrowedFd<'_>, what: &'static str) -> Result<Self, NicError> {
        // SAFETY: a new mapping of a descriptor; nothing of ours is replaced.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        let base = (base != libc::MAP_FAILED).then(|| NonNull::new(base.cast())).flatten();
        base.map(|base| Self { base })
            .ok_or_else(|| NicError::System { what, source: std::io::Error::last_os_error() })
    }

    /// Address of the mapping.
    pub(crate) fn base(&self) -> *mut T {
        self.base.as_ptr()
    }

    /// A word of the mapping.
    pub(crate) fn word(&self, field: *mut u32) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(field) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody uses any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), Self::BYTES) };
    }
}
