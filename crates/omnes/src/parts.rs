//! Layout of the parts of ranks in memory: contiguous, in order of ranks.

use crate::error::Error;
use std::ops::Range;

/// Parts in bytes, one per rank.
pub(crate) enum Parts {
    /// All have the same length.
    Equal { each: usize, ranks: u32 },
    /// Each ends where the next one begins; there is at least one rank.
    Varied { ends: Vec<usize> },
}

impl Parts {
    pub(crate) fn equal(each: usize, ranks: u32) -> Self {
        Self::Equal { each, ranks }
    }

    /// Parts with the `lengths` that a caller passes as the parameter `name`, which must be one per
    /// rank. If their sum exceeds the address space, no buffer is accepted.
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

    /// Rejects memory whose length is not that of all parts together.
    pub(crate) fn check_memory(&self, name: &'static str, bytes: usize) -> Result<(), Error> {
        match self.bytes() {
            expected if expected == bytes => Ok(()),
            expected => Err(Error::BufferLength { name, bytes, expected }),
        }
    }

    /// Total length of all parts in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Equal { each, ranks } => each.saturating_mul(*ranks as usize),
            Self::Varied { ends } => ends.last().copied().unwrap_or(0),
        }
    }

    /// Length of the longest part in bytes.
    pub(crate) fn longest(&self) -> usize {
        match self {
            Self::Equal { each, .. } => *each,
            Self::Varied { ends } => {
                (0..ends.len() as u32).map(|rank| self.length(rank)).max().unwrap_or(0)
            }
        }
    }

    /// Length of the part of `rank` in bytes.
    pub(crate) fn length(&self, rank: u32) -> usize {
        self.range(rank).len()
    }

    /// Range of the part of `rank`, in memory of the right length.
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
    fn parts_are_contiguous() {
        let varied = Parts::varied("lengths", &[3, 0, 4], 3).unwrap();
        assert_eq!([0, 1, 2].map(|rank| varied.range(rank)), [0..3, 3..3, 3..7]);
        assert_eq!((varied.longest(), varied.bytes()), (4, 7));
        let equal = Parts::equal(4, 3);
        assert_eq!([0, 1, 2].map(|rank| equal.range(rank)), [0..4, 4..8, 8..12]);
        assert_eq!((equal.longest(), equal.bytes()), (4, 12));
    }

    #[test]
    fn overflowing_lengths_are_rejected_for_any_buffer() {
        let parts = Parts::varied("lengths", &[usize::MAX, 1, 5], 3).unwrap();
        assert!(parts.check_memory("all", 5).is_err());
        assert!(parts.check_memory("all", usize::MAX - 1).is_err());
    }

    #[test]
    fn wrong_number_of_lengths_is_rejected() {
        let refused = Parts::varied("lengths", &[1, 2], 3).map(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), "lengths has 2 entries, but the communicator has 3 ranks");
    }
}
