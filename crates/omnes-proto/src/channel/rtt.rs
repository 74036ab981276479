//! Round-trip time and the retransmission timeout that follows it.
//!
//! Smoothed mean and deviation as TCP keeps them (RFC 6298); packets that were sent more than once
//! give no sample (Karn). The receiver reports how long it held an answer back, so that a lazy
//! acknowledgement does not look like a slow network.

use crate::limits::{BACKOFF_DOUBLINGS_MAX, RETRANSMIT_TIMEOUT_MAX, RETRANSMIT_TIMEOUT_MIN};
use std::time::Duration;

/// Estimate of one path.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    smoothed: Option<Duration>,
    deviation: Duration,
}

/// Round-trip time assumed before the first sample.
const INITIAL: Duration = Duration::from_millis(1);

impl Rtt {
    pub(super) fn new() -> Self {
        Self { smoothed: None, deviation: INITIAL }
    }

    /// The smoothed round-trip time.
    pub(super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    pub(super) fn add_sample(&mut self, sample: Duration) {
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.deviation = sample / 2;
            return;
        };
        self.deviation = (self.deviation * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }

    /// How long to wait for an answer that may be held back for `ack_delay`, after `doublings`
    /// waits without one.
    pub(super) fn retransmit_timeout(&self, ack_delay: Duration, doublings: u32) -> Duration {
        let base = self.smoothed() + 4 * self.deviation + ack_delay;
        let base = base.max(RETRANSMIT_TIMEOUT_MIN);
        (base * (1 << doublings.min(BACKOFF_DOUBLINGS_MAX))).min(RETRANSMIT_TIMEOUT_MAX)
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
