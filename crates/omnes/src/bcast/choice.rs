//! Chooses the algorithm of a broadcast that does not name one. The choice is the same on all
//! ranks, because it depends only on what all of them know.
//!
//! With figures of the network ([`tune`](super::tune)), the algorithm with the shortest predicted
//! time is chosen; without figures, and within a node, fixed rules decide. One rule precedes both:
//! multicast is for communicators with a good part of the nodes that receive it ([`is_for_many`]).

use super::nodes::is_for_many;
use super::tune::{Candidate, Figures};
use super::{BcastAlgorithm, PIPELINE_BYTES};
use omnes_topo::Tree;
use std::sync::{Mutex, PoisonError};

/// Without figures and without multicast, messages of at least this size go down a chain.
const CHAIN_BYTES: usize = 1 << 20;
/// With fewer nodes, multicast by itself saves nothing: each packet has only one receiver.
const MULTICAST_NODES_MIN: u32 = 3;

/// The facts on which the choice depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Situation {
    /// Length of the message.
    pub(crate) bytes: usize,
    /// Number of ranks of the communicator.
    pub(crate) ranks: u32,
    /// Number of nodes that the ranks are on.
    pub(crate) nodes: u32,
    /// True if some machine has more ranks than cores.
    pub(crate) is_oversubscribed: bool,
    /// True if the probe has found that multicast reaches all nodes.
    pub(crate) has_multicast: bool,
    /// Nodes that receive what this communicator multicasts, its own and others.
    pub(crate) nodes_reached: u32,
    /// Measurements of the network, if any.
    pub(crate) figures: Option<Figures>,
}

impl Situation {
    /// Returns the algorithm.
    pub(crate) fn choice(&self) -> BcastAlgorithm {
        let is_for_many = is_for_many(self.nodes, self.nodes_reached);
        let has_multicast = self.has_multicast && self.nodes > 1 && is_for_many;
        let candidate = match self.network_figures() {
            Some(figures) => {
                let candidates =
                    if has_multicast { &Candidate::ALL[..] } else { &Candidate::TREES };
                figures.best(candidates, self.ranks, self.bytes as u64)
            }
            None if has_multicast && self.nodes >= MULTICAST_NODES_MIN => Candidate::Multicast,
            None => return BcastAlgorithm::tree(self.tree()),
        };
        candidate.bcast(self.nodes)
    }

    /// The tree that is used without multicast.
    pub(crate) fn tree(&self) -> Tree {
        let is_chain = match self.network_figures() {
            Some(figures) => {
                figures.best(&Candidate::TREES, self.ranks, self.bytes as u64) == Candidate::Chain
            }
            // A chain loads every link once, which counts for large messages; where ranks share
            // cores, the same cores make all copies, and a shallow tree wakes fewer ranks in
            // succession.
            None => self.bytes >= CHAIN_BYTES && !self.is_oversubscribed && self.pays_as_chain(),
        };
        if is_chain { Tree::Chain } else { Tree::Binomial }
    }

    /// True if the pieces that the root of a binomial tree sends beyond a first copy of the message
    /// are at least as many as the additional levels of a chain, each of which takes at least the
    /// time of a piece.
    fn pays_as_chain(&self) -> bool {
        let (chain, binomial) =
            (Candidate::Chain.depth(self.ranks), Candidate::Binomial.depth(self.ranks));
        let pieces = self.bytes as u64 / PIPELINE_BYTES;
        self.ranks > 2 && pieces.saturating_mul(binomial - 1) >= chain - binomial
    }

    /// The figures, unless all ranks are on one node.
    fn network_figures(&self) -> Option<&Figures> {
        self.figures.as_ref().filter(|_| self.nodes > 1)
    }
}

/// The most recent choice: comparing figures takes longer than checking that the situation is
/// unchanged.
#[derive(Default)]
pub(crate) struct LatestChoice(Mutex<Option<(Situation, BcastAlgorithm)>>);

