//! How long a rank has waited, and when it asks.
//!
//! Ranks that wait for the same one ask it again and again, while somebody computes for long. They
//! must not keep asking all at once: each time the same questions would overrun the buffer of the
//! rank that is asked, and its own message may be among what is dropped. So where they are many,
//! each draws its waits around a mean, and the more ranks may ask the same one, the longer the
//! waits become in the end. Those of a group that is closed become longest.

use super::interface::CollectiveConfig;
use super::pace::Pace;
use crate::mixing::mixed;
use omnes_wire::{Instant, Rank};
use std::time::Duration;

/// Ranks that may ask the same one before waits are drawn: few find room, and the longer ones of
/// drawn waits make the slowest repairs slower.
const ASKERS_FEW: u32 = 16;
/// Ranks that may ask the same one before waits become longer than usual.
const ASKERS_USUAL: u32 = 128;
/// Longest wait for what nobody here waits for any more.
const CLOSED_WAIT_MAX: Duration = Duration::from_secs(10);

/// The timer of one group.
#[derive(Debug)]
pub(super) struct Waiting {
    pace: Pace,
    began: Instant,
    /// When the wait for all of the barrier is over.
    first_nack_at: Instant,
    /// The wait for one step, and the one after the next NACK.
    step_wait: Duration,
    wait: Duration,
    nack_at: Option<Instant>,
    /// When this rank has asked first in this barrier.
    asked_at: Option<Instant>,
    me: Rank,
    /// Ranks that may wait for the same one as this, this one among them.
    askers: u32,
    nacks: u32,
    /// The group is closed.
    is_closed: bool,
}

impl Waiting {
    /// That of rank `me`; `askers` ranks may wait for the same one, at least 1.
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
    /// limit: what is under way still ends, but it may be something that others never enter.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// This rank begins to wait for a barrier of so many steps.
    pub(super) fn begin(&mut self, now: Instant, config: &CollectiveConfig, steps: u32) {
        (self.began, self.asked_at) = (now, None);
        self.step_wait = self.pace.step_wait(config, steps);
        self.first_nack_at = now + self.pace.wait(config);
        self.wait = self.step_wait;
        self.nack_at = Some(self.first_nack_at);
    }

    /// Another step waits now.
    pub(super) fn on_step(&mut self, now: Instant) {
        self.wait = self.step_wait;
        self.nack_at = Some(self.first_nack_at.max(now + self.wait));
    }

    /// The barrier is done.
    pub(super) fn end(&mut self, now: Instant) {
        match self.asked_at {
            Some(asked_at) => self.pace.add_asked(now.since(asked_at)),
            None => self.pace.add_sample(now.since(self.began)),
        }
        self.stop();
    }

    /// Nothing is waited for any more.
    pub(super) fn stop(&mut self) {
        self.nack_at = None;
    }

    /// When the next NACK is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.nack_at
    }

    /// True if a NACK is due; the next one is after a wait that doubles each time.
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

    /// The next wait: where many ask, three quarters to five quarters of the mean.
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

    /// When rank `me` asks in a second in which nothing comes.
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

    /// After a barrier of 100 us, 2000 more, each of which is over `takes` after its beginning, or
    /// `answered` after a NACK if that is sooner: what the last 16 took, and their NACKs.
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
    fn a_message_that_is_lost_each_time_costs_no_more_from_barrier_to_barrier() {
        assert_eq!(last_of_many(SECOND, 50 * US), (15 * 350 * US + 1250 * US, 16));
    }

    #[test]
    fn barriers_that_have_become_slower_are_not_asked_about_for_ever() {
        assert_eq!(last_of_many(3000 * US, SECOND), (16 * 3000 * US, 0));
    }

    #[test]
    fn who_began_to_wait_together_does_not_ask_together_again_and_again() {
        let [one, other] = [1, 2].map(|me| nacks(me, 40));
        assert_eq!(one[0], other[0]);
        let together = one.iter().filter(|at| other.contains(at)).count();
        assert_eq!(together, 1);
    }

    #[test]
    fn nobody_is_asked_more_often_the_more_there_are_but_by_those_who_begin() {
        let few: usize = (0..128).map(|me| nacks(me, 128).len()).sum();
        let many: usize = (0..1024).map(|me| nacks(me, 1024).len()).sum();
        assert!((100..120).contains(&(few / 128)), "{few}");
        // Each asks some times until its waits have become so long.
        assert!(many < 1024 * 8 + few, "{many}");
    }
}
