//! How long a rank has waited for a message, and when it asks for it.
//!
//! Ranks that wait for the same rank ask it repeatedly while some member computes for a long time.
//! They must not keep asking at the same time: the questions would overrun the buffer of the rank
//! that is asked each time, and the message it waits for may be among the dropped packets. So if
//! they are many, each varies its waits pseudorandomly around a mean, and the more ranks may ask
//! the same one, the longer the waits finally become. The waits of a closed group become longest.

use super::interface::CollectiveConfig;
use super::pace::Pace;
use crate::mixing::mixed;
use omnes_wire::{Instant, Rank};
use std::time::Duration;

/// Most ranks that may ask the same one with fixed waits: the buffer has space for a few questions,
/// and the longer ones of varied waits make the slowest repairs slower.
const ASKERS_FEW: u32 = 16;
/// Number of ranks that may ask the same one before waits become longer than usual.
const ASKERS_USUAL: u32 = 128;
/// Longest wait for a message that the caller no longer waits for.
const CLOSED_WAIT_MAX: Duration = Duration::from_secs(10);

/// Timer of one group.
#[derive(Debug)]
pub(super) struct Waiting {
    pace: Pace,
    began: Instant,
    /// End of the wait for the whole barrier.
    first_nack_at: Instant,
    /// Wait for one step; `wait` is the one after the next NACK.
    step_wait: Duration,
    wait: Duration,
    nack_at: Option<Instant>,
    /// Time of this rank's first question in this barrier.
    asked_at: Option<Instant>,
    me: Rank,
    /// Number of ranks that may wait for the same rank as this one, including this one.
    askers: u32,
    nacks: u32,
    /// The group is closed.
    is_closed: bool,
}

impl Waiting {
    /// Creates the timer of rank `me`; `askers` ranks, at least 1, may wait for the same one.
    pub(super) fn new(me: Rank, askers: u32) -> Self {
        Self {
            pace: Pace::default(),
            began: Instant::ZERO,
            first_nack_at: Instant::ZERO,
            step_wait: Duration::ZERO,
            wait: Duration::ZERO,
            nack_at: None,
            asked_at: None,
            me,
            askers,
            nacks: 0,
            is_closed: false,
        }
    }

    /// The group is closed, so the caller waits no more. From now on waits double beyond the usual
    /// limit: a barrier in progress still ends, but it may be one that other members never enter.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// This rank starts to wait for a barrier of `steps` steps.
    pub(super) fn begin(&mut self, now: Instant, config: &CollectiveConfig, steps: u32) {
        (self.began, self.asked_at) = (now, None);
        self.step_wait = self.pace.step_wait(config, steps);
        self.first_nack_at = now + self.pace.wait(config);
        self.wait = self.step_wait;
        self.nack_at = Some(self.first_nack_at);
    }

    /// Another step is waiting now.
    pub(super) fn on_step(&mut self, now: Instant) {
        self.wait = self.step_wait;
        self.nack_at = Some(self.first_nack_at.max(now + self.wait));
    }

    /// The barrier is complete.
    pub(super) fn end(&mut self, now: Instant) {
        match self.asked_at {
            Some(asked_at) => self.pace.add_asked(now.since(asked_at)),
            None => self.pace.add_sample(now.since(self.began)),
        }
        self.stop();
    }

    /// Stops waiting.
    pub(super) fn stop(&mut self) {
        self.nack_at = None;
    }

    /// Time at which the next NACK is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.nack_at
    }

    /// True if a NACK is due; the next one follows after a wait that doubles each time.
    pub(super) fn take_due(&mut self, now: Instant, config: &CollectiveConfig) -> bool {
        if self.nack_at.is_none_or(|at| at > now) {
            return false;
        }
        self.nack_at = Some(now + self.drawn());
        self.asked_at.get_or_insert(now);
        let longest = if self.is_closed {
            CLOSED_WAIT_MAX
        } else {
            config.nack_after_max * (self.askers / ASKERS_USUAL).max(1)
        };
        self.wait = (self.wait * 2).min(longest);
        true
    }

    /// Next wait: if many ranks may ask, three quarters to five quarters of the mean.
    fn drawn(&mut self) -> Duration {
        if self.askers <= ASKERS_FEW {
            return self.wait;
        }
        self.nacks = self.nacks.wrapping_add(1);
        let share = 192 + mixed(mixed(self.me.0) ^ self.nacks) % 128;
        self.wait * share / 256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const US: Duration = Duration::from_micros(1);

    /// Times at which rank `me` asks within a second in which nothing arrives.
    fn nacks(me: u32, askers: u32) -> Vec<Instant> {
        let config = CollectiveConfig::default();
        let mut waiting = Waiting::new(Rank(me), askers);
        waiting.begin(Instant::ZERO, &config, 1);
        let mut nacks = Vec::new();
        while let Some(at) = waiting.deadline().filter(|at| *at < Instant::ZERO + SECOND) {
            assert!(waiting.take_due(at, &config));
            nacks.push(at);
        }
        nacks
    }

    /// Runs one barrier of 100 us and then 2000 more, each of which ends `takes` after its start,
    /// or `answered` after a NACK if that is earlier. Returns the duration of the last 16, and
    /// their NACKs.
    fn last_of_many(takes: Duration, answered: Duration) -> (Duration, u32) {
        let config = CollectiveConfig::default();
        let mut waiting = Waiting::new(Rank(1), 1);
        waiting.begin(Instant::ZERO, &config, 1);
        let mut began = Instant::ZERO + 100 * US;
        waiting.end(began);
        let (mut since, mut nacks) = (began, 0);
        for number in 0..2000 {
            if number == 2000 - 16 {
                (since, nacks) = (began, 0);
            }
            waiting.begin(began, &config, 1);
            let mut end = began + takes;
            while let Some(at) = waiting.deadline().filter(|at| *at < end) {
                assert!(waiting.take_due(at, &config));
                end = end.min(at + answered);
                nacks += 1;
            }
            waiting.end(end);
            began = end;
        }
        (began.since(since), nacks)
    }

    #[test]
    fn message_lost_in_every_barrier_does_not_increase_the_wait() {
        assert_eq!(last_of_many(SECOND, 50 * US), (15 * 350 * US + 1250 * US, 16));
    }

    #[test]
    fn slower_barriers_stop_causing_nacks_after_a_while() {
        assert_eq!(last_of_many(3000 * US, SECOND), (16 * 3000 * US, 0));
    }

    #[test]
    fn ranks_that_start_waiting_together_send_only_one_nack_together() {
        let [one, other] = [1, 2].map(|me| nacks(me, 40));
        assert_eq!(one[0], other[0]);
        let together = one.iter().filter(|at| other.contains(at)).count();
        assert_eq!(together, 1);
    }

    #[test]
    fn number_of_nacks_hardly_grows_with_the_number_of_ranks() {
        let few: usize = (0..128).map(|me| nacks(me, 128).len()).sum();
        let many: usize = (0..1024).map(|me| nacks(me, 1024).len()).sum();
        assert!((100..120).contains(&(few / 128)), "{few}");
        // Each asks several times until its waits have become that long.
        assert!(many < 1024 * 8 + few, "{many}");
    }
}
