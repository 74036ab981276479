//! Everything between the hosts: NICs, links, switches, and the event queue.
//!
//! A packet costs one event where it leaves its host, one at each switch and one at its receiver's
//! NIC; consecutive servers with the same customers are passed in one event. A packet to all is one
//! packet with many copies. If a switch stops its senders instead of dropping, the link on which a
//! packet arrived is held until there is room; packets given to that link earlier are not held
//! again. Random losses happen on the links to hosts.

use super::packet::{Packet, PacketId, Packets, To};
use super::record::{Doing, Record};
use super::sample::Sample;
use super::setup::{Carrier, Cloning, Setup};
use crate::engine::{Cost, Queue, Random, Server, Span, Time};
use crate::testbed::{Forwarding, Host, Processors, Testbed, WhenFull};
use omnes_topo::network::{Cast, HostId, LinkId, Network, Node, SwitchId};
use omnes_topo::{TopoError, TreeTable};
use omnes_wire::Rank;

/// A future event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A host has given a packet to its NIC.
    HandedOut { packet: PacketId, host: u32 },
    /// A packet, or its head, has reached the end of a link.
    Arrived { packet: PacketId, link: u32 },
    /// A NIC has put a packet into its host's memory.
    Delivered { packet: PacketId, host: u32 },
    /// A host may have work to do.
    Work { host: u32 },
    /// The NIC of a host has a result to show.
    Shown { host: u32 },
    /// A rank starts, or continues after a meeting.
    Go { host: u32 },
}

impl Event {
    /// The event as two numbers.
    pub(super) fn word(self) -> (u64, u64) {
        let pair =
            |packet: PacketId, at: u32| u64::from(packet.0 & 0xff_ffff) << 32 | u64::from(at);
        match self {
            Self::HandedOut { packet, host } => (1, pair(packet, host)),
            Self::Arrived { packet, link } => (2, pair(packet, link)),
            Self::Delivered { packet, host } => (3, pair(packet, host)),
            Self::Work { host } => (4, u64::from(host)),
            Self::Shown { host } => (5, u64::from(host)),
            Self::Go { host } => (6, u64::from(host)),
        }
    }
}

/// Counters of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetCounters {
    /// Events handled.
    pub events: u64,
    /// Packets sent by hosts and NICs; a multicast to all counts once.
    pub packets: u64,
    /// Bytes of these packets, including framing.
    pub bytes: u64,
    /// Copies that have reached a NIC.
    pub arrived: u64,
    /// Copies lost at random.
    pub lost: u64,
    /// Copies for which a switch had no room.
    pub dropped_by_switches: u64,
    /// Copies for which a host had no room.
    pub dropped_by_hosts: u64,
}

/// The two servers of a NIC; if the NIC has one processor, one of them does both.
#[derive(Clone, Copy, Default)]
struct NicServers {
    out: Server,
    into: Server,
}

/// See the module header.
pub(super) struct Net {
    pub(super) testbed: Testbed,
    pub(super) queue: Queue<Event>,
    pub(super) packets: Packets,
    cpus: Vec<Server>,
    /// Delay when a core switches from one host to another.
    turn: Span,
    /// The host that each core has worked for last.
    served: Vec<u32>,
    pub(super) counters: NetCounters,
    pub(super) record: Record,
    pub(super) ranks: u32,
    pub(super) samples: Vec<Sample>,
    /// Completed part of the plan, as counted by
    /// [`Plan::work_bytes`](super::plan::Plan::work_bytes).
    pub(super) done_bytes: u64,
    /// Ranks that have finished the plan.
    pub(super) finished: u32,
    /// Ranks that have reached the meeting and wait for the others.
    pub(super) met: u32,
    /// The first violation, with its rank.
    pub(super) complaint: Option<(u32, String)>,
    network: Network,
    links: Vec<Server>,
    nics: Vec<NicServers>,
    loss_ppm: u32,
    losses: Vec<Random>,
    carrier: Carrier,
    tree: Option<TreeTable>,
    out_links: Vec<u32>,
}

/// Time in which a core reaches another of the `sharing` hosts on it; see `Host::look`.
fn turn(testbed: &Testbed, sharing: u32) -> Span {
    let Host { switch, look, .. } = testbed.host;
    let vain = (switch.fixed + look.fixed) * u64::from(sharing.saturating_sub(1));
    switch.fixed + Span::from_ps(vain.as_ps() / 2)
}

