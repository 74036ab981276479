//! Messages whose sender gives them up before all their bytes are there: the receiver is told that
//! the rest does not come, or it would wait for ever, and everything numbered behind it too.
//!
//! A *cut* is a numbered packet without data, in the place of the next packet of the message; the
//! part of the message on its lane ends there. A receive whose message was cut never counts as
//! received, whatever came of it; it ends when both of its parts have ended.
//!
//! ```text
//!   cut on the ordered lane:  first ─ data ─ cut ║ next message         granted: the cut alone
//!   cut on the bulk lane:     first ─ .. ─ last    granted: data ─ data ─ cut ║ next part
//! ```
//!
//! On the bulk lane the receiver numbers the parts in advance, by the lengths of the messages, and
//! counts those behind a cut anew. So that meanwhile no packet can be taken for one of another
//! part, the sender begins the next part only when the cut has been acknowledged.

use super::arrive::Numbered;
use super::peer::{BulkPart, Lane};
use super::{Channel, Message, Outgoing};
use crate::packet::{ReceiveId, SendId};
use omnes_wire::Rank;

impl Outgoing {
    pub(super) fn is_cut(&self) -> bool {
        self.ordered_cut.or(self.bulk_cut).is_some()
    }

    /// True if this packet of the message says that there is no more.
    pub(super) fn is_cut_at(&self, lane: Lane, index: u32) -> bool {
        match lane {
            Lane::Ordered => self.ordered_cut == Some(index),
            Lane::Bulk | Lane::Grants => self.bulk_cut == Some(index),
        }
    }

    /// Bytes up to the last one that has been handed out; a granted part may be ahead of the
    /// ordered one.
    fn handed_out(&self, ordered_offset: u64, payload: u64) -> u64 {
        match self.bulk_next {
            0 => ordered_offset.min(self.ordered),
            next => self.ordered + u64::from(next) * payload,
        }
    }
}

impl Channel {
    /// Gives a message up of which not all bytes are there, or of which more than `rest_max` have
    /// not been handed out: those are never sent, and the receiver, which is returned, is told.
    /// Others go on.
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

    /// True if the granted part behind a cut may be begun: the peer knows of the cut.
    pub(super) fn has_settled(&mut self, rank: Rank) -> bool {
        let peer = self.peer(rank);
        let base = peer.send[Lane::Bulk].base();
        peer.bulk_cut = peer.bulk_cut.filter(|cut| !cut.precedes(base));
        peer.bulk_cut.is_none()
    }

    /// The rest of the message that is arriving for this receive on the ordered lane does not come.
    pub(super) fn cut_ordered(&mut self, id: ReceiveId) {
        if let Some(matched) = &mut self.matching.receives[id.0 as usize].matched {
            matched.ordered = matched.ordered_done;
            matched.is_cut = true;
        }
    }

    /// A cut of a granted part: the part ends with it, and those behind it follow at once. False if
    /// it cannot be: it is none of the part's packets, or has data, or others are behind it.
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
