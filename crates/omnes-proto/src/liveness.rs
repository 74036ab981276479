//! Failure detection: every rank watches the next one, and tells all others when it has failed.
//!
//! The ranks form a ring in which ranks of one node are not adjacent ([`ring`]): when a node loses
//! power, its ranks are watched from other nodes, by a different rank each. A rank asks its
//! successor for a sign of life when it has not heard from it for some time, and four times as
//! often while no answer arrives, as questions and answers may be lost; after
//! [`LivenessConfig::timeout`] without one the successor has failed. A rank that finds a failure,
//! by this watch, by an answer that never arrived or by other means, tells every other rank and
//! repeats the report until it is confirmed; then the ring closes over the gap. Whole nodes that
//! are adjacent in the ring may fail at the same time, for example those behind one switch. So
//! while none of the ranks that a rank watches gives a sign of life, it watches and asks as many
//! more, and stops watching those when one does.
//!
//! Any packet from the successor counts as a sign of life, but not indefinitely: another host may
//! replay its earlier packets. Only the answer to a new question, with the question's own number,
//! proves that the rank is alive; a rank that sends packets is asked for this proof every half
//! timeout.
//!
//! A rank that did not run for some time, because it was stopped or starved, has heard nothing in
//! that time, and the others may have been stopped with it: silence counts from the end of such a
//! pause on, and the successor is asked immediately ([`Liveness::on_pause`]).
//!
//! Ranks may start at different times, as the start message may be lost: for
//! [`LivenessConfig::grace`] from the start on, silence is not a failure.
//!
//! A rank that leaves sends one farewell to each other rank, which may be lost. So questions and
//! answers carry a digest of the gone ranks: if two digests differ, each rank tells the other which
//! ones it knows of.
//!
//! Guarantees: a rank that dies or is cut off is reported to all others, whether or not any rank
//! waits for it,
//!
//! - within the timeout and a few round trips;
//! - half an interval later for each doubling of the number of adjacent ranks of the ring that die
//!   at the same time;
//! - within two timeouts if another host replays its packets;
//! - not before the grace is over; and the time starts anew with each pause of the rank that
//!   watches, and when that rank leaves.
//!
//! The departure of a rank is known to all within half a timeout, provided that the successor of
//! each rank that missed the farewell knows of it, though possibly as a failure; if a rank has
//! missed many farewells, it is told of 32 at a time.
//!
//! Cost: at most two packets per rank and interval while the job is idle and nothing is lost, two
//! per half timeout if the successor sends packets anyway; one report and one answer per rank and
//! failure. State: an entry for each gone rank.

use crate::group::Nodes;
use crate::lane::earliest;
use crate::mixing::mixed;
use omnes_wire::{Instant, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// Settings of the watch.
#[derive(Clone, Copy, Debug)]
pub struct LivenessConfig {
    /// Silence after which a sign of life is asked for; an unanswered question is repeated after a
    /// quarter of it.
    pub interval: Duration,
    /// Silence after which the successor has failed.
    pub timeout: Duration,
    /// Time from the start on in which no rank fails by silence: a rank may learn by so much later
    /// than others that it may start.
    pub grace: Duration,
}

impl Default for LivenessConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(500),
            timeout: Duration::from_secs(4),
            grace: Duration::ZERO,
        }
    }
}

/// Questions in each interval of silence after the first one: with a tenth of all packets lost on
/// each link, one question in three remains unanswered, and occasionally seven in a row.
const QUESTIONS_PER_INTERVAL: u32 = 4;
/// Questions without a sign of life after which further ranks are watched as well: a single one is
/// often lost.
const QUESTIONS_TO_WIDEN: u32 = 2;
/// Most ranks that are watched at the same time: the ranks after them have to wait.
const WATCHED_MAX: usize = 1024;
/// Most repetitions of an unconfirmed report.
const REPORT_REPEATS_MAX: u32 = 16;
/// Most ranks that are reported at a time if digests differ.
const TOLD_AT_ONCE_MAX: usize = 32;

/// Message for the endpoint to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WatchMessage {
    Ping { to: Rank, question: u32 },
    Failed { to: Rank, failed: Rank },
    Departed { to: Rank, departed: Rank },
}

/// Reason why a rank is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gone {
    Failed,
    Departed,
}

