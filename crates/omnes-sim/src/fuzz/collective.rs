//! Fuzzing of barriers: bytes are a list of operations on two honest ranks with the NICs of their
//! nodes, and on a third rank that has the right key and sends whatever the bytes say.
//!
//! One group has all three ranks, one only the honest two. Nothing may panic, barriers end in
//! entering order, the state of a rank stays bounded, and in the honest ranks' own group neither
//! leaves a barrier before the other has entered it, whatever the third rank sends. At the end the
//! honest ranks are left alone: unless a rank was declared dead or gone, all their own barriers
//! must end.

use super::bytes::Bytes;
use super::wire::Wire;
use super::{HONEST, PACKETS_MAX, check_bounded, endpoint, must};
use crate::rig::builder::{JOB, KEY};
use crate::rig::nic::{Host, Leaving, Nic};
use crate::rig::rule::Way;
use crate::rig::stranger::sealed;
use crate::rig::words;
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::{
    BarrierGroupConfig, Collective, Event as BarrierEvent, Runner, STEP_JOIN, STEP_RELEASE,
};
use omnes_proto::endpoint::{Endpoint, Event};
use omnes_proto::packet::{Destination, HEAD_BYTES_MAX, Head};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{ChannelId, CommunicatorId, Flags, Header, Instant, Kind, Rank, Seq, Words};
use std::collections::BTreeMap;
use std::time::Duration;

/// Group of all three ranks.
const ALL: CommunicatorId = CommunicatorId(1);
/// Group of the honest ranks.
const OWN: CommunicatorId = CommunicatorId(2);

/// Divisions of all three ranks into nodes.
const NODES_OF_ALL: [&[&[u32]]; 8] = [
    &[&[0], &[1], &[2]],
    &[&[2], &[1], &[0]],
    &[&[0, 1], &[2]],
    &[&[0, 2], &[1]],
    &[&[2, 0], &[1]],
    &[&[2], &[1, 0]],
    &[&[0, 1, 2]],
    &[&[2, 1, 0]],
];
/// Divisions of the honest ranks into nodes.
const NODES_OF_OWN: [&[&[u32]]; 3] = [&[&[0], &[1]], &[&[1], &[0]], &[&[1, 0]]];

/// Barriers of one group at one rank.
#[derive(Clone, Copy, Default)]
struct Count {
    entered: u32,
    done: u32,
}

struct Honest {
    rank: u32,
    endpoint: Endpoint,
    nic: Nic,
    counts: BTreeMap<CommunicatorId, Count>,
    /// The rank computes and does not poll its NIC.
    is_busy: bool,
    /// A rank was declared dead or gone, so that barriers may not end.
    has_lost: bool,
}

struct Rig {
    now: Instant,
    groups: [BarrierGroupConfig; 2],
    ranks: Vec<Honest>,
    wire: Wire<(u32, Way)>,
}

/// Runs a list of operations on barriers: two honest ranks, and one that has the right key and
/// sends whatever the bytes say.
pub fn collective(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let mut rig = Rig::new(&mut bytes);
    bytes.run(|bytes| rig.operate(bytes));
    rig.finish();
}

fn group(
    bytes: &mut Bytes,
    communicator: CommunicatorId,
    divisions: &[&[&[u32]]],
) -> BarrierGroupConfig {
    let nodes = divisions[usize::from(bytes.byte()) % divisions.len()];
    let marks = bytes.byte();
    BarrierGroupConfig {
        communicator,
        nodes: nodes.iter().map(|node| node.iter().copied().map(Rank).collect()).collect(),
        algorithm: BarrierAlgorithm::ALL[usize::from(marks % 4)],
        runner: if marks & 4 == 0 { Runner::Host } else { Runner::Nic },
        is_multicast: marks & 8 != 0,
    }
}

