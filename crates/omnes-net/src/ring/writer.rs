//! The sending end of a ring.

use super::layout::{RECORD_ALIGN_BYTES, RECORD_HEAD_BYTES, record_bytes, stamp};
use super::map::RingMap;
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::Ordering;

/// What became of a packet that was pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It is in the ring; the reader sees it when it is published.
    Queued,
    /// There is no room; nothing was done.
    Full,
    /// The reader's position makes no sense; the ring is of no use any more.
    Broken,
}

/// See the module header.
pub struct RingWriter {
    map: RingMap,
    /// Bytes written; what is not published yet included.
    tail: u64,
    published: u64,
    /// The reader's position when it was last looked at; the line is left alone while that will do.
    head_seen: u64,
    is_broken: bool,
}

impl RingWriter {
    pub(super) fn new(map: RingMap) -> Self {
        Self { map, tail: 0, published: 0, head_seen: 0, is_broken: false }
    }

    /// Bytes of records that the ring holds.
    pub fn capacity_bytes(&self) -> usize {
        self.map.capacity_bytes()
    }

    /// Puts a packet, gathered from `parts`, behind what is in the ring. One copy.
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
            // SAFETY: the caller vouches for the part; `to` has `record` bytes of room from the
            // record's start on, in one piece, and the reader does not look before they are
            // published. User memory is no ring.
            unsafe {
                copy_nonoverlapping(part.iov_base.cast::<u8>(), to, part.iov_len);
                to = to.add(part.iov_len);
            }
        }
        self.tail += record as u64;
        Pushed::Queued
    }

    /// Looks at the reader's position only where the one seen last does not leave room enough.
    fn check_room(&mut self, record: u64) -> Pushed {
        let capacity = self.map.capacity_bytes() as u64;
        if self.is_broken {
            return Pushed::Broken;
        }
        if self.tail + record - self.head_seen <= capacity {
            return Pushed::Queued;
        }
        // Acquire: the reader has finished with what it gives free.
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

    /// Shows the reader what was pushed; false if there was nothing new. Whoever publishes wakes
    /// the reader afterwards ([`super::wake`]).
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        // Release: the packets are written before the position that shows them.
        self.map.tail().store(self.tail, Ordering::Release);
        self.published = self.tail;
        true
    }
}
