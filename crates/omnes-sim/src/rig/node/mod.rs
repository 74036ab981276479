//! One rank: its endpoint, its user memory, its socket buffer and its current activity.
//!
//! This is the rig's driver. It keeps the machines' contract to the letter, in each of the orders
//! that the contract allows ([`Draining`]), with single packets or runs ([`Runs`]), and checks that
//! the machines keep their side: nothing is placed outside of posted memory, nothing is sent from
//! memory that was given back.

mod barriers;
mod broadcasts;
mod messages;
mod probes;
mod runs;

pub use barriers::Looking;
pub(crate) use barriers::script_barriers;
pub(crate) use broadcasts::script_group;
pub use runs::Runs;

use crate::rig::ledger::{Ledger, Operation, State, Stream};
use crate::rig::memory::Memory;
use crate::rig::network::{InFlight, Network, Sent, SimEvent};
use crate::rig::program::Program;
use crate::rig::script::Step;
use crate::rig::trace::What;
use barriers::Barriers;
use broadcasts::Begun;
use omnes_proto::broadcast::{Broadcast, CastGroupConfig, GroupId};
use omnes_proto::channel::{Channel, Pattern, Reply};
use omnes_proto::endpoint::{Endpoint, Event};
use omnes_proto::limits::truesize;
use omnes_proto::packet::{Destination, HEAD_BYTES_MAX, Head, Placement, Target, Transmit};
use omnes_wire::{CommunicatorId, Instant, Rank};
use probes::Probes;
use runs::RUN_PACKETS;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Limit of packets and events handled in one go, beyond which a machine is taken to be in a loop.
const ROUNDS_MAX: u32 = 1_000_000;
/// Limit of timers that may be due at one instant.
const TIMERS_MAX: u32 = 10_000;
/// Delay before a rank that has stopped sending continues.
const SENDING_PAUSE: Duration = Duration::from_micros(1);
/// The communicator of scripts.
const SCRIPT_COMMUNICATOR: CommunicatorId = CommunicatorId(1);

/// The parts of the rig that are lent to a rank while it acts.
pub(crate) struct World<'a> {
    pub(crate) now: Instant,
    pub(crate) network: &'a mut Network,
    pub(crate) ledger: &'a mut Ledger,
    /// The first complaint of a checker.
    pub(crate) complaint: &'a mut Option<String>,
    pub(crate) previews: Previews,
    pub(crate) draining: Draining,
    pub(crate) runs: Runs,
    pub(crate) packet_time: Duration,
}

/// Order in which a rank drains its machines after an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Draining {
    /// All packets are sent before events are taken; repeated until nothing is left.
    PacketsFirst,
    /// Events are taken before packets are sent, and at most `packets_max` packets are sent before
    /// the rank checks for incoming ones. Socket drivers do the same.
    EventsFirst {
        /// Most packets sent at a time, at least 1.
        packets_max: u32,
    },
}

/// Whether a rank asks where data would be placed before it handles a packet, as socket drivers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Previews {
    /// Previews are asked for and compared with the placements.
    Compared,
    /// Previews are not asked for.
    Unused,
}

impl World<'_> {
    fn check(&mut self, rank: Rank, result: Result<(), String>) {
        if let Err(text) = result {
            self.network.trace.note(self.now, rank, format!("BROKEN {text}"));
            self.complaint.get_or_insert(format!("rank {rank}: {text}"));
        }
    }
}

/// Whether a rank is part of the job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    Member,
    /// A rank that counts as dead, as it is stopped for long, but runs until it hears so.
    Revenant,
    Dead,
    /// Left in good order, with or without all of its sent data having arrived by then.
    Left {
        has_delivered: bool,
    },
}

