//! Rooted trees over the ranks `0..size`: who sends to whom, and in which order.
//!
//! What it is: six families. In all of them the ranks are rotated by the root, so that the shape
//! depends on `(rank - root) mod size` alone, the *relative* rank; below, numbers are relative.
//!
//! ```text
//! binomial, size 8        chain, size 4       flat, size 4       knomial=3, size 9
//!        0                 0 - 1 - 2 - 3           0                     0
//!     /  |  \                                    / | \              / |  |  \
//!    4   2   1                                  1  2  3            3  6  1   2
//!   / \  |                                                        / \ | \
//!  6   5 3                                                       4  5 7  8
//!  |
//!  7
//! ```
//!
//! A k-nomial tree writes the relative rank in base k: the parent clears the lowest non-zero digit;
//! a child sets one digit below it. Radix 2 is the binomial tree. A k-ary tree is a heap: level by
//! level, each rank's children are the next k. Postal trees, drawn in [`crate::postal`], fit a
//! measured ratio of latency to sending time.
//!
//! Source: postal trees are those of [MS-R19]; the binomial tree and repeated unicast (flat) are
//! baselines of [MS-R22]; the order of sending is that of the usual MPI binomial broadcast: highest
//! digit first.
//! Guarantees: every rank but the root has one parent, the tree spans the group, `parent` and
//! `children` agree. Serving the highest digit first makes a binomial broadcast end after
//! ceil(log2 size) sends in a row; the reverse order takes k (k + 1) / 2 at size 2^k.
//! Assumes: all members use the same size, root and tree.
//! Cost: `parent` and `depth` O(log size); `children` the length of its result plus O(log size).
//! For postal trees, which have no closed form, all are O(size) in time and memory.
//! Not done: trees that know which ranks share a node.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use omnes_wire::Rank;

use crate::error::{TopoError, check_rank, check_root, check_size, check_size_up_to};
use crate::postal::{self, Greedy, Lambda, POSTAL_SIZE_MAX};

/// Smallest radix of a k-nomial tree; base 1 has no digits to clear.
pub const RADIX_MIN: u32 = 2;

/// Radix at which the k-nomial tree is the binomial one.
const RADIX_BINOMIAL: u32 = 2;

/// Family of a broadcast or gather tree.
///
/// Text form, both ways: `binomial`, `chain`, `flat`, `knomial=4`, `kary=3`, `postal=2.5`, and with
/// a fan-out of at most 4 `postal=2.5/4`.
///
/// ```
/// use omnes_topo::Tree;
/// use omnes_wire::Rank;
///
/// let tree: Tree = "binomial".parse()?;
/// assert_eq!(tree.children(Rank(0), Rank(0), 8)?, [Rank(4), Rank(2), Rank(1)]);
/// assert_eq!(tree.parent(Rank(7), Rank(0), 8)?, Some(Rank(6)));
/// // The same shape, rotated to root 5.
/// assert_eq!(tree.children(Rank(5), Rank(5), 8)?, [Rank(1), Rank(7), Rank(6)]);
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tree {
    /// Each rank that has the message doubles the number of ranks that have it.
    Binomial,
    /// One line; best for long messages in many chunks.
    Chain,
    /// The root sends to everybody itself; repeated unicast [MS-R22].
    Flat,
    /// Binomial generalised to base `radix`: shallower, with more children per rank.
    Knomial {
        /// Base in which ranks are written, at least [`RADIX_MIN`].
        radix: u32,
    },
    /// A heap: level by level, the children of r are `arity * r + 1` and the next.
    Kary {
        /// Children of every rank except leaves and the last inner rank; at least 1, which is the
        /// chain.
        arity: u32,
    },
    /// All ranks have a single packet as early as possible, given lambda [MS-R19].
    ///
    /// For up to [`POSTAL_SIZE_MAX`] ranks.
    Postal {
        /// Latency in units of sending time.
        lambda: Lambda,
    },
    /// As [`Tree::Postal`] among trees of bounded fan-out, which forward many packets sooner.
    PostalBounded {
        /// Latency in units of sending time.
        lambda: Lambda,
        /// Maximum number of children of any rank, at least 1, which is the chain.
        fan_out: u32,
    },
}