/// Last rank that a side of the ring was told of, and the time from which on it may be told of
/// others.
#[derive(Clone, Copy, Debug)]
struct Told {
    last: Rank,
    until: Instant,
}

/// Rank that is watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    rank: Rank,
    heard_at: Instant,
    /// Time at which it was last known to be alive, by its answer to a question that was new then.
    proved_at: Instant,
    /// Number of the last question that it has answered; never equal to a rank.
    answered: u32,
    /// Number of questions since it was last heard from.
    questions: u32,
    is_ping_due: bool,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Liveness {
    me: Rank,
    size: u32,
    nodes: Nodes,
    /// Ranks that have failed or left.
    gone: BTreeMap<Rank, Gone>,
    /// Equal on two ranks if they know the same ranks as gone, for whatever reason.
    digest: u32,
    /// What the successor (index 1) and all other ranks (index 0) were last told when digests
    /// differed. With one entry for both, one side might be told of the same ranks each time.
    told: [Told; 2],
    first_failed: Option<Rank>,
    config: LivenessConfig,
    started_at: Instant,
    /// Next living ranks of the ring, in order: the successor, and more while all are silent.
    watched: Vec<Watched>,
    /// Number of the last question that was asked; never equal to a rank.
    asked: u32,
    ping_at: Option<Instant>,
    unconfirmed: BTreeSet<(Rank, Rank)>,
    to_tell: Vec<WatchMessage>,
    tell_at: Option<Instant>,
    repeats: u32,
}

impl Liveness {
    pub(crate) fn new(now: Instant, me: Rank, size: u32, config: LivenessConfig) -> Self {
        let mut liveness = Self {
            me,
            size,
            nodes: Nodes::one_each(size),
            gone: BTreeMap::new(),
            digest: 0,
            told: [Told { last: me, until: now }; 2],
            first_failed: None,
            config,
            started_at: now,
            watched: Vec::new(),
            asked: size,
            ping_at: None,
            unconfirmed: BTreeSet::new(),
            to_tell: Vec::new(),
            tell_at: None,
            repeats: 0,
        };
        liveness.watch_next(now);
        liveness
    }

    pub(crate) fn is_gone(&self, rank: Rank) -> bool {
        // Called for each packet; usually no rank is gone.
        rank.0 >= self.size || !self.gone.is_empty() && self.gone.contains_key(&rank)
    }

    pub(crate) fn has_departed(&self, rank: Rank) -> bool {
        self.gone.get(&rank) == Some(&Gone::Departed)
    }

    /// Rank whose failure became known first; the cause of all later failures.
    pub(crate) fn first_failed(&self) -> Option<Rank> {
        self.first_failed
    }

    /// True while ranks have not confirmed reports sent to them.
    pub(crate) fn is_telling(&self) -> bool {
        self.tell_at.is_some() && !self.unconfirmed.is_empty()
    }

    /// Builds the ring from `nodes`, which contain all ranks of the job; by default each rank is a
    /// node.
    pub(crate) fn use_nodes(&mut self, now: Instant, nodes: Nodes) {
        self.nodes = nodes;
        self.watched.clear();
        self.watch_next(now);
    }

    fn successor(&self) -> Option<Rank> {
        self.watched.first().map(|watched| watched.rank)
    }

