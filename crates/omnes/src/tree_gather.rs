//! Short parts of all ranks, gathered at one of them or scattered from it in jobs of many ranks: up
//! a tree over the nodes, or down it, so that few messages meet at one rank. Parts travel together,
//! in rows.
//!
//! ```text
//!   0 ◄─┬─ 1 ◄─┬─ 2        rank 1 sends the row 1, 2, 3 on; at the root every part of a row
//!       ├─ 4   └─ 3        goes to its rank's place, whoever it came by
//! ```
//!
//! Guarantees: a rank that gets a wrong row of a scatter forwards an empty one, which the next rank
//! rejects; all ranks learn of every other failure ([`given_up`](crate::given_up)), so no rank
//! waits for a message that is not sent.
//! Cost: one message per rank; each byte crosses the network once per level of the tree, and only
//! the bytes of the first level share the root's link.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::parts::Parts;
use omnes_topo::Tree;
use std::ops::Range;

/// Jobs of more ranks use rows; in smaller ones the root's work takes no longer than a path over
/// several ranks.
pub(crate) const FLAT_RANKS_MAX: u32 = 64;
/// Longest part in a row: longer parts are worth a message of their own.
pub(crate) const PART_BYTES_MAX: usize = 4 << 10;
/// The tree over the nodes.
const TREE: Tree = Tree::Knomial { radix: 8 };

/// The parts that pass through one rank.
struct Row {
    /// The ranks whose parts are in the row, and their ranges: first its own, then each child's
    /// row.
    parts: Vec<(u32, Range<usize>)>,
    /// The rank to which, or from which, the row goes; `None` at the root.
    parent: Option<u32>,
    /// The children, each with the range of its row in this one.
    children: Vec<(u32, Range<usize>)>,
}

impl Row {
    /// Length of the row in bytes.
    fn bytes(&self) -> usize {
        self.parts.last().map_or(0, |(_, range)| range.end)
    }

    /// Appends the part of a rank.
    fn push(&mut self, rank: u32, length: usize) {
        let start = self.bytes();
        self.parts.push((rank, start..start + length));
    }
}

impl Communicator {
    /// True if parts of at most `part_bytes` bytes travel in rows; all ranks know their lengths.
    pub(crate) fn has_rows(&self, part_bytes: usize) -> bool {
        self.size() > FLAT_RANKS_MAX && part_bytes <= PART_BYTES_MAX
    }

    /// This rank's row of `parts`.
    fn row(&self, root: u32, parts: &Parts) -> Row {
        let way = self.tree_neighbours(self.rank(), TREE, root);
        let mut row = Row { parts: Vec::new(), parent: way.parent, children: Vec::new() };
        row.push(self.rank(), parts.length(self.rank()));
        for child in way.children {
            let start = row.bytes();
            self.append_row(child, root, parts, &mut row);
            row.children.push((child, start..row.bytes()));
        }
        row
    }

    /// Appends the row of `rank`.
    fn append_row(&self, rank: u32, root: u32, parts: &Parts, row: &mut Row) {
        row.push(rank, parts.length(rank));
        let children = self.tree_neighbours(rank, TREE, root).children;
        children.into_iter().for_each(|child| self.append_row(child, root, parts, row));
    }

    /// Brings `own` of each rank, which is as long as its part in `parts`, to `part(rank)` at the
    /// root, except that of the root.
    ///
    /// # Safety
    /// `own` must not change, and the parts must be valid at the root, disjoint, and not accessed
    /// otherwise, until this returns.
    pub(crate) unsafe fn gather_rows(
        &self,
        root: u32,
        own: Bytes,
        parts: &Parts,
        part: impl Fn(u32) -> Bytes,
    ) -> Result<(), Error> {
        let row = self.row(root, parts);
        let mut data = vec![0; row.bytes()];
        // SAFETY: only read.
        data[..own.length].copy_from_slice(unsafe { own.as_slice() });
        let data = Bytes::of_mut(&mut data);
        // SAFETY: the row lives until this returns, and its parts are disjoint.
        unsafe { self.receive_rows(&row, data)? };
        if let Some(parent) = row.parent {
            let mut send = InFlight::new(self);
            // SAFETY: waited for immediately.
            unsafe { send.send(parent, Purpose::Gather, data)? };
            return send.wait_until_left(0);
        }
        for (rank, range) in row.parts.into_iter().skip(1) {
            // SAFETY: promised by the caller; no operation is in progress any more.
            unsafe { part(rank).as_mut_slice().copy_from_slice(data.part(range).as_slice()) };
        }
        Ok(())
    }

    /// Receives the rows of all children.
    ///
    /// # Safety
    /// No other code may use `data` until this returns.
    unsafe fn receive_rows(&self, row: &Row, data: Bytes) -> Result<(), Error> {
        let mut receives = InFlight::new(self);
        for (child, range) in &row.children {
            // SAFETY: promised by the caller; waited for, or given up, before this returns.
            unsafe { receives.receive(*child, Purpose::Gather, data.part(range.clone()))? };
        }
        row.children.iter().try_for_each(|(_, range)| receives.wait_for(range.len()))
    }

    /// Sends each rank its part of the root's `all`, all equally long, into `own`. If `all` is an
    /// error, all ranks get errors.
    ///
    /// # Safety
    /// The parts must be valid at the root, and not change, and `own` not be accessed otherwise,
    /// until this returns.
    pub(crate) unsafe fn scatter_rows(
        &self,
        root: u32,
        all: Result<Bytes, Error>,
        own: Bytes,
    ) -> Result<(), Error> {
        let parts = Parts::equal(own.length, self.size());
        let row = self.row(root, &parts);
        let mut data = vec![0; row.bytes()];
        let data = Bytes::of_mut(&mut data);
        let came = match row.parent {
            // SAFETY: the row lives until this returns.
            Some(parent) => unsafe { self.receive_row(parent, data) },
            None => all.map(|all| {
                for (rank, range) in &row.parts {
                    // SAFETY: promised by the caller; no other code uses the row.
                    unsafe {
                        let part = data.part(range.clone()).as_mut_slice();
                        part.copy_from_slice(all.part(parts.range(*rank)).as_slice());
                    }
                }
            }),
        };
        if !matches!(came, Ok(()) | Err(Error::BufferLength { .. } | Error::LengthMismatch { .. }))
        {
            return came;
        }
        let mut sends = InFlight::new(self);
        for (child, range) in &row.children {
            let range = if came.is_ok() { range.clone() } else { 0..0 };
            // SAFETY: waited for, or given up, before this returns.
            unsafe { sends.send(*child, Purpose::Scatter, data.part(range))? };
        }
        if came.is_ok() {
            // SAFETY: promised by the caller; the row is only read from now on.
            unsafe { own.as_mut_slice().copy_from_slice(data.part(0..own.length).as_slice()) };
        }
        sends.wait_until_left(0).and(came)
    }

    /// # Safety
    /// No other code may use `data` until this returns.
    unsafe fn receive_row(&self, from: u32, data: Bytes) -> Result<(), Error> {
        let mut receive = InFlight::new(self);
        // SAFETY: promised by the caller; waited for immediately.
        unsafe { receive.receive(from, Purpose::Scatter, data)? };
        receive.wait_for(data.length)
    }
}
