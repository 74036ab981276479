//! State of a node: its host, its NIC, and the queues between them.

use omnes_sim::engine::{Server, Time};
use std::collections::VecDeque;

/// Purpose of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A part of the message.
    Data,
    /// The empty message with which one receiver answers the root [MS-R23].
    Reply,
    /// Credits only [MS-R5].
    Credits,
}

/// A packet in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    pub(super) from: usize,
    pub(super) bytes: u64,
    /// Credits that the packet returns to its receiver.
    pub(super) credits: u32,
}

/// Destination of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// One node.
    One(usize),
    /// All children of the sender, by multi-send.
    Children,
}

/// A packet that a host wants to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    pub(super) to: To,
    pub(super) bytes: u64,
}

/// A place in the send queue, in the NIC's memory: a packet complete for its first destination, and
/// the list entries for the others [MS-R9].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) outgoing: Outgoing,
    /// First destination, for which the frame is complete.
    pub(super) first: usize,
    /// The credits for each destination, in the order of the list.
    pub(super) credits: Vec<u32>,
}

/// Current action of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Writing a frame.
    Write(Frame),
    /// Receiving a packet.
    Take(Packet),
}

/// A job of a NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Sending all copies of a frame, one after the other [MS-R10].
    Send(Frame),
    /// Moving a packet to the host's memory.
    Move(Packet),
}

/// Current work of a NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Sending the copy at `place`; the next one is for `next`.
    Copy { frame: Frame, place: usize, next: Option<usize> },
    /// Moving a packet to the host's memory.
    Move(Packet),
}

/// A host with the layer's accounts.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) doing: Option<Action>,
    /// Packets that its program wants to send, in order. While the queue is not empty, a stream is
    /// open.
    pub(super) outgoing: VecDeque<Outgoing>,
    /// Nodes to which credits return in a separate packet.
    pub(super) returns: VecDeque<usize>,
    /// Packets in its memory that it has not received.
    pub(super) arrived: VecDeque<Packet>,
    /// Packets of the message that it has received.
    pub(super) received: usize,
    /// Credits available for each node.
    pub(super) credits: Vec<u32>,
    /// Credits owed to each node.
    pub(super) owed: Vec<u32>,
    /// Time at which it first had the whole message.
    pub(super) delivered: Option<Time>,
    /// Bytes of data that it has written to the NIC.
    pub(super) bytes_written: u64,
}

/// A NIC.
#[derive(Debug, Default)]
pub(super) struct Nic {
    pub(super) jobs: VecDeque<Job>,
    pub(super) doing: Option<Work>,
    /// Frames that the host may not write to: being written, queued, or being sent.
    pub(super) frames_used: usize,
    /// Moves to the host's memory, if they do not wait for transmissions.
    pub(super) mover: Server,
    /// Number of copies sent.
    pub(super) copies: u32,
}

/// A host and its NIC.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) host: Host,
    pub(super) nic: Nic,
}

impl Host {
    /// A host with `credits` credits for each of `nodes`.
    pub(super) fn new(nodes: usize, credits: u32) -> Self {
        Self { credits: vec![credits; nodes], owed: vec![0; nodes], ..Self::default() }
    }

    /// Takes the credits owed to a node, to be sent with a packet to it.
    pub(super) fn take_owed(&mut self, to: usize) -> u32 {
        std::mem::take(&mut self.owed[to])
    }

    /// The node to return credits to, unless they have gone with other packets meanwhile.
    pub(super) fn take_return(&mut self) -> Option<usize> {
        while let Some(to) = self.returns.pop_front() {
            if self.owed[to] > 0 {
                return Some(to);
            }
        }
        None
    }

    /// Removes the first packet that has only credits.
    pub(super) fn take_credits(&mut self) -> Option<Packet> {
        let place = self.arrived.iter().position(|packet| packet.kind == Kind::Credits)?;
        self.arrived.remove(place)
    }
}
