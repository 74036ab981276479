//! Prefix reductions: each rank gets the combined data of itself and all ranks before it, or only
//! of those before it.
//!
//! Short data of many ranks are gathered at all of them, and each combines the data that concern
//! it. Other data go along the chain of ranks in segments, several of which are in progress at the
//! same time:
//!
//! ```text
//!   rank 0 ── d0 ──► rank 1 ── d0·d1 ──► rank 2 ── (d0·d1)·d2 ──► rank 3
//! ```
//!
//! Guarantees: the result of rank r is `((d0 · d1) · d2) · … dr`, from the left, whatever the
//! length and the network: an operation need be neither commutative nor associative, and floats
//! have the same bits as from a loop over the ranks. Along the chain, the first rank that receives
//! another length than it has detects lengths that differ, and no segment is left for the next
//! call.
//!
//! Cost for N ranks and S bytes: an allgather, so the latency to one rank and back, and 2 N S bytes
//! over its link; along the chain N - 1 messages per segment, and N - 1 times the latency and the
//! bytes of one segment, in addition to S bytes over one link.

use super::operator::{Combine, Element, ElementType, ReduceOp};
use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator, Purpose};
use crate::compare::Call;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::parts::Parts;
use crate::tree_gather::PART_BYTES_MAX;
use std::ops::Range;

/// Up to this number of ranks, the path along the chain is hardly longer than that to one rank and
/// back, and wakes fewer ranks.
const CHAIN_RANKS_MAX: u32 = 4;
/// If cores are the bottleneck, the number of messages counts: at 8 hosts on two cores the chain
/// was no slower.
const CROWDED_CHAIN_RANKS_MAX: u32 = 8;
/// Longest segment, unless an element is longer.
const SEGMENT_BYTES_MAX: usize = 64 << 10;
/// Segments that a rank receives, or sends, at the same time, to hide the latency between two
/// ranks.
const SEGMENTS_AT_ONCE: usize = 4;

/// The ranks whose data are combined in a rank's result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    /// Those up to the rank itself.
    WithOwn,
    /// Those up to the rank before it; rank 0 has no result.
    BeforeOwn,
}

impl Prefix {
    fn collective(self) -> Collective {
        match self {
            Self::WithOwn => Collective::Scan,
            Self::BeforeOwn => Collective::Exscan,
        }
    }

    /// Number of ranks whose data are combined in the result of `rank`.
    fn ranks(self, rank: u32) -> u32 {
        match self {
            Self::WithOwn => rank + 1,
            Self::BeforeOwn => rank,
        }
    }
}

/// True if data of `bytes` bytes are gathered: if the path from rank to rank would take longer than
/// the bytes of all ranks over the link of one.
fn are_gathered(bytes: usize, ranks: u32, waits_for_cores: bool) -> bool {
    let chain_max = if waits_for_cores { CROWDED_CHAIN_RANKS_MAX } else { CHAIN_RANKS_MAX };
    ranks > chain_max && bytes <= PART_BYTES_MAX
}

/// The segments of data. The last one is shorter than the others, if need be empty, so that data of
/// two different lengths never have the same segments up to the end of the shorter.
struct Segments {
    bytes: usize,
    each: usize,
}

impl Segments {
    fn of(bytes: usize, element_bytes: usize) -> Self {
        let elements = (SEGMENT_BYTES_MAX / element_bytes).max(1);
        Self { bytes, each: elements * element_bytes }
    }

    fn count(&self) -> usize {
        self.bytes / self.each + 1
    }

    /// Length of the longest segment in bytes.
    fn longest(&self) -> usize {
        self.each.min(self.bytes)
    }

    /// Range of a segment.
    fn range(&self, index: usize) -> Range<usize> {
        let start = index * self.each;
        start..(start + self.each).min(self.bytes)
    }
}

/// A rank's place in the chain, and its memory.
struct Link<'a> {
    prefix: Prefix,
    combine: &'a Combine<'a>,
    is_last: bool,
    data: Bytes,
    segments: Segments,
    at_once: usize,
    /// Buffers for incoming segments, and as many for those to be forwarded.
    rooms: Bytes,
}

