//! Minimum duration of a group's barriers, and the wait before the first NACK derived from it.
//!
//! It is unknown when a missing message was due: it may have been lost, or its sender may not have
//! entered yet. So the wait is a multiple of the duration of a barrier in which no member is late.
//! Most samples are too long, because some member is late; none is too short. Hence the least
//! sample of a run of barriers counts: a shorter one immediately, a longer one by at most an eighth
//! per run, so that members must be late in hundreds of consecutive barriers before repair becomes
//! slow, while the estimate still follows a network that has become slower.
//!
//! A barrier that ended after a NACK gives no sample, as in [Karn's algorithm]: if the same message
//! is lost each time, the wait for it must not become part of the estimate. After a run of nothing
//! but such barriers, a longer wait tests whether they would end by themselves.
//!
//! Cost: four words, a few comparisons per barrier.
//!
//! [Karn's algorithm]: https://www.rfc-editor.org/rfc/rfc6298#section-3

use super::interface::CollectiveConfig;
use std::time::Duration;

/// Number of barriers in a run, whose least sample counts.
const RUN_BARRIERS: u32 = 16;
/// Wait for a barrier before the first NACK, in multiples of its minimum duration.
const WAITS_PER_BARRIER: u64 = 3;
/// The same in multiples of the shortest wait, until a barrier has completed.
const INITIAL_WAITS: u32 = 8;
/// Wait of a trial, in multiples of the usual wait.
const WAITS_PER_TRIAL: u32 = 4;

/// Estimate for one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    best_ns: Option<u64>,
    least_ns: Option<u64>,
    count: u32,
    /// Number of consecutive barriers that ended after a NACK.
    asked: u32,
}

impl Pace {
    /// A barrier has taken `sample` from this rank's entry on.
    pub(super) fn add_sample(&mut self, sample: Duration) {
        let is_trial = self.is_trial();
        self.asked = 0;
        let sample = nanoseconds(sample);
        let least = self.least_ns.map_or(sample, |least| least.min(sample));
        let best = self.best_ns.map_or(sample, |best| best.min(sample));
        (self.least_ns, self.best_ns) = (Some(least), Some(best));
        self.count += 1;
        if is_trial || self.count == RUN_BARRIERS {
            self.follow(least);
            (self.least_ns, self.count) = (None, 0);
        }
    }

    /// A barrier has ended `since_nack` after this rank's first NACK.
    pub(super) fn add_asked(&mut self, since_nack: Duration) {
        let since_nack = nanoseconds(since_nack);
        // As this is longer than any barrier, the answer to the NACK did not end it.
        if self.is_trial() && self.best_ns.is_some_and(|best| best < since_nack) {
            self.follow(since_nack);
        }
        self.asked = (self.asked + 1) % RUN_BARRIERS;
    }

    /// True if the next barrier, or the one that has just ended, is a trial with longer waits.
    fn is_trial(&self) -> bool {
        self.asked + 1 == RUN_BARRIERS
    }

    /// The minimum duration is now `ns`: the estimate follows by at most an eighth.
    fn follow(&mut self, ns: u64) {
        let best = self.best_ns.unwrap_or(ns);
        // At least a nanosecond: an eighth of a small number is zero.
        self.best_ns = Some(ns.min(best.saturating_add(best / 8 + 1)));
    }

    /// Wait for a barrier before the first NACK.
    pub(super) fn wait(&self, config: &CollectiveConfig) -> Duration {
        self.step_wait(config, 1)
    }

    /// The same for one of `steps` steps, at least 1: the wait after the first NACK, or after the
    /// answer to it, when late members need not be waited for again.
    pub(super) fn step_wait(&self, config: &CollectiveConfig, steps: u32) -> Duration {
        let (least, most) = (config.nack_after_min, config.nack_after_max);
        let wait = match self.best_ns {
            Some(best) => Duration::from_nanos(best.saturating_mul(WAITS_PER_BARRIER)),
            None => least.saturating_mul(INITIAL_WAITS),
        };
        let times = if self.is_trial() { WAITS_PER_TRIAL } else { 1 };
        // In this order, as the caller sets both limits.
        ((wait / steps).max(least) * times).min(most)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn wait_after(samples: &[(u32, Duration)]) -> Duration {
        let mut pace = Pace::default();
        for (times, sample) in samples {
            (0..*times).for_each(|_| pace.add_sample(*sample));
        }
        pace.wait(&CollectiveConfig::default())
    }

    #[test]
    fn wait_is_three_times_the_barrier_time_within_bounds() {
        assert_eq!(wait_after(&[]), 1200 * US);
        assert_eq!(wait_after(&[(1, 100 * US)]), 300 * US);
        assert_eq!(wait_after(&[(40, 100 * US)]), 300 * US);
        assert_eq!(wait_after(&[(1, US)]), 150 * US);
        assert_eq!(wait_after(&[(1, Duration::MAX)]), 10_000 * US);
    }

    #[test]
    fn wait_for_a_step_is_its_share_of_the_barrier_wait() {
        let mut pace = Pace::default();
        let config = CollectiveConfig::default();
        assert_eq!(pace.step_wait(&config, 4), 300 * US);
        pace.add_sample(400 * US);
        assert_eq!(pace.step_wait(&config, 4), 300 * US);
        assert_eq!(pace.step_wait(&config, 64), 150 * US);
    }

    #[test]
    fn estimate_resists_late_entrants_and_is_corrected_by_a_fast_barrier() {
        // Late in 15 of 16 barriers forever: no effect.
        let mut samples = Vec::new();
        for _ in 0..50 {
            samples.extend([(15, 5000 * US), (1, 100 * US)]);
        }
        assert_eq!(wait_after(&samples), 300 * US);
        // Late in each of 160 barriers: at most 100 us * (9/8)^10.
        let late = wait_after(&[(16, 100 * US), (160, 5000 * US)]);
        assert!(late > 900 * US && late < 1000 * US, "{late:?}");
        assert_eq!(wait_after(&[(16, 100 * US), (160, 5000 * US), (1, 100 * US)]), 300 * US);
    }

    #[test]
    fn estimate_eventually_follows_a_slower_network() {
        assert_eq!(wait_after(&[(16, 100 * US), (16 * 40, 2000 * US)]), 6000 * US);
    }

    #[test]
    fn wait_does_not_overflow_for_extreme_samples() {
        assert_eq!(wait_after(&[(100, Duration::MAX)]), 10_000 * US);
        assert_eq!(wait_after(&[(100, Duration::ZERO)]), 150 * US);
    }
}
