//! One host: the driver of its rank's endpoint, on a processor that takes time for everything.
//!
//! The processor does one task after the other: it receives a packet, lets the machine handle it,
//! sends the machine's packets, advances the rank's operations, then takes the next packet. A
//! waiting host notices a packet some time after its delivery, a busy host when it has finished its
//! work. Consecutive packets to one destination form a train, waiting packets a batch; the first
//! packet of each costs more.

use super::net::{Event, Net};
use super::packet::{Packet, PacketId, To};
use super::record::{Doing, RankCounters};
use super::shared::Shared;
use super::task::Task;
use crate::engine::{Cost, Span, Time};
use crate::rig::nic::{self, Leaving, Nic};
use crate::rig::rule::Way;
use crate::testbed::Progress;
use omnes_proto::endpoint::Endpoint;
use omnes_proto::limits::truesize;
use omnes_proto::packet::{Destination, Head, Origin, Target};
use omnes_wire::{CommunicatorId, Flags, Header, Kind};
use std::collections::VecDeque;

const NEVER: Time = Time::from_ps(u64::MAX);

/// Limit of packets and events handled in one go, beyond which a machine is taken to be in a loop.
const ROUNDS_MAX: u32 = 10_000_000;

/// Cost of handling a packet: `special` is `(reports, granted)` where these differ from `usual`.
fn cost(head: &[u8], bytes: u64, special: (Option<Cost>, Option<Cost>), usual: Cost) -> Span {
    if special == (None, None) {
        return usual.of(bytes);
    }
    let Ok((header, _)) = Header::parse(head) else { return usual.of(bytes) };
    let is_report = matches!(header.kind, Kind::Ack | Kind::Nack | Kind::CastAck | Kind::CastNack);
    let is_granted = header.kind == Kind::Data && header.flags.has(Flags::BULK);
    match special {
        (Some(report), _) if is_report => report.of(bytes),
        (_, Some(granted)) if is_granted && header.flags.has(Flags::LAST) => granted.of(bytes),
        (_, Some(granted)) if is_granted => granted.per_byte * bytes,
        _ => usual.of(bytes),
    }
}

/// See the module header.
pub(super) struct Host {
    pub(super) rank: u32,
    pub(super) endpoint: Endpoint,
    pub(super) firmware: Nic,
    pub(super) task: Task,
    inbox: VecDeque<PacketId>,
    inbox_bytes: u64,
    /// Packets received since the inbox was empty.
    batch: u32,
    /// Time of the next scheduled work.
    work_at: Time,
    /// Destination of the last packet of the train, and number of packets that the train may still
    /// take.
    train: Option<(To, u32)>,
    head: Head,
}

impl Host {
    pub(super) fn new(rank: u32, endpoint: Endpoint, firmware: Nic) -> Self {
        Self {
            rank,
            endpoint,
            firmware,
            task: Task::default(),
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            batch: 0,
            work_at: NEVER,
            train: None,
            head: Head::default(),
        }
    }

    // ---- scheduling -----------------------------------------------------------------------

    fn schedule(&mut self, net: &mut Net, at: Time) {
        if at < self.work_at {
            self.work_at = at;
            net.push(at, Event::Work { host: self.rank });
        }
    }

    /// Something has happened at `now`: the host checks when it is free.
    pub(super) fn wake(&mut self, net: &mut Net, now: Time) {
        let free_at = net.free_at(self.rank);
        let notice = net.testbed.host.notice.fixed;
        let at = if free_at > now { free_at } else { now + notice };
        self.schedule(net, at);
    }

    /// The host's NIC has put a packet into the host's memory.
    pub(super) fn deliver(&mut self, net: &mut Net, now: Time, packet: PacketId) {
        let charge = u64::from(truesize(net.packets.of(packet).bytes() as u32));
        if self.inbox_bytes + charge > net.testbed.host.receive_queue_bytes {
            net.counters.dropped_by_hosts += 1;
            net.packets.end(packet);
            return;
        }
        self.inbox_bytes += charge;
        self.inbox.push_back(packet);
        self.wake(net, now);
    }

