//! Summary of the samples of one point.
//!
//! Percentiles come from a histogram of nanoseconds with three significant digits, so they are
//! within 0.1 % of a sample; minimum and mean are exact. The median of an even number of samples
//! is the lower of the middle two.

use hdrhistogram::Histogram;

/// Decimal digits that the histogram keeps.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Times of one operation, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Half of the samples do not exceed it.
    pub median_us: f64,
    /// 99 of 100 samples do not exceed it.
    pub p99_us: f64,
    /// Shortest sample.
    pub min_us: f64,
    /// Arithmetic mean.
    pub mean_us: f64,
}

impl Summary {
    /// Summarises samples in nanoseconds, each for `operations` (at least 1); `None` if there is no
    /// sample.
    pub fn of(samples_ns: &[u64], operations: u64) -> Option<Self> {
        let min_ns = *samples_ns.iter().min()?;
        let mut histogram = Histogram::<u64>::new(SIGNIFICANT_DIGITS).expect("3 digits are legal");
        for &sample in samples_ns {
            histogram.record(sample).expect("the histogram grows with its samples");
        }
        let total_ns: u128 = samples_ns.iter().map(|&sample| u128::from(sample)).sum();
        let us = |ns: f64| ns / operations as f64 / 1e3;
        Some(Self {
            median_us: us(histogram.value_at_quantile(0.5) as f64),
            p99_us: us(histogram.value_at_quantile(0.99) as f64),
            min_us: us(min_ns as f64),
            mean_us: us(total_ns as f64 / samples_ns.len() as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_close(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected / 1000.0
    }

    #[test]
    fn empty_samples_have_no_summary() {
        assert_eq!(Summary::of(&[], 1), None);
    }

    #[test]
    fn single_sample_is_every_statistic() {
        let summary = Summary::of(&[2_000], 1).unwrap();
        assert!(is_close(summary.median_us, 2.0) && is_close(summary.p99_us, 2.0), "{summary:?}");
        assert_eq!((summary.min_us, summary.mean_us), (2.0, 2.0));
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_samples() {
        let samples: Vec<u64> = (1..=1000).rev().map(|us| us * 1000).collect();
        let summary = Summary::of(&samples, 1).unwrap();
        assert!(is_close(summary.median_us, 500.0), "{summary:?}");
        assert!(is_close(summary.p99_us, 990.0), "{summary:?}");
        assert_eq!(summary.min_us, 1.0);
        assert_eq!(summary.mean_us, 500.5);
    }

    #[test]
    fn batched_samples_are_divided_by_their_operation_count() {
        let summary = Summary::of(&[64_000, 128_000], 64).unwrap();
        assert_eq!((summary.min_us, summary.mean_us), (1.0, 1.5));
    }
}