impl Rig {
    fn new(bytes: &mut Bytes) -> Self {
        let groups = [group(bytes, ALL, &NODES_OF_ALL), group(bytes, OWN, &NODES_OF_OWN)];
        let is_late = bytes.byte().is_multiple_of(8);
        let ranks = (0..HONEST).map(Honest::new).collect();
        let now = Instant::ZERO;
        let mut rig = Self { now, groups, ranks, wire: Wire::new() };
        rig.open(0);
        if is_late {
            // Packets that arrive before a group is open must not be lost forever.
            rig.enter(0, OWN);
            rig.drain_all();
            while let Some((to, packet)) = rig.wire.pop() {
                rig.hand_over(to, &packet);
            }
        }
        rig.open(1);
        rig
    }

    fn open(&mut self, rank: u32) {
        for group in &self.groups {
            self.ranks[rank as usize].open(group);
        }
    }

    fn operate(&mut self, bytes: &mut Bytes) {
        let operation = bytes.byte();
        let rank = u32::from(bytes.byte()) % HONEST;
        match operation % 16 {
            0 | 1 => self.enter(rank, OWN),
            2 => self.enter(rank, ALL),
            3..=6 => {
                if let Some((to, packet)) = self.wire.pop() {
                    self.hand_over(to, &packet);
                }
            }
            7 => drop(self.wire.pop()),
            8 => {
                if let Some((to, packet)) = self.wire.replay(bytes) {
                    self.hand_over(to, &packet);
                }
            }
            9 => self.wire.mutate(bytes),
            10..=13 => self.craft(rank, bytes),
            14 => self.turn(rank, bytes),
            _ => self.pass_time(bytes.time()),
        }
        self.drain_all();
        for own in &self.ranks {
            for communicator in [ALL, OWN] {
                own.check_missing(communicator, &self.groups);
            }
        }
    }

    // ---- operations -----------------------------------------------------------------------

    fn enter(&mut self, rank: u32, communicator: CommunicatorId) {
        let now = self.now;
        let group = self.groups.iter().find(|group| group.communicator == communicator);
        let own = &mut self.ranks[rank as usize];
        let next = own.counts.get(&communicator).map_or(0, |count| count.entered) + 1;
        let brought = group.map(|group| words::brings(group, Rank(rank), next)).unwrap_or_default();
        if let Ok(epoch) = own.machine().enter_with(now, communicator, brought) {
            let count = own.counts.entry(communicator).or_default();
            count.entered += 1;
            assert_eq!(epoch, count.entered, "barriers are numbered one by one");
        }
    }

    /// A rank's other actions: it asks, computes, or closes the group of all and opens it again.
    fn turn(&mut self, rank: u32, bytes: &mut Bytes) {
        let choice = bytes.byte();
        let own = &mut self.ranks[rank as usize];
        match choice % 16 {
            0..=5 => own.machine().ask(OWN),
            6..=9 => own.machine().ask(ALL),
            10..=13 => own.is_busy = !own.is_busy,
            14 => own.close(ALL),
            _ => {
                own.close(ALL);
                own.open(&self.groups[0]);
            }
        }
    }

    /// The third rank sends an arbitrary packet with a valid tag, to one rank or to all.
    fn craft(&mut self, to: u32, bytes: &mut Bytes) {
        let usual = [Kind::Step, Kind::Step, Kind::StepNack, Kind::StepTell, Kind::StepAsk];
        let rare = [Kind::Ping, Kind::Pong, Kind::Failed, Kind::Bye];
        let kind = bytes.kind(&usual, &rare);
        let communicator = if bytes.byte().is_multiple_of(4) { OWN } else { ALL };
        let count = self.ranks[to as usize].counts.get(&communicator).copied();
        let Count { entered, done } = count.unwrap_or_default();
        let marks = bytes.byte();
        let is_to_all = marks & 1 != 0;
        let way = [Way::Unicast, Way::Nic, Way::Nic, Way::Multicast][usize::from(marks >> 1 & 3)];
        let argument = match bytes.byte() {
            255 => bytes.word(),
            254 => STEP_RELEASE,
            250..254 => STEP_JOIN,
            step => u32::from(step % 8),
        };
        let header = Header {
            kind,
            job: JOB,
            communicator,
            channel: ChannelId(u8::from(marks >> 3 == 31)),
            flags: Flags(bytes.byte() & 127).with_if(Flags::GROUP, is_to_all),
            source: Rank(2),
            seq: bytes.near(Seq(done + 1)),
            expects: bytes.near(Seq(entered)),
            epoch: 0,
            credits: 0,
            argument,
        };
        let tagged = if is_to_all { Rank::ALL } else { Rank(to) };
        let words: Vec<u8> = (0..Words::bytes_behind(&header)).map(|_| bytes.byte()).collect();
        let mut packet = sealed(&KEY, &header, tagged, &words);
        if marks >> 3 == 30 {
            packet.push(0);
        }
        self.hand_over((to, way), &packet);
        if way == Way::Multicast {
            self.hand_over((1 - to, way), &packet);
        }
    }

