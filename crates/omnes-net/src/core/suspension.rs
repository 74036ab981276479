//! Detects that this process has not run.
//!
//! While the process is stopped (by a signal, by a batch system that suspends the job, with its
//! container) or gets no processor, it hears no other rank, and usually the other ranks are
//! stopped, too. The thread that drives the core sleeps for [`SLEEP_MAX`] at most and then makes a
//! step, so a step that is far later shows that this process could not have heard the others
//! meanwhile: then their silence counts from that step on
//! ([`Endpoint::on_pause`](omnes_proto::endpoint::Endpoint::on_pause)).
//!
//! A caller whose callback runs that long during a wait has the same effect: a silent rank is then
//! reported that much later.

use crate::driver::SLEEP_MAX;
use omnes_wire::Instant;
use std::time::Duration;

/// Number of sleeps by which a step may be late before the process counts as not having run: the
/// processor may be busy.
const SLEEPS: u32 = 5;
/// Fraction of the peer timeout by which a step may be late, if that is longer.
const TIMEOUT_PART: u32 = 4;

/// See the module header.
pub(super) struct Pauses {
    least_ns: u64,
    count: u64,
}

impl Pauses {
    pub(super) fn new(peer_timeout: Duration) -> Self {
        let least = (peer_timeout / TIMEOUT_PART).max(SLEEPS * SLEEP_MAX);
        Self { least_ns: u64::try_from(least.as_nanos()).unwrap_or(u64::MAX), count: 0 }
    }

    /// True if the process has not run for a while between two steps.
    #[inline]
    pub(super) fn on_step(&mut self, before: Instant, now: Instant) -> bool {
        let is_pause = now.as_ns().saturating_sub(before.as_ns()) >= self.least_ns;
        if is_pause {
            self.count += 1;
        }
        is_pause
    }

    /// Pauses so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pause(peer_timeout_ms: u64, gap_ms: u64) -> bool {
        let mut pauses = Pauses::new(Duration::from_millis(peer_timeout_ms));
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        let is_pause = pauses.on_step(at(7), at(7 + gap_ms));
        assert_eq!(pauses.count(), u64::from(is_pause));
        is_pause
    }

    #[test]
    fn step_later_than_a_quarter_of_the_timeout_indicates_a_pause() {
        assert!(!is_pause(30_000, 7499) && is_pause(30_000, 7500));
        assert!(!is_pause(5000, 1249) && is_pause(5000, 1250));
    }

    #[test]
    fn step_within_half_a_second_never_indicates_a_pause() {
        assert!(!is_pause(2000, 499) && is_pause(2000, 500));
        assert!(!is_pause(1, 499) && is_pause(1, 500));
    }
}
