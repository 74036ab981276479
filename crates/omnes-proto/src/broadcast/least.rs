//! Minimum of many numbers that change one at a time.
//!
//! The numbers of a collector's reporters are close together, within a window or two, so they are
//! counted by value. Cost: a search among the distinct values, which are few, however many numbers
//! there are; memory for these values.

use std::collections::VecDeque;

/// Number of values for which memory is reserved from the start.
const VALUES_USUAL: usize = 64;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Least {
    /// Distinct values, ascending, each with its number of occurrences.
    counts: VecDeque<(u64, u32)>,
}

impl Least {
    /// Creates a collection with `count` times the same value.
    pub(super) fn new(value: u64, count: u32) -> Self {
        let mut counts = VecDeque::new();
        if count > 0 {
            counts.reserve(VALUES_USUAL.min(count as usize + 1));
            counts.push_back((value, count));
        }
        Self { counts }
    }

    /// Adds one occurrence of `value`.
    pub(super) fn add(&mut self, value: u64) {
        match self.counts.binary_search_by_key(&value, |(value, _)| *value) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (value, 1)),
        }
    }

    /// Removes one occurrence of `value`, which is present.
    pub(super) fn remove(&mut self, value: u64) {
        let at = self.counts.binary_search_by_key(&value, |(value, _)| *value);
        let at = at.expect("what is taken out was put in");
        self.counts[at].1 -= 1;
        if self.counts[at].1 == 0 {
            self.counts.remove(at);
        }
    }

    /// Removes all values.
    pub(super) fn clear(&mut self) {
        self.counts.clear();
    }

    /// Returns the least value; `None` if there are none.
    pub(super) fn get(&self) -> Option<u64> {
        self.counts.front().map(|(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn least_matches_a_linear_scan(
            changes in proptest::collection::vec((0..12usize, 0..40u64), 0..200),
        ) {
            let mut numbers = [Some(0); 12];
            let mut least = Least::new(0, 12);
            for (at, value) in changes {
                // Occasionally one is removed for good.
                let next = numbers[at].filter(|_| value > 0).map(|number| number + value);
                if let Some(number) = numbers[at] {
                    least.remove(number);
                    next.into_iter().for_each(|next| least.add(next));
                }
                numbers[at] = next;
                prop_assert_eq!(least.get(), numbers.iter().flatten().min().copied());
            }
        }
    }
}
