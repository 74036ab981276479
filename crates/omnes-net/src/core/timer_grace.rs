//! When expired timers may fire.
//!
//! A rank that computes checks no timer until it calls the library again, and then usually sends a
//! packet that can carry an acknowledgement, or finds the answer that a timer was set for. So
//! timers that have expired meanwhile wait until the caller has waited for a moment, or until they
//! are late: answers are sent soon, and losses found soon, without an extra packet for a rank that
//! is never seen waiting. Even a late timer first lets the caller process the packets that have
//! just arrived, and fires when the next wait begins and finds nothing.

use omnes_wire::Instant;
use std::time::Duration;

/// Longest time that an expired timer is deferred while there is nothing else to do.
const LATE_MAX: Duration = Duration::from_millis(1);
/// The same if a packet has just arrived.
const LATE_BUSY_MAX: Duration = Duration::from_millis(2);

/// The reason for a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Occasion {
    /// A packet has arrived.
    News,
    /// Time has passed.
    Idle,
}

/// See the module header.
pub(super) struct Grace {
    patience: Duration,
    /// Time of the first check of timers for the caller that waits.
    waits_since: Option<Instant>,
}

impl Grace {
    /// Defers expired timers while the caller has waited for less than `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, waits_since: None }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Called when a caller begins to wait.
    pub(super) fn begin_wait(&mut self) {
        self.waits_since = None;
    }

    /// Time at which a timer that expires `at` may fire, as of `now`.
    pub(super) fn fire_at(&mut self, at: Instant, now: Instant, occasion: Occasion) -> Instant {
        let waits_since = *self.waits_since.get_or_insert(now);
        let late_max = match occasion {
            Occasion::News => LATE_BUSY_MAX,
            Occasion::Idle => LATE_MAX,
        };
        at.max((waits_since + self.patience).min(at + late_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    /// A caller that has waited since 1000 us, with a patience of 40 us.
    fn waiting() -> Grace {
        let mut grace = Grace::new(Duration::from_micros(40));
        grace.fire_at(at(900), at(10), Occasion::Idle);
        grace.begin_wait();
        grace.fire_at(at(900), at(1000), Occasion::Idle);
        grace
    }

    #[test]
    fn timer_that_expired_before_the_wait_is_deferred_briefly() {
        assert_eq!(waiting().fire_at(at(900), at(1001), Occasion::Idle), at(1040));
        assert_eq!(waiting().fire_at(at(1010), at(1010), Occasion::Idle), at(1040));
    }

    #[test]
    fn timer_that_expires_during_the_wait_fires_immediately() {
        assert_eq!(waiting().fire_at(at(1040), at(1040), Occasion::Idle), at(1040));
        assert_eq!(waiting().fire_at(at(5000), at(1001), Occasion::Idle), at(5000));
    }

    #[test]
    fn caller_that_sleeps_until_expiry_is_not_delayed_again() {
        assert_eq!(waiting().fire_at(at(900), at(1040), Occasion::Idle), at(1040));
    }

    #[test]
    fn repeated_waits_defer_a_timer_only_up_to_a_limit() {
        let mut grace = waiting();
        assert_eq!(grace.fire_at(at(20), at(1001), Occasion::Idle), at(1020));
        grace.begin_wait();
        assert_eq!(grace.fire_at(at(1990), at(2000), Occasion::Idle), at(2040));
        grace.begin_wait();
        assert_eq!(grace.fire_at(at(1990), at(2980), Occasion::Idle), at(2990));
    }

    #[test]
    fn overdue_timer_is_deferred_while_there_is_news() {
        let mut grace = waiting();
        assert_eq!(grace.fire_at(at(20), at(1001), Occasion::News), at(1040), "has waited by then");
        grace.begin_wait();
        assert_eq!(grace.fire_at(at(20), at(2000), Occasion::News), at(2020));
        assert_eq!(grace.fire_at(at(20), at(2000), Occasion::Idle), at(1020));
    }
}
