//! What the ranks that report here have, and which packets must be sent again to which of them.
//!
//! The root has a collector, and so have each co-root and, in a tree of acknowledgements, each
//! inner rank. Inner ranks do not repair, but ask for overdue acknowledgements. The collector's
//! [`AnswerTimer`] determines how long to wait for answers; its [`History`] tells which reports are
//! older than a repair.

mod deaf;
mod failed_repairs;
mod hold;
mod multicast_health;

use self::deaf::Deaf;
use self::failed_repairs::FailedRepairs;
use self::hold::RepairHold;
use self::multicast_health::MulticastHealth;
use super::answer_timer::AnswerTimer;
use super::history::{History, Witness};
use super::least::Least;
use super::roles::Reporter;
use super::wants::{Repair, Wants};
use crate::lane::{LOSS_ROUND_PACKETS, LossWindow};
use crate::packet::Destination;
use omnes_wire::{CodedSet, GapMap, Instant, Rank, Seq};
use std::collections::BTreeMap;
use std::time::Duration;

/// State of one reporter.
#[derive(Debug)]
struct ReporterState {
    reporter: Reporter,
    /// Number of packets, from the first on, that every rank this reporter speaks for has received;
    /// does not wrap as sequence numbers do.
    arrived: u64,
    /// Number of packets after those for which it has space.
    credit: u32,
    /// The reporter has failed or left: its reports are no longer awaited.
    is_gone: bool,
    /// Set while it owes an answer that was asked for.
    silence: Option<Silence>,
}

/// Interval of questions to a silent rank alone. If many ranks are late, questions go to all; but a
/// rank that does not know the group, or that multicast does not reach, answers only packets to
/// itself alone.
const ALONE_INTERVAL: Duration = Duration::from_millis(100);

/// Time for which a reporter has not reported.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Instant,
    /// Time at which it was last asked alone, or [`Self::since`].
    asked_alone: Instant,
    /// It has shown another sign of life since then.
    lives: bool,
}

impl Silence {
    fn new(now: Instant) -> Self {
        Self { since: now, asked_alone: now, lives: false }
    }

    /// True if the rank is to be asked alone now.
    fn take_alone(&mut self, now: Instant) -> bool {
        let is_time = now.since(self.asked_alone) >= ALONE_INTERVAL;
        if is_time {
            self.asked_alone = now;
        }
        is_time
    }
}

/// Reporter that owes an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silent {
    pub(super) rank: Rank,
    /// First packet that it has not reported.
    pub(super) lacks: Seq,
    pub(super) since: Instant,
    /// It has shown another sign of life since then.
    pub(super) lives: bool,
}

/// Sequence number of the packet after the first `packets` ones.
fn after(packets: u64) -> Seq {
    Seq::nth(packets as u32)
}

impl ReporterState {
    /// Lowest sequence number that not every rank this reporter speaks for has received.
    fn expects(&self) -> Seq {
        after(self.arrived)
    }

    /// Number of packets, from the first on, that may be sent before it has no space for the next
    /// one.
    fn end(&self) -> u64 {
        self.arrived + u64::from(self.credit)
    }

