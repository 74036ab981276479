//! A run is equivalent to its packets one by one: of two jobs with the same faults, one hands out
//! and accepts runs and the other does not, and both send and place the same.
#![allow(clippy::unwrap_used)]

use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::{BroadcastConfig, CastGroupConfig, CastMessage, GroupId};
use omnes_proto::channel::{ChannelConfig, Message, Pattern, Reply};
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::{Endpoint, EndpointConfig, Event, Run};
use omnes_proto::group::Nodes;
use omnes_proto::packet::{Destination, Head, Placement, Segment, Transmit};
use omnes_wire::{CommunicatorId, Instant, JobId, JobKey, PACKET_OVERHEAD_BYTES, Rank};
use proptest::prelude::*;
use std::time::Duration;

/// Two streams of broadcasts that take turns.
const GROUPS: [GroupId; 2] = [
    GroupId { communicator: CommunicatorId(0), number: 0 },
    GroupId { communicator: CommunicatorId(0), number: 1 },
];
const RANKS: u32 = 3;
const TRAIN: usize = 20;
const STEP: Duration = Duration::from_micros(20);
/// After these steps, in which it is possible that no packet arrives, all packets arrive.
const FAULTY_STEPS: u32 = 2000;
const STEPS_MAX: u32 = 200_000;

/// Packet in flight.
#[derive(Clone, PartialEq, Debug)]
struct Packet {
    from: u32,
    to: Destination,
    head: Vec<u8>,
    segment: Option<Segment>,
}

impl Packet {
    fn new(from: u32, transmit: &Transmit, head: &Head) -> Self {
        let Transmit { to, segment, .. } = *transmit;
        Self { from, to, head: head.as_bytes().to_vec(), segment }
    }

    fn bytes(&self) -> usize {
        self.head.len() + self.segment.map_or(0, |segment| segment.bytes as usize)
    }

    /// True if this packet can follow `other` in a train: same sender, receiver and length, and no
    /// control body.
    fn continues(&self, other: &Self) -> bool {
        (self.from, self.to, self.bytes()) == (other.from, other.to, other.bytes())
            && self.head.len() == PACKET_OVERHEAD_BYTES
    }
}

/// What a rank reported: where data went, and events.
#[derive(PartialEq, Debug)]
enum Told {
    Placed(Placement),
    Happened(Event),
}

struct Job {
    ranks: Vec<Endpoint>,
    by_runs: bool,
    told: Vec<(u32, Told)>,
    /// Number of packets that arrived as part of a run.
    taken: u64,
    continued: u64,
}

fn endpoint(me: u32, window_packets: u32) -> Endpoint {
    let channel = ChannelConfig {
        payload_bytes: 256,
        eager_bytes: 2000,
        eager_head_bytes: 1000,
        window_packets,
        ..ChannelConfig::default()
    };
    let broadcast =
        BroadcastConfig { payload_bytes: 256, window_packets, ..BroadcastConfig::default() };
    let config = EndpointConfig {
        me: Rank(me),
        size: RANKS,
        job: JobId(1),
        key: JobKey::new([7; 16]),
        channels: vec![channel.build().unwrap()],
        broadcast: Some(broadcast.build().unwrap()),
        collective: CollectiveConfig::default(),
        liveness: LivenessConfig::default(),
    };
    let mut endpoint = Endpoint::new(Instant::ZERO, config);
    for id in GROUPS {
        let (nodes, policy) = (Nodes::one_each(RANKS), "combined".parse().unwrap());
        endpoint.broadcast_mut().unwrap().open(CastGroupConfig { id, nodes, policy });
    }
    endpoint
}

impl Job {
    fn new(by_runs: bool, window_packets: u32) -> Self {
        let ranks = (0..RANKS).map(|rank| endpoint(rank, window_packets)).collect();
        Self { ranks, by_runs, told: Vec::new(), taken: 0, continued: 0 }
    }

    /// Rank 0 sends `bytes` to each other rank, and to all in each group.
    fn begin(&mut self, now: Instant, tag: u32, bytes: u64) {
        let communicator = CommunicatorId(0);
        for rank in 1..RANKS {
            let receiver = &mut self.ranks[rank as usize];
            let pattern = Pattern { communicator, source: Some(Rank(0)), tag: Some(tag) };
            receiver.channel_mut(0).receive(now, pattern, bytes).unwrap();
            for group in GROUPS {
                receiver.broadcast_mut().unwrap().receive(now, group, Rank(0), bytes).unwrap();
            }
            let to = Rank(rank);
            let (available, reply) = (bytes, Reply::Soon);
            let message = Message { to, communicator, tag, bytes, available, reply };
            self.ranks[0].channel_mut(0).send(message).unwrap();
        }
        for group in GROUPS {
            let cast = CastMessage { group, bytes, reply: Reply::Soon };
            self.ranks[0].broadcast_mut().unwrap().send(cast).unwrap();
        }
    }

    /// All packets that rank `from` sends now.
    fn send(&mut self, now: Instant, from: u32) -> Vec<Packet> {
        let endpoint = &mut self.ranks[from as usize];
        let mut heads = [Head::default(); TRAIN];
        let mut sent = Vec::new();
        while let Some(transmit) = endpoint.poll_transmit(now, &mut heads[0]) {
            sent.push(Packet::new(from, &transmit, &heads[0]));
            let more =
                if self.by_runs { endpoint.continue_run(now, &transmit, &mut heads) } else { 0 };
            self.continued += more as u64;
            for (index, head) in (1..).zip(&heads[1..=more]) {
                let mut packet = Packet::new(from, &transmit, head);
                let segment = packet.segment.as_mut().unwrap();
                segment.offset += index * u64::from(segment.bytes);
                sent.push(packet);
            }
        }
        sent
    }

