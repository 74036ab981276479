//! Errors of a caller about a structure.
//!
//! What it is: the error type of trees, pipelines and barriers, and the checks that every entry
//! point shares.
//! Guarantees: each variant carries the rejected value and the limit that it broke, and its text
//! names both. Checks run in a fixed order (size, parameters, root, rank), so that the same mistake
//! is always reported in the same way. Cost: four comparisons per call.

use alloc::string::String;
use core::fmt;

use omnes_wire::Rank;

use crate::postal::{Lambda, decimal};
use crate::tree::RADIX_MIN;

/// A caller's mistake: the value given and the limit it broke.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TopoError {
    /// The size is 0; the smallest group has one rank.
    SizeZero,
    /// More ranks than the structure supports.
    SizeTooLarge {
        /// The size given.
        size: u32,
        /// Largest valid size.
        size_max: u32,
    },
    /// `rank` is not below `size`.
    RankOutOfRange {
        /// The rank given.
        rank: Rank,
        /// Ranks in the group; valid ranks are `0..size`.
        size: u32,
    },
    /// `root` is not below `size`.
    RootOutOfRange {
        /// The root given.
        root: Rank,
        /// Ranks in the group; valid roots are `0..size`.
        size: u32,
    },
    /// A k-nomial tree needs a radix of at least [`RADIX_MIN`].
    RadixTooSmall {
        /// The radix given.
        radix: u32,
    },
    /// The fan-out is 0; a rank that sends has at least one child.
    FanOutZero,
    /// Lambda must be at least 1 and at most [`Lambda::MAX`](crate::Lambda::MAX).
    LambdaOutOfRange {
        /// The value given in thousandths; `u64::MAX` if it is larger.
        thousandths: u64,
    },
    /// The time of transmission is 0; lambda is a quotient by it.
    TransmitTimeZero,
    /// The text is not a valid lambda.
    UnknownLambda {
        /// The text given.
        text: String,
    },
    /// No tree has this name.
    UnknownTree {
        /// The text given.
        name: String,
    },
    /// No barrier algorithm has this name.
    UnknownBarrier {
        /// The text given.
        name: String,
    },
}

impl fmt::Display for TopoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SizeZero => write!(f, "size is 0, but a group has at least 1 rank"),
            Self::SizeTooLarge { size, size_max } => {
                write!(f, "size {size} is above the maximum {size_max}")
            }
            Self::RankOutOfRange { rank, size } => {
                write!(f, "rank {} is not below the size {size}", rank.0)
            }
            Self::RootOutOfRange { root, size } => {
                write!(f, "root {} is not below the size {size}", root.0)
            }
            Self::RadixTooSmall { radix } => {
                write!(f, "radix {radix} is below the minimum {RADIX_MIN}")
            }
            Self::FanOutZero => {
                write!(f, "fan-out is 0, but a rank that sends has at least 1 child")
            }
            Self::LambdaOutOfRange { thousandths } => {
                write!(f, "lambda {} is not in 1 to {}", decimal(*thousandths), Lambda::MAX)
            }
            Self::TransmitTimeZero => {
                write!(f, "transmission takes 0 ns, but lambda needs at least 1 ns")
            }
            Self::UnknownLambda { text } => write!(
                f,
                "unknown lambda \"{text}\": expected a number such as 2.5, with up to 3 digits \
                 after the point"
            ),
            Self::UnknownTree { name } => write!(
                f,
                "unknown tree \"{name}\": expected binomial, chain, flat, knomial=K, kary=K, \
                 postal=LAMBDA or postal=LAMBDA/K"
            ),
            Self::UnknownBarrier { name } => write!(
                f,
                "unknown barrier \"{name}\": expected gather-broadcast, pairwise, dissemination or \
                 counter"
            ),
        }
    }
}

impl core::error::Error for TopoError {}

/// Rejects the empty group.
pub(crate) fn check_size(size: u32) -> Result<(), TopoError> {
    if size == 0 { Err(TopoError::SizeZero) } else { Ok(()) }
}

/// Rejects the empty group, and a group of more than `size_max` ranks.
pub(crate) fn check_size_up_to(size: u32, size_max: u32) -> Result<(), TopoError> {
    check_size(size)?;
    if size <= size_max { Ok(()) } else { Err(TopoError::SizeTooLarge { size, size_max }) }
}

/// Rejects a rank that is not in `0..size`.
pub(crate) fn check_rank(rank: Rank, size: u32) -> Result<(), TopoError> {
    if rank.0 < size { Ok(()) } else { Err(TopoError::RankOutOfRange { rank, size }) }
}

/// Rejects a root that is not in `0..size`.
pub(crate) fn check_root(root: Rank, size: u32) -> Result<(), TopoError> {
    if root.0 < size { Ok(()) } else { Err(TopoError::RootOutOfRange { root, size }) }
}