    /// The reporter has reported.
    fn on_heard(&mut self) {
        self.silence = None;
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Collector {
    states: Vec<ReporterState>,
    /// Rank of each reporter with its index in `states`, ascending by rank.
    index: Vec<(Rank, u32)>,
    /// Ranks that reporters speak for, other than themselves, ascending.
    below: Vec<Rank>,
    /// [`ReporterState::arrived`] of each reporter that is not gone.
    arrived: Least,
    /// [`ReporterState::end`] of the same reporters.
    ends: Least,
    wants: Wants,
    /// Packets that go to one rank alone in any case.
    wants_alone: Wants,
    deaf: Deaf,
    /// Window that follows the loss of the rank that loses most.
    window: LossWindow,
    /// Number of packets that each rank has reported as missing since the loss was last evaluated.
    lost: BTreeMap<Rank, u32>,
    /// Number of packets that have arrived everywhere since then.
    freed: u32,
    pub(super) hold: RepairHold,
    multicast: MulticastHealth,
    pub(super) history: History,
    failed_repairs: FailedRepairs,
    pub(super) answers: AnswerTimer,
    /// Ranks to ask again for their acknowledgement, where this rank cannot repair.
    to_ask: Vec<Rank>,
}

impl Collector {
    /// Creates the collector of the reports of `reporters`. None of them has received anything yet,
    /// and each has space for `credit` packets; initially `window_bytes` of truesize may be in
    /// flight.
    pub(super) fn new(reporters: Vec<Reporter>, credit: u32, window_bytes: u32) -> Self {
        let count = reporters.len() as u32;
        let mut index: Vec<(Rank, u32)> =
            reporters.iter().map(|reporter| reporter.rank).zip(0..).collect();
        index.sort_unstable();
        let below = reporters.iter().flat_map(|reporter| &reporter.below).copied();
        let mut below: Vec<Rank> = below.collect();
        below.sort_unstable();
        let state = |reporter| ReporterState {
            reporter,
            arrived: 0,
            credit,
            is_gone: false,
            silence: None,
        };
        Self {
            states: reporters.into_iter().map(state).collect(),
            index,
            below,
            arrived: Least::new(0, count),
            ends: Least::new(u64::from(credit), count),
            wants: Wants::default(),
            wants_alone: Wants::default(),
            deaf: Deaf::default(),
            window: LossWindow::new(window_bytes),
            lost: BTreeMap::new(),
            freed: 0,
            hold: RepairHold::default(),
            multicast: MulticastHealth::default(),
            history: History::default(),
            failed_repairs: FailedRepairs::default(),
            answers: AnswerTimer::new(count),
            to_ask: Vec::new(),
        }
    }

    /// Lowest sequence number that not every rank covered by a reporter has received, ignoring
    /// reporters that are gone; `None` if all are gone.
    pub(super) fn slowest(&self) -> Option<Seq> {
        self.arrived.get().map(after)
    }

    /// One past the last packet that all those reporters have space for; `None` as for
    /// [`Self::slowest`].
    pub(super) fn limit(&self) -> Option<Seq> {
        self.ends.get().map(after)
    }

    /// Index of a reporter in `states`; `None` if `rank` is not a reporter.
    fn find(&self, rank: Rank) -> Option<usize> {
        let at = self.index.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.index[at].1 as usize)
    }

    /// True if reporter `rank` is known to have `seq`, or is gone.
    pub(super) fn has(&self, rank: Rank, seq: Seq) -> bool {
        let state = self.find(rank).map(|at| &self.states[at]);
        state.is_some_and(|state| state.is_gone || seq.precedes(state.expects()))
    }

    /// True if `rank` is a reporter, or a reporter speaks for it.
    pub(super) fn covers(&self, rank: Rank) -> bool {
        self.find(rank).is_some() || self.below.binary_search(&rank).is_ok()
    }

    /// The reporter at index `at` has every packet before `expects`, which does not decrease, and
    /// space for `credit` packets from there on.
    fn change(&mut self, at: usize, expects: Seq, credit: u32) {
        let state = &mut self.states[at];
        let (arrived, end) = (state.arrived, state.end());
        state.arrived += u64::from(expects.since(state.expects()));
        state.credit = credit;
        if state.is_gone {
            return;
        }
        if state.arrived != arrived {
            self.arrived.remove(arrived);
            self.arrived.add(state.arrived);
        }
        if state.end() != end {
            self.ends.remove(end);
            self.ends.add(state.end());
        }
    }

    // ---- reports --------------------------------------------------------------------------

    /// `from`, with all ranks it speaks for, has every packet before `expects`, and space for
    /// `credit` packets from there on; the caller has checked that `expects` is possible. `from`
    /// delayed the report by `held_back`, if that is known. Returns true if [`Self::slowest`] has
    /// advanced.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        from: Rank,
        (expects, credit): (Seq, u32),
        held_back: Option<Duration>,
    ) -> bool {
        self.wants.on_expects(from, expects);
        self.wants_alone.on_expects(from, expects);
        self.answers.on_heard();
        let Some(at) = self.find(from) else { return false };
        let state = &mut self.states[at];
        state.on_heard();
        if expects.precedes(state.expects()) {
            return false;
        }
        let before = self.slowest();
        self.change(at, expects, credit);
        let slowest = self.slowest();
        self.answers.on_answer(now, expects, held_back, slowest);
        let has_advanced = slowest != before;
        if has_advanced {
            self.answers.on_progress();
            self.multicast.on_progress();
            if self.has_come_by_itself(before, slowest) {
                self.multicast.restore();
            }
        }
        has_advanced
    }

