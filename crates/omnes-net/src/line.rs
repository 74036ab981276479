//! Packets lined up to be sent: packets grouped into trains, and trains into system calls.

use crate::links::{Links, Route};
use crate::socket::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX, TRAINS_PER_CALL, Train};
use omnes_proto::packet::{Head, Source};
use omnes_wire::Rank;

/// Most packets lined up for one call.
const HEADS_MAX: usize = TRAIN_PACKETS_MAX + TRAINS_PER_CALL;
/// Bytes lined up after which they are sent: the first train leaves while the next is prepared
/// [PM-R7].
const LINE_BYTES: usize = TRAIN_BYTES_MAX;

/// Memory that contains a part of the line; the channel's index identifies the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holding {
    pub(crate) channel: usize,
    pub(crate) source: Source,
}

/// Data of a packet that stay in place until the packet is sent.
#[derive(Clone, Copy)]
pub(crate) struct PacketData {
    pub(crate) data: libc::iovec,
    pub(crate) holding: Holding,
}

/// Data in a line that are not part of a message: of coded packets, and of encrypted ones.
#[derive(Default)]
pub(crate) struct OwnData {
    buffers: Vec<Vec<u8>>,
    used: usize,
}

impl OwnData {
    /// Buffer of `bytes` bytes for the line's next such packet; it stays in place.
    pub(crate) fn next(&mut self, bytes: usize) -> &mut [u8] {
        if self.used == self.buffers.len() {
            self.buffers.push(Vec::new());
        }
        self.used += 1;
        let buffer = &mut self.buffers[self.used - 1];
        buffer.resize(bytes, 0);
        buffer
    }
}

