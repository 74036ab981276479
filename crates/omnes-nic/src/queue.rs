//! A process's receive queue, mapped: small packets that the firmware has put there.
//!
//! What is in the queue is read without asking the kernel, and so is whether there is anything in
//! the sockets ([`Queue::passed`]). One thread reads; see `firmware/nic_queue.h` for how order
//! and sleep are kept.

use crate::NicError;
use omnes_firmware::slot::{QUEUE_DATA_BYTES, QUEUE_ENTRIES, Queue as Layout, QueueEntry};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// See the module header.
pub struct Queue {
    base: NonNull<Layout>,
}

// SAFETY: shared memory; its words are only touched atomically, its packets only between the two
// accesses that hand them over.
unsafe impl Send for Queue {}

/// Mappings are made of whole pages.
const BYTES: usize = size_of::<Layout>().next_multiple_of(4096);

impl Queue {
    /// Maps the queue behind a map.
    ///
    /// # Errors
    /// [`NicError::System`] if the kernel refuses.
    pub fn map(map: BorrowedFd<'_>) -> Result<Self, NicError> {
        // SAFETY: a new mapping of a descriptor; nothing of ours is replaced.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        let base = (base != libc::MAP_FAILED).then(|| NonNull::new(base.cast())).flatten();
        let what = "cannot map the receive queue";
        base.map(|base| Self { base })
            .ok_or_else(|| NicError::System { what, source: std::io::Error::last_os_error() })
    }

    fn word(&self, field: *mut u32) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(field) }
    }

    fn tail(&self) -> &AtomicU32 {
        // SAFETY: a field of the mapping.
        self.word(unsafe { &raw mut (*self.base.as_ptr()).tail })
    }

    /// The next entry and its turn, if it is filled.
    fn filled(&self) -> Option<(NonNull<QueueEntry>, u32)> {
        let tail = self.tail().load(Ordering::Relaxed);
        let place = (tail % QUEUE_ENTRIES) as usize;
        let base = self.base.as_ptr();
        // SAFETY: a word of the mapping.
        let turn = self.word(unsafe { &raw mut (*base).turns[place] }).load(Ordering::Acquire);
        // SAFETY: one of the entries of the mapping.
        let entry = unsafe { NonNull::new_unchecked(&raw mut (*base).entries[place]) };
        (turn == tail.wrapping_add(1)).then_some((entry, turn))
    }

    /// True if there is a packet.
    pub fn has_packets(&self) -> bool {
        self.filled().is_some()
    }

    /// Hands the next packet to `read`; false if there is none. A packet that was not intact is
    /// empty.
    pub fn take(&mut self, read: impl FnOnce(&[u8])) -> bool {
        let Some((entry, turn)) = self.filled() else { return false };
        // SAFETY: the firmware does not touch a filled entry before it has been read.
        let entry = unsafe { entry.as_ref() };
        read(&entry.data[..QUEUE_DATA_BYTES.min(entry.bytes as usize)]);
        self.tail().store(turn, Ordering::Release);
        true
    }

    /// Entries filled so far, modulo 2^32.
    pub fn filled_so_far(&self) -> u32 {
        // SAFETY: a field of the mapping.
        self.word(unsafe { &raw mut (*self.base.as_ptr()).head }).load(Ordering::Relaxed)
    }

    /// Packets that have gone on to the sockets so far, modulo 2^32.
    pub fn passed(&self) -> u32 {
        // SAFETY: a field of the mapping.
        self.word(unsafe { &raw mut (*self.base.as_ptr()).passed }).load(Ordering::Acquire)
    }

    /// Says that all packets have been read from the sockets that had gone there when
    /// [`Self::passed`] was `passed`. Small packets come into the queue again.
    pub fn set_drained(&self, passed: u32) {
        // SAFETY: as above.
        let word = self.word(unsafe { &raw mut (*self.base.as_ptr()).drained });
        word.store(passed, Ordering::Release);
    }

    /// Asks for all packets by the sockets, which wake a sleeper, or not any more. Packets that
    /// came before the request is seen have to be looked for afterwards.
    pub fn set_sleeping(&self, sleeps: bool) {
        // SAFETY: as above.
        let word = self.word(unsafe { &raw mut (*self.base.as_ptr()).is_sleeping });
        word.store(sleeps.into(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody uses any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), BYTES) };
    }
}
