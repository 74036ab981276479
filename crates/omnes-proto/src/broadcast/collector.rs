//! What the ranks that report here have, what must be sent again to whom, and until when an answer
//! is waited for.
//!
//! The root has one, every co-root, and in a tree of acknowledgements every inner rank, which
//! repairs nothing but asks again. Times: the group's round trip is that from a packet that asks
//! for an answer until the last of the answers, so that the timer fits the slowest rank, and in a
//! tree the highest of the branches; the time over which answers are spread comes on top. Which
//! reports are older than a repair, its history tells.

use super::history::{History, Times, Witness};
use super::incoming::answer_spread;
use super::least::Least;
use super::roles::Reporter;
use super::wants::{Repair, Wants};
use crate::lane::{Allowance, LOSS_ROUND_PACKETS, LossWindow, Rtt};
use crate::limits::BACKOFF_DOUBLINGS_MAX;
use crate::packet::Destination;
use omnes_wire::{CodedSet, GapMap, Instant, Rank, Seq};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait for an answer.
const TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// Waits without progress before they become longer.
const FRUITLESS_PROMPT: u32 = 4;
/// Longest wait that doubling leads to, unless answers take longer.
const BACKOFF_MAX: Duration = Duration::from_millis(20);

/// Round trip to the nearest rank that is assumed before one was measured.
const FASTEST_INITIAL: Duration = Duration::from_micros(100);

/// Measurements after which one that came out too long no longer counts.
const SAMPLES_WELL: u32 = 8;

/// Part of a round trip for which repairs may wait for others: a quarter, beside the whole one that
/// they take anyway.
const HOLD_SHARE: u32 = 4;

/// How one reporter stands.
#[derive(Debug)]
struct Standing {
    reporter: Reporter,
    /// Packets that have arrived at all that it speaks for. It counts on where numbers wrap.
    arrived: u64,
    /// Packets beyond that it has room for.
    credit: u32,
    is_gone: bool,
    /// Since when it owes an answer that was asked for.
    silent_since: Option<Instant>,
    is_reported_silent: bool,
}

/// The number of the packet after so many.
fn after(packets: u64) -> Seq {
    Seq(packets as u32)
}

impl Standing {
    /// Everything before has arrived at all that it speaks for.
    fn expects(&self) -> Seq {
        after(self.arrived)
    }

