//! Which packets are to be sent again, and to whom.

use crate::lane::SeqBits;
use crate::limits::WINDOW_PACKETS_MAX;
use crate::packet::Destination;
use omnes_wire::{Rank, Seq};
use std::collections::BTreeMap;

/// What one rank lacks.
#[derive(Debug, Default)]
struct Wanted {
    bits: SeqBits,
    count: u32,
    /// Nothing before is wanted.
    low: Seq,
    /// The last of it shall be answered at once.
    asks: bool,
}

/// A packet to send again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repair {
    pub(super) seq: Seq,
    pub(super) to: Destination,
    pub(super) asks: bool,
}

/// What all ranks lack of a window. State: nothing while nobody lacks anything for the first time;
/// then 4 KiB, and 150 B for each rank that lacks something.
#[derive(Debug, Default)]
pub(super) struct Wants {
    by_rank: BTreeMap<Rank, Wanted>,
    /// How many ranks lack each packet of the window, by number.
    lacking: Vec<u32>,
}

fn ring(seq: Seq) -> usize {
    (seq.0 % WINDOW_PACKETS_MAX) as usize
}

impl Wants {
    /// True if nobody lacks anything.
    pub(super) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// `rank` lacks `seq`.
    pub(super) fn add(&mut self, rank: Rank, seq: Seq, asks: bool) {
        let wanted = self.by_rank.entry(rank).or_default();
        if wanted.count == 0 || seq.precedes(wanted.low) {
            wanted.low = seq;
        }
        wanted.asks |= asks;
        if !wanted.bits.contains(seq) {
            wanted.bits.insert(seq);
            wanted.count += 1;
            if self.lacking.is_empty() {
                self.lacking = vec![0; WINDOW_PACKETS_MAX as usize];
            }
            self.lacking[ring(seq)] += 1;
        }
    }

    /// `rank` has everything before `expects`.
    pub(super) fn on_expects(&mut self, rank: Rank, expects: Seq) {
        let Some(wanted) = self.by_rank.get_mut(&rank) else { return };
        while wanted.count > 0 && wanted.low.precedes(expects) {
            if wanted.bits.take(wanted.low) {
                wanted.count -= 1;
                self.lacking[ring(wanted.low)] -= 1;
            }
            wanted.low = wanted.low.plus(1);
        }
        if wanted.count == 0 {
            self.by_rank.remove(&rank);
        }
    }

    /// `rank` needs nothing any more.
    pub(super) fn forget(&mut self, rank: Rank) {
        let Some(wanted) = self.by_rank.remove(&rank) else { return };
        wanted.bits.indices().for_each(|index| self.lacking[index] -= 1);
    }

    /// Nobody needs anything any more.
    pub(super) fn clear(&mut self) {
        self.by_rank.clear();
        self.lacking.clear();
    }

    /// Rank and packet whose turn it is, and whether the rank is to answer.
    pub(super) fn first(&mut self) -> Option<(Rank, Seq, bool)> {
        let (rank, wanted) = self.by_rank.iter_mut().next()?;
        while !wanted.bits.contains(wanted.low) {
            wanted.low = wanted.low.plus(1);
        }
        Some((*rank, wanted.low, wanted.asks))
    }

    /// How many ranks lack `seq`.
    pub(super) fn lacking(&self, seq: Seq) -> u32 {
        self.lacking.get(ring(seq)).copied().unwrap_or_default()
    }

    /// `seq` goes to `rank`.
    pub(super) fn send_to_one(&mut self, rank: Rank, seq: Seq) -> Repair {
        let asks = self.settle(rank, seq);
        Repair { seq, to: Destination::Rank(rank), asks }
    }

    /// `seq` goes to everybody.
    pub(super) fn send_to_all(&mut self, seq: Seq) -> Repair {
        let ranks: Vec<Rank> = self.by_rank.keys().copied().collect();
        let mut asks = false;
        for rank in ranks {
            asks |= self.settle(rank, seq);
        }
        Repair { seq, to: Destination::Group, asks }
    }

    /// `seq` is sent to `rank`; true if an answer is wanted and nothing else goes there.
    fn settle(&mut self, rank: Rank, seq: Seq) -> bool {
        let Some(wanted) = self.by_rank.get_mut(&rank) else { return false };
        if wanted.bits.take(seq) {
            wanted.count -= 1;
            self.lacking[ring(seq)] -= 1;
        }
        if wanted.count > 0 {
            return false;
        }
        let asks = wanted.asks;
        self.by_rank.remove(&rank);
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_lack_a_packet_are_counted_until_they_have_it_or_go() {
        let mut wants = Wants::default();
        for rank in 1..=4 {
            (0..3).for_each(|seq| wants.add(Rank(rank), Seq(seq), false));
        }
        wants.add(Rank(1), Seq(0), true);
        assert_eq!((wants.lacking(Seq(0)), wants.lacking(Seq(3))), (4, 0));
        wants.forget(Rank(2));
        wants.on_expects(Rank(3), Seq(2));
        assert_eq!([0, 1, 2].map(|seq| wants.lacking(Seq(seq))), [2, 2, 3]);
        assert_eq!(wants.first(), Some((Rank(1), Seq(0), true)));
        wants.send_to_one(Rank(1), Seq(0));
        assert_eq!(wants.lacking(Seq(0)), 1);
        assert!(!wants.send_to_all(Seq(2)).asks);
        assert_eq!([0, 1, 2].map(|seq| wants.lacking(Seq(seq))), [1, 2, 0]);
        wants.clear();
        assert_eq!((wants.is_empty(), wants.lacking(Seq(1))), (true, 0));
    }
}
