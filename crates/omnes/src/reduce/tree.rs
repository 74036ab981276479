//! Up a tree: each rank combines the data of its children with its own, and sends the result to its
//! parent.

use super::operator::Combine;
use crate::bcast::check_tree;
use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::two_level_tree::TreeNeighbours;
use omnes_topo::Tree;

/// Longest part of the data that goes up at a time: a rank has a buffer for one of each child.
const SLICE_BYTES_MAX: usize = 4 << 20;

impl Communicator {
    /// Combines the data of all ranks at `root`; the data of others serve as scratch space.
    pub(super) fn reduce_up(
        &self,
        tree: Tree,
        root: u32,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        check_tree(tree, self.nodes().count())?;
        let neighbours = self.tree_neighbours(self.rank(), tree, root);
        let slice_bytes = (SLICE_BYTES_MAX / combine.element_bytes).max(1) * combine.element_bytes;
        if data.len() <= slice_bytes {
            // Also without data: the other ranks wait for the messages nevertheless.
            return self.reduce_slice(&neighbours, data, combine);
        }
        data.chunks_mut(slice_bytes)
            .try_for_each(|slice| self.reduce_slice(&neighbours, slice, combine))
    }

    fn reduce_slice(
        &self,
        neighbours: &TreeNeighbours,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        self.combine_children(neighbours, data, combine)?;
        let Some(parent) = neighbours.parent else { return Ok(()) };
        let mut send = InFlight::new(self);
        // SAFETY: waited for immediately.
        unsafe { send.send(parent, Purpose::Reduce, Bytes::of(data))? };
        send.wait_until_left(0)
    }

    fn combine_children(
        &self,
        neighbours: &TreeNeighbours,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        let length = data.len();
        // Chunks must not be empty; without data, messages are empty, too.
        let mut room = vec![0; neighbours.children.len() * length.max(1)];
        // Dropped before the room.
        let mut receives = InFlight::new(self);
        for (child, row) in neighbours.children.iter().zip(room.chunks_mut(length.max(1))) {
            let row = Bytes::of_mut(&mut row[..length]);
            // SAFETY: rows are disjoint, and read only after their operation has ended.
            unsafe { receives.receive(*child, Purpose::Reduce, row)? };
        }
        for row in 0..neighbours.children.len() {
            receives.wait_for(length)?;
            combine.apply(data, &room[row * length..][..length]);
        }
        Ok(())
    }
}
