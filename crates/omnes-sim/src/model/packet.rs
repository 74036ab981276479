//! Packets in flight: heads as written by the machines, data as a length.

use omnes_proto::packet::{Destination, HEAD_BYTES_MAX, Head};
use slab::Slab;

/// Identifier of a packet in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacketId(pub(super) u32);

/// Destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// To one rank.
    Rank(u32),
    /// To the NIC of its own host: a command to send a packet to this destination.
    Bell(Destination),
    /// To one rank's NIC.
    Nic(u32),
    /// To all, copied by the switches.
    All,
    /// To one rank's NIC: a notice that a packet has arrived.
    Answer(u32),
    /// To one rank, which forwards what `root` sends to all.
    Child { rank: u32, root: u32 },
}

/// One packet, or all copies of it made by switches.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) from: u32,
    pub(super) to: To,
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: u8,
    pub(super) data_bytes: u32,
    /// The packet is the first of a train.
    pub(super) leads_train: bool,
    /// Copies in flight.
    pub(super) copies: u32,
}

impl Packet {
    pub(super) fn new(from: u32, to: To, head: &[u8], data_bytes: u32) -> Self {
        let mut bytes = [0; HEAD_BYTES_MAX];
        bytes[..head.len()].copy_from_slice(head);
        let head_bytes = head.len() as u8;
        Self { from, to, head: bytes, head_bytes, data_bytes, leads_train: true, copies: 1 }
    }

    /// Header, tag and control body.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_bytes)]
    }

    /// Length without framing.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.head_bytes) + u64::from(self.data_bytes)
    }
}

const _: () = assert!(HEAD_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(size_of::<Head>() >= HEAD_BYTES_MAX);

/// All packets in flight; the memory of packets that have arrived is reused.
#[derive(Default)]
pub(super) struct Packets {
    slab: Slab<Packet>,
}

impl Packets {
    pub(super) fn add(&mut self, packet: Packet) -> PacketId {
        PacketId(self.slab.insert(packet) as u32)
    }

    pub(super) fn of(&self, id: PacketId) -> &Packet {
        &self.slab[id.0 as usize]
    }

    /// Adds copies of a packet.
    pub(super) fn copy(&mut self, id: PacketId, more: u32) {
        self.slab[id.0 as usize].copies += more;
    }

    /// A copy has arrived or is lost.
    pub(super) fn end(&mut self, id: PacketId) {
        let packet = &mut self.slab[id.0 as usize];
        packet.copies -= 1;
        if packet.copies == 0 {
            self.slab.remove(id.0 as usize);
        }
    }
}
