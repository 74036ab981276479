//! When and how each packet of a window was last sent: a packet that is reported as missing may
//! still be in flight.
//!
//! Time alone says little, as packets may wait in queues for longer than the rest of the path
//! takes. So repairs are numbered, packets carry the number of the latest repair, and reports carry
//! the newest number that was seen: since packets are rarely reordered much, everything sent before
//! that repair has arrived or is lost.

use super::wants::Repair;
use crate::limits::WINDOW_PACKETS_MAX;
use omnes_wire::{Instant, Rank, Seq};
use std::time::Duration;

/// Rank that reports, with what its report shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    pub(super) rank: Rank,
    /// Number of the newest repair that it has seen, if repairs are numbered.
    pub(super) repair: Option<u16>,
    /// The report is repeated, as nothing has arrived for some time.
    pub(super) is_idle: bool,
    /// The first packet that it lacks has arrived there, but found no buffer.
    pub(super) is_full: bool,
}

/// Round trips of the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// To the nearest rank.
    pub(super) fastest: Duration,
    /// To the last of all ranks, including the time in queues.
    pub(super) usual: Duration,
}

impl Times {
    /// Time after which a packet to one rank alone has usually arrived.
    fn soon(self) -> Duration {
        self.fastest.max(self.usual / 2)
    }
}

/// Half of the number space of repairs.
const HALF: u16 = 1 << 15;

/// When a packet was sent, and as which repair, if it had been sent before.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    at: Instant,
    repair: Option<u16>,
}

/// Conclusion from the numbers of repairs.
enum Numbers {
    Nothing,
    /// A packet that was sent later has arrived.
    Passed,
    NotPassed,
}

impl Sent {
    fn numbers(&self, from: Witness) -> Numbers {
        match (self.repair, from.repair) {
            (Some(repair), Some(newest)) if newest.wrapping_sub(repair) < HALF => Numbers::Passed,
            (Some(_), Some(_)) => Numbers::NotPassed,
            _ => Numbers::Nothing,
        }
    }

    /// True if the packet, which was sent to all, may still be in flight to the reporting rank.
    fn is_under_way_to_all(&self, now: Instant, from: Witness, times: Times) -> bool {
        let wait = match self.numbers(from) {
            Numbers::Passed => return false,
            Numbers::NotPassed if !from.is_idle => times.fastest.max(times.usual),
            Numbers::NotPassed | Numbers::Nothing => times.fastest,
        };
        now.since(self.at) < wait
    }

    /// As above for a packet to that rank alone: it uses another socket, which may be read later.
    fn is_under_way_to_one(&self, now: Instant, from: Witness, times: Times) -> bool {
        let wait = match self.numbers(from) {
            Numbers::NotPassed if !from.is_idle => times.fastest.max(times.usual),
            Numbers::NotPassed => times.fastest,
            Numbers::Passed | Numbers::Nothing => times.soon(),
        };
        now.since(self.at) < wait
    }
}

/// How a packet was last sent.
#[derive(Clone, Copy, Debug, Default)]
struct LastSent {
    to_all: Sent,
    /// To one rank alone, and whether that rank was certain to lack it.
    to_one: Option<(Rank, Sent, bool)>,
    /// Several ranks have asked for it within a short time, so many may lack it.
    is_wide: bool,
    /// It was sent combined with others.
    was_coded: bool,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Packets of a window by number; not allocated before the first packet is sent.
    window: Vec<LastSent>,
    /// Number of packets sent again; wraps.
    repairs: u16,
}

impl History {
    fn get(&self, seq: Seq) -> Option<&LastSent> {
        self.window.get((seq.0 % WINDOW_PACKETS_MAX) as usize)
    }

    fn get_mut(&mut self, seq: Seq) -> &mut LastSent {
        if self.window.is_empty() {
            self.window = vec![LastSent::default(); WINDOW_PACKETS_MAX as usize];
        }
        &mut self.window[(seq.0 % WINDOW_PACKETS_MAX) as usize]
    }

    /// `seq` is sent to all now.
    pub(super) fn on_sent(&mut self, now: Instant, seq: Seq) {
        let to_all = Sent { at: now, repair: None };
        *self.get_mut(seq) = LastSent { to_all, ..LastSent::default() };
    }

    /// True if `seq` was sent to all so long ago that it has arrived or is lost.
    pub(super) fn is_long_sent(&self, now: Instant, seq: Seq, times: Times) -> bool {
        let wait = times.fastest.max(times.usual);
        self.get(seq).is_some_and(|last| now.since(last.to_all.at) >= wait)
    }

    /// A copy of `seq` is sent to `rank` alone.
    pub(super) fn on_copied(&mut self, now: Instant, seq: Seq, rank: Rank) {
        self.get_mut(seq).to_one = Some((rank, Sent { at: now, repair: None }, false));
    }