/// Packets lined up to be sent; the line is kept while a socket is full.
pub(crate) struct Line {
    pub(crate) heads: Vec<Head>,
    pub(crate) used: usize,
    pub(crate) coded: OwnData,
    pub(crate) sealed: OwnData,
    pub(crate) parts: Vec<libc::iovec>,
    /// Each with the index of its socket.
    pub(crate) trains: Vec<(usize, Train)>,
    pub(crate) batch: Vec<Train>,
    /// Trains before they are fanned out.
    whole: Vec<(usize, Train)>,
    pub(crate) sent: usize,
    /// Memory that contains parts, with the index of the part.
    holdings: Vec<(usize, Holding)>,
    bytes: usize,
    /// Set after a shorter packet, which ends a train.
    is_train_closed: bool,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self {
            heads: vec![Head::default(); HEADS_MAX],
            used: 0,
            coded: OwnData::default(),
            sealed: OwnData::default(),
            parts: Vec::with_capacity(2 * HEADS_MAX),
            trains: Vec::with_capacity(TRAINS_PER_CALL),
            batch: Vec::with_capacity(TRAINS_PER_CALL),
            whole: Vec::with_capacity(TRAINS_PER_CALL),
            sent: 0,
            holdings: Vec::with_capacity(HEADS_MAX),
            bytes: 0,
            is_train_closed: false,
        }
    }

    /// True if trains are lined up that the kernel has not taken yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.sent < self.trains.len()
    }

    /// The socket that the next train waits for.
    pub(crate) fn blocked_socket(&self) -> Option<usize> {
        self.trains.get(self.sent).map(|(socket, _)| *socket)
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.coded.used = 0;
        self.sealed.used = 0;
        self.parts.clear();
        self.trains.clear();
        self.sent = 0;
        self.holdings.clear();
        self.bytes = 0;
    }

    /// Removes trains that would be sent from memory that is returned to its owner: they count as
    /// lost.
    pub(crate) fn withdraw(&mut self, holding: Holding) {
        if !self.is_pending() {
            return;
        }
        let Self { trains, holdings, sent, .. } = self;
        let holds = |(start, end): (usize, usize)| {
            let parts = start..end;
            holdings.iter().any(|(part, other)| *other == holding && parts.contains(part))
        };
        let mut index = 0;
        trains.retain(|(_, train)| {
            let is_sent = index < *sent;
            index += 1;
            is_sent || !holds(train.parts)
        });
    }

    pub(crate) fn has_room(&self) -> bool {
        // A packet that exceeds a train would travel alone, at nearly the cost of a train.
        let longest = self.trains.last().map_or(0, |(_, train)| train.packet_bytes);
        self.used < HEADS_MAX
            && self.trains.len() < TRAINS_PER_CALL
            && self.bytes + longest <= LINE_BYTES
    }

    /// Number of packets of the length of the last one that fit into the same train.
    pub(crate) fn room_in_train(&self) -> usize {
        let Some((_, train)) = self.trains.last().filter(|_| !self.is_train_closed) else {
            return 0;
        };
        let bytes = LINE_BYTES.saturating_sub(self.bytes) / train.packet_bytes;
        bytes.min(TRAIN_PACKETS_MAX - train.packets).min(HEADS_MAX - self.used)
    }

    /// Adds the packet whose head was written last: to the last train if it fits, otherwise as the
    /// first one of a new train.
    pub(crate) fn push(&mut self, route: Route, lent: Option<PacketData>) {
        let head = self.heads[self.used].as_bytes();
        let data = lent.map(|lent| lent.data);
        let packet_bytes = head.len() + data.map_or(0, |data| data.iov_len);
        let head = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
        self.used += 1;
        self.parts.push(head);
        self.holdings.extend(lent.map(|lent| (self.parts.len(), lent.holding)));
        self.parts.extend(data);
        self.bytes += packet_bytes;
        let end = self.parts.len();
        let start = end - 1 - usize::from(data.is_some());
        let Route { socket, to, multisend } = route;
        if let Some((through, train)) = self.trains.last_mut() {
            let fits = *through == socket
                && train.to == to
                && train.multisend == multisend
                && !self.is_train_closed
                && packet_bytes <= train.packet_bytes
                && (train.packets + 1) * train.packet_bytes <= TRAIN_BYTES_MAX
                && train.packets < TRAIN_PACKETS_MAX;
            if fits {
                train.parts.1 = end;
                train.packets += 1;
                self.is_train_closed = packet_bytes < train.packet_bytes;
                return;
            }
        }
        self.is_train_closed = false;
        let train = Train { to, multisend, parts: (start, end), packets: 1, packet_bytes };
        self.trains.push((socket, train));
    }

    /// Adds `packets` packets to the last train that continue the packet added last: their heads
    /// have been written after its head, and their data follow `data`, which are its own.
    pub(crate) fn push_run(&mut self, packets: usize, mut data: libc::iovec) {
        let Some((_, train)) = self.trains.last_mut() else { return };
        for head in &self.heads[self.used..self.used + packets] {
            let bytes = head.as_bytes();
            let base = bytes.as_ptr().cast_mut().cast();
            self.parts.push(libc::iovec { iov_base: base, iov_len: bytes.len() });
            data.iov_base = data.iov_base.wrapping_byte_add(data.iov_len);
            self.parts.push(data);
        }
        self.used += packets;
        self.bytes += packets * train.packet_bytes;
        train.packets += packets;
        train.parts.1 = self.parts.len();
    }

    /// Replaces each train that goes to many by a train for each of its targets: they share the
    /// same memory.
    pub(crate) fn fan_out(&mut self, links: &mut Links, me: Rank) {
        if self.trains.iter().all(|(_, train)| train.multisend.is_none()) {
            return;
        }
        let Self { trains, whole, .. } = self;
        std::mem::swap(trains, whole);
        for (socket, train) in whole.drain(..) {
            let Some(communicator) = train.multisend else {
                trains.push((socket, train));
                continue;
            };
            let Some(multisend) = links.multisend_mut(communicator) else { continue };
            let to_each =
                multisend.targets(me).map(|to| Train { to: Some(to), multisend: None, ..train });
            trains.extend(to_each.map(|train| (socket, train)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use omnes_proto::packet::{SendId, SlotId};
    use omnes_wire::CommunicatorId;
    use std::net::SocketAddr;

    fn slot(number: u32) -> Holding {
        Holding { channel: 2, source: Source::Slot(SlotId(number)) }
    }

    /// Lines up a packet with `bytes` of data for `socket`.
    fn push(line: &mut Line, socket: usize, bytes: usize, holding: Holding) {
        let data = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: bytes };
        let route = Route { socket, to: None, multisend: None };
        line.push(route, Some(PacketData { data, holding }));
    }

    #[test]
    fn run_becomes_one_train_with_contiguous_data() {
        let memory = [0u8; 4000];
        let at = |offset: usize| memory[offset..].as_ptr().cast_mut().cast();
        let data = libc::iovec { iov_base: at(0), iov_len: 1000 };
        let holding = Holding { channel: 0, source: Source::Message(SendId(7)) };
        let mut line = Line::new();
        assert_eq!(line.room_in_train(), 0);
        line.push(
            Route { socket: 3, to: None, multisend: None },
            Some(PacketData { data, holding }),
        );
        assert_eq!(line.room_in_train(), TRAIN_PACKETS_MAX - 1);
        line.push_run(3, data);
        let (socket, train) = line.trains[0];
        assert_eq!((socket, train.packets, train.parts), (3, 4, (0, 8)));
        let bases: Vec<_> =
            line.parts.iter().skip(1).step_by(2).map(|part| part.iov_base).collect();
        assert_eq!(bases, [at(0), at(1000), at(2000), at(3000)]);
        assert_eq!(line.room_in_train(), TRAIN_PACKETS_MAX - 4);
        push(&mut line, 3, 10, holding);
        assert_eq!((line.trains.len(), line.room_in_train()), (1, 0), "a shorter packet ends it");
        line.withdraw(holding);
        assert!(!line.is_pending());
    }

    #[test]
    fn packets_on_another_route_or_longer_ones_begin_a_new_train() {
        let [to, other] = [5, 6].map(|port| Some(SocketAddr::from(([127, 0, 0, 1], port))));
        let multisend = Some(CommunicatorId(3));
        let first = Route { socket: 0, to, multisend: None };
        let data = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 100 };
        let mut line = Line::new();
        for route in [
            first,
            Route { to: other, ..first },
            Route { to: other, socket: 1, ..first },
            Route { to: None, socket: 1, multisend },
            Route { to: None, socket: 1, multisend: Some(CommunicatorId(4)) },
        ] {
            line.push(route, Some(PacketData { data, holding: slot(0) }));
            line.push(route, Some(PacketData { data, holding: slot(0) }));
        }
        push(&mut line, 2, 50, slot(0));
        push(&mut line, 2, 51, slot(0));
        let packets: Vec<usize> = line.trains.iter().map(|(_, train)| train.packets).collect();
        assert_eq!(packets, [2, 2, 2, 2, 2, 1, 1]);
    }

    #[test]
    fn unsent_trains_from_withdrawn_memory_are_removed() {
        let message = Holding { channel: 0, source: Source::Message(SendId(7)) };
        let mut line = Line::new();
        push(&mut line, 0, 100, slot(7));
        push(&mut line, 1, 100, message);
        push(&mut line, 1, 50, slot(7));
        push(&mut line, 2, 100, slot(8));
        assert_eq!(line.trains.len(), 3);
        line.withdraw(Holding { channel: 1, ..slot(8) });
        line.sent = 1;
        line.withdraw(slot(7));
        let sockets = |line: &Line| line.trains.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(sockets(&line), [0, 2], "the first has been sent");
        assert_eq!(line.blocked_socket(), Some(2));
        line.withdraw(slot(8));
        assert!(!line.is_pending());
        line.clear();
        push(&mut line, 2, 100, message);
        line.withdraw(slot(7));
        assert!(line.is_pending());
    }
}
