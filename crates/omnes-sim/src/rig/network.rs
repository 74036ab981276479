//! The network between the ranks: latency, jitter, one link into each rank, faults, strangers.
//!
//! A multicast is one packet at the sender's uplink and, beyond it, one copy for every other living
//! rank; faults affect each copy separately. A packet takes the path's latency and jitter, queues
//! for the receiver's link if that link has a rate, then waits in the receiver's socket buffer,
//! which is charged in truesize and drops at its tail; a rank has one buffer for itself, one for
//! the group and one that the NIC of its node watches. All costs are integers in nanoseconds and
//! bytes. Not done: switches, shared links, the sender's own link.

use crate::engine::queue::Queue;
use crate::engine::random::Random;
use crate::rig::bounds::Bounds;
use crate::rig::casts::Casts;
use crate::rig::cluster::Cluster;
use crate::rig::rule::{Place, Rules, Sight, Verdict, Way};
use crate::rig::trace::{Trace, What};
use omnes_proto::collective::STEP_JOIN;
use omnes_proto::packet::Destination;
use omnes_wire::{CommunicatorId, Header, Instant, Kind, Rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Debug, Formatter};
use std::time::Duration;

/// Number of packets kept for replays.
const HISTORY_PACKETS: usize = 512;

/// Settings of the network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// Time from one rank to another with empty queues.
    pub latency: Duration,
    /// Largest random addition to the latency.
    pub jitter: Duration,
    /// Whether jitter may change the order of packets of one pair of ranks.
    pub order: Order,
    /// Rate of the link into each rank, in bits per second; `None` for no limit.
    pub receiver_bps: Option<u64>,
    /// Socket buffer of each rank, in bytes of truesize.
    pub receive_queue_bytes: u32,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(25),
            jitter: Duration::ZERO,
            order: Order::Kept,
            receiver_bps: None,
            receive_queue_bytes: 4 << 20,
        }
    }
}

/// Effect of jitter on the order of packets between two ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// A packet never overtakes another.
    Kept,
    /// Packets arrive in the order that their jitter produces.
    Free,
}

/// Counters of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkCounters {
    /// Packets that ranks handed out; a multicast counts once.
    pub sent: u64,
    /// Packets in `sent` that belong to messages, not to liveness monitoring.
    pub sent_on_channels: u64,
    /// Packets that rules dropped.
    pub dropped: u64,
    /// Copies made by rules.
    pub duplicated: u64,
    /// Packets with flipped bits in their head that reached a rank.
    pub corrupted: u64,
    /// Packets with flipped bits in their data that the UDP checksum rejected.
    pub checksum_errors: u64,
    /// Packets that found a receive queue full.
    pub overruns: u64,
    /// Farewells that were lost or damaged; they are never repeated.
    pub lost_farewells: u64,
    /// Packets of strangers.
    pub forged: u64,
    /// Packets that ranks have given to the NIC of their own node.
    pub doorbells: u64,
}

/// Packets about barriers on the network; a multicast counts once.
#[derive(Debug, Default)]
pub(crate) struct StepTally {
    /// By communicator, kind, and whether the packet stays between the ranks of one node.
    counts: BTreeMap<(u32, u8, bool), u64>,
}

impl StepTally {
    fn count(&mut self, header: &Header) {
        if matches!(header.kind, Kind::Step | Kind::StepNack | Kind::StepAsk | Kind::StepTell) {
            let is_inside = header.argument >= STEP_JOIN;
            let key = (header.communicator.0, header.kind as u8, is_inside);
            *self.counts.entry(key).or_default() += 1;
        }
    }

    pub(crate) fn of(&self, communicator: CommunicatorId, kind: Kind, is_inside: bool) -> u64 {
        let key = (communicator.0, kind as u8, is_inside);
        self.counts.get(&key).copied().unwrap_or(0)
    }
}

