//! The LANai's processor: one loop that performs the next task, at a cost in instructions.
//!
//! Finished transfers come first, since they free buffers; then arrived packets; then packets to be
//! sent. So no answer is sent while messages are in SRAM, and a run of adjacent messages gets one
//! answer for all [PM-R15].

use super::constants::Constants;
use super::dma::Way;
use super::{Design, Node, Packet, Sending, What, World};
use omnes_proto::channel::{Event as ChannelEvent, Message, Reply};
use omnes_proto::endpoint::Event as EndpointEvent;
use omnes_proto::packet::{Destination, Head, SendId, Source, Transmit};
use omnes_sim::engine::Time;
use omnes_wire::{CommunicatorId, Rank};
use std::collections::VecDeque;

pub(super) const COMMUNICATOR: CommunicatorId = CommunicatorId(0);

/// A message that a host wants to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Command {
    pub(super) to: usize,
    pub(super) bytes: u64,
    /// The host's buffer: equal values mean the same message.
    pub(super) buffer: u64,
}

/// An engine that has finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Engine {
    /// A packet has left; its buffer is free.
    Wire,
    /// A packet is in SRAM and may leave.
    Down,
    /// A packet is in memory; its buffer is free.
    Up,
}

/// Current task of the processor.
enum Work {
    Finish(Engine),
    Receive(Box<Packet>),
    Deadline,
    /// Sending a packet whose data are in SRAM already, or that has none.
    Again(Box<Packet>),
    /// Sending a packet whose data must be fetched.
    Fetch(Box<Packet>),
}

/// State of the NIC besides the endpoint.
pub(super) struct Nic {
    work: Option<Work>,
    finished: VecDeque<Engine>,
    arrived: VecDeque<Box<Packet>>,
    pub(super) commands: VecDeque<Command>,
    /// The host's commands, by the endpoint's id.
    messages: Vec<Option<Command>>,
    send_free: u32,
    pub(super) receive_free: u32,
    /// The message in the only send buffer.
    resident: Option<u64>,
    deadline_at: Option<Time>,
    is_deadline_due: bool,
}

impl Nic {
    /// # Panics
    /// If the buffers do not fit into SRAM in addition to program and tables.
    pub(super) fn new(constants: &Constants, design: Design) -> Self {
        let (send_free, receive_free) = (design.sending.buffers(), design.receiving.buffers());
        let taken = sram_bytes(constants, send_free + receive_free);
        assert!(taken <= constants.nic.sram_bytes, "{taken} bytes of SRAM are needed");
        Self {
            work: None,
            finished: VecDeque::new(),
            arrived: VecDeque::new(),
            commands: VecDeque::new(),
            messages: vec![None; constants.buffers.send_records as usize],
            send_free,
            receive_free,
            resident: None,
            deadline_at: None,
            is_deadline_due: false,
        }
    }
}

#[cfg(test)]
impl Nic {
    /// Packets that have arrived and not been processed.
    pub(super) fn arrived_count(&self) -> usize {
        self.arrived.len()
    }
}

/// SRAM needed with `packets` buffers of one packet each.
pub(super) fn sram_bytes(constants: &Constants, packets: u32) -> u64 {
    let Constants { nic, link, buffers, .. } = constants;
    let packet = buffers.message_bytes + link.frame_bytes;
    let sends = buffers.send_records * buffers.send_record_bytes;
    let receives = buffers.receive_records * buffers.receive_record_bytes;
    nic.program_bytes + sends + receives + packet * u64::from(packets)
}

impl World {
    /// Starts the next task of an idle processor.
    pub(super) fn kick_nic(&mut self, node: usize) {
        if self.nodes[node].nic.work.is_some() {
            return;
        }
        let Some(work) = self.next_work(node) else { return };
        let span = self.constants.nic.instruction * self.instructions(&work);
        self.nodes[node].nic.work = Some(work);
        self.at(self.now + span, node, What::NicDone);
    }

    fn instructions(&self, work: &Work) -> u64 {
        let nic = &self.constants.nic;
        let has_own_start = self.design.sending == Sending::Immediate;
        match work {
            // A filled buffer is sent; a free buffer is offered again.
            Work::Finish(_) => nic.dispatch + nic.engine,
            Work::Receive(packet) if packet.data_bytes == 0 => nic.dispatch + nic.flow,
            Work::Receive(_) | Work::Again(_) => nic.dispatch + nic.flow + nic.engine,
            Work::Deadline => nic.dispatch,
            // Two engines; without Immediate Sending the second is started when the first is done.
            Work::Fetch(_) if has_own_start => nic.dispatch + nic.flow + 2 * nic.engine,
            Work::Fetch(_) => nic.dispatch + nic.flow + nic.engine,
        }
    }

    fn next_work(&mut self, node: usize) -> Option<Work> {
        let nic = &mut self.nodes[node].nic;
        if let Some(engine) = nic.finished.pop_front() {
            return Some(Work::Finish(engine));
        }
        if let Some(packet) = nic.arrived.pop_front() {
            return Some(Work::Receive(packet));
        }
        if std::mem::take(&mut nic.is_deadline_due) {
            return Some(Work::Deadline);
        }
        self.next_send(node)
    }

