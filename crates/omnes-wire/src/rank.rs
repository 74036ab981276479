//! Identifiers that packets carry.

use std::fmt;

/// Index of a member of a job or of a communicator, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u32);

impl Rank {
    /// Stands for all ranks of a job in the place of a single rank; no rank has this number.
    pub const ALL: Self = Self(u32::MAX);

    /// The rank as an index into a table with one row per rank.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u32> for Rank {
    fn from(rank: u32) -> Self {
        Self(rank)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// Identifier of one run of a parallel program; random, so that stale packets of an earlier run are
/// recognized as foreign.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct JobId(pub u32);

/// Context that separates the messages of one communicator from those of all others. A job never
/// reuses a number, because packets may be delayed for longer than a communicator lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommunicatorId(pub u32);

impl CommunicatorId {
    /// Number used by notices, which are empty messages that need no receive; no communicator has
    /// it.
    pub const NOTICES: Self = Self(u32::MAX);
}

/// One of the channels that connect all ranks of a job [PM-R1].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ChannelId(pub u8);
