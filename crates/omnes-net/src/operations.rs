//! Operations that callers wait for, and their outcomes.

use omnes_proto::broadcast::BroadcastError;
use omnes_proto::collective::CollectiveError;
use omnes_proto::packet::{ReceiveId, SendId};
use omnes_wire::{Rank, Words};
use slab::Slab;
use thiserror::Error;

/// Name of an operation that has been started and not yet been taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationId(usize);

/// An operation that has been started: everything that the engine needs to find it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub(crate) id: OperationId,
    pub(crate) channel: usize,
    pub(crate) kind: OperationKind,
    pub(crate) spot: Spot,
    /// The operation waits for at least [`LONG_BYTES`](crate::waiting::LONG_BYTES).
    pub(crate) is_long: bool,
}

/// Where the packets that an operation waits for usually arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    /// Where packets of this rank arrive.
    At(Rank),
    /// Where packets of the group arrive.
    Group,
    /// In a page of the NIC.
    Page,
    /// Anywhere.
    Anywhere,
}

/// Kind of an operation, with the id that the machine gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationKind {
    Send(SendId),
    /// `None` if only this rank itself can be the sender.
    Receive(Option<ReceiveId>),
    /// Continues after the caller has stopped waiting.
    Barrier,
    /// A sequence of messages.
    Schedule,
}

/// A rank of the job that has failed, left or given notice, as waiting calls see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disruption<'a> {
    /// The rank has failed.
    Failed(u32),
    /// The rank has left in good order.
    Left {
        /// The rank.
        rank: u32,
        /// All ranks that have left in this way, including this one.
        among: &'a [Rank],
    },
    /// The rank lives, but no longer takes part in something: it has sent a message of
    /// [`CommunicatorId::NOTICES`](omnes_wire::CommunicatorId::NOTICES).
    Notice {
        /// The rank.
        rank: u32,
        /// The message's tag, which identifies the subject.
        tag: u32,
    },
}

/// Result of a completed operation. For a send it is empty, and for a barrier it contains only
/// words: the caller knows everything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The sender, for a receive; otherwise this rank.
    pub peer: Rank,
    /// The message's tag, for a receive; otherwise 0.
    pub tag: u32,
    /// The message's length in bytes, for a receive or the root of a broadcast; otherwise 0.
    pub bytes: u64,
    /// The combined words of all ranks, for a barrier that combines them.
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
    /// The sender has abandoned the message before all of it had arrived or become available.
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
        /// The content of the notice.
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
    /// A broadcast over multicast is not possible.
    #[error(transparent)]
    Broadcast(#[from] BroadcastError),
    /// A barrier is not possible.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The slot of the kernel NIC that ran a barrier is gone, or its firmware does not see the
    /// barrier's packets any more.
    #[error(
        "the kernel NIC no longer runs this barrier: omnesd has withdrawn its slot or has ended, \
         the interface was removed, or the program was detached from it"
    )]
    NicLost,
    /// Multicast is not available.
    #[error("no multicast: {reason}")]
    NoMulticast {
        /// The reason.
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
    /// Number of operations that have ended, and of arrived messages for which a probe may wait.
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

    /// Records the arrival of a message for which a probe may wait.
    pub(crate) fn on_sought(&mut self) {
        self.ended += 1;
    }

    pub(crate) fn is_ended(&self, id: OperationId) -> bool {
        self.slots.get(id.0).is_none_or(Option::is_some)
    }

    /// Length of the message of a receive that has ended, or `Some(None)` if the receive failed.
    /// `None` while it is in progress.
    pub(crate) fn ended_bytes(&self, id: OperationId) -> Option<Option<u64>> {
        match self.slots.get(id.0) {
            Some(outcome) => outcome.as_ref().map(|it| it.as_ref().ok().map(|done| done.bytes)),
            None => Some(None),
        }
    }

    /// Returns the outcome if there is one; the operation is gone then.
    pub(crate) fn take(&mut self, id: OperationId) -> Option<Outcome> {
        self.slots.get(id.0)?.as_ref()?;
        self.slots.remove(id.0)
    }

    /// Forgets an operation that no caller waits for and that no later event names.
    pub(crate) fn forget(&mut self, id: OperationId) {
        self.slots.try_remove(id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_ends_only_once() {
        let mut operations = Operations::default();
        let id = operations.start();
        assert!(!operations.is_ended(id) && operations.take(id).is_none());
        operations.end(id, Err(OperationError::Released));
        operations.end(id, Err(OperationError::Interrupted));
        assert_eq!(operations.take(id), Some(Err(OperationError::Released)));
        assert!(operations.is_ended(id) && operations.take(id).is_none());
    }
}
