//! Event queue, ordered by time and then by insertion, so that entries of equal time have one
//! order.
//!
//! A radix heap [Ahuja, Mehlhorn, Orlin, Tarjan 1990], applicable because time never runs back:
//! entry `at` lies in the bucket of the highest bit in which it differs from the time popped last.
//! Popping the least entry of a bucket spreads the bucket over lower ones; each entry moves down at
//! most 64 times, mostly twice. Entries of equal time are always in the same bucket, and buckets
//! keep their insertion order, so no insertion number is needed.
//!
//! Cost: the only comparisons find the least entry of a bucket. Memory is accessed sequentially,
//! whereas a heap of 100,000 entries misses the cache at each level. Buckets keep their memory.

use std::collections::VecDeque;

const BUCKETS: usize = 65;

/// Future events, by a time in ticks of the caller's choice.
#[derive(Debug)]
pub struct Queue<T> {
    /// Time of the entry popped last.
    last: u64,
    count: usize,
    /// Entries due at `last`.
    due: VecDeque<T>,
    /// Bucket `i` holds entries whose highest bit that differs from `last` is `i - 1`; bucket 0 is
    /// `due`.
    buckets: [Vec<(u64, T)>; BUCKETS],
    /// Least time in each bucket that is not empty.
    least: [u64; BUCKETS],
    /// One bit for each bucket that is not empty, bucket 1 first.
    occupied: u64,
    spare: Vec<(u64, T)>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// Creates an empty queue at time 0.
    pub fn new() -> Self {
        Self {
            last: 0,
            count: 0,
            due: VecDeque::new(),
            buckets: [const { Vec::new() }; BUCKETS],
            least: [u64::MAX; BUCKETS],
            occupied: 0,
            spare: Vec::new(),
        }
    }

    /// Adds an event at time `at`.
    ///
    /// # Panics
    /// If `at` is before the time popped last.
    pub fn push(&mut self, at: u64, what: T) {
        assert!(at >= self.last, "time runs back: {at} after {}", self.last);
        self.count += 1;
        self.put(at, what);
    }

    fn put(&mut self, at: u64, what: T) {
        let bucket = (u64::BITS - (at ^ self.last).leading_zeros()) as usize;
        if bucket == 0 {
            self.due.push_back(what);
            return;
        }
        self.occupied |= 1 << (bucket - 1);
        self.least[bucket] = self.least[bucket].min(at);
        self.buckets[bucket].push((at, what));
    }

    /// First bucket that is not empty, `due` aside.
    fn first(&self) -> Option<usize> {
        (self.occupied != 0).then(|| self.occupied.trailing_zeros() as usize + 1)
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        if self.due.is_empty() {
            self.first().map(|bucket| self.least[bucket])
        } else {
            Some(self.last)
        }
    }

    /// Removes the next event and returns it with its time.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        if self.due.is_empty() {
            self.spread(self.first()?);
        }
        self.count -= 1;
        self.due.pop_front().map(|what| (self.last, what))
    }

    /// Advances to the least time of a bucket and moves its entries to the buckets below.
    fn spread(&mut self, bucket: usize) {
        self.last = self.least[bucket];
        self.least[bucket] = u64::MAX;
        self.occupied &= !(1 << (bucket - 1));
        let mut entries =
            std::mem::replace(&mut self.buckets[bucket], std::mem::take(&mut self.spare));
        for (at, what) in entries.drain(..) {
            self.put(at, what);
        }
        self.spare = entries;
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if the queue holds no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All entries, in no meaningful order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let later = self.buckets.iter().flatten().map(|(_, what)| what);
        self.due.iter().chain(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Random;

    #[test]
    fn earlier_events_are_popped_first_and_equal_times_keep_their_order() {
        let mut queue = Queue::new();
        for (at, what) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'e'), (5, 'd')] {
            queue.push(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcde");
    }

    #[test]
    fn random_pushes_and_pops_match_a_sorted_list() {
        let mut random = Random::named(3, "queue", 0);
        let (mut queue, mut sorted) = (Queue::new(), Vec::<(u64, u64)>::new());
        let mut now = 0;
        for number in 0..20_000 {
            if random.chance(520_000) {
                let bits = random.below(40);
                let at = now + random.below(1 << bits);
                queue.push(at, number);
                sorted.insert(sorted.partition_point(|entry| entry.0 <= at), (at, number));
            } else {
                assert_eq!(queue.next_at(), sorted.first().map(|entry| entry.0));
                let expected = (!sorted.is_empty()).then(|| sorted.remove(0));
                assert_eq!(queue.pop(), expected);
                now = expected.map_or(now, |entry| entry.0);
            }
            assert_eq!(queue.len(), sorted.len());
        }
    }

    #[test]
    #[should_panic(expected = "time runs back")]
    fn pushing_an_event_in_the_past_panics() {
        let mut queue = Queue::new();
        queue.push(5, ());
        queue.pop();
        queue.push(4, ());
    }
}
