//! Communicators that were dropped after a collective was given up: this rank will not post
//! receives for their messages any more, so it discards them.
//!
//! Not done: longer messages, most of whose data waits for a grant, are kept until their senders
//! abandon them or leave.
//!
//! Cost: some 12 bytes for each of these communicators.

use super::peer::{Assembling, Destination};
use super::{Channel, Event};
use omnes_wire::{CommunicatorId, Envelope};

impl Channel {
    /// Ends the receives of a communicator, each with [`Event::ReceiveFailed`], and discards its
    /// messages, including those that arrive later.
    pub fn abandon(&mut self, communicator: CommunicatorId) {
        self.abandoned.insert(communicator);
        for (id, pattern) in self.matching.cancel_all(communicator) {
            self.on_cancelled(&pattern);
            let from = pattern.source.unwrap_or(self.me);
            self.events.push_back(Event::ReceiveFailed { id, from });
        }
        let (peers, config) = (&self.peers, &self.config);
        let unwanted = self.matching.take_unexpected_where(|message| {
            let assembling = peers.get(message.from).and_then(|peer| peer.assembling);
            let is_arriving = assembling.is_some_and(|Assembling { destination, .. }| {
                matches!(destination, Destination::Unexpected(key) if key == message.key)
            });
            let bytes = message.envelope.bytes;
            let is_whole = config.ordered_bytes(bytes) == bytes && !is_arriving;
            message.communicator == communicator && is_whole
        });
        self.free_chains(unwanted);
        self.resume_rejected();
    }

    /// True if a message that is about to arrive is to be discarded.
    pub(super) fn is_unwanted(&self, communicator: CommunicatorId, envelope: Envelope) -> bool {
        let is_whole = self.config.ordered_bytes(envelope.bytes) == envelope.bytes;
        is_whole && self.abandoned.contains(&communicator)
    }
}
