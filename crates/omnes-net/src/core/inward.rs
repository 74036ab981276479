//! Incoming packets: read from a socket, a large one straight into user memory, and placed where
//! the endpoint decides.

use super::Core;
use crate::cipher::in_clear;
use crate::line::{Holding, Line};
use crate::memory::Memory;
use crate::multisend::names_of;
use crate::scatter::{Scatter, ScatteredTrain, has_room_for};
use crate::socket::{DATAGRAMS_PER_CALL, Received, Take};
use omnes_proto::endpoint::Endpoint;
use omnes_proto::packet::{HEAD_BYTES_MAX, Placement, Source, Target};
use omnes_wire::{Instant, PACKET_OVERHEAD_BYTES};

/// Reads of a socket in one step, so that sending gets its turn.
const READS_PER_STEP: usize = 4;
/// The same for trains of a long message: answers to them can wait until most of a window is read.
const TRAINS_PER_STEP: usize = 16;
/// Additional reads per step that returned only packets of strangers.
const READS_IN_VAIN_MAX: usize = 64;
/// Read rounds per socket when all packets that have arrived are to be read.
const READS_TO_THE_END_MAX: usize = 256;
/// Packets taken from each ring before ended operations are checked for, and rounds of that per
/// step.
const RING_PACKETS: usize = 16;
const ROUNDS_PER_STEP: usize = 4;

/// Length of the longest datagram, or train, in bytes.
const DATAGRAM_BYTES: usize = 1 << 16;

/// Buffers for reading sockets, and what decides which of them a read uses.
pub(super) struct Inbound {
    /// Holds datagrams whose data are copied from here; [`DATAGRAM_BYTES`] for each.
    bounce: Vec<u8>,
    received: Vec<Received>,
    /// Reads data straight into the memory of receives.
    scatter: Scatter,
    /// Number of pending receives of messages, and of broadcasts, that are worth that.
    pub(super) large_receives: usize,
    pub(super) large_casts: usize,
}

impl Inbound {
    pub(super) fn new() -> Self {
        Self {
            bounce: vec![0; DATAGRAMS_PER_CALL * DATAGRAM_BYTES],
            received: Vec::with_capacity(DATAGRAMS_PER_CALL),
            scatter: Scatter::default(),
            large_receives: 0,
            large_casts: 0,
        }
    }

    /// Space for a datagram of `bytes` bytes.
    pub(super) fn bounce(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.bounce[..bytes]
    }
}

impl Core {
    /// Reads a socket until it is empty, or for a few calls. The first datagram is usually the only
    /// one, so it is read alone, the following ones many at a time.
    ///
    /// True if any packet was the job's: packets of strangers must keep no thread from sleeping.
    /// They must not delay the job's packets either, so reading continues past them.
    pub(super) fn read_uncounted(&mut self, index: usize) -> bool {
        let ended = self.operations.ended;
        let (mut calls, mut calls_in_vain) = (0, 0);
        let mut is_in_vain = false;
        let reads_max = if self.awaits_large(index) { TRAINS_PER_STEP } else { READS_PER_STEP };
        while calls < reads_max && calls_in_vain < READS_IN_VAIN_MAX {
            let accepted = self.endpoint.counters().accepted;
            let is_more = match calls + calls_in_vain {
                _ if is_in_vain => self.read_batch(index) == DATAGRAMS_PER_CALL,
                _ if self.awaits_large(index) => self.read_scattered(index),
                0 => self.read_one(index),
                _ => self.read_batch(index) == DATAGRAMS_PER_CALL,
            };
            is_in_vain = self.endpoint.counters().accepted == accepted;
            if is_in_vain {
                calls_in_vain += 1;
            } else {
                calls += 1;
                let now = self.now();
                self.apply_events(now);
            }
            // An awaited operation may have ended: then the remaining packets can wait.
            if !is_more || self.operations.ended != ended {
                break;
            }
        }
        calls > 0
    }