    /// Packets that may have been sent by the time it has no room for more.
    fn end(&self) -> u64 {
        self.arrived + u64::from(self.credit)
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Collector {
    standings: Vec<Standing>,
    /// Where each reporter's standing is, ascending.
    index: Vec<(Rank, u32)>,
    /// Those that others speak for, ascending.
    below: Vec<Rank>,
    /// What has arrived at each who is there, and for what it has room.
    arrived: Least,
    ends: Least,
    wants: Wants,
    /// Follows the loss of the rank that loses most.
    window: LossWindow,
    lost: BTreeMap<Rank, u32>,
    freed: u32,
    /// Repairs may go out as one, so they may wait for others.
    pub(super) may_hold: bool,
    held_until: Option<Instant>,
    /// When new gaps were reported last.
    gaps_at: Instant,
    pub(super) history: History,
    round_trip: Rtt,
    fastest: Option<Duration>,
    /// How often it was measured.
    samples: u32,
    /// A packet that asked for answers, and when it did.
    asked: Option<(Seq, Instant)>,
    is_first_answer: bool,
    /// Until then, those who were asked together send their answers, one after the other.
    answers_until: Instant,
    deadline: Option<Instant>,
    doublings: u32,
    /// Times that the wait was over since the slowest has come on.
    fruitless: u32,
    /// Those whose acknowledgement is asked for again, where nothing can be sent again.
    to_ask: Vec<Rank>,
}

impl Collector {
    /// Of `reporters`, none of which has anything yet, and each has room for `credit` packets;
    /// `window_bytes` may be under way at first.
    pub(super) fn new(reporters: Vec<Reporter>, credit: u32, window_bytes: u32) -> Self {
        let count = reporters.len() as u32;
        let mut index: Vec<(Rank, u32)> =
            reporters.iter().map(|reporter| reporter.rank).zip(0..).collect();
        index.sort_unstable();
        let below = reporters.iter().flat_map(|reporter| &reporter.below).copied();
        let mut below: Vec<Rank> = below.collect();
        below.sort_unstable();
        let standing = |reporter| Standing {
            reporter,
            arrived: 0,
            credit,
            is_gone: false,
            silent_since: None,
            is_reported_silent: false,
        };
        Self {
            standings: reporters.into_iter().map(standing).collect(),
            index,
            below,
            arrived: Least::new(0, count),
            ends: Least::new(u64::from(credit), count),
            wants: Wants::default(),
            window: LossWindow::new(window_bytes),
            lost: BTreeMap::new(),
            freed: 0,
            may_hold: false,
            held_until: None,
            gaps_at: Instant::ZERO,
            history: History::default(),
            round_trip: Rtt::new(),
            fastest: None,
            samples: 0,
            asked: None,
            is_first_answer: false,
            answers_until: Instant::ZERO,
            deadline: None,
            doublings: 0,
            fruitless: 0,
            to_ask: Vec::new(),
        }
    }

    /// Everything before has arrived at all who are still there; `None` if nobody is.
    pub(super) fn slowest(&self) -> Option<Seq> {
        self.arrived.get().map(after)
    }

    /// One past the last packet that all have room for; `None` if nobody is there.
    pub(super) fn limit(&self) -> Option<Seq> {
        self.ends.get().map(after)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// True if a round trip has been measured.
    pub(super) fn knows_round_trip(&self) -> bool {
        self.fastest.is_some()
    }

    /// True if that was done some times: the least of the first answers tells how fast they are,
    /// and the first of them may have waited for the root.
    pub(super) fn knows_round_trip_well(&self) -> bool {
        self.samples >= SAMPLES_WELL
    }

    /// Where the standing of a reporter is.
    fn find(&self, rank: Rank) -> Option<usize> {
        let at = self.index.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.index[at].1 as usize)
    }

    /// True if `rank` is known to have `seq`.
    pub(super) fn has(&self, rank: Rank, seq: Seq) -> bool {
        let standing = self.find(rank).map(|at| &self.standings[at]);
        standing.is_some_and(|standing| standing.is_gone || seq.precedes(standing.expects()))
    }

    /// True if a reporter speaks for `rank`.
    pub(super) fn covers(&self, rank: Rank) -> bool {
        self.find(rank).is_some() || self.below.binary_search(&rank).is_ok()
    }

    /// A reporter that is there has come on, or has another room.
    fn change(&mut self, at: usize, expects: Seq, credit: u32) {
        let standing = &mut self.standings[at];
        let (arrived, end) = (standing.arrived, standing.end());
        standing.arrived += u64::from(expects.since(standing.expects()));
        standing.credit = credit;
        if standing.is_gone {
            return;
        }
        if standing.arrived != arrived {
            self.arrived.remove(arrived);
            self.arrived.add(standing.arrived);
        }
        if standing.end() != end {
            self.ends.remove(end);
            self.ends.add(standing.end());
        }
    }

    // ---- reports --------------------------------------------------------------------------

    /// `from` has everything before `expects`, which the owner has checked, and room for `credit`
    /// packets from there on. It held the report back for a time, if that is known. True if the
    /// slowest has come on.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        from: Rank,
        (expects, credit): (Seq, u32),
        held_back: Option<Duration>,
    ) -> bool {
        self.wants.on_expects(from, expects);
        self.doublings = 0; // The path works.
        let Some(at) = self.find(from) else { return false };
        let standing = &mut self.standings[at];
        standing.silent_since = None;
        standing.is_reported_silent = false;
        if expects.precedes(standing.expects()) {
            return false;
        }
        let before = self.slowest();
        self.change(at, expects, credit);
        self.take_sample(now, expects, held_back);
        let has_advanced = self.slowest() != before;
        if has_advanced {
            self.deadline = None;
            self.fruitless = 0;
        }
        has_advanced
    }

    fn take_sample(&mut self, now: Instant, expects: Seq, held_back: Option<Duration>) {
        let Some((seq, at)) = self.asked.filter(|(seq, _)| seq.precedes(expects)) else { return };
        let Some(held_back) = held_back else {
            self.asked = None;
            return;
        };
        let sample = now.since(at).saturating_sub(held_back);
        if self.is_first_answer {
            self.is_first_answer = false;
            // Forgotten slowly, as paths change.
            let kept = self.fastest.map_or(sample, |fastest| fastest * 17 / 16);
            self.fastest = Some(kept.min(sample));
            self.samples = self.samples.saturating_add(1);
        }
        if self.slowest().is_none_or(|slowest| seq.precedes(slowest)) {
            self.round_trip.add_sample(sample);
            self.asked = None;
        }
    }

    /// `from` lacks what `map` does not report from `expects` on, up to its end, of the packets
    /// before `end`.
    pub(super) fn on_gaps(
        &mut self,
        now: Instant,
        from: Witness,
        (expects, map): (Seq, &GapMap),
        end: Seq,
    ) {
        let Some(slowest) = self.slowest() else { return };
        let is_first = self.wants.is_empty();
        let mut is_news = false;
        for index in 0..map.end(expects).since(expects) {
            let seq = expects.plus(index);
            let is_mine = seq.precedes(end) && !seq.precedes(slowest);
            let is_missing = is_mine && !map.contains(expects, seq);
            if is_missing && !self.is_under_way(now, from, seq) {
                let is_new = self.wants.add(from.rank, seq, false);
                *self.lost.entry(from.rank).or_default() += u32::from(is_new);
                is_news |= is_new;
            }
        }
        if !is_news {
            return;
        }
        if is_first && self.may_hold {
            // Worth it where reports follow each other closely.
            let wait = self.round_trip.smoothed() / HOLD_SHARE;
            self.held_until = (now.since(self.gaps_at) < wait).then(|| now + wait);
        }
        self.gaps_at = now;
    }

    /// True if `seq` may be under way to who reports.
    pub(super) fn is_under_way(&mut self, now: Instant, from: Witness, seq: Seq) -> bool {
        let fastest = self.fastest.unwrap_or(FASTEST_INITIAL) * 3 / 4;
        let times = Times { fastest, usual: self.round_trip.smoothed() };
        self.history.is_under_way(now, from, seq, times)
    }

    /// `rank` lacks `seq`.
    pub(super) fn want(&mut self, rank: Rank, seq: Seq, asks: bool) {
        if self.wants.is_empty() {
            self.held_until = None;
        }
        self.wants.add(rank, seq, asks);
    }

    /// Until when repairs may wait for others that fit into one packet with them.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held_until.filter(|_| self.has_repairs())
    }