impl Tree {
    /// The rank from which `rank` receives, `None` for the root.
    ///
    /// `rank` and `root` are in `0..size`, `size` is at least 1. Errors with
    /// [`TopoError::SizeZero`], [`TopoError::SizeTooLarge`], [`TopoError::RadixTooSmall`],
    /// [`TopoError::FanOutZero`], [`TopoError::RootOutOfRange`] or [`TopoError::RankOutOfRange`].
    /// Cost: O(log size), no allocation; postal O(size).
    ///
    /// ```
    /// use omnes_topo::Tree;
    /// use omnes_wire::Rank;
    ///
    /// assert_eq!(Tree::Chain.parent(Rank(0), Rank(3), 4)?, Some(Rank(3)));
    /// assert_eq!(Tree::Chain.parent(Rank(3), Rank(3), 4)?, None);
    /// # Ok::<(), omnes_topo::TopoError>(())
    /// ```
    pub fn parent(self, rank: Rank, root: Rank, size: u32) -> Result<Option<Rank>, TopoError> {
        self.check(rank, root, size)?;
        let relative = rotate_to_zero(rank, root, size);
        if relative == 0 {
            return Ok(None);
        }
        let parent = match self {
            Self::Chain => relative - 1,
            Self::Flat => 0,
            Self::Kary { arity } => (relative - 1) / u64::from(arity),
            Self::Postal { lambda } => postal::parent(relative, Greedy::new(lambda, u32::MAX)),
            Self::PostalBounded { lambda, fan_out } => {
                postal::parent(relative, Greedy::new(lambda, fan_out))
            }
            Self::Binomial => knomial_parent(relative, RADIX_BINOMIAL, size),
            Self::Knomial { radix } => knomial_parent(relative, radix, size),
        };
        Ok(Some(rotate_back(parent, root, size)))
    }

    /// The ranks to which `rank` sends, in sending order; empty for a leaf.
    ///
    /// Binomial and k-nomial: highest digit first and, within a digit, its values ascending. So
    /// the largest subtree is served first, except that the size may cut short the last subtree
    /// of the highest digit. All others: ascending from the rank, wrapping around. Arguments and
    /// errors as for [`Tree::parent`]. Cost: the length of the answer plus O(log size), one
    /// allocation; postal O(size).
    ///
    /// ```
    /// use omnes_topo::Tree;
    /// use omnes_wire::Rank;
    ///
    /// let tree = Tree::Knomial { radix: 3 };
    /// assert_eq!(tree.children(Rank(0), Rank(0), 9)?, [Rank(3), Rank(6), Rank(1), Rank(2)]);
    /// assert_eq!(tree.children(Rank(8), Rank(0), 9)?, []);
    /// # Ok::<(), omnes_topo::TopoError>(())
    /// ```
    pub fn children(self, rank: Rank, root: Rank, size: u32) -> Result<Vec<Rank>, TopoError> {
        self.check(rank, root, size)?;
        let relative = rotate_to_zero(rank, root, size);
        let back = |child| rotate_back(child, root, size);
        Ok(match self {
            Self::Chain => (relative + 1..u64::from(size)).take(1).map(back).collect(),
            Self::Flat if relative == 0 => (1..u64::from(size)).map(back).collect(),
            Self::Flat => Vec::new(),
            Self::Kary { arity } => kary_children(relative, arity, size).map(back).collect(),
            Self::Postal { lambda } => {
                postal::children(relative, size, Greedy::new(lambda, u32::MAX)).map(back).collect()
            }
            Self::PostalBounded { lambda, fan_out } => {
                postal::children(relative, size, Greedy::new(lambda, fan_out)).map(back).collect()
            }
            Self::Binomial => knomial_children(relative, RADIX_BINOMIAL, size).map(back).collect(),
            Self::Knomial { radix } => knomial_children(relative, radix, size).map(back).collect(),
        })
    }

    /// Number of edges on the longest path from the root to a leaf; 0 for a group of one.
    ///
    /// The same for every root. Errors with [`TopoError::SizeZero`], [`TopoError::SizeTooLarge`],
    /// [`TopoError::RadixTooSmall`] or [`TopoError::FanOutZero`]. Cost: O(log size); postal trees
    /// O(size).
    ///
    /// ```
    /// use omnes_topo::Tree;
    ///
    /// assert_eq!(Tree::Binomial.depth(10)?, 3); // 7 is 111 in binary; no rank has four ones
    /// assert_eq!(Tree::Knomial { radix: 4 }.depth(16)?, 2);
    /// # Ok::<(), omnes_topo::TopoError>(())
    /// ```
    pub fn depth(self, size: u32) -> Result<u32, TopoError> {
        self.check_shape(size)?;
        Ok(match self {
            Self::Chain => size - 1,
            Self::Flat => (size - 1).min(1),
            Self::Kary { arity: 1 } => size - 1,
            Self::Kary { arity } => kary_depth(arity, size),
            Self::Postal { lambda } => postal::depth(size, Greedy::new(lambda, u32::MAX)),
            Self::PostalBounded { lambda, fan_out } => {
                postal::depth(size, Greedy::new(lambda, fan_out))
            }
            Self::Binomial => knomial_depth(RADIX_BINOMIAL, size),
            Self::Knomial { radix } => knomial_depth(radix, size),
        })
    }

