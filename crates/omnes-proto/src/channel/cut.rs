//! Messages whose sender abandons them before all their bytes are available: the receiver is told
//! that the remaining data will not arrive; otherwise it would wait forever for them, and for
//! everything numbered after them.
//!
//! A *cut* is a numbered packet without data that takes the place of the message's next packet; the
//! part of the message on its lane ends there. A receive whose message was cut never counts as
//! received, however much of it arrived; it ends when both of its parts have ended.
//!
//! ```text
//!   cut on the ordered lane:  first ─ data ─ cut ║ next message         granted: the cut alone
//!   cut on the bulk lane:     first ─ .. ─ last    granted: data ─ data ─ cut ║ next part
//! ```
//!
//! On the bulk lane the receiver numbers the parts in advance, by the lengths of the messages, and
//! renumbers those after a cut. So that meanwhile no packet can be taken for one of another part,
//! the sender begins the next part only when the cut has been acknowledged.

use super::arrive::Numbered;
use super::peer::{BulkPart, Lane};
use super::{Channel, Message, Outgoing};
use crate::packet::{ReceiveId, SendId};
use omnes_wire::Rank;

impl Outgoing {
    pub(super) fn is_cut(&self) -> bool {
        self.ordered_cut.or(self.bulk_cut).is_some()
    }

    /// True if this packet of the message is a cut.
    pub(super) fn is_cut_at(&self, lane: Lane, index: u32) -> bool {
        match lane {
            Lane::Ordered => self.ordered_cut == Some(index),
            Lane::Bulk | Lane::Grants => self.bulk_cut == Some(index),
        }
    }

    /// One past the last byte that has been handed out; a granted part may be ahead of the ordered
    /// one.
    fn handed_out(&self, ordered_offset: u64, payload: u64) -> u64 {
        match self.bulk_next {
            0 => ordered_offset.min(self.ordered),
            next => self.ordered + u64::from(next) * payload,
        }
    }
}

impl Channel {
    /// Abandons a message if not all of its bytes are available, or if more than `rest_max` have
    /// not been handed out: those are never sent, and the receiver, which is returned, is told.
    /// Other messages continue unchanged.
    pub fn cut(&mut self, id: SendId, rest_max: u64) -> Option<Rank> {
        let payload = u64::from(self.config.payload_bytes);
        let outgoing = self.outgoing.get_mut(id.0 as usize)?;
        let ordered_offset = self.config.ordered_offset(outgoing.ordered_next);
        let handed_out = outgoing.handed_out(ordered_offset, payload);
        let Message { available, bytes, .. } = outgoing.message;
        if outgoing.is_cut() || available == bytes && bytes.saturating_sub(handed_out) <= rest_max {
            return None;
        }
        outgoing.message.available = handed_out;
        if outgoing.ordered_next < outgoing.ordered_packets {
            outgoing.ordered_cut = Some(outgoing.ordered_next);
            outgoing.ordered_packets = outgoing.ordered_next + 1;
        }
        if outgoing.bulk_packets > 0 {
            outgoing.bulk_cut = Some(outgoing.bulk_next);
            outgoing.bulk_packets = outgoing.bulk_next + 1;
        }
        let to = outgoing.message.to;
        self.schedule(to);
        Some(to)
    }

    /// True if the granted part after a cut may begin: the peer has acknowledged the cut.
    pub(super) fn has_settled(&mut self, rank: Rank) -> bool {
        let peer = self.peer(rank);
        let base = peer.send[Lane::Bulk].base();
        peer.bulk_cut = peer.bulk_cut.filter(|cut| !cut.precedes(base));
        peer.bulk_cut.is_none()
    }

    /// No more data will arrive for this receive on the ordered lane.
    pub(super) fn cut_ordered(&mut self, id: ReceiveId) {
        if let Some(matched) = &mut self.matching.receives[id.0 as usize].matched {
            matched.ordered = matched.ordered_done;
            matched.is_cut = true;
        }
    }

    /// Handles a cut of a granted part: the part ends with it, and the parts after it follow
    /// directly. Returns false if the cut is invalid: it has data, or a later packet has arrived.
    pub(super) fn cut_bulk(&mut self, packet: &Numbered, part: &BulkPart) -> bool {
        let header = &packet.header;
        let payload = u64::from(self.config.payload_bytes);
        let peer = self.peer(header.source);
        let cut_end = header.seq.plus(1);
        if packet.bytes > 0 || cut_end.precedes(peer.receive[Lane::Bulk].end()) {
            return false;
        }
        let mut end = part.first;
        for other in peer.bulk_parts.iter_mut().skip_while(|other| other.receive != part.receive) {
            if other.receive == part.receive {
                other.packets = header.argument + 1;
                other.bytes = u64::from(header.argument) * payload;
            } else {
                other.first = end;
            }
            end = other.end();
        }
        peer.bulk_end = end;
        if let Some(matched) = &mut self.matching.receives[part.receive.0 as usize].matched {
            matched.is_cut = true;
        }
        true
    }
}
