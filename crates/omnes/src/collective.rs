//! The names of collective operations.

use std::fmt;

/// A collective operation, whether blocking or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Collective {
    /// An agreement between ranks, as for `split` and `dup`.
    Agreement,
    /// `barrier`
    Barrier,
    /// `bcast`
    Bcast,
    /// `gather`
    Gather,
    /// `allgather`
    Allgather,
    /// `scatter`
    Scatter,
    /// `alltoall`
    Alltoall,
    /// `allreduce`
    Allreduce,
    /// `reduce`
    Reduce,
    /// `reduce_scatter`
    ReduceScatter,
    /// `gatherv`
    Gatherv,
    /// `allgatherv`
    Allgatherv,
    /// `scatterv`
    Scatterv,
    /// `alltoallv`
    Alltoallv,
    /// `scan`
    Scan,
    /// `exscan`
    Exscan,
}

impl Collective {
    /// All collectives, with their names; the number of each is its index.
    const ALL: [(Self, &'static str); 16] = [
        (Self::Agreement, "split"),
        (Self::Barrier, "barrier"),
        (Self::Bcast, "bcast"),
        (Self::Gather, "gather"),
        (Self::Allgather, "allgather"),
        (Self::Scatter, "scatter"),
        (Self::Alltoall, "alltoall"),
        (Self::Allreduce, "allreduce"),
        (Self::Reduce, "reduce"),
        (Self::ReduceScatter, "reduce_scatter"),
        (Self::Gatherv, "gatherv"),
        (Self::Allgatherv, "allgatherv"),
        (Self::Scatterv, "scatterv"),
        (Self::Alltoallv, "alltoallv"),
        (Self::Scan, "scan"),
        (Self::Exscan, "exscan"),
    ];

    /// Number of bits of a collective's number, with room for more collectives.
    pub(crate) const BITS: u32 = 5;

    /// Number by which ranks identify the collective to each other.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// The collective with that number, if it exists.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).map(|(collective, _)| *collective)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::ALL[usize::from(self.number())].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collective_numbers_match_their_positions() {
        for (collective, name) in Collective::ALL {
            assert_eq!(Collective::of_number(collective.number()), Some(collective));
            assert_eq!(collective.to_string(), name);
        }
        assert_eq!(Collective::of_number(Collective::ALL.len() as u8), None);
        assert!(Collective::ALL.len() <= 1 << Collective::BITS);
    }
}
