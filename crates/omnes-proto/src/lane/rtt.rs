//! Round-trip time and the retransmission timeout that follows it.
//!
//! Smoothed mean and deviation as TCP keeps them (RFC 6298); packets that were sent more than once
//! give no sample (Karn). The receiver reports how long it held an answer back, so that a lazy
//! acknowledgement does not look like a slow network.

use crate::limits::{BACKOFF_DOUBLINGS_MAX, RETRANSMIT_TIMEOUT_MAX, RETRANSMIT_TIMEOUT_MIN};
use std::time::Duration;

/// Estimate of one path. In nanoseconds, as it is asked for every packet.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
}

/// Round-trip time assumed before the first sample.
const INITIAL_NS: u64 = 1_000_000;
const MIN_NS: u64 = RETRANSMIT_TIMEOUT_MIN.as_nanos() as u64;
const MAX_NS: u64 = RETRANSMIT_TIMEOUT_MAX.as_nanos() as u64;

impl Rtt {
    pub(crate) fn new() -> Self {
        Self { smoothed_ns: None, deviation_ns: INITIAL_NS }
    }

    /// The smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns.unwrap_or(INITIAL_NS))
    }

    /// How much samples differ from it.
    pub(crate) fn deviation(&self) -> Duration {
        Duration::from_nanos(self.deviation_ns)
    }

    pub(crate) fn add_sample(&mut self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(MAX_NS).min(MAX_NS);
        let Some(smoothed) = self.smoothed_ns else {
            self.smoothed_ns = Some(sample);
            self.deviation_ns = sample / 2;
            return;
        };
        self.deviation_ns = (self.deviation_ns * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed_ns = Some((smoothed * 7 + sample) / 8);
    }

    /// How long to wait for an answer that may be held back for `ack_delay`, after `doublings`
    /// waits without one.
    pub(crate) fn retransmit_timeout(&self, ack_delay: Duration, doublings: u32) -> Duration {
        let smoothed = self.smoothed_ns.unwrap_or(INITIAL_NS);
        let held_back = u64::from(ack_delay.subsec_nanos()) + ack_delay.as_secs() * 1_000_000_000;
        let base = (smoothed + 4 * self.deviation_ns + held_back).max(MIN_NS);
        Duration::from_nanos((base << doublings.min(BACKOFF_DOUBLINGS_MAX)).min(MAX_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_the_samples_and_doubles() {
        let mut rtt = Rtt::new();
        for _ in 0..50 {
            rtt.add_sample(Duration::from_millis(10));
        }
        let once = rtt.retransmit_timeout(Duration::ZERO, 0);
        assert!(once >= Duration::from_millis(10) && once < Duration::from_millis(12));
        assert_eq!(rtt.retransmit_timeout(Duration::ZERO, 1), once * 2);
        assert_eq!(rtt.retransmit_timeout(Duration::ZERO, 40), RETRANSMIT_TIMEOUT_MAX);
    }

    #[test]
    fn timeout_has_a_floor() {
        let mut rtt = Rtt::new();
        for _ in 0..50 {
            rtt.add_sample(Duration::from_micros(5));
        }
        assert_eq!(rtt.retransmit_timeout(Duration::ZERO, 0), RETRANSMIT_TIMEOUT_MIN);
    }
}
