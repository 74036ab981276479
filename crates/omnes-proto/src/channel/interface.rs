//! Commands, events and counters of a channel.

use crate::packet::{ReceiveId, SendId};
use omnes_wire::{CommunicatorId, Rank};
use thiserror::Error;

/// How soon the sender needs to know that a message has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A caller waits to reuse the memory.
    Soon,
    /// The message is in a buffer of its own; the answer may travel with other data.
    Lazy,
}

/// Message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Receiver; not this rank itself.
    pub to: Rank,
    /// Communicator of the message.
    pub communicator: CommunicatorId,
    /// The application's tag.
    pub tag: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of bytes that can be sent already; see [`super::Channel::extend`].
    pub available: u64,
    /// How soon the answer is needed.
    pub reply: Reply,
}

/// Event of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The message has arrived at its receiver; its memory is free.
    Sent {
        /// The message.
        id: SendId,
    },
    /// A receive is complete.
    Received {
        /// The receive.
        id: ReceiveId,
        /// The sender.
        from: Rank,
        /// The message's tag.
        tag: u32,
        /// Length of the message; data beyond the receive's capacity were dropped.
        bytes: u64,
    },
    /// A receive has ended without its message, because the sender has abandoned the message.
    Cut {
        /// The receive.
        id: ReceiveId,
        /// The sender.
        from: Rank,
        /// The message's tag.
        tag: u32,
    },
    /// A message that no receive has taken has arrived, at least in part, after
    /// [`Channel::seek`](super::Channel::seek) asked for one.
    Sought,
    /// A notice has arrived: an empty message of [`CommunicatorId::NOTICES`].
    Notice {
        /// The sender.
        from: Rank,
        /// Tag of the notice, which is its only content.
        tag: u32,
    },
    /// The receiver of a message has failed.
    SendFailed {
        /// The message.
        id: SendId,
        /// The failed rank.
        to: Rank,
    },
    /// A receive cannot complete, because this rank has failed.
    ReceiveFailed {
        /// The receive.
        id: ReceiveId,
        /// The failed rank.
        from: Rank,
    },
    /// A rank has owed an answer for [`super::ChannelConfig::peer_timeout`].
    PeerSilent {
        /// The rank.
        rank: Rank,
    },
    /// A rank has owed an answer to long packets for half as long: it is to be asked for a sign of
    /// life.
    PeerQuiet {
        /// The rank.
        rank: Rank,
    },
    /// Long packets do not reach a rank, although it answers short ones.
    MtuBlackHole {
        /// The rank.
        rank: Rank,
    },
    /// Nothing is in flight and no answer is owed [PM-R20]; follows [`super::Channel::stop`].
    Stable,
}

/// Invalid command of the caller.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChannelError {
    /// The rank does not exist, or is this rank itself.
    #[error("cannot send to rank {to} of {size} ranks, from rank {me}")]
    NoSuchRank {
        /// Rank given by the caller.
        to: Rank,
        /// Number of ranks in the job.
        size: u32,
        /// This rank.
        me: Rank,
    },
    /// The message has more bytes than packet numbers can count.
    #[error("message of {bytes} bytes, at most {bytes_max} can be sent")]
    MessageTooLarge {
        /// Length of the message.
        bytes: u64,
        /// Largest possible length.
        bytes_max: u64,
    },
    /// The rank has failed.
    #[error("rank {rank} has failed")]
    PeerFailed {
        /// The failed rank.
        rank: Rank,
    },
}

/// Counters of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelCounters {
    /// Data packets sent for the first time.
    pub data_packets: u64,
    /// Data packets and grants retransmitted.
    pub retransmits: u64,
    /// Retransmission timers that have expired.
    pub timeouts: u64,
    /// Acknowledgements sent as packets of their own.
    pub acks_sent: u64,
    /// Gap reports, and questions for overdue messages, sent.
    pub nacks_sent: u64,
    /// Reports sent for packets that found no buffer.
    pub rejects_sent: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Packets discarded because their lane was rejecting, or out of order for lack of a buffer.
    pub discarded: u64,
    /// Packets or answers with numbers outside the window.
    pub beyond_window: u64,
    /// Answers older than the window.
    pub answers_stale: u64,
    /// Authentic packets that are invalid.
    pub malformed: u64,
    /// Messages that arrived before their receive.
    pub unexpected: u64,
}

impl ChannelCounters {
    /// Adds the counters of another channel.
    pub fn add(&mut self, other: &Self) {
        self.data_packets += other.data_packets;
        self.retransmits += other.retransmits;
        self.timeouts += other.timeouts;
        self.acks_sent += other.acks_sent;
        self.nacks_sent += other.nacks_sent;
        self.rejects_sent += other.rejects_sent;
        self.duplicates += other.duplicates;
        self.discarded += other.discarded;
        self.beyond_window += other.beyond_window;
        self.answers_stale += other.answers_stale;
        self.malformed += other.malformed;
        self.unexpected += other.unexpected;
    }
}