impl Net {
    pub(super) fn new(setup: Setup, record: Record) -> Result<Self, TopoError> {
        let Setup { testbed, network, ranks, seed, loss_ppm, carrier } = setup;
        let tree = match carrier {
            Carrier::Multicast => None,
            Carrier::MultiSend { tree, .. } => Some(TreeTable::new(tree, ranks)?),
        };
        let cores = match testbed.host.cores {
            0 => ranks,
            shared => shared.min(ranks),
        };
        let losses = match loss_ppm {
            0 => Vec::new(),
            _ => (0..u64::from(ranks)).map(|at| Random::named(seed, "loss", at)).collect(),
        };
        let turn = turn(&testbed, ranks.div_ceil(cores));
        Ok(Self {
            testbed,
            queue: Queue::new(),
            packets: Packets::default(),
            cpus: vec![Server::default(); cores as usize],
            turn,
            served: vec![u32::MAX; cores as usize],
            counters: NetCounters::default(),
            record,
            ranks,
            samples: Vec::new(),
            done_bytes: 0,
            finished: 0,
            met: 0,
            complaint: None,
            links: vec![Server::default(); network.links() as usize],
            nics: vec![NicServers::default(); ranks as usize],
            network,
            loss_ppm,
            losses,
            carrier,
            tree,
            out_links: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.queue.push(at.as_ps(), event);
    }

    /// A machine at `rank` has reported something that must not happen.
    pub(super) fn complain(&mut self, rank: u32, what: &impl std::fmt::Debug) {
        self.note(rank, || format!("{what:?}"));
    }

    /// The machine at `rank` has given up on a peer that lives, as all ranks do here.
    pub(super) fn give_up(&mut self, rank: u32, peer: u32) {
        self.note(rank, || {
            format!(
                "gave up on rank {peer}: too few packets get through between ranks, or too late; \
                 look at the loss, and at the testbed's times and buffers"
            )
        });
    }

    /// Records a violation at `rank`, unless there was an earlier one.
    pub(super) fn note(&mut self, rank: u32, what: impl FnOnce() -> String) {
        self.complaint.get_or_insert_with(|| (rank, what()));
    }

    // ---- hosts and NICs -------------------------------------------------------------------

    /// Uses a host's processor for `span`, from `at` or when it is free; returns the time at which
    /// the work is done.
    pub(super) fn work(&mut self, host: u32, at: Time, span: Span, doing: Doing) -> Time {
        let core = host as usize % self.cpus.len();
        let is_other = std::mem::replace(&mut self.served[core], host) != host;
        let switch = if is_other { self.turn } else { Span::ZERO };
        let cpu = &mut self.cpus[core];
        let start = cpu.start(at);
        let done = cpu.serve(at, switch + span);
        self.record.did(doing, host, start, done);
        done
    }

    /// Time at which the processor of a host has finished all accepted work.
    pub(super) fn free_at(&self, host: u32) -> Time {
        self.cpus[host as usize % self.cpus.len()].free_at()
    }

    fn serve_nic(&mut self, host: u32, at: Time, span: Span, doing: Doing) -> Time {
        let nic = &mut self.nics[host as usize];
        let server = match (self.testbed.nic.processors, doing) {
            (Processors::Host, _) => {
                let core = host as usize % self.cpus.len();
                &mut self.cpus[core]
            }
            (Processors::Two, Doing::NicReceives | Doing::NicSteps) => &mut nic.into,
            (Processors::One | Processors::Two, _) => &mut nic.out,
        };
        let start = server.start(at);
        let done = server.serve(at, span);
        self.record.did(doing, host, start, done);
        done
    }

    /// A host hands a packet to its NIC at `at`.
    pub(super) fn hand_out(&mut self, at: Time, packet: Packet) {
        let host = packet.from;
        let packet = self.packets.add(packet);
        self.push(at, Event::HandedOut { packet, host });
    }

    /// A NIC sends a packet that its host has handed out.
    pub(super) fn transmit(&mut self, now: Time, host: u32, packet: PacketId) {
        let to = self.packets.of(packet).to;
        match (to, self.carrier) {
            (To::All, Carrier::MultiSend { .. }) => {
                self.pass_on(now, host, host, packet, false);
                self.packets.end(packet);
            }
            _ => {
                let bytes = self.packets.of(packet).bytes();
                self.transmit_one(now, host, packet, self.testbed.nic.transmit);
                let record = self.testbed.nic.record.of(bytes);
                self.serve_nic(host, now, record, Doing::NicSends);
            }
        }
    }

    fn transmit_one(&mut self, now: Time, host: u32, packet: PacketId, cost: Cost) {
        let bytes = self.packets.of(packet).bytes();
        let done = self.serve_nic(host, now, cost.of(bytes), Doing::NicSends);
        self.count_sent(bytes);
        let leaves = done + self.testbed.nic.latency;
        self.put_on_link(leaves, self.network.uplink(HostId(host)).0, packet, None);
    }

    pub(super) fn count_sent(&mut self, bytes: u64) {
        self.counters.packets += 1;
        self.counters.bytes += bytes + self.testbed.link.frame_bytes;
    }

    /// A NIC sends a copy to each child of `host` in the tree of `root`.
    fn pass_on(&mut self, now: Time, host: u32, root: u32, packet: PacketId, is_again: bool) {
        let Some(tree) = self.tree.take() else { return };
        let nic = self.testbed.nic;
        let mut is_again = is_again;
        if let Ok(children) = tree.children_of(Rank(host), Rank(root)) {
            for child in children {
                let to = To::Child { rank: child.0, root };
                let mut copy = self.packets.of(packet).clone();
                (copy.to, copy.copies) = (to, 1);
                let copy = self.packets.add(copy);
                let cost = if is_again { nic.again } else { nic.transmit };
                self.transmit_one(now, host, copy, cost);
                is_again = true;
            }
        }
        self.tree = Some(tree);
    }

    /// A host forwards what `root` sends to all, at `at`; returns the time at which it is done.
    pub(super) fn pass_on_by_host(&mut self, at: Time, host: u32, root: u32, id: PacketId) -> Time {
        let Some(tree) = self.tree.take() else { return at };
        let mut at = at;
        let costs = self.testbed.host;
        let packet = self.packets.of(id).clone();
        let bytes = packet.bytes();
        // A train is forwarded as one, by one call for all children.
        let mut starts_call = packet.leads_train;
        if let Ok(children) = tree.children_of(Rank(host), Rank(root)) {
            for child in children {
                let train = if starts_call { costs.train.of(bytes) } else { Span::ZERO };
                at = self.work(host, at, train + costs.send.of(bytes), Doing::HostSends);
                let to = To::Child { rank: child.0, root };
                let mut copy = packet.clone();
                (copy.from, copy.to, copy.copies) = (host, to, 1);
                self.hand_out(at, copy);
                starts_call = false;
            }
        }
        self.tree = Some(tree);
        at
    }

    /// True if hosts forward the packets that go to all ranks.
    pub(super) fn clones_by_host(&self) -> bool {
        matches!(self.carrier, Carrier::MultiSend { cloning: Cloning::Host, .. })
    }

    /// Puts a step of the NIC's own on the wire, after the NIC's work on it.
    pub(super) fn send_step(&mut self, now: Time, host: u32, to: To, head: &[u8]) {
        let packet = self.packets.add(Packet::new(host, to, head, 0));
        match (to, self.carrier) {
            (To::All, Carrier::MultiSend { .. }) => {
                self.pass_on(now, host, host, packet, true);
                self.packets.end(packet);
            }
            _ => self.transmit_one(now, host, packet, self.testbed.nic.step_send),
        }
    }

    /// The NIC's firmware works on a message of a collective, or on a command of its host.
    pub(super) fn step(&mut self, now: Time, host: u32, cost: Cost, bytes: u64) -> Time {
        self.serve_nic(host, now, cost.of(bytes), Doing::NicSteps)
    }

    // ---- links and switches ---------------------------------------------------------------

    fn put_on_link(&mut self, at: Time, link: u32, packet: PacketId, came_by: Option<u32>) {
        let Testbed { link: costs, switch, .. } = &self.testbed;
        let bytes = self.packets.of(packet).bytes() + costs.frame_bytes;
        let wire = costs.wire.of(bytes);
        let server = &mut self.links[link as usize];
        if let Some(came_by) = came_by {
            let byte_ps = costs.wire.per_byte.as_ps();
            let room = Span::from_ps(byte_ps.saturating_mul(switch.buffer_bytes));
            let backlog = server.free_at().since(at) + wire;
            if backlog > room && switch.when_full == WhenFull::Drop {
                self.counters.dropped_by_switches += 1;
                self.packets.end(packet);
                return;
            }
            if backlog > room {
                // The packet enters when enough data have left to make room.
                let enters = at + Span::from_ps(backlog.as_ps() - room.as_ps());
                self.links[came_by as usize].hold(enters);
            }
        }
        let server = &mut self.links[link as usize];
        let done = server.serve(at, wire);
        let (start, latency) = (Time::from_ps(done.as_ps() - wire.as_ps()), costs.latency);
        let is_early = switch.forwarding == Forwarding::CutThrough;
        self.record.did(Doing::Wire, link, start, done);
        let arrives = match self.network.end(LinkId(link)) {
            Node::Switch(_) if is_early => start + latency,
            Node::Switch(_) => done + latency,
            Node::Host(HostId(host)) => {
                if self.loss_ppm > 0 && self.losses[host as usize].chance(self.loss_ppm) {
                    self.counters.lost += 1;
                    self.packets.end(packet);
                    return;
                }
                done + latency
            }
        };
        self.push(arrives, Event::Arrived { packet, link });
    }

    /// A packet has reached a switch.
    pub(super) fn pass_switch(&mut self, now: Time, switch: u32, came_by: u32, packet: PacketId) {
        let Packet { from, to, .. } = *self.packets.of(packet);
        let costs = self.testbed.switch;
        let at = now + costs.latency;
        let rank = match to {
            To::Rank(rank) | To::Nic(rank) | To::Answer(rank) | To::Child { rank, .. } => rank,
            // The command is replaced by the firmware's packets.
            To::Bell(_) => return self.packets.end(packet),
            To::All => {
                let mut links = std::mem::take(&mut self.out_links);
                let cast = Cast { from: HostId(from), flow: from };
                let copies = self.network.multicast_links(SwitchId(switch), LinkId(came_by), cast);
                links.extend(copies.filter(|link| self.leads_to_rank(*link)).map(|link| link.0));
                // The original copy makes room for the copies that leave.
                self.packets.copy(packet, links.len() as u32);
                for (number, link) in (0..).zip(&links) {
                    self.put_on_link(at + costs.copy * number, *link, packet, Some(came_by));
                }
                self.packets.end(packet);
                links.clear();
                self.out_links = links;
                return;
            }
        };
        // Packets of a pair follow one path, so they stay in order.
        let flow = from.wrapping_mul(0x9e37_79b9) ^ rank;
        let link = self.network.next_link(SwitchId(switch), HostId(rank), flow);
        self.put_on_link(at, link.0, packet, Some(came_by));
    }

    /// False for links to hosts without a rank, which are in no group.
    fn leads_to_rank(&self, link: LinkId) -> bool {
        !matches!(self.network.end(link), Node::Host(HostId(host)) if host >= self.ranks)
    }

    /// The node at the end of a link.
    pub(super) fn end_of(&self, link: u32) -> Node {
        self.network.end(LinkId(link))
    }

    /// A packet has reached the NIC of a host, which receives it for the host.
    pub(super) fn take_in(&mut self, now: Time, host: u32, packet: PacketId) {
        let Packet { from, to, .. } = *self.packets.of(packet);
        let bytes = self.packets.of(packet).bytes();
        let nic = self.testbed.nic;
        let leads_train = self.packets.of(packet).leads_train;
        let train = if leads_train { nic.receive_train.of(bytes) } else { Span::ZERO };
        let span = nic.receive.of(bytes) + train;
        let done = self.serve_nic(host, now, span, Doing::NicReceives);
        if let (To::Child { root, .. }, false) = (to, self.clones_by_host()) {
            self.pass_on(done, host, root, packet, true);
        }
        let more = if to == To::All { nic.multicast } else { Span::ZERO };
        self.push(done + nic.latency + more, Event::Delivered { packet, host });
        if self.testbed.nic.answer != Cost::default() && matches!(to, To::Rank(_)) {
            let answer = self.packets.add(Packet::new(host, To::Answer(from), &[], 0));
            self.transmit_one(done, host, answer, self.testbed.nic.answer);
        }
    }

    /// A NIC is notified that its packet has arrived.
    pub(super) fn settle(&mut self, now: Time, host: u32) {
        let cost = self.testbed.nic.settle;
        self.serve_nic(host, now, cost.of(0), Doing::NicReceives);
    }
}
