//! Which algorithm a broadcast takes where nobody has named one: the same on all ranks, as it
//! follows from what all of them know.

use super::algorithm::Bcast;
use omnes_proto::broadcast::Policy;
use omnes_topo::Tree;

/// Messages from this size on go down a chain where there is no multicast.
const CHAIN_BYTES: usize = 1 << 20;
/// With fewer nodes than these, multicast saves nothing: one packet has one receiver.
const MULTICAST_NODES_MIN: u32 = 3;

/// What the choice depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Situation {
    /// Length of the message.
    pub(crate) bytes: usize,
    /// Ranks of the communicator.
    pub(crate) ranks: u32,
    /// Nodes that they are on.
    pub(crate) nodes: u32,
    /// True if some machine has more ranks than cores.
    pub(crate) is_crowded: bool,
    /// True if the probe has found that multicast reaches all nodes.
    pub(crate) has_multicast: bool,
}

impl Situation {
    /// The algorithm.
    pub(crate) fn choice(&self) -> Bcast {
        if self.has_multicast && self.nodes >= MULTICAST_NODES_MIN {
            return Bcast::Multicast(Policy::COMBINED);
        }
        Bcast::tree(self.tree())
    }

    /// The tree without multicast. A chain loads every link once, which counts for large
    /// messages; where ranks share cores, all copies are made by the same cores, and a shallow
    /// tree wakes fewer ranks in turn.
    pub(crate) fn tree(&self) -> Tree {
        let is_chain = self.bytes >= CHAIN_BYTES && !self.is_crowded && self.ranks > 2;
        if is_chain { Tree::Chain } else { Tree::Binomial }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Situation =
        Situation { bytes: 8, ranks: 8, nodes: 8, is_crowded: false, has_multicast: true };

    #[test]
    fn multicast_is_chosen_where_it_works_and_has_several_receivers() {
        let combined = Bcast::Multicast(Policy::COMBINED);
        assert_eq!(MANY.choice(), combined);
        assert_eq!(Situation { bytes: 1 << 30, ..MANY }.choice(), combined);
        assert_eq!(Situation { nodes: 3, ..MANY }.choice(), combined);
        assert_eq!(Situation { nodes: 2, ..MANY }.choice(), Bcast::tree(Tree::Binomial));
        let without = Situation { has_multicast: false, ..MANY };
        assert_eq!(without.choice(), Bcast::tree(Tree::Binomial));
    }

    #[test]
    fn large_messages_go_down_a_chain_where_every_rank_has_a_core() {
        let large = Situation { bytes: CHAIN_BYTES, has_multicast: false, ..MANY };
        assert_eq!(large.choice(), Bcast::tree(Tree::Chain));
        let crowded = Situation { is_crowded: true, ..large };
        assert_eq!(crowded.choice(), Bcast::tree(Tree::Binomial));
        let short = Situation { bytes: CHAIN_BYTES - 1, ..large };
        assert_eq!(short.choice(), Bcast::tree(Tree::Binomial));
    }
}
