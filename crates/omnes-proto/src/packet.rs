//! Types exchanged between machines and drivers: outgoing packets, and placements of incoming data.
//!
//! The machines never hold user data. An outgoing packet names the [`Segment`] of a message that
//! belongs to it, and the driver gathers the data from the user's memory; for an incoming packet
//! the machine returns the [`Placement`] of its data, and the driver scatters them there. So data
//! are copied once on each side, and the simulator can run the same code without copying at all.

use omnes_wire::{CommunicatorId, GAP_MAP_BYTES, HEADER_BYTES, PACKET_OVERHEAD_BYTES, Rank, Tag};

/// Identifier of a message in one channel, given by the sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SendId(pub u32);

/// Identifier of a posted receive in one channel, given by the receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReceiveId(pub u32);

/// One buffer of the pool shared by all senders; holds the data of one packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SlotId(pub u32);

/// The pool has no buffer for the data of a packet.
pub(crate) struct NoBuffer;

/// Location of outgoing data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A message to send.
    Message(SendId),
    /// A buffer of the pool, whose holder forwards data it has received.
    Slot(SlotId),
    /// The data do not exist yet: they are the exclusive or of several parts of one message, listed
    /// by [`Endpoint::coded_parts`](crate::endpoint::Endpoint::coded_parts).
    Coded,
}

/// Data sent with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Location of the data.
    pub source: Source,
    /// Offset of the first byte in the message or the buffer.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// Most bytes of header, tag and control body of one packet.
pub const HEAD_BYTES_MAX: usize = PACKET_OVERHEAD_BYTES + GAP_MAP_BYTES;

/// Header, tag and control body of a packet, ready for the wire.
#[derive(Clone, Copy)]
pub struct Head {
    pub(crate) bytes: [u8; HEAD_BYTES_MAX],
    pub(crate) length: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; HEAD_BYTES_MAX], length: 0 }
    }
}

impl Head {
    /// Bytes that precede the data on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends a packet's data to its head if they fit. Returns false, without effect, if they do
    /// not.
    pub fn try_append(&mut self, data: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.length..self.length + data.len()) else {
            return false;
        };
        room.copy_from_slice(data);
        self.length += data.len();
        true
    }

    pub(crate) fn set_body(&mut self, body: &[u8]) {
        self.length = PACKET_OVERHEAD_BYTES + body.len();
        self.bytes[PACKET_OVERHEAD_BYTES..self.length].copy_from_slice(body);
    }

    /// Writes header and tag in front of the control body.
    pub(crate) fn seal(&mut self, header: &[u8; HEADER_BYTES], tag: Tag) {
        self.bytes[..HEADER_BYTES].copy_from_slice(header);
        self.bytes[HEADER_BYTES..PACKET_OVERHEAD_BYTES].copy_from_slice(&tag.0.to_be_bytes());
    }

    pub(crate) fn extend_body(&mut self, more: &[u8]) {
        self.bytes[self.length..self.length + more.len()].copy_from_slice(more);
        self.length += more.len();
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[PACKET_OVERHEAD_BYTES..self.length]
    }
}

/// Receiver of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One rank.
    Rank(Rank),
    /// All other ranks of the job, by multicast.
    Group,
    /// One rank's NIC, through the socket whose packets the kernel NIC watches.
    Nic {
        /// The rank.
        to: Rank,
        /// Group of the barrier.
        communicator: CommunicatorId,
    },
    /// This rank's own kernel NIC, which takes the first step of a barrier when the packet passes
    /// it.
    Doorbell {
        /// Receiver of the step, or any other rank if the step is for all.
        to: Rank,
        /// Group of the barrier.
        communicator: CommunicatorId,
    },
}

impl Destination {
    /// Returns the rank, unless the destination is [`Self::Group`].
    pub fn rank(self) -> Option<Rank> {
        match self {
            Self::Group => None,
            Self::Rank(to) | Self::Nic { to, .. } | Self::Doorbell { to, .. } => Some(to),
        }
    }
}

/// Packet that counts as sent: the driver gathers head and segment and sends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Receiver of the packet.
    pub to: Destination,
    /// Index of the channel that `segment` belongs to; see [`Placement::channel`].
    pub channel: usize,
    /// Data that follow the head, if any.
    pub segment: Option<Segment>,
}

/// Memory that data go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Memory of a posted receive.
    Receive(ReceiveId),
    /// A buffer of the shared pool, since no receive has been posted for the data yet.
    Slot(SlotId),
}

/// Where the data of one packet go. The driver copies them before it does anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Index of the channel that `target` belongs to; the index after the last channel stands for
    /// the broadcast machine.
    pub channel: usize,
    /// Destination memory.
    pub target: Target,
    /// Offset of the first byte in that memory.
    pub offset: u64,
    /// Offset of the data in the packet.
    pub packet_offset: usize,
    /// Length in bytes; shorter than the packet's data if the receive is too small.
    pub bytes: usize,
}

/// Where the data of a packet and of the packets that follow it would go, so that they can be read
/// from the socket in place. Nothing has been decided yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preview {
    /// Index of the channel.
    pub channel: usize,
    /// Receive that owns the memory.
    pub receive: ReceiveId,
    /// Offset of the first byte in that memory.
    pub offset: u64,
    /// Bytes from `offset` on in which nothing has been placed yet.
    pub bytes_max: u64,
    /// Bytes of head before the data of the first packet; the later packets have no control body.
    pub head_bytes: usize,
}

/// Source of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Data in a buffer of the pool. The buffer may be reused afterwards, so the driver moves the
    /// data before it handles another packet.
    Slot(SlotId),
    /// Data in the receive's memory from this byte on, which stay there: the destination is
    /// replaced by its exclusive or with these data. Coded data are decoded in this way.
    Known(u64),
}

/// Data to move to a receive, after the data of the packet that has just arrived are in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Source of the data.
    pub origin: Origin,
    /// Destination receive.
    pub receive: ReceiveId,
    /// Offset of the first byte in the receive's memory.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// Replaces `data` by its exclusive or with `other`, up to the length of the shorter one.
pub fn xor_into(data: &mut [u8], other: &[u8]) {
    data.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}
