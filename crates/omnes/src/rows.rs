//! Short parts of all ranks on their way to one of them, or back, in jobs of many: up a tree over
//! the nodes, or down it, so that few messages meet at one rank. Parts go together, in rows.
//!
//! ```text
//!   0 ◄─┬─ 1 ◄─┬─ 2        rank 1 sends the row 1, 2, 3 on; at the root every part of a row
//!       ├─ 4   └─ 3        goes to its rank's place, whoever it came by
//! ```
//!
//! Guarantees: whoever gets a wrong row of a scatter passes an empty one on, which the next one
//! refuses; all else that goes wrong all hear of ([`given_up`](crate::given_up)), so nobody waits
//! for what does not come. Cost: one message per rank; each byte crosses the network once per level
//! of the tree, and only those of the first level share the root's link.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::under_way::UnderWay;
use omnes_topo::Tree;
use std::ops::Range;

/// Jobs of more ranks have rows; in others the root's work is no longer than a way over several
/// ranks.
pub(crate) const FLAT_RANKS_MAX: u32 = 64;
/// Longest part in a row: longer ones are worth a message of their own.
pub(crate) const PART_BYTES_MAX: usize = 4 << 10;
/// The tree over the nodes.
const TREE: Tree = Tree::Knomial { radix: 8 };

/// What passes through one rank.
struct Row {
    /// Whose parts lie in the row: first its own, then, for each child, the child's row.
    ranks: Vec<u32>,
    /// To whom, or from whom, the row goes; nobody at the root.
    parent: Option<u32>,
    /// Each with the places of its row in this one.
    children: Vec<(u32, Range<usize>)>,
}

/// The parts at `places` of a row.
fn parts_at(row: Bytes, places: &Range<usize>, each: usize) -> Bytes {
    row.part(places.start * each..places.end * each)
}

impl Communicator {
    /// True if parts of so many bytes, the same number on all ranks, go in rows.
    pub(crate) fn has_rows(&self, part_bytes: usize) -> bool {
        self.size() > FLAT_RANKS_MAX && part_bytes <= PART_BYTES_MAX
    }

    fn row(&self, root: u32) -> Row {
        let way = self.way(self.rank(), TREE, root);
        let (mut ranks, mut children) = (vec![self.rank()], Vec::with_capacity(way.children.len()));
        for child in way.children {
            let start = ranks.len();
            self.append_row(child, root, &mut ranks);
            children.push((child, start..ranks.len()));
        }
        Row { ranks, parent: way.parent, children }
    }

    /// Appends the row of `rank`.
    fn append_row(&self, rank: u32, root: u32, row: &mut Vec<u32>) {
        row.push(rank);
        let children = self.way(rank, TREE, root).children;
        children.into_iter().for_each(|child| self.append_row(child, root, row));
    }

    /// Brings `own` of each rank, all equally long, to `part(rank)` at the root; but the root's.
    ///
    /// # Safety
    /// `own` must not change, and the parts be valid at the root, disjoint, and used by nobody
    /// else, until this returns.
    pub(crate) unsafe fn gather_rows(
        &self,
        root: u32,
        own: Bytes,
        part: impl Fn(u32) -> Bytes,
    ) -> Result<(), Error> {
        let (row, each) = (self.row(root), own.length);
        let mut data = vec![0; row.ranks.len() * each];
        // SAFETY: only read.
        data[..each].copy_from_slice(unsafe { own.as_slice() });
        let data = Bytes::of_mut(&mut data);
        // SAFETY: the row lives until this returns, and its parts are disjoint.
        unsafe { self.receive_rows(&row, data, each)? };
        if let Some(parent) = row.parent {
            let mut send = UnderWay::new(self);
            // SAFETY: waited for at once.
            unsafe { send.send(parent, Purpose::Gather, data)? };
            return send.wait_until_left(0);
        }
        for (place, rank) in (0..).zip(row.ranks).skip(1) {
            // SAFETY: promised by the caller; nothing is under way any more.
            unsafe {
                let part = part(rank).as_mut_slice();
                part.copy_from_slice(data.part_of(place, each).as_slice());
            }
        }
        Ok(())
    }

    /// Receives the rows of all children.
    ///
    /// # Safety
    /// Nobody else may use `data` until this returns.
    unsafe fn receive_rows(&self, row: &Row, data: Bytes, each: usize) -> Result<(), Error> {
        let mut receives = UnderWay::new(self);
        for (child, places) in &row.children {
            // SAFETY: promised by the caller; waited for, or given up, before this returns.
            unsafe { receives.receive(*child, Purpose::Gather, parts_at(data, places, each))? };
        }
        row.children.iter().try_for_each(|(_, places)| receives.wait_for(places.len() * each))
    }

    /// Brings `part(rank)` of the root to `own` at each rank, all equally long; but the root's.
    /// Nothing but an error comes of an `all` that is none.
    ///
    /// # Safety
    /// The parts must be valid at the root, and not change, and `own` be used by nobody else, until
    /// this returns.
    pub(crate) unsafe fn scatter_rows(
        &self,
        root: u32,
        all: Result<Bytes, Error>,
        own: Bytes,
    ) -> Result<(), Error> {
        let (row, each) = (self.row(root), own.length);
        let mut data = vec![0; row.ranks.len() * each];
        let data = Bytes::of_mut(&mut data);
        let came = match row.parent {
            // SAFETY: the row lives until this returns.
            Some(parent) => unsafe { self.receive_row(parent, data) },
            None => all.map(|all| {
                for (place, rank) in (0..).zip(&row.ranks) {
                    // SAFETY: promised by the caller; nobody else has the row.
                    unsafe {
                        let part = data.part_of(place, each).as_mut_slice();
                        part.copy_from_slice(all.part_of(*rank, each).as_slice());
                    }
                }
            }),
        };
        if !matches!(came, Ok(()) | Err(Error::Length { .. } | Error::LengthDiffers { .. })) {
            return came;
        }
        let mut sends = UnderWay::new(self);
        for (child, places) in &row.children {
            let places = if came.is_ok() { places } else { &(0..0) };
            // SAFETY: waited for, or given up, before this returns.
            unsafe { sends.send(*child, Purpose::Scatter, parts_at(data, places, each))? };
        }
        if came.is_ok() {
            // SAFETY: promised by the caller; the row is only read by now.
            unsafe { own.as_mut_slice().copy_from_slice(data.part(0..each).as_slice()) };
        }
        sends.wait_until_left(0).and(came)
    }

    /// # Safety
    /// Nobody else may use `data` until this returns.
    unsafe fn receive_row(&self, from: u32, data: Bytes) -> Result<(), Error> {
        let mut receive = UnderWay::new(self);
        // SAFETY: promised by the caller; waited for at once.
        unsafe { receive.receive(from, Purpose::Scatter, data)? };
        receive.wait_for(data.length)
    }
}
