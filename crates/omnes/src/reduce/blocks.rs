//! Reduction in blocks: each rank gets one block of every rank's data, reduces it, and holds the
//! result.
//!
//! Long blocks are reduced slice by slice, so that buffers for a few slices suffice. Each rank gets
//! the data directly from the others, and broadcasts its result; with multicast, the results of one
//! slice travel while the next is reduced. Or both go around a ring.

use super::operator::Combine;
use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::pairwise::steps_at_once;
use crate::ring::Around;
use std::ops::Range;

/// Longest slice of a block, unless an element is longer.
const SLICE_BYTES_MAX: usize = 1 << 20;

/// Parts of a buffer, one per rank, in order of ranks.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    elements: usize,
    element_bytes: usize,
    ranks: usize,
    slice_elements: usize,
}

impl Blocks {
    pub(crate) fn of(bytes: usize, element_bytes: usize, ranks: u32) -> Self {
        Self {
            elements: bytes / element_bytes,
            element_bytes,
            ranks: ranks as usize,
            slice_elements: (SLICE_BYTES_MAX / element_bytes).max(1),
        }
    }

    /// The elements of the block of `rank`.
    fn elements(&self, rank: u32) -> Range<usize> {
        let (each, more) = (self.elements / self.ranks, self.elements % self.ranks);
        let start = |rank: usize| rank * each + rank.min(more);
        start(rank as usize)..start(rank as usize + 1)
    }

    /// Range of the block of `rank`, in bytes.
    pub(crate) fn range(&self, rank: u32) -> Range<usize> {
        let Range { start, end } = self.elements(rank);
        start * self.element_bytes..end * self.element_bytes
    }

    /// Number of slices of the longest block.
    fn slices(&self) -> usize {
        self.elements(0).len().div_ceil(self.slice_elements)
    }

    /// Range of a slice of the block of `rank`, in bytes; in shorter blocks it may be empty.
    fn slice(&self, slice: usize, rank: u32) -> Range<usize> {
        let Range { start, end } = self.elements(rank);
        let first = (start + slice * self.slice_elements).min(end);
        let last = (first + self.slice_elements).min(end);
        first * self.element_bytes..last * self.element_bytes
    }
}

impl Communicator {
    pub(super) fn allreduce_blocks(
        &self,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        let blocks = Blocks::of(data.len(), combine.element_bytes, self.size());
        let data = Bytes::of_mut(data);
        let mut results = InFlight::new(self);
        for slice in 0..blocks.slices() {
            let range = |rank| blocks.slice(slice, rank);
            // SAFETY: operations in progress use other slices, and have ended, or been given up,
            // before the caller regains the data.
            unsafe {
                self.exchange_and_combine(data, range, combine)?;
                results.wait_until_left(0)?;
                results = self.begin_allgather(data, range)?;
            }
        }
        results.wait_until_left(0)
    }

    pub(super) fn allreduce_ring(
        &self,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        let blocks = Blocks::of(data.len(), combine.element_bytes, self.size());
        let data = Bytes::of_mut(data);
        for slice in 0..blocks.slices() {
            let around = Around::ReduceAndGather(combine);
            // SAFETY: no other code uses the data.
            unsafe { self.pass_around(data, |rank| blocks.slice(slice, rank), around)? };
        }
        Ok(())
    }

    pub(super) fn reduce_scattered(
        &self,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<Range<usize>, Error> {
        let blocks = Blocks::of(data.len(), combine.element_bytes, self.size());
        let goes_around = self.reduces_around(blocks.range(0).len());
        let data = Bytes::of_mut(data);
        for slice in 0..blocks.slices() {
            let range = |rank| blocks.slice(slice, rank);
            // SAFETY: no other code uses the data.
            unsafe {
                if goes_around {
                    self.pass_around(data, range, Around::Reduce(combine))?
                } else {
                    self.exchange_and_combine(data, range, combine)?
                }
            }
        }
        Ok(blocks.range(self.rank()))
    }

    pub(super) fn reduce_blocks(
        &self,
        root: u32,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        let own = self.reduce_scattered(data, combine)?;
        let blocks = Blocks::of(data.len(), combine.element_bytes, self.size());
        let data = Bytes::of_mut(data);
        // SAFETY: blocks are disjoint, and belong to the caller until this returns.
        unsafe { self.gather_parts(root, data.part(own), |rank| data.part(blocks.range(rank))) }
    }

    /// Combines the data of all ranks in this rank's range.
    ///
    /// # Safety
    /// No other code uses the ranges of `data` until this returns.
    unsafe fn exchange_and_combine(
        &self,
        data: Bytes,
        range: impl Fn(u32) -> Range<usize>,
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        let own = data.part(range(self.rank()));
        // Others' ranges are longer by at most one element.
        let at_once = steps_at_once(range(0).len().max(1)).min(self.size() as usize);
        let mut rooms = vec![0; own.length * at_once];
        let rooms = Bytes::of_mut(&mut rooms);
        let room = |step: u32, _| rooms.part_of(step % at_once as u32, own.length);
        // SAFETY: the range is this rank's alone, and a room is read before it is used again.
        let take = |from: Bytes| unsafe { combine.apply(own.as_mut_slice(), from.as_slice()) };
        let outgoing = |to| data.part(range(to));
        // SAFETY: others' ranges are only read; rooms of steps less than `at_once` apart differ.
        unsafe { self.exchange_pairwise(Purpose::Reduce, at_once, outgoing, room, take) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_contiguous_and_fully_covered_by_slices() {
        for (bytes, element_bytes, ranks) in [
            (0, 8, 3),
            (16, 8, 3),
            (800, 8, 3),
            (803, 4, 7),
            (9 << 20, 8, 2),
            (5 << 20, 3 << 20, 2),
        ] {
            let blocks = Blocks::of(bytes, element_bytes, ranks);
            let mut end = 0;
            for rank in 0..ranks {
                let block = blocks.range(rank);
                assert_eq!(block.start, end, "{bytes} {rank}");
                let mut place = block.start;
                for slice in 0..blocks.slices() {
                    let range = blocks.slice(slice, rank);
                    assert!(range.start == place || range.is_empty(), "{bytes} {rank} {range:?}");
                    assert!(range.len() <= SLICE_BYTES_MAX.max(element_bytes));
                    place += range.len();
                }
                assert_eq!(place, block.end);
                assert!(block.len() + element_bytes >= blocks.range(0).len());
                end = block.end;
            }
            assert_eq!(end, bytes / element_bytes * element_bytes);
        }
    }
}