    /// Passes these packets to rank `to`, in trains where they fit.
    fn receive(&mut self, now: Instant, to: u32, packets: &[&Packet]) {
        let mut at = 0;
        while at < packets.len() {
            let first = packets[at];
            let train = packets[at..].iter().take_while(|packet| packet.continues(first));
            let heads = train.map(|packet| packet.head.as_slice());
            let endpoint = &mut self.ranks[to as usize];
            let run =
                if self.by_runs { endpoint.handle_run(now, heads, first.bytes()) } else { None };
            if let Some(run) = run {
                let Run { packets, .. } = run;
                assert!(packets > 1);
                self.taken += u64::from(packets);
                let placed = run.placements().map(|placement| (to, Told::Placed(placement)));
                self.told.extend(placed);
                at += packets as usize;
            } else {
                let placement = endpoint.handle_packet(now, &first.head, first.bytes());
                self.told.extend(placement.map(|placement| (to, Told::Placed(placement))));
                at += 1;
            }
            while endpoint.poll_move().is_some() {}
        }
    }

    /// Handles the timers that are due, and records events.
    fn settle(&mut self, now: Instant) {
        for (rank, endpoint) in (0..).zip(&mut self.ranks) {
            if endpoint.poll_timeout().is_some_and(|due| due <= now) {
                endpoint.handle_timeout(now);
            }
            while let Some(event) = endpoint.poll_event(now) {
                self.told.push((rank, Told::Happened(event)));
            }
        }
    }

    fn received(&self) -> usize {
        use omnes_proto::broadcast::Event as Cast;
        use omnes_proto::channel::Event as Sent;
        let is_end = |told: &&(u32, Told)| {
            matches!(
                told.1,
                Told::Happened(
                    Event::Channel(_, Sent::Received { .. })
                        | Event::Broadcast(Cast::Received { .. })
                )
            )
        };
        self.told.iter().filter(is_end).count()
    }
}

/// Applies a fate to a packet at one receiver; `None` if the packet is lost.
fn spoil(fate: u8, packet: &Packet) -> Option<Packet> {
    match fate {
        0..=3 => None,
        4 => {
            // The tag of a stranger's packet.
            let mut other = packet.clone();
            other.head[PACKET_OVERHEAD_BYTES - 1] ^= 1;
            Some(other)
        }
        _ => Some(packet.clone()),
    }
}

/// Runs both jobs, with the same faults for the same packets; they are compared after each step.
fn run(window_packets: u32, sizes: &[u64], fates: &[u8]) -> (u64, u64) {
    let mut jobs = [false, true].map(|by_runs| Job::new(by_runs, window_packets));
    let mut now = Instant::ZERO;
    let mut fates = fates.iter().copied().cycle();
    let wanted = sizes.len() * (1 + GROUPS.len()) * (RANKS as usize - 1);
    for (tag, bytes) in (0..).zip(sizes) {
        jobs.iter_mut().for_each(|job| job.begin(now, tag, *bytes));
    }
    for step in 0..STEPS_MAX {
        now = now + STEP;
        let mut fate = || if step < FAULTY_STEPS { fates.next().unwrap() } else { u8::MAX };
        for from in 0..RANKS {
            let [one_by_one, by_runs] = &mut jobs;
            let sent = one_by_one.send(now, from);
            assert_eq!(sent, by_runs.send(now, from));
            for to in (0..RANKS).filter(|to| *to != from) {
                let is_for = |packet: &&Packet| match packet.to {
                    Destination::Rank(rank) => rank.0 == to,
                    _ => true,
                };
                let arrived: Vec<Packet> =
                    sent.iter().filter(is_for).filter_map(|packet| spoil(fate(), packet)).collect();
                let mut arrived: Vec<&Packet> = arrived.iter().collect();
                if arrived.len() > 7 && fate() < 20 {
                    arrived.swap(2, 6);
                }
                jobs.iter_mut().for_each(|job| job.receive(now, to, &arrived));
            }
        }
        jobs.iter_mut().for_each(|job| job.settle(now));
        let [one_by_one, by_runs] = &mut jobs;
        assert_eq!(one_by_one.told, by_runs.told);
        for (left, right) in one_by_one.ranks.iter().zip(&by_runs.ranks) {
            assert_eq!(left.counters(), right.counters());
        }
        if one_by_one.received() == wanted {
            return (by_runs.taken, by_runs.continued);
        }
        one_by_one.told.retain(|(_, told)| matches!(told, Told::Happened(_)));
        by_runs.told.retain(|(_, told)| matches!(told, Told::Happened(_)));
    }
    panic!("{} of {wanted} messages came", jobs[0].received());
}

#[test]
fn most_packets_of_large_messages_are_sent_in_runs() {
    let bytes = 1 << 20;
    let packets = 4 * (bytes / 256);
    let (taken, continued) = run(1024, &[bytes], &[255]);
    assert!(taken > packets * 8 / 10, "{taken} of {packets}, half of which go to two");
    assert!(continued > packets * 8 / 10, "{continued} of {packets}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn runs_are_equivalent_to_their_single_packets(
        window_packets in prop_oneof![Just(8u32), Just(64), Just(1024)],
        sizes in proptest::collection::vec(0u64..60_000, 1..4),
        fates in proptest::collection::vec(any::<u8>(), 1..600),
    ) {
        run(window_packets, &sizes, &fates);
    }
}
