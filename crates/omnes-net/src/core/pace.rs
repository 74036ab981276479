//! When the core looks where, and when its timers fire: what follows from the time between steps.

use super::suspension::Pauses;
use super::timer_grace::{Grace, Occasion};
use omnes_wire::Instant;
use std::time::Duration;

/// Looks that have found nothing after which timers are looked at too, and the same if one is late.
const LOOKS_PER_STEP: u32 = 4;
const LOOKS_IF_LATE: u32 = 2;
/// Time after a look for a test in which another test does not look again: who has many operations
/// under way asks for all of them in turn.
const TEST_LOOK_INTERVAL: Duration = Duration::from_micros(2);
/// Longest time that a rank which only starts operations goes without hearing what others say.
const DEAF_MAX: Duration = Duration::from_micros(100);
/// Longest time between two looks at all sockets while callers wait now and then.
const SWEEP_INTERVAL: Duration = Duration::from_millis(1);
/// The same while callers come and go without waiting; longer, as callers that wait for a core of
/// their own soon look again, and must not be disturbed.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(10);
/// Time without a step after which nobody's silence is judged before all that has come is read.
const UNHEARD_MAX: Duration = Duration::from_millis(20);
/// Time between two looks at the connections to other ranks while callers come and go.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// See the module header.
pub(super) struct Pace {
    stepped_at: Instant,
    /// The last step before a look everywhere.
    swept_at: Instant,
    /// The last step before a look at the connections to other ranks.
    watched_at: Instant,
    /// When a test has looked last.
    tested_at: Instant,
    idle_looks: u32,
    /// The last step has put off a timer that was late.
    is_late: bool,
    pauses: Pauses,
    grace: Grace,
}

/// What the time since the step before means for a step.
pub(super) struct Interval {
    /// This process has not run for a while.
    pub(super) is_pause: bool,
    /// Much may have come since.
    pub(super) is_long: bool,
}

impl Pace {
    /// For callers that wait for `patience` before timers that had run out when they came may fire,
    /// in a job in which silence of `peer_timeout` means failure.
    pub(super) fn new(patience: Duration, peer_timeout: Duration) -> Self {
        Self {
            stepped_at: Instant::ZERO,
            swept_at: Instant::ZERO,
            watched_at: Instant::ZERO,
            tested_at: Instant::ZERO,
            idle_looks: 0,
            is_late: false,
            pauses: Pauses::new(peer_timeout),
            grace: Grace::new(patience),
        }
    }

    /// When the last step was made.
    pub(super) fn stepped_at(&self) -> Instant {
        self.stepped_at
    }

    /// How often this process has not run for a while, as far as steps have shown.
    pub(super) fn pauses(&self) -> u64 {
        self.pauses.count()
    }

    // ---- looks ----------------------------------------------------------------------------

    /// Somebody looks; true if a step is due even if nothing has come.
    pub(super) fn on_look(&mut self) -> bool {
        self.idle_looks += 1;
        self.idle_looks >= if self.is_late { LOOKS_IF_LATE } else { LOOKS_PER_STEP }
    }

    /// True if nobody has looked everywhere for a while.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.stepped_at.since(self.swept_at) >= SWEEP_INTERVAL
    }

    /// The same for whoever looks after callers that come and go.
    pub(super) fn is_catch_up_due(&self, now: Instant) -> bool {
        now.since(self.swept_at) >= CATCH_UP_INTERVAL
    }

    pub(super) fn on_sweep(&mut self) {
        self.swept_at = self.stepped_at;
    }

    /// True if nobody has heard what others say for a while.
    pub(super) fn is_deaf(&self, now: Instant) -> bool {
        now.since(self.stepped_at) >= DEAF_MAX
    }

    /// True, once, if a look at the connections to other ranks is due.
    pub(super) fn take_watch(&mut self) -> bool {
        let is_due = self.stepped_at.since(self.watched_at) >= WATCH_INTERVAL;
        if is_due {
            self.watched_at = self.stepped_at;
        }
        is_due
    }

    /// A caller begins to wait.
    pub(super) fn begin_wait(&mut self) {
        self.grace.begin_wait();
    }

    /// A caller tests an operation; true if it looks what has come.
    pub(super) fn begin_test(&mut self, now: Instant) -> bool {
        let untested = now.since(self.tested_at);
        if untested >= self.grace.patience() {
            self.begin_wait();
        }
        untested >= TEST_LOOK_INTERVAL
    }

    /// It has looked.
    pub(super) fn end_test(&mut self, now: Instant) {
        self.tested_at = now;
    }

    // ---- steps ----------------------------------------------------------------------------

    pub(super) fn begin_step(&mut self, now: Instant) -> Interval {
        self.idle_looks = 0;
        let is_pause = self.pauses.on_step(self.stepped_at, now);
        let unstepped = now.since(std::mem::replace(&mut self.stepped_at, now));
        Interval { is_pause, is_long: unstepped >= UNHEARD_MAX }
    }

    /// True if a timer that runs out at `due` may fire in this step.
    pub(super) fn fires(&mut self, due: Option<Instant>, now: Instant, occasion: Occasion) -> bool {
        let mut may_fire =
            |occasion| due.is_some_and(|at| self.grace.fire_at(at, now, occasion) <= now);
        let fires = may_fire(occasion);
        self.is_late = !fires && may_fire(Occasion::Idle);
        fires
    }

    /// Time until such a timer may fire if nothing comes before.
    pub(super) fn until(&mut self, due: Instant, now: Instant) -> Duration {
        self.grace.fire_at(due, now, Occasion::Idle).since(now)
    }
}
