//! A process's receive queue, mapped: small packets that the firmware has put there.
//!
//! The queue is read without system calls, and so is the information whether the sockets hold
//! packets ([`Queue::passed`]). One thread reads; `firmware/nic_queue.h` describes how order and
//! sleep are kept.

use crate::NicError;
use crate::mapping::Mapping;
use omnes_firmware::slot::{QUEUE_DATA_BYTES, QUEUE_ENTRIES, Queue as Layout, QueueEntry};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// See the module header. Its words are accessed only atomically, its packets only between the two
/// accesses that hand them over.
pub struct Queue(Mapping<Layout>);

impl Queue {
    /// Maps the queue that a map holds.
    ///
    /// # Errors
    /// [`NicError::System`] if the kernel refuses.
    pub fn map(map: BorrowedFd<'_>) -> Result<Self, NicError> {
        Mapping::of(map, "cannot map the receive queue").map(Self)
    }

    fn tail(&self) -> &AtomicU32 {
        // SAFETY: a field of the mapping.
        self.0.word(unsafe { &raw mut (*self.0.base()).tail })
    }

    /// The next entry and its sequence number, if the entry is filled.
    fn filled(&self) -> Option<(NonNull<QueueEntry>, u32)> {
        let tail = self.tail().load(Ordering::Relaxed);
        let place = (tail % QUEUE_ENTRIES) as usize;
        let base = self.0.base();
        // SAFETY: a word of the mapping.
        let seq = self.0.word(unsafe { &raw mut (*base).seqs[place] }).load(Ordering::Acquire);
        // SAFETY: one of the entries of the mapping.
        let entry = unsafe { NonNull::new_unchecked(&raw mut (*base).entries[place]) };
        (seq == tail.wrapping_add(1)).then_some((entry, seq))
    }

    /// True if the queue holds a packet.
    pub fn has_packets(&self) -> bool {
        self.filled().is_some()
    }

    /// Passes the next packet to `read`; false if the queue is empty. A packet that was not intact
    /// is empty.
    pub fn take(&mut self, read: impl FnOnce(&[u8])) -> bool {
        let Some((entry, seq)) = self.filled() else { return false };
        // SAFETY: the firmware does not touch a filled entry before it has been read.
        let entry = unsafe { entry.as_ref() };
        read(&entry.data[..QUEUE_DATA_BYTES.min(entry.bytes as usize)]);
        self.tail().store(seq, Ordering::Release);
        true
    }

    /// Number of entries filled so far, modulo 2^32.
    pub fn filled_so_far(&self) -> u32 {
        // SAFETY: a field of the mapping.
        self.0.word(unsafe { &raw mut (*self.0.base()).head }).load(Ordering::Relaxed)
    }

    /// Number of packets that have gone on to the sockets so far, modulo 2^32.
    pub fn passed(&self) -> u32 {
        // SAFETY: a field of the mapping.
        self.0.word(unsafe { &raw mut (*self.0.base()).passed }).load(Ordering::Acquire)
    }

    /// Reports that the packets that had gone to the sockets when [`Self::passed`] was `passed`
    /// have all been read. Small packets then go to the queue again.
    pub fn set_drained(&self, passed: u32) {
        // SAFETY: as above.
        let word = self.0.word(unsafe { &raw mut (*self.0.base()).drained });
        word.store(passed, Ordering::Release);
    }

    /// Requests that all packets go to the sockets, which wake a sleeper, or no longer. The caller
    /// must poll afterwards for packets that arrived before the request is seen.
    pub fn set_sleeping(&self, sleeps: bool) {
        // SAFETY: as above.
        let word = self.0.word(unsafe { &raw mut (*self.0.base()).is_sleeping });
        word.store(sleeps.into(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}
