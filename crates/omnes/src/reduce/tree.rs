//! Up a tree: each rank combines what its children send with its own, and sends that to its parent.

use super::operator::Combine;
use crate::bcast::check_tree;
use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::under_way::UnderWay;
use crate::way::Way;
use omnes_topo::Tree;

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
        let way = self.way(self.rank(), tree, root);
        let slice_bytes = (SLICE_BYTES_MAX / combine.element_bytes).max(1) * combine.element_bytes;
        if data.len() <= slice_bytes {
            // Also of no data: they are waited for nevertheless.
            return self.reduce_slice(&way, data, combine);
        }
        data.chunks_mut(slice_bytes).try_for_each(|slice| self.reduce_slice(&way, slice, combine))
    }

    fn reduce_slice(&self, way: &Way, data: &mut [u8], combine: &Combine<'_>) -> Result<(), Error> {
        self.combine_children(way, data, combine)?;
        let Some(parent) = way.parent else { return Ok(()) };
        let mut send = UnderWay::new(self);
        // SAFETY: waited for at once.
        unsafe { send.send(parent, Purpose::Reduce, Bytes::of(data))? };
        send.wait_until_left(0)
    }

    fn combine_children(
        &self,
        way: &Way,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
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
        Ok(())
    }
}
