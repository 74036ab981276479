//! Who on a leader's node has joined its next barrier.

/// A bit for each rank of the node but the leader, and how many there are.
#[derive(Debug)]
pub(super) struct Joins {
    joined: Vec<u64>,
    count: u32,
    ranks: u32,
}

impl Joins {
    /// Nobody of so many.
    pub(super) fn new(ranks: u32) -> Self {
        Self { joined: vec![0; ranks.div_ceil(u64::BITS) as usize], count: 0, ranks }
    }

    /// The rank at `at` joins; false if it had before.
    pub(super) fn add(&mut self, at: u32) -> bool {
        let is_new = !self.has(at);
        self.joined[at as usize / 64] |= 1 << (at % 64);
        self.count += u32::from(is_new);
        is_new
    }

    /// True if the rank at `at` has joined.
    pub(super) fn has(&self, at: u32) -> bool {
        self.joined[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// True if all have.
    pub(super) fn is_full(&self) -> bool {
        self.count == self.ranks
    }

    /// The next barrier begins with nobody.
    pub(super) fn clear(&mut self) {
        self.joined.fill(0);
        self.count = 0;
    }
}
