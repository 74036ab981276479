//! Commands, events and counters of the broadcast machine.

use super::policy::Policy;
use crate::group::Nodes;
use crate::packet::{ReceiveId, SendId};
use omnes_wire::{CommunicatorId, Rank};
use thiserror::Error;

/// Identifies a group on all its ranks: a communicator, and a number within it, as a communicator
/// may have several groups with different policies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupId {
    /// Communicator of the group.
    pub communicator: CommunicatorId,
    /// Number of the group within the communicator.
    pub number: u8,
}

/// Ranks that broadcast to each other; the same on all of them.
#[derive(Clone, Debug)]
pub struct CastGroupConfig {
    /// Identifier of the group.
    pub id: GroupId,
    /// Ranks of the group in the job, by node, each node's leader first, without duplicates. Of
    /// each node only the leader receives from other nodes; the root itself sends.
    pub nodes: Nodes,
    /// How its broadcasts are made reliable.
    pub policy: Policy,
}

/// Message to broadcast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CastMessage {
    /// Group that receives it.
    pub group: GroupId,
    /// Length in bytes.
    pub bytes: u64,
    /// Whether the caller waits for [`Event::Sent`], or the message is in a buffer of its own.
    pub reply: crate::channel::Reply,
}

/// Event of the broadcast machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// All ranks have the message, or a co-root that is responsible for it; its memory is free.
    Sent {
        /// The message.
        id: SendId,
    },
    /// A receive is complete.
    Received {
        /// The receive.
        id: ReceiveId,
        /// Length of the message; data beyond the receive's capacity were dropped.
        bytes: u64,
    },
    /// A member failed before all ranks had the message.
    SendFailed {
        /// The message.
        id: SendId,
        /// The failed rank.
        rank: Rank,
    },
    /// A member failed, or the root left, before this receive was complete.
    ReceiveFailed {
        /// The receive.
        id: ReceiveId,
        /// The rank that failed or left.
        rank: Rank,
    },
}

/// Invalid command of the caller.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BroadcastError {
    /// The group has not been opened.
    #[error("no group {} of communicator {}", id.number, id.communicator.0)]
    NoSuchGroup {
        /// Identifier of the group.
        id: GroupId,
    },
    /// The root is not a member, or it is this rank.
    #[error("rank {root} cannot be the root of a receive")]
    NoSuchRoot {
        /// The root.
        root: Rank,
    },
    /// This rank takes no part in the group's traffic: the leader of its node does.
    #[error("rank {rank} is not the leader of its node")]
    NotLeader {
        /// This rank.
        rank: Rank,
    },
    /// The message has more bytes than packet numbers can count.
    #[error("message of {bytes} bytes, at most {bytes_max} can be sent")]
    MessageTooLarge {
        /// Length of the message or of the receive.
        bytes: u64,
        /// Largest possible length.
        bytes_max: u64,
    },
    /// A member has failed.
    #[error("rank {rank} has failed")]
    PeerFailed {
        /// The failed rank.
        rank: Rank,
    },
}

/// Counters of the broadcast machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BroadcastCounters {
    /// Data packets sent to all ranks for the first time.
    pub casts_sent: u64,
    /// Data packets sent again to all ranks.
    pub repairs_by_multicast: u64,
    /// Packets of `repairs_by_multicast` that combine several packets, for ranks that lack one
    /// each.
    pub repairs_coded: u64,
    /// Data packets sent again to one rank.
    pub repairs_by_unicast: u64,
    /// Data packets sent in addition to the multicast, to co-roots and to ranks that it does not
    /// reach.
    pub unicast_copies: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Gap reports sent.
    pub nacks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Acknowledgements received with messages [BC-R15].
    pub acks_carried: u64,
    /// Gap reports received.
    pub nacks_received: u64,
    /// Timers that have expired.
    pub timeouts: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Packets decoded from coded ones.
    pub decoded: u64,
    /// Packets discarded for lack of a buffer.
    pub discarded: u64,
    /// Packets or reports with numbers outside the window.
    pub beyond_window: u64,
    /// Packets of groups that this rank has not opened, or of ranks that cannot be roots.
    pub unknown_group: u64,
    /// Authentic packets that are invalid.
    pub malformed: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
}
