//! Repairs that wait a moment for others, so that they can be combined in one packet.

use omnes_wire::Instant;
use std::time::Duration;

/// Divisor of the round trip that gives the time repairs may wait for others, which is short
/// compared to the round trip that they take anyway.
pub(super) const HOLD_SHARE: u32 = 4;

/// See the module header.
#[derive(Debug, Default)]
pub(in crate::broadcast) struct RepairHold {
    /// Several repairs may be combined in one packet, so they may wait for others.
    pub(in crate::broadcast) is_allowed: bool,
    /// Time until which pending repairs wait.
    until: Option<Instant>,
    /// Time at which new gaps were last reported.
    gaps_at: Instant,
}

impl RepairHold {
    /// New gaps have been reported. If no repairs were pending before, `round_trip` is the usual
    /// one, and a wait may begin; otherwise it is `None`.
    pub(super) fn on_gaps(&mut self, now: Instant, round_trip: Option<Duration>) {
        if let Some(round_trip) = round_trip.filter(|_| self.is_allowed) {
            // Worthwhile if reports follow each other closely.
            let wait = round_trip / HOLD_SHARE;
            self.until = (now.since(self.gaps_at) < wait).then(|| now + wait);
        }
        self.gaps_at = now;
    }

    /// Time until which repairs wait, whether any are pending or not.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the wait.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// Ends the wait if its deadline has passed; returns true if so.
    pub(super) fn end_if_over(&mut self, now: Instant) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}
