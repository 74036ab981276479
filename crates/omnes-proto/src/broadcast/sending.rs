//! The root's messages: which bytes each numbered packet carries, and which messages are complete.

use super::config::CheckedBroadcast;
use crate::channel::Reply;
use crate::packet::{Segment, SendId, Source};
use omnes_wire::{CodedSet, Envelope, Flags, Seq};
use std::collections::VecDeque;

/// Message that some ranks do not have yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) id: SendId,
    pub(super) first: Seq,
    pub(super) packets: u32,
    bytes: u64,
    number: u32,
    pub(super) reply: Reply,
}

impl Outgoing {
    fn end(&self) -> Seq {
        self.first.plus(self.packets)
    }
}

/// Contents of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) index: u32,
    pub(super) flags: Flags,
    pub(super) envelope: Option<Envelope>,
    pub(super) segment: Option<Segment>,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Sending {
    messages: VecDeque<Outgoing>,
    /// Every packet before this one has arrived everywhere.
    pub(super) base: Seq,
    /// Next packet to be sent for the first time.
    pub(super) next: Seq,
    /// One past the last packet of all messages.
    end: Seq,
    sent: u32,
    /// Index of the message that was looked up last.
    latest: usize,
}

impl Sending {
    pub(super) fn push(&mut self, config: &CheckedBroadcast, id: SendId, bytes: u64, reply: Reply) {
        let packets = config.packets(bytes) as u32;
        let (first, number) = (self.end, self.sent);
        self.messages.push_back(Outgoing { id, first, packets, bytes, number, reply });
        self.end = first.plus(packets);
        self.sent = number.wrapping_add(1);
    }

    /// Number of messages that some ranks do not have yet.
    pub(super) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Number of packets that have not been sent.
    pub(super) fn fresh(&self) -> u32 {
        self.end.since(self.next)
    }

    /// Number of packets of the message in progress that have not been sent.
    pub(super) fn rest_of_message(&self) -> u32 {
        let mut ends = self.messages.iter().map(Outgoing::end);
        ends.find(|end| self.next.precedes(*end)).map_or(0, |end| end.since(self.next))
    }

    /// True if some packets have not been sent.
    pub(super) fn has_fresh(&self) -> bool {
        self.next != self.end
    }

    /// Returns the message of packet `seq`, which is between `base` and the end.
    pub(super) fn message_of(&mut self, seq: Seq) -> Option<Outgoing> {
        let holds =
            |message: &&Outgoing| !seq.precedes(message.first) && seq.precedes(message.end());
        if let Some(message) = self.messages.get(self.latest).filter(holds) {
            return Some(*message);
        }
        self.latest = self.messages.iter().position(|message| holds(&message))?;
        self.messages.get(self.latest).copied()
    }

    /// Returns the contents of packet `seq`.
    pub(super) fn shape(&mut self, config: &CheckedBroadcast, seq: Seq) -> Option<Shape> {
        let message = self.message_of(seq)?;
        let index = seq.since(message.first);
        let bytes = config.packet_bytes(message.bytes, index);
        let envelope = Envelope { tag: 0, token: message.number, bytes: message.bytes };
        let segment =
            Segment { source: Source::Message(message.id), offset: config.offset(index), bytes };
        let flags = Flags::NONE
            .with_if(Flags::FIRST, index == 0)
            .with_if(Flags::LAST, index + 1 == message.packets);
        Some(Shape {
            index,
            flags,
            envelope: (index == 0).then_some(envelope),
            segment: (bytes > 0).then_some(segment),
        })
    }

    /// Number of data bytes of packet `seq`; `None` if all ranks have it.
    pub(super) fn data_bytes(&mut self, config: &CheckedBroadcast, seq: Seq) -> Option<u32> {
        let message = self.message_of(seq)?;
        Some(config.packet_bytes(message.bytes, seq.since(message.first)))
    }

    /// Returns a bit for `seq` and for each packet after it that may be combined with it: those of
    /// its message that have been sent, except the first, which also carries the message's length.
    pub(super) fn may_be_coded(&mut self, seq: Seq) -> u64 {
        let Some(message) = self.message_of(seq).filter(|message| message.first != seq) else {
            return 0;
        };
        let end = if message.end().precedes(self.next) { message.end() } else { self.next };
        (1 << end.since(seq).min(CodedSet::SPAN)) - 1
    }

    /// All ranks have every packet before `base`; returns the next message that is completed by
    /// this.
    pub(super) fn free_one(&mut self, base: Seq) -> Option<SendId> {
        if self.base.precedes(base) {
            self.base = base;
        }
        let first = self.messages.front()?;
        if self.base.precedes(first.end()) {
            return None;
        }
        let id = first.id;
        self.messages.pop_front();
        self.latest = self.latest.saturating_sub(1);
        Some(id)
    }

    /// Removes and returns all messages.
    pub(super) fn abandon(&mut self) -> Vec<SendId> {
        (self.base, self.next) = (self.end, self.end);
        self.messages.drain(..).map(|message| message.id).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::broadcast::BroadcastConfig;

    #[test]
    fn coded_packets_combine_only_sent_packets_of_one_message() {
        let config = BroadcastConfig { payload_bytes: 256, ..BroadcastConfig::default() };
        let config = config.build().unwrap();
        let mut sending = Sending::default();
        for id in 0..2 {
            sending.push(&config, SendId(id), 100 * 256 - 16, Reply::Lazy);
        }
        sending.next = Seq::nth(110);
        let packets =
            |sending: &mut Sending, seq| sending.may_be_coded(Seq::nth(seq)).trailing_ones();
        assert_eq!(packets(&mut sending, 0), 0, "the first packet has another layout");
        assert_eq!(packets(&mut sending, 1), CodedSet::SPAN);
        assert_eq!(packets(&mut sending, 90), 10, "to the end of the message");
        assert_eq!(packets(&mut sending, 100), 0);
        assert_eq!(packets(&mut sending, 105), 5, "as far as it has been sent");
    }
}
