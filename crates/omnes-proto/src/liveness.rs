//! Who is alive: every rank watches the next one, and tells all others when it has failed.
//!
//! The ranks form a ring. A rank asks its successor for a sign of life when it has not heard of
//! it for a while, and four times as often while no answer comes, as questions and answers get
//! lost; after [`LivenessConfig::timeout`] without one the successor has failed. Who finds a
//! failure, here, by an answer that never came or by other means, tells every other rank and
//! repeats that until it is confirmed; then the ring closes over the gap.
//!
//! Whatever comes of the successor counts as a sign of life, but not for ever: somebody else may
//! send again what it has sent before. Only the answer to a new question, by the question's own
//! number, proves that it lives; one who talks is asked for that each half timeout.
//!
//! A rank that has not run for a while, stopped or starved, has heard nothing in that time, and the
//! others may have been stopped with it: silence counts from the end of such a pause on, and the
//! successor is asked at once ([`Liveness::on_pause`]).
//!
//! A rank that leaves says so once to each other one, which may get lost. So questions and answers
//! carry a digest of who is gone: where two differ, each tells the other whom it knows of.
//!
//! Guarantees: a rank that dies or is cut off is named to all others within the timeout and a few
//! round trips, whether or not anyone waits for it; within two timeouts where its packets are sent
//! again by somebody else; the time starts anew with each pause of who watches. One that leaves is
//! known to all within half a timeout, as long as the next rank of whoever missed it knows, or as
//! one that has failed; of many farewells that one rank has missed, it hears of 32 at a time. Cost:
//! at most two packets per rank and interval while the job is idle and nothing gets lost, two per
//! half timeout where the successor talks anyway; one notice and one answer per rank and failure.
//! State: an entry for each rank that is gone.

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
}

impl Default for LivenessConfig {
    fn default() -> Self {
        Self { interval: Duration::from_millis(500), timeout: Duration::from_secs(4) }
    }
}

/// Questions in each interval of silence after the first one: with a tenth of all packets lost on
/// each link, one question in three remains unanswered, and seven in a row do now and then.
const QUESTIONS_PER_INTERVAL: u32 = 4;
/// Repetitions of a notice that nobody confirms.
const NOTICE_REPEATS_MAX: u32 = 16;
/// Ranks that are told of at once where digests differ.
const TOLD_AT_ONCE_MAX: usize = 32;

/// What the endpoint is to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    Ping { to: Rank, question: u32 },
    Failed { to: Rank, failed: Rank },
    Departed { to: Rank, departed: Rank },
}

/// How a rank has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gone {
    Failed,
    Departed,
}

/// The last of those that a side of the ring was told of, and when it may be told of others.
#[derive(Clone, Copy, Debug)]
struct Told {
    last: Rank,
    until: Instant,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Liveness {
    me: Rank,
    size: u32,
    /// All others are there.
    gone: BTreeMap<Rank, Gone>,
    /// Equal where the same ranks are gone, however.
    digest: u32,
    /// What others than the successor were told of where digests differed, and what it was. Were it
    /// one turn for both, one side might be told of the same ranks each time.
    told: [Told; 2],
    first_failed: Option<Rank>,
    config: LivenessConfig,
    successor: Option<Rank>,
    heard_at: Instant,
    /// When it was last known to live, by its answer to a question then new.
    proved_at: Instant,
    /// Numbers of the last question that was asked, and of the last one answered; none is a rank's.
    asked: u32,
    answered: u32,
    ping_at: Option<Instant>,
    is_ping_due: bool,
    unconfirmed: BTreeSet<(Rank, Rank)>,
    to_tell: Vec<Notice>,
    tell_at: Option<Instant>,
    repeats: u32,
}

impl Liveness {
    pub(crate) fn new(now: Instant, me: Rank, size: u32, config: LivenessConfig) -> Self {
        let mut liveness = Self {
            me,
            size,
            gone: BTreeMap::new(),
            digest: 0,
            told: [Told { last: me, until: now }; 2],
            first_failed: None,
            config,
            successor: None,
            heard_at: now,
            proved_at: now,
            asked: size,
            answered: size,
            ping_at: None,
            is_ping_due: false,
            unconfirmed: BTreeSet::new(),
            to_tell: Vec::new(),
            tell_at: None,
            repeats: 0,
        };
        liveness.watch_next(now);
        liveness
    }

