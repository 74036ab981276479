//! A map of the firmware's in the process's memory.

use crate::NicError;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// The value of a map that can be mapped, laid out as `T`; both sides see what the other writes.
pub(crate) struct Mapping<T> {
    base: NonNull<T>,
}

// SAFETY: shared memory that belongs to no thread; who touches it, its users see to.
unsafe impl<T> Send for Mapping<T> {}

impl<T> Mapping<T> {
    /// Mappings are made of whole pages.
    const BYTES: usize = size_of::<T>().next_multiple_of(4096);

    /// Maps what is behind a descriptor.
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

    /// Where it lies.
    pub(crate) fn base(&self) -> *mut T {
        self.base.as_ptr()
    }

    /// A word of it.
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