    /// Ranks before this one in the ring that are not gone, the nearest first: those that watch it
    /// now, or would watch it next.
    pub(crate) fn watchers(&self) -> impl Iterator<Item = Rank> + '_ {
        ring(&self.nodes, self.me, Way::Back).filter(|rank| !self.is_gone(*rank))
    }

    /// Stops watching gone ranks, and watches the next living rank of the ring if none is left.
    fn watch_next(&mut self, now: Instant) {
        let Self { watched, gone, .. } = self;
        watched.retain(|it| !gone.contains_key(&it.rank));
        if self.watched.is_empty() {
            self.watch_more(now, 1);
            self.ping_at = self.successor().map(|_| now + self.config.interval);
        }
    }

    /// Watches `more` ranks after those that are watched.
    fn watch_more(&mut self, now: Instant, more: usize) {
        let ring = ring(&self.nodes, self.me, Way::On).filter(|rank| !self.is_gone(*rank));
        let next: Vec<Rank> = ring.skip(self.watched.len()).take(more).collect();
        let answered = self.asked;
        self.watched.extend(next.into_iter().map(|rank| Watched {
            rank,
            heard_at: now,
            proved_at: now,
            answered,
            questions: 0,
            is_ping_due: false,
        }));
    }

    /// Doubles the number of watched ranks, and asks the new ones, if all watched ranks are silent;
    /// stops watching the ranks after the first one that is not silent.
    fn widen(&mut self, now: Instant) {
        let is_well = |it: &Watched| it.questions == 0 && !it.is_ping_due;
        if let Some(first) = self.watched.iter().position(is_well) {
            self.watched.truncate(first + 1);
        } else if self.watched.iter().all(|it| it.questions >= QUESTIONS_TO_WIDEN) {
            let present = self.watched.len();
            self.watch_more(now, present.min(WATCHED_MAX - present));
            self.watched[present..].iter_mut().for_each(|it| it.is_ping_due = true);
        }
    }

    /// An authentic packet of `rank` has arrived.
    pub(crate) fn on_heard(&mut self, now: Instant, rank: Rank) {
        if let Some(watched) = self.watched.iter_mut().find(|it| it.rank == rank) {
            (watched.heard_at, watched.questions) = (now, 0);
        }
    }

    /// An answer of `rank` has arrived: to a question, or to a report that a rank has failed.
    pub(crate) fn on_answer(&mut self, now: Instant, rank: Rank, number: u32) {
        if number < self.size {
            self.unconfirmed.remove(&(rank, Rank(number)));
            return;
        }
        let asked = self.asked;
        let is_new = |it: &&mut Watched| it.rank == rank && it.answered < number && number <= asked;
        if let Some(watched) = self.watched.iter_mut().find(is_new) {
            (watched.answered, watched.proved_at) = (number, now);
        }
    }

    /// True while no rank fails by silence.
    pub(crate) fn is_starting(&self, now: Instant) -> bool {
        now.since(self.started_at) < self.config.grace
    }

    /// This rank did not run for some time before `now`: the successor has a whole timeout from now
    /// on, and is asked for a sign of life.
    pub(crate) fn on_pause(&mut self, now: Instant) {
        self.watched.truncate(1);
        if let Some(watched) = self.watched.first_mut() {
            (watched.heard_at, watched.proved_at) = (now, now);
            (watched.questions, watched.is_ping_due) = (0, true);
            self.ping_at = Some(now + self.config.interval / QUESTIONS_PER_INTERVAL);
        }
    }

    /// Records that `rank` has failed; returns false if this was known.
    pub(crate) fn on_failed(&mut self, now: Instant, rank: Rank) -> bool {
        if self.is_gone(rank) || rank == self.me {
            return false;
        }
        self.first_failed.get_or_insert(rank);
        self.on_gone(now, rank, Gone::Failed);
        true
    }

    /// The other ranks have excluded this rank: if it leaves now, this is the reason.
    pub(crate) fn on_excluded(&mut self) {
        self.first_failed.get_or_insert(self.me);
    }

    fn on_gone(&mut self, now: Instant, rank: Rank, gone: Gone) {
        self.gone.insert(rank, gone);
        self.digest = self.digest.wrapping_add(mixed(rank.0));
        self.unconfirmed.retain(|(to, _)| *to != rank);
        self.watch_next(now);
    }

    /// Digest that questions and answers carry, for [`Self::on_digest`].
    pub(crate) fn digest(&self) -> u32 {
        self.digest
    }

    /// Handles a `digest` carried by a question or an answer of `rank`: if it differs, `rank` is
    /// told of some of the gone ranks, no more often than it is asked for a sign of life.
    pub(crate) fn on_digest(&mut self, now: Instant, rank: Rank, digest: u32) {
        let side = &mut self.told[usize::from(self.successor() == Some(rank))];
        if digest == self.digest || now < side.until {
            return;
        }
        side.until = now + self.config.interval / QUESTIONS_PER_INTERVAL;
        let later = self.gone.range((Bound::Excluded(side.last), Bound::Unbounded));
        let in_turn = later.chain(self.gone.range(..=side.last));
        let mut told: Vec<_> = in_turn.take(TOLD_AT_ONCE_MAX).collect();
        side.last = told.last().map_or(side.last, |(gone, _)| **gone);
        // Messages are taken from the end: failures first, because they make other ranks leave.
        told.sort_by_key(|(_, how)| **how == Gone::Failed);
        self.to_tell.extend(told.into_iter().map(|(&gone, how)| match how {
            Gone::Failed => WatchMessage::Failed { to: rank, failed: gone },
            Gone::Departed => WatchMessage::Departed { to: rank, departed: gone },
        }));
    }

    /// Tells all other ranks that `rank` has failed, until they confirm.
    pub(crate) fn tell_all(&mut self, now: Instant, failed: Rank) {
        let others = (0..self.size).map(Rank);
        let others = others.filter(|to| *to != self.me && !self.is_gone(*to));
        let news: Vec<(Rank, Rank)> = others.map(|to| (to, failed)).collect();
        self.unconfirmed.extend(&news);
        self.to_tell
            .extend(news.into_iter().map(|(to, failed)| WatchMessage::Failed { to, failed }));
        self.repeats = 0;
        self.tell_at = Some(now + self.config.interval / 4);
    }

    /// Records that `rank` has left in good order; returns false if it was gone already.
    pub(crate) fn on_departed(&mut self, now: Instant, rank: Rank) -> bool {
        if self.is_gone(rank) || rank == self.me {
            return false;
        }
        self.on_gone(now, rank, Gone::Departed);
        true
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        earliest([self.ping_at, self.tell_at])
    }

    /// Fires the timers that are due; returns a rank that has just failed, of which there may be
    /// more.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Rank> {
        self.repeat_reports(now);
        if self.ping_at.is_none_or(|at| at > now) {
            return None;
        }
        let LivenessConfig { interval, timeout, .. } = self.config;
        let silence = |it: &Watched| (now.since(it.heard_at), now.since(it.proved_at));
        let has_failed = |it: &&Watched| {
            let (silence, unproved) = silence(it);
            silence >= timeout || unproved >= 2 * timeout
        };
        if !self.is_starting(now)
            && let Some(failed) = self.watched.iter().find(has_failed)
        {
            return Some(failed.rank);
        }
        for watched in &mut self.watched {
            let (silence, unproved) = silence(watched);
            let is_late = silence >= interval || unproved >= timeout / 2;
            watched.is_ping_due = is_late || watched.questions > 0;
        }
        self.widen(now);
        let is_asking = self.watched.iter().any(|it| it.is_ping_due);
        let questions = if is_asking { QUESTIONS_PER_INTERVAL } else { 1 };
        self.ping_at = Some(now + interval / questions);
        None
    }

    fn repeat_reports(&mut self, now: Instant) {
        if self.tell_at.is_none_or(|at| at > now) {
            return;
        }
        self.tell_at = None;
        if !self.unconfirmed.is_empty() && self.repeats < REPORT_REPEATS_MAX {
            self.repeats += 1;
            let again = self.unconfirmed.iter();
            self.to_tell = again.map(|&(to, failed)| WatchMessage::Failed { to, failed }).collect();
            self.tell_at = Some(now + self.config.interval);
        }
    }

    pub(crate) fn poll_message(&mut self) -> Option<WatchMessage> {
        if let Some(message) = self.to_tell.pop() {
            return Some(message);
        }
        let watched = self.watched.iter_mut().find(|it| it.is_ping_due)?;
        (watched.is_ping_due, watched.questions) = (false, watched.questions + 1);
        // Four per second for each watched rank: no question is outstanding for as long as a wrap
        // takes.
        self.asked = self.asked.wrapping_add(1);
        Some(WatchMessage::Ping { to: watched.rank, question: self.asked })
    }
}

/// Direction in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    On,
    Back,
}

/// The other ranks in the order of the ring from `me` on. The ring contains the first rank of each
/// node, then the second of each node that has one, and so on.
fn ring(nodes: &Nodes, me: Rank, way: Way) -> impl Iterator<Item = Rank> + '_ {
    let place = nodes.place(me).expect("a rank of the job");
    let row = (place.seat - nodes.seats_of(place.node).start) as usize;
    let (count, rows) = (nodes.count() as usize, nodes.widest().unwrap_or_default());
    let (start, all) = (row * count + place.node as usize, rows * count);
    (1..all).filter_map(move |step| {
        let step = if way == Way::On { step } else { all - step };
        let at = (start + step) % all;
        nodes.seats_of((at % count) as u32).nth(at / count).map(|seat| nodes.rank(seat))
    })
}

#[cfg(test)]
mod tests;