/// See the module header.
pub(crate) struct Node {
    pub(crate) rank: Rank,
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Vec<Memory>,
    socket: VecDeque<InFlight>,
    /// Truesize of the packets queued in the rank's own socket, the group's and the NIC's.
    socket_bytes: [u32; 3],
    /// Time from which the rank attends to the network again.
    attentive_at: Instant,
    /// Time until which the rank is stopped.
    resumes_at: Option<Instant>,
    wake_at: Option<Instant>,
    /// The rank has stopped sending before everything was sent.
    has_more: bool,
    pub(crate) membership: Membership,
    pub(crate) program: Program,
    pub(crate) probes: Probes,
    pub(crate) groups: BTreeMap<GroupId, Rc<CastGroupConfig>>,
    pub(crate) barriers: Barriers,
    /// Broadcasts of this rank in progress, by their number in the stream.
    casts: BTreeMap<Operation, usize>,
    pub(crate) failed: BTreeMap<Rank, Instant>,
    pub(crate) departed: BTreeMap<Rank, Instant>,
    pub(crate) excluded_by: BTreeMap<Rank, Instant>,
    pub(crate) stable_at: Vec<Option<Instant>>,
    /// Heads of the packets that are handed out.
    heads: Vec<Head>,
}

impl Node {
    pub(crate) fn new(rank: Rank, endpoint: Endpoint, pool_slots: u32, looking: Looking) -> Self {
        let channels = endpoint.channels().len();
        let of_channel = |_| Memory::of_channel(pool_slots);
        let of_broadcasts =
            endpoint.broadcast().map(|machine| Memory::of_broadcasts(machine.config().pool_slots));
        Self {
            rank,
            endpoint,
            memory: (0..channels).map(of_channel).chain(of_broadcasts).collect(),
            socket: VecDeque::new(),
            socket_bytes: [0; 3],
            attentive_at: Instant::ZERO,
            resumes_at: None,
            wake_at: None,
            has_more: false,
            membership: Membership::Member,
            program: Program::default(),
            probes: Probes::default(),
            groups: BTreeMap::new(),
            barriers: Barriers::new(looking),
            casts: BTreeMap::new(),
            failed: BTreeMap::new(),
            departed: BTreeMap::new(),
            excluded_by: BTreeMap::new(),
            stable_at: vec![None; channels],
            heads: vec![Head::default(); RUN_PACKETS],
        }
    }

    // ---- commands -------------------------------------------------------------------------

