//! The nodes in virtual time: each packet through each resource.
//!
//! ```text
//!  host: write a frame ─▶ send queue ─▶ NIC: copy, copy, ... ─▶ wire ─▶ NIC: into its memory
//!  (credits for all,      (bounded)        (one after the other)              │ meanwhile
//!   a frame is free)                                                          ▼
//!                         host: take it in ◀─ host's memory ◀─ NIC: move it to the host
//! ```
//!
//! A receiver receives a packet while it is being sent [MS §2]: the work of its NIC begins with the
//! transmission. An engine that nothing blocks takes the packet off the network as fast as it is
//! sent; the remaining NIC time is work of its processor, which sends nothing meanwhile if there is
//! only one processor.

use super::machine::Machine;
use super::node::{Action, Frame, Host, Job, Kind, Nic, Node, Outgoing, Packet, To, Work};
use super::plan::Plan;
use omnes_sim::engine::{Queue, Span, Time};
use omnes_sim::testbed::Processors;

/// How a node sends to its children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Primitive {
    /// By one frame for all children [MS-R8].
    MultiSend,
    /// By a separate message to each child [MS-R22].
    Unicast,
}

/// When a node forwards what it receives [MS-R21].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Forwarding {
    /// When the node has the whole message.
    WholeMessage,
    /// Packet by packet, by streams that stay open meanwhile without a lock.
    Packetwise,
}

/// Parameters of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Test<'a> {
    pub(super) machine: Machine,
    pub(super) plan: &'a Plan,
    pub(super) bytes: u64,
    pub(super) primitive: Primitive,
    pub(super) forwarding: Forwarding,
    /// The node that answers the root.
    pub(super) replier: usize,
    /// Each iteration begins when the root has the answer of the previous one.
    pub(super) iterations: u32,
}

#[derive(Debug)]
enum Event {
    /// A host has finished its action.
    Host(usize),
    /// A NIC has finished its work.
    Nic(usize),
    /// The head of a packet has reached a NIC.
    Head(usize, Packet),
    /// A packet is in a NIC's memory.
    Inside(usize, Packet),
    /// A packet is in a host's memory.
    Moved(usize, Packet),
}

/// See the module header.
#[derive(Debug)]
pub(super) struct World<'a> {
    test: Test<'a>,
    sizes: Vec<u64>,
    pub(super) nodes: Vec<Node>,
    queue: Queue<Event>,
    now: Time,
    replies: u32,
}

impl<'a> World<'a> {
    pub(super) fn new(test: Test<'a>) -> Self {
        let count = test.plan.nodes();
        let host = || Host::new(count, test.machine.credits);
        let nodes = (0..count).map(|_| Node { host: host(), nic: Nic::default() }).collect();
        let sizes = test.machine.packets(test.bytes);
        Self { test, sizes, nodes, queue: Queue::new(), now: Time::ZERO, replies: 0 }
    }

    /// Runs until the root has the last answer, or nothing can happen any more.
    ///
    /// Returns the mean time of an iteration; `None` if the run stopped early.
    pub(super) fn run(&mut self) -> Option<Span> {
        self.send_message(0);
        self.step_host(0);
        while self.replies < self.test.iterations {
            let (at, event) = self.queue.pop()?;
            self.now = Time::from_ps(at);
            self.handle(event);
        }
        Some(Span::from_ps(self.now.as_ps() / u64::from(self.test.iterations)))
    }

    /// Runs until nothing happens any more; returns the time at which the last receiver had the
    /// message.
    #[cfg(test)]
    pub(super) fn run_out(&mut self) -> Option<Time> {
        self.run()?;
        while let Some((at, event)) = self.queue.pop() {
            self.now = Time::from_ps(at);
            self.handle(event);
        }
        self.nodes.iter().filter_map(|node| node.host.delivered).max()
    }

    fn after(&mut self, span: Span, event: Event) {
        self.queue.push((self.now + span).as_ps(), event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Host(node) => self.finish_action(node),
            Event::Nic(node) => self.finish_work(node),
            Event::Head(node, packet) => {
                self.after(self.network(packet.bytes), Event::Inside(node, packet));
            }
            Event::Inside(node, packet) => self.take_inside(node, packet),
            Event::Moved(node, packet) => self.hand_over(node, packet),
        }
    }

    // The host.

    /// Queues the whole message for all children of `node`.
    fn send_message(&mut self, node: usize) {
        let whole = self.test.forwarding == Forwarding::WholeMessage;
        if self.test.primitive == Primitive::Unicast && whole {
            // The streams follow one another.
            for child in self.test.plan.children(node) {
                let stream = self.sizes.iter().map(|bytes| data(To::One(child), *bytes));
                self.nodes[node].host.outgoing.extend(stream);
            }
            return;
        }
        for index in 0..self.sizes.len() {
            self.send_packet(node, index);
        }
    }