    /// `from` reports gaps: of the packets from `expects` to the end of `map`, it lacks those that
    /// `map` does not contain. This rank can repair only packets before `end`. A rank that has some
    /// of the packets is not silent, though it may have no buffer for the others for a long time.
    pub(super) fn on_gaps(
        &mut self,
        now: Instant,
        from: Witness,
        (expects, map): (Seq, &GapMap),
        end: Seq,
    ) {
        let Some(slowest) = self.slowest() else { return };
        if expects.precedes(end) {
            self.note_lacking(now, from, expects);
        }
        let has_some = map.end(expects) != expects;
        if let Some(at) = self.find(from.rank).filter(|_| has_some) {
            self.states[at].on_heard();
        }
        let is_first = !self.has_repairs();
        let is_deaf = self.deaf.contains(from.rank);
        let mut is_news = false;
        for index in 0..map.end(expects).since(expects) {
            let seq = expects.plus(index);
            let is_kept = seq.precedes(end) && !seq.precedes(slowest);
            let is_missing = is_kept && !map.contains(expects, seq);
            if is_missing && !self.is_under_way(now, from, seq) {
                let is_new = self.wants_of(from.rank).add(from.rank, seq, false);
                is_news |= is_new;
                if !is_deaf {
                    *self.lost.entry(from.rank).or_default() += u32::from(is_new);
                }
            }
        }
        if !is_news {
            return;
        }
        self.hold.on_gaps(now, is_first.then(|| self.answers.times().usual));
    }

    /// The set that holds the wants of `rank`.
    fn wants_of(&mut self, rank: Rank) -> &mut Wants {
        if self.deaf.contains(rank) { &mut self.wants_alone } else { &mut self.wants }
    }

    /// Evaluates a report of `rank`: `hears` says whether a packet sent to all has arrived there
    /// since its last report; `end` is one past the last packet sent to all.
    pub(super) fn note_hearing(&mut self, now: Instant, rank: Rank, hears: bool, end: Seq) {
        let was_deaf = self.deaf.contains(rank);
        let (history, times) = (&self.history, self.answers.times());
        let is_long_sent = |seq| history.is_long_sent(now, seq, times);
        self.deaf.on_report(now, (rank, hears), end, is_long_sent);
        if was_deaf != self.deaf.contains(rank) {
            self.forget_wants(rank); // Its copies, or its next report, make up for it.
            self.lost.remove(&rank);
        }
    }

    fn forget_wants(&mut self, rank: Rank) {
        self.wants.forget(rank);
        self.wants_alone.forget(rank);
    }

    /// True if packets sent to all do not reach `rank`.
    pub(super) fn is_deaf(&self, rank: Rank) -> bool {
        self.deaf.contains(rank)
    }

    /// Retries multicast for ranks that have been deaf for long enough.
    pub(super) fn retry_deaf(&mut self, now: Instant) {
        while let Some(rank) = self.deaf.take_due(now) {
            self.forget_wants(rank);
        }
    }

    /// `from` reports that `first`, which this rank can repair, is the first packet it lacks.
    fn note_lacking(&mut self, now: Instant, from: Witness, first: Seq) {
        if from.is_full {
            self.failed_repairs.forget(from.rank);
        } else if let Some(repair) = self.history.latest_repair(first) {
            self.failed_repairs.on_lacking(now, from.rank, first, repair);
        }
    }

    /// True if `seq` may be in flight to `from`, which reports it as missing.
    pub(super) fn is_under_way(&mut self, now: Instant, from: Witness, seq: Seq) -> bool {
        self.history.is_under_way(now, from, seq, self.answers.times())
    }

    /// `rank` lacks `seq`. If `asks`, the last packet sent to it requests an immediate answer.
    pub(super) fn want(&mut self, rank: Rank, seq: Seq, asks: bool) {
        if !self.has_repairs() {
            self.hold.end();
        }
        self.wants_of(rank).add(rank, seq, asks);
    }

