//! Messages that are passed on while they come in.
//!
//! A *relay* ties messages to the receive that fills the memory they lie in: as that gets bytes,
//! they become available to send [PM-R7]. It is part of each step of the core, so data go on to
//! the next rank whoever moves the core on: a caller that waits for something else, or the progress
//! thread while the application computes.
//!
//! Guarantees: a relay ends when its receive has ended, with or without success, or is released; it
//! never ends a message, and names none that its owner has let go. Messages whose receive has
//! failed, or has got fewer bytes than they have, are their owner's to release, as what they lack
//! will never come. Cost: nothing in a step without relays, else one look per relay.

use crate::core::Core;
use crate::operations::{Operation, OperationId, OperationKind};

/// What is passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relayed {
    /// Length in bytes of the messages that pass it on, which the one that comes in must have.
    pub total: u64,
    /// Bytes that must have come since the last time, unless they are the last ones.
    pub piece: u64,
}

/// See the module header.
pub(crate) struct Relay {
    pub(crate) receive: Operation,
    pub(crate) sends: Vec<Operation>,
    pub(crate) relayed: Relayed,
    /// Bytes that have become available so far.
    pub(crate) passed: u64,
}

/// Whether there is more to pass on.
#[derive(PartialEq, Eq)]
enum Course {
    GoesOn,
    Over,
}

impl Core {
    /// Makes available what has come in.
    pub(crate) fn pass_on(&mut self) {
        if self.relays.is_empty() {
            return;
        }
        let mut relays = std::mem::take(&mut self.relays);
        relays.retain_mut(|relay| self.advance(relay) == Course::GoesOn);
        self.relays = relays;
    }

    /// An operation is let go: its number may be given out again.
    pub(crate) fn relay_no_more(&mut self, id: OperationId) {
        self.relays.retain_mut(|relay| {
            relay.sends.retain(|send| send.id != id);
            relay.receive.id != id
        });
    }

    fn advance(&mut self, relay: &mut Relay) -> Course {
        let total = relay.relayed.total;
        let bytes = match self.operations.ended_bytes(relay.receive.id) {
            Some(bytes) if bytes != Some(total) => return Course::Over,
            Some(_) => total,
            None => self.received_bytes(relay.receive).min(total),
        };
        if bytes == total || bytes - relay.passed >= relay.relayed.piece {
            relay.passed = bytes;
            relay.sends.iter().for_each(|send| self.extend(*send, bytes));
        }
        if bytes == total { Course::Over } else { Course::GoesOn }
    }

    /// Bytes of a receive that are in place from its start without a gap.
    fn received_bytes(&mut self, receive: Operation) -> u64 {
        let Operation { channel, kind: OperationKind::Receive(Some(id)), .. } = receive else {
            return 0;
        };
        if channel != self.cast_channel() {
            return self.endpoint.channels()[channel].received_bytes(id);
        }
        self.endpoint.broadcast().map_or(0, |broadcast| broadcast.received_bytes(id))
    }
}
