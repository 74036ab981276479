//! Machines of some ranks and the kernel NICs of their nodes, with a network in between that loses,
//! duplicates and reorders packets as a test demands.

use super::super::*;
use crate::group::Nodes;
use crate::packet::Destination;
use omnes_firmware::barrier::{Action, Barrier, Combine, Contribution, Table, Verdict};
use omnes_topo::{BarrierAlgorithm, Party};
use omnes_wire::{CARRIED_MAX, COMBINE_SHIFT, Flags, Header, Seq, Words};
use std::time::Duration;

pub(super) const GROUP: CommunicatorId = CommunicatorId(7);
pub(super) const US: Duration = Duration::from_micros(1);
/// Latency of the network, and within a node.
pub(super) const LATENCY: Duration = Duration::from_micros(20);

/// Pseudorandom numbers from a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`.
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Faults of the network, in percent of all packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    /// Added to the latency: a random time up to this one.
    pub(super) jitter: Duration,
}

/// Packet in flight to one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) header: Header,
    pub(super) words: Words,
    pub(super) to: u32,
    /// It is addressed to the socket that the kernel NIC watches.
    pub(super) by_nic: bool,
}

impl Packet {
    pub(super) fn from(&self) -> u32 {
        self.header.source.0
    }

    /// True for this message of the network's part or of a node.
    pub(super) fn is(&self, kind: Kind, epoch: u32, step: u32, from: u32, to: u32) -> bool {
        let Header { kind: is, seq, argument, source, .. } = self.header;
        (is, seq.0, argument, source.0, self.to) == (kind, epoch, step, from, to)
    }
}

enum SimEvent {
    Arrives(Packet),
    Enters(u32),
}

/// The kernel NIC's side of a leader: a model of `firmware/nic.bpf.c`.
pub(super) struct Nic {
    table: Table,
    barrier: Barrier,
}

/// True for a packet that is lost.
type Loss = Box<dyn FnMut(&Packet) -> bool>;

/// See the module header.
pub(super) struct Net {
    pub(super) machines: Vec<Collective>,
    pub(super) nics: Vec<Option<Nic>>,
    pub(super) config: BarrierGroupConfig,
    pub(super) now: Instant,
    pub(super) faults: Faults,
    pub(super) random: Random,
    pub(super) lose: Loss,
    /// All packets that have been sent; one to all counts as one for each rank.
    pub(super) sent: Vec<Packet>,
    /// Number of packets that have been sent; one to all counts once.
    pub(super) packets: u64,
    /// Number of barriers that each rank has entered, and has completed (`done`).
    pub(super) entered: Vec<u32>,
    pub(super) done: Vec<u32>,
    pub(super) failed: Vec<(u32, Event)>,
    /// Ranks that have failed or left.
    pub(super) dead: Vec<bool>,
    start: u32,
    can_combine: bool,
    queue: BTreeMap<(Instant, u64), SimEvent>,
    count: u64,
}

/// Nodes of the given numbers of ranks, filled with the job's ranks in order.
pub(super) fn nodes(ranks: &[u32]) -> Nodes {
    let mut next = 0..;
    let node = |ranks: &u32| next.by_ref().take(*ranks as usize).map(Rank).collect();
    ranks.iter().map(node).collect()
}

/// A group of such nodes.
pub(super) fn group(
    ranks: &[u32],
    algorithm: BarrierAlgorithm,
    runner: Runner,
) -> BarrierGroupConfig {
    let nodes = nodes(ranks);
    BarrierGroupConfig { communicator: GROUP, nodes, algorithm, runner, is_multicast: false }
}

impl Net {
    pub(super) fn new(config: BarrierGroupConfig) -> Self {
        Self::after(config, 0)
    }

    /// All ranks have completed barrier `start`. One rank of the job is not a member.
    pub(super) fn after(config: BarrierGroupConfig, start: u32) -> Self {
        let members = config.nodes.seats();
        let size = members + 1;
        let machine = |rank: u32| {
            let mut machine = Collective::new(Rank(rank), size, CollectiveConfig::default());
            if rank < members {
                machine.open_after(&config, start);
                assert!(machine.is_open(GROUP));
            }
            machine
        };
        let machines: Vec<_> = (0..size).map(machine).collect();
        let can_combine = machines[0].can_combine(GROUP);
        let none = vec![0; size as usize];
        let mut net = Self {
            machines,
            nics: (0..size).map(|_| None).collect(),
            now: Instant::ZERO,
            faults: Faults::default(),
            random: Random(1),
            lose: Box::new(|_| false),
            sent: Vec::new(),
            packets: 0,
            entered: none.clone(),
            done: none,
            failed: Vec::new(),
            dead: vec![false; size as usize],
            start,
            can_combine,
            queue: BTreeMap::new(),
            count: 0,
            config,
        };
        net.open_slots();
        net
    }