    /// Does the work that is pending at `now`.
    pub(super) fn work(&mut self, net: &mut Net, shared: &Shared, now: Time) {
        if now != self.work_at {
            return;
        }
        self.work_at = NEVER;
        let free_at = net.free_at(self.rank);
        if free_at > now {
            self.schedule(net, free_at);
            return;
        }
        let mut at = now;
        let is_away = net.testbed.host.progress == Progress::InCalls && self.task.computes();
        match self.task.wakes_at() {
            Some(until) if is_away && until > now => {
                self.schedule(net, until);
                return;
            }
            // The rank returns: its call begins before the library polls the network.
            Some(_) if is_away => {}
            _ => at = self.take_batch(net, now),
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= at.instant()) {
            self.endpoint.handle_timeout(at.instant());
        }
        self.drain(net, shared, at);
    }

    /// The rank starts, or continues after a meeting, at `now` or when the host is free.
    pub(super) fn begin(&mut self, net: &mut Net, shared: &Shared, now: Time) {
        let free_at = net.free_at(self.rank);
        self.drain(net, shared, now.max(free_at));
    }

    /// Drains the machines, advances the operations, and schedules the next work.
    pub(super) fn drain(&mut self, net: &mut Net, shared: &Shared, at: Time) {
        let mut at = at;
        for _ in 0..ROUNDS_MAX {
            at = self.apply_moves(net, at);
            at = self.send_packets(net, at);
            self.poll_pages(at);
            self.take_events(net, at);
            let (later, has_begun) = self.go_on(net, shared, at);
            at = later;
            if !has_begun {
                break;
            }
        }
        self.train = None;
        self.plan(net, at);
    }

    fn plan(&mut self, net: &mut Net, at: Time) {
        if self.inbox.is_empty() {
            self.batch = 0;
        } else {
            self.schedule(net, at);
        }
        let due = self.endpoint.poll_timeout().map(Time::of);
        for wanted in due.into_iter().chain(self.task.wakes_at()) {
            self.schedule(net, wanted.max(at));
        }
    }

    // ---- in -------------------------------------------------------------------------------

    /// Receives the waiting packets, up to a batch, before anything else, as one system call does.
    fn take_batch(&mut self, net: &mut Net, now: Time) -> Time {
        let mut at = now;
        for _ in 0..net.testbed.host.batch_packets.max(1) {
            let Some(packet) = self.inbox.pop_front() else { break };
            at = self.take(net, at, packet);
            at = self.apply_moves(net, at);
        }
        at
    }

    fn take(&mut self, net: &mut Net, now: Time, id: PacketId) -> Time {
        let Packet { to, .. } = *net.packets.of(id);
        let bytes = net.packets.of(id).bytes();
        self.inbox_bytes -= u64::from(truesize(bytes as u32));
        let costs = net.testbed.host;
        let special = (costs.report_receive, costs.granted_receive);
        let mut span = cost(net.packets.of(id).head(), bytes, special, costs.receive);
        if self.batch.is_multiple_of(costs.batch_packets.max(1)) {
            span += costs.batch.of(bytes);
        }
        self.batch += 1;
        let mut at = net.work(self.rank, now, span, Doing::HostReceives);
        if let (To::Child { root, .. }, true) = (to, net.clones_by_host())
            && self.endpoint.vouches(net.packets.of(id).head())
        {
            at = net.pass_on_by_host(at, self.rank, root, id);
        }
        let head = net.packets.of(id).head();
        let placement = self.endpoint.handle_packet(at.instant(), head, bytes as usize);
        net.packets.end(id);
        if let Some(placement) = placement
            && let Target::Receive(_) = placement.target
        {
            net.done_bytes += placement.bytes as u64;
        }
        at
    }

    /// Moves data from pool slots to the memory of receives that were posted later.
    fn apply_moves(&mut self, net: &mut Net, at: Time) -> Time {
        let mut at = at;
        while let Some((_, step)) = self.endpoint.poll_move() {
            let span = net.testbed.host.copy.per_byte * step.bytes as u64;
            at = net.work(self.rank, at, span, Doing::HostReceives);
            if let Origin::Slot(_) = step.origin {
                net.done_bytes += step.bytes as u64;
            }
        }
        at
    }

    // ---- out ------------------------------------------------------------------------------

