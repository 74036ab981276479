//! Repairs that wait a moment for others, to go out with them as one packet.

use omnes_wire::Instant;
use std::time::Duration;

/// Repairs may wait for others for a round trip divided by this, which is little beside the whole
/// one that they take anyway.
pub(super) const HOLD_SHARE: u32 = 4;

/// See the module header.
#[derive(Debug, Default)]
pub(in crate::broadcast) struct RepairHold {
    /// Several repairs may go out as one packet, so they may wait for others.
    pub(in crate::broadcast) is_allowed: bool,
    /// Until then they do, if there are any.
    until: Option<Instant>,
    /// When new gaps were reported last.
    gaps_at: Instant,
}

impl RepairHold {
    /// New gaps have been reported. Where nothing was to be repaired before, `round_trip` is the
    /// usual one, and a wait may begin; else it is `None`.
    pub(super) fn on_gaps(&mut self, now: Instant, round_trip: Option<Duration>) {
        if let Some(round_trip) = round_trip.filter(|_| self.is_allowed) {
            // Worth it where reports follow each other closely.
            let wait = round_trip / HOLD_SHARE;
            self.until = (now.since(self.gaps_at) < wait).then(|| now + wait);
        }
        self.gaps_at = now;
    }

    /// Until when repairs wait, whether there are any or not.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the wait.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// Ends the wait if its time has come; true if so.
    pub(super) fn end_if_over(&mut self, now: Instant) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}
