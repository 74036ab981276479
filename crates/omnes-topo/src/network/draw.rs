//! Random numbers for drawing networks and routes, and the hash that spreads flows.
//!
//! Source: SplitMix64 of Steele, Lea and Flood. It is good enough to draw graphs, and needs eight
//! bytes and no library whose version could change a network.

/// A generator of random numbers; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Draw {
    state: u64,
}

impl Draw {
    /// The generator of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scaled(mixed(self.state), bound)
    }
}

/// A number in `0..bound` that depends on all bits of both words; 0 if `bound` is 0.
pub(super) fn hashed(flow: u32, salt: u32, bound: u32) -> u32 {
    let word = u64::from(flow) << 32 | u64::from(salt);
    scaled(mixed(word.wrapping_add(0x9e37_79b9_7f4a_7c15)), bound)
}

fn mixed(word: u64) -> u64 {
    let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn scaled(word: u64, bound: u32) -> u32 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u32
}