    /// True if `seq` has been sent to a rank alone since it was last sent to all.
    pub(super) fn has_gone_to_one(&self, seq: Seq) -> bool {
        self.get(seq).is_some_and(|last| last.to_one.is_some())
    }

    /// Number of the latest repair of `seq`, if it has been repaired.
    pub(super) fn latest_repair(&self, seq: Seq) -> Option<u16> {
        let last = self.get(seq)?;
        last.to_one.map_or(last.to_all, |(_, sent, _)| sent).repair
    }

    /// Number of the latest repair of any packet.
    pub(super) fn repairs(&self) -> u16 {
        self.repairs
    }

    /// A packet is sent again, as the next repair.
    pub(super) fn on_repaired(&mut self, now: Instant, repair: &Repair) {
        self.repairs = self.repairs.wrapping_add(1);
        let sent = Sent { at: now, repair: Some(self.repairs) };
        let to_all = LastSent { to_all: sent, ..LastSent::default() };
        if let Some(set) = repair.coded {
            let coded = LastSent { was_coded: true, ..to_all };
            return set.packets().for_each(|seq| *self.get_mut(seq) = coded);
        }
        let last = self.get_mut(repair.seq);
        match repair.to.rank() {
            None => *last = to_all,
            Some(rank) => {
                last.to_one = Some((rank, sent, !repair.asks));
                last.was_coded = false;
            }
        }
    }

    /// True if `seq` was sent so recently that a report of `from` cannot reflect it. Also records
    /// that several ranks lack `seq` if it was sent to another rank alone.
    pub(super) fn is_under_way(
        &mut self,
        now: Instant,
        from: Witness,
        seq: Seq,
        times: Times,
    ) -> bool {
        if self.window.is_empty() {
            return false;
        }
        // A repair that has not been sent cannot have been seen.
        let is_sent = |newest: &u16| self.repairs.wrapping_sub(*newest) < HALF;
        let from = Witness { repair: from.repair.filter(is_sent), ..from };
        let last = self.get_mut(seq);
        if last.to_all.is_under_way_to_all(now, from, times) {
            return true;
        }
        let Some((rank, sent, lacked)) = last.to_one else { return false };
        last.is_wide |= lacked && rank != from.rank && now.since(sent.at) < times.soon() * 2;
        rank == from.rank && sent.is_under_way_to_one(now, from, times)
    }

    /// True if several ranks have asked for `seq` within a short time.
    pub(super) fn is_wide(&self, seq: Seq) -> bool {
        self.get(seq).is_some_and(|last| last.is_wide)
    }

    /// True if `seq` was last sent combined with others.
    pub(super) fn was_coded(&self, seq: Seq) -> bool {
        self.get(seq).is_some_and(|last| last.was_coded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Destination;

    const TIMES: Times =
        Times { fastest: Duration::from_micros(100), usual: Duration::from_micros(1000) };
    const RANK: Rank = Rank(1);

    /// True if packet 0, sent again at time 0 as repair 1, counts as in flight `us` later to a rank
    /// that has seen repairs up to `newest`.
    fn is_under_way(to: Destination, us: u64, newest: Option<u16>, is_idle: bool) -> bool {
        let at = |us: u64| Instant::from_ns(1_000_000 + us * 1000);
        let mut history = History::default();
        history.on_sent(Instant::ZERO, Seq(0));
        history.on_repaired(at(0), &Repair { seq: Seq(0), coded: None, to, asks: false });
        let from = Witness { rank: RANK, repair: newest, is_idle, is_full: false };
        history.is_under_way(at(us), from, Seq(0), TIMES)
    }

    #[test]
    fn repair_is_lost_if_overtaken_by_a_later_packet_or_overdue() {
        for to in [Destination::Group, Destination::Rank(RANK)] {
            assert!(is_under_way(to, 900, Some(0), false), "it may lie in a queue");
            assert!(!is_under_way(to, 1000, Some(0), false), "it was sent long ago");
            assert!(!is_under_way(to, 100, Some(0), true), "nothing has come for a time");
            assert!(is_under_way(to, 99, Some(2), false), "such a repair has not been sent");
        }
        assert!(!is_under_way(Destination::Group, 1, Some(1), false), "it has been overtaken");
        // A packet to one rank may wait in a socket that is read later.
        assert!(is_under_way(Destination::Rank(RANK), 499, Some(1), false));
        assert!(!is_under_way(Destination::Rank(RANK), 500, Some(1), false));
        assert!(!is_under_way(Destination::Rank(Rank(2)), 1, Some(1), false));
    }

    #[test]
    fn repair_without_a_number_is_judged_by_time_alone() {
        assert!(is_under_way(Destination::Group, 99, None, false));
        assert!(!is_under_way(Destination::Group, 100, None, false));
        assert!(is_under_way(Destination::Rank(RANK), 499, None, false));
        assert!(!is_under_way(Destination::Rank(RANK), 500, None, false));
    }
}
