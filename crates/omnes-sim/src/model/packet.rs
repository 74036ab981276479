//! Packets on their way: heads as the machines have written them, data as a length.

use omnes_proto::packet::{Destination, HEAD_BYTES_MAX, Head};
use slab::Slab;

/// Names a packet that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacketId(pub(super) u32);

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// To one rank.
    Rank(u32),
    /// To the NIC of its own host: the command to send it there.
    Bell(Destination),
    /// To one rank's NIC.
    Nic(u32),
    /// To all, by the switches.
    All,
    /// To one rank's NIC, which is told that a packet has come.
    Answer(u32),
    /// To one rank, which passes on what `root` sends to all.
    Child { rank: u32, root: u32 },
}

/// One packet, or all copies that switches make of it.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) from: u32,
    pub(super) to: To,
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: u8,
    pub(super) data_bytes: u32,
    /// It is the first of a train.
    pub(super) leads_train: bool,
    /// Copies under way.
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

    /// Length without frames.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.head_bytes) + u64::from(self.data_bytes)
    }
}

const _: () = assert!(HEAD_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(size_of::<Head>() >= HEAD_BYTES_MAX);

/// All packets that are under way; the memory of those that have arrived is used again.
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

    /// More copies of a packet get under way.
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
