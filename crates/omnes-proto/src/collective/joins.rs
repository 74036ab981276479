//! Ranks on a leader's node that have joined its next barrier.

use omnes_wire::Words;

/// One bit for each rank of the node except the leader, their number, and their words.
#[derive(Debug)]
pub(super) struct Joins {
    joined: Vec<u64>,
    words: Vec<Words>,
    count: u32,
    ranks: u32,
}

impl Joins {
    /// Creates the state for `ranks` ranks, none of which has joined.
    pub(super) fn new(ranks: u32) -> Self {
        let joined = vec![0; ranks.div_ceil(u64::BITS) as usize];
        Self { joined, words: vec![Words::NONE; ranks as usize], count: 0, ranks }
    }

    /// The rank at `at` joins with its words; returns false if it had before.
    pub(super) fn add(&mut self, at: u32, words: Words) -> bool {
        let is_new = !self.has(at);
        if is_new {
            self.words[at as usize] = words;
        }
        self.joined[at as usize / 64] |= 1 << (at % 64);
        self.count += u32::from(is_new);
        is_new
    }

    /// True if the rank at `at` has joined.
    pub(super) fn has(&self, at: u32) -> bool {
        self.joined[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// True if all ranks have joined.
    pub(super) fn is_full(&self) -> bool {
        self.count == self.ranks
    }

    /// Words of all ranks, in the order of seats, once all have joined.
    pub(super) fn words(&self) -> impl Iterator<Item = Words> {
        self.words.iter().copied()
    }

    /// Resets the state for the next barrier.
    pub(super) fn clear(&mut self) {
        self.joined.fill(0);
        self.count = 0;
    }
}
