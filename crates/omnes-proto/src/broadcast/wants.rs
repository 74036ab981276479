//! Packets to be sent again, and the ranks that lack them.

use crate::lane::SeqBits;
use crate::limits::WINDOW_PACKETS_MAX;
use crate::packet::Destination;
use omnes_wire::{CodedSet, Rank, Seq};
use std::collections::BTreeMap;

/// Packets that one rank lacks.
#[derive(Debug, Default)]
struct Wanted {
    bits: SeqBits,
    count: u32,
    /// No earlier packet is wanted.
    low: Seq,
    /// The last of these packets requests an immediate answer.
    asks: bool,
}

impl Wanted {
    /// First packet that is lacking; at least one is.
    fn low(&mut self) -> Seq {
        while !self.bits.contains(self.low) {
            self.low = self.low.plus(1);
        }
        self.low
    }

    /// First lacking packet that `may` accepts.
    fn lowest(&mut self, mut may: impl FnMut(Seq) -> bool) -> Option<Seq> {
        let first = self.low();
        let all = (0..).map(|index| first.plus(index)).filter(|seq| self.bits.contains(*seq));
        all.take(self.count as usize).find(|seq| may(*seq))
    }
}

/// Packet to send again, or several combined in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repair {
    pub(super) seq: Seq,
    /// The packets combined in this repair, if it is a coded one.
    pub(super) coded: Option<CodedSet>,
    pub(super) to: Destination,
    pub(super) asks: bool,
}

/// Packets of a window that each rank lacks. State: nothing until a rank lacks something for the
/// first time; then 4 KiB, and 150 B for each rank that lacks something.
#[derive(Debug, Default)]
pub(super) struct Wants {
    by_rank: BTreeMap<Rank, Wanted>,
    /// Number of ranks that lack each packet of the window, by number.
    lacking: Vec<u32>,
}

fn ring(seq: Seq) -> usize {
    (seq.0 % WINDOW_PACKETS_MAX) as usize
}

impl Wants {
    /// True if no rank lacks anything.
    pub(super) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// Number of ranks that lack something.
    pub(super) fn ranks(&self) -> usize {
        self.by_rank.len()
    }

    /// Records that `rank` lacks `seq`; returns true if this is new.
    pub(super) fn add(&mut self, rank: Rank, seq: Seq, asks: bool) -> bool {
        let wanted = self.by_rank.entry(rank).or_default();
        if wanted.count == 0 || seq.precedes(wanted.low) {
            wanted.low = seq;
        }
        wanted.asks |= asks;
        if wanted.bits.contains(seq) {
            return false;
        }
        wanted.bits.insert(seq);
        wanted.count += 1;
        if self.lacking.is_empty() {
            self.lacking = vec![0; WINDOW_PACKETS_MAX as usize];
        }
        self.lacking[ring(seq)] += 1;
        true
    }

    /// `rank` has every packet before `expects`.
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

    /// `rank` needs nothing more.
    pub(super) fn forget(&mut self, rank: Rank) {
        let Some(wanted) = self.by_rank.remove(&rank) else { return };
        wanted.bits.indices().for_each(|index| self.lacking[index] -= 1);
    }

    /// No rank needs anything more.
    pub(super) fn clear(&mut self) {
        self.by_rank.clear();
        self.lacking.clear();
    }

    /// Next rank and packet to serve, and whether the rank is to answer.
    pub(super) fn first(&mut self) -> Option<(Rank, Seq, bool)> {
        let (rank, wanted) = self.by_rank.iter_mut().next()?;
        Some((*rank, wanted.low(), wanted.asks))
    }

    /// Number of ranks that lack `seq`.
    pub(super) fn lacking(&self, seq: Seq) -> u32 {
        self.lacking.get(ring(seq)).copied().unwrap_or_default()
    }

    /// `seq` is sent to `rank`.
    pub(super) fn send_to_one(&mut self, rank: Rank, seq: Seq) -> Repair {
        let asks = self.settle(rank, seq);
        Repair { seq, coded: None, to: Destination::Rank(rank), asks }
    }

    /// `seq` is sent to all ranks.
    pub(super) fn send_to_all(&mut self, seq: Seq) -> Repair {
        let ranks: Vec<Rank> = self.by_rank.keys().copied().collect();
        let mut asks = false;
        for rank in ranks {
            asks |= self.settle(rank, seq);
        }
        Repair { seq, coded: None, to: Destination::Group, asks }
    }