    /// The next packet of the endpoint, if a buffer is free for it.
    fn next_send(&mut self, node: usize) -> Option<Work> {
        if self.nodes[node].nic.send_free == 0 {
            return None;
        }
        let now = self.now.instant();
        let mut head = Head::default();
        loop {
            if let Some(transmit) = self.nodes[node].endpoint.poll_transmit(now, &mut head) {
                return Some(self.sending(node, &transmit, head));
            }
            let Node { endpoint, nic, .. } = &mut self.nodes[node];
            let command = nic.commands.pop_front()?;
            let message = Message {
                to: Rank(command.to as u32),
                communicator: COMMUNICATOR,
                tag: 0,
                bytes: command.bytes,
                available: command.bytes,
                reply: Reply::Soon,
            };
            let id = endpoint.channel_mut(0).send(message).expect("hosts send to other nodes");
            nic.messages[id.0 as usize] = Some(command);
        }
    }

    fn sending(&mut self, node: usize, transmit: &Transmit, head: Head) -> Work {
        let Destination::Rank(Rank(to)) = transmit.to else {
            panic!("a channel sends to ranks, not to {:?}", transmit.to);
        };
        let nic = &mut self.nodes[node].nic;
        let Some(segment) = transmit.segment else {
            let answer = Packet { to: to as usize, head, data_bytes: 0 };
            return Work::Again(Box::new(answer));
        };
        let Source::Message(SendId(id)) = segment.source else {
            panic!("a channel sends messages, not {:?}", segment.source);
        };
        let command = nic.messages[id as usize].expect("a message stays until it is answered");
        let data_bytes = u64::from(segment.bytes);
        let packet = Box::new(Packet { to: to as usize, head, data_bytes });
        nic.send_free -= 1;
        let is_resident = nic.resident.replace(command.buffer) == Some(command.buffer);
        if is_resident && self.design.sending.buffers() == 1 {
            Work::Again(packet)
        } else {
            Work::Fetch(packet)
        }
    }

    pub(super) fn on_nic_done(&mut self, node: usize) {
        match self.nodes[node].nic.work.take().expect("it did something") {
            Work::Finish(Engine::Down) => self.release_filled(node),
            Work::Finish(Engine::Wire) => self.nodes[node].nic.send_free += 1,
            Work::Finish(Engine::Up) => self.free_receive_buffer(node),
            Work::Receive(packet) => self.receive(node, &packet),
            Work::Deadline => self.nodes[node].endpoint.handle_timeout(self.now.instant()),
            Work::Again(packet) => self.send_resident(node, packet),
            Work::Fetch(packet) => {
                self.start_dma(node, Way::Down, packet.data_bytes);
                self.send_filling(node, packet);
            }
        }
        self.collect_events(node);
        self.watch_deadline(node);
        self.kick_nic(node);
    }

    fn receive(&mut self, node: usize, packet: &Packet) {
        let now = self.now.instant();
        let head = packet.head.as_bytes();
        let bytes = head.len() + packet.data_bytes as usize;
        let endpoint = &mut self.nodes[node].endpoint;
        match endpoint.handle_packet(now, head, bytes) {
            Some(placement) => self.start_dma(node, Way::Up, placement.bytes as u64),
            None => self.free_receive_buffer(node), // an answer, or a message without a place
        }
    }

    fn free_receive_buffer(&mut self, node: usize) {
        self.nodes[node].nic.receive_free += 1;
        assert!(self.nodes[node].nic.receive_free <= self.design.receiving.buffers());
        self.admit(node);
    }

    fn collect_events(&mut self, node: usize) {
        while let Some(event) = self.nodes[node].endpoint.poll_event(self.now.instant()) {
            let EndpointEvent::Channel(0, ChannelEvent::Sent { id }) = event else {
                panic!("nothing fails here: {event:?}");
            };
            self.nodes[node].nic.messages[id.0 as usize] = None;
            self.on_answered(node);
        }
    }

    // ---- events of engines and clock --------------------------------------------------------

    fn finish(&mut self, node: usize, engine: Engine) {
        self.nodes[node].nic.finished.push_back(engine);
        self.kick_nic(node);
    }

    pub(super) fn on_wire_done(&mut self, node: usize) {
        self.finish(node, Engine::Wire);
    }

    pub(super) fn on_filled(&mut self, node: usize) {
        self.finish(node, Engine::Down);
    }

    /// A message is in memory: the host sees it immediately, the NIC when its processor is free.
    pub(super) fn on_raised(&mut self, node: usize) {
        self.notify_host(node);
        self.finish(node, Engine::Up);
    }

    pub(super) fn on_arrived(&mut self, node: usize, packet: Box<Packet>) {
        self.nodes[node].nic.arrived.push_back(packet);
        self.kick_nic(node);
    }

    fn watch_deadline(&mut self, node: usize) {
        let Node { endpoint, nic, .. } = &mut self.nodes[node];
        let Some(at) = endpoint.poll_timeout().map(Time::of) else { return };
        let at = at.max(self.now);
        if nic.deadline_at.is_none_or(|earlier| at < earlier) {
            nic.deadline_at = Some(at);
            self.at(at, node, What::Deadline);
        }
    }

    pub(super) fn on_deadline(&mut self, node: usize) {
        let now = self.now;
        let Node { endpoint, nic, .. } = &mut self.nodes[node];
        if nic.deadline_at.is_some_and(|at| at > now) {
            return; // an earlier one has taken its place
        }
        nic.deadline_at = None;
        let is_due = endpoint.poll_timeout().is_some_and(|at| Time::of(at) <= now);
        nic.is_deadline_due |= is_due;
        if !is_due {
            self.watch_deadline(node); // it has moved
        }
        self.kick_nic(node);
    }
}
