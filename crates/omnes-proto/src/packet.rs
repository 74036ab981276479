//! What passes between machines and drivers: packets going out, places for data coming in.
//!
//! The machines never hold user data. A packet going out names the [`Segment`] of a message that
//! belongs to it, and the driver gathers it from the user's memory; for a packet coming in the
//! machine answers with the [`Placement`] of its data, and the driver scatters it there. So data
//! are copied once on each side, and the simulator can run the same code without copying at all.

use omnes_wire::{CommunicatorId, GAP_MAP_BYTES, HEADER_BYTES, PACKET_OVERHEAD_BYTES, Rank, Tag};

/// The sender's name for a message in one channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SendId(pub u32);

/// The receiver's name for a posted receive in one channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReceiveId(pub u32);

/// One buffer of the pool that all senders share; holds one packet's data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SlotId(pub u32);

/// Where data that go out lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// In a message to send.
    Message(SendId),
    /// In a buffer of the pool, whose holder passes on what it has received.
    Slot(SlotId),
    /// Nowhere yet: they are the exclusive or of several parts of one message, of which
    /// [`Endpoint::coded_parts`](crate::endpoint::Endpoint::coded_parts) tells.
    Coded,
}

/// Data that go out with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where they lie.
    pub source: Source,
    /// First byte in the message or in the buffer.
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
    /// The bytes that go on the wire before the data.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Puts a packet's data behind its head, if they are few enough. False, without effect, if
    /// they are not.
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

/// Who gets a packet.
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
        /// The group whose barrier it is about.
        communicator: CommunicatorId,
    },
    /// This rank's own NIC, the kernel's, which takes the first step of a barrier on its way.
    Doorbell {
        /// Whom the step is for, or any other rank if it is for all.
        to: Rank,
        /// The group whose barrier it is about.
        communicator: CommunicatorId,
    },
}

impl Destination {
    /// The rank, if it is one.
    pub fn rank(self) -> Option<Rank> {
        match self {
            Self::Group => None,
            Self::Rank(to) | Self::Nic { to, .. } | Self::Doorbell { to, .. } => Some(to),
        }
    }
}

/// A packet that counts as sent: the driver gathers head and segment and sends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Who gets it.
    pub to: Destination,
    /// The channel that `segment` belongs to, as an index; see [`Placement::channel`].
    pub channel: usize,
    /// The data that follow the head, if any.
    pub segment: Option<Segment>,
}

/// Where data go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Into the memory of a posted receive.
    Receive(ReceiveId),
    /// Into a buffer of the shared pool, as nobody has asked for them yet.
    Slot(SlotId),
}

/// Where the data of one packet go. The driver copies them before it does anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The channel that `target` belongs to, as an index; the one after the last channel is the
    /// broadcast machine.
    pub channel: usize,
    /// The memory.
    pub target: Target,
    /// First byte in that memory.
    pub offset: u64,
    /// Where the data start in the packet.
    pub packet_offset: usize,
    /// Length in bytes; may be shorter than the packet where the receive is too small.
    pub bytes: usize,
}

/// Where the data of a packet and of those that follow it would go: for reading them from the
/// socket straight into place. Nothing has been decided yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preview {
    /// The channel, as an index.
    pub channel: usize,
    /// The receive whose memory it is.
    pub receive: ReceiveId,
    /// First byte in that memory.
    pub offset: u64,
    /// Bytes from `offset` that nothing has been placed in yet.
    pub bytes_max: u64,
    /// Bytes of head before the data of the first packet; later ones have no control body.
    pub head_bytes: usize,
}

/// What is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Data in a buffer of the pool. It may be used anew afterwards, so the driver moves them
    /// before it handles another packet.
    Slot(SlotId),
    /// What lies in the receive's memory from this byte on, and stays there: its exclusive or with
    /// what lies where it is moved to takes the place of the latter. So coded data are decoded.
    Known(u64),
}

/// Data to move to a receive, after the data of the packet that has just come are in their place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// What.
    pub origin: Origin,
    /// The receive.
    pub receive: ReceiveId,
    /// First byte in the receive's memory.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// Puts the exclusive or of both in the place of `data`; of `other`, as long as there are `data`.
pub fn xor_into(data: &mut [u8], other: &[u8]) {
    data.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}