/// A packet that a rank has handed out.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) from: Rank,
    pub(crate) to: Destination,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of header, tag and control body.
    pub(crate) head_bytes: usize,
}

impl Sent {
    fn way(&self) -> Way {
        match self.to {
            Destination::Rank(_) => Way::Unicast,
            Destination::Group => Way::Multicast,
            Destination::Nic { .. } | Destination::Doorbell { .. } => Way::Nic,
        }
    }

    /// The receiver's rank, or [`Rank::ALL`].
    fn to_rank(&self) -> Rank {
        receiver(self.to)
    }
}

/// The receiver's rank, or [`Rank::ALL`].
pub(crate) fn receiver(to: Destination) -> Rank {
    to.rank().unwrap_or(Rank::ALL)
}

/// A packet in flight to one rank.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// `None` for a stranger.
    pub(crate) from: Option<Rank>,
    pub(crate) to: Rank,
    pub(crate) way: Way,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of header, tag and control body.
    pub(crate) head_bytes: usize,
    pub(crate) is_corrupt: bool,
}

/// A future event.
#[derive(Debug)]
pub(crate) enum SimEvent {
    /// A packet reaches the receiver's link.
    Link(InFlight),
    /// A packet has passed the link.
    Deliver(InFlight),
    /// A delayed packet of a rank reaches the NIC of its own node.
    Doorstep(Sent),
    /// A rank checks its timers and its queue.
    Wake(Rank),
    /// A planned call.
    Planned(Planned),
}

/// See [`Cluster::at`].
pub(crate) struct Planned(pub(crate) Box<dyn FnOnce(&mut Cluster)>);

impl Debug for Planned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Planned")
    }
}

#[derive(Debug)]
struct Path {
    random: Random,
    last_arrival: Instant,
}

/// Everything between the ranks, and its record.
#[derive(Debug)]
pub(crate) struct Network {
    seed: u64,
    ranks: u32,
    /// Ranks that have died or left.
    gone: BTreeSet<Rank>,
    pub(crate) config: NetworkConfig,
    pub(crate) queue: Queue<SimEvent>,
    pub(crate) rules: Rules,
    pub(crate) trace: Trace,
    pub(crate) bounds: Bounds,
    pub(crate) casts: Casts,
    pub(crate) steps: StepTally,
    pub(crate) counters: NetworkCounters,
    paths: BTreeMap<(Rank, Rank), Path>,
    link_free_at: BTreeMap<Rank, Instant>,
    corruption: Random,
    pub(crate) history: VecDeque<Sent>,
}

/// Settings and observers that a network starts with.
#[derive(Debug)]
pub(crate) struct NetworkParts {
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    pub(crate) config: NetworkConfig,
    pub(crate) bounds: Bounds,
    pub(crate) casts: Casts,
    pub(crate) trace: Trace,
}

impl Network {
    pub(crate) fn new(parts: NetworkParts) -> Self {
        let NetworkParts { seed, ranks, config, bounds, casts, trace } = parts;
        Self {
            seed,
            ranks,
            gone: BTreeSet::new(),
            config,
            queue: Queue::new(),
            rules: Rules::new(seed),
            trace,
            bounds,
            casts,
            steps: StepTally::default(),
            counters: NetworkCounters::default(),
            paths: BTreeMap::new(),
            link_free_at: BTreeMap::new(),
            corruption: Random::named(seed, "corruption", 0),
            history: VecDeque::new(),
        }
    }

    /// A rank has died or left: packets no longer reach it.
    pub(crate) fn bury(&mut self, rank: Rank) {
        self.gone.insert(rank);
    }