    /// Time until which repairs may wait for others that fit into one packet with them.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.hold.until().filter(|_| self.has_repairs())
    }

    /// True if repairs may still wait at `now`.
    pub(super) fn holds_repairs(&self, now: Instant) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }

    /// Ends that wait if its deadline has passed; returns true if so.
    pub(super) fn end_hold(&mut self, now: Instant) -> bool {
        self.hold.end_if_over(now)
    }

    /// Bytes of truesize that may be in flight at the present loss.
    pub(super) fn window_bytes(&self) -> u32 {
        self.window.bytes()
    }

    /// `packets` more packets have arrived everywhere. If little is lost, more may be in flight
    /// from now on, at most `bytes_max`.
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

    /// True if any packet is to be sent again.
    pub(super) fn has_repairs(&self) -> bool {
        !self.wants.is_empty() || !self.wants_alone.is_empty()
    }

    /// Returns the next packet to send again: to all ranks if at least `multicast_ranks` lack it,
    /// otherwise to one rank after the other, all packets of a rank in a row.
    ///
    /// If ranks lack different packets, several of these go to all ranks combined in one.
    /// `may_follow(seq)` returns which packets may be combined: bit `i` stands for the packet `i`
    /// after `seq`, bit 0 for `seq` itself.
    pub(super) fn next_repair(
        &mut self,
        multicast_ranks: u32,
        mut may_follow: impl FnMut(Seq) -> u64,
    ) -> Option<Repair> {
        if let Some((rank, seq, _)) = self.wants_alone.first() {
            return Some(self.wants_alone.send_to_one(rank, seq));
        }
        let trusts = self.multicast.holds();
        let base = self.codable(&mut may_follow).filter(|_| trusts);
        if let Some(base) = base
            && let Some(set) = self.take_coded(base, may_follow(base), multicast_ranks)
        {
            let to = Destination::Group;
            return Some(Repair { seq: set.first, coded: Some(set), to, asks: false });
        }
        let (rank, seq, is_asking) = match base {
            // It is sent alone, or it would prevent the packets after it from being combined.
            Some(base) => (self.wants.first_without(base)?, base, false),
            None => self.wants.first()?,
        };
        // A question to all ranks is answered by all, also by ranks that lack nothing.
        let half = if is_asking { self.states.len().div_ceil(2) as u32 } else { 0 };
        let many = multicast_ranks.max(2).max(half);
        let is_wide = self.wants.lacking(seq) >= many || self.history.is_wide(seq);
        if trusts && is_wide {
            return Some(self.wants.send_to_all(seq));
        }
        Some(self.wants.send_to_one(rank, seq))
    }

    /// A repair is sent; `end` is one past the last packet that has been sent.
    pub(super) fn on_repaired(&mut self, now: Instant, repair: &Repair, end: Seq) {
        self.history.on_repaired(now, repair);
        if Some(repair.seq) != self.slowest() || repair.to != Destination::Group {
            return;
        }
        self.multicast.on_repair_to_all(now, end);
    }

    /// True if a packet from `before` to `slowest`, all of which have arrived everywhere, has not
    /// been sent to any rank alone, though it was sent while multicast was not trusted.
    fn has_come_by_itself(&self, before: Option<Seq>, slowest: Option<Seq>) -> bool {
        let (Some(from), Some(before)) = (self.multicast.lost_from(), before) else { return false };
        let first = if before.precedes(from) { from } else { before };
        let Some(slowest) = slowest.filter(|slowest| first.precedes(*slowest)) else {
            return false;
        };
        let mut arrived = (0..slowest.since(first)).map(|index| first.plus(index));
        arrived.any(|seq| !self.history.has_gone_to_one(seq))
    }

    /// First packet that may be combined with others, if several ranks lack something.
    fn codable(&mut self, mut may_follow: impl FnMut(Seq) -> u64) -> Option<Seq> {
        if self.wants.ranks() < 2 {
            return None;
        }
        // A rank that reports a packet again after it was sent in a coded one could not decode it.
        self.wants.lowest(|seq| !self.history.was_coded(seq) && may_follow(seq) & 1 == 1)
    }

    fn take_coded(&mut self, base: Seq, may_follow: u64, least_ranks: u32) -> Option<CodedSet> {
        let spent = (0..u64::BITS).filter(|at| self.history.was_coded(base.plus(*at)));
        let spent = spent.fold(0, |all, at| all | 1 << at);
        self.wants.take_coded(base, may_follow & !spent, least_ranks)
    }

    // ---- who is late ----------------------------------------------------------------------

    /// Indices in `states` of the reporters that have not reported every packet before `end`, if
    /// the wait for answers is over; empty otherwise.
    fn take_late(&mut self, now: Instant, end: Seq) -> Vec<usize> {
        if !self.answers.end_wait(now) {
            return Vec::new();
        }
        let is_late = |state: &ReporterState| !state.is_gone && state.expects().precedes(end);
        let states = self.states.iter().enumerate();
        let late: Vec<usize> =
            states.filter(|(_, state)| is_late(state)).map(|(at, _)| at).collect();
        if !late.is_empty() {
            self.answers.on_late();
        }
        late
    }

    /// If the wait for answers is over, sends the packet before `end` again to each reporter that
    /// has not reported it, whose answer will show what else it lacks; in a tree, reporters ask the
    /// ranks below themselves. If that did not help before, a reporter may have no buffer for any
    /// packet but the first one it lacks, so that one is sent too. Returns false if the wait is not
    /// over or no reporter is late.
    pub(super) fn on_timeout(&mut self, now: Instant, end: Seq) -> bool {
        let late = self.take_late(now, end);
        let last = end.plus(u32::MAX);
        for at in &late {
            let state = &mut self.states[*at];
            let is_alone = state.silence.get_or_insert(Silence::new(now)).take_alone(now);
            let (rank, first) = (state.reporter.rank, state.expects());
            if is_alone {
                self.wants_alone.add(rank, last, true);
            } else {
                self.want(rank, last, true);
            }
            if self.answers.is_stuck() {
                self.want(rank, first, true);
            }
        }
        !late.is_empty()
    }

    /// As [`Self::on_timeout`] where this rank cannot repair: asks late reporters for their
    /// acknowledgement. Other ranks judge whether the reporters are alive.
    pub(super) fn ask_again(&mut self, now: Instant, end: Seq) -> bool {
        let late = self.take_late(now, end);
        self.to_ask = late.iter().map(|at| self.states[*at].reporter.rank).collect();
        !late.is_empty()
    }

    /// Next rank to ask for its acknowledgement.
    pub(super) fn next_to_ask(&mut self) -> Option<Rank> {
        self.to_ask.pop()
    }

    /// Reporters that have owed an answer for `limit` without reporting.
    pub(super) fn silent(&self, now: Instant, limit: Duration) -> Vec<Silent> {
        let silent = |state: &ReporterState| {
            let silence = state.silence.filter(|_| !state.is_gone)?;
            let Silence { since, lives, .. } = silence;
            let (rank, lacks) = (state.reporter.rank, state.expects());
            (now.since(since) >= limit).then_some(Silent { rank, lacks, since, lives })
        };
        self.states.iter().filter_map(silent).collect()
    }

    /// `rank` has answered a liveness probe.
    pub(super) fn on_sign_of_life(&mut self, rank: Rank) {
        let state = self.find(rank).map(|at| &mut self.states[at]);
        if let Some(silence) = state.and_then(|state| state.silence.as_mut()) {
            silence.lives = true;
        }
    }

    /// First packet that `rank` lacks, if repairs of it have failed so often, and for `limit`, that
    /// this cannot be chance.
    pub(super) fn lacks_after_repairs(
        &self,
        now: Instant,
        rank: Rank,
        limit: Duration,
    ) -> Option<Seq> {
        self.failed_repairs.first_of(now, rank, limit)
    }

    /// If `rank` owes an answer, it is owed only from now on.
    pub(super) fn forgive_silence(&mut self, now: Instant, rank: Rank) {
        if let Some(at) = self.find(rank) {
            let state = &mut self.states[at];
            state.silence = state.silence.map(|_| Silence::new(now));
        }
    }

    /// This rank did not run before `now`: silence is measured only from now on.
    pub(super) fn on_pause(&mut self, now: Instant) {
        for state in &mut self.states {
            state.silence = state.silence.map(|_| Silence::new(now));
        }
        self.failed_repairs.clear();
    }

    /// `rank` has failed or left: nothing is awaited from it any more.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.forget_wants(rank);
        self.deaf.forget(rank);
        self.failed_repairs.forget(rank);
        self.to_ask.retain(|asked| *asked != rank);
        let Some(at) = self.find(rank) else { return };
        let state = &mut self.states[at];
        if !std::mem::replace(&mut state.is_gone, true) {
            self.arrived.remove(state.arrived);
            self.ends.remove(state.end());
        }
    }

    /// Nothing is awaited from any rank any more.
    pub(super) fn forget_all(&mut self) {
        self.wants.clear();
        self.wants_alone.clear();
        self.failed_repairs.clear();
        self.to_ask.clear();
        self.states.iter_mut().for_each(|state| state.is_gone = true);
        self.arrived.clear();
        self.ends.clear();
        self.answers.disarm();
    }
}

#[cfg(test)]
mod tests;
