//! Receivers of each node: a tree of `omnes-topo`, as the tables of the firmware.

use omnes_firmware::multisend::Table;
use omnes_topo::{Tree, TreeTable};

/// A tree over all nodes, with node 0 as the root.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    tables: Vec<Table>,
}

impl Plan {
    /// Creates the tables of `tree` for `nodes` nodes.
    pub(super) fn new(tree: Tree, nodes: u32) -> Self {
        Self::of(&TreeTable::new(tree, nodes).expect("trees of a few nodes exist"))
    }

    /// Creates the tables of an existing tree table.
    pub(super) fn of(tree: &TreeTable) -> Self {
        Self { tables: (0..tree.size()).map(|own| Table::new(tree, own)).collect() }
    }

    pub(super) fn nodes(&self) -> usize {
        self.tables.len()
    }

    /// The children of a node, in sending order.
    pub(super) fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.tables[node].children(0).map(|child| child as usize)
    }

    /// The child at `place`, as a NIC looks it up for the next copy.
    pub(super) fn child(&self, node: usize, place: usize) -> Option<usize> {
        self.children(node).nth(place)
    }

    /// The leaves that are the last children of their parents: one of them receives the message
    /// last [MS-R24].
    pub(super) fn last_leaves(&self) -> Vec<usize> {
        let last = (0..self.nodes()).filter_map(|node| self.children(node).last());
        last.filter(|child| self.child(*child, 0).is_none()).collect()
    }
}
