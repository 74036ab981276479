//! The event queue: by time, then by insertion, so that equal instants have one order.

use omnes_wire::Instant;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    number: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed, as the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Things that will happen.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    next: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), next: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, what: T) {
        let number = self.next;
        self.next += 1;
        self.heap.push(Entry { at, number, what });
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.heap.iter().map(|entry| &entry.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_instants_keep_their_order_of_insertion() {
        let mut queue = Queue::new();
        let at = Instant::from_ns;
        for (ns, what) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'e'), (5, 'd')] {
            queue.push(at(ns), what);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcde");
    }
}
