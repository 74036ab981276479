//! Packets that lie in buffers, found by their numbers.
//!
//! A ring as long as the numbers in it are apart: mostly a few entries, and those of a whole window
//! where a rank is far behind or keeps copies for others.

use super::incoming::Stashed;
use crate::limits::WINDOW_PACKETS_MAX;
use omnes_wire::Seq;

/// Entries of the shortest ring that there is.
const ENTRIES_MIN: u32 = 16;
// The ring doubles until it holds a window.
const _: () = assert!(WINDOW_PACKETS_MAX.is_power_of_two() && ENTRIES_MIN.is_power_of_two());

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Stash {
    /// Empty, or a power of two of entries.
    ring: Vec<Option<Stashed>>,
    count: u32,
}

impl Stash {
    /// True if there never was anything in it.
    pub(super) fn is_unused(&self) -> bool {
        self.ring.is_empty()
    }

    /// Packets in it.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn at(&self, seq: Seq) -> usize {
        seq.0 as usize % self.ring.len().max(1)
    }

    /// Packet `seq`, if it is here.
    pub(super) fn get(&self, seq: Seq) -> Option<&Stashed> {
        self.ring.get(self.at(seq))?.as_ref().filter(|stashed| stashed.packet.seq == seq)
    }

    /// As [`Self::get`].
    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Stashed> {
        let at = self.at(seq);
        self.ring.get_mut(at)?.as_mut().filter(|stashed| stashed.packet.seq == seq)
    }

    /// All that is in it.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stashed> {
        self.ring.iter_mut().flatten()
    }

    /// Puts a packet in. All that are in it, and this one, are at or after `first` and less than a
    /// window from there.
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

    /// Takes packet `seq` out.
    pub(super) fn remove(&mut self, seq: Seq) {
        if self.get(seq).is_some() {
            let at = self.at(seq);
            self.ring[at] = None;
            self.count -= 1;
        }
    }

    /// Takes all out, in the order of their places in a window.
    pub(super) fn take_all(&mut self) -> Vec<Stashed> {
        let mut all: Vec<Stashed> = self.ring.iter_mut().filter_map(Option::take).collect();
        all.sort_by_key(|stashed| stashed.packet.seq.0 % WINDOW_PACKETS_MAX);
        self.count = 0;
        all
    }
}
