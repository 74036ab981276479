//! Chooses the algorithm of a reduction that does not name one: the same on all ranks, because it
//! depends only on what all of them know.

use crate::communicator::Communicator;
use omnes_topo::{TopoError, Tree};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Data of at least this size are reduced in blocks if each rank has a link of its own, or none
/// needs one: then no link carries more than twice the data, whereas the root of a flat tree gets
/// them from every rank. Otherwise the ranks of a node first combine their data there. Ranks that
/// share cores do not gain by dividing the work, unless the links are slower than the cores.
const BLOCKS_BYTES_MIN: usize = 32 << 10;
/// Blocks shorter than this cost more in messages than they save in bytes.
const BLOCK_BYTES_MIN: usize = 1 << 10;
/// Up to this number of nodes, all send to one, which takes one path through the network and wakes
/// no other rank; beyond it, the root's work would take longer than another hop.
const FLAT_NODES_MAX: u32 = 32;
/// Maximum size of the incoming data at the root of a flat tree; more data go up a binomial tree.
const FLAT_BYTES_MAX: usize = 128 << 10;
/// Children per step of a tree of more nodes.
const WIDE_RADIX: u32 = 8;

/// Algorithm of a reduction.
///
/// Text form, to parse and to display: `words`, `blocks`, `ring`, or a tree such as `flat`,
/// `binomial`, `knomial=4`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReduceAlgorithm {
    /// All data go up a tree, whose inner ranks combine them; an allreduce then broadcasts the
    /// result.
    Tree(Tree),
    /// A reduce-scatter: each rank reduces one block of the data, which it gets from all others. An
    /// allreduce then gathers the blocks on all ranks.
    Blocks,
    /// As `Blocks`, but each block goes around a ring, once to be reduced and once to reach all
    /// ranks: no two senders send to one receiver at a time.
    Ring,
    /// For an allreduce of up to four numbers: the steps of a barrier carry and combine them, in
    /// the kernel NIC if it runs the barriers. f32 are added as f64.
    Words,
}

/// A text that does not name an algorithm of reductions.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReduceAlgorithmError {
    /// No algorithm has that name.
    #[error(
        "`{text}` is not a reduction algorithm; choose among words, blocks, ring, flat, binomial, \
         chain, knomial=RADIX, kary=ARITY, postal=LAMBDA and postal=LAMBDA/FAN_OUT"
    )]
    Unknown {
        /// The text.
        text: String,
    },
    /// The tree exists, but its parameter is invalid.
    #[error("`{text}`: {reason}")]
    Tree {
        /// The text.
        text: String,
        /// What is wrong with the parameter.
        reason: TopoError,
    },
}

impl fmt::Display for ReduceAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(tree) => tree.fmt(formatter),
            Self::Blocks => formatter.write_str("blocks"),
            Self::Ring => formatter.write_str("ring"),
            Self::Words => formatter.write_str("words"),
        }
    }
}

impl FromStr for ReduceAlgorithm {
    type Err = ReduceAlgorithmError;

    fn from_str(text: &str) -> Result<Self, ReduceAlgorithmError> {
        match text {
            "blocks" => Ok(Self::Blocks),
            "ring" => Ok(Self::Ring),
            "words" => Ok(Self::Words),
            tree => tree.parse().map(Self::Tree).map_err(|error| match error {
                TopoError::UnknownTree { name } => ReduceAlgorithmError::Unknown { text: name },
                reason => ReduceAlgorithmError::Tree { text: text.to_owned(), reason },
            }),
        }
    }
}

/// The facts on which the choice depends.
#[derive(Clone, Copy)]
struct Situation {
    bytes: usize,
    ranks: u32,
    nodes: u32,
    /// [`Communicator::waits_for_cores`].
    waits_for_cores: bool,
    /// [`Communicator::reduces_around`] for a block.
    goes_around: bool,
}