    pub(crate) fn is_gone(&self, rank: Rank) -> bool {
        // Asked for each packet, and mostly nobody is.
        rank.0 >= self.size || !self.gone.is_empty() && self.gone.contains_key(&rank)
    }

    pub(crate) fn has_departed(&self, rank: Rank) -> bool {
        self.gone.get(&rank) == Some(&Gone::Departed)
    }

    /// The rank whose failure became known first, the cause of whatever failed later.
    pub(crate) fn first_failed(&self) -> Option<Rank> {
        self.first_failed
    }

    /// True while there are ranks that have not confirmed what they were told.
    pub(crate) fn is_telling(&self) -> bool {
        self.tell_at.is_some() && !self.unconfirmed.is_empty()
    }

    /// Finds the next living rank of the ring and starts to watch it.
    fn watch_next(&mut self, now: Instant) {
        let size = self.size;
        let next = (1..size).map(|step| Rank((self.me.0 + step) % size));
        let next = next.into_iter().find(|rank| !self.is_gone(*rank));
        if next != self.successor {
            self.successor = next;
            (self.heard_at, self.proved_at) = (now, now);
            self.answered = self.asked;
            self.is_ping_due = false;
            self.ping_at = next.map(|_| now + self.config.interval);
        }
    }

    /// An authentic packet of `rank` came.
    pub(crate) fn on_heard(&mut self, now: Instant, rank: Rank) {
        if self.successor == Some(rank) {
            self.heard_at = now;
        }
    }

    /// An answer of `rank` came: to a question, or to the notice that a rank has failed.
    pub(crate) fn on_answer(&mut self, now: Instant, rank: Rank, number: u32) {
        if number < self.size {
            self.unconfirmed.remove(&(rank, Rank(number)));
        } else if self.successor == Some(rank) && self.answered < number && number <= self.asked {
            (self.answered, self.proved_at) = (number, now);
        }
    }

    /// This rank has not run for a while before `now`: the successor has a whole timeout from now
    /// on, and is asked for a sign of life.
    pub(crate) fn on_pause(&mut self, now: Instant) {
        if self.successor.is_some() {
            (self.heard_at, self.proved_at) = (now, now);
            self.is_ping_due = true;
            self.ping_at = Some(now + self.config.interval / QUESTIONS_PER_INTERVAL);
        }
    }

    /// `rank` has failed; false if that was known.
    pub(crate) fn on_failed(&mut self, now: Instant, rank: Rank) -> bool {
        if self.is_gone(rank) || rank == self.me {
            return false;
        }
        self.first_failed.get_or_insert(rank);
        self.on_gone(now, rank, Gone::Failed);
        true
    }

    fn on_gone(&mut self, now: Instant, rank: Rank, gone: Gone) {
        self.gone.insert(rank, gone);
        self.digest = self.digest.wrapping_add(mixed(rank.0));
        self.unconfirmed.retain(|(to, _)| *to != rank);
        self.watch_next(now);
    }

    /// What a question or an answer carries, for [`Self::on_digest`].
    pub(crate) fn digest(&self) -> u32 {
        self.digest
    }

    /// A question or an answer of `rank` carried `digest`: where it knows of others than this rank,
    /// it is told of some of those, not more often than it is asked for a sign of life.
    pub(crate) fn on_digest(&mut self, now: Instant, rank: Rank, digest: u32) {
        let side = &mut self.told[usize::from(self.successor == Some(rank))];
        if digest == self.digest || now < side.until {
            return;
        }
        side.until = now + self.config.interval / QUESTIONS_PER_INTERVAL;
        let later = self.gone.range((Bound::Excluded(side.last), Bound::Unbounded));
        let in_turn = later.chain(self.gone.range(..=side.last));
        let mut told: Vec<_> = in_turn.take(TOLD_AT_ONCE_MAX).collect();
        side.last = told.last().map_or(side.last, |(gone, _)| **gone);
        // Taken from the end: failures first, for which others leave.
        told.sort_by_key(|(_, how)| **how == Gone::Failed);
        self.to_tell.extend(told.into_iter().map(|(&gone, how)| match how {
            Gone::Failed => Notice::Failed { to: rank, failed: gone },
            Gone::Departed => Notice::Departed { to: rank, departed: gone },
        }));
    }