    fn open_slots(&mut self) {
        let nodes = self.config.nodes.count();
        if self.config.runner == Runner::Host || nodes == 1 {
            return;
        }
        for node in 0..nodes {
            let BarrierGroupConfig { algorithm, is_multicast, .. } = self.config;
            let table = Table::new(algorithm, node, nodes, is_multicast).unwrap();
            let nic = Nic { barrier: Barrier::after(&table, self.start), table };
            let leader = self.leader(node);
            self.nics[leader as usize] = Some(nic);
        }
    }

    pub(super) fn leader(&self, node: u32) -> u32 {
        self.config.nodes.leader(node).0
    }

    fn node_of(&self, rank: u32) -> Option<u32> {
        self.config.nodes.place(Rank(rank)).map(|place| place.node)
    }

    pub(super) fn ranks(&self) -> std::ops::Range<u32> {
        0..self.machines.len() as u32 - 1
    }

    // ---- what happens -----------------------------------------------------------------------

    fn plan(&mut self, at: Instant, what: SimEvent) {
        self.count += 1;
        self.queue.insert((at, self.count), what);
    }

    /// `rank` enters the next barrier after `wait`.
    pub(super) fn enter_in(&mut self, wait: Duration, rank: u32) {
        self.plan(self.now + wait, SimEvent::Enters(rank));
    }

    /// All members enter the next barrier now.
    pub(super) fn enter_all(&mut self) {
        for rank in self.ranks() {
            self.enter(rank);
        }
    }

    pub(super) fn enter(&mut self, rank: u32) -> u32 {
        self.entered[rank as usize] += 1;
        let own = self.brings(rank, self.entered[rank as usize]);
        let epoch = self.machines[rank as usize].enter_with(self.now, GROUP, own).unwrap();
        let count = epoch.wrapping_sub(self.start);
        assert_eq!(count, self.entered[rank as usize], "barriers are numbered one by one");
        self.drain(rank);
        epoch
    }

    /// Contribution of a member to its barrier of that number, if words are combined: every
    /// operation in turn, and occasionally none.
    fn brings(&self, rank: u32, count: u32) -> Contribution {
        let way = Combine::ALL.get(count as usize % (Combine::ALL.len() + 1)).copied();
        let Some(combine) = way.filter(|_| self.can_combine) else {
            return Contribution::default();
        };
        let mut random = Random(u64::from(rank) << 32 | u64::from(count));
        let words: [u64; CARRIED_MAX] = std::array::from_fn(|_| match combine {
            // So that no sum is rounded.
            Combine::SumF64 => (random.next() as i32 as f64).to_bits(),
            _ => random.next(),
        });
        Contribution::new(combine, &words[..1 + count as usize / 2 % CARRIED_MAX])
    }

    /// Results of the barrier of that number.
    fn makes(&self, count: u32) -> Words {
        let words = self.ranks().skip(1).map(|rank| self.brings(rank, count).words());
        self.brings(0, count).with(words).words()
    }

    pub(super) fn ask(&mut self, rank: u32) {
        self.machines[rank as usize].ask(GROUP);
        self.drain(rank);
    }

    /// Runs until nothing is in progress, at most for `limit`; returns true if nothing is.
    pub(super) fn run(&mut self, limit: Duration) -> bool {
        let end = self.now + limit;
        while let Some(at) = self.next_at() {
            if at > end {
                self.now = end;
                return false;
            }
            self.now = at;
            self.step();
        }
        true
    }

    fn next_at(&self) -> Option<Instant> {
        let happens_at = self.queue.first_key_value().map(|((at, _), _)| *at);
        let living = self.machines.iter().zip(&self.dead).filter(|(_, dead)| !**dead);
        let timeouts = living.filter_map(|(machine, _)| machine.poll_timeout());
        timeouts.chain(happens_at).min().map(|at| at.max(self.now))
    }