impl LatestChoice {
    /// The algorithm for `situation`.
    pub(crate) fn of(&self, situation: Situation) -> BcastAlgorithm {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *latest {
            Some((same, choice)) if same == situation => choice,
            _ => latest.insert((situation, situation.choice())).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tune::Cost;
    use super::*;
    use omnes_proto::broadcast::Policy;

    const MANY: Situation = Situation {
        bytes: 8,
        ranks: 8,
        nodes: 8,
        is_oversubscribed: false,
        has_multicast: true,
        nodes_reached: 8,
        figures: None,
    };
    const COMBINED: BcastAlgorithm = BcastAlgorithm::Multicast(Policy::COMBINED);

    #[test]
    fn multicast_is_chosen_when_available_with_several_receiving_nodes() {
        assert_eq!(MANY.choice(), COMBINED);
        assert_eq!(Situation { bytes: 1 << 30, ..MANY }.choice(), COMBINED);
        let few = Situation { nodes_reached: 3, ..MANY };
        assert_eq!(Situation { nodes: 3, ..few }.choice(), COMBINED);
        assert_eq!(Situation { nodes: 2, ..few }.choice(), BcastAlgorithm::tree(Tree::Binomial));
        let without = Situation { has_multicast: false, ..MANY };
        assert_eq!(without.choice(), BcastAlgorithm::tree(Tree::Binomial));
    }

    #[test]
    fn multicast_requires_at_least_half_of_the_nodes_reached() {
        let row = |nodes| Situation { ranks: nodes, nodes, nodes_reached: 1024, ..MANY };
        assert_eq!(row(32).choice(), BcastAlgorithm::tree(Tree::Binomial));
        assert_eq!(row(511).choice(), BcastAlgorithm::tree(Tree::Binomial));
        assert!(matches!(row(512).choice(), BcastAlgorithm::Multicast(_)));
        // Figures of the whole job do not override the rule.
        let figures = measured().figures;
        assert_eq!(
            Situation { figures, ..row(511) }.choice(),
            BcastAlgorithm::tree(Tree::Binomial)
        );
        assert!(matches!(Situation { figures, ..row(512) }.choice(), BcastAlgorithm::Multicast(_)));
    }

    #[test]
    fn chains_of_many_ranks_require_long_messages() {
        let large = Situation { bytes: CHAIN_BYTES, has_multicast: false, ..MANY };
        let long = |ranks, bytes| Situation { ranks, nodes: ranks, bytes, ..large }.tree();
        assert_eq!(long(3, CHAIN_BYTES), Tree::Chain);
        assert_eq!(long(32, CHAIN_BYTES), Tree::Chain);
        assert_eq!(long(1000, CHAIN_BYTES), Tree::Binomial);
        assert_eq!(long(1000, 8 << 20), Tree::Binomial);
        assert_eq!(long(1000, 64 << 20), Tree::Chain);
        assert_eq!([1, 2].map(|ranks| long(ranks, 1 << 30)), [Tree::Binomial; 2]);
        assert_eq!(long(u32::MAX, usize::MAX), Tree::Chain);
    }

    #[test]
    fn large_messages_use_a_chain_unless_cores_are_oversubscribed() {
        let large = Situation { bytes: CHAIN_BYTES, has_multicast: false, ..MANY };
        assert_eq!(large.choice(), BcastAlgorithm::tree(Tree::Chain));
        let shared = Situation { is_oversubscribed: true, ..large };
        assert_eq!(shared.choice(), BcastAlgorithm::tree(Tree::Binomial));
        let short = Situation { bytes: CHAIN_BYTES - 1, ..large };
        assert_eq!(short.choice(), BcastAlgorithm::tree(Tree::Binomial));
    }

    /// Multicast with a high cost per byte, so that trees are faster for long messages.
    fn measured() -> Situation {
        let cost =
            |level_ns, byte_ps| Cost { level_ns, level_byte_ps: byte_ps, stream_byte_ps: byte_ps };
        let multicast = Some(cost(30_000, 20_000));
        let (binomial, chain) = (cost(25_000, 800), cost(25_000, 800));
        let figures = Figures { multicast, binomial, chain, lambda_thousandths: None };
        Situation { figures: Some(figures), ..MANY }
    }

    #[test]
    fn measured_figures_determine_the_choice() {
        let situation = measured();
        assert_eq!(situation.choice(), COMBINED);
        let long = Situation { bytes: 1 << 30, ..situation };
        assert_eq!(long.choice(), BcastAlgorithm::tree(Tree::Chain));
        // Also with two nodes, and with more ranks than cores.
        let pair = Situation { nodes: 2, nodes_reached: 2, ..situation };
        assert_eq!(pair.choice(), COMBINED);
        assert_eq!(
            Situation { is_oversubscribed: true, ..long }.choice(),
            BcastAlgorithm::tree(Tree::Chain)
        );
    }

    #[test]
    fn cached_choice_is_used_only_for_the_same_situation() {
        let latest = LatestChoice::default();
        let long = Situation { bytes: 1 << 30, ..measured() };
        for situation in [measured(), measured(), long, MANY, long] {
            assert_eq!(latest.of(situation), situation.choice());
        }
    }

    #[test]
    fn multicast_is_never_chosen_without_a_successful_probe() {
        for bytes in [0, 8, 1 << 20, 1 << 30] {
            for situation in [MANY, measured()] {
                let without = Situation { bytes, has_multicast: false, ..situation };
                assert_eq!(without.choice(), BcastAlgorithm::tree(without.tree()));
                let within = Situation { bytes, nodes: 1, ..situation };
                assert_eq!(within.choice(), BcastAlgorithm::tree(within.tree()));
            }
        }
    }

    #[test]
    fn network_figures_are_ignored_within_one_node() {
        let rules = Situation { nodes: 1, bytes: 1 << 30, is_oversubscribed: true, ..MANY };
        let figures = Situation { figures: measured().figures, ..rules };
        assert_eq!(figures.choice(), rules.choice());
        assert_eq!(figures.choice(), BcastAlgorithm::tree(Tree::Binomial));
    }
}