    /// First packet accepted by `may` that is lacked by a rank that need not answer.
    pub(super) fn lowest(&mut self, mut may: impl FnMut(Seq) -> bool) -> Option<Seq> {
        let unasked = self.by_rank.values_mut().filter(|wanted| !wanted.asks);
        let lows = unasked.filter_map(|wanted| wanted.lowest(&mut may));
        lows.reduce(|least, other| if other.precedes(least) { other } else { least })
    }

    /// Takes packets to send to all combined in one: `base`, and as many packets after it with a
    /// bit in `may` as leave each rank at most one to recover. `None` if `base` would be alone, or
    /// if fewer than `least` ranks would recover something.
    pub(super) fn take_coded(&mut self, base: Seq, may: u64, least: u32) -> Option<CodedSet> {
        let unasked = || self.by_rank.values().filter(|wanted| !wanted.asks);
        let words: Vec<u64> = unasked().map(|wanted| wanted.bits.word_from(base)).collect();
        let mut left = words.iter().fold(0, |all, word| all | word) & may;
        let mut chosen = 0;
        while left != 0 {
            let packet = 1 << left.trailing_zeros();
            chosen |= packet;
            let lacking = words.iter().filter(|word| **word & packet != 0);
            left &= !lacking.fold(packet, |all, word| all | word);
        }
        let served = words.iter().filter(|word| **word & chosen != 0).count() as u32;
        let set = CodedSet::new(base, chosen);
        if set.count() < 2 || served < least {
            return None;
        }
        let Self { by_rank, lacking } = self;
        by_rank.retain(|_, wanted| {
            let is_served = !wanted.asks && wanted.bits.word_from(base) & chosen != 0;
            for seq in set.packets().filter(|_| is_served) {
                if wanted.bits.take(seq) {
                    wanted.count -= 1;
                    lacking[ring(seq)] -= 1;
                }
            }
            wanted.count > 0
        });
        Some(set)
    }

    /// First rank that lacks `seq` and need not answer.
    pub(super) fn first_without(&self, seq: Seq) -> Option<Rank> {
        let lacks = |wanted: &Wanted| !wanted.asks && wanted.bits.contains(seq);
        self.by_rank.iter().find(|(_, wanted)| lacks(wanted)).map(|(rank, _)| *rank)
    }

    /// `seq` is sent to `rank`; returns true if an answer is requested and nothing else is to be
    /// sent there.
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
    fn coded_packet_combines_packets_of_which_no_rank_lacks_two() {
        let lacking = [(1, [3, 40]), (2, [3, 7]), (3, [5, 9]), (4, [9, 62])];
        let mut wants = Wants::default();
        for (rank, seqs) in lacking {
            seqs.into_iter().for_each(|seq| _ = wants.add(Rank(rank), Seq(seq), false));
        }
        wants.add(Rank(5), Seq(2), true);
        assert_eq!(wants.lowest(|_| true), Some(Seq(3)), "who is to answer is apart");
        assert_eq!(wants.take_coded(Seq(3), u64::MAX, 5), None, "serves 4");
        assert_eq!(wants.take_coded(Seq(3), 1, 1), None, "3 alone");
        let next = |wants: &mut Wants| {
            let base = wants.lowest(|_| true)?;
            let set = wants.take_coded(base, u64::MAX, 2)?;
            Some(set.packets().map(|seq| seq.0).collect::<Vec<_>>())
        };
        assert_eq!(next(&mut wants), Some(vec![3, 5]));
        assert_eq!(next(&mut wants), Some(vec![7, 9, 40]));
        assert_eq!(next(&mut wants), None);
        assert_eq!(wants.ranks(), 2, "4 lacks 62, and 5 is to answer");
        assert_eq!((wants.lacking(Seq(3)), wants.lacking(Seq(62))), (0, 1));
    }

    #[test]
    fn ranks_lacking_a_packet_are_counted_until_repair_or_departure() {
        let mut wants = Wants::default();
        for rank in 1..=4 {
            (0..3).for_each(|seq| _ = wants.add(Rank(rank), Seq(seq), false));
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