impl Situation {
    fn choice(self) -> ReduceAlgorithm {
        if self.goes_around && self.ranks > 1 {
            return ReduceAlgorithm::Ring;
        }
        let is_even = self.nodes == self.ranks || self.nodes == 1;
        let is_long =
            self.bytes >= BLOCKS_BYTES_MIN && self.bytes / self.ranks as usize >= BLOCK_BYTES_MIN;
        if is_even && is_long && !self.waits_for_cores && self.ranks > 1 {
            return ReduceAlgorithm::Blocks;
        }
        let is_short = self.bytes.saturating_mul(self.nodes as usize) <= FLAT_BYTES_MAX;
        ReduceAlgorithm::Tree(match (is_short, self.nodes <= FLAT_NODES_MAX) {
            (true, true) => Tree::Flat,
            (true, false) => Tree::Knomial { radix: WIDE_RADIX },
            (false, _) => Tree::Binomial,
        })
    }
}

impl Communicator {
    /// The algorithm for a reduction of `bytes` bytes if the caller names none.
    pub(crate) fn usual_reduce(&self, bytes: usize) -> ReduceAlgorithm {
        let (ranks, nodes) = (self.size(), self.nodes().count());
        let goes_around = self.reduces_around(bytes / ranks as usize);
        Situation { bytes, ranks, nodes, waits_for_cores: self.waits_for_cores(), goes_around }
            .choice()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FEW: Situation =
        Situation { bytes: 8, ranks: 16, nodes: 16, waits_for_cores: false, goes_around: false };

    #[test]
    fn short_data_use_trees_and_long_data_blocks_or_a_ring() {
        let (flat, binomial) =
            (ReduceAlgorithm::Tree(Tree::Flat), ReduceAlgorithm::Tree(Tree::Binomial));
        assert_eq!(FEW.choice(), flat);
        assert_eq!(Situation { bytes: FLAT_BYTES_MAX / 16, ..FEW }.choice(), flat);
        assert_eq!(Situation { bytes: FLAT_BYTES_MAX / 16 + 1, ..FEW }.choice(), binomial);
        let long = Situation { bytes: BLOCKS_BYTES_MIN, ..FEW };
        assert_eq!(long.choice(), ReduceAlgorithm::Blocks);
        assert_eq!(Situation { waits_for_cores: true, ..long }.choice(), binomial);
        assert_eq!(Situation { nodes: 4, ..long }.choice(), flat);
        assert_eq!(Situation { nodes: 1, ..long }.choice(), ReduceAlgorithm::Blocks);
        let around = Situation { goes_around: true, waits_for_cores: true, ..long };
        assert_eq!(around.choice(), ReduceAlgorithm::Ring);
        assert_eq!(Situation { nodes: 4, ..around }.choice(), ReduceAlgorithm::Ring);
    }

    #[test]
    fn many_nodes_use_deeper_trees_and_blocks_only_for_long_data() {
        let many = Situation { ranks: 1024, nodes: 1024, ..FEW };
        assert_eq!(many.choice(), ReduceAlgorithm::Tree(Tree::Knomial { radix: WIDE_RADIX }));
        let long = Situation { bytes: 1 << 19, ..many };
        assert_eq!(long.choice(), ReduceAlgorithm::Tree(Tree::Binomial));
        assert_eq!(Situation { bytes: 1 << 20, ..many }.choice(), ReduceAlgorithm::Blocks);
        let alone = Situation { bytes: 1 << 20, ranks: 1, nodes: 1, ..FEW };
        assert_ne!(alone.choice(), ReduceAlgorithm::Blocks);
    }

    #[test]
    fn algorithms_are_written_as_they_are_read() {
        for text in ["words", "blocks", "ring", "flat", "binomial", "knomial=4", "postal=2.5/4"] {
            assert_eq!(text.parse::<ReduceAlgorithm>().unwrap().to_string(), text);
        }
        let error = "circle".parse::<ReduceAlgorithm>().unwrap_err().to_string();
        assert!(
            error.starts_with("`circle` is not a reduction algorithm; choose among words, blocks")
        );
    }
}