    /// Tells all others that `rank` has failed, until they confirm.
    pub(crate) fn tell_all(&mut self, now: Instant, failed: Rank) {
        let others = (0..self.size).map(Rank);
        let others = others.filter(|to| *to != self.me && !self.is_gone(*to));
        let news: Vec<(Rank, Rank)> = others.map(|to| (to, failed)).collect();
        self.unconfirmed.extend(&news);
        self.to_tell.extend(news.into_iter().map(|(to, failed)| Notice::Failed { to, failed }));
        self.repeats = 0;
        self.tell_at = Some(now + self.config.interval / 4);
    }

    /// `rank` has left in good order; false if it was gone already.
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

    /// Runs due timers; the successor, if it has just failed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Rank> {
        self.repeat_notices(now);
        if self.ping_at.is_none_or(|at| at > now) {
            return None;
        }
        let LivenessConfig { interval, timeout } = self.config;
        let (silence, unproved) = (now.since(self.heard_at), now.since(self.proved_at));
        if silence >= timeout || unproved >= 2 * timeout {
            return self.successor;
        }
        self.is_ping_due = silence >= interval || unproved >= timeout / 2;
        let questions = if self.is_ping_due { QUESTIONS_PER_INTERVAL } else { 1 };
        self.ping_at = Some(now + interval / questions);
        None
    }

