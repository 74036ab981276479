//! Packets in buffers, found by number.
//!
//! A ring as long as the span of the numbers in it: usually a few entries, and a whole window if a
//! rank is far behind or keeps copies for others.

use super::incoming::Stashed;
use crate::limits::WINDOW_PACKETS_MAX;
use omnes_wire::Seq;

/// Length of the shortest ring.
const ENTRIES_MIN: u32 = 16;
// The ring doubles until it holds a window.
const _: () = assert!(WINDOW_PACKETS_MAX.is_power_of_two() && ENTRIES_MIN.is_power_of_two());

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Stash {
    /// Ring whose length is zero or a power of two.
    ring: Vec<Option<Stashed>>,
    count: u32,
}

impl Stash {
    /// True if no packet has ever been inserted.
    pub(super) fn is_unused(&self) -> bool {
        self.ring.is_empty()
    }

    /// Number of packets in the stash.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn at(&self, seq: Seq) -> usize {
        seq.0 as usize % self.ring.len().max(1)
    }

    /// Returns packet `seq`, if it is here.
    pub(super) fn get(&self, seq: Seq) -> Option<&Stashed> {
        self.ring.get(self.at(seq))?.as_ref().filter(|stashed| stashed.packet.seq == seq)
    }

    /// As [`Self::get`].
    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Stashed> {
        let at = self.at(seq);
        self.ring.get_mut(at)?.as_mut().filter(|stashed| stashed.packet.seq == seq)
    }

    /// Iterates over all packets.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stashed> {
        self.ring.iter_mut().flatten()
    }

    /// Inserts a packet. All packets in the stash, including this one, are at or after `first` and
    /// less than a window from it.
    pub(super) fn insert(&mut self, first: Seq, stashed: Stashed) {
        let span = stashed.packet.seq.since(first) + 1;
        assert!(span <= WINDOW_PACKETS_MAX, "the caller keeps numbers inside the window");
        if self.ring.len() < span as usize {
            self.grow(span.next_power_of_two().max(ENTRIES_MIN));
        }
        let at = self.at(stashed.packet.seq);
        self.count += u32::from(self.ring[at].is_none());
        self.ring[at] = Some(stashed);
    }

    fn grow(&mut self, entries: u32) {
        let old = std::mem::replace(&mut self.ring, vec![None; entries as usize]);
        for stashed in old.into_iter().flatten() {
            let at = self.at(stashed.packet.seq);
            self.ring[at] = Some(stashed);
        }
    }

    /// Removes packet `seq`.
    pub(super) fn remove(&mut self, seq: Seq) {
        if self.get(seq).is_some() {
            let at = self.at(seq);
            self.ring[at] = None;
            self.count -= 1;
        }
    }

    /// Removes and returns all packets, in the order of their positions in a window.
    pub(super) fn take_all(&mut self) -> Vec<Stashed> {
        let mut all: Vec<Stashed> = self.ring.iter_mut().filter_map(Option::take).collect();
        all.sort_by_key(|stashed| stashed.packet.seq.0 % WINDOW_PACKETS_MAX);
        self.count = 0;
        all
    }
}