    fn step(&mut self) {
        for rank in 0..self.machines.len() as u32 {
            let machine = &mut self.machines[rank as usize];
            if !self.dead[rank as usize] && machine.poll_timeout().is_some_and(|at| at <= self.now)
            {
                machine.handle_timeout(self.now);
                let next = machine.poll_timeout();
                assert!(next.is_none_or(|at| at > self.now), "a due timer fires once");
                self.drain(rank);
            }
        }
        while let Some(entry) = self.queue.first_entry().filter(|it| it.key().0 <= self.now) {
            match entry.remove() {
                SimEvent::Enters(rank) => {
                    if !self.dead[rank as usize] {
                        self.enter(rank);
                    }
                }
                SimEvent::Arrives(packet) => self.arrive(&packet),
            }
        }
    }

    fn arrive(&mut self, packet: &Packet) {
        let rank = packet.to;
        if self.dead[rank as usize] {
            return;
        }
        if !packet.by_nic || !self.nic_takes(packet) {
            let behind = packet.words.behind().iter().flat_map(|word| word.to_be_bytes());
            let behind: Vec<u8> = behind.collect();
            self.machines[rank as usize].handle_packet(self.now, &packet.header, &behind);
        }
        self.drain(rank);
    }

    /// Handles all output of a machine, and shows it its NIC.
    fn drain(&mut self, rank: u32) {
        loop {
            while let Some(outbound) = self.machines[rank as usize].poll_transmit(self.now) {
                self.transmit(rank, outbound);
            }
            while let Some(event) = self.machines[rank as usize].poll_event() {
                self.on_event(rank, event);
            }
            if !self.look_at_page(rank) {
                return;
            }
        }
    }

    fn on_event(&mut self, rank: u32, event: Event) {
        let Event::Done { communicator, epoch, words } = event else {
            self.failed.push((rank, event));
            return;
        };
        self.done[rank as usize] += 1;
        let count = self.done[rank as usize];
        assert_eq!((communicator, epoch), (GROUP, self.start.wrapping_add(count)));
        assert_eq!(words, self.makes(count), "rank {rank}, barrier {count}");
        for member in self.ranks() {
            let entered = self.entered[member as usize];
            assert!(entered >= count, "rank {rank} left barrier {count} before {member} entered");
        }
    }

    // ---- packets ----------------------------------------------------------------------------

    fn transmit(&mut self, from: u32, Outbound { to, header, words }: Outbound) {
        assert_eq!((header.source, header.communicator), (Rank(from), GROUP));
        self.packets += 1;
        match to {
            Destination::Rank(to) => self.send(Packet { header, words, to: to.0, by_nic: false }),
            Destination::Group => self.send_to_all(header, words),
            Destination::Nic { to, communicator } => {
                assert_eq!(communicator, GROUP);
                self.send(Packet { header, words, to: to.0, by_nic: true });
            }
            Destination::Doorbell { communicator, .. } => {
                assert_eq!((communicator, header.kind), (GROUP, Kind::Step));
                // The doorbell does not leave the host.
                self.packets -= 1;
                self.nic_enters(from, &header, words);
            }
        }
    }

    fn send_to_all(&mut self, header: Header, words: Words) {
        assert!(header.flags.has(Flags::GROUP), "the tag names all");
        for to in 0..self.machines.len() as u32 {
            if to != header.source.0 {
                self.send(Packet { header, words, to, by_nic: true });
            }
        }
    }

    fn send(&mut self, packet: Packet) {
        assert!(packet.from() != packet.to, "{packet:?}");
        self.sent.push(packet);
        let faults = self.faults;
        if self.random.happens(faults.lost) || (self.lose)(&packet) {
            return;
        }
        let copies = 1 + u64::from(self.random.happens(faults.doubled));
        for _ in 0..copies {
            let jitter = self.random.below(faults.jitter.as_nanos() as u64 + 1);
            let at = self.now + LATENCY + Duration::from_nanos(jitter);
            self.plan(at, SimEvent::Arrives(packet));
        }
    }

    pub(super) fn count(&self, kind: Kind) -> usize {
        self.sent.iter().filter(|packet| packet.header.kind == kind).count()
    }

    // ---- the kernel NIC -------------------------------------------------------------------

