//! One rank's part in a broadcast: from whom it gets the data, and to whom it forwards them.
//!
//! Over channels both follow from the tree. By multicast, the root reaches the leaders of all other
//! nodes directly; within a node the data are forwarded over channels, down a binomial tree whose
//! root is the node's leader, or the broadcast's root itself on its own node.

use super::choice::Situation;
use super::{BcastAlgorithm, Forwarding};
use crate::communicator::Communicator;
use crate::error::Error;
use omnes_proto::broadcast::{GroupId, Hold, Policy};
use omnes_topo::{TopoError, Tree};
use omnes_wire::Rank;

/// Tree within a node.
const NODE_TREE: Tree = Tree::Binomial;

/// The source of a rank's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// This rank is the root.
    Itself,
    /// A message from this rank of the communicator.
    Channel(Rank),
    /// The root's multicast to this group.
    Multicast(GroupId),
}

/// One rank's part in a broadcast; see the module header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The root's rank in the communicator.
    pub(crate) root: u32,
    /// The source of this rank's data.
    pub(crate) origin: Origin,
    /// The group that this rank multicasts to, if it is the root.
    pub(crate) cast: Option<(GroupId, Hold)>,
    /// Ranks of the communicator to which this one forwards the data.
    pub(crate) children: Vec<Rank>,
    /// When the data are forwarded.
    pub(crate) forwarding: Forwarding,
}

impl Communicator {
    /// This rank's part in a broadcast of `bytes` bytes from `root`.
    pub(crate) fn part(
        &self,
        root: u32,
        bytes: usize,
        algorithm: BcastAlgorithm,
    ) -> Result<Part, Error> {
        self.check_rank(root)?;
        match algorithm {
            BcastAlgorithm::Tree { tree, forwarding } => self.tree_part(root, tree, forwarding),
            BcastAlgorithm::Multicast(policy) if self.has_multicast() => {
                self.count_multisend(bytes);
                self.multicast_part(root, policy)
            }
            BcastAlgorithm::Multicast(_) => {
                let tree = self.situation(bytes).tree();
                self.tree_part(root, tree, Forwarding::Pipelined)
            }
        }
    }

    /// The facts on which the choice of an algorithm for `bytes` bytes depends.
    pub(crate) fn situation(&self, bytes: usize) -> Situation {
        Situation {
            bytes,
            ranks: self.size(),
            nodes: self.nodes().count(),
            is_oversubscribed: self.job().engine.is_oversubscribed(),
            has_multicast: self.has_multicast(),
            nodes_reached: self.nodes_reached(),
            figures: self.job().figures(),
        }
    }

    fn tree_part(&self, root: u32, tree: Tree, forwarding: Forwarding) -> Result<Part, Error> {
        let (me, root_rank, size) = (Rank(self.rank()), Rank(root), self.size());
        let refused = |error| refused(tree, error);
        let parent = tree.parent(me, root_rank, size).map_err(refused)?;
        let children = tree.children(me, root_rank, size).map_err(refused)?;
        let origin = parent.map_or(Origin::Itself, Origin::Channel);
        Ok(Part { root, origin, cast: None, children, forwarding })
    }

    fn multicast_part(&self, root: u32, policy: Policy) -> Result<Part, Error> {
        let group = self.group(policy)?;
        let cast = (root == self.rank()).then_some((group, policy.hold));
        let (parent, children) = within_node(self.nodes().local(), self.rank(), root);
        let origin = match parent {
            Some(parent) => Origin::Channel(parent),
            None if cast.is_some() => Origin::Itself,
            None => Origin::Multicast(group),
        };
        Ok(Part { root, origin, cast, children, forwarding: Forwarding::Pipelined })
    }
}

/// Rejects a tree whose parameters are invalid for `size` ranks.
pub(crate) fn check_tree(tree: Tree, size: u32) -> Result<(), Error> {
    tree.parent(Rank(0), Rank(0), size).map(|_| ()).map_err(|error| refused(tree, error))
}

fn refused(tree: Tree, error: TopoError) -> Error {
    Error::Algorithm { reason: format!("{tree}: {error}") }
}

/// The rank of its node from which rank `me` gets the data, if any, and the ranks of its node to
/// which it forwards them. `local` are the ranks of its node, the leader first.
pub(crate) fn within_node(local: &[u32], me: u32, root: u32) -> (Option<Rank>, Vec<Rank>) {
    if local.len() == 1 {
        return (None, Vec::new());
    }
    let place = |rank: u32| local.iter().position(|other| *other == rank);
    let me = place(me).expect("a rank is on its own node") as u32;
    let (first, size) = (place(root).unwrap_or(0) as u32, local.len() as u32);
    let checked = "places are below the number of ranks of the node";
    let rank = |place: Rank| Rank(local[place.index()]);
    let parent = NODE_TREE.parent(Rank(me), Rank(first), size).expect(checked);
    let children = NODE_TREE.children(Rank(me), Rank(first), size).expect(checked);
    (parent.map(rank), children.into_iter().map(rank).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_alone_on_its_node_forwards_nothing() {
        assert_eq!(within_node(&[3], 3, 3), (None, vec![]));
        assert_eq!(within_node(&[3], 3, 0), (None, vec![]));
    }

    #[test]
    fn leaders_forward_data_of_remote_roots_and_local_roots_their_own() {
        let local = [2, 5, 7];
        // The root is on another node: the leader gets it by multicast.
        assert_eq!(within_node(&local, 2, 0), (None, vec![Rank(7), Rank(5)]));
        assert_eq!(within_node(&local, 7, 0), (Some(Rank(2)), vec![]));
        // The root is on this node, and is not the leader.
        assert_eq!(within_node(&local, 5, 5), (None, vec![Rank(2), Rank(7)]));
        assert_eq!(within_node(&local, 2, 5), (Some(Rank(5)), vec![]));
    }

    #[test]
    fn all_ranks_of_a_node_except_one_have_a_parent_on_the_node() {
        for size in 2..20 {
            let local: Vec<u32> = (0..size).map(|rank| 3 * rank + 1).collect();
            for root in [0, 1, 3 * size - 2] {
                let parts: Vec<_> =
                    local.iter().map(|me| (*me, within_node(&local, *me, root))).collect();
                let heads: Vec<_> = parts.iter().filter(|(_, (from, _))| from.is_none()).collect();
                assert_eq!(heads.len(), 1, "{size} {root}");
                for (me, (_, children)) in &parts {
                    for child in children {
                        let part = parts.iter().find(|(rank, _)| *rank == child.0);
                        assert_eq!(part.map(|(_, (from, _))| *from), Some(Some(Rank(*me))));
                    }
                }
            }
        }
    }
}
