//! Ring: each rank receives from the rank before it and forwards to the next, so that every link
//! carries one stream in each direction, and no two senders share a receiver.
//!
//! Parts are sent in segments, and a whole part of them is in progress at a time: while one segment
//! is combined, the next ones travel, and links never wait.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::reduce::Combine;
use omnes_wire::Rank;
use std::collections::VecDeque;
use std::ops::Range;

/// Segments of a part: enough to hide the latency from one rank to the next, and few enough that
/// each is worth its message.
const SEGMENTS_MAX: usize = 4;
const SEGMENT_BYTES_MIN: usize = 32 << 10;

/// Parts of at least this size go around a ring if links are the bottleneck: otherwise several
/// senders share each receiver's link, whose queue in a switch drops some packets.
pub(crate) const PART_BYTES_MIN: usize = 64 << 10;

/// True if some of several nodes have several ranks. Their data would cross the node's link as
/// often as there are ranks if each went its own way; around a ring they cross it once in each
/// direction.
fn share_nodes(ranks: u32, nodes: u32) -> bool {
    nodes > 1 && nodes < ranks
}

/// The order in which ranks forward: ranks of one node are neighbours.
pub(crate) struct Ring {
    ranks: Vec<u32>,
    own: usize,
}

impl Ring {
    pub(crate) fn of(communicator: &Communicator) -> Self {
        let node_of = |rank| communicator.nodes().node_of(rank);
        Self::new(communicator.rank(), communicator.size(), node_of)
    }

    fn new(me: u32, size: u32, node_of: impl Fn(u32) -> Rank) -> Self {
        let mut ranks: Vec<u32> = (0..size).collect();
        ranks.sort_by_key(|rank| (node_of(*rank), *rank));
        let own = ranks.iter().position(|rank| *rank == me);
        Self { own: own.expect("the ring has all ranks"), ranks }
    }

    pub(crate) fn next(&self) -> u32 {
        self.ranks[(self.own + 1) % self.ranks.len()]
    }

    /// The rank `places` places before this one, at most once around.
    pub(crate) fn back(&self, places: usize) -> u32 {
        self.ranks[(self.own + self.ranks.len() - places) % self.ranks.len()]
    }
}

/// Operation on the parts of the data, one per rank, on their way around.
#[derive(Clone, Copy)]
pub(crate) enum Around<'combine> {
    /// Each rank's part is distributed to all.
    Gather,
    /// The contributions of all ranks to each rank's part are combined in it, at that rank. The
    /// parts of the others are only read.
    Reduce(&'combine Combine<'combine>),
    /// First `Reduce`, then `Gather`.
    ReduceAndGather(&'combine Combine<'combine>),
}

impl<'combine> Around<'combine> {
    fn combine(self) -> Option<&'combine Combine<'combine>> {
        match self {
            Self::Gather => None,
            Self::Reduce(combine) | Self::ReduceAndGather(combine) => Some(combine),
        }
    }

    fn gathers(self) -> bool {
        !matches!(self, Self::Reduce(_))
    }
}

/// Number of segments of a part, if the longest part has `longest` bytes.
fn segments_of(longest: usize) -> usize {
    (longest / SEGMENT_BYTES_MIN).clamp(1, SEGMENTS_MAX)
}

/// Range of a segment of a part: segments have the same length, to within one element.
fn segment(
    part: Range<usize>,
    element_bytes: usize,
    segments: usize,
    index: usize,
) -> Range<usize> {
    let elements = part.len() / element_bytes;
    let at = |index: usize| part.start + elements * index / segments * element_bytes;
    at(index)..at(index + 1)
}

/// Incoming and outgoing data of each unit, which is one segment in one step.
struct Course<F> {
    ring: Ring,
    data: Bytes,
    /// Range of the part of a rank.
    range: F,
    element_bytes: usize,
    segments: usize,
    /// Steps in which parts are reduced; in later ones they are gathered.
    reducing: usize,
    /// Buffers for two parts, if any are reduced.
    rooms: Bytes,
    room_bytes: usize,
}

impl<F: Fn(u32) -> Range<usize>> Course<F> {
    fn place(&self, rank: u32, unit: usize) -> Bytes {
        let (part, index) = ((self.range)(rank), unit % self.segments);
        self.data.part(segment(part, self.element_bytes, self.segments, index))
    }

    /// The place of incoming data. While parts are reduced, that is the place of this rank's own
    /// contribution, and the incoming data lie in a room until they have been forwarded.
    fn incoming(&self, unit: usize) -> (Bytes, Option<Bytes>) {
        let step = unit / self.segments;
        if step >= self.reducing {
            return (self.place(self.ring.back(step - self.reducing + 1), unit), None);
        }
        let place = self.place(self.ring.back(step + 2), unit);
        let start = unit % (2 * self.segments) * self.room_bytes;
        (place, Some(self.rooms.part(start..start + place.length)))
    }

    /// The data received one step before or, in the first step, this rank's own.
    fn outgoing(&self, unit: usize) -> Bytes {
        let step = unit / self.segments;
        match step.checked_sub(self.reducing) {
            Some(gathered) => self.place(self.ring.back(gathered), unit),
            None if step == 0 => self.place(self.ring.back(1), unit),
            None => self.incoming(unit - self.segments).1.expect("what is reduced has a room"),
        }
    }
}

