//! Communicators that were dropped after a collective was given up: this rank will not post
//! receives for their messages any more, so it discards them.
//!
//! Each such message gets a receive without memory, so that it is granted, acknowledged and taken
//! out of the buffers like any other; it ends without an event.
//!
//! Cost: some 12 bytes for each of these communicators.

use super::matching::Pattern;
use super::{Channel, Event};
use omnes_wire::CommunicatorId;

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
        let pattern = Pattern { communicator, source: None, tag: None };
        while let Some(message) = self.matching.take_unexpected(&pattern) {
            let id = self.matching.add_discarding(pattern);
            self.adopt(id, message);
        }
    }
}
