//! The tree by which data of all ranks reach one of them, or return: the ranks of a node meet at
//! one of them, through shared memory, and only these take part in a tree over the network.

use crate::bcast::within_node;
use crate::communicator::Communicator;
use omnes_topo::Tree;
use omnes_wire::Rank;

/// The ranks with which a rank exchanges data in the tree.
pub(crate) struct TreeNeighbours {
    /// The next rank towards the root; `None` at the root.
    pub(crate) parent: Option<u32>,
    /// The ranks for which this rank is the next, in the order in which their data are ready: those
    /// with the smallest subtrees first.
    pub(crate) children: Vec<u32>,
}

impl Communicator {
    /// The neighbours of `rank`, with a tree over the nodes whose parameters have been checked.
    pub(crate) fn tree_neighbours(&self, rank: u32, tree: Tree, root: u32) -> TreeNeighbours {
        let nodes = self.nodes();
        let own = nodes.node_of(rank);
        let (parent, children) = within_node(nodes.members(own), rank, root);
        let mut children: Vec<u32> = children.into_iter().map(|child| child.0).collect();
        if let Some(parent) = parent {
            children.reverse();
            return TreeNeighbours { parent: Some(parent.0), children };
        }
        // On the root's node, the root itself communicates with the other nodes.
        let of_root = nodes.node_of(root);
        let head = |node: Rank| if node == of_root { root } else { nodes.leader(node) };
        let checked = "nodes are below their number, and the tree is checked";
        let parent = tree.parent(own, of_root, nodes.count()).expect(checked);
        let others = tree.children(own, of_root, nodes.count()).expect(checked);
        children.splice(0..0, others.into_iter().map(head));
        // Ranks that receive a broadcast last have the smallest subtrees, and are ready first.
        children.reverse();
        TreeNeighbours { parent: parent.map(head), children }
    }
}
