//! When timers that have run out may fire.
//!
//! A rank that computes looks at no timer until it calls the library again, and then mostly sends
//! what an acknowledgement can travel with, or finds the answer that a timer was set for. So timers
//! that have run out meanwhile wait until the caller has waited for a moment, or until they are
//! late: answers can be expected soon, and losses be found soon, without an extra packet for a rank
//! that is never seen waiting. Even a late timer first lets the caller go on with what has just
//! come, and fires when the next wait begins and finds nothing.

use omnes_wire::Instant;
use std::time::Duration;

/// Longest time that a timer which has run out is left alone while there is nothing else to do.
const LATE_MAX: Duration = Duration::from_millis(1);
/// The same where something has just come.
const LATE_BUSY_MAX: Duration = Duration::from_millis(2);

/// What a step is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Occasion {
    /// Something has come.
    News,
    /// Time has passed.
    Idle,
}

/// See the module header.
pub(super) struct Grace {
    patience: Duration,
    /// The first look at timers for the caller that waits.
    waits_since: Option<Instant>,
}

impl Grace {
    /// Timers that have run out wait for a caller that has waited for less than `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, waits_since: None }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// A caller begins to wait.
    pub(super) fn begin_wait(&mut self) {
        self.waits_since = None;
    }

    /// When a timer that runs out `at` may fire, as things stand at `now`.
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

    /// A caller waits since 1000 us, with a patience of 40 us.
    fn waiting() -> Grace {
        let mut grace = Grace::new(Duration::from_micros(40));
        grace.fire_at(at(900), at(10), Occasion::Idle);
        grace.begin_wait();
        grace.fire_at(at(900), at(1000), Occasion::Idle);
        grace
    }

    #[test]
    fn what_ran_out_before_the_caller_came_waits_for_a_moment() {
        assert_eq!(waiting().fire_at(at(900), at(1001), Occasion::Idle), at(1040));
        assert_eq!(waiting().fire_at(at(1010), at(1010), Occasion::Idle), at(1040));
    }

    #[test]
    fn what_runs_out_later_fires_at_once() {
        assert_eq!(waiting().fire_at(at(1040), at(1040), Occasion::Idle), at(1040));
        assert_eq!(waiting().fire_at(at(5000), at(1001), Occasion::Idle), at(5000));
    }

    #[test]
    fn a_caller_that_sleeps_until_then_is_not_kept_again() {
        assert_eq!(waiting().fire_at(at(900), at(1040), Occasion::Idle), at(1040));
    }

    #[test]
    fn nothing_waits_for_long_however_often_callers_come() {
        let mut grace = waiting();
        assert_eq!(grace.fire_at(at(20), at(1001), Occasion::Idle), at(1020));
        grace.begin_wait();
        assert_eq!(grace.fire_at(at(1990), at(2000), Occasion::Idle), at(2040));
        grace.begin_wait();
        assert_eq!(grace.fire_at(at(1990), at(2980), Occasion::Idle), at(2990));
    }

    #[test]
    fn a_late_one_lets_the_caller_go_on_with_what_has_come() {
        let mut grace = waiting();
        assert_eq!(grace.fire_at(at(20), at(1001), Occasion::News), at(1040), "has waited by then");
        grace.begin_wait();
        assert_eq!(grace.fire_at(at(20), at(2000), Occasion::News), at(2020));
        assert_eq!(grace.fire_at(at(20), at(2000), Occasion::Idle), at(1020));
    }
}