impl Link<'_> {
    /// This rank's own segment, which becomes its result.
    fn own(&self, index: usize) -> Bytes {
        self.data.part(self.segments.range(index))
    }

    /// The room of a segment, in row 0 or 1 of the rooms.
    fn room(&self, row: usize, index: usize) -> Bytes {
        let start = (row * self.at_once + index % self.at_once) * self.segments.longest();
        self.rooms.part(start..start + self.own(index).length)
    }

    fn incoming(&self, index: usize) -> Bytes {
        self.room(0, index)
    }

    /// Combines a received segment with this rank's own; returns the data to forward.
    ///
    /// # Safety
    /// No other code uses the segment and its rooms.
    unsafe fn pass(&self, index: usize) -> Bytes {
        let (own, came) = (self.own(index), self.incoming(index));
        // SAFETY: promised by the caller; they are disjoint.
        unsafe {
            match self.prefix {
                Prefix::WithOwn => {
                    self.combine.apply(came.as_mut_slice(), own.as_slice());
                    own.copy_from(came);
                    own
                }
                Prefix::BeforeOwn => {
                    let outgoing = self.room(1, index);
                    if !self.is_last {
                        outgoing.copy_from(came);
                        self.combine.apply(outgoing.as_mut_slice(), own.as_slice());
                    }
                    own.copy_from(came);
                    outgoing
                }
            }
        }
    }
}

