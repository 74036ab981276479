//! Worms: packets that hold the links behind their heads, flit by flit.
//!
//! Events on a link and at the switch at its end:
//!
//! ```text
//!   output free ──▶ flit leaves ──▶ flit arrives in the slack buffer ──▶ head: 150 ns, then its
//!        ▲               │                    │                          output, or a place in
//!        └── flit time ──┘        too full: stop, back over the cable    the queue for it
//! ```
//!
//! An output belongs to one packet from its head to its tail. A flit whose departure brings a
//! buffer down to the lower mark lets the sender continue. Queues for outputs are first come, first
//! served.

use std::collections::VecDeque;

use omnes_topo::network::{HostId, LinkId, Network, Node};

use super::config::{EARLY_BYTES, Interface, Wires};
use super::nic::Nic;
use super::routes::Routes;
use crate::engine::{Queue, Span, Time};

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A flit has reached the end of the link.
    Arrive { link: u32, packet: u32, is_head: bool },
    /// The link has carried a flit.
    Free { link: u32 },
    /// The packet at the front of the link's buffer has its output determined.
    Routed { link: u32 },
    /// The stop signal reaches the sender at the start of the link.
    Stop { link: u32 },
    /// The go signal reaches the sender at the start of the link.
    Go { link: u32 },
    /// The first bytes of a packet have reached an interface.
    Early { host: u32, packet: u32 },
    /// A packet in transit is claimed.
    Claimed { host: u32, packet: u32 },
    /// A packet of this host has reached its interface.
    Posted { host: u32, packet: u32 },
    /// The sending DMA of an interface is set up.
    Ready { host: u32 },
    /// A packet has reached its host's memory.
    Delivered { host: u32, packet: u32 },
    /// A host has a new packet to send.
    Born { host: u32 },
}

/// A packet between two interfaces, or in one.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub route: u32,
    /// Index of the route's piece that the packet's head is on; `hop` is the index of the link in
    /// it.
    pub piece: u16,
    pub hop: u16,
    pub payload_bytes: u32,
    pub born: Time,
}

/// The two ends of a directed link.
#[derive(Clone, Debug, Default)]
struct Link {
    /// At the start of the link: the buffer that holds it, by the link that fills that buffer.
    owner: Option<u32>,
    is_busy: bool,
    is_stopped: bool,
    is_ending: bool,
    /// The next flit is a head.
    is_fresh: bool,
    waiting: VecDeque<u32>,
    /// At the end, at a switch: number of flits in the buffer; `packets` are the packets that they
    /// belong to.
    filled: u32,
    has_asked_to_stop: bool,
    packets: VecDeque<u32>,
    /// Flits of the first packet that have not left the buffer.
    left: u32,
    /// The output that the first packet holds.
    output: Option<u32>,
}

/// Counters of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets created.
    pub born: u64,
    /// Packets delivered to the memory of their destination host.
    pub delivered: u64,
    /// Bytes of the delivered packets, without heads.
    pub delivered_bytes: u64,
    /// Sum over delivered packets of the time since creation.
    pub latency: Span,
    /// Number of times that an in-transit host forwarded a packet.
    pub forwarded: u64,
    /// Number of these times that the packet had to wait for the sender.
    pub waited: u64,
    /// Packets that found no buffer and were lost.
    pub overflowed: u64,
    /// Most packets in transit in one interface at a time.
    pub in_transit_max: u32,
}

/// An event recorded for a test or a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Time.
    pub at: Time,
    /// Host.
    pub host: HostId,
    /// Kind of event.
    pub what: What,
}

/// Event at an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The first four bytes of a packet had arrived.
    Early,
    /// The first byte of a packet left.
    Head,
    /// The last byte of a packet arrived.
    Tail,
    /// A packet was in the host's memory.
    Delivered,
}

/// A network with its traffic.
pub(super) struct Fabric<'a> {
    pub network: &'a Network,
    pub routes: &'a Routes,
    pub wires: Wires,
    pub interface: Interface,
    pub queue: Queue<Event>,
    pub now: Time,
    links: Vec<Link>,
    pub nics: Vec<Nic>,
    pub packets: Vec<Packet>,
    spare: Vec<u32>,
    pub counters: Counters,
    /// Events at interfaces, if requested.
    pub marks: Option<Vec<Mark>>,
    pub events: u64,
}

