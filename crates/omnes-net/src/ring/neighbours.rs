//! The ranks of this rank's node, and the rings to and from them.
//!
//! A table with one row per neighbour; a rank that has no row is reached by UDP, as is one whose
//! segment did not come. See the header of [`super`] for the way of a packet.

use super::card::Secret;
use super::exchange::{Exchange, Offer, Seat};
use super::layout::{CAPACITY_BYTES_MIN, Layout};
use super::reader::{RingPacket, RingReader};
use super::segment::Segment;
use super::wake::{self, WakeEvent, Waker};
use super::writer::{Pushed, RingWriter};
use crate::descriptors;
use omnes_wire::{JobId, JobKey, Rank};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes of a ring, where the node has few ranks.
const CAPACITY_BYTES: usize = 512 << 10;
/// All rings of a rank together, in bytes, as far as their least size allows.
const SEGMENT_BYTES: usize = 16 << 20;
/// Descriptors for each neighbour: its segment, its eventfd, and the connection by which they come.
const DESCRIPTORS_PER_NEIGHBOUR: u64 = 3;
/// What a rank opens beside, while it joins the job and later.
const OTHER_DESCRIPTORS: u64 = 64;
/// A ring's part that may be taken before its room is given free: an eighth.
const FREE_SHARE: usize = 8;

/// Packets that went through rings, and what went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounters {
    /// Packets put into rings.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets taken out of rings.
    pub packets_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Packets dropped since a ring was full: its reader does not look.
    pub full: u64,
    /// Neighbours that were woken.
    pub wakes: u64,
    /// Rings given up for nonsense found in them.
    pub broken: u64,
}

/// Who is on this rank's node, in a job.
#[derive(Clone, Copy)]
pub struct NodeConfig<'a> {
    /// The job.
    pub job: JobId,
    /// The job's secret.
    pub key: &'a JobKey,
    /// This rank.
    pub me: Rank,
    /// The ranks of the node, ascending, this one included; the same on each of them.
    pub ranks: &'a [Rank],
    /// Longest packet, in bytes; the same on all of them.
    pub packet_bytes_max: usize,
    /// How long to wait for the others.
    pub timeout: Duration,
}

/// The way to a neighbour.
struct Outward {
    writer: RingWriter,
    waker: Waker,
}

/// The way from a neighbour.
struct Inward {
    from: Rank,
    reader: RingReader,
    is_counted_broken: bool,
}

/// See the module header.
#[derive(Default)]
pub struct Neighbours {
    /// `None` where there are no neighbours.
    wake_event: Option<WakeEvent>,
    inward: Vec<Inward>,
    outward: Vec<Option<Outward>>,
    /// Ranks whose rings hold what is not published.
    unpublished: Vec<Rank>,
    /// Ranks that cannot be heard any more, until they are asked for.
    unheard: Vec<Rank>,
    /// Threads of this rank that sleep.
    sleepers: u32,
    counters: RingCounters,
}

/// Bytes of each of `rings` rings of a segment.
fn capacity_bytes(rings: usize) -> usize {
    let share = (SEGMENT_BYTES / rings.max(1)).max(CAPACITY_BYTES_MIN);
    CAPACITY_BYTES.min(1 << share.ilog2())
}

