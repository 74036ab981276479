//! Packet headers, identities, sequence numbers and the authentication tag of Omnes.

/// Index of a member of a job or of a communicator, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u32);