    /// Maximum number of children of any rank; 0 for a group of one.
    ///
    /// In every family the root has this number. Errors and cost as for [`Tree::depth`].
    ///
    /// ```
    /// use omnes_topo::Tree;
    ///
    /// assert_eq!(Tree::Binomial.fan_out_max(10)?, 4);
    /// assert_eq!(Tree::Flat.fan_out_max(10)?, 9);
    /// # Ok::<(), omnes_topo::TopoError>(())
    /// ```
    pub fn fan_out_max(self, size: u32) -> Result<u32, TopoError> {
        self.check_shape(size)?;
        Ok(match self {
            Self::Chain => (size - 1).min(1),
            Self::Flat => size - 1,
            Self::Kary { arity } => (size - 1).min(arity),
            Self::Postal { lambda } => postal::fan_out(size, Greedy::new(lambda, u32::MAX)),
            Self::PostalBounded { lambda, fan_out } => {
                postal::fan_out(size, Greedy::new(lambda, fan_out))
            }
            Self::Binomial => knomial_fan_out(RADIX_BINOMIAL, size),
            Self::Knomial { radix } => knomial_fan_out(radix, size),
        })
    }

    /// The edges of all relative ranks. Errors as [`Tree::depth`]. Cost: O(size log size); postal
    /// O(size).
    pub(crate) fn edges(self, size: u32) -> Result<Edges, TopoError> {
        self.check_shape(size)?;
        match self {
            Self::Postal { lambda } => Ok(postal::edges(size, Greedy::new(lambda, u32::MAX))),
            Self::PostalBounded { lambda, fan_out } => {
                Ok(postal::edges(size, Greedy::new(lambda, fan_out)))
            }
            _ => self.edges_by_rank(size),
        }
    }

    fn edges_by_rank(self, size: u32) -> Result<Edges, TopoError> {
        let mut first = Vec::with_capacity(size as usize + 1);
        let mut children = Vec::with_capacity(size as usize - 1);
        for relative in (0..size).map(Rank) {
            first.push(children.len() as u32);
            children.extend(self.children(relative, Rank(0), size)?.iter().map(|rank| rank.0));
        }
        first.push(children.len() as u32);
        Ok(Edges { first, children })
    }

    fn check_shape(self, size: u32) -> Result<(), TopoError> {
        match self {
            Self::Postal { .. } | Self::PostalBounded { .. } => {
                check_size_up_to(size, POSTAL_SIZE_MAX)?;
            }
            _ => check_size(size)?,
        }
        match self {
            Self::Knomial { radix } if radix < RADIX_MIN => Err(TopoError::RadixTooSmall { radix }),
            Self::Kary { arity: 0 } | Self::PostalBounded { fan_out: 0, .. } => {
                Err(TopoError::FanOutZero)
            }
            _ => Ok(()),
        }
    }

    fn check(self, rank: Rank, root: Rank, size: u32) -> Result<(), TopoError> {
        self.check_shape(size)?;
        check_root(root, size)?;
        check_rank(rank, size)
    }
}

/// The children of all relative ranks: those of r are `children[first[r]..first[r + 1]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edges {
    /// One entry per rank and one for the end, ascending from 0.
    pub(crate) first: Vec<u32>,
    /// Relative ranks in sending order, parent after parent.
    pub(crate) children: Vec<u32>,
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Binomial => f.pad("binomial"),
            Self::Chain => f.pad("chain"),
            Self::Flat => f.pad("flat"),
            Self::Knomial { radix } => write!(f, "knomial={radix}"),
            Self::Kary { arity } => write!(f, "kary={arity}"),
            Self::Postal { lambda } => write!(f, "postal={lambda}"),
            Self::PostalBounded { lambda, fan_out } => write!(f, "postal={lambda}/{fan_out}"),
        }
    }
}

impl FromStr for Tree {
    type Err = TopoError;