impl Neighbours {
    /// Meets the other ranks of the node, all of which must do the same. Raises the limit of
    /// descriptors as far as it needs them and may.
    ///
    /// # Errors
    /// What the kernel says if this rank cannot have a segment. A neighbour that does not come in
    /// time is no error: it is reached by UDP.
    ///
    /// # Panics
    /// If this rank is not one of the node's.
    pub fn meet(config: NodeConfig<'_>) -> io::Result<Self> {
        let NodeConfig { job, key, me, ranks, packet_bytes_max, timeout } = config;
        let others: Vec<Rank> = ranks.iter().copied().filter(|rank| *rank != me).collect();
        if others.is_empty() {
            return Ok(Self::default());
        }
        let needed = DESCRIPTORS_PER_NEIGHBOUR * others.len() as u64 + OTHER_DESCRIPTORS;
        descriptors::allow(descriptors::count_open() + needed);
        let exchange = Exchange::open(Secret { job, key }, me)?;
        let layout = Layout::new(capacity_bytes(others.len()), ranks.len() as u32)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let segment = Segment::create(layout)?;
        let wake_event = WakeEvent::new(segment.fd(), &layout)?;
        let mut inward = Vec::with_capacity(others.len());
        for from in &others {
            let reader = RingReader::new(segment.ring(index(ranks, *from))?, packet_bytes_max);
            inward.push(Inward { from: *from, reader, is_counted_broken: false });
        }
        let offer = Offer { layout, segment: segment.fd(), event: wake_event.event() };
        let seats = exchange.run(&others, offer, timeout);
        let mut table = Self { wake_event: Some(wake_event), inward, ..Self::default() };
        for seat in seats {
            let row = seat.from.index();
            if table.outward.len() <= row {
                table.outward.resize_with(row + 1, || None);
            }
            // A segment that cannot be mapped, or is not what its card says, is none.
            table.outward[row] = seat.open(index(ranks, me)).ok();
        }
        Ok(table)
    }

    // ---- out ------------------------------------------------------------------------------

    /// True if packets for `rank` go through a ring.
    #[inline]
    pub fn reaches(&self, rank: Rank) -> bool {
        self.outward.get(rank.index()).is_some_and(Option::is_some)
    }

    /// True if packets of `rank` may come through a ring.
    #[inline]
    pub fn hears(&self, rank: Rank) -> bool {
        self.inward.iter().any(|inward| inward.from == rank)
    }

