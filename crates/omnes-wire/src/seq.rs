//! Sequence numbers, which wrap.

/// Number of a packet on a lane. Wraps at 2^32; the only home of sequence order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seq(pub u32);

impl Seq {
    /// Number of the first packet. It lies just before the wrap, so that every job passes it soon
    /// and code that cannot handle it fails early, not after hours.
    pub const FIRST: Self = Self(64_u32.wrapping_neg());

    /// Number of the packet that `index` others precede.
    pub const fn nth(index: u32) -> Self {
        Self(Self::FIRST.0.wrapping_add(index))
    }

    /// Number of packets that precede `self`, modulo 2^32.
    pub const fn index(self) -> u32 {
        self.0.wrapping_sub(Self::FIRST.0)
    }

    /// True if `self` was issued before `other`; valid while they are under 2^31 apart.
    pub fn precedes(self, other: Self) -> bool {
        let ahead = other.0.wrapping_sub(self.0);
        ahead != 0 && ahead < 1 << 31
    }

    /// Number `packets` after `self`.
    #[must_use]
    pub fn plus(self, packets: u32) -> Self {
        Self(self.0.wrapping_add(packets))
    }

    /// Number of packets from `earlier` to `self`; wraps if `self` precedes `earlier`.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl Default for Seq {
    fn default() -> Self {
        Self::FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::Seq;

    #[test]
    fn order_holds_across_the_wraparound() {
        let last = Seq(u32::MAX);
        assert!(last.precedes(last.plus(1)));
        assert!(!last.plus(1).precedes(last));
        assert!(!last.precedes(last));
        assert_eq!(last.plus(3).since(last), 3);
    }

    #[test]
    fn order_is_valid_up_to_half_of_the_space() {
        let first = Seq(7);
        assert!(first.precedes(first.plus((1 << 31) - 1)));
        assert!(!first.precedes(first.plus(1 << 31)));
    }
}