    /// Handles a packet that arrives at a slot; returns false if the host gets it.
    fn nic_takes(&mut self, packet: &Packet) -> bool {
        let Some(from) = self.node_of(packet.from()) else { return false };
        let Some(nic) = &mut self.nics[packet.to as usize] else { return false };
        let Header { kind, seq, argument, source, .. } = packet.header;
        match kind {
            Kind::Step => {
                let (message, words) = ((seq.0, argument), packet.words);
                let (_, action) = nic.barrier.arrive(&nic.table, message, from, words);
                self.nic_sends(packet.to, action);
            }
            Kind::StepNack => {
                let verdict = nic.barrier.repeat(&nic.table, seq.0, argument, from);
                if verdict == Verdict::Taken {
                    let words = nic.barrier.words(&nic.table, seq.0, argument);
                    let header = words.on(step(packet.to, seq.0, argument));
                    self.packets += 1;
                    self.send(Packet { header, words, to: source.0, by_nic: true });
                }
            }
            _ => return false,
        }
        true
    }

    fn nic_enters(&mut self, rank: u32, header: &Header, words: Words) {
        let nic = self.nics[rank as usize].as_mut().unwrap();
        let combine = header.argument >> COMBINE_SHIFT;
        let first = header.argument & ((1 << COMBINE_SHIFT) - 1);
        assert_eq!(Some(first), nic.table.first_send());
        let own = Contribution::numbered(combine, words);
        let (_, action) = nic.barrier.enter(&nic.table, header.seq.0, own);
        self.nic_sends(rank, action);
    }

    fn nic_sends(&mut self, rank: u32, action: Action) {
        for number in action.steps() {
            let nic = self.nics[rank as usize].as_ref().unwrap();
            let words = nic.barrier.words(&nic.table, action.epoch, number);
            let header = words.on(step(rank, action.epoch, number));
            let (to, is_multicast) = (nic.table.send_to(number), nic.table.is_multicast());
            let own = Rank(nic.table.own());
            let nodes = nic.table.size();
            let to_all = to == Party::Everybody;
            let flags = header.flags.with_if(Flags::GROUP, to_all);
            let header = Header { flags, ..header };
            if to_all && is_multicast {
                self.packets += 1;
                self.send_to_all(header, words);
                continue;
            }
            for node in to.ranks(own, nodes) {
                self.packets += 1;
                self.send(Packet { header, words, to: self.leader(node.0), by_nic: true });
            }
        }
    }

    /// Shows a machine its NIC's page; returns true if the NIC runs a barrier for it.
    fn look_at_page(&mut self, rank: u32) -> bool {
        let machine = &mut self.machines[rank as usize];
        let waits: Vec<CommunicatorId> = machine.nic_waits().collect();
        let Some(nic) = &self.nics[rank as usize] else {
            // Given back when the group was closed.
            assert!(waits.is_empty() || self.config.runner == Runner::Nic);
            return false;
        };
        assert!(waits.is_empty() || waits == [GROUP]);
        let before = machine.counters().barriers;
        for communicator in waits {
            machine.handle_nic(self.now, communicator, &nic.view());
        }
        machine.counters().barriers != before
    }
}

impl Nic {
    pub(super) fn view(&self) -> NicView {
        let mut arrived = [0; 16];
        let at = self.barrier.waits_at().unwrap_or(self.table.steps());
        if self.table.receive_from(at) == Party::Everybody {
            let missing = self.barrier.missing(&self.table);
            for node in (0..self.table.size()).filter(|node| !missing.contains(node)) {
                arrived[node as usize / 64] |= 1 << (node % 64);
            }
        }
        let (entered, done) = (self.barrier.entered(), self.barrier.done());
        let mut results = [0; CARRIED_MAX];
        let made = self.barrier.results(&self.table);
        results.iter_mut().zip(made.as_slice()).for_each(|(place, word)| *place = *word);
        NicView { entered, done, at, results, arrived }
    }
}

/// A step of the network's part, as the kernel NIC writes it.
pub(super) fn step(from: u32, epoch: u32, number: u32) -> Header {
    message(Kind::Step, from, epoch, number)
}

pub(super) fn message(kind: Kind, from: u32, epoch: u32, argument: u32) -> Header {
    Header { expects: Seq(0), ..emit::header(Rank(from), GROUP, kind, epoch, argument) }
}
