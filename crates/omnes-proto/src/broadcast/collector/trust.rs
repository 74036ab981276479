//! Whether what goes to all still arrives anywhere, which may end when the network changes.

use omnes_wire::{Instant, Seq};
use std::time::Duration;

/// Times in a row that the first packet which somebody lacks may go to all and not arrive, before
/// what goes to all is taken to reach nobody.
const FAILURES_MAX: u32 = 4;
/// Time that this takes at least: a rank that computes may answer late, though it lacks nothing.
const TIME_MIN: Duration = Duration::from_millis(10);
/// Time after which fewer times do: where answers take long, ranks that get nothing would be taken
/// for dead.
const TIME_MAX: Duration = Duration::from_millis(500);

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Times that the first packet which somebody lacks went to all since the slowest rank has come
    /// on.
    failures: u32,
    /// When the first of them did.
    since: Instant,
    /// What goes to all seems to reach nobody: so packets go again to one rank after the other,
    /// until one from there on has arrived without that.
    lost_from: Option<Seq>,
}

impl Trust {
    /// True if what goes to all may be relied on.
    pub(super) fn holds(&self) -> bool {
        self.lost_from.is_none()
    }

    /// From which packet on what goes to all has not been trusted, if it is not.
    pub(super) fn lost_from(&self) -> Option<Seq> {
        self.lost_from
    }

    /// The first packet that somebody lacks goes to all once more; `end` is one past the last
    /// packet that has been sent.
    pub(super) fn on_repair_to_all(&mut self, now: Instant, end: Seq) {
        if self.failures == 0 {
            self.since = now;
        }
        self.failures += 1;
        let time = now.since(self.since);
        let is_often = self.failures >= FAILURES_MAX && time >= TIME_MIN;
        if is_often || time >= TIME_MAX {
            self.lost_from.get_or_insert(end);
        }
    }

    /// The slowest rank has come on.
    pub(super) fn on_progress(&mut self) {
        self.failures = 0;
    }

    /// A packet to all has arrived everywhere without having gone to any rank alone.
    pub(super) fn restore(&mut self) {
        self.lost_from = None;
    }
}
