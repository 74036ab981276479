//! What the collective machine is told, what it tells, and what it counts.

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

/// Who runs the network's part of a barrier; the same on all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runner {
    /// This machine, with the firmware's native form.
    Host,
    /// The kernel NIC: the host sends the first step and looks at a page, the rest happens
    /// without it [CB-R7].
    Nic,
}

/// Settings of the collective machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveConfig {
    /// Shortest wait before a member that misses a message asks for it.
    pub nack_after_min: Duration,
    /// Longest wait before it asks, and mean of the longest between two questions of up to 255
    /// that may ask the same member; the wait of more grows with their number.
    pub nack_after_max: Duration,
    /// Wait before those are asked again who, as far as is known, have not entered a barrier.
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
    /// Its name.
    pub communicator: CommunicatorId,
    /// Its ranks in the job by node, each node's leader first: at most [`GROUP_NODES_MAX`] nodes,
    /// or [`NIC_NODES_MAX`] where the kernel NIC runs the barriers, of at most [`NODE_RANKS_MAX`]
    /// ranks, none of them empty, and no rank twice.
    ///
    /// [`GROUP_NODES_MAX`]: crate::limits::GROUP_NODES_MAX
    /// [`NIC_NODES_MAX`]: crate::limits::NIC_NODES_MAX
    pub nodes: Nodes,
    /// The algorithm between the leaders.
    pub algorithm: BarrierAlgorithm,
    /// Who runs it.
    pub runner: Runner,
    /// Whether what goes to all leaders goes as one multicast packet.
    pub is_multicast: bool,
}

/// What the machine tells its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// All members have entered the barrier.
    Done {
        /// The group.
        communicator: CommunicatorId,
        /// The barrier, as [`super::Collective::enter`] has named it.
        epoch: u32,
        /// What the words of all members make.
        words: Words,
    },
    /// A member has failed before the barrier was done.
    Failed {
        /// The group.
        communicator: CommunicatorId,
        /// The barrier.
        epoch: u32,
        /// The member.
        rank: Rank,
    },
}

/// What the page of a slot of the kernel NIC shows of a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicView {
    /// Newest barrier entered.
    pub entered: u32,
    /// Newest barrier done.
    pub done: u32,
    /// The step that waits.
    pub at: u32,
    /// What the words of all make in barrier `done`, and zeros.
    pub results: [u64; CARRIED_MAX],
    /// Where one step waits for all members: a bit for each node whose message has come.
    pub arrived: [u64; omnes_firmware::KERNEL_GROUP_MAX / 64],
}

/// A caller's mistake, or a group that has lost a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CollectiveError {
    /// The group has not been opened.
    #[error("communicator {} has no group for barriers", communicator.0)]
    UnknownGroup {
        /// Its name.
        communicator: CommunicatorId,
    },
    /// The group's barriers cannot combine words: its algorithm is no tree, or it has too many
    /// nodes.
    #[error("the barriers of communicator {} combine no words", communicator.0)]
    CannotCombine {
        /// Its name.
        communicator: CommunicatorId,
    },
    /// A member has failed.
    #[error("rank {rank} has failed")]
    PeerFailed {
        /// The member.
        rank: Rank,
    },
    /// More nodes than the firmware serves in the form that is to run the barriers.
    #[error("a group of {nodes} nodes, at most {nodes_max} are served")]
    GroupTooLarge {
        /// Nodes of the group.
        nodes: usize,
        /// The limit.
        nodes_max: usize,
    },
    /// More ranks on one node than are served.
    #[error("a node with {ranks} ranks of the group, at most {NODE_RANKS_MAX} are served")]
    NodeTooLarge {
        /// Ranks of the node.
        ranks: usize,
    },
    /// The group has a node without ranks, a rank twice or one that the job does not have, or this
    /// rank is no member.
    #[error("rank {rank} is at an invalid place in the group")]
    Misplaced {
        /// The rank, or this rank where one is missing.
        rank: Rank,
    },
    /// Too many barriers have been entered and are not done.
    #[error("{BARRIERS_OUTSTANDING_MAX} barriers are outstanding, which is the maximum")]
    TooManyBarriers,
}

/// What the machine counts. What the kernel NIC does is counted in its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectiveCounters {
    /// Barriers that are done.
    pub barriers: u64,
    /// Steps sent for the first time; one to all by multicast counts once.
    pub steps_sent: u64,
    /// Steps received that counted.
    pub steps_received: u64,
    /// First steps given to the kernel NIC.
    pub doorbells: u64,
    /// Those given again, as the NIC had not seen them.
    pub doorbells_again: u64,
    /// Steps sent again because somebody missed them.
    pub repeated: u64,
    /// Questions for missing steps sent.
    pub nacks_sent: u64,
    /// Questions for missing steps received.
    pub nacks_received: u64,
    /// Questions for who has entered sent.
    pub asks_sent: u64,
    /// Questions for who has entered received.
    pub asks_received: u64,
    /// Barriers ended because another member had done so, as a message of one that has left is
    /// missing.
    pub ended_by_hearsay: u64,
    /// Steps that had come before.
    pub duplicates: u64,
    /// Packets that were of no use when they came.
    pub ignored: u64,
    /// Steps that the kernel NIC has passed on to wake this rank.
    pub wakes: u64,
    /// Packets that no member would send.
    pub nonsense: u64,
    /// Packets of groups that this rank has not opened.
    pub unknown_group: u64,
    /// Answers that were not queued, as too many waited.
    pub answers_dropped: u64,
}

/// A packet that counts as sent; job and tag are still to be filled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outbound {
    /// Who gets it.
    pub to: Destination,
    /// The header, with the first of the words.
    pub header: Header,
    /// What it carries: those but the first are its control body.
    pub words: Words,
}

impl Outbound {
    /// A packet that carries words.
    pub(super) fn carrying(to: Destination, header: Header, words: Words) -> Self {
        Self { to, header: words.on(header), words }
    }

    /// One that carries none.
    pub(super) fn plain(to: Destination, header: Header) -> Self {
        Self { to, header, words: Words::NONE }
    }
}