    /// A rank hands out a packet.
    pub(crate) fn send(&mut self, now: Instant, packet: Sent) {
        self.counters.sent += 1;
        let header = Header::parse(&packet.bytes).ok().map(|(header, _)| header);
        if let Some(header) = &header {
            self.steps.count(header);
        }
        let is_watch = |header: &Header| {
            use Kind::{Bye, Failed, Hello, Ping, Pong};
            matches!(header.kind, Bye | Failed | Hello | Ping | Pong)
        };
        let is_of_message = header.as_ref().is_some_and(|header| !is_watch(header));
        self.counters.sent_on_channels += u64::from(is_of_message);
        self.trace.packet(now, What::Sent, packet.from, packet.to_rank(), &packet.bytes);
        if self.history.len() == HISTORY_PACKETS {
            self.history.pop_front();
        }
        self.history.push_back(packet.clone());
        self.pass_uplink(now, packet);
    }

    /// A stranger hands out a packet.
    pub(crate) fn inject(&mut self, now: Instant, packet: InFlight) {
        self.counters.forged += 1;
        self.trace.packet(now, What::Forged, packet.to, packet.to, &packet.bytes);
        self.queue.push((now + self.config.latency).as_ns(), SimEvent::Link(packet));
    }

    /// A rank gives a packet to the NIC of its own node; returns the number of copies that arrive
    /// immediately.
    pub(crate) fn pass_doorstep(&mut self, now: Instant, sent: &Sent) -> u32 {
        self.counters.doorbells += 1;
        self.trace.packet(now, What::Bell, sent.from, sent.to_rank(), &sent.bytes);
        let header = Header::parse(&sent.bytes).ok().map(|(header, _)| header);
        let (from, to) = (Some(sent.from), sent.to_rank());
        let place = Place::Doorstep;
        let (way, bytes) = (sent.way(), sent.bytes.len());
        let sight = Sight { place, way, from, to, bytes, header: header.as_ref() };
        let Verdict { is_dropped, delay, copies, .. } = self.rules.judge(now, &sight);
        if is_dropped {
            self.counters.dropped += 1;
            self.trace.packet(now, What::Lost, sent.from, to, &sent.bytes);
            return 0;
        }
        self.counters.duplicated += u64::from(copies);
        if delay.is_zero() {
            return 1 + copies;
        }
        for _ in 0..=copies {
            self.queue.push((now + delay).as_ns(), SimEvent::Doorstep(sent.clone()));
        }
        0
    }

    fn pass_uplink(&mut self, now: Instant, sent: Sent) {
        let (way, to) = (sent.way(), sent.to_rank());
        let Sent { from, bytes, head_bytes, .. } = sent;
        let packet = InFlight { from: Some(from), to, way, bytes, head_bytes, is_corrupt: false };
        for (delay, packet) in self.suffer(now, Place::Uplink, Duration::ZERO, packet) {
            if way != Way::Multicast {
                self.pass_downlink(now, delay, packet);
                continue;
            }
            let others = (0..self.ranks).map(Rank).filter(|rank| *rank != from);
            let living: Vec<Rank> = others.filter(|rank| !self.gone.contains(rank)).collect();
            for to in living {
                self.pass_downlink(now, delay, InFlight { to, ..packet.clone() });
            }
        }
    }

    fn pass_downlink(&mut self, now: Instant, delay: Duration, packet: InFlight) {
        for (delay, packet) in self.suffer(now, Place::Downlink, delay, packet) {
            self.depart(now, delay, packet);
        }
    }

    /// Applies the rules to a packet; returns the surviving copies, each with its delay.
    fn suffer(
        &mut self,
        now: Instant,
        place: Place,
        delay: Duration,
        mut packet: InFlight,
    ) -> Vec<(Duration, InFlight)> {
        let header = Header::parse(&packet.bytes).ok().map(|(header, _)| header);
        let InFlight { from, to, way, .. } = packet;
        let bytes = packet.bytes.len();
        let sight = Sight { place, way, from, to, bytes, header: header.as_ref() };
        let verdict = self.rules.judge(now, &sight);
        let Verdict { is_dropped, delay: more, copies, corruptions } = verdict;
        if is_dropped {
            self.counters.dropped += 1;
            self.note_farewell_lost(&packet.bytes);
            self.trace.packet(now, What::Lost, from.unwrap_or(to), to, &packet.bytes);
            return Vec::new();
        }
        self.counters.duplicated += u64::from(copies);
        let mut left = vec![(delay + more, packet.clone()); copies as usize];
        if corruptions == 0 || self.corrupt(now, &mut packet, corruptions) {
            left.push((delay + more, packet));
        }
        left
    }

