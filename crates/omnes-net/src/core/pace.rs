//! When the core polls which sources, and when its timers fire: decided by the time between steps.

use super::suspension::Pauses;
use super::timer_grace::{Grace, Occasion};
use omnes_wire::Instant;
use std::time::Duration;

/// Polls without result after which timers are checked, too, and the same if a timer is late.
const IDLE_POLLS_PER_STEP: u32 = 4;
const LOOKS_IF_LATE: u32 = 2;
/// Time after the poll of a test in which another test does not poll again: a caller with many
/// operations in progress tests all of them in turn.
const TEST_LOOK_INTERVAL: Duration = Duration::from_micros(2);
/// Longest time that a rank which only starts operations does not poll for packets of others.
const DEAF_MAX: Duration = Duration::from_micros(100);
/// Longest time between two polls of all sockets while callers wait now and then.
const SWEEP_INTERVAL: Duration = Duration::from_millis(1);
/// The same while callers come and go without waiting; longer, because callers that wait for a core
/// of their own soon poll again, and must not be disturbed.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(10);
/// Time without a step after which silence is judged only when all packets that arrived are read.
const UNHEARD_MAX: Duration = Duration::from_millis(20);
/// Time between two checks of the connections to other ranks while callers come and go.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// See the module header.
pub(super) struct Pace {
    stepped_at: Instant,
    /// The last step before a poll of everything.
    swept_at: Instant,
    /// The last step before a check of the connections to other ranks.
    watched_at: Instant,
    /// Time of the last test that polled.
    tested_at: Instant,
    idle_looks: u32,
    /// The last step has deferred a late timer.
    is_late: bool,
    pauses: Pauses,
    grace: Grace,
}

/// Consequences for a step of the time since the previous one.
pub(super) struct Interval {
    /// This process has not run for a while.
    pub(super) is_pause: bool,
    /// Many packets may have arrived since.
    pub(super) is_long: bool,
}

impl Pace {
    /// For callers that wait for `patience` before timers that had expired when they entered may
    /// fire, in a job in which silence of `peer_timeout` means failure.
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

    /// Time of the last step.
    pub(super) fn stepped_at(&self) -> Instant {
        self.stepped_at
    }

    /// How often this process has not run for a while, as detected by steps.
    pub(super) fn pauses(&self) -> u64 {
        self.pauses.count()
    }

    // ---- looks ----------------------------------------------------------------------------

    /// Counts a poll; true if a step is due even if no packet has arrived.
    pub(super) fn on_look(&mut self) -> bool {
        self.idle_looks += 1;
        self.idle_looks >= if self.is_late { LOOKS_IF_LATE } else { IDLE_POLLS_PER_STEP }
    }

    /// True if no thread has polled everything for a while.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.stepped_at.since(self.swept_at) >= SWEEP_INTERVAL
    }

    /// The same for the thread that catches up for callers that come and go.
    pub(super) fn is_catch_up_due(&self, now: Instant) -> bool {
        now.since(self.swept_at) >= CATCH_UP_INTERVAL
    }

    pub(super) fn on_sweep(&mut self) {
        self.swept_at = self.stepped_at;
    }

    /// True if no thread has polled for packets of others for a while.
    pub(super) fn is_deaf(&self, now: Instant) -> bool {
        now.since(self.stepped_at) >= DEAF_MAX
    }

    /// True, once, if a check of the connections to other ranks is due.
    pub(super) fn take_watch(&mut self) -> bool {
        let is_due = self.stepped_at.since(self.watched_at) >= WATCH_INTERVAL;
        if is_due {
            self.watched_at = self.stepped_at;
        }
        is_due
    }

    /// Called when a caller begins to wait.
    pub(super) fn begin_wait(&mut self) {
        self.grace.begin_wait();
    }

    /// Called when a caller tests an operation; true if the test polls for packets.
    pub(super) fn begin_test(&mut self, now: Instant) -> bool {
        let untested = now.since(self.tested_at);
        if untested >= self.grace.patience() {
            self.begin_wait();
        }
        untested >= TEST_LOOK_INTERVAL
    }

    /// Called after the test has polled.
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

    /// True if a timer that expires at `due` may fire in this step.
    pub(super) fn fires(&mut self, due: Option<Instant>, now: Instant, occasion: Occasion) -> bool {
        let mut may_fire =
            |occasion| due.is_some_and(|at| self.grace.fire_at(at, now, occasion) <= now);
        let fires = may_fire(occasion);
        self.is_late = !fires && may_fire(Occasion::Idle);
        fires
    }

    /// Time until such a timer may fire if no packet arrives before.
    pub(super) fn until(&mut self, due: Instant, now: Instant) -> Duration {
        self.grace.fire_at(due, now, Occasion::Idle).since(now)
    }
}