    /// True if no machine has anything left to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.endpoint.channels().iter().all(Channel::is_idle)
            && self.endpoint.broadcast().is_none_or(Broadcast::is_idle)
            && self.endpoint.collective().is_idle()
    }

    /// True if the other ranks should hear from this one and finish with it.
    pub(crate) fn is_member(&self) -> bool {
        self.membership == Membership::Member
    }

    /// False if the rank will never do anything again.
    pub(crate) fn acts(&self) -> bool {
        matches!(self.membership, Membership::Member | Membership::Revenant)
    }

    /// True if the rank has left in good order.
    pub(crate) fn has_left(&self) -> bool {
        matches!(self.membership, Membership::Left { .. })
    }

    pub(crate) fn look_away(&mut self, now: Instant, time: Duration) {
        self.attentive_at = self.attentive_at.max(now + time);
    }

    pub(crate) fn suspend(&mut self, world: &mut World, time: Duration) {
        self.look_away(world.now, time);
        self.resumes_at = Some(self.attentive_at);
        self.wake_when_attentive(world);
    }

    /// The rank must wake by itself even if nothing else wakes it.
    fn wake_when_attentive(&mut self, world: &mut World) {
        self.wake_at = Some(self.attentive_at);
        world.network.queue.push(self.attentive_at.as_ns(), SimEvent::Wake(self.rank));
    }

    // ---- in -------------------------------------------------------------------------------

    /// A packet reaches the socket buffer; false if the buffer is full.
    pub(crate) fn enqueue(&mut self, packet: InFlight, bytes_max: u32) -> bool {
        let charge = truesize(packet.bytes.len() as u32);
        let used = &mut self.socket_bytes[packet.way as usize];
        if *used + charge > bytes_max {
            return false;
        }
        *used += charge;
        self.socket.push_back(packet);
        true
    }

    /// Handles everything that is pending: packets, then timers.
    pub(crate) fn run(&mut self, world: &mut World) {
        if !self.acts() {
            return;
        }
        if self.resumes_at.take_if(|at| *at <= world.now).is_some() {
            self.endpoint.on_pause(world.now);
        }
        while self.attentive_at <= world.now {
            let taken = self.take_in_run(world).or_else(|| self.take_in_next(world));
            let Some(packets) = taken else { break };
            for packet in &packets {
                self.socket_bytes[packet.way as usize] -= truesize(packet.bytes.len() as u32);
            }
            if !world.packet_time.is_zero() {
                self.look_away(world.now, world.packet_time * packets.len() as u32);
            }
        }
        if self.attentive_at <= world.now {
            self.run_timers(world);
        }
        self.plan_wake(world);
    }

    fn run_timers(&mut self, world: &mut World) {
        self.drain(world);
        // In a loop, as a second rank may be found to have failed at the same time.
        for _ in 0..TIMERS_MAX {
            if self.endpoint.poll_timeout().is_none_or(|at| at > world.now) {
                return;
            }
            self.endpoint.handle_timeout(world.now);
            self.drain(world);
        }
        world.check(self.rank, Err("has a timer that never rests".to_owned()));
    }

    /// Handles the next packet of the socket.
    fn take_in_next(&mut self, world: &mut World) -> Option<Vec<InFlight>> {
        let packet = self.socket.pop_front()?;
        self.take_in(world, &packet);
        Some(vec![packet])
    }

    fn take_in(&mut self, world: &mut World, packet: &InFlight) {
        let sender = packet.from.unwrap_or(self.rank);
        world.network.trace.packet(world.now, What::Taken, sender, self.rank, &packet.bytes);
        let head = &packet.bytes[..packet.bytes.len().min(HEAD_BYTES_MAX)];
        let preview = match world.previews {
            Previews::Compared => self.endpoint.preview(head),
            Previews::Unused => None,
        };
        if let Some(preview) = &preview {
            let shown = self.memory[preview.channel].check_preview(preview);
            world.check(self.rank, shown);
        }
        let before = self.endpoint.counters().accepted;
        let placement = self.endpoint.handle_packet(world.now, head, packet.bytes.len());
        if self.endpoint.counters().accepted > before {
            self.note_accepted(world, packet);
        }
        if let (Some(preview), Some(placement)) = (preview, placement) {
            let Placement { target, offset, bytes, packet_offset, .. } = placement;
            let is_same = target == Target::Receive(preview.receive)
                && offset == preview.offset
                && bytes as u64 <= preview.bytes_max
                && packet_offset == preview.head_bytes;
            let text = || format!("{preview:?} but {placement:?}");
            world.check(self.rank, if is_same { Ok(()) } else { Err(text()) });
        }
        if let Some(placement) = placement {
            let placed = self.place(&placement, &packet.bytes);
            world.check(self.rank, placed);
        }
        self.drain(world);
        if let Some(placement) = placement {
            self.check_received(world, &placement);
        }
    }

    /// Checks that the bytes that the machines report as received are in place.
    fn check_received(&self, world: &mut World, last: &Placement) {
        let Placement { channel, target: Target::Receive(id), .. } = *last else { return };
        let bytes = match self.endpoint.channels().get(channel) {
            Some(channel) => channel.received_bytes(id),
            None => self.endpoint.broadcast().map_or(0, |machine| machine.received_bytes(id)),
        };
        world.check(self.rank, self.memory[channel].check_received(id, bytes));
    }

    /// The endpoint accepts a packet; complains unless a rank has sent the packet as it is.
    fn note_accepted(&mut self, world: &mut World, packet: &InFlight) {
        match packet.from {
            Some(from) if !packet.is_corrupt => {
                world.network.bounds.on_taken(from, self.rank, &packet.bytes);
                world.network.casts.on_taken(from, self.rank, &packet.bytes);
            }
            _ => {
                let text = "accepts a packet that no rank has sent so".to_owned();
                world.check(self.rank, Err(text));
            }
        }
    }

    fn place(&mut self, placement: &Placement, packet: &[u8]) -> Result<(), String> {
        let Placement { channel, target, offset, packet_offset, bytes } = *placement;
        let Some(data) = packet.get(packet_offset..packet_offset + bytes) else {
            return Err(format!("{placement:?} beyond a packet of {} bytes", packet.len()));
        };
        match target {
            Target::Receive(id) => self.memory[channel].place(id, offset, data),
            Target::Slot(slot) => self.memory[channel].fill_slot(slot, data),
        }
    }

    fn plan_wake(&mut self, world: &mut World) {
        let timer = self.endpoint.poll_timeout();
        let has_news = !self.socket.is_empty() || self.has_nic_news();
        let queued = has_news.then_some(self.attentive_at);
        let rest = self.has_more.then_some(world.now + SENDING_PAUSE);
        let Some(at) = timer.into_iter().chain(queued).chain(rest).min() else { return };
        let at = at.max(self.attentive_at).max(world.now);
        if self.wake_at.is_none_or(|planned| planned <= world.now || at < planned) {
            self.wake_at = Some(at);
            world.network.queue.push(at.as_ns(), SimEvent::Wake(self.rank));
        }
    }

    // ---- out ------------------------------------------------------------------------------

    /// Drains the machine after an input and advances the script, until neither has anything to do.
    pub(crate) fn drain(&mut self, world: &mut World) {
        for _ in 0..ROUNDS_MAX {
            self.apply_moves(world);
            if world.draining == Draining::PacketsFirst {
                self.send_packets(world, ROUNDS_MAX);
            }
            let is_shown = self.poll_pages(world);
            let is_news = self.take_events(world) || is_shown;
            if !is_news && !self.probe(world) && !self.take_step(world) {
                if let Draining::EventsFirst { packets_max } = world.draining {
                    self.has_more = self.send_packets(world, packets_max) == packets_max;
                }
                return;
            }
        }
        world.check(self.rank, Err("is never drained".to_owned()));
    }

    fn apply_moves(&mut self, world: &mut World) {
        while let Some((index, step)) = self.endpoint.poll_move() {
            let moved = self.memory[index].apply_move(&step);
            world.check(self.rank, moved);
        }
    }

    /// Sends at most `packets_max` packets; returns how many.
    fn send_packets(&mut self, world: &mut World, packets_max: u32) -> u32 {
        let mut sent = 0;
        while sent < packets_max {
            let Some(first) = self.endpoint.poll_transmit(world.now, &mut self.heads[0]) else {
                return sent;
            };
            let run = self.run_of(world, first, packets_max - sent);
            for (index, transmit) in run.iter().enumerate() {
                self.send_packet(world, transmit, index);
            }
            sent += run.len() as u32;
        }
        if packets_max == ROUNDS_MAX {
            world.check(self.rank, Err("never stops sending".to_owned()));
        }
        packets_max
    }

    /// Sends a packet whose head is at `index`.
    fn send_packet(&mut self, world: &mut World, transmit: &Transmit, index: usize) {
        let mut bytes = self.heads[index].as_bytes().to_vec();
        let head_bytes = bytes.len();
        if let Some(segment) = &transmit.segment {
            let parts = self.endpoint.coded_parts();
            match self.memory[transmit.channel].gather(segment, parts) {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(text) => world.check(self.rank, Err(text)),
            }
        }
        let (from, to) = (self.rank, transmit.to);
        let is_bounded = world.network.bounds.on_sent(from, to, &bytes);
        world.check(from, is_bounded);
        let is_right = world.network.casts.on_sent(from, to, &bytes);
        world.check(from, is_right);
        let sent = Sent { from, to, bytes, head_bytes };
        match to {
            Destination::Nic { .. } | Destination::Doorbell { .. } => {
                self.send_through_nic(world, &sent);
            }
            Destination::Rank(_) | Destination::Group => self.put_on_wire(world, sent),
        }
    }

    fn take_events(&mut self, world: &mut World) -> bool {
        let mut is_news = false;
        while let Some(event) = self.endpoint.poll_event(world.now) {
            is_news = true;
            world.network.trace.note(world.now, self.rank, format!("{event:?}"));
            let taken = self.take_event(world, event);
            world.check(self.rank, taken);
        }
        is_news
    }

    fn take_event(&mut self, world: &mut World, event: Event) -> Result<(), String> {
        match event {
            Event::Channel(channel, event) => self.take_channel_event(world, channel, event),
            Event::Broadcast(event) => self.take_broadcast_event(world, event),
            Event::Collective(event) => self.take_barrier_event(world, event),
            Event::PeerFailed(rank) => note_once(&mut self.failed, rank, world.now),
            Event::PeerDeparted(rank) => note_once(&mut self.departed, rank, world.now),
            Event::Excluded { by } => {
                self.excluded_by.entry(by).or_insert(world.now);
                if self.membership == Membership::Revenant {
                    self.membership = Membership::Dead;
                }
                Ok(())
            }
        }
    }

    fn fail(&mut self, world: &mut World, operation: Operation) {
        world.ledger.settle(operation, State::Failed(world.now));
        self.program.on_failed(operation);
    }

    // ---- the script -----------------------------------------------------------------------

    /// Does the next step of the script; false if no step can be done now.
    fn take_step(&mut self, world: &mut World) -> bool {
        if self.attentive_at > world.now {
            return false;
        }
        let is_held = match self.program.next_step() {
            Some(Step::Broadcast { policy, root, buffer }) => {
                let bytes = self.program.outcome.buffers[*buffer].len();
                self.is_window_full(*policy, *root, bytes)
            }
            _ => false,
        };
        if is_held {
            return false;
        }
        let Some(step) = self.program.take_step() else { return false };
        match step {
            Step::Send { to, tag, buffer } => {
                let communicator = SCRIPT_COMMUNICATOR;
                let stream = Stream { from: self.rank, to, channel: 0, communicator, tag };
                let content: Rc<[u8]> = self.program.outcome.buffers[buffer].as_slice().into();
                let available = content.len() as u64;
                let operation = self.send(world, stream, content, available, Reply::Soon);
                self.begin(world, operation, buffer);
            }
            Step::Receive { from, tag, buffer } => {
                let pattern = Pattern { communicator: SCRIPT_COMMUNICATOR, source: from, tag };
                let capacity = self.program.outcome.buffers[buffer].len() as u64;
                let operation = self.receive(world, 0, pattern, capacity);
                self.begin(world, operation, buffer);
            }
            Step::Broadcast { policy, root, buffer } => {
                let (operation, begun) = self.begin_broadcast(world, policy, root, buffer);
                match begun {
                    Begun::Pending => self.begin(world, operation, buffer),
                    Begun::Copied => self.note_refusal(world, operation),
                }
            }
            Step::Barrier { group } => {
                let operation = self.begin_barrier(world, &group);
                self.program.begin(operation, None);
                self.note_refusal(world, operation);
            }
            Step::Compute(time) => {
                self.look_away(world.now, time);
                self.wake_when_attentive(world);
            }
            Step::Mark(number) => self.program.outcome.marks.push((number, world.now)),
            Step::Wait | Step::WaitFor { .. } => {}
        }
        true
    }

    fn begin(&mut self, world: &mut World, operation: Operation, buffer: usize) {
        self.program.begin(operation, Some(buffer));
        self.note_refusal(world, operation);
    }

    fn note_refusal(&mut self, world: &mut World, operation: Operation) {
        if matches!(world.ledger.state(operation), State::Failed(_)) {
            self.program.on_failed(operation);
        }
    }
}

fn note_once(ranks: &mut BTreeMap<Rank, Instant>, rank: Rank, now: Instant) -> Result<(), String> {
    match ranks.insert(rank, now) {
        None => Ok(()),
        Some(_) => Err(format!("names rank {rank} twice")),
    }
}