    /// Flips bits; false if the checksum rejects the packet.
    fn corrupt(&mut self, now: Instant, packet: &mut InFlight, flips: u32) -> bool {
        let before = packet.bytes.clone();
        for _ in 0..flips {
            let bit = self.corruption.below(8 * packet.bytes.len() as u64);
            packet.bytes[bit as usize / 8] ^= 1 << (bit % 8);
        }
        let head_bytes = packet.head_bytes;
        let is_data_hit = packet.bytes[head_bytes..] != before[head_bytes..];
        packet.is_corrupt |= packet.bytes != before;
        if packet.is_corrupt {
            self.note_farewell_lost(&before);
        }
        if is_data_hit {
            self.counters.checksum_errors += 1;
            let from = packet.from.unwrap_or(packet.to);
            self.trace.packet(now, What::Checksum, from, packet.to, &packet.bytes);
        } else if packet.bytes != before {
            self.counters.corrupted += 1;
        }
        !is_data_hit
    }

    /// Counts a packet that was lost or damaged if it is a farewell.
    pub(crate) fn note_farewell_lost(&mut self, bytes: &[u8]) {
        let is_farewell = Header::parse(bytes).is_ok_and(|(header, _)| header.kind == Kind::Bye);
        self.counters.lost_farewells += u64::from(is_farewell);
    }

    fn depart(&mut self, now: Instant, delay: Duration, packet: InFlight) {
        let NetworkConfig { latency, jitter, order, .. } = self.config;
        let from = packet.from.unwrap_or(packet.to);
        let seed = self.seed;
        let path = self.paths.entry((from, packet.to)).or_insert_with(|| Path {
            random: Random::named(seed, "path", u64::from(from.0) << 32 | u64::from(packet.to.0)),
            last_arrival: Instant::ZERO,
        });
        let jitter_ns = jitter.as_nanos() as u64;
        let jitter = Duration::from_nanos(path.random.within(0, jitter_ns));
        let mut arrival = now + latency + jitter;
        if order == Order::Kept {
            // Only jitter keeps the order; a delay rule is meant to change it.
            arrival = arrival.max(path.last_arrival);
            path.last_arrival = arrival;
        }
        self.queue.push((arrival + delay).as_ns(), SimEvent::Link(packet));
    }

    /// A packet reaches the receiver's link and waits for its turn there.
    pub(crate) fn pass_link(&mut self, now: Instant, packet: InFlight) -> Option<InFlight> {
        let Some(bps) = self.config.receiver_bps else { return Some(packet) };
        // Frame, addresses, UDP and interframe gap: 66 bytes on Ethernet.
        let bits = 8 * (packet.bytes.len() as u64 + 66);
        let time = Duration::from_nanos(bits * 1_000_000_000 / bps);
        let free_at = self.link_free_at.entry(packet.to).or_insert(Instant::ZERO);
        let done = (*free_at).max(now) + time;
        *free_at = done;
        self.queue.push(done.as_ns(), SimEvent::Deliver(packet));
        None
    }

    /// Packets of ranks that are still in flight.
    pub(crate) fn on_their_way(&self) -> impl Iterator<Item = &InFlight> {
        self.queue.iter().filter_map(|happening| match happening {
            SimEvent::Link(packet) | SimEvent::Deliver(packet) => Some(packet),
            SimEvent::Doorstep(_) | SimEvent::Wake(_) | SimEvent::Planned(_) => None,
        })
    }
}