    /// Reads all packets that arrived while no thread polled, from all sources: a packet of a rank
    /// shows that the rank was not silent. Bounded, in case packets arrive faster than they are
    /// read.
    pub(super) fn read_all(&mut self) {
        // Packets in the queue arrived before those in the sockets.
        for _ in 0..READS_TO_THE_END_MAX {
            if !(self.read_rings() | self.read_queue()) {
                break;
            }
        }
        for index in 0..self.links.readable() {
            (0..READS_TO_THE_END_MAX).take_while(|_| self.read_socket(index)).for_each(drop);
        }
    }

    /// Takes packets from the ranks of this node, in a few rounds; true if any packet was the
    /// job's. The data of a packet are copied from the ring straight to their destination.
    pub(crate) fn read_rings(&mut self) -> bool {
        if self.rings.is_empty() {
            return false;
        }
        let ended = self.operations.ended;
        let accepted = self.endpoint.counters().accepted;
        for _ in 0..ROUNDS_PER_STEP {
            let now = self.now();
            let Self { rings, endpoint, memory, line, .. } = self;
            let packets = rings.receive(RING_PACKETS, |packet| {
                // A copy is checked: the shared memory might change meanwhile.
                let mut head = [0; HEAD_BYTES_MAX];
                let head = packet.copy_head(&mut head);
                if let Some(placement) = endpoint.handle_packet(now, head, packet.bytes()) {
                    vacate(line, placement);
                    memory.place(placement, packet.data(placement.packet_offset));
                }
                drain_moves(endpoint, memory);
            });
            let mut has_news = packets > 0;
            while let Some(rank) = self.rings.take_unheard() {
                self.endpoint.fail_rank(now, rank);
                has_news = true;
            }
            if has_news {
                self.apply_events(now);
            }
            if packets == 0 || self.operations.ended != ended {
                break;
            }
        }
        self.endpoint.counters().accepted != accepted
    }

    /// True if a receive is pending whose data are worth a peek before they are read; never for
    /// data that must be decrypted first.
    fn awaits_large(&self, socket: usize) -> bool {
        if self.cipher.is_some() {
            return false;
        }
        let is_group = self.links.group_index() == Some(socket);
        if is_group { self.inbound.large_casts > 0 } else { self.inbound.large_receives > 0 }
    }

    fn read_batch(&mut self, index: usize) -> usize {
        let mut buffers: [libc::iovec; DATAGRAMS_PER_CALL] =
            std::array::from_fn(|index| libc::iovec {
                iov_base: self.inbound.bounce[index * DATAGRAM_BYTES..].as_mut_ptr().cast(),
                iov_len: DATAGRAM_BYTES,
            });
        let mut received = std::mem::take(&mut self.inbound.received);
        let count = self.links.socket(index).receive(&mut buffers, &mut received);
        let now = self.now();
        for (place, datagram) in received.iter().enumerate() {
            self.handle_train(now, index, place * DATAGRAM_BYTES, *datagram);
        }
        self.inbound.received = received;
        count
    }

    /// Handles a train that is in the bounce buffer and arrived at socket `index`.
    fn handle_train(&mut self, now: Instant, index: usize, start: usize, train: Received) {
        let end = start + train.bytes.min(DATAGRAM_BYTES);
        if self.links.passes_on(index) {
            let bytes = &mut self.inbound.bounce[start..end];
            let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let head_bytes = bytes.len().min(train.packet_bytes);
            if self.endpoint.vouches(&bytes[..head_bytes]) {
                self.links.pass_on(names_of(bytes), train, &mut [part]);
            }
        }
        let mut from = start;
        while from < end {
            let to = (from + train.packet_bytes).min(end);
            let Self { endpoint, memory, line, cipher, inbound, .. } = self;
            if let Some(packet) = in_clear(cipher, endpoint, &mut inbound.bounce[from..to]) {
                take_in(now, packet, endpoint, line, memory);
            }
            from = to;
        }
    }

