//! The rig's random numbers: one generator per component, split from the seed by name.
//!
//! Source: xoshiro256++ of Blackman and Vigna, its state filled by SplitMix64; implemented here so
//! that a trace cannot change with a library's version. Each component has its own generator, so
//! adding a rank or a rule does not reshuffle the draws of the others.

/// Generator of one component.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The generator of the component called `name`, the `index`-th of its kind.
    pub fn named(seed: u64, name: &str, index: u64) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut state = seed;
        let mut mixed = split_mix(&mut state) ^ hash;
        mixed = split_mix(&mut mixed) ^ index;
        let mut draw = || split_mix(&mut mixed);
        Self { state: [draw(), draw(), draw(), draw()] }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let drawn = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `least..=most`.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// True in `ppm` of a million draws.
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.bits().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_and_index_has_its_own_random_stream() {
        let draw = |name, index| Random::named(7, name, index).bits();
        assert_eq!(draw("link", 0), draw("link", 0));
        assert_ne!(draw("link", 0), draw("link", 1));
        assert_ne!(draw("link", 0), draw("rule", 0));
    }

    #[test]
    fn random_numbers_stay_within_their_bounds_and_reach_them() {
        let mut random = Random::named(1, "test", 0);
        let drawn: Vec<u64> = (0..1000).map(|_| random.within(3, 6)).collect();
        assert!(drawn.iter().all(|number| (3..=6).contains(number)));
        assert!((3..=6).all(|number| drawn.contains(&number)));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn chance_hits_at_the_given_rate() {
        let mut random = Random::named(2, "test", 0);
        let hits = (0..100_000).filter(|_| random.chance(200_000)).count();
        assert!((19_000..21_000).contains(&hits), "{hits}");
        assert!(!random.chance(0));
        assert!(random.chance(1_000_000));
    }
}