    fn send_packets(&mut self, net: &mut Net, at: Time) -> Time {
        let mut at = at;
        for _ in 0..ROUNDS_MAX {
            let transmit = self.endpoint.poll_transmit(at.instant(), &mut self.head);
            let Some(transmit) = transmit else { break };
            let data_bytes = transmit.segment.map_or(0, |segment| segment.bytes);
            let to = match transmit.to {
                Destination::Rank(rank) => To::Rank(rank.0),
                Destination::Group => To::All,
                Destination::Nic { .. } | Destination::Doorbell { .. } => To::Bell(transmit.to),
            };
            let bytes = self.head.as_bytes().len() as u64 + u64::from(data_bytes);
            let costs = net.testbed.host;
            let special = (costs.report_send, costs.granted_send);
            let mut span = cost(self.head.as_bytes(), bytes, special, costs.send);
            let follows = self.train.filter(|(last, left)| *last == to && *left > 0);
            self.train = match follows {
                Some((_, left)) => Some((to, left - 1)),
                None => {
                    span += costs.train.of(bytes);
                    Some((to, costs.train_packets.saturating_sub(1)))
                }
            };
            at = net.work(self.rank, at, span, Doing::HostSends);
            let mut packet = Packet::new(self.rank, to, self.head.as_bytes(), data_bytes);
            packet.leads_train = follows.is_none();
            net.hand_out(at, packet);
        }
        at
    }

    /// Counters of the host's machines and firmware.
    pub(super) fn counters(&self) -> RankCounters {
        RankCounters::of(&self.endpoint, &self.firmware)
    }

    // ---- the NIC's firmware ----------------------------------------------------------------

    /// A command of the host reaches its NIC.
    pub(super) fn ring(&mut self, net: &mut Net, now: Time, (id, to): (PacketId, Destination)) {
        let head = net.packets.of(id).head();
        let (leaving, bytes) = (self.firmware.egress(to, head), head.len() as u64);
        net.packets.end(id);
        let done = net.step(now, self.rank, net.testbed.nic.bell, bytes);
        self.let_leave(net, done, leaving);
    }

    /// The firmware processes a packet from the wire; true if the packet goes on to the host.
    pub(super) fn pass_firmware(&mut self, net: &mut Net, now: Time, id: PacketId) -> bool {
        let packet = net.packets.of(id);
        let way = match packet.to {
            To::Nic(_) => Way::Nic,
            To::All | To::Child { .. } => Way::Multicast,
            To::Rank(_) | To::Bell(_) => return true,
            To::Answer(_) => {
                net.settle(now, self.rank);
                return false;
            }
        };
        if packet.data_bytes > 0 || !self.firmware.has_slots() {
            return true;
        }
        let passage = self.firmware.ingress(way, packet.head(), nic::Host::Awake);
        if passage.goes_on && !passage.is_taken {
            return true;
        }
        let bytes = packet.bytes();
        let costs = net.testbed.nic;
        let taken = net.step(now, self.rank, costs.step_receive, bytes);
        let mut done = net.step(taken, self.rank, costs.step, bytes);
        if !passage.leaving.is_empty() {
            done = net.step(done, self.rank, costs.trigger, bytes);
        }
        self.let_leave(net, done, passage.leaving);
        passage.goes_on
    }

    fn let_leave(&mut self, net: &mut Net, at: Time, leaving: Vec<Leaving>) {
        for Leaving { to, bytes } in leaving {
            let to = to.rank().map_or(To::All, |to| To::Nic(to.0));
            net.send_step(at, self.rank, to, &bytes);
        }
        let mut waits = self.endpoint.collective().nic_waits();
        if waits.any(|communicator| self.firmware.has_news(communicator)) {
            let span = net.testbed.nic.show.fixed;
            net.push(at + span, Event::Shown { host: self.rank });
        }
    }

    /// Shows the machine the progress of the NIC.
    fn poll_pages(&mut self, at: Time) {
        let communicator = self.endpoint.collective().nic_waits().next();
        let Some(communicator) = communicator else { return };
        self.look_at(at, communicator);
    }

    fn look_at(&mut self, at: Time, communicator: CommunicatorId) {
        if let Some(view) = self.firmware.look(communicator) {
            self.endpoint.collective_mut().handle_nic(at.instant(), communicator, &view);
        }
    }

    /// Uses the host's processor for the rank's operations.
    pub(super) fn spend(&mut self, net: &mut Net, at: Time, span: Span) -> Time {
        net.work(self.rank, at, span, Doing::HostCalls)
    }
}
