//! Multi-send: `firmware/multisend_step.h`.

use crate::KERNEL_GROUP_MAX;
use omnes_topo::TreeTable;

/// A tree over the members' indices relative to the source, for the firmware.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    size: u32,
    own: u32,
    first: [u16; KERNEL_GROUP_MAX + 4],
    child: [u16; KERNEL_GROUP_MAX],
    parent: [u16; KERNEL_GROUP_MAX],
}

#[repr(C)]
#[derive(Default)]
struct Run {
    first: u32,
    count: u32,
}

unsafe extern "C" {
    fn omnes_native_multisend_children(table: *const Table, source: u32, run: *mut Run);
    fn omnes_native_multisend_child(table: *const Table, source: u32, place: u32) -> u32;
    fn omnes_native_multisend_parent(table: *const Table, source: u32) -> u32;
}

impl Table {
    /// The table of member `own` for a tree; `own` must be below the tree's size.
    ///
    /// # Panics
    /// If the tree has more than [`KERNEL_GROUP_MAX`] members: larger trees are for user space,
    /// which uses the [`TreeTable`] itself.
    pub fn new(tree: &TreeTable, own: u32) -> Self {
        let size = tree.size() as usize;
        assert!(size <= KERNEL_GROUP_MAX, "the kernel NIC serves {KERNEL_GROUP_MAX} members");
        let mut table = Self { size: tree.size(), own, ..Self::none() };
        table.first[..tree.first().len()].copy_from_slice(tree.first());
        table.child[..tree.children().len()].copy_from_slice(tree.children());
        for (relative, run) in (0..).zip(tree.first().windows(2)) {
            for child in &tree.children()[usize::from(run[0])..usize::from(run[1])] {
                table.parent[usize::from(*child)] = relative;
            }
        }
        table
    }

    /// A table by which nothing is forwarded.
    pub fn none() -> Self {
        let (first, none) = ([0; KERNEL_GROUP_MAX + 4], [0; KERNEL_GROUP_MAX]);
        Self { size: 0, own: 0, first, child: none, parent: none }
    }

    /// The member from which this one receives what `source` sends to all; `None` at the source
    /// itself.
    pub fn parent(&self, source: u32) -> Option<u32> {
        // SAFETY: the function reads the table.
        let parent = unsafe { omnes_native_multisend_parent(self, source) };
        (parent != u32::MAX).then_some(parent)
    }

    /// This member's children in the tree of `source`, in the order of sending.
    pub fn children(&self, source: u32) -> impl Iterator<Item = u32> + '_ {
        let mut run = Run::default();
        // SAFETY: the function reads the table and writes the run.
        unsafe { omnes_native_multisend_children(self, source, &raw mut run) };
        (run.first..run.first + run.count).filter_map(move |place| {
            // SAFETY: the function reads the table.
            let child = unsafe { omnes_native_multisend_child(self, source, place) };
            (child != u32::MAX).then_some(child)
        })
    }
}