    fn repeat_notices(&mut self, now: Instant) {
        if self.tell_at.is_none_or(|at| at > now) {
            return;
        }
        self.tell_at = None;
        if !self.unconfirmed.is_empty() && self.repeats < NOTICE_REPEATS_MAX {
            self.repeats += 1;
            let again = self.unconfirmed.iter();
            self.to_tell = again.map(|&(to, failed)| Notice::Failed { to, failed }).collect();
            self.tell_at = Some(now + self.config.interval);
        }
    }

    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        if let Some(notice) = self.to_tell.pop() {
            return Some(notice);
        }
        let to = self.successor?;
        if !std::mem::take(&mut self.is_ping_due) {
            return None;
        }
        // At four in a second it does not wrap within a life.
        self.asked += 1;
        Some(Notice::Ping { to, question: self.asked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    fn liveness(me: u32, size: u32) -> Liveness {
        Liveness::new(Instant::ZERO, Rank(me), size, LivenessConfig::default())
    }

    #[test]
    fn silent_successor_is_asked_and_then_fails() {
        let mut liveness = liveness(3, 4);
        assert_eq!(liveness.handle_timeout(at(500)), None);
        let question = Notice::Ping { to: Rank(0), question: 5 };
        assert_eq!(liveness.poll_notice(), Some(question));
        assert_eq!(liveness.poll_notice(), None);
        for ms in (1000..4000).step_by(500) {
            assert_eq!(liveness.handle_timeout(at(ms)), None);
        }
        assert_eq!(liveness.handle_timeout(at(4000)), Some(Rank(0)));
    }

    #[test]
    fn silent_successor_is_asked_four_times_as_often_until_it_answers() {
        let mut liveness = liveness(3, 4);
        let questions = |liveness: &mut Liveness, from: u64, to: u64| {
            let mut asked = Vec::new();
            for ms in from..to {
                assert_eq!(liveness.handle_timeout(at(ms)), None);
                asked.extend(liveness.poll_notice().map(|_| ms));
            }
            asked
        };
        assert_eq!(questions(&mut liveness, 1, 1001), [500, 625, 750, 875, 1000]);
        liveness.on_heard(at(1001), Rank(0));
        // An answer ends it; the next silence is found as before.
        assert_eq!(questions(&mut liveness, 1001, 1800), [1625, 1750]);
    }

    #[test]
    fn dead_successor_fails_within_the_timeout_and_a_quarter_interval() {
        for heard in 0..500 {
            let mut liveness = liveness(0, 2);
            liveness.on_heard(at(heard), Rank(1));
            let failed = (heard..10_000).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
            let silence = failed.map(|ms| ms - heard);
            assert!(silence.is_some_and(|ms| (4000..=4125).contains(&ms)), "{silence:?}");
        }
    }

    #[test]
    fn talking_successor_is_not_asked() {
        let mut liveness = liveness(0, 2);
        liveness.on_heard(at(400), Rank(1));
        assert_eq!(liveness.handle_timeout(at(500)), None);
        assert_eq!(liveness.poll_notice(), None);
    }

    #[test]
    fn after_a_pause_the_successor_is_asked_at_once_and_has_a_whole_timeout() {
        for paused_at in [0, 3999] {
            let mut liveness = liveness(0, 2);
            let failed = (1..paused_at).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
            assert_eq!(failed, None);
            liveness.poll_notice();
            liveness.on_pause(at(60_000));
            assert_eq!(liveness.handle_timeout(at(60_000)), None);
            assert!(matches!(liveness.poll_notice(), Some(Notice::Ping { to: Rank(1), .. })));
            assert_eq!(liveness.poll_notice(), None);
            let failed = (60_000..70_000).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
            assert!(failed.is_some_and(|ms| (64_000..=64_125).contains(&ms)), "{failed:?}");
        }
    }

    #[test]
    fn whoever_answers_after_a_pause_is_watched_as_before() {
        let mut liveness = liveness(0, 2);
        liveness.on_pause(at(60_000));
        let Some(Notice::Ping { question, .. }) = liveness.poll_notice() else { panic!("asked") };
        liveness.on_heard(at(63_000), Rank(1));
        liveness.on_answer(at(63_000), Rank(1), question);
        let failed = (60_000..70_000).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
        assert!(failed.is_some_and(|ms| (67_000..=67_125).contains(&ms)), "{failed:?}");
    }

    #[test]
    fn after_a_pause_what_is_sent_again_by_somebody_else_proves_no_life_either() {
        let mut liveness = liveness(0, 2);
        liveness.on_pause(at(60_000));
        let failed = (60_000..80_000).find(|ms| {
            liveness.on_heard(at(*ms), Rank(1));
            liveness.handle_timeout(at(*ms)).is_some()
        });
        assert!(failed.is_some_and(|ms| (68_000..=68_125).contains(&ms)), "{failed:?}");
    }

    /// When a successor that is heard of each millisecond fails, if `answer` gives the numbers of
    /// its answers to a question.
    fn fails_though_heard(answer: impl Fn(u32) -> Vec<u32>) -> Option<u64> {
        let mut liveness = liveness(0, 2);
        (1..60_000).find(|ms| {
            liveness.on_heard(at(*ms), Rank(1));
            let failed = liveness.handle_timeout(at(*ms));
            if let Some(Notice::Ping { question, .. }) = liveness.poll_notice() {
                for number in answer(question) {
                    liveness.on_answer(at(*ms), Rank(1), number);
                }
            }
            failed.is_some()
        })
    }

    #[test]
    fn what_is_sent_again_by_somebody_else_proves_no_life() {
        assert_eq!(fails_though_heard(|question| vec![question]), None);
        let soon = 8000..=8125;
        assert!(fails_though_heard(|_| vec![]).is_some_and(|ms| soon.contains(&ms)));
        // Answers to earlier questions, to none, and to questions that were not asked yet.
        let again =
            |question| [2, 3, question + 1].into_iter().filter(|old| *old != question).collect();
        let fails = fails_though_heard(again);
        assert!(fails.is_some_and(|ms| (8000..=12_000).contains(&ms)), "{fails:?}");
    }

    #[test]
    fn ring_closes_over_a_failed_rank() {
        let mut liveness = liveness(0, 3);
        assert!(liveness.on_failed(at(1), Rank(1)));
        assert!(!liveness.on_failed(at(1), Rank(1)));
        liveness.tell_all(at(1), Rank(1));
        assert_eq!(liveness.poll_notice(), Some(Notice::Failed { to: Rank(2), failed: Rank(1) }));
        liveness.handle_timeout(at(600));
        assert_eq!(liveness.poll_notice(), Some(Notice::Failed { to: Rank(2), failed: Rank(1) }));
        assert_eq!(liveness.poll_notice(), Some(Notice::Ping { to: Rank(2), question: 4 }));
        liveness.on_answer(at(1100), Rank(2), 1);
        liveness.handle_timeout(at(1200));
        assert_eq!(liveness.poll_notice(), Some(Notice::Ping { to: Rank(2), question: 5 }));
    }

    #[test]
    fn first_failure_is_the_cause_and_is_told_until_all_have_confirmed() {
        let mut liveness = liveness(0, 4);
        liveness.on_failed(at(1), Rank(2));
        liveness.tell_all(at(1), Rank(2));
        liveness.on_failed(at(2), Rank(1));
        assert_eq!(liveness.first_failed(), Some(Rank(2)));
        assert!(liveness.is_telling());
        liveness.on_departed(at(3), Rank(3));
        assert!(liveness.has_departed(Rank(3)) && !liveness.has_departed(Rank(2)));
        assert!(!liveness.is_telling());
    }

    /// What `liveness` sends because a rank that knows of `digest` has asked or answered.
    fn told(liveness: &mut Liveness, ms: u64, digest: u32) -> Vec<Notice> {
        liveness.on_digest(at(ms), Rank(1), digest);
        std::iter::from_fn(|| liveness.poll_notice()).collect()
    }

    #[test]
    fn who_has_missed_a_farewell_is_told_and_failures_come_first() {
        let (mut knows, mut missed) = (liveness(2, 5), liveness(1, 5));
        for one in [&mut knows, &mut missed] {
            one.on_departed(at(1), Rank(0));
        }
        assert_eq!(told(&mut knows, 2, missed.digest()), []);
        knows.on_departed(at(3), Rank(4));
        knows.on_failed(at(3), Rank(3));
        let news = [
            Notice::Failed { to: Rank(1), failed: Rank(3) },
            Notice::Departed { to: Rank(1), departed: Rank(0) },
            Notice::Departed { to: Rank(1), departed: Rank(4) },
        ];
        assert_eq!(told(&mut knows, 4, missed.digest()), news);
        assert_eq!(told(&mut knows, 5, missed.digest()), [], "so soon again");
        missed.on_failed(at(5), Rank(3));
        missed.on_departed(at(5), Rank(4));
        assert_eq!(told(&mut knows, 500, missed.digest()), []);
    }

    #[test]
    fn of_many_that_are_gone_all_are_told_of_in_turn() {
        let mut liveness = liveness(0, 100);
        (2..100).for_each(|rank| assert!(liveness.on_departed(at(1), Rank(rank))));
        let told: BTreeSet<Rank> = (1..=4)
            .flat_map(|time| told(&mut liveness, time * 130, 0))
            .filter_map(|notice| match notice {
                Notice::Departed { departed, .. } => Some(departed),
                _ => None,
            })
            .collect();
        assert_eq!(told.len(), 98);
    }

    #[test]
    fn both_neighbours_are_told_of_all_that_are_gone_though_they_ask_in_turn() {
        let mut liveness = liveness(1, 67);
        (3..67).for_each(|rank| assert!(liveness.on_departed(at(1), Rank(rank))));
        let mut told = BTreeSet::new();
        for time in 1..=8 {
            liveness.on_digest(at(time * 300), Rank(time as u32 % 2 * 2), 0);
            told.extend(std::iter::from_fn(|| liveness.poll_notice()).filter_map(|notice| {
                match notice {
                    Notice::Departed { to, departed } => Some((to, departed)),
                    _ => None,
                }
            }));
        }
        assert_eq!(told.len(), 2 * 64);
    }

    #[test]
    fn last_rank_alone_watches_nobody() {
        let mut liveness = liveness(0, 2);
        assert!(liveness.on_departed(at(1), Rank(1)));
        assert_eq!(liveness.poll_timeout(), None);
        liveness.on_pause(at(9000));
        assert_eq!((liveness.poll_timeout(), liveness.poll_notice()), (None, None));
    }
}
