//! The ranks of this rank's node, and the rings to and from them.
//!
//! A table with one row per neighbour; a rank without a row is reached by UDP, as is one whose
//! segment did not arrive. See the header of [`super`] for the path of a packet.

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

/// Size of a ring in bytes, if the node has few ranks.
const CAPACITY_BYTES: usize = 512 << 10;
/// Total size of all rings of a rank, in bytes, as far as their minimum size allows.
const SEGMENT_BYTES: usize = 16 << 20;
/// Descriptors for each neighbour: its segment, its eventfd, and the connection that carries them.
const DESCRIPTORS_PER_NEIGHBOUR: u64 = 3;
/// Descriptors that a rank opens otherwise, while it joins the job and later.
const OTHER_DESCRIPTORS: u64 = 64;
/// Part of a ring that may be taken before its space is freed: an eighth.
const FREE_SHARE: usize = 8;

/// Packets that went through rings, and errors.
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
    /// Packets dropped because a ring was full: its reader does not poll it.
    pub full: u64,
    /// Neighbours that were woken.
    pub wakes: u64,
    /// Rings given up because of invalid data in them.
    pub broken: u64,
}

/// The ranks of this rank's node, in a job.
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
    /// How long to wait for the other ranks.
    pub timeout: Duration,
}

/// The path to a neighbour.
struct Outward {
    writer: RingWriter,
    waker: Waker,
}

/// The path from a neighbour.
struct Inward {
    from: Rank,
    reader: RingReader,
    is_counted_broken: bool,
}

/// See the module header.
#[derive(Default)]
pub struct Neighbours {
    /// `None` if there are no neighbours.
    wake_event: Option<WakeEvent>,
    inward: Vec<Inward>,
    outward: Vec<Option<Outward>>,
    /// Ranks whose rings hold packets that are not published.
    unpublished: Vec<Rank>,
    /// Ranks that cannot be heard any more, until they are taken.
    unheard: Vec<Rank>,
    /// Number of threads of this rank that sleep.
    sleepers: u32,
    counters: RingCounters,
}

/// Size in bytes of each of `rings` rings of a segment.
fn capacity_bytes(rings: usize) -> usize {
    let share = (SEGMENT_BYTES / rings.max(1)).max(CAPACITY_BYTES_MIN);
    CAPACITY_BYTES.min(1 << share.ilog2())
}

impl Neighbours {
    /// Meets the other ranks of the node, all of which must do the same. Raises the limit of
    /// descriptors as far as needed and allowed.
    ///
    /// # Errors
    /// The kernel's error if this rank cannot have a segment. A neighbour that does not join in
    /// time is not an error: it is reached by UDP.
    ///
    /// # Panics
    /// If this rank is not one of the node's ranks.
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
            // A segment that cannot be mapped, or does not match its card, is not used.
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

    /// True if packets of `rank` may arrive through a ring.
    #[inline]
    pub fn hears(&self, rank: Rank) -> bool {
        self.inward.iter().any(|inward| inward.from == rank)
    }

    /// Neighbours that are reached through rings, ascending.
    pub fn reached(&self) -> impl Iterator<Item = Rank> + '_ {
        let rows = self.outward.iter().enumerate();
        rows.filter(|(_, row)| row.is_some()).map(|(rank, _)| Rank(rank as u32))
    }

    /// Size in bytes of the records of the ring to `rank`; 0 if there is no such ring.
    pub fn capacity_bytes(&self, rank: Rank) -> usize {
        let row = self.outward.get(rank.index()).and_then(Option::as_ref);
        row.map_or(0, |outward| outward.writer.capacity_bytes())
    }

    /// Puts a packet for `rank`, gathered from `parts`, into its ring. The packet is visible after
    /// [`Self::publish`]. A packet that finds no space is dropped, as a full socket buffer would
    /// drop it at the other end; a ring that turns out to be broken is given up, with the packet.
    ///
    /// # Safety
    /// Each part must be valid for reading its length.
    ///
    /// # Panics
    /// If `rank` is not reached, or the packet is empty or exceeds the maximum length.
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
                // Further packets go by UDP.
                self.outward[rank.index()] = None;
                self.counters.broken += 1;
            }
        }
        pushed
    }

    /// Publishes pushed packets to the neighbours, and wakes those that sleep.
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

    /// Passes packets of all neighbours, at most `packets_max` of each, to `handle`; returns their
    /// number.
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

    /// A neighbour whose ring has turned out to be broken: its packets do not arrive any more, and
    /// it does not know that. Each is returned once.
    pub fn take_unheard(&mut self) -> Option<Rank> {
        self.unheard.pop()
    }

    /// True if all packets that neighbours have sent were taken.
    pub fn is_empty(&self) -> bool {
        self.inward.iter().all(|inward| inward.reader.is_empty())
    }

    // ---- sleeping -------------------------------------------------------------------------

    /// An eventfd that becomes readable when a neighbour wakes this rank; the thread that is woken
    /// by it must read it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn waker(&self) -> io::Result<OwnedFd> {
        match &self.wake_event {
            Some(wake_event) => wake_event.event().try_clone_to_owned(),
            None => wake::event(),
        }
    }

    /// Announces that a thread of this rank is about to sleep and must be woken; false if there are
    /// packets to take already, so that there is no reason to sleep. Several threads may sleep
    /// concurrently.
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

    /// Ends a sleep for which [`Self::arm`] returned true. The thread must read the rings
    /// afterwards; if it leaves packets there, other threads that sleep must be woken
    /// ([`Self::leaves_sleepers`]).
    pub fn disarm(&mut self) {
        let Some(wake_event) = &self.wake_event else { return };
        self.sleepers -= 1;
        match self.sleepers {
            0 => wake_event.disarm(),
            // The wake-up of this thread may have been meant for the others.
            _ => wake_event.arm(),
        }
    }

    /// True if a thread of this rank sleeps while rings are not empty.
    pub fn leaves_sleepers(&self) -> bool {
        self.sleepers > 0 && !self.is_empty()
    }

    /// Counters so far.
    pub fn counters(&self) -> &RingCounters {
        &self.counters
    }
}

/// Index of `rank`'s ring in a segment.
fn index(ranks: &[Rank], rank: Rank) -> u32 {
    let index = ranks.iter().position(|other| *other == rank);
    index.expect("a rank of the node") as u32
}

impl Seat {
    /// Opens the path to the rank that owns this segment; its ring `index` is ours.
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
    fn rings_are_smaller_on_nodes_with_many_ranks() {
        assert_eq!(capacity_bytes(1), CAPACITY_BYTES);
        assert_eq!(capacity_bytes(32), CAPACITY_BYTES);
        assert_eq!(capacity_bytes(100), 128 << 10);
        assert_eq!(capacity_bytes(4000), CAPACITY_BYTES_MIN);
    }
}