    /// Reads the text form; [`TopoError::UnknownTree`], or the mistake in a parameter:
    /// [`TopoError::RadixTooSmall`], [`TopoError::FanOutZero`], [`TopoError::LambdaOutOfRange`].
    fn from_str(text: &str) -> Result<Self, TopoError> {
        let unknown = || TopoError::UnknownTree { name: text.to_string() };
        let (name, parameter) =
            text.split_once('=').map_or((text, None), |(name, parameter)| (name, Some(parameter)));
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| unknown());
        let lambda = |digits: &str| {
            digits.parse().map_err(|error| match error {
                TopoError::UnknownLambda { .. } => unknown(),
                other => other,
            })
        };
        let tree = match (name, parameter) {
            ("binomial", None) => Self::Binomial,
            ("chain", None) => Self::Chain,
            ("flat", None) => Self::Flat,
            ("knomial", Some(radix)) => Self::Knomial { radix: number(radix)? },
            ("kary", Some(arity)) => Self::Kary { arity: number(arity)? },
            ("postal", Some(parameter)) => match parameter.split_once('/') {
                None => Self::Postal { lambda: lambda(parameter)? },
                Some((digits, fan_out)) => {
                    Self::PostalBounded { lambda: lambda(digits)?, fan_out: number(fan_out)? }
                }
            },
            _ => return Err(unknown()),
        };
        // A group of one is valid for all, so only a parameter can be rejected.
        tree.check_shape(1)?;
        Ok(tree)
    }
}

// Relative ranks are u64: place values and digits times place may exceed 2^32 before the size stops
// them, and `rank + size` does so for large groups.

/// Relative rank: distance from `root` upwards, wrapping, in `0..size`.
pub(crate) fn rotate_to_zero(rank: Rank, root: Rank, size: u32) -> u64 {
    (u64::from(rank.0) + u64::from(size) - u64::from(root.0)) % u64::from(size)
}

/// The rank at distance `relative` from `root`.
pub(crate) fn rotate_back(relative: u64, root: Rank, size: u32) -> Rank {
    // The remainder is below a u32, so the cast is lossless.
    Rank(((relative + u64::from(root.0)) % u64::from(size)) as u32)
}

/// Place value of the lowest non-zero digit of `relative` in base `radix`.
///
/// For 0, which has none, the first power that is not below `size`: every digit is free.
fn lowest_place(relative: u64, radix: u32, size: u32) -> u64 {
    let radix = u64::from(radix);
    let mut place = 1;
    while place < u64::from(size) && relative.is_multiple_of(place * radix) {
        place *= radix;
    }
    place
}

/// Clears the lowest non-zero digit; `relative` is not 0.
fn knomial_parent(relative: u64, radix: u32, size: u32) -> u64 {
    let place = lowest_place(relative, radix, size);
    relative - relative / place % u64::from(radix) * place
}

/// Sets one of the digits below the lowest non-zero one, highest place first.
fn knomial_children(relative: u64, radix: u32, size: u32) -> impl Iterator<Item = u64> {
    let highest = lowest_place(relative, radix, size);
    let radix = u64::from(radix);
    let next_below = move |place: &u64| (*place > 1).then(|| place / radix);
    core::iter::successors(next_below(&highest), next_below).flat_map(move |place| {
        (1..radix)
            .map(move |digit| relative + digit * place)
            .take_while(move |&child| child < u64::from(size))
    })
}

/// Maximum number of non-zero digits of a number below `size` in base `radix`.
///
/// The smallest number with d of them is 11..1 (d ones), so it is the largest d for which that
/// number exists in the group.
fn knomial_depth(radix: u32, size: u32) -> u32 {
    let mut depth = 0;
    let mut ones = 1;
    while ones < u64::from(size) {
        depth += 1;
        ones = ones * u64::from(radix) + 1;
    }
    depth
}

/// Children of relative rank 0: per place, the digits whose number is below `size`.
fn knomial_fan_out(radix: u32, size: u32) -> u32 {
    let radix = u64::from(radix);
    let last = u64::from(size) - 1;
    let fan_out: u64 = core::iter::successors(Some(1), |place| Some(place * radix))
        .take_while(|&place| place <= last)
        .map(|place| (last / place).min(radix - 1))
        .sum();
    // At most `last`, one child per number, so the cast is lossless.
    fan_out as u32
}

/// The `arity` ranks that follow the children of all earlier ranks, as far as they exist.
fn kary_children(relative: u64, arity: u32, size: u32) -> core::ops::Range<u64> {
    let arity = u64::from(arity);
    // Below 2^64, as both factors are below 2^32.
    let first = relative * arity + 1;
    first..(first + arity).min(u64::from(size)).max(first)
}

/// Level of the last rank; `arity` is at least 2.
fn kary_depth(arity: u32, size: u32) -> u32 {
    let mut depth = 0;
    let mut last = u64::from(size) - 1;
    while last > 0 {
        last = (last - 1) / u64::from(arity);
        depth += 1;
    }
    depth
}