impl Communicator {
    /// Reduces the `data` of this rank and of all ranks before it, element by element, and replaces
    /// `data` with the result; that of rank 0 does not change. `data` must have the same length on
    /// all ranks.
    ///
    /// Data are combined in order of ranks, from the left: rank 3 gets `((d0 · d1) · d2) · d3`. So
    /// floats have the same bits as from a loop in this order, whatever the length, the network and
    /// the settings.
    ///
    /// ```no_run
    /// // Needs a launcher. Where a rank's rows begin in a file of all.
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let (world, rows) = (omnes::Communicator::from_env()?, 7);
    /// let mut end = [rows];
    /// world.scan(&mut end, omnes::ReduceOp::Sum)?;
    /// let begin = end[0] - rows;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Reduction`] for bitwise operations on floats, [`Error::PeerFailed`],
    /// [`Error::PeerLeft`], [`Error::CollectivesBroken`].
    ///
    /// If lengths differ between ranks, at least one rank gets [`Error::Truncated`] or
    /// [`Error::LengthMismatch`], which ends the collectives of this communicator; but if some have
    /// up to 4 KiB and others more, all may block until one leaves. If operations or types differ,
    /// the results are meaningless. With [`Config::compare_calls`](crate::Config::compare_calls)
    /// all of these are [`Error::CallMismatch`].
    pub fn scan<T: Element>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.scan_as(bytemuck::cast_slice_mut(data), T::TYPE, op)
    }

    /// As [`Self::scan`], for elements whose type is only known at run time. Bytes at the end of
    /// `data` that do not fill an element are left unchanged.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_as(
        &self,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.scan_numbers(Prefix::WithOwn, data, element, op)
    }

    /// As [`Self::scan`], with a function that combines the elements of two buffers of equal length
    /// into the first, which holds those of lower ranks. An element has `element_bytes` bytes, at
    /// least 1; buffers are only divided between elements. The function need be neither commutative
    /// nor associative; it must be the same on all ranks, and must not use this communicator.
    ///
    /// # Errors
    /// As [`Self::scan`].
    ///
    /// # Panics
    /// If `element_bytes` is 0.
    pub fn scan_by(
        &self,
        data: &mut [u8],
        element_bytes: usize,
        combine: &dyn Fn(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        self.scan_elements(Prefix::WithOwn, data, element_bytes, combine)
    }

    /// As [`Self::scan`], but without this rank's own `data`: the result is that of the ranks
    /// before it. No rank is before rank 0, whose data do not change.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn exscan<T: Element>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.exscan_as(bytemuck::cast_slice_mut(data), T::TYPE, op)
    }

    /// As [`Self::exscan`], for elements whose type is only known at run time. Bytes at the end of
    /// `data` that do not fill an element are left unchanged.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn exscan_as(
        &self,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.scan_numbers(Prefix::BeforeOwn, data, element, op)
    }

    /// As [`Self::exscan`], with a function; see [`Self::scan_by`].
    ///
    /// # Errors
    /// As [`Self::scan`].
    ///
    /// # Panics
    /// If `element_bytes` is 0.
    pub fn exscan_by(
        &self,
        data: &mut [u8],
        element_bytes: usize,
        combine: &dyn Fn(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        self.scan_elements(Prefix::BeforeOwn, data, element_bytes, combine)
    }

    fn scan_numbers(
        &self,
        prefix: Prefix,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.begin(Call::of(prefix.collective()).combining(data.len(), element, op))?;
        element.with_combine(op, |combine| self.scanned(prefix, data, combine))
    }

    fn scan_elements(
        &self,
        prefix: Prefix,
        data: &mut [u8],
        element_bytes: usize,
        combine: &dyn Fn(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        assert!(element_bytes > 0, "an element of a reduction has a byte at least");
        self.begin(Call::of(prefix.collective()).with_bytes(data.len()))?;
        self.scanned(prefix, data, &Combine::by(element_bytes, combine))
    }

    fn scanned(&self, prefix: Prefix, data: &mut [u8], combine: &Combine<'_>) -> Result<(), Error> {
        let data = combine.whole_elements(data);
        let are_gathered = are_gathered(data.len(), self.size(), self.waits_for_cores());
        self.run_collective(prefix.collective(), || {
            if are_gathered {
                self.scan_gathered(prefix, data, combine)
            } else {
                self.scan_along(prefix, data, combine)
            }
        })
    }

    fn scan_gathered(
        &self,
        prefix: Prefix,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        let parts = Parts::equal(data.len(), self.size());
        let mut all = vec![0; parts.bytes()];
        all[parts.range(self.rank())].copy_from_slice(data);
        self.allgather_parts(&mut all, &parts)?;
        let Some(others) = prefix.ranks(self.rank()).checked_sub(1) else { return Ok(()) };
        let (result, rest) = all.split_at_mut(data.len());
        // Chunks must not be empty; without data there are none.
        let rest = rest.chunks(data.len().max(1)).take(others as usize);
        rest.for_each(|part| combine.apply(result, part));
        data.copy_from_slice(result);
        Ok(())
    }

    fn scan_along(
        &self,
        prefix: Prefix,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Error> {
        let (me, is_last) = (self.rank(), self.rank() + 1 == self.size());
        let segments = Segments::of(data.len(), combine.element_bytes);
        let (count, at_once) = (segments.count(), SEGMENTS_AT_ONCE.min(segments.count()));
        let mut rooms = vec![0; 2 * at_once * segments.longest()];
        let (data, rooms) = (Bytes::of_mut(data), Bytes::of_mut(&mut rooms));
        let link = Link { prefix, combine, is_last, data, segments, at_once, rooms };
        let mut receives = InFlight::new(self);
        let mut sends: Vec<_> = (0..at_once).map(|_| InFlight::new(self)).collect();
        let receive = |receives: &mut InFlight<'_>, index: usize| match me.checked_sub(1) {
            // SAFETY: the room is read before it is used again, and outlives the receive.
            Some(before) if index < count => unsafe {
                receives.receive(before, Purpose::Reduce, link.incoming(index))
            },
            _ => Ok(()),
        };
        (0..at_once).try_for_each(|index| receive(&mut receives, index))?;
        for index in 0..count {
            // Afterwards no data are sent from the room that is filled now.
            let send = &mut sends[index % at_once];
            send.wait_until_left(0)?;
            let mut outgoing = link.own(index);
            if me > 0 {
                receives.wait_for(outgoing.length)?;
                // SAFETY: no operation in progress uses that memory.
                outgoing = unsafe { link.pass(index) };
            }
            if !is_last {
                // SAFETY: the data do not change until the send is waited for.
                unsafe { send.send(me + 1, Purpose::Reduce, outgoing)? };
            }
            receive(&mut receives, index + at_once)?;
        }
        sends.iter_mut().try_for_each(|send| send.wait_until_left(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_gathers_short_data_of_many_ranks() {
        for (waits_for_cores, chain_max) in
            [(false, CHAIN_RANKS_MAX), (true, CROWDED_CHAIN_RANKS_MAX)]
        {
            let are_gathered = |bytes, ranks| are_gathered(bytes, ranks, waits_for_cores);
            assert!(are_gathered(0, chain_max + 1) && are_gathered(PART_BYTES_MAX, 1 << 20));
            assert!(!are_gathered(8, chain_max) && !are_gathered(PART_BYTES_MAX + 1, 1 << 20));
        }
    }

    #[test]
    fn segments_are_contiguous_and_the_last_one_is_shorter() {
        for element_bytes in [1, 8, 12, 100_000] {
            for bytes in [0, 1, 3, 50, 65_536, 65_537].map(|elements| elements * element_bytes) {
                let segments = Segments::of(bytes, element_bytes);
                let ranges: Vec<_> = (0..segments.count()).map(|it| segments.range(it)).collect();
                assert!(ranges.windows(2).all(|two| two[0].end == two[1].start));
                assert!(ranges.iter().all(|range| range.len() % element_bytes == 0));
                let (last, others) = ranges.split_last().unwrap_or((&(0..0), &[]));
                assert!(others.iter().all(|range| range.len() == segments.each));
                assert!(last.end == bytes && last.len() < segments.each, "{bytes} {last:?}");
            }
        }
    }
}
