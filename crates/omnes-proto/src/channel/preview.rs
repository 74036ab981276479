//! Where the data of a packet would go, before the packet is accepted: a driver can then read a
//! train straight into the memory of its receive.

use super::Channel;
use super::peer::{Destination, Lane};
use crate::packet::{Preview, ReceiveId};
use omnes_wire::{ENVELOPE_BYTES, Envelope, Flags, Header, Kind, PACKET_OVERHEAD_BYTES};

impl Channel {
    /// Returns where the data of this packet and of the run that follows it would go, if they can
    /// be read directly into a receive's memory. Changes nothing.
    pub fn preview(&self, header: &Header, head: &[u8]) -> Option<Preview> {
        if header.kind != Kind::Data || header.flags.has(Flags::CUT) {
            return None;
        }
        let peer = self.peers.get(header.source)?;
        let lane = Lane::of(header);
        let receive = &peer.receive[lane];
        let (id, offset, bytes_max, head_bytes) = if lane == Lane::Bulk {
            let (part, offset, _) = self.bulk_place(header)?;
            let rest = part.end().since(header.seq);
            let untouched = u64::from(receive.untouched(header.seq, rest));
            let most = untouched * u64::from(self.config.payload_bytes);
            let bytes_max = most.min(part.base + part.bytes - offset);
            (part.receive, offset, bytes_max, PACKET_OVERHEAD_BYTES)
        } else {
            if header.seq != receive.expects() || receive.has_gap() {
                return None;
            }
            self.preview_ordered(header, head)?
        };
        let capacity = self.matching.receives[id.0 as usize].capacity;
        let bytes_max = bytes_max.min(capacity.checked_sub(offset)?);
        let channel = self.index;
        Some(Preview { channel, receive: id, offset, bytes_max, head_bytes })
    }

    fn preview_ordered(
        &self,
        header: &Header,
        head: &[u8],
    ) -> Option<(ReceiveId, u64, u64, usize)> {
        if header.flags.has(Flags::FIRST) {
            let envelope = Envelope::parse(head.get(PACKET_OVERHEAD_BYTES..)?)?;
            let id = self.matching.find(header.source, header.communicator, envelope.tag)?;
            let ordered = self.config.ordered_bytes(envelope.bytes);
            return Some((id, 0, ordered, PACKET_OVERHEAD_BYTES + ENVELOPE_BYTES));
        }
        let assembling = self.peers.get(header.source)?.assembling?;
        let Destination::Receive(id) = assembling.destination else { return None };
        let bytes_max = assembling.ordered - assembling.offset;
        Some((id, assembling.offset, bytes_max, PACKET_OVERHEAD_BYTES))
    }
}
