//! Round-trip time and the retransmission timeout derived from it.
//!
//! Smoothed mean and deviation as in TCP (RFC 6298); packets that were sent more than once give no
//! sample (Karn), unless the answer's epoch shows which transmission it answers. The receiver
//! reports by how much it delayed an answer, so that a lazy acknowledgement does not look like a
//! slow network.

use crate::limits::{BACKOFF_DOUBLINGS_MAX, RETRANSMIT_TIMEOUT_MAX};
use std::time::Duration;

/// Estimate for one path. In nanoseconds, because it is used for every packet.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
    /// Shortest sample; decays slowly, as paths change.
    shortest_ns: u64,
}

/// Round-trip time assumed before the first sample.
const INITIAL_NS: u64 = 1_000_000;
const MAX_NS: u64 = RETRANSMIT_TIMEOUT_MAX.as_nanos() as u64;

/// Allowance of a timeout in addition to the round trip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Shortest timeout.
    pub(crate) least: Duration,
    /// Longest time that an answer is delayed.
    pub(crate) held_back: Duration,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Self { smoothed_ns: None, deviation_ns: INITIAL_NS, shortest_ns: MAX_NS }
    }

    /// Smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns.unwrap_or(INITIAL_NS))
    }

    /// Round-trip time of a packet that never waits, if there has been a sample.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.smoothed_ns.map(|_| Duration::from_nanos(self.shortest_ns))
    }

    /// Deviation of the samples from the smoothed mean.
    pub(crate) fn deviation(&self) -> Duration {
        Duration::from_nanos(self.deviation_ns)
    }

    pub(crate) fn add_sample(&mut self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(MAX_NS).min(MAX_NS);
        self.shortest_ns = (self.shortest_ns + self.shortest_ns / 256).min(sample);
        let Some(smoothed) = self.smoothed_ns else {
            self.smoothed_ns = Some(sample);
            self.deviation_ns = sample / 2;
            return;
        };
        self.deviation_ns = (self.deviation_ns * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed_ns = Some((smoothed * 7 + sample) / 8);
    }

    /// Time to wait for an answer after `doublings` waits without one.
    pub(crate) fn retransmit_timeout(&self, allowance: Allowance, doublings: u32) -> Duration {
        let smoothed = self.smoothed_ns.unwrap_or(INITIAL_NS);
        let (least, held_back) = (nanoseconds(allowance.least), nanoseconds(allowance.held_back));
        let base = (smoothed + 4 * self.deviation_ns + held_back).max(least);
        Duration::from_nanos((base << doublings.min(BACKOFF_DOUBLINGS_MAX)).min(MAX_NS))
    }
}

/// Converts to nanoseconds, limited to the longest timeout.
fn nanoseconds(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(time.subsec_nanos())).min(MAX_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: Allowance =
        Allowance { least: Duration::from_millis(2), held_back: Duration::from_millis(1) };

    #[test]
    fn timeout_follows_the_samples_and_doubles() {
        let mut rtt = Rtt::new();
        for _ in 0..50 {
            rtt.add_sample(Duration::from_millis(10));
        }
        let once = rtt.retransmit_timeout(ALLOWANCE, 0);
        assert!(once >= Duration::from_millis(11) && once < Duration::from_millis(13));
        assert_eq!(rtt.retransmit_timeout(ALLOWANCE, 1), once * 2);
        assert_eq!(rtt.retransmit_timeout(ALLOWANCE, 40), RETRANSMIT_TIMEOUT_MAX);
    }

    #[test]
    fn timeout_has_a_floor() {
        let mut rtt = Rtt::new();
        for _ in 0..50 {
            rtt.add_sample(Duration::from_micros(5));
        }
        assert_eq!(rtt.retransmit_timeout(ALLOWANCE, 0), ALLOWANCE.least);
    }
}
