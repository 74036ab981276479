//! Whether packets to all still arrive anywhere, which may end when the network changes.

use omnes_wire::{Instant, Seq};
use std::time::Duration;

/// Consecutive failures of the first packet that any rank lacks to arrive when sent to all, after
/// which packets to all are assumed to reach no rank.
const FAILURES_MAX: u32 = 4;
/// Least duration of these failures: a rank that computes may answer late, though it lacks nothing.
const TIME_MIN: Duration = Duration::from_millis(10);
/// Time after which fewer failures suffice: where answers take long, ranks that get nothing would
/// be taken for dead.
const TIME_MAX: Duration = Duration::from_millis(500);

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct MulticastHealth {
    /// Number of times that the first packet any rank lacks has been sent to all since the slowest
    /// rank last made progress.
    failures: u32,
    /// Time of the first of these.
    since: Instant,
    /// Set if packets to all seem to reach no rank: packets are then sent again to one rank after
    /// the other, until a packet from this one on has arrived without that.
    lost_from: Option<Seq>,
}

impl MulticastHealth {
    /// True if packets to all can be relied on.
    pub(super) fn holds(&self) -> bool {
        self.lost_from.is_none()
    }

    /// First packet of the period in which packets to all have not been trusted, if they are not.
    pub(super) fn lost_from(&self) -> Option<Seq> {
        self.lost_from
    }

    /// The first packet that any rank lacks is sent to all once more; `end` is one past the last
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

    /// The slowest rank has made progress.
    pub(super) fn on_progress(&mut self) {
        self.failures = 0;
    }

    /// A packet to all has arrived everywhere without having been sent to any rank alone.
    pub(super) fn restore(&mut self) {
        self.lost_from = None;
    }
}
