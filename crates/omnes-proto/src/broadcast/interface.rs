//! What the broadcast machine is told, what it tells, and what it counts.

use super::policy::Policy;
use crate::group::Nodes;
use crate::packet::{ReceiveId, SendId};
use omnes_wire::{CommunicatorId, Rank};
use thiserror::Error;

/// Names a group on all its ranks: a communicator, and which of its groups, as a communicator may
/// have several with different policies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupId {
    /// The communicator.
    pub communicator: CommunicatorId,
    /// Which of its groups.
    pub number: u8,
}

/// Ranks that broadcast to each other; the same on all of them.
#[derive(Clone, Debug)]
pub struct CastGroupConfig {
    /// Its name.
    pub id: GroupId,
    /// Its ranks in the job by node, each node's leader first, and no rank twice. Of a node only
    /// the leader receives from other nodes; the root itself sends.
    pub nodes: Nodes,
    /// How it is made reliable.
    pub policy: Policy,
}

/// A message to broadcast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CastMessage {
    /// To whom.
    pub group: GroupId,
    /// Length in bytes.
    pub bytes: u64,
    /// Whether somebody waits for [`Event::Sent`], or the message lies in a buffer of its own.
    pub reply: crate::channel::Reply,
}

/// What the machine tells its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Everybody has the message, or a co-root that answers for it; its memory is free.
    Sent {
        /// The message.
        id: SendId,
    },
    /// A receive is complete.
    Received {
        /// The receive.
        id: ReceiveId,
        /// The message's length; what exceeds the receive's capacity was dropped.
        bytes: u64,
    },
    /// A member has failed before all had the message.
    SendFailed {
        /// The message.
        id: SendId,
        /// The failed rank.
        rank: Rank,
    },
    /// A member has failed, or the root has left, before this receive was complete.
    ReceiveFailed {
        /// The receive.
        id: ReceiveId,
        /// The rank.
        rank: Rank,
    },
}

/// A caller's mistake.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BroadcastError {
    /// The group has not been opened.
    #[error("no group {} of communicator {}", id.number, id.communicator.0)]
    NoSuchGroup {
        /// Its name.
        id: GroupId,
    },
    /// The root is no member, or it is this rank.
    #[error("rank {root} cannot be the root of a receive")]
    NoSuchRoot {
        /// The root.
        root: Rank,
    },
    /// This rank takes no part in the group's traffic: its node's leader does.
    #[error("rank {rank} is not the leader of its node")]
    NotLeader {
        /// This rank.
        rank: Rank,
    },
    /// More bytes than packet numbers can count.
    #[error("message of {bytes} bytes, at most {bytes_max} can be sent")]
    MessageTooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// A member has failed.
    #[error("rank {rank} has failed")]
    PeerFailed {
        /// The rank.
        rank: Rank,
    },
}

/// What the machine counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BroadcastCounters {
    /// Data packets sent to everybody for the first time.
    pub casts_sent: u64,
    /// Data packets sent again to everybody.
    pub repairs_by_multicast: u64,
    /// Those of them that were several in one, for ranks that lack one each.
    pub repairs_coded: u64,
    /// Data packets sent again to one rank.
    pub repairs_by_unicast: u64,
    /// Data packets sent beside the multicast, to co-roots and to ranks that it does not reach.
    pub unicast_copies: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Reports of gaps sent.
    pub nacks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Acknowledgements received with messages [BC-R15].
    pub acks_carried: u64,
    /// Reports of gaps received.
    pub nacks_received: u64,
    /// Timers that ran out.
    pub timeouts: u64,
    /// Packets that had come before.
    pub duplicates: u64,
    /// Packets got from several in one.
    pub decoded: u64,
    /// Packets discarded for want of a buffer.
    pub discarded: u64,
    /// Packets or reports with numbers outside the window.
    pub beyond_window: u64,
    /// Packets of groups that this rank has not opened, or of roots that are none.
    pub unknown_group: u64,
    /// Authentic packets that make no sense.
    pub malformed: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
}
