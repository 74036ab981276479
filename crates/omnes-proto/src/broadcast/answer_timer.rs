//! Measures how long the answers of a group take, and times how long a collector waits for them.
//!
//! A round trip of the group lasts from a packet that asks for answers until the last of the
//! answers, so that the timer fits the slowest rank and, in a tree, the deepest branch. The time
//! over which many ranks spread their answers is added. The first answer shows how close the
//! nearest rank is. Only one question is measured at a time, and none that was repeated, since its
//! answer could be to either packet. An answer that took longer than any wait for it does not count
//! either: its rank had no buffer space, and owed nothing meanwhile.
//!
//! The wait doubles each time it ends without any report, as on channels; if ranks report but the
//! slowest makes no progress, it doubles after a few waits.

use super::history::Times;
use super::incoming::answer_spread;
use crate::lane::{Allowance, Rtt};
use crate::limits::BACKOFF_DOUBLINGS_MAX;
use omnes_wire::{Instant, Seq};
use std::time::Duration;

/// Longest wait derived from round trips, without doublings and the time that answers are delayed.
const TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// Waits without progress after which each further one is twice as long, even though ranks report.
const FRUITLESS_PROMPT: u32 = 4;
/// Longest wait reached by doubling, unless answers usually take longer.
const BACKOFF_MAX: Duration = Duration::from_millis(20);

/// Lower bound of a measured round trip: an answer that was delayed for longer than its round trip
/// took would give none.
const FASTEST_MIN: Duration = Duration::from_micros(1);
/// Round trip to the nearest rank that is assumed until one has been measured.
const FASTEST_INITIAL: Duration = Duration::from_micros(100);

/// Measurements after which a single one that is too long no longer matters.
const SAMPLES_WELL: u32 = 8;

/// Packet that asked for answers.
#[derive(Clone, Copy, Debug)]
struct Question {
    seq: Seq,
    asked_at: Instant,
    has_answer: bool,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct AnswerTimer {
    /// Time over which all ranks that are asked together spread their answers.
    spread: Duration,
    /// Time from a question to the last of its answers.
    round_trip: Rtt,
    /// Time from a question to the first of its answers: the shortest one measured recently.
    fastest: Option<Duration>,
    /// Number of measurements of `fastest`.
    samples: u32,
    /// Question being measured.
    question: Option<Question>,
    /// Time until which the ranks that were asked together send their answers, one after the other.
    answers_until: Instant,
    /// End of the wait for answers, if any rank owes one.
    deadline: Option<Instant>,
    /// Intended length of the last such wait.
    wait: Duration,
    /// Waits that have ended since the last report of any rank.
    doublings: u32,
    /// Waits that have ended since the slowest rank last made progress.
    fruitless: u32,
}

impl AnswerTimer {
    /// Creates the timer for the answers of this number of reporters.
    pub(super) fn new(reporters: u32) -> Self {
        Self {
            spread: answer_spread(reporters),
            round_trip: Rtt::new(),
            fastest: None,
            samples: 0,
            question: None,
            answers_until: Instant::ZERO,
            deadline: None,
            wait: Duration::ZERO,
            doublings: 0,
            fruitless: 0,
        }
    }

    // ---- round trips ----------------------------------------------------------------------

    /// Packet `seq` is sent and will be answered by all ranks without delay.
    pub(super) fn on_asked(&mut self, now: Instant, seq: Seq) {
        let question = Question { seq, asked_at: now, has_answer: false };
        self.question.get_or_insert(question);
    }

    /// All ranks are asked now.
    pub(super) fn on_asked_all(&mut self, now: Instant) {
        self.answers_until = now + self.spread;
    }