    /// Queues one packet of the message for all children of `node`.
    fn send_packet(&mut self, node: usize, index: usize) {
        let (bytes, plan) = (self.sizes[index], self.test.plan);
        let outgoing = &mut self.nodes[node].host.outgoing;
        match self.test.primitive {
            Primitive::MultiSend if plan.child(node, 0).is_some() => {
                outgoing.push_back(data(To::Children, bytes));
            }
            Primitive::MultiSend => {}
            Primitive::Unicast => {
                outgoing.extend(plan.children(node).map(|child| data(To::One(child), bytes)));
            }
        }
    }

    /// Starts the next action of an idle host, if any is permitted.
    fn step_host(&mut self, node: usize) {
        if self.nodes[node].host.doing.is_some() {
            return;
        }
        let Some(action) = self.choose_action(node) else { return };
        let machine = &self.test.machine;
        let span = match &action {
            Action::Write(frame) => machine.send.of(frame.outgoing.bytes),
            Action::Take(packet) => machine.host_receive.of(packet.bytes),
        };
        self.nodes[node].host.doing = Some(action);
        self.after(span, Event::Host(node));
    }

    /// Next action of an idle host: return credits, continue a stream, receive a packet.
    ///
    /// While a stream is open under its lock, a host receives only packets that carry nothing but
    /// credits, and these only when the stream is blocked [MS-R6, R14].
    fn choose_action(&mut self, node: usize) -> Option<Action> {
        if self.has_frame(node)
            && let Some(to) = self.nodes[node].host.take_return()
        {
            let credits = Outgoing { kind: Kind::Credits, to: To::One(to), bytes: 0 };
            return Some(Action::Write(self.begin_frame(node, credits)));
        }
        if let Some(outgoing) = self.nodes[node].host.outgoing.front().copied() {
            if self.has_frame(node) && self.has_credits(node, outgoing.to) {
                self.nodes[node].host.outgoing.pop_front();
                return Some(Action::Write(self.begin_frame(node, outgoing)));
            }
            if self.test.forwarding == Forwarding::WholeMessage {
                return self.nodes[node].host.take_credits().map(Action::Take);
            }
        }
        self.nodes[node].host.arrived.pop_front().map(Action::Take)
    }

    fn has_frame(&self, node: usize) -> bool {
        self.nodes[node].nic.frames_used < self.test.machine.frames
    }

    /// True if every destination has a credit [MS-R12]; consumes none.
    fn has_credits(&self, node: usize, to: To) -> bool {
        let credits = &self.nodes[node].host.credits;
        match to {
            To::One(to) => credits[to] > 0,
            To::Children => self.test.plan.children(node).all(|child| credits[child] > 0),
        }
    }

    /// Takes the credits and a frame, which must be available, and the credits owed to the
    /// destinations.
    fn begin_frame(&mut self, node: usize, outgoing: Outgoing) -> Frame {
        let plan = self.test.plan;
        let Node { host, nic } = &mut self.nodes[node];
        nic.frames_used += 1;
        host.bytes_written += outgoing.bytes;
        let mut frame = Frame { outgoing, first: node, credits: Vec::new() };
        let mut add = |to: usize| {
            if outgoing.kind != Kind::Credits {
                host.credits[to] -= 1;
            }
            if frame.credits.is_empty() {
                frame.first = to;
            }
            frame.credits.push(host.take_owed(to));
        };
        match outgoing.to {
            To::One(to) => add(to),
            To::Children => plan.children(node).for_each(add),
        }
        frame
    }

    fn finish_action(&mut self, node: usize) {
        match self.nodes[node].host.doing.take() {
            Some(Action::Write(frame)) => {
                self.nodes[node].nic.jobs.push_back(Job::Send(frame));
                self.step_nic(node);
            }
            Some(Action::Take(packet)) => self.take_in(node, packet),
            None => unreachable!("only what was begun can end"),
        }
        self.step_host(node);
    }

    /// The host has received a packet: handles its credits, then its content.
    fn take_in(&mut self, node: usize, packet: Packet) {
        let owed_max = self.test.machine.credits_owed_max;
        let host = &mut self.nodes[node].host;
        host.credits[packet.from] += packet.credits;
        if packet.kind == Kind::Credits {
            return;
        }
        host.owed[packet.from] += 1;
        if host.owed[packet.from] == owed_max {
            host.returns.push_back(packet.from);
        }
        match packet.kind {
            Kind::Data => self.take_data(node),
            _ => self.take_reply(),
        }
    }