    /// True if they may wait at `now`.
    pub(super) fn holds_repairs(&self, now: Instant) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }

    /// Lets the wait run out; true if it does.
    pub(super) fn end_hold(&mut self, now: Instant) -> bool {
        self.held_until.take_if(|until| *until <= now).is_some()
    }

    /// Truesize that may be under way, as the loss has it.
    pub(super) fn window_bytes(&self) -> u32 {
        self.window.bytes()
    }

    /// So many packets more have arrived everywhere; at most `bytes_max` may be under way.
    pub(super) fn on_freed(&mut self, packets: u32, bytes_max: u32) {
        self.freed += packets;
        if self.freed < LOSS_ROUND_PACKETS {
            return;
        }
        self.window.on_lost(self.lost.values().max().copied().unwrap_or_default());
        self.window.on_answered(std::mem::take(&mut self.freed), bytes_max);
        self.lost.clear();
    }

    // ---- repairs --------------------------------------------------------------------------

    /// True if something is to be sent again.
    pub(super) fn has_repairs(&self) -> bool {
        !self.wants.is_empty()
    }

    /// The next packet to send again: to everybody where at least `multicast_ranks` lack it, else
    /// to one after the other, each rank's packets in a row.
    ///
    /// Where ranks lack different packets, several go to everybody as one. `may_follow` has a bit
    /// for each packet, from its argument on, that may be in one with it.
    pub(super) fn next_repair(
        &mut self,
        multicast_ranks: u32,
        mut may_follow: impl FnMut(Seq) -> u64,
    ) -> Option<Repair> {
        let base = self.codable(&mut may_follow);
        if let Some(base) = base
            && let Some(set) = self.take_coded(base, may_follow(base), multicast_ranks)
        {
            let to = Destination::Group;
            return Some(Repair { seq: set.first, coded: Some(set), to, asks: false });
        }
        let (rank, seq, is_asking) = match base {
            // So that it is in nobody's way.
            Some(base) => (self.wants.first_without(base)?, base, false),
            None => self.wants.first()?,
        };
        // A question to everybody is answered by everybody, also by those who have nothing to say.
        let half = if is_asking { self.standings.len().div_ceil(2) as u32 } else { 0 };
        let is_wide = self.history.is_wide(seq);
        if self.wants.lacking(seq) < multicast_ranks.max(2).max(half) && !is_wide {
            return Some(self.wants.send_to_one(rank, seq));
        }
        Some(self.wants.send_to_all(seq))
    }

    /// The first packet that may go out as one with others, where several ranks lack something.
    fn codable(&mut self, mut may_follow: impl FnMut(Seq) -> u64) -> Option<Seq> {
        if self.wants.ranks() < 2 {
            return None;
        }
        // Who asks again for a packet that was coded could not make use of it.
        self.wants.lowest(|seq| !self.history.was_coded(seq) && may_follow(seq) & 1 == 1)
    }

    fn take_coded(&mut self, base: Seq, may_follow: u64, least_ranks: u32) -> Option<CodedSet> {
        let spent = (0..u64::BITS).filter(|at| self.history.was_coded(base.plus(*at)));
        let spent = spent.fold(0, |all, at| all | 1 << at);
        self.wants.take_coded(base, may_follow & !spent, least_ranks)
    }

    // ---- time -----------------------------------------------------------------------------

    /// `seq` goes out and will be answered by all, without delay.
    pub(super) fn on_asked(&mut self, now: Instant, seq: Seq) {
        if self.asked.is_none() {
            self.asked = Some((seq, now));
            self.is_first_answer = true;
        }
    }

    /// Everybody is asked now.
    pub(super) fn on_asked_all(&mut self, now: Instant) {
        self.answers_until = now + answer_spread(self.standings.len() as u32);
    }

    /// Waits for answers, unless it does already.
    pub(super) fn arm(&mut self, now: Instant, allowance: Allowance) {
        if self.slowest().is_none() || self.deadline.is_some() {
            return;
        }
        let (mean, spread) = (self.round_trip.smoothed(), self.round_trip.deviation());
        let estimate = mean + mean.max(4 * spread);
        let usual = estimate.max(allowance.least).min(TIMEOUT_MAX) + allowance.held_back;
        // Who answers without coming on has no room: it tells when it has.
        let without_room = self.fruitless.saturating_sub(FRUITLESS_PROMPT);
        let doublings = self.doublings.max(without_room).min(BACKOFF_DOUBLINGS_MAX);
        let wait = (usual * (1 << doublings)).min(usual.max(BACKOFF_MAX));
        let last_answer = self.answers_until + estimate.min(TIMEOUT_MAX);
        self.deadline = Some(last_answer.max(now + wait));
    }

    /// Everything has been answered.
    pub(super) fn disarm(&mut self) {
        self.deadline = None;
        self.doublings = 0;
        self.fruitless = 0;
    }

    /// If the wait is over: where those stand who have not reported everything before `end`.
    fn take_late(&mut self, now: Instant, end: Seq) -> Vec<usize> {
        if self.deadline.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.deadline = None;
        self.asked = None; // An answer could be to either packet.
        let is_late = |standing: &Standing| !standing.is_gone && standing.expects().precedes(end);
        let standings = self.standings.iter().enumerate();
        let late: Vec<usize> =
            standings.filter(|(_, standing)| is_late(standing)).map(|(at, _)| at).collect();
        if !late.is_empty() {
            self.doublings += 1;
            self.fruitless += 1;
        }
        late
    }

    /// The wait is over: the packet before `end` goes again to all reporters who have not reported
    /// it, and their answers will tell what else they lack; those whom they wait for they ask
    /// themselves. Where that did not help before, they may have no buffer for anything but the
    /// first that they lack, so that goes too. False if the wait is not over or nobody is late.
    pub(super) fn on_timeout(&mut self, now: Instant, end: Seq) -> bool {
        let late = self.take_late(now, end);
        let last = end.plus(u32::MAX);
        for at in &late {
            let standing = &mut self.standings[*at];
            standing.silent_since.get_or_insert(now);
            let (rank, first) = (standing.reporter.rank, standing.expects());
            self.want(rank, last, true);
            if self.fruitless > 1 {
                self.want(rank, first, true);
            }
        }
        !late.is_empty()
    }

    /// As [`Self::on_timeout`] where nothing can be sent again: those who are late are asked for
    /// their acknowledgement. Whether they live is for others to judge.
    pub(super) fn ask_again(&mut self, now: Instant, end: Seq) -> bool {
        let late = self.take_late(now, end);
        self.to_ask = late.iter().map(|at| self.standings[*at].reporter.rank).collect();
        !late.is_empty()
    }

    /// The next rank to ask.
    pub(super) fn next_to_ask(&mut self) -> Option<Rank> {
        self.to_ask.pop()
    }

    /// The next rank that owes an answer and has been silent for `limit`.
    pub(super) fn next_silent(&mut self, now: Instant, limit: Duration) -> Option<Rank> {
        let is_silent = |standing: &&mut Standing| {
            let since = standing.silent_since.filter(|_| !standing.is_reported_silent);
            !standing.is_gone && since.is_some_and(|since| now.since(since) >= limit)
        };
        let standing = self.standings.iter_mut().find(is_silent)?;
        standing.is_reported_silent = true;
        Some(standing.reporter.rank)
    }

    /// This rank has not run before `now`: nobody has been silent for longer than since then.
    pub(super) fn on_pause(&mut self, now: Instant) {
        for standing in &mut self.standings {
            standing.silent_since = standing.silent_since.map(|_| now);
        }
    }

    /// Nobody waits for `rank` any more.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.wants.forget(rank);
        self.to_ask.retain(|asked| *asked != rank);
        let Some(at) = self.find(rank) else { return };
        let standing = &mut self.standings[at];
        if !std::mem::replace(&mut standing.is_gone, true) {
            self.arrived.remove(standing.arrived);
            self.ends.remove(standing.end());
        }
    }

    /// Nobody waits for anybody any more.
    pub(super) fn forget_all(&mut self) {
        self.wants.clear();
        self.to_ask.clear();
        self.standings.iter_mut().for_each(|standing| standing.is_gone = true);
        self.arrived.clear();
        self.ends.clear();
        self.disarm();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ASKED: Allowance =
        Allowance { least: Duration::from_micros(200), held_back: Duration::ZERO };

    const WITNESS: Witness = Witness { rank: Rank(1), repair: None, is_idle: false };

    fn collector(ranks: u32) -> Collector {
        let alone = |rank| Reporter { rank: Rank(rank), below: Vec::new() };
        Collector::new((1..=ranks).map(alone).collect(), 100, 1 << 20)
    }

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    fn report(collector: &mut Collector, us: u64, rank: u32, expects: u32) -> bool {
        collector.on_report(at(us), Rank(rank), (Seq(expects), 100), Some(Duration::ZERO))
    }

    #[test]
    fn slowest_comes_on_when_the_last_has_reported() {
        // [BC-R23]: nobody is sent more than the one with the least room has offered.
        let mut collector = collector(3);
        assert!(!report(&mut collector, 1, 1, 5));
        assert!(!report(&mut collector, 2, 3, 7));
        assert!(report(&mut collector, 3, 2, 6));
        assert_eq!(collector.slowest(), Some(Seq(5)));
        assert_eq!(collector.limit(), Some(Seq(105)));
        collector.forget(Rank(1));
        assert_eq!(collector.slowest(), Some(Seq(6)));
        collector.forget_all();
        assert_eq!(collector.slowest(), None);
    }

    #[test]
    fn what_few_lack_goes_to_them_and_what_many_lack_to_all() {
        // [BC-R9] as D-06 has it.
        let mut collector = collector(3);
        let mut map = GapMap::default();
        map.insert(Seq(0), Seq(1));
        map.insert(Seq(0), Seq(3));
        collector.on_gaps(at(1), WITNESS, (Seq(0), &map), Seq(9));
        collector.want(Rank(3), Seq(2), false);
        let mut next = || collector.next_repair(2, |_| 0).map(|repair| (repair.seq.0, repair.to));
        assert_eq!(next(), Some((0, Destination::Rank(Rank(1)))));
        assert_eq!(next(), Some((2, Destination::Group)));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_report_takes_back_what_was_wanted_before() {
        let mut collector = collector(2);
        (0..4).for_each(|seq| collector.want(Rank(1), Seq(seq), false));
        report(&mut collector, 1, 1, 3);
        assert_eq!(collector.next_repair(2, |_| 0).unwrap().seq, Seq(3));
        assert!(!collector.has_repairs());
    }

    #[test]
    fn timeout_follows_the_slowest_answer_and_asks_those_who_are_late() {
        // [BC-R22]
        let mut collector = collector(3);
        for round in 0..50u32 {
            let start = u64::from(round) * 10_000;
            collector.history.on_sent(at(start), Seq(round));
            collector.on_asked(at(start), Seq(round));
            report(&mut collector, start + 100, 1, round + 1);
            report(&mut collector, start + 300, 2, round + 1);
            report(&mut collector, start + 1000, 3, round + 1);
        }
        collector.arm(at(1_000_000), ASKED);
        let waits = collector.deadline().unwrap().since(at(1_000_000));
        assert!(waits >= Duration::from_micros(1900) && waits < Duration::from_micros(2100));
        assert!(!collector.on_timeout(at(1_000_100), Seq(51)));
        report(&mut collector, 1_000_200, 1, 51);
        assert!(collector.on_timeout(at(1_003_000), Seq(51)));
        let repair = collector.next_repair(2, |_| 0).unwrap();
        assert_eq!(
            repair,
            Repair { seq: Seq(50), coded: None, to: Destination::Group, asks: true }
        );
        collector.arm(at(1_003_000), ASKED);
        assert!(collector.deadline().unwrap().since(at(1_003_000)) >= 2 * waits - waits / 10);
    }

    #[test]
    fn silence_counts_from_the_end_of_a_pause_on() {
        let mut collector = collector(2);
        let limit = Duration::from_micros(1000);
        collector.history.on_sent(at(0), Seq(0));
        collector.arm(at(0), ASKED);
        assert!(collector.on_timeout(at(500_000), Seq(1)));
        report(&mut collector, 500_100, 1, 1);
        collector.on_pause(at(9_000_000));
        assert_eq!(collector.next_silent(at(9_000_999), limit), None);
        assert_eq!(collector.next_silent(at(9_001_000), limit), Some(Rank(2)));
        assert_eq!(collector.next_silent(at(9_999_000), limit), None);
    }

    #[test]
    fn a_report_older_than_the_repair_changes_nothing() {
        let mut collector = collector(1);
        collector.history.on_sent(at(0), Seq(0));
        collector.on_asked(at(0), Seq(0));
        report(&mut collector, 100, 1, 1);
        let mut map = GapMap::default();
        map.insert(Seq(1), Seq(2));
        collector.history.on_sent(at(200), Seq(1));
        collector.on_gaps(at(270), WITNESS, (Seq(1), &map), Seq(9));
        assert!(!collector.has_repairs());
        collector.on_gaps(at(280), WITNESS, (Seq(1), &map), Seq(9));
        assert!(collector.has_repairs());
    }

    #[test]
    fn repairs_wait_for_others_where_reports_follow_each_other_closely() {
        let mut collector = collector(3);
        collector.may_hold = true;
        let mut map = GapMap::default();
        map.insert(Seq(0), Seq(5));
        let wait = collector.round_trip.smoothed() / HOLD_SHARE;
        let start = at(1_000_000);
        collector.on_gaps(start, WITNESS, (Seq(0), &map), Seq(9));
        assert!(!collector.holds_repairs(start), "the first is not held");
        while collector.next_repair(9, |_| 0).is_some() {}
        let next = start + wait / 2;
        collector.on_gaps(next, Witness { rank: Rank(2), ..WITNESS }, (Seq(0), &map), Seq(9));
        assert!(collector.holds_repairs(next));
        assert_eq!(collector.held_until(), Some(next + wait));
        assert!(collector.end_hold(next + wait) && collector.held_until().is_none());
    }
}
