//! A tree of a whole group in one table, for firmware that forwards messages.
//!
//! What it is: the children of every relative rank, in sending order, in one flat array. The table
//! does not depend on the root: relative ranks count from the source, whichever it is, so one table
//! serves all sources [MS-R15, R16].
//!
//! ```text
//! binomial, size 5       first     0  3  3  4  4  4
//!      0                 children  4  2  1  3
//!    / | \
//!   4  2  1              children of r: children[first[r]..first[r + 1]]
//!      |
//!      3
//! ```
//!
//! Guarantees: `first` ascends from 0 to size - 1; each relative rank except 0 is a child once; the
//! table agrees with [`Tree::children`].
//! Assumes: all members use the same tree and size.
//! Cost: 2 (size + 1) + 2 (size - 1) bytes; built once in about O(size); a look-up is O(1) and
//! allocates nothing.
//! Not done: groups above [`TreeTable::SIZE_MAX`], whose numbers would need more than 16 bits.

use alloc::vec::Vec;

use omnes_wire::Rank;

use crate::error::{TopoError, check_rank, check_root, check_size_up_to};
use crate::tree::{Tree, rotate_back, rotate_to_zero};

/// Children of all relative ranks; see the module header.
///
/// ```
/// use omnes_topo::{TreeTable, Tree};
/// use omnes_wire::Rank;
///
/// let table = TreeTable::new(Tree::Binomial, 5)?;
/// assert_eq!(table.first(), [0, 3, 3, 4, 4, 4]);
/// assert_eq!(table.children(), [4, 2, 1, 3]);
/// // Rank 4 sends: it is relative rank 0, and relative rank 2 is rank 1.
/// assert!(table.children_of(Rank(4), Rank(4))?.eq([Rank(3), Rank(1), Rank(0)]));
/// assert!(table.children_of(Rank(1), Rank(4))?.eq([Rank(2)]));
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TreeTable {
    first: Vec<u16>,
    children: Vec<u16>,
}

impl TreeTable {
    /// Largest group that a table holds: its numbers have 16 bits. The kernel's tables hold fewer.
    pub const SIZE_MAX: u32 = 1 << 16;

    /// The table of `tree` for a group of `size` ranks, `1..=`[`TreeTable::SIZE_MAX`].
    ///
    /// Errors with [`TopoError::SizeZero`], [`TopoError::SizeTooLarge`] or a mistake in the tree's
    /// parameters, as [`Tree::children`]. Cost: O(size log size).
    pub fn new(tree: Tree, size: u32) -> Result<Self, TopoError> {
        check_size_up_to(size, Self::SIZE_MAX)?;
        let edges = tree.edges(size)?;
        // All indices are below the size, so the casts are lossless.
        let narrow = |wide: Vec<u32>| wide.into_iter().map(|index| index as u16).collect();
        Ok(Self { first: narrow(edges.first), children: narrow(edges.children) })
    }

    /// Number of ranks in the group.
    pub fn size(&self) -> u32 {
        self.children.len() as u32 + 1
    }

    /// Start of each relative rank's children in [`TreeTable::children`]; `size + 1` entries, so
    /// that each run ends where the next begins.
    pub fn first(&self) -> &[u16] {
        &self.first
    }

    /// The children, as relative ranks in sending order, parent after parent; `size - 1` entries.
    pub fn children(&self) -> &[u16] {
        &self.children
    }

    /// The ranks to which `own` forwards what `source` sends, in sending order; both are ranks of
    /// the group.
    ///
    /// Errors with [`TopoError::RootOutOfRange`] if `source`, [`TopoError::RankOutOfRange`] if
    /// `own` is not below the size. Cost: the length of the answer, no allocation.
    pub fn children_of(
        &self,
        own: Rank,
        source: Rank,
    ) -> Result<impl Iterator<Item = Rank> + '_, TopoError> {
        let size = self.size();
        check_root(source, size)?;
        check_rank(own, size)?;
        let relative = rotate_to_zero(own, source, size) as usize;
        let run = usize::from(self.first[relative])..usize::from(self.first[relative + 1]);
        let children = self.children[run].iter();
        Ok(children.map(move |child| rotate_back(u64::from(*child), source, size)))
    }
}
