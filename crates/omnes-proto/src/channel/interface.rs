//! What a channel is told, what it tells, and what it counts.

use crate::packet::{ReceiveId, SendId};
use omnes_wire::{CommunicatorId, Rank};
use thiserror::Error;

/// How soon the sender wants to know that a message has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Somebody waits to use the memory again.
    Soon,
    /// The message lies in a buffer of its own; the answer may travel with other data.
    Lazy,
}

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Who gets it; not this rank itself.
    pub to: Rank,
    /// The communicator it belongs to.
    pub communicator: CommunicatorId,
    /// The application's tag.
    pub tag: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Bytes that can be sent already; see [`super::Channel::extend`].
    pub available: u64,
    /// When the answer is wanted.
    pub reply: Reply,
}

/// What a channel tells its user.
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
        /// The message's length; what exceeds the receive's capacity was dropped.
        bytes: u64,
    },
    /// A receive is over without its message, of which no more comes: the sender has given it up.
    Cut {
        /// The receive.
        id: ReceiveId,
        /// The sender.
        from: Rank,
        /// The message's tag.
        tag: u32,
    },
    /// A message is here, in part at least, that no receive has taken, after
    /// [`Channel::seek`](super::Channel::seek) asked for such.
    Sought,
    /// A notice has come: an empty message of [`CommunicatorId::NOTICES`].
    Notice {
        /// The sender.
        from: Rank,
        /// The message's tag, which is all that it says.
        tag: u32,
    },
    /// The receiver of a message has failed.
    SendFailed {
        /// The message.
        id: SendId,
        /// The failed rank.
        to: Rank,
    },
    /// A receive cannot complete, as this rank has failed.
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
    /// A rank has owed an answer to long packets for half as long: it is to be asked whether it
    /// lives.
    PeerQuiet {
        /// The rank.
        rank: Rank,
    },
    /// Long packets do not get to a rank, which answers short ones.
    MtuBlackHole {
        /// The rank.
        rank: Rank,
    },
    /// Nothing is in flight and no answer is owed [PM-R20]; follows [`super::Channel::stop`].
    Stable,
}

/// A caller's mistake.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChannelError {
    /// No such rank, or this rank itself.
    #[error("cannot send to rank {to} of {size} ranks, from rank {me}")]
    NoSuchRank {
        /// The rank asked for.
        to: Rank,
        /// Ranks of the job.
        size: u32,
        /// This rank.
        me: Rank,
    },
    /// More bytes than packet numbers can count.
    #[error("message of {bytes} bytes, at most {bytes_max} can be sent")]
    MessageTooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The rank has failed.
    #[error("rank {rank} has failed")]
    PeerFailed {
        /// The rank.
        rank: Rank,
    },
}

/// What a channel counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelCounters {
    /// Data packets sent for the first time.
    pub data_packets: u64,
    /// Data packets and grants sent again.
    pub retransmits: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Acknowledgements sent on their own.
    pub acks_sent: u64,
    /// Reports of gaps, and questions for messages that are overdue, sent.
    pub nacks_sent: u64,
    /// Reports sent of packets that found no buffer.
    pub rejects_sent: u64,
    /// Packets that had come before.
    pub duplicates: u64,
    /// Packets discarded while a lane was rejecting, or for want of a buffer out of order.
    pub discarded: u64,
    /// Packets or answers with numbers outside the window.
    pub beyond_window: u64,
    /// Answers older than the window.
    pub answers_stale: u64,
    /// Authentic packets that make no sense.
    pub malformed: u64,
    /// Messages that came before their receive.
    pub unexpected: u64,
}

impl ChannelCounters {
    /// Adds what another channel counted.
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
