//! Where the parts of ranks lie in memory: one after the other in order of ranks, with nothing
//! between.

use crate::error::Error;
use std::ops::Range;

/// Parts of bytes, one per rank.
pub(crate) enum Parts {
    /// All are equally long.
    Equal { each: usize, ranks: u32 },
    /// Each ends where the next one begins; there is one rank at least.
    Varied { ends: Vec<usize> },
}

impl Parts {
    pub(crate) fn equal(each: usize, ranks: u32) -> Self {
        Self::Equal { each, ranks }
    }

    /// Parts of the `lengths` that a caller gives by the parameter `name`, which must be one per
    /// rank. Those that no memory holds fit into none.
    pub(crate) fn varied(name: &'static str, lengths: &[usize], ranks: u32) -> Result<Self, Error> {
        if lengths.len() != ranks as usize {
            return Err(Error::LengthsCount { name, count: lengths.len(), ranks });
        }
        let ends = lengths.iter().scan(0usize, |end, length| {
            *end = end.saturating_add(*length);
            Some(*end)
        });
        Ok(Self::Varied { ends: ends.collect() })
    }

    /// Refuses memory that is not as long as all of them.
    pub(crate) fn check_memory(&self, name: &'static str, bytes: usize) -> Result<(), Error> {
        match self.bytes() {
            expected if expected == bytes => Ok(()),
            expected => Err(Error::BufferLength { name, bytes, expected }),
        }
    }

    /// Bytes of all together.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Equal { each, ranks } => each.saturating_mul(*ranks as usize),
            Self::Varied { ends } => ends.last().copied().unwrap_or(0),
        }
    }

    /// Bytes of the longest.
    pub(crate) fn longest(&self) -> usize {
        match self {
            Self::Equal { each, .. } => *each,
            Self::Varied { ends } => {
                (0..ends.len() as u32).map(|rank| self.length(rank)).max().unwrap_or(0)
            }
        }
    }

    /// Bytes of the one of `rank`.
    pub(crate) fn length(&self, rank: u32) -> usize {
        self.range(rank).len()
    }

    /// Where the one of `rank` is, in memory that fits.
    pub(crate) fn range(&self, rank: u32) -> Range<usize> {
        let rank = rank as usize;
        match self {
            Self::Equal { each, .. } => rank * each..(rank + 1) * each,
            Self::Varied { ends } => {
                rank.checked_sub(1).map_or(0, |before| ends[before])..ends[rank]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let varied = Parts::varied("lengths", &[3, 0, 4], 3).unwrap();
        assert_eq!([0, 1, 2].map(|rank| varied.range(rank)), [0..3, 3..3, 3..7]);
        assert_eq!((varied.longest(), varied.bytes()), (4, 7));
        let equal = Parts::equal(4, 3);
        assert_eq!([0, 1, 2].map(|rank| equal.range(rank)), [0..4, 4..8, 8..12]);
        assert_eq!((equal.longest(), equal.bytes()), (4, 12));
    }

    #[test]
    fn lengths_that_no_memory_has_fit_into_none() {
        let parts = Parts::varied("lengths", &[usize::MAX, 1, 5], 3).unwrap();
        assert!(parts.check_memory("all", 5).is_err());
        assert!(parts.check_memory("all", usize::MAX - 1).is_err());
    }

    #[test]
    fn there_is_one_length_per_rank() {
        let refused = Parts::varied("lengths", &[1, 2], 3).map(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), "lengths has 2 entries, but the communicator has 3 ranks");
    }
}