    fn pass_time(&mut self, time: Duration) {
        self.now = self.now + time;
        self.ranks.iter_mut().for_each(|own| own.endpoint.handle_timeout(self.now));
        self.drain_all();
    }

    // ---- driving --------------------------------------------------------------------------

    fn hand_over(&mut self, (to, way): (u32, Way), packet: &[u8]) {
        let own = &mut self.ranks[to as usize];
        let host = if own.is_busy { Host::Awake } else { Host::Asleep };
        let passage = own.nic.ingress(way, packet, host);
        if passage.goes_on {
            let head = &packet[..packet.len().min(HEAD_BYTES_MAX)];
            let placement = own.endpoint.handle_packet(self.now, head, packet.len());
            assert_eq!(placement, None, "a barrier has no data");
        }
        for leaving in passage.leaving {
            self.put_on_wire(to, leaving);
        }
        self.drain(to);
    }

    /// Puts a packet on the wire to the other honest rank, if the packet reaches it.
    fn put_on_wire(&mut self, from: u32, Leaving { to, bytes }: Leaving) {
        let other = 1 - from;
        let way = match to {
            Destination::Rank(rank) if rank == Rank(other) => Way::Unicast,
            Destination::Nic { to, .. } | Destination::Doorbell { to, .. } if to == Rank(other) => {
                Way::Nic
            }
            Destination::Group => Way::Multicast,
            _ => return,
        };
        self.wire.push((other, way), bytes);
    }

    fn drain_all(&mut self) {
        (0..HONEST).for_each(|rank| self.drain(rank));
    }

    fn drain(&mut self, rank: u32) {
        for turn in 0.. {
            assert!(turn < PACKETS_MAX, "rank {rank} is never drained");
            self.send_packets(rank);
            let own = &mut self.ranks[rank as usize];
            let is_shown = own.look(self.now);
            let is_news = self.take_events(rank);
            if !is_shown && !is_news {
                return;
            }
        }
    }

    fn send_packets(&mut self, rank: u32) {
        let mut head = Head::default();
        for count in 0.. {
            let own = &mut self.ranks[rank as usize];
            let Some(transmit) = own.endpoint.poll_transmit(self.now, &mut head) else { return };
            assert!(count < PACKETS_MAX, "rank {rank} never stops sending");
            let (to, bytes) = (transmit.to, head.as_bytes().to_vec());
            let leaving = match to {
                Destination::Nic { .. } | Destination::Doorbell { .. } => {
                    own.nic.egress(to, &bytes)
                }
                Destination::Rank(_) | Destination::Group => vec![Leaving { to, bytes }],
            };
            for leaving in leaving {
                self.put_on_wire(rank, leaving);
            }
        }
    }

    fn take_events(&mut self, rank: u32) -> bool {
        let mut is_news = false;
        while let Some(event) = self.ranks[rank as usize].endpoint.poll_event(self.now) {
            is_news = true;
            let done = self.ranks[rank as usize].take(event);
            if let Some((epoch, made)) = done {
                assert_eq!(made, words::makes(&self.groups[1], epoch), "barrier {epoch}");
                let other = self.ranks[1 - rank as usize].counts.get(&OWN).copied();
                let Count { entered, .. } = other.unwrap_or_default();
                assert!(entered >= epoch, "rank {rank} leaves barrier {epoch} alone");
            }
        }
        is_news
    }

    // ---- the end --------------------------------------------------------------------------

