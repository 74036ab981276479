//! Commands, events and counters of the collective machine.

use crate::group::Nodes;
use crate::limits::{BARRIERS_OUTSTANDING_MAX, NODE_RANKS_MAX};
use crate::packet::Destination;
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CARRIED_MAX, CommunicatorId, Header, Rank, Words};
use std::time::Duration;
use thiserror::Error;

/// Argument of [`omnes_wire::Kind::Step`]: a rank tells the leader of its node that it has entered.
pub const STEP_JOIN: u32 = 1 << 16;
/// Argument of [`omnes_wire::Kind::Step`]: the leader of a node tells its other ranks that all
/// members have entered.
pub const STEP_RELEASE: u32 = STEP_JOIN + 1;
// The network's steps come before them.
const _: () = assert!(omnes_firmware::STEPS_MAX <= STEP_JOIN as usize);

/// What runs the network's part of a barrier; the same on all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runner {
    /// This machine, with the firmware's native form.
    Host,
    /// The kernel NIC: the host sends the first step and polls a page; the rest happens without the
    /// host [CB-R7].
    Nic,
}

/// Settings of the collective machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveConfig {
    /// Shortest time that a member waits for a missing message before it asks for it.
    pub nack_after_min: Duration,
    /// Longest such time, and mean of the longest interval between questions of up to 255 ranks
    /// that may ask the same member; with more ranks it grows with their number.
    pub nack_after_max: Duration,
    /// Interval between questions to members that are not known to have entered a barrier.
    pub ask_interval: Duration,
}

impl Default for CollectiveConfig {
    fn default() -> Self {
        Self {
            nack_after_min: Duration::from_micros(150),
            nack_after_max: Duration::from_millis(10),
            ask_interval: Duration::from_millis(10),
        }
    }
}

/// Ranks that have barriers with each other; the same on all of them.
#[derive(Clone, Debug)]
pub struct BarrierGroupConfig {
    /// Communicator of the group.
    pub communicator: CommunicatorId,
    /// Ranks of the group in the job, by node, each node's leader first: at most
    /// [`GROUP_NODES_MAX`] nodes, or [`NIC_NODES_MAX`] if the kernel NIC runs the barriers, of at
    /// most [`NODE_RANKS_MAX`] ranks, without empty nodes or duplicate ranks.
    ///
    /// [`GROUP_NODES_MAX`]: crate::limits::GROUP_NODES_MAX
    /// [`NIC_NODES_MAX`]: crate::limits::NIC_NODES_MAX
    pub nodes: Nodes,
    /// Algorithm between the leaders.
    pub algorithm: BarrierAlgorithm,
    /// What runs the algorithm.
    pub runner: Runner,
    /// Whether messages to all leaders are sent as one multicast packet.
    pub is_multicast: bool,
}

/// Event of the collective machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// All members have entered the barrier.
    Done {
        /// Communicator of the group.
        communicator: CommunicatorId,
        /// Number of the barrier, as returned by [`super::Collective::enter`].
        epoch: u32,
        /// Results of combining the words of all members.
        words: Words,
    },
    /// A member failed before the barrier was complete.
    Failed {
        /// Communicator of the group.
        communicator: CommunicatorId,
        /// Number of the barrier.
        epoch: u32,
        /// The failed member.
        rank: Rank,
    },
}

/// State of a barrier on the page of a slot of the kernel NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicView {
    /// Newest barrier entered.
    pub entered: u32,
    /// Newest barrier completed.
    pub done: u32,
    /// Step that is waiting.
    pub at: u32,
    /// Results of barrier `done`, padded with zeros.
    pub results: [u64; CARRIED_MAX],
    /// If one step waits for all members: a bit for each node whose message has arrived.
    pub arrived: [u64; omnes_firmware::KERNEL_GROUP_MAX / 64],
}

/// Invalid command of the caller, or a group that has lost a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CollectiveError {
    /// The group has not been opened.
    #[error("communicator {} has no group for barriers", communicator.0)]
    UnknownGroup {
        /// Communicator of the group.
        communicator: CommunicatorId,
    },
    /// The group's barriers cannot combine words: its algorithm is not a tree, or it has too many
    /// nodes.
    #[error("the barriers of communicator {} combine no words", communicator.0)]
    CannotCombine {
        /// Communicator of the group.
        communicator: CommunicatorId,
    },
    /// A member has failed.
    #[error("rank {rank} has failed")]
    PeerFailed {
        /// The failed member.
        rank: Rank,
    },
    /// The group has more nodes than the form of the firmware that is to run the barriers can
    /// serve.
    #[error("a group of {nodes} nodes, at most {nodes_max} are served")]
    GroupTooLarge {
        /// Number of nodes of the group.
        nodes: usize,
        /// Largest possible number of nodes.
        nodes_max: usize,
    },
    /// A node has more ranks than can be served.
    #[error("a node with {ranks} ranks of the group, at most {NODE_RANKS_MAX} are served")]
    NodeTooLarge {
        /// Number of ranks of the node.
        ranks: usize,
    },
    /// The group has a node without ranks, a rank twice or one that the job does not have, or this
    /// rank is no member.
    #[error("rank {rank} is at an invalid place in the group")]
    Misplaced {
        /// The rank, or this rank if a node is empty.
        rank: Rank,
    },
    /// Too many barriers have been entered and are not done.
    #[error("{BARRIERS_OUTSTANDING_MAX} barriers are outstanding, which is the maximum")]
    TooManyBarriers,
}

/// Counters of the collective machine. The kernel NIC's counters are in its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectiveCounters {
    /// Barriers completed.
    pub barriers: u64,
    /// Steps sent for the first time; a multicast to all counts once.
    pub steps_sent: u64,
    /// Steps received and accepted.
    pub steps_received: u64,
    /// Doorbells: first steps sent to the kernel NIC.
    pub doorbells: u64,
    /// Doorbells repeated, as the NIC had not seen them.
    pub doorbells_again: u64,
    /// Steps sent again because a member lacked them.
    pub repeated: u64,
    /// Questions for missing steps that were sent.
    pub nacks_sent: u64,
    /// Questions for missing steps that were received.
    pub nacks_received: u64,
    /// Questions whether a member has entered that were sent.
    pub asks_sent: u64,
    /// Questions whether a member has entered that were received.
    pub asks_received: u64,
    /// Barriers ended because another member had completed them, as a message of a member that has
    /// left is missing.
    pub ended_by_hearsay: u64,
    /// Steps that had arrived before.
    pub duplicates: u64,
    /// Packets that had no effect when they arrived.
    pub ignored: u64,
    /// Steps that the kernel NIC has forwarded to wake this rank.
    pub wakes: u64,
    /// Packets that no correct member would send.
    pub nonsense: u64,
    /// Packets of groups that this rank has not opened.
    pub unknown_group: u64,
    /// Answers dropped because too many were queued.
    pub answers_dropped: u64,
}

/// Packet that counts as sent; job and tag are still to be filled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outbound {
    /// Receiver of the packet.
    pub to: Destination,
    /// The header, with the first of the words.
    pub header: Header,
    /// All words that it carries; those after the first are its control body.
    pub words: Words,
}

impl Outbound {
    /// Creates a packet that carries words.
    pub(super) fn carrying(to: Destination, header: Header, words: Words) -> Self {
        Self { to, header: words.on(header), words }
    }

    /// Creates a packet without words.
    pub(super) fn plain(to: Destination, header: Header) -> Self {
        Self { to, header, words: Words::NONE }
    }
}
