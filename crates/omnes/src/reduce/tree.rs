//! Up a tree: each rank combines what its children send with its own, and sends that to its parent.
//!
//! The ranks of a node meet at one of them, through shared memory, and only those go over the
//! network.

use super::operator::Combine;
use crate::bcast::{check_tree, within_node};
use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::under_way::UnderWay;
use omnes_topo::Tree;
use omnes_wire::Rank;

/// To whom a rank sends, and from whom it gets something.
struct Way {
    /// Nobody at the root.
    parent: Option<u32>,
    /// In the order in which theirs are combined.
    children: Vec<u32>,
}

/// Longest part of the data that goes up at a time: a rank has room for one of each child.
const SLICE_BYTES_MAX: usize = 4 << 20;

impl Communicator {
    /// Combines the data of all ranks at `root`; those of others serve as room.
    pub(super) fn reduce_up(
        &self,
        tree: Tree,
        root: u32,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        check_tree(tree, self.nodes().count())?;
        let way = self.way_up(tree, root);
        let slice_bytes = (SLICE_BYTES_MAX / combine.element_bytes).max(1) * combine.element_bytes;
        if data.len() <= slice_bytes {
            // Also of no data: they are waited for nevertheless.
            return self.reduce_slice(&way, data, combine);
        }
        data.chunks_mut(slice_bytes).try_for_each(|slice| self.reduce_slice(&way, slice, combine))
    }

    fn reduce_slice(&self, way: &Way, data: &mut [u8], combine: &Combine<'_>) -> Result<(), Error> {
        let length = data.len();
        // Chunks need a length; without data, messages are empty too.
        let mut room = vec![0; way.children.len() * length.max(1)];
        // Dropped before the room.
        let mut receives = UnderWay::new(self);
        for (child, row) in way.children.iter().zip(room.chunks_mut(length.max(1))) {
            let row = Bytes::of_mut(&mut row[..length]);
            // SAFETY: rows are disjoint, and read only after their operation has ended.
            unsafe { receives.receive(*child, Purpose::Reduce, row)? };
        }
        for row in 0..way.children.len() {
            receives.wait_for(length)?;
            combine.apply(data, &room[row * length..][..length]);
        }
        let mut sends = UnderWay::new(self);
        if let Some(parent) = way.parent {
            // SAFETY: waited for at once.
            unsafe { sends.send(parent, Purpose::Reduce, Bytes::of(data))? };
        }
        sends.wait_until_left(0)
    }

    fn way_up(&self, tree: Tree, root: u32) -> Way {
        let nodes = self.nodes();
        let (parent, children) = within_node(nodes.local(), self.rank(), root);
        let mut children: Vec<u32> = children.into_iter().map(|child| child.0).collect();
        if let Some(parent) = parent {
            children.reverse();
            return Way { parent: Some(parent.0), children };
        }
        // On the root's node it is the root that meets the other nodes.
        let (own, of_root) = (nodes.node_of(self.rank()), nodes.node_of(root));
        let head = |node: Rank| if node == of_root { root } else { nodes.leader(node) };
        let checked = "nodes are below their number, and the tree is checked";
        let parent = tree.parent(own, of_root, nodes.count()).expect(checked);
        let others = tree.children(own, of_root, nodes.count()).expect(checked);
        children.splice(0..0, others.into_iter().map(head));
        // Those to whom a broadcast comes last have the smallest subtrees, and are ready first.
        children.reverse();
        Way { parent: parent.map(head), children }
    }
}