    /// Leaves the honest ranks alone until all their own barriers have ended.
    fn finish(&mut self) {
        for own in &mut self.ranks {
            own.is_busy = false;
            check_bounded(own.machine());
        }
        let entered = |own: &Honest| own.counts.get(&OWN).map_or(0, |count| count.entered);
        let most = self.ranks.iter().map(entered).max().unwrap_or(0);
        for rank in 0..HONEST {
            for _ in entered(&self.ranks[rank as usize])..most {
                self.enter(rank, OWN);
            }
        }
        self.drain_all();
        let is_done = |own: &Honest| {
            own.has_lost || own.counts.get(&OWN).is_none_or(|count| count.done == most)
        };
        for _ in 0..10_000 {
            // A rank that has lost the other falls silent.
            if self.ranks.iter().all(is_done) || self.ranks.iter().any(|own| own.has_lost) {
                return;
            }
            while let Some((to, packet)) = self.wire.pop() {
                self.hand_over(to, &packet);
            }
            self.pass_time(Duration::from_millis(1));
        }
        panic!("barriers of honest ranks do not end");
    }
}

impl Honest {
    fn new(rank: u32) -> Self {
        let channel = ChannelConfig { pool_slots: 4, ..ChannelConfig::default() };
        Self {
            rank,
            endpoint: endpoint(rank, channel, None),
            nic: Nic::default(),
            counts: BTreeMap::new(),
            is_busy: false,
            has_lost: false,
        }
    }

    fn machine(&mut self) -> &mut Collective {
        self.endpoint.collective_mut()
    }

    fn open(&mut self, group: &BarrierGroupConfig) {
        if group.runner == Runner::Nic {
            self.nic.open((JOB, &KEY), Rank(self.rank), group);
        }
        self.counts.remove(&group.communicator);
        self.machine().open(group.clone());
        assert!(self.machine().is_open(group.communicator));
    }

    fn close(&mut self, communicator: CommunicatorId) {
        self.nic.close(communicator);
        self.machine().close(communicator);
    }

    /// Shows the machine the progress of the NIC, unless this rank computes.
    fn look(&mut self, now: Instant) -> bool {
        if self.is_busy {
            return false;
        }
        let waits: Vec<CommunicatorId> = self.endpoint.collective().nic_waits().collect();
        let mut is_news = false;
        for communicator in waits {
            if let Some(view) = self.nic.look(communicator) {
                is_news = true;
                self.machine().handle_nic(now, communicator, &view);
            }
        }
        is_news
    }

    /// The barrier of the honest ranks' own group that the event completes, if any, with its
    /// result.
    fn take(&mut self, event: Event) -> Option<(u32, Words)> {
        match event {
            Event::Collective(BarrierEvent::Done { communicator, epoch, words }) => {
                let count = self.counts.entry(communicator).or_default();
                count.done += 1;
                assert_eq!(epoch, count.done, "barriers end in the order of entering");
                assert!(epoch <= count.entered, "barrier {epoch} ends before it is entered");
                return Some((epoch, words)).filter(|_| communicator == OWN);
            }
            Event::Collective(BarrierEvent::Failed { communicator, rank, .. }) => {
                assert!(
                    communicator == ALL || rank.0 < HONEST,
                    "{rank} is not a member of {OWN:?}"
                );
            }
            // The third rank never answers pings, so it is occasionally found to have failed.
            Event::PeerFailed(rank) | Event::PeerDeparted(rank) => {
                self.has_lost |= rank.0 < HONEST;
            }
            Event::Channel(..) | Event::Broadcast(_) => panic!("{event:?}, but nobody sends"),
            Event::Excluded { .. } => {}
        }
        None
    }

    /// Only members may be missing, and never this rank itself.
    fn check_missing(&self, communicator: CommunicatorId, groups: &[BarrierGroupConfig]) {
        let machine = self.endpoint.collective();
        let missing = machine.missing(communicator);
        let mut members = groups.iter().filter(|it| it.communicator == communicator);
        let is_other = |rank: &Rank| {
            let mut groups = members.clone();
            rank.0 != self.rank && groups.any(|group| group.nodes.contains(*rank))
        };
        must(if missing.iter().all(is_other) {
            Ok(())
        } else {
            Err(format!("{missing:?} of {:?}", members.next()))
        });
    }
}
