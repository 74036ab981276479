//! Messages that are forwarded while they arrive.
//!
//! A *relay* ties messages to send to the receive that fills their memory: as the receive gets
//! bytes, these become available to send [PM-R7]. Relays are advanced in each step of the core, so
//! data are forwarded whichever thread drives the core: a caller that waits for something else, or
//! the progress thread while the application computes.
//!
//! Guarantees: a relay ends when its receive has ended, with or without success, or is released; it
//! never ends a message, and names none that its owner has released. Messages whose receive has
//! failed, or has got fewer bytes than they have, must be released by their owner, because the
//! missing data will never arrive. Cost: nothing in a step without relays, otherwise one check per
//! relay.

use crate::core::Core;
use crate::operations::{Operation, OperationId, OperationKind};

/// Lengths that control a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relayed {
    /// Length in bytes of the forwarded messages, which the received one must have, too.
    pub total: u64,
    /// Bytes that must have arrived since the last time, unless they are the last ones.
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

/// Whether there are more data to forward.
#[derive(PartialEq, Eq)]
enum Course {
    GoesOn,
    Over,
}

impl Core {
    /// Makes data that have arrived available to the sends of relays.
    pub(crate) fn pass_on(&mut self) {
        if self.relays.is_empty() {
            return;
        }
        let mut relays = std::mem::take(&mut self.relays);
        relays.retain_mut(|relay| self.advance(relay) == Course::GoesOn);
        self.relays = relays;
    }

    /// Removes an operation that is released: its number may be reused.
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

    /// Contiguous bytes of a receive that are in place from its start.
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
