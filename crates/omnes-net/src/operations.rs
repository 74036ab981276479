//! What callers wait for.

use omnes_proto::broadcast::BroadcastError;
use omnes_proto::collective::CollectiveError;
use omnes_proto::packet::{ReceiveId, SendId};
use omnes_wire::{Rank, Words};
use slab::Slab;
use thiserror::Error;

/// Name of an operation that has been started and not yet been taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationId(usize);

/// An operation that has been started: what the engine needs to find it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub(crate) id: OperationId,
    pub(crate) channel: usize,
    pub(crate) kind: OperationKind,
    pub(crate) spot: Spot,
    /// At least [`LONG_BYTES`](crate::waiting::LONG_BYTES) are waited for.
    pub(crate) is_long: bool,
}

/// Where the packets that an operation waits for come in, mostly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    /// Where this rank's do.
    At(Rank),
    /// Where the group's do.
    Group,
    /// In a page of the NIC.
    Page,
    /// Anywhere.
    Anywhere,
}

/// What kind of operation it is, with the id that the machine gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationKind {
    Send(SendId),
    /// `None` where only this rank itself can be the sender.
    Receive(Option<ReceiveId>),
    /// It goes on whatever becomes of the caller.
    Barrier,
    /// Messages that follow one another.
    Schedule,
}

/// A rank of the job that has failed or left, or given notice, as waiting calls see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disruption<'a> {
    /// It has failed.
    Failed(u32),
    /// It has left in good order.
    Left {
        /// It.
        rank: u32,
        /// All that have left so, it among them.
        among: &'a [Rank],
    },
    /// It lives, but takes no part in something any more: it has sent a message of
    /// [`CommunicatorId::NOTICES`](omnes_wire::CommunicatorId::NOTICES).
    Notice {
        /// It.
        rank: u32,
        /// The message's tag, which says what.
        tag: u32,
    },
}

/// How a completed operation went. For a send it is empty, and for a barrier it only has words: the
/// caller knows the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The sender, for a receive; this rank for all else.
    pub peer: Rank,
    /// The message's tag, for a receive; 0 for all else.
    pub tag: u32,
    /// The message's length in bytes, for a receive or the root of a broadcast; 0 for all else.
    pub bytes: u64,
    /// What the words of all have made, for a barrier that combines them.
    pub words: Words,
}

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OperationError {
    /// The other side has failed.
    #[error("rank {rank} has failed")]
    PeerFailed {
        /// Its rank in the job.
        rank: Rank,
    },
    /// Long packets do not reach a rank, although short ones do, so the rank counts as failed.
    #[error("packets of {bytes} bytes do not reach rank {rank}, though shorter ones do")]
    MtuBlackHole {
        /// Its rank in the job; this rank's own if the others have declared this rank failed.
        rank: Rank,
        /// Length of the job's longest IP packets.
        bytes: u32,
    },
    /// The other side has left the job in good order.
    #[error("rank {rank} has left the job")]
    PeerLeft {
        /// Its rank in the job.
        rank: Rank,
    },
    /// The other ranks have declared this rank failed.
    #[error("rank {by} has declared this rank failed; the job continues without it")]
    Excluded {
        /// The rank that declared it.
        by: Rank,
    },
    /// The sender has abandoned the message before all of it had arrived, or was to arrive.
    #[error("rank {rank} stopped sending what this rank waits for")]
    GivenUp {
        /// Its rank in the job.
        rank: Rank,
    },
    /// A rank has given notice of something without which the operation does not end.
    #[error("rank {rank} has given notice {tag:#x}")]
    Notice {
        /// Its rank in the job.
        rank: Rank,
        /// What it says.
        tag: u32,
    },
    /// The message is longer than the buffer of the receive.
    #[error("message of {bytes} bytes does not fit into {capacity} bytes")]
    Truncated {
        /// Length of the message.
        bytes: u64,
        /// Length of the buffer.
        capacity: u64,
    },
    /// The message is shorter than the buffer that a schedule has for it.
    #[error("message of {bytes} bytes where {expected} were expected")]
    Short {
        /// Length of the message.
        bytes: u64,
        /// Bytes that were expected.
        expected: u64,
    },
    /// The message exceeds the maximum length; nothing was sent.
    #[error("message of {bytes} bytes is too long: at most {bytes_max} can be sent")]
    TooLarge {
        /// Length of the message.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// A broadcast over multicast that is not possible.
    #[error(transparent)]
    Broadcast(#[from] BroadcastError),
    /// A barrier that is not possible.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The slot of the kernel NIC that ran a barrier is gone, or its firmware does not see the
    /// barrier's packets any more.
    #[error(
        "the kernel NIC no longer runs this barrier: omnesd has withdrawn its slot or has ended, \
         the interface was removed, or the program was detached from it"
    )]
    NicLost,
    /// There is no multicast.
    #[error("no multicast: {reason}")]
    NoMulticast {
        /// Why.
        reason: String,
    },
    /// The program's callback has ended the wait.
    #[error("the wait was interrupted")]
    Interrupted,
    /// The operation was abandoned before it ended.
    #[error("the operation was released")]
    Released,
}

/// How an operation ended.
pub type Outcome = Result<Completion, OperationError>;

#[derive(Default)]
pub(crate) struct Operations {
    slots: Slab<Option<Outcome>>,
    /// Operations that have ended, and messages that have come for which a probe may wait.
    pub(crate) ended: u64,
}

impl Operations {
    pub(crate) fn start(&mut self) -> OperationId {
        OperationId(self.slots.insert(None))
    }

    pub(crate) fn end(&mut self, id: OperationId, outcome: Outcome) {
        if let Some(slot) = self.slots.get_mut(id.0) {
            slot.get_or_insert(outcome);
            self.ended += 1;
        }
    }

    /// A message has come for which a probe may wait.
    pub(crate) fn on_sought(&mut self) {
        self.ended += 1;
    }

    pub(crate) fn is_ended(&self, id: OperationId) -> bool {
        self.slots.get(id.0).is_none_or(Option::is_some)
    }

    /// Length of the message of a receive that has ended; none if it has not ended well. `None`
    /// while it goes on.
    pub(crate) fn ended_bytes(&self, id: OperationId) -> Option<Option<u64>> {
        match self.slots.get(id.0) {
            Some(outcome) => outcome.as_ref().map(|it| it.as_ref().ok().map(|done| done.bytes)),
            None => Some(None),
        }
    }

    /// The outcome, if there is one; the operation is gone then.
    pub(crate) fn take(&mut self, id: OperationId) -> Option<Outcome> {
        self.slots.get(id.0)?.as_ref()?;
        self.slots.remove(id.0)
    }

    /// Nobody waits any more, and nothing that may still end names the operation.
    pub(crate) fn forget(&mut self, id: OperationId) {
        self.slots.try_remove(id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_ends_once() {
        let mut operations = Operations::default();
        let id = operations.start();
        assert!(!operations.is_ended(id) && operations.take(id).is_none());
        operations.end(id, Err(OperationError::Released));
        operations.end(id, Err(OperationError::Interrupted));
        assert_eq!(operations.take(id), Some(Err(OperationError::Released)));
        assert!(operations.is_ended(id) && operations.take(id).is_none());
    }
}