impl Communicator {
    /// True if parts of `part_bytes` bytes should go around a ring rather than directly to their
    /// destination. The same on all ranks.
    pub(crate) fn passes_around(&self, part_bytes: usize) -> bool {
        part_bytes >= PART_BYTES_MIN && self.waits_for_links()
    }

    /// True if blocks of `block_bytes` bytes are reduced around a ring: also over fast links, if
    /// ranks share nodes and have cores of their own. The same on all ranks.
    pub(crate) fn reduces_around(&self, block_bytes: usize) -> bool {
        let (ranks, nodes) = (self.size(), self.nodes().count());
        let spares_links = share_nodes(ranks, nodes) && !self.job().engine.is_oversubscribed();
        self.passes_around(block_bytes) || block_bytes >= PART_BYTES_MIN && spares_links
    }

    /// Passes the parts of all ranks around the ring.
    ///
    /// # Safety
    /// No other code may use `data`, in which the disjoint parts `range(rank)` lie, until this
    /// returns.
    pub(crate) unsafe fn pass_around(
        &self,
        data: Bytes,
        range: impl Fn(u32) -> Range<usize>,
        around: Around<'_>,
    ) -> Result<(), Error> {
        let ring = Ring::of(self);
        let hops = ring.ranks.len() - 1;
        let combine = around.combine();
        let reducing = if combine.is_some() { hops } else { 0 };
        let steps = reducing + if around.gathers() { hops } else { 0 };
        let element_bytes = combine.map_or(1, |combine| combine.element_bytes);
        let longest = ring.ranks.iter().map(|rank| range(*rank).len()).max().unwrap_or(0);
        let segments = segments_of(longest);
        let room_bytes = longest.div_ceil(segments) + element_bytes;
        let mut rooms = vec![0; if reducing > 0 { 2 * segments * room_bytes } else { 0 }];
        let rooms = Bytes::of_mut(&mut rooms);
        let course =
            Course { ring, data, range, element_bytes, segments, reducing, rooms, room_bytes };

        let receive = |unit| {
            let (place, room) = course.incoming(unit);
            let mut receive = InFlight::new(self);
            // SAFETY: promised by the caller; the sends from there have ended, as below.
            unsafe { receive.receive(course.ring.back(1), Purpose::Ring, room.unwrap_or(place))? };
            Ok::<_, Error>(receive)
        };
        let send = |unit| {
            let mut send = InFlight::new(self);
            // SAFETY: promised by the caller; received data do not change until they have been
            // forwarded.
            unsafe { send.send(course.ring.next(), Purpose::Ring, course.outgoing(unit))? };
            Ok::<_, Error>(send)
        };
        let units = steps * segments;
        let first = 0..segments.min(units);
        let mut receives = first.clone().map(receive).collect::<Result<VecDeque<_>, _>>()?;
        let mut sends = first.map(send).collect::<Result<VecDeque<_>, _>>()?;
        for unit in 0..units {
            let (place, room) = course.incoming(unit);
            receives.pop_front().expect("it was started").wait_for(place.length)?;
            if let (Some(room), Some(combine)) = (room, combine) {
                // SAFETY: the room and this rank's own part are not in use, and places of other
                // ranks are only read while parts are reduced.
                unsafe {
                    if unit / segments + 1 == reducing {
                        combine.apply(place.as_mut_slice(), room.as_slice())
                    } else {
                        combine.apply(room.as_mut_slice(), place.as_slice())
                    }
                }
            }
            if unit + segments < units {
                // Afterwards no data are sent from the places that receive data one part later.
                sends.pop_front().expect("it was started").wait_until_left(0)?;
                sends.push_back(send(unit + segments)?);
                receives.push_back(receive(unit + segments)?);
            }
        }
        sends.into_iter().try_for_each(|mut send| send.wait_until_left(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_crosses_each_node_once_for_any_rank_placement() {
        let placements: [fn(u32) -> u32; 3] =
            [|rank| rank / 3, |rank| rank % 4, |rank| rank % 7 / 2];
        for place in placements {
            let node_of = |rank| Rank(place(rank));
            let nodes = (0..12).map(place).max().map_or(0, |last| last as usize + 1);
            let crosses =
                |rank: &u32| node_of(*rank) != node_of(Ring::new(*rank, 12, node_of).next());
            assert_eq!((0..12).filter(crosses).count(), nodes);
        }
    }

    #[test]
    fn nodes_are_shared_when_several_nodes_have_multiple_ranks() {
        assert!(share_nodes(512, 64) && share_nodes(3, 2));
        assert!(!share_nodes(16, 16) && !share_nodes(8, 1) && !share_nodes(1, 1));
    }

    #[test]
    fn segments_are_contiguous_and_split_no_element() {
        for (part, element_bytes) in [(0..0, 8), (3..3, 1), (16..24, 8), (5..1_000_001, 3)] {
            let segments = segments_of(part.len());
            let mut end = part.start;
            for index in 0..segments {
                let segment = segment(part.clone(), element_bytes, segments, index);
                assert_eq!(segment.start, end);
                assert_eq!(segment.len() % element_bytes, 0);
                assert!(segment.len() <= part.len().div_ceil(segments) + element_bytes);
                end = segment.end;
            }
            assert_eq!(end, part.end);
        }
        assert_eq!([0, 70 << 10, 1 << 30].map(segments_of), [1, 2, SEGMENTS_MAX]);
    }
}