    /// Neighbours that are reached through rings, ascending.
    pub fn reached(&self) -> impl Iterator<Item = Rank> + '_ {
        let rows = self.outward.iter().enumerate();
        rows.filter(|(_, row)| row.is_some()).map(|(rank, _)| Rank(rank as u32))
    }

    /// Bytes of records that the ring to `rank` holds; 0 where there is none.
    pub fn capacity_bytes(&self, rank: Rank) -> usize {
        let row = self.outward.get(rank.index()).and_then(Option::as_ref);
        row.map_or(0, |outward| outward.writer.capacity_bytes())
    }

    /// Puts a packet for `rank`, gathered from `parts`, into its ring. It is seen after
    /// [`Self::publish`]. A packet that finds no room is dropped, as a full socket buffer would
    /// drop it at the other end; a ring that turns out to be broken is given up with it.
    ///
    /// # Safety
    /// Each part must be valid for reading its length.
    ///
    /// # Panics
    /// If `rank` is not reached, or the packet is empty or longer than packets are.
    pub unsafe fn push(&mut self, rank: Rank, parts: &[libc::iovec]) -> Pushed {
        let row = self.outward.get_mut(rank.index()).and_then(Option::as_mut);
        let outward = row.expect("only neighbours that are reached are written to");
        // SAFETY: the caller's promise is passed on.
        let pushed = unsafe { outward.writer.push(parts) };
        match pushed {
            Pushed::Queued => {
                self.counters.packets_sent += 1;
                self.counters.bytes_sent +=
                    parts.iter().map(|part| part.iov_len as u64).sum::<u64>();
                if self.unpublished.last() != Some(&rank) {
                    self.unpublished.push(rank);
                }
            }
            Pushed::Full => self.counters.full += 1,
            Pushed::Broken => {
                // What follows goes by UDP.
                self.outward[rank.index()] = None;
                self.counters.broken += 1;
            }
        }
        pushed
    }

    /// Shows the neighbours what was pushed, and wakes those that sleep.
    pub fn publish(&mut self) {
        if self.unpublished.is_empty() {
            return;
        }
        for rank in &self.unpublished {
            if let Some(outward) = &mut self.outward[rank.index()] {
                outward.writer.publish();
            }
        }
        wake::order();
        for rank in self.unpublished.drain(..) {
            if let Some(outward) = &self.outward[rank.index()] {
                self.counters.wakes += u64::from(outward.waker.wake());
            }
        }
    }

    // ---- in -------------------------------------------------------------------------------

    /// Hands packets of all neighbours, at most `packets_max` of each, to `handle`; how many.
    pub fn receive(&mut self, packets_max: usize, mut handle: impl FnMut(RingPacket<'_>)) -> usize {
        let mut packets = 0;
        for inward in &mut self.inward {
            let free_bytes = inward.reader.capacity_bytes() / FREE_SHARE;
            for _ in 0..packets_max {
                let Some(packet) = inward.reader.take() else { break };
                packets += 1;
                self.counters.bytes_received += packet.bytes() as u64;
                handle(packet);
                if inward.reader.held_bytes() >= free_bytes {
                    inward.reader.free();
                }
            }
            inward.reader.free();
            if inward.reader.is_broken() && !inward.is_counted_broken {
                inward.is_counted_broken = true;
                self.counters.broken += 1;
                self.unheard.push(inward.from);
            }
        }
        self.counters.packets_received += packets as u64;
        packets
    }

    /// A neighbour whose ring has turned out to be broken: what it sends does not come any more,
    /// and it does not know. Each is told once.
    pub fn take_unheard(&mut self) -> Option<Rank> {
        self.unheard.pop()
    }

    /// True if no neighbour has sent anything that was not taken.
    pub fn is_empty(&self) -> bool {
        self.inward.iter().all(|inward| inward.reader.is_empty())
    }

    // ---- sleeping -------------------------------------------------------------------------

    /// An eventfd that becomes readable when a neighbour wakes this rank; whoever is woken by it
    /// reads it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn waker(&self) -> io::Result<OwnedFd> {
        match &self.wake_event {
            Some(wake_event) => wake_event.event().try_clone_to_owned(),
            None => wake::event(),
        }
    }

    /// A thread of this rank is about to sleep and wants to be woken; false if there is something
    /// to take already, so that there is no reason to sleep. Several threads may sleep at once.
    pub fn arm(&mut self) -> bool {
        let Some(wake_event) = &self.wake_event else { return true };
        wake_event.arm();
        self.sleepers += 1;
        let may_sleep = self.is_empty();
        if !may_sleep {
            self.disarm();
        }
        may_sleep
    }

    /// A thread is awake again for which [`Self::arm`] was true. It must look into the rings after
    /// this; what it leaves there, others that sleep must be woken for ([`Self::leaves_sleepers`]).
    pub fn disarm(&mut self) {
        let Some(wake_event) = &self.wake_event else { return };
        self.sleepers -= 1;
        match self.sleepers {
            0 => wake_event.disarm(),
            // The wake-up that this one has had may have been meant for the others.
            _ => wake_event.arm(),
        }
    }

    /// True if a thread of this rank sleeps beside rings that are not empty.
    pub fn leaves_sleepers(&self) -> bool {
        self.sleepers > 0 && !self.is_empty()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }
}

/// Which ring of a segment is `rank`'s.
fn index(ranks: &[Rank], rank: Rank) -> u32 {
    let index = ranks.iter().position(|other| *other == rank);
    index.expect("a rank of the node") as u32
}

impl Seat {
    /// The way to the rank whose segment this is; its ring `index` is ours.
    fn open(self, index: u32) -> io::Result<Outward> {
        if index >= self.layout.rings() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let segment = Segment::adopt(self.segment, self.layout)?;
        let writer = RingWriter::new(segment.ring(index)?);
        let waker = Waker::new(segment.fd(), segment.layout(), self.event)?;
        Ok(Outward { writer, waker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_get_smaller_where_a_node_has_many_ranks() {
        assert_eq!(capacity_bytes(1), CAPACITY_BYTES);
        assert_eq!(capacity_bytes(32), CAPACITY_BYTES);
        assert_eq!(capacity_bytes(100), 128 << 10);
        assert_eq!(capacity_bytes(4000), CAPACITY_BYTES_MIN);
    }
}