impl<'a> Fabric<'a> {
    pub fn new(
        network: &'a Network,
        routes: &'a Routes,
        wires: Wires,
        interface: Interface,
    ) -> Self {
        Self {
            network,
            routes,
            wires,
            interface,
            queue: Queue::new(),
            now: Time::ZERO,
            links: vec![Link::default(); network.links() as usize],
            nics: vec![Nic::default(); network.hosts() as usize],
            packets: Vec::new(),
            spare: Vec::new(),
            counters: Counters::default(),
            marks: None,
            events: 0,
        }
    }

    pub fn after(&mut self, span: Span, event: Event) {
        self.queue.push((self.now + span).as_ps(), event);
    }

    pub fn at(&mut self, time: Time, event: Event) {
        self.queue.push(time.as_ps(), event);
    }

    pub fn mark(&mut self, host: u32, what: What) {
        let (at, host) = (self.now, HostId(host));
        if let Some(marks) = &mut self.marks {
            marks.push(Mark { at, host, what });
        }
    }

    /// Creates a packet for a route; returns its number.
    pub fn packet(&mut self, route: u32, payload_bytes: u32) -> u32 {
        self.counters.born += 1;
        let packet = Packet { route, piece: 0, hop: 0, payload_bytes, born: self.now };
        match self.spare.pop() {
            Some(number) => {
                self.packets[number as usize] = packet;
                number
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        }
    }

    /// Forgets a packet that has left the network.
    pub fn forget(&mut self, packet: u32) {
        self.spare.push(packet);
    }

    /// Number of packets between creation and delivery or loss.
    pub fn alive(&self) -> usize {
        self.packets.len() - self.spare.len()
    }

    /// Flits of a packet on the piece of its route where its head is.
    pub fn flits(&self, packet: u32) -> u32 {
        let packet = &self.packets[packet as usize];
        let piece = &self.routes.pieces[packet.route as usize][usize::from(packet.piece)];
        self.wires.flits(piece.head_bytes + packet.payload_bytes)
    }

    /// Removes and returns the next event up to and including `end`, if any.
    pub fn step(&mut self, end: Time) -> Option<Event> {
        if Time::from_ps(self.queue.next_at()?) > end {
            return None;
        }
        let (at, event) = self.queue.pop()?;
        self.now = Time::from_ps(at);
        self.events += 1;
        Some(event)
    }

    /// Runs until nothing moves.
    pub fn run_empty(&mut self) {
        while let Some(event) = self.step(Time::from_ps(u64::MAX)) {
            self.handle(event);
        }
    }

    /// Handles an event of links or interfaces.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive { link, packet, is_head } => match self.network.end(LinkId(link)) {
                Node::Switch(_) => self.on_flit(link, packet, is_head),
                Node::Host(host) => self.on_flit_received(host.0),
            },
            Event::Free { link } => self.on_free(link),
            Event::Routed { link } => self.on_routed(link),
            Event::Stop { link } => self.links[link as usize].is_stopped = true,
            Event::Go { link } => {
                self.links[link as usize].is_stopped = false;
                self.pump(link);
            }
            Event::Early { host, packet } => self.on_early(host, packet),
            Event::Claimed { host, packet } => self.on_claimed(host, packet),
            Event::Posted { host, packet } => self.on_posted(host, packet),
            Event::Ready { host } => self.on_ready(host),
            Event::Delivered { host, packet } => self.on_delivered(host, packet),
            Event::Born { .. } => {}
        }
    }

    /// A flit has arrived in the slack buffer at the end of `link`.
    fn on_flit(&mut self, link: u32, packet: u32, is_head: bool) {
        let full = self.wires.flits(self.wires.slack_bytes);
        let stop = self.wires.flits(self.wires.stop_bytes);
        let input = &mut self.links[link as usize];
        input.filled += 1;
        // Marks are set so that the flits in flight when the signal reaches the sender still fit.
        assert!(input.filled <= full, "a slack buffer overflowed");
        let asks = input.filled >= stop && !input.has_asked_to_stop;
        input.has_asked_to_stop |= asks;
        if is_head {
            input.packets.push_back(packet);
        }
        let (is_first, output) = (is_head && input.packets.len() == 1, input.output);
        if asks {
            self.after(self.wires.cable, Event::Stop { link });
        }
        if is_first {
            self.begin(link, packet);
        }
        if let Some(output) = output {
            self.pump(output);
        }
    }

    /// The head of `packet` is at the front of the buffer of `link`.
    fn begin(&mut self, link: u32, packet: u32) {
        self.links[link as usize].left = self.flits(packet);
        // The model waits for the whole flit, but the switch reads its first byte.
        let rest = self.wires.routing.as_ps().saturating_sub(self.wires.flit().as_ps());
        self.after(Span::from_ps(rest), Event::Routed { link });
    }

    fn on_routed(&mut self, link: u32) {
        let packet = self.links[link as usize].packets[0];
        let packet = &mut self.packets[packet as usize];
        packet.hop += 1;
        let piece = &self.routes.pieces[packet.route as usize][usize::from(packet.piece)];
        let output = piece.links[usize::from(packet.hop)];
        let out = &mut self.links[output as usize];
        if out.owner.is_none() {
            self.connect(output, link);
        } else {
            out.waiting.push_back(link);
        }
    }

    fn connect(&mut self, output: u32, input: u32) {
        let out = &mut self.links[output as usize];
        out.owner = Some(input);
        out.is_fresh = true;
        self.links[input as usize].output = Some(output);
        self.pump(output);
    }

    /// Sends the next flit over `link`, if there is one and the link is available.
    pub fn pump(&mut self, link: u32) {
        let out = &self.links[link as usize];
        if out.is_busy || out.is_stopped {
            return;
        }
        let host = LinkId(link).index() / 2;
        let is_uplink = link.is_multiple_of(2) && host < self.nics.len();
        let flit = if is_uplink { self.take_sent(host as u32) } else { self.take(link) };
        let Some(Flit { packet, is_head, is_tail }) = flit else { return };
        let (out, flit, cable) =
            (&mut self.links[link as usize], self.wires.flit(), self.wires.cable);
        out.is_busy = true;
        out.is_ending = is_tail;
        if is_head && let Node::Host(host) = self.network.end(LinkId(link)) {
            let early = self.wires.byte * u64::from(EARLY_BYTES);
            self.after(cable + early, Event::Early { host: host.0, packet });
        }
        self.after(flit, Event::Free { link });
        self.after(flit + cable, Event::Arrive { link, packet, is_head });
    }

    /// Removes a flit from the buffer that holds `output`.
    fn take(&mut self, output: u32) -> Option<Flit> {
        let out = &mut self.links[output as usize];
        let (link, is_head) = (out.owner?, out.is_fresh);
        let go = self.wires.flits(self.wires.go_bytes);
        let first = self.links[link as usize].packets.front().copied()?;
        let input = &mut self.links[link as usize];
        if input.filled == 0 || input.output != Some(output) {
            return None;
        }
        input.filled -= 1;
        input.left -= 1;
        let goes_on = input.has_asked_to_stop && input.filled <= go;
        input.has_asked_to_stop &= !goes_on;
        let is_tail = input.left == 0;
        if is_tail {
            input.packets.pop_front();
            input.output = None;
        }
        let next = input.packets.front().copied().filter(|_| is_tail);
        if goes_on {
            self.after(self.wires.cable, Event::Go { link });
        }
        if let Some(next) = next {
            self.begin(link, next);
        }
        self.links[output as usize].is_fresh = false;
        Some(Flit { packet: first, is_head, is_tail })
    }

    fn on_free(&mut self, link: u32) {
        let out = &mut self.links[link as usize];
        out.is_busy = false;
        if std::mem::take(&mut out.is_ending) {
            out.owner = None;
            let next = out.waiting.pop_front();
            if let Some(input) = next {
                self.connect(link, input);
            }
            if link.is_multiple_of(2) && (link / 2) < self.network.hosts() {
                self.on_sent(link / 2);
            }
        } else {
            self.pump(link);
        }
    }
}

/// A flit in flight.
pub(super) struct Flit {
    pub packet: u32,
    pub is_head: bool,
    pub is_tail: bool,
}
