//! Rooted trees over the ranks `0..size`: who sends to whom, and in which order.
//!
//! What it is: four families. In all of them the ranks are rotated by the root, so that the shape
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
//! A k-nomial tree writes the relative rank in base k: the parent clears the lowest non-zero
//! digit; a child sets one digit below it. Radix 2 is the binomial tree.
//!
//! Source: the binomial tree and repeated unicast (flat) are baselines of [MS-R22]; the order of
//! sending is that of the usual MPI binomial broadcast: highest digit first.
//! Guarantees: every rank but the root has one parent, the tree spans the group, `parent` and
//! `children` agree. Serving the highest digit first makes a binomial broadcast end after
//! ceil(log2 size) sends in a row; the reverse order takes k (k + 1) / 2 at size 2^k.
//! Assumes: all members use the same size, root and tree.
//! Cost: `parent` and `depth` O(log size); `children` as long as its answer plus O(log size).
//! Not done: trees fitted to measured costs, trees that know which ranks share a node.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use omnes_wire::Rank;

use crate::error::{TopoError, check_rank, check_root, check_size};

/// Smallest radix of a k-nomial tree; base 1 has no digits to clear.
pub const RADIX_MIN: u32 = 2;

/// Radix at which the k-nomial tree is the binomial one.
const RADIX_BINOMIAL: u32 = 2;

/// Family of a broadcast or gather tree.
///
/// Text form, both ways: `binomial`, `chain`, `flat`, `knomial=4`.
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
    /// Each rank that has the message doubles the number of those that have it.
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
}

impl Tree {
    /// The rank from which `rank` receives, `None` for the root.
    ///
    /// `rank` and `root` are in `0..size`, `size` is at least 1. Errors with
    /// [`TopoError::SizeZero`], [`TopoError::RadixTooSmall`], [`TopoError::RootOutOfRange`] or
    /// [`TopoError::RankOutOfRange`]. Cost: O(log size), no allocation.
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
            Self::Binomial => knomial_parent(relative, RADIX_BINOMIAL, size),
            Self::Knomial { radix } => knomial_parent(relative, radix, size),
        };
        Ok(Some(rotate_back(parent, root, size)))
    }

    /// The ranks to which `rank` sends, in sending order; empty for a leaf.
    ///
    /// Binomial and k-nomial: highest digit first and, within a digit, its values ascending. So
    /// the largest subtree is served first, except that the size may cut short the last subtree
    /// of the highest digit. Flat: ascending from the root, wrapping around. Arguments and errors
    /// as for [`Tree::parent`]. Cost: the length of the answer plus O(log size); one allocation.
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
            Self::Binomial => knomial_children(relative, RADIX_BINOMIAL, size).map(back).collect(),
            Self::Knomial { radix } => knomial_children(relative, radix, size).map(back).collect(),
        })
    }

    /// Edges on the longest path from the root to a leaf; 0 for a group of one.
    ///
    /// The same for every root. Errors with [`TopoError::SizeZero`] or
    /// [`TopoError::RadixTooSmall`]. Cost: O(log size).
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
            Self::Binomial => knomial_depth(RADIX_BINOMIAL, size),
            Self::Knomial { radix } => knomial_depth(radix, size),
        })
    }

    /// Most children that any rank has; 0 for a group of one.
    ///
    /// The root has that many in every family. Errors as [`Tree::depth`]. Cost: O(log size).
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
            Self::Binomial => knomial_fan_out(RADIX_BINOMIAL, size),
            Self::Knomial { radix } => knomial_fan_out(radix, size),
        })
    }

    fn check_shape(self, size: u32) -> Result<(), TopoError> {
        check_size(size)?;
        match self {
            Self::Knomial { radix } if radix < RADIX_MIN => Err(TopoError::RadixTooSmall { radix }),
            _ => Ok(()),
        }
    }

    fn check(self, rank: Rank, root: Rank, size: u32) -> Result<(), TopoError> {
        self.check_shape(size)?;
        check_root(root, size)?;
        check_rank(rank, size)
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Binomial => f.pad("binomial"),
            Self::Chain => f.pad("chain"),
            Self::Flat => f.pad("flat"),
            Self::Knomial { radix } => write!(f, "knomial={radix}"),
        }
    }
}

impl FromStr for Tree {
    type Err = TopoError;

    /// Reads the text form; [`TopoError::UnknownTree`] or [`TopoError::RadixTooSmall`] otherwise.
    fn from_str(text: &str) -> Result<Self, TopoError> {
        let unknown = || TopoError::UnknownTree { name: text.to_string() };
        match text {
            "binomial" => Ok(Self::Binomial),
            "chain" => Ok(Self::Chain),
            "flat" => Ok(Self::Flat),
            _ => {
                let digits = text.strip_prefix("knomial=").ok_or_else(unknown)?;
                let radix = digits.parse().map_err(|_| unknown())?;
                if radix < RADIX_MIN {
                    return Err(TopoError::RadixTooSmall { radix });
                }
                Ok(Self::Knomial { radix })
            }
        }
    }
}

// Relative ranks are u64: place values and digits times place may pass 2^32 before the size
// stops them, and `rank + size` does so for large groups.

/// Relative rank: distance from `root` upwards, wrapping, in `0..size`.
fn rotate_to_zero(rank: Rank, root: Rank, size: u32) -> u64 {
    (u64::from(rank.0) + u64::from(size) - u64::from(root.0)) % u64::from(size)
}

/// The rank at distance `relative` from `root`.
fn rotate_back(relative: u64, root: Rank, size: u32) -> Rank {
    // The remainder is below a u32, so the cast keeps it whole.
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

/// Most non-zero digits that a number below `size` can have in base `radix`.
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
    // At most `last`, one child per number, so the cast keeps it whole.
    fan_out as u32
}
