//! Hosts: programs that send and receive as PM's users do, in place [PM-R11].

use super::nic::Command;
use super::{Copies, Node, What, World};
use omnes_proto::channel::{Event as ChannelEvent, Pattern};
use omnes_proto::endpoint::Event as EndpointEvent;
use omnes_sim::engine::{Span, Time};

/// Program of a host.
#[derive(Clone, Debug)]
pub(in crate::pm) enum Program {
    /// Sends each message back.
    Echo {
        /// Length of messages.
        bytes: u64,
    },
    /// Sends a message, waits for its return, and repeats.
    Ping {
        /// The node that sends it back.
        to: usize,
        /// Length of messages.
        bytes: u64,
        /// Number of rounds.
        rounds: u32,
    },
    /// Sends messages as fast as possible, each to all of several nodes.
    Stream {
        /// The receivers.
        to: Vec<usize>,
        /// Length of messages.
        bytes: u64,
        /// Number of messages for each receiver.
        count: u32,
        /// How multicast handles them.
        copies: Copies,
    },
    /// Receives messages.
    Sink {
        /// Number of messages to wait for.
        count: u32,
        /// Time before which it receives none.
        from: Time,
    },
}

/// Current action of the host.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Take,
    Post(Command),
}

/// A host's processor with its program.
pub(super) struct Host {
    program: Program,
    doing: Option<Deed>,
    /// Messages in memory that the host has not received.
    waiting: u32,
    /// Messages without an answer so far.
    unanswered: u64,
    /// Number of sends that the program has begun.
    begun: u32,
    /// Times at which the host received each message.
    pub(super) received: Vec<Time>,
}

impl Host {
    pub(super) fn new(program: Program) -> Self {
        Self { program, doing: None, waiting: 0, unanswered: 0, begun: 0, received: Vec::new() }
    }

    pub(super) fn is_done(&self) -> bool {
        match &self.program {
            Program::Echo { .. } | Program::Stream { .. } => true,
            Program::Ping { rounds, .. } => self.received.len() == *rounds as usize,
            Program::Sink { count, .. } => self.received.len() == *count as usize,
        }
    }

    /// The next send, if the program has one.
    fn next_send(&self) -> Option<Command> {
        let received = self.received.len() as u32;
        match &self.program {
            Program::Echo { bytes } => {
                let is_due = self.begun < received;
                is_due.then_some(Command { to: 0, bytes: *bytes, buffer: u64::from(self.begun) })
            }
            Program::Ping { to, bytes, rounds } => {
                let is_due = self.begun == received && self.begun < *rounds;
                is_due.then_some(Command { to: *to, bytes: *bytes, buffer: u64::from(self.begun) })
            }
            Program::Stream { to, bytes, count, copies } => {
                let (message, index) = (self.begun / to.len() as u32, self.begun as usize);
                let buffer = match copies {
                    Copies::Fetched => self.begun,
                    Copies::Resident => message,
                };
                let command =
                    Command { to: to[index % to.len()], bytes: *bytes, buffer: u64::from(buffer) };
                (message < *count).then_some(command)
            }
            Program::Sink { .. } => None,
        }
    }

    /// Time from which the host may receive messages.
    fn takes_from(&self) -> Time {
        match self.program {
            Program::Sink { from, .. } => from,
            _ => Time::ZERO,
        }
    }

    fn next_deed(&self, now: Time, unanswered_max: u64) -> Option<Deed> {
        if self.waiting > 0 && now >= self.takes_from() {
            return Some(Deed::Take);
        }
        self.next_send().filter(|_| self.unanswered < unanswered_max).map(Deed::Post)
    }
}

impl World {
    /// Starts the next action of a host that is idle.
    pub(super) fn kick_host(&mut self, node: usize) {
        if self.nodes[node].host.doing.is_some() {
            return;
        }
        let most = self.constants.buffers.send_records;
        let Some(deed) = self.nodes[node].host.next_deed(self.now, most) else { return };
        self.nodes[node].host.doing = Some(deed);
        let span = match deed {
            Deed::Take => self.constants.host.receive,
            Deed::Post(_) => self.constants.host.send,
        };
        self.at(self.now + span, node, What::HostWorked);
    }

    /// A message has reached memory.
    pub(super) fn notify_host(&mut self, node: usize) {
        let host = &mut self.nodes[node].host;
        host.waiting += 1;
        let from = host.takes_from();
        if from > self.now {
            self.at(from, node, What::HostLooks);
        }
        self.kick_host(node);
    }

    /// A message of the host has been answered, so its buffer is free.
    pub(super) fn on_answered(&mut self, node: usize) {
        self.nodes[node].host.unanswered -= 1;
        self.kick_host(node);
    }

    pub(super) fn on_host_worked(&mut self, node: usize) {
        let (host, word) = (&self.constants.host, self.constants.bus.write_word);
        let span: Span = match self.nodes[node].host.doing.expect("it did something") {
            Deed::Take => word * host.return_words,
            Deed::Post(_) => word * host.descriptor_words,
        };
        let end = self.nodes[node].bus.serve(self.now, span);
        self.at(end, node, What::HostDone);
    }

    pub(super) fn on_host_done(&mut self, node: usize) {
        match self.nodes[node].host.doing.take().expect("it did something") {
            Deed::Take => self.take_message(node),
            Deed::Post(command) => {
                self.nodes[node].host.begun += 1;
                self.nodes[node].host.unanswered += 1;
                self.nodes[node].nic.commands.push_back(command);
                self.kick_nic(node);
            }
        }
        self.kick_host(node);
    }

    /// Receives the oldest message and returns its buffer, so that a rejected message can be
    /// retransmitted.
    fn take_message(&mut self, node: usize) {
        let now = self.now.instant();
        let pattern = Pattern { communicator: super::nic::COMMUNICATOR, source: None, tag: None };
        let capacity = self.constants.buffers.message_bytes;
        let Node { endpoint, host, .. } = &mut self.nodes[node];
        let posted = endpoint.channel_mut(0).receive(now, pattern, capacity);
        posted.expect("nobody has failed");
        while endpoint.poll_move().is_some() {}
        let event = endpoint.poll_event(now);
        let is_taken =
            matches!(event, Some(EndpointEvent::Channel(0, ChannelEvent::Received { .. })));
        assert!(is_taken, "a message that is in memory can be taken: {event:?}");
        host.waiting -= 1;
        host.received.push(self.now);
        self.kick_nic(node);
    }
}