    /// Peeks at the head of the next datagram and reads a large one straight into place.
    fn read_scattered(&mut self, index: usize) -> bool {
        let socket = self.links.socket(index);
        let Some(seen) = self.inbound.scatter.look(socket) else { return false };
        let is_large = seen.bytes >= 2 * PACKET_OVERHEAD_BYTES + 1024;
        let preview = if is_large && has_room_for(seen) {
            self.endpoint.preview(self.inbound.scatter.head(seen))
        } else {
            None
        };
        let Some(preview) = preview else {
            return self.read_one(index);
        };
        let base = self.memory.sink_at(preview.channel, preview.receive, preview.offset, 0);
        let Some(base) = base else {
            return self.read_one(index);
        };
        let bytes_max = preview.bytes_max as usize;
        let socket = self.links.socket(index);
        let Some(train) =
            self.inbound.scatter.read(socket, seen, base, bytes_max, preview.head_bytes)
        else {
            return true;
        };
        if self.links.passes_on(index) && self.endpoint.vouches(self.inbound.scatter.head(seen)) {
            let (names, parts) =
                (names_of(self.inbound.scatter.head(seen)), self.inbound.scatter.parts());
            self.links.pass_on(names, seen, parts);
        }
        self.memory.copied_bytes += self.inbound.scatter.sort(&train);
        self.handle_scattered(&train);
        true
    }

    /// Handles a train that was read with its data separate from its heads: runs of packets as one.
    fn handle_scattered(&mut self, train: &ScatteredTrain) {
        let now = self.now();
        let mut index = 0;
        while index < train.packets() {
            let heads = self.inbound.scatter.heads(train, index);
            if let Some(run) = self.endpoint.handle_run(now, heads, train.packet_bytes()) {
                // If the first packet's data are in place, so are the following ones.
                if !self.is_in_place(train, index, run.placement) {
                    for (place, placement) in (index..).zip(run.placements()) {
                        self.put_in_place(train, place, placement);
                    }
                }
                index += run.packets as usize;
            } else {
                let packet = self.inbound.scatter.packet(train, index);
                let placement = self.endpoint.handle_packet(now, packet.head, packet.bytes);
                if let Some(placement) = placement
                    && !self.is_in_place(train, index, placement)
                {
                    self.put_in_place(train, index, placement);
                }
                index += 1;
            }
            self.drain_moves();
        }
    }

    /// True if the data of packet `index` and those after it were read to their destination.
    fn is_in_place(&mut self, train: &ScatteredTrain, index: usize, placement: Placement) -> bool {
        let Placement { channel, target, offset, packet_offset, bytes } = placement;
        let target = match target {
            Target::Receive(id) => self.memory.sink_at(channel, id, offset, bytes),
            Target::Slot(_) => None,
        };
        self.inbound.scatter.is_in_place(train, index, packet_offset, target)
    }

    fn put_in_place(&mut self, train: &ScatteredTrain, index: usize, placement: Placement) {
        vacate(&mut self.line, placement);
        let data = self.inbound.scatter.rescue(train, index, placement.packet_offset);
        self.memory.place(placement, data);
    }

    fn read_one(&mut self, index: usize) -> bool {
        let base = self.inbound.bounce.as_mut_ptr().cast();
        let mut buffers = [libc::iovec { iov_base: base, iov_len: DATAGRAM_BYTES }];
        let socket = self.links.socket(index);
        let Some(datagram) = socket.receive_scattered(&mut buffers, Take::Out) else {
            return false;
        };
        let now = self.now();
        self.handle_train(now, index, 0, datagram);
        true
    }

    pub(super) fn drain_moves(&mut self) {
        drain_moves(&mut self.endpoint, &mut self.memory);
    }
}

/// Handles a packet and copies its data to their destination.
pub(super) fn take_in(
    now: Instant,
    packet: &[u8],
    endpoint: &mut Endpoint,
    line: &mut Line,
    memory: &mut Memory,
) {
    if let Some(placement) = endpoint.handle_packet(now, packet, packet.len()) {
        vacate(line, placement);
        memory.place(placement, &packet[placement.packet_offset..]);
    }
    drain_moves(endpoint, memory);
}

pub(super) fn drain_moves(endpoint: &mut Endpoint, memory: &mut Memory) {
    while let Some((channel, step)) = endpoint.poll_move() {
        memory.execute(channel, step);
    }
}

/// Data lined up from a slot must not be sent any more once the slot is reused.
pub(super) fn vacate(line: &mut Line, placement: Placement) {
    if let Target::Slot(slot) = placement.target {
        line.withdraw(Holding { channel: placement.channel, source: Source::Slot(slot) });
    }
}
