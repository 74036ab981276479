//! How long a rank has waited, and when it asks.

use super::interface::CollectiveConfig;
use super::pace::Pace;
use omnes_wire::Instant;
use std::time::Duration;

/// The timer of one group.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pace: Pace,
    began: Instant,
    /// When the wait for all of the barrier is over.
    first_nack_at: Instant,
    /// The wait for one step, and the one after the next NACK.
    step_wait: Duration,
    wait: Duration,
    nack_at: Option<Instant>,
}

impl Waiting {
    /// This rank begins to wait for a barrier of so many steps.
    pub(super) fn begin(&mut self, now: Instant, config: &CollectiveConfig, steps: u32) {
        self.began = now;
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
        self.pace.add_sample(now.since(self.began));
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
        self.nack_at = Some(now + self.wait);
        self.wait = (self.wait * 2).min(config.nack_after_max);
        true
    }
}