    /// A reporter has every packet before `expects`, and reported so after delaying the report by
    /// `held_back`, if that is known; all reporters have every packet before `slowest`, which is
    /// `None` if no reporter is left.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        expects: Seq,
        held_back: Option<Duration>,
        slowest: Option<Seq>,
    ) {
        let Some(question) = &mut self.question else { return };
        if !question.seq.precedes(expects) {
            return;
        }
        let Some(held_back) = held_back else {
            self.question = None;
            return;
        };
        let sample = now.since(question.asked_at).saturating_sub(held_back);
        if sample > self.wait.max(BACKOFF_MAX) {
            self.question = None;
            return;
        }
        if !std::mem::replace(&mut question.has_answer, true) {
            // The minimum decays slowly, as paths change; the lower bound lets it grow again from
            // zero.
            let kept = self.fastest.map_or(sample, |fastest| fastest * 17 / 16);
            self.fastest = Some(kept.min(sample).max(FASTEST_MIN));
            self.samples = self.samples.saturating_add(1);
        }
        if slowest.is_none_or(|slowest| question.seq.precedes(slowest)) {
            self.round_trip.add_sample(sample);
            self.question = None;
        }
    }

    /// True if a round trip has been measured.
    pub(super) fn knows_round_trip(&self) -> bool {
        self.fastest.is_some()
    }

    /// True if a round trip has been measured several times: the first answer may have waited until
    /// the root read it, so one measurement may be too long, but the minimum of several is not.
    pub(super) fn knows_round_trip_well(&self) -> bool {
        self.samples >= SAMPLES_WELL
    }

    /// Typical answer times; slightly reduced for the nearest rank, as some answers are faster than
    /// usual.
    pub(super) fn times(&self) -> Times {
        let fastest = self.fastest.unwrap_or(FASTEST_INITIAL) * 3 / 4;
        Times { fastest, usual: self.round_trip.smoothed() }
    }

    // ---- the wait -------------------------------------------------------------------------

    /// End of the wait for answers.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Starts to wait for answers that are owed, unless a wait is in progress.
    pub(super) fn arm(&mut self, now: Instant, allowance: Allowance) {
        if self.deadline.is_some() {
            return;
        }
        let (mean, deviation) = (self.round_trip.smoothed(), self.round_trip.deviation());
        let estimate = mean + mean.max(4 * deviation);
        let usual = estimate.max(allowance.least).min(TIMEOUT_MAX) + allowance.held_back;
        // A rank that answers without making progress has no buffer space, and reports when it has.
        let without_room = self.fruitless.saturating_sub(FRUITLESS_PROMPT);
        let doublings = self.doublings.max(without_room).min(BACKOFF_DOUBLINGS_MAX);
        let wait = (usual * (1 << doublings)).min(usual.max(BACKOFF_MAX));
        let last_answer = self.answers_until + estimate.min(TIMEOUT_MAX);
        let deadline = last_answer.max(now + wait);
        (self.deadline, self.wait) = (Some(deadline), deadline.since(now));
    }

    /// All questions have been answered.
    pub(super) fn disarm(&mut self) {
        self.deadline = None;
        self.doublings = 0;
        self.fruitless = 0;
    }

    /// A rank has reported, so the path works.
    pub(super) fn on_heard(&mut self) {
        self.doublings = 0;
    }

    /// The slowest rank has made progress.
    pub(super) fn on_progress(&mut self) {
        self.deadline = None;
        self.fruitless = 0;
    }

    /// Ends the wait if its deadline has passed; returns true if so.
    pub(super) fn end_wait(&mut self, now: Instant) -> bool {
        let is_over = self.deadline.take_if(|at| *at <= now).is_some();
        if is_over {
            self.question = None; // An answer could be to either packet.
        }
        is_over
    }

    /// The wait has ended, and at least one rank still owes an answer.
    pub(super) fn on_late(&mut self) {
        self.doublings += 1;
        self.fruitless += 1;
    }

