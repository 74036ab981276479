//! What a node holds: its host, its NIC, and what lies between them.

use omnes_sim::engine::{Server, Time};
use std::collections::VecDeque;

/// What a packet is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A part of the message.
    Data,
    /// The empty message with which one receiver answers the root [MS-R23].
    Reply,
    /// Nothing but credits [MS-R5].
    Credits,
}

/// A packet on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    pub(super) from: usize,
    pub(super) bytes: u64,
    /// Credits that go back to its receiver with it.
    pub(super) credits: u32,
}

/// To whom a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// One node.
    One(usize),
    /// All children of the sender, by multi-send.
    Children,
}

/// What a host wants to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    pub(super) to: To,
    pub(super) bytes: u64,
}

/// A place in the send queue, in the NIC's memory: a packet complete for its first destination,
/// and what the list says of the others [MS-R9].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) outgoing: Outgoing,
    /// Its first destination, for which it is complete.
    pub(super) first: usize,
    /// The credits for each destination, in the order of the list.
    pub(super) credits: Vec<u32>,
}

/// What a host is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Writing a frame.
    Write(Frame),
    /// Taking a packet in.
    Take(Packet),
}

/// What a NIC has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Sending all copies of a frame, one after the other [MS-R10].
    Send(Frame),
    /// Moving a packet to the host's memory.
    Move(Packet),
}

/// What a NIC is doing.
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
    /// What its program wants to send, in order. While there is something, a stream is open.
    pub(super) outgoing: VecDeque<Outgoing>,
    /// To whom credits go back by a packet of their own.
    pub(super) returns: VecDeque<usize>,
    /// Packets in its memory that it has not taken in.
    pub(super) arrived: VecDeque<Packet>,
    /// Packets of the message that it has taken in.
    pub(super) received: usize,
    /// Credits that it has for each node.
    pub(super) credits: Vec<u32>,
    /// Credits that it owes each node.
    pub(super) owed: Vec<u32>,
    /// When it had all of the message first.
    pub(super) delivered: Option<Time>,
    /// Bytes of data that it has written to the NIC.
    pub(super) bytes_written: u64,
}

/// A NIC.
#[derive(Debug, Default)]
pub(super) struct Nic {
    pub(super) jobs: VecDeque<Job>,
    pub(super) doing: Option<Work>,
    /// Frames that the host may not write to: being written, waiting, or being sent.
    pub(super) frames_used: usize,
    /// Moves to the host's memory, where they do not wait for what is sent.
    pub(super) mover: Server,
    /// Copies that it has sent.
    pub(super) copies: u32,
}

/// Both.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) host: Host,
    pub(super) nic: Nic,
}

impl Host {
    /// One with so many credits for each of `nodes`.
    pub(super) fn new(nodes: usize, credits: u32) -> Self {
        Self { credits: vec![credits; nodes], owed: vec![0; nodes], ..Self::default() }
    }

    /// Takes what is owed to a node, to go with a packet to it.
    pub(super) fn take_owed(&mut self, to: usize) -> u32 {
        std::mem::take(&mut self.owed[to])
    }

    /// To whom to return credits, if they have not gone with other packets meanwhile.
    pub(super) fn take_return(&mut self) -> Option<usize> {
        while let Some(to) = self.returns.pop_front() {
            if self.owed[to] > 0 {
                return Some(to);
            }
        }
        None
    }

    /// Takes out the first packet that has nothing but credits.
    pub(super) fn take_credits(&mut self) -> Option<Packet> {
        let place = self.arrived.iter().position(|packet| packet.kind == Kind::Credits)?;
        self.arrived.remove(place)
    }
}
