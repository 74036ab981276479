//! The sending end of a ring.

use super::layout::{RECORD_ALIGN_BYTES, RECORD_HEAD_BYTES, record_bytes, stamp};
use super::map::RingMap;
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::Ordering;

/// Result of pushing a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// The packet is in the ring; the reader sees it when it is published.
    Queued,
    /// There is no space; nothing was done.
    Full,
    /// The reader's position is invalid; the ring can no longer be used.
    Broken,
}

/// See the module header.
pub struct RingWriter {
    map: RingMap,
    /// Bytes written, including those not published yet.
    tail: u64,
    published: u64,
    /// Position of the reader when it was last read; it is read again only when this one leaves no
    /// space.
    head_seen: u64,
    is_broken: bool,
}

impl RingWriter {
    pub(super) fn new(map: RingMap) -> Self {
        Self { map, tail: 0, published: 0, head_seen: 0, is_broken: false }
    }

    /// Size in bytes of the ring's records.
    pub fn capacity_bytes(&self) -> usize {
        self.map.capacity_bytes()
    }

    /// Appends a packet, gathered from `parts`, to the ring, with one copy.
    ///
    /// # Safety
    /// Each part must be valid for reading its length.
    ///
    /// # Panics
    /// If the packet is empty, or its record longer than the ring: packets are far shorter.
    pub unsafe fn push(&mut self, parts: &[libc::iovec]) -> Pushed {
        let bytes: usize = parts.iter().map(|part| part.iov_len).sum();
        let record = record_bytes(bytes);
        assert!(bytes > 0 && record <= self.map.capacity_bytes(), "no packet for this ring");
        match self.check_room(record as u64) {
            Pushed::Queued => {}
            other => return other,
        }
        let word = u64::from(stamp(self.tail)) << 32 | bytes as u64;
        self.map.word(self.tail).store(word, Ordering::Relaxed);
        let mut to = self.map.at(self.tail + RECORD_HEAD_BYTES as u64).as_ptr();
        for part in parts {
            // SAFETY: the caller vouches for the part; `to` has `record` bytes of contiguous space
            // from the record's start on, and the reader does not read them before they are
            // published. User memory is not part of a ring.
            unsafe {
                copy_nonoverlapping(part.iov_base.cast::<u8>(), to, part.iov_len);
                to = to.add(part.iov_len);
            }
        }
        self.tail += record as u64;
        Pushed::Queued
    }

    /// Reads the reader's position only if the last one seen does not leave enough space.
    fn check_room(&mut self, record: u64) -> Pushed {
        let capacity = self.map.capacity_bytes() as u64;
        if self.is_broken {
            return Pushed::Broken;
        }
        if self.tail + record - self.head_seen <= capacity {
            return Pushed::Queued;
        }
        // Acquire: the reader has finished with the space that it frees.
        let head = self.map.head().load(Ordering::Acquire);
        let is_sane = (self.head_seen..=self.published).contains(&head)
            && head.is_multiple_of(RECORD_ALIGN_BYTES as u64);
        if !is_sane {
            self.is_broken = true;
            return Pushed::Broken;
        }
        self.head_seen = head;
        if self.tail + record - head <= capacity { Pushed::Queued } else { Pushed::Full }
    }

    /// Publishes pushed packets to the reader; false if there were no new ones. The caller wakes
    /// the reader afterwards ([`super::wake`]).
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        // Release: the packets are written before the position that publishes them.
        self.map.tail().store(self.tail, Ordering::Release);
        self.published = self.tail;
        true
    }
}