    fn take_data(&mut self, node: usize) {
        let index = self.nodes[node].host.received;
        if self.test.forwarding == Forwarding::Packetwise {
            self.send_packet(node, index);
        }
        self.nodes[node].host.received += 1;
        if index + 1 < self.sizes.len() {
            return;
        }
        let host = &mut self.nodes[node].host;
        host.received = 0;
        host.delivered.get_or_insert(self.now);
        if self.test.forwarding == Forwarding::WholeMessage {
            self.send_message(node);
        }
        if node == self.test.replier {
            let reply = Outgoing { kind: Kind::Reply, to: To::One(0), bytes: 0 };
            self.nodes[node].host.outgoing.push_back(reply);
        }
    }

    fn take_reply(&mut self) {
        self.replies += 1;
        if self.replies < self.test.iterations {
            self.send_message(0);
        }
    }

    // The NIC.

    /// Part of the NIC's time that overlaps the transmission.
    fn network(&self, bytes: u64) -> Span {
        let machine = &self.test.machine;
        machine.nic_receive.of(bytes).min(machine.transmit.of(bytes))
    }

    fn take_inside(&mut self, node: usize, packet: Packet) {
        if self.test.machine.processors == Processors::One {
            self.nodes[node].nic.jobs.push_back(Job::Move(packet));
            return self.step_nic(node);
        }
        let span = self.moving(packet.bytes);
        let moved = self.nodes[node].nic.mover.serve(self.now, span);
        self.queue.push(moved.as_ps(), Event::Moved(node, packet));
    }

    /// Time to the host's memory: the remaining part of the NIC's time.
    fn moving(&self, bytes: u64) -> Span {
        let whole = self.test.machine.nic_receive.of(bytes);
        Span::from_ps(whole.as_ps() - self.network(bytes).as_ps())
    }

    fn hand_over(&mut self, node: usize, packet: Packet) {
        self.nodes[node].host.arrived.push_back(packet);
        self.step_host(node);
    }

    /// Starts the next job of an idle NIC.
    fn step_nic(&mut self, node: usize) {
        if self.nodes[node].nic.doing.is_some() {
            return;
        }
        match self.nodes[node].nic.jobs.pop_front() {
            Some(Job::Send(frame)) => {
                let first = frame.first;
                self.send_copy(node, frame, 0, first);
            }
            Some(Job::Move(packet)) => {
                self.nodes[node].nic.doing = Some(Work::Move(packet));
                self.after(self.moving(packet.bytes), Event::Nic(node));
            }
            None => {}
        }
    }

    /// Starts the transmission of a copy, and only then looks for the next destination [MS-R10].
    fn send_copy(&mut self, node: usize, frame: Frame, place: usize, to: usize) {
        let machine = self.test.machine;
        let Outgoing { kind, bytes, .. } = frame.outgoing;
        let packet = Packet { kind, from: node, bytes, credits: frame.credits[place] };
        let nic = &mut self.nodes[node].nic;
        nic.copies += 1;
        nic.doing = Some(Work::Copy { frame, place, next: None });
        self.after(machine.latency, Event::Head(to, packet));
        let span = match self.look_for_next(node) {
            Some(_) => machine.copying(bytes),
            None => machine.transmit.of(bytes),
        };
        self.after(span.max(machine.look), Event::Nic(node));
    }

    /// The destination of the copy after the current one, according to the firmware.
    fn look_for_next(&mut self, node: usize) -> Option<usize> {
        let plan = self.test.plan;
        let nic = &mut self.nodes[node].nic;
        let Some(Work::Copy { frame, place, next }) = &mut nic.doing else { return None };
        if frame.outgoing.to == To::Children {
            *next = plan.child(node, *place + 1);
        }
        *next
    }

    fn finish_work(&mut self, node: usize) {
        match self.nodes[node].nic.doing.take() {
            Some(Work::Copy { frame, place, next: Some(next) }) => {
                return self.send_copy(node, frame, place + 1, next);
            }
            Some(Work::Copy { .. }) => {
                self.nodes[node].nic.frames_used -= 1;
                self.step_host(node);
            }
            Some(Work::Move(packet)) => self.hand_over(node, packet),
            None => unreachable!("only what was begun can end"),
        }
        self.step_nic(node);
    }
}

fn data(to: To, bytes: u64) -> Outgoing {
    Outgoing { kind: Kind::Data, to, bytes }
}
