//! The receiving end of a ring.
//!
//! Nothing that is read from the ring is trusted: the writer may have crashed in the middle of a
//! word, or may write arbitrary data. Positions, stamps and lengths are read once and checked; the
//! first invalid one breaks the ring, and nothing is read from it from then on.

use super::layout::{RECORD_ALIGN_BYTES, RECORD_HEAD_BYTES, record_bytes, stamp};
use super::map::RingMap;
use std::marker::PhantomData;
use std::ptr::{NonNull, copy_nonoverlapping};
use std::sync::atomic::Ordering;

/// A packet in place in the ring; it is valid until the reader is asked for the next.
#[derive(Clone, Copy)]
pub struct RingPacket<'a> {
    base: NonNull<u8>,
    bytes: usize,
    ring: PhantomData<&'a [u8]>,
}

impl<'a> RingPacket<'a> {
    /// Length in bytes; at least 1.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies the first bytes of the packet, as many as there are and fit, to `into`; returns the
    /// copy. Data that are checked must be copied first: a faulty writer may change the ring after
    /// the check.
    pub fn copy_head<'b>(&self, into: &'b mut [u8]) -> &'b [u8] {
        let bytes = self.bytes.min(into.len());
        // SAFETY: the ring contains `bytes` bytes from `base` on; `into` is other memory.
        unsafe { copy_nonoverlapping(self.base.as_ptr(), into.as_mut_ptr(), bytes) };
        &into[..bytes]
    }

    /// The bytes from `offset` on, to be copied from here to their destination and not to be
    /// checked.
    ///
    /// # Panics
    /// If `offset` is beyond the packet.
    pub fn data(&self, offset: usize) -> &'a [u8] {
        assert!(offset <= self.bytes, "data beyond the packet");
        // SAFETY: these bytes are in the ring, which is mapped for 'a and is sealed against
        // shrinking. A correct writer does not touch them until they are freed, which takes a call
        // on the reader that is borrowed for 'a; whatever a faulty one writes there is only copied.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), self.bytes - offset) }
    }
}

/// See the module header.
pub struct RingReader {
    map: RingMap,
    packet_bytes_max: usize,
    /// Bytes taken, whether freed or not.
    head: u64,
    freed: u64,
    /// Position of the writer when it was last read.
    tail_seen: u64,
    is_broken: bool,
}

impl RingReader {
    /// Creates the reader of a ring in which nothing has been written yet; packets longer than
    /// `packet_bytes_max` are invalid.
    pub(super) fn new(map: RingMap, packet_bytes_max: usize) -> Self {
        assert!(record_bytes(packet_bytes_max) <= map.capacity_bytes(), "packets beyond the ring");
        Self { map, packet_bytes_max, head: 0, freed: 0, tail_seen: 0, is_broken: false }
    }

    /// Size in bytes of the ring's records.
    pub fn capacity_bytes(&self) -> usize {
        self.map.capacity_bytes()
    }

    /// Takes the next packet, if there is one. Its space is freed only by [`Self::free`].
    pub fn take(&mut self) -> Option<RingPacket<'_>> {
        if self.head == self.tail_seen && !self.look() {
            return None;
        }
        let word = self.map.word(self.head).load(Ordering::Relaxed);
        let bytes = word as u32 as usize;
        let is_sane = (word >> 32) as u32 == stamp(self.head)
            && (1..=self.packet_bytes_max).contains(&bytes)
            && record_bytes(bytes) as u64 <= self.tail_seen - self.head;
        if !is_sane {
            self.is_broken = true;
            self.tail_seen = self.head;
            return None;
        }
        let base = self.map.at(self.head + RECORD_HEAD_BYTES as u64);
        self.head += record_bytes(bytes) as u64;
        Some(RingPacket { base, bytes, ring: PhantomData })
    }

    /// Reads the writer's position; true if there are new packets.
    fn look(&mut self) -> bool {
        if self.is_broken {
            return false;
        }
        // Acquire: packets before that position have been written.
        let tail = self.map.tail().load(Ordering::Acquire);
        let ahead = tail.wrapping_sub(self.head);
        // Space that is not freed yet cannot have been written again.
        let room = self.map.capacity_bytes() as u64 - (self.head - self.freed);
        if ahead > room || !tail.is_multiple_of(RECORD_ALIGN_BYTES as u64) {
            self.is_broken = true;
            return false;
        }
        self.tail_seen = tail;
        ahead > 0
    }

    /// Returns the space of all packets taken to the writer; false if there was none.
    pub fn free(&mut self) -> bool {
        if self.freed == self.head {
            return false;
        }
        // Release: the packets have been read before their space is freed.
        self.map.head().store(self.head, Ordering::Release);
        self.freed = self.head;
        true
    }

    /// Bytes taken and not freed yet.
    pub fn held_bytes(&self) -> usize {
        (self.head - self.freed) as usize
    }

    /// True if there is no packet to take at present. A broken ring is empty.
    pub fn is_empty(&self) -> bool {
        self.is_broken
            || (self.head == self.tail_seen && self.map.tail().load(Ordering::Acquire) == self.head)
    }

    /// True if the writer has left invalid data in the ring.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }
}
