//! Packets lined up to be sent: side by side into trains, trains into calls.

use crate::socket::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX, TRAINS_PER_CALL, Train};
use omnes_proto::packet::Head;
use std::net::SocketAddr;

/// Packets lined up for one call.
const HEADS_MAX: usize = TRAIN_PACKETS_MAX + TRAINS_PER_CALL;
/// Bytes lined up after which they are sent: the first train leaves while the next is prepared
/// [PM-R7].
const LINE_BYTES: usize = TRAIN_BYTES_MAX;
/// Packets lined up to be sent; survives a full socket.
pub(crate) struct Line {
    pub(crate) heads: Vec<Head>,
    pub(crate) used: usize,
    pub(crate) parts: Vec<libc::iovec>,
    /// Each with the socket that it leaves by.
    pub(crate) trains: Vec<(usize, Train)>,
    pub(crate) batch: Vec<Train>,
    pub(crate) sent: usize,
    bytes: usize,
    /// A shorter packet ends a train.
    is_train_closed: bool,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self {
            heads: vec![Head::default(); HEADS_MAX],
            used: 0,
            parts: Vec::with_capacity(2 * HEADS_MAX),
            trains: Vec::with_capacity(TRAINS_PER_CALL),
            batch: Vec::with_capacity(TRAINS_PER_CALL),
            sent: 0,
            bytes: 0,
            is_train_closed: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.parts.clear();
        self.trains.clear();
        self.sent = 0;
        self.bytes = 0;
    }

    pub(crate) fn has_room(&self) -> bool {
        // A packet more than a train holds would travel alone, at nearly the price of a train.
        let longest = self.trains.last().map_or(0, |(_, train)| train.packet_bytes);
        self.used < HEADS_MAX
            && self.trains.len() < TRAINS_PER_CALL
            && self.bytes + longest <= LINE_BYTES
    }

    /// Adds the packet whose head was written last: to the last train where it fits, else as the
    /// first of a new one.
    pub(crate) fn push(&mut self, route: (usize, Option<SocketAddr>), data: Option<libc::iovec>) {
        let head = self.heads[self.used].as_bytes();
        let packet_bytes = head.len() + data.map_or(0, |data| data.iov_len);
        let head = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
        self.used += 1;
        self.parts.push(head);
        self.parts.extend(data);
        self.bytes += packet_bytes;
        let end = self.parts.len();
        let start = end - 1 - usize::from(data.is_some());
        let (socket, to) = route;
        if let Some((through, train)) = self.trains.last_mut() {
            let fits = *through == socket
                && train.to == to
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
        self.trains.push((socket, Train { to, parts: (start, end), packets: 1, packet_bytes }));
    }
}