    /// True if the slowest rank has made no progress for more than one wait.
    pub(super) fn is_stuck(&self) -> bool {
        self.fruitless > 1
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Longer than any wait for answers before a round trip has been measured.
    const LEAST: Duration = Duration::from_millis(6);
    const ALLOWANCE: Allowance = Allowance { least: LEAST, held_back: Duration::ZERO };

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    /// Length of the wait that begins now; it ends with an answer still owed.
    fn fail(timer: &mut AnswerTimer, now: Instant) -> Duration {
        timer.arm(now, ALLOWANCE);
        let deadline = timer.deadline().unwrap();
        assert!(!timer.end_wait(now) && timer.end_wait(deadline));
        timer.on_late();
        deadline.since(now)
    }

    #[test]
    fn backoff_starts_immediately_without_reports_and_late_with_them() {
        // [BC-R22]
        let mut timer = AnswerTimer::new(3);
        let waits: [Duration; 4] = std::array::from_fn(|_| fail(&mut timer, at(0)));
        assert_eq!(waits, [LEAST, LEAST * 2, BACKOFF_MAX, BACKOFF_MAX]);
        timer.disarm();
        let waits: [Duration; 7] = std::array::from_fn(|_| {
            timer.on_heard();
            fail(&mut timer, at(0))
        });
        assert_eq!(waits, [LEAST, LEAST, LEAST, LEAST, LEAST, LEAST * 2, BACKOFF_MAX]);
        assert!(timer.is_stuck());
        timer.on_progress();
        timer.on_heard();
        assert_eq!(fail(&mut timer, at(0)), LEAST);
        assert!(!timer.is_stuck());
    }

    #[test]
    fn first_answer_measures_the_nearest_rank_and_the_last_one_all_ranks() {
        let mut timer = AnswerTimer::new(2);
        timer.on_asked(at(0), Seq(4));
        timer.on_asked(at(50), Seq(5)); // Not measured, as another is.
        let none = Some(Duration::ZERO);
        timer.on_answer(at(60), Seq(4), none, Some(Seq(0)));
        assert!(!timer.knows_round_trip(), "that was no answer");
        let held_back = Some(Duration::from_micros(20));
        timer.on_answer(at(100), Seq(5), held_back, Some(Seq(0)));
        timer.on_answer(at(400), Seq(5), none, Some(Seq(5)));
        timer.on_answer(at(900), Seq(6), none, Some(Seq(5)));
        let Times { fastest, usual } = timer.times();
        assert_eq!(fastest, Duration::from_micros(60), "three quarters of 80");
        assert_eq!(usual, Duration::from_micros(400));
        assert!(timer.knows_round_trip() && !timer.knows_round_trip_well());
    }

    #[test]
    fn fastest_round_trip_estimate_ages_after_an_outlier() {
        let mut timer = AnswerTimer::new(1);
        let mut measure = |round: u32, held_back: u64| {
            let seq = Seq::nth(round);
            timer.on_asked(at(0), seq);
            timer.on_answer(at(100), seq.plus(1), Some(Duration::from_micros(held_back)), None);
            timer.times().fastest
        };
        let least = measure(0, 200);
        let later: Vec<Duration> = (1..100).map(|round| measure(round, 0)).collect();
        assert!(least < later[0] && later[98] == Duration::from_micros(75), "{later:?}");
    }

    #[test]
    fn late_answers_and_answers_of_unknown_delay_are_not_measured() {
        let mut timer = AnswerTimer::new(1);
        timer.on_asked(at(0), Seq(0));
        timer.on_answer(at(10), Seq(1), None, Some(Seq(1)));
        timer.on_answer(at(20), Seq(1), Some(Duration::ZERO), Some(Seq(1)));
        timer.on_asked(at(30), Seq(1));
        fail(&mut timer, at(30));
        timer.on_answer(at(40), Seq(2), Some(Duration::ZERO), Some(Seq(2)));
        assert!(!timer.knows_round_trip());
    }

    /// It would lead to long waits, in which the next answer arrives just as late.
    #[test]
    fn answer_of_a_rank_that_had_no_room_is_not_measured() {
        let mut timer = AnswerTimer::new(1);
        timer.on_asked(at(0), Seq(0));
        timer.arm(at(0), ALLOWANCE);
        timer.disarm();
        timer.on_answer(at(900_000), Seq(1), Some(Duration::ZERO), Some(Seq(1)));
        assert!(!timer.knows_round_trip());
        assert_eq!(fail(&mut timer, at(900_000)), LEAST);
    }
}
