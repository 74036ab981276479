//! The machines of a few ranks, with a network in between that loses the packets a test selects.

#![allow(clippy::unwrap_used)]

use super::closed_groups::ASKED_MAX;
use super::*;
use crate::channel::Reply;
use crate::group::Nodes;
use crate::packet::{Destination, Head, Origin, Placement, Segment, Source, Target, xor_into};
use omnes_wire::{CommunicatorId, Flags, Header, JobId, Kind, PACKET_OVERHEAD_BYTES};
use std::time::Duration;

mod basic;
mod closed_groups;
mod co_roots;
mod coded;
mod gone;
mod lies;
mod mute;
mod overdue;
mod room;
mod silence;
mod tree;

const GROUP: GroupId = GroupId { communicator: CommunicatorId(1), number: 0 };
const STEP: Duration = Duration::from_micros(10);

struct Packet {
    from: u32,
    to: Destination,
    bytes: Vec<u8>,
    header: Header,
}

/// One rank: its machine and its memory.
struct Node {
    machine: Broadcast,
    head: Head,
    sent: BTreeMap<SendId, Vec<u8>>,
    memory: BTreeMap<ReceiveId, Vec<u8>>,
    slots: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
    freed: usize,
    failed: Vec<Event>,
}

/// True for a packet that is lost on its path to this rank.
type Loss = Box<dyn FnMut(&Header, u32) -> bool>;

struct Net {
    nodes: Vec<Node>,
    now: Instant,
    lose: Loss,
    casts: u64,
}

fn config() -> BroadcastConfig {
    BroadcastConfig { payload_bytes: 256, pool_slots: 2048, ..BroadcastConfig::default() }
}

fn content(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(101)) as u8).collect()
}

impl Net {
    fn new(size: u32, policy: &str) -> Self {
        Self::with(size, policy, config())
    }

    fn with(size: u32, policy: &str, config: BroadcastConfig) -> Self {
        let node = |rank: u32| {
            let checked = config.clone().build().unwrap();
            let slots = vec![Vec::new(); checked.pool_slots as usize];
            let mut machine = Broadcast::new(0, Rank(rank), size, checked);
            machine.open(CastGroupConfig {
                id: GROUP,
                nodes: Nodes::one_each(size),
                policy: policy.parse().unwrap(),
            });
            Node {
                machine,
                head: Head::default(),
                sent: BTreeMap::new(),
                memory: BTreeMap::new(),
                slots,
                received: Vec::new(),
                freed: 0,
                failed: Vec::new(),
            }
        };
        let nodes = (0..size).map(node).collect();
        Self { nodes, now: Instant::ZERO, lose: Box::new(|_, _| false), casts: 0 }
    }

    fn send(&mut self, root: u32, data: Vec<u8>, reply: Reply) {
        let node = &mut self.nodes[root as usize];
        let message = CastMessage { group: GROUP, bytes: data.len() as u64, reply };
        let id = node.machine.send(message).unwrap();
        node.sent.insert(id, data);
    }

    fn receive(&mut self, rank: u32, root: u32, capacity: usize) {
        let node = &mut self.nodes[rank as usize];
        let id = node.machine.receive(self.now, GROUP, Rank(root), capacity as u64).unwrap();
        node.memory.insert(id, vec![0; capacity]);
        node.apply_moves();
    }

    /// All ranks but the root receive; the root sends.
    fn broadcast(&mut self, root: u32, data: &[u8]) {
        for rank in (0..self.nodes.len() as u32).filter(|rank| *rank != root) {
            self.receive(rank, root, data.len());
        }
        self.send(root, data.to_vec(), Reply::Lazy);
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.now = self.now + STEP;
            let mut packets = Vec::new();
            for (rank, node) in self.nodes.iter_mut().enumerate() {
                node.machine.handle_timeout(self.now);
                node.take_events();
                packets.extend(node.poll(self.now, rank as u32));
            }
            self.now = self.now + STEP;
            for packet in packets {
                self.deliver(&packet);
            }
        }
    }

    fn deliver(&mut self, packet: &Packet) {
        self.casts += u64::from(packet.header.kind == Kind::Cast);
        for rank in 0..self.nodes.len() as u32 {
            let is_meant = packet.to.rank().map_or(rank != packet.from, |to| to.0 == rank);
            let lost = is_meant && (self.lose)(&packet.header, rank);
            if is_meant && !lost {
                self.nodes[rank as usize].take(self.now, packet);
            }
        }
    }

    fn assert_received(&self, expected: &[Vec<u8>], root: u32) {
        for (rank, node) in self.nodes.iter().enumerate().filter(|(at, _)| *at as u32 != root) {
            assert_eq!(node.received.len(), expected.len(), "rank {rank}");
            assert!(node.received == expected, "rank {rank}");
        }
        let root = &self.nodes[root as usize];
        assert_eq!(root.freed, expected.len(), "freed");
        for node in &self.nodes {
            assert!(node.machine.is_idle());
            assert_eq!(node.machine.free_slots(), node.machine.config().pool_slots);
        }
    }
}

impl Node {
    fn apply_moves(&mut self) {
        while let Some(step) = self.machine.poll_move() {
            let memory = self.memory.get_mut(&step.receive).unwrap();
            let at = step.offset as usize..step.offset as usize + step.bytes;
            match step.origin {
                Origin::Slot(slot) => {
                    memory[at].copy_from_slice(&self.slots[slot.0 as usize][..step.bytes]);
                }
                Origin::Known(known) => {
                    let known = memory[known as usize..known as usize + step.bytes].to_vec();
                    xor_into(&mut memory[at], &known);
                }
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Sent { id } => {
                    self.sent.remove(&id).unwrap();
                    self.freed += 1;
                }
                Event::Received { id, .. } => {
                    let data = self.memory.remove(&id).unwrap();
                    self.received.push(data);
                }
                other => self.failed.push(other),
            }
        }
    }

    fn poll(&mut self, now: Instant, from: u32) -> Vec<Packet> {
        let mut packets = Vec::new();
        while let Some(outbound) = self.machine.poll_transmit(now, &mut self.head) {
            let super::Outbound { to, mut header, segment } = outbound;
            header.job = JobId(1);
            let mut bytes = header.emit().to_vec();
            bytes.extend([0; 8]);
            bytes.extend_from_slice(&self.head.as_bytes()[PACKET_OVERHEAD_BYTES..]);
            if let Some(segment) = segment {
                bytes.extend_from_slice(&self.gather(&segment));
            }
            packets.push(Packet { from, to, bytes, header });
        }
        packets
    }

    fn gather(&self, segment: &Segment) -> Vec<u8> {
        let source = match segment.source {
            Source::Message(id) => &self.sent[&id],
            Source::Slot(slot) => &self.slots[slot.0 as usize],
            Source::Coded => {
                let mut data = vec![0; segment.bytes as usize];
                let parts = self.machine.coded_parts();
                parts.iter().for_each(|part| xor_into(&mut data, &self.gather(part)));
                return data;
            }
        };
        let at = segment.offset as usize;
        source[at..at + segment.bytes as usize].to_vec()
    }

    fn take(&mut self, now: Instant, packet: &Packet) {
        let placed =
            self.machine.handle_packet(now, &packet.header, &packet.bytes, packet.bytes.len());
        if let Some(Placement { target, offset, packet_offset, bytes, .. }) = placed {
            let data = packet.bytes[packet_offset..packet_offset + bytes].to_vec();
            match target {
                Target::Slot(slot) => self.slots[slot.0 as usize] = data,
                Target::Receive(id) => {
                    let at = offset as usize;
                    self.memory.get_mut(&id).unwrap()[at..at + bytes].copy_from_slice(&data);
                }
            }
        }
        self.apply_moves();
        self.take_events();
    }
}

const POLICIES: [&str; 12] = [
    "basic",
    "window",
    "tree-ack=2",
    "tree-ack=4",
    "co-root=2",
    "co-root=3",
    "ack-every=5",
    "skewed=4",
    "nack",
    "combined",
    "co-root=2+combined",
    "tree-ack=2+skewed=3",
];

#[test]
fn without_loss_each_packet_is_sent_once_and_received_by_all() {
    for policy in POLICIES {
        for size in [2, 3, 8] {
            let mut net = Net::new(size, policy);
            let messages: Vec<Vec<u8>> = [0, 1, 240, 241, 5000, 100_000]
                .iter()
                .map(|bytes| content(*bytes, *bytes))
                .collect();
            for message in &messages {
                net.broadcast(0, message);
                net.run(20);
            }
            net.run(400);
            net.assert_received(&messages, 0);
            let root = net.nodes[0].machine.counters();
            let packets: u64 =
                messages.iter().map(|it| config().build().unwrap().packets(it.len() as u64)).sum();
            assert_eq!(root.casts_sent, packets, "{policy} {size}");
            assert_eq!(root.repairs_by_multicast + root.repairs_by_unicast, 0, "{policy} {size}");
        }
    }
}

#[test]
fn messages_arrive_in_order_despite_packet_loss() {
    for policy in POLICIES {
        for (size, one_in) in [(2u32, 3u64), (4, 10), (8, 50)] {
            let mut net = Net::new(size, policy);
            let mut state = 12345u64 + u64::from(size);
            net.lose = Box::new(move |_, _| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33).is_multiple_of(one_in)
            });
            let messages: Vec<Vec<u8>> = (0..40).map(|at| content(at, at * 97 % 3000)).collect();
            for message in &messages {
                net.broadcast(1, message);
                net.run(2);
            }
            net.run(60_000);
            net.assert_received(&messages, 1);
        }
    }
}

#[test]
fn late_receives_get_messages_that_arrived_before() {
    for policy in POLICIES {
        let mut net = Net::new(4, policy);
        let messages: Vec<Vec<u8>> = (0..20).map(|at| content(at, at * 50)).collect();
        for message in &messages {
            net.send(2, message.clone(), Reply::Lazy);
            net.run(1);
        }
        net.run(500);
        for message in &messages {
            [0, 1, 3].into_iter().for_each(|rank| net.receive(rank, 2, message.len()));
            net.run(1);
        }
        net.run(500);
        net.assert_received(&messages, 2);
    }
}

#[test]
fn number_of_acknowledgements_at_the_root_follows_the_policy() {
    // [BC-R16, R17]; [BC-R10]: the subgroup and the co-root.
    for (policy, expected) in
        [("window", 7 * 60), ("skewed=6", 70), ("ack-every=6", 70), ("co-root=2", 4 * 60)]
    {
        let ack_delay = Duration::from_secs(1);
        let mut net = Net::with(8, policy, BroadcastConfig { ack_delay, ..config() });
        let messages: Vec<Vec<u8>> = (0..60).map(|at| content(at, 8)).collect();
        for message in &messages {
            net.broadcast(0, message);
            net.run(3);
        }
        net.run(3);
        let acks = net.nodes[0].machine.counters().acks_received;
        assert_eq!(acks, expected, "{policy}");
    }
}

#[test]
fn failed_member_breaks_the_group_and_is_named_in_the_error() {
    for failed in [0, 1, 3] {
        let mut net = Net::new(4, "co-root=2");
        net.lose = Box::new(move |header, to| to == failed || header.source.0 == failed);
        net.broadcast(0, &content(1, 100_000));
        net.run(200);
        let now = net.now;
        for (rank, node) in net.nodes.iter_mut().enumerate().filter(|(at, _)| *at as u32 != failed)
        {
            node.machine.fail_peer(Rank(failed));
            node.take_events();
            let is_complete = node.received.len() == 1;
            assert!(is_complete || node.failed.len() == 1 || rank == 0);
            let refused = node.machine.receive(now, GROUP, Rank(2), 1);
            let error = BroadcastError::PeerFailed { rank: Rank(failed) };
            assert_eq!(refused.unwrap_err(), error);
            assert!(node.machine.is_idle());
            assert_eq!(node.machine.active_streams(), 0);
            assert_eq!(node.machine.free_slots(), node.machine.config().pool_slots);
        }
    }
}

#[test]
fn packets_dropped_before_the_group_was_open_are_requested() {
    let mut net = Net::new(3, "combined");
    let checked = config().build().unwrap();
    net.nodes[2].machine = Broadcast::new(0, Rank(2), 3, checked);
    net.receive(1, 0, 8);
    net.send(0, content(1, 8), Reply::Lazy);
    net.run(3);
    let config = net.nodes[1].machine.groups[&GROUP].config.clone();
    net.nodes[2].machine.open(config);
    net.receive(2, 0, 8);
    net.run(3);
    assert_eq!(net.nodes[2].received, [content(1, 8)]);
}

#[test]
fn message_of_unexpected_length_does_not_affect_the_next_one() {
    for (sent, expected) in [(1000, 10), (10, 1000), (300, 0)] {
        let mut net = Net::new(2, "combined");
        net.receive(1, 0, expected);
        net.receive(1, 0, 777);
        net.send(0, content(1, sent), Reply::Lazy);
        net.send(0, content(2, 777), Reply::Lazy);
        net.run(200);
        let received = &net.nodes[1].received;
        assert_eq!(received.len(), 2, "{sent} for {expected}");
        let both = sent.min(expected);
        assert_eq!(received[0][..both], content(1, sent)[..both]);
        assert_eq!(received[1], content(2, 777));
    }
}

#[test]
fn packet_lost_by_all_is_repaired_by_one_multicast() {
    let mut net = Net::new(12, "nack");
    for at in 0..30 {
        net.broadcast(0, &content(at, 8));
        net.run(5);
    }
    net.lose = Box::new(|header, _| header.kind == Kind::Cast && header.seq.index() == 30);
    net.broadcast(0, &content(30, 8));
    net.run(1);
    net.lose = Box::new(|_, _| false);
    for at in 31..40 {
        net.broadcast(0, &content(at, 8));
        net.run(5);
    }
    net.run(500);
    let root = net.nodes[0].machine.counters();
    assert_eq!((root.repairs_by_multicast, root.repairs_by_unicast), (1, 0));
    assert!(net.nodes.iter().skip(1).all(|node| node.received.len() == 40));
}

#[test]
fn silent_rank_that_owes_answers_is_suspected() {
    let mut net = Net::new(3, "combined");
    net.lose = Box::new(|header, _| header.source.0 == 2);
    net.broadcast(0, &content(1, 8));
    net.run(150_000);
    assert_eq!(net.nodes[0].machine.poll_suspicion(), None);
    net.run(100_000);
    assert_eq!(net.nodes[0].machine.poll_suspicion(), Some(Suspicion::Silent(Rank(2))));
    assert_eq!(net.nodes[0].machine.poll_suspicion(), None);
}

#[test]
fn ranks_that_answered_are_not_asked_again_because_of_a_few_late_ones() {
    // With a hundred ranks the answers of all would overrun the root, and the same ranks' each
    // time.
    let mut net = Net::new(100, "window");
    let mut acks = 0;
    net.lose = Box::new(move |header, _| {
        let is_late = header.kind == Kind::CastAck && header.source.0 > 97;
        acks += u32::from(is_late);
        is_late && acks <= 20
    });
    net.broadcast(0, &content(1, 8));
    net.run(20_000);
    net.assert_received(&[content(1, 8)], 0);
    let root = net.nodes[0].machine.counters();
    assert!(root.timeouts >= 9 && root.acks_received == 99, "{root:?}");
}

#[test]
fn co_root_accepts_the_first_copy_and_repairs_its_subgroup() {
    // [BC-R10–R13]; the subgroups are 0..3 and 3..6.
    let mut net = Net::new(6, "co-root=2");
    net.lose = Box::new(|header, to| {
        let is_multicast = header.kind == Kind::Cast && header.flags.has(Flags::GROUP);
        is_multicast && (to == 3 && header.seq.index() == 0 || to == 4 && header.seq.index() == 1)
    });
    let messages: Vec<Vec<u8>> = (0..3).map(|at| content(at, 100)).collect();
    for message in &messages {
        net.broadcast(0, message);
        net.run(3);
    }
    net.run(2000);
    net.assert_received(&messages, 0);
    let repairs = |rank: usize| {
        let counters = net.nodes[rank].machine.counters();
        counters.repairs_by_unicast + counters.repairs_by_multicast
    };
    assert_eq!(repairs(0), 0, "the co-root had its copy, and the leaf is not the root's");
    assert!(repairs(3) > 0);
}

#[test]
fn a_stream_never_waits_for_acknowledgements_that_are_not_due() {
    // [BC-R5, BC-R7, BC-R18]: the window holds two groups of messages, whatever was asked for.
    for policy in ["skewed=10", "ack-every=10"] {
        let ack_delay = Duration::from_secs(10);
        let window = BroadcastConfig { window_messages: 1, ack_delay, ..config() };
        let mut net = Net::with(5, policy, window);
        let messages: Vec<Vec<u8>> = (0..100).map(|at| content(at, 8)).collect();
        for message in &messages {
            while !net.nodes[0].machine.has_room(GROUP) {
                net.run(1);
            }
            net.broadcast(0, message);
        }
        assert!(net.now < Instant::from_ns(10_000_000), "{policy}: {:?}", net.now);
        net.run(20);
        assert!(net.nodes.iter().skip(1).all(|node| node.received == messages));
    }
}

#[test]
fn duplicates_are_dropped_and_acknowledged_again() {
    // [BC-R21], and in order: the first packet arrives last.
    let mut net = Net::new(3, "window");
    let mut acks = 0;
    net.lose = Box::new(move |header, to| {
        acks += u32::from(header.kind == Kind::CastAck);
        let is_early_ack = header.kind == Kind::CastAck && acks < 6;
        let is_first = header.kind == Kind::Cast && header.seq.index() == 0;
        is_early_ack || is_first && header.flags.has(Flags::GROUP) && to == 2
    });
    let messages: Vec<Vec<u8>> = (0..4).map(|at| content(at, 50)).collect();
    for message in &messages {
        net.broadcast(0, message);
    }
    net.run(5000);
    net.assert_received(&messages, 0);
    assert!(net.nodes[1].machine.counters().duplicates > 0);
}

#[test]
fn long_message_never_waits_for_lazy_acknowledgements_in_a_small_window() {
    for credit in [4096, 30 << 10, 512 << 10] {
        let ack_delay = Duration::from_secs(10);
        let small = BroadcastConfig { initial_credit_bytes: credit, ack_delay, ..config() };
        let mut net = Net::with(4, "combined", small);
        let message = content(1, 200_000);
        net.broadcast(0, &message);
        let start = net.now;
        while net.nodes.iter().skip(1).any(|node| node.received.is_empty()) {
            net.run(1);
        }
        assert!(net.now.since(start) < Duration::from_millis(20), "{credit}");
        assert_eq!(net.nodes[0].machine.counters().timeouts, 0, "{credit}");
    }
}

#[test]
fn repair_by_a_non_member_is_rejected() {
    let checked = config().build().unwrap();
    let mut machine = Broadcast::new(0, Rank(1), 4, checked);
    let nodes = Nodes::one_each(2);
    machine.open(CastGroupConfig { id: GROUP, nodes, policy: Policy::COMBINED });
    let mut net = Net::new(2, "combined");
    net.send(0, content(1, 300), Reply::Lazy);
    let now = net.now;
    let mut packet = net.nodes[0].poll(now, 0).remove(1);
    packet.header.source = Rank(3);
    let length = packet.bytes.len();
    assert_eq!(machine.handle_packet(now, &packet.header, &packet.bytes, length), None);
    assert_eq!(machine.counters().malformed, 1);
}

#[test]
fn preview_ends_with_its_message_and_needs_a_known_length() {
    let mut net = Net::new(2, "combined");
    net.receive(1, 0, 5000);
    net.send(0, content(1, 1000), Reply::Lazy);
    let packets = net.nodes[0].poll(net.now, 0);
    let preview = |at: usize| net.nodes[1].machine.preview(&packets[at].header, &packets[at].bytes);
    assert_eq!(preview(1), None);
    assert_eq!(preview(0).unwrap().bytes_max, 1000);
}

#[test]
fn packet_numbered_before_its_message_is_ignored() {
    let mut net = Net::new(2, "combined");
    net.receive(1, 0, 8);
    net.receive(1, 0, 5000);
    net.send(0, content(1, 8), Reply::Lazy);
    net.send(0, content(2, 5000), Reply::Lazy);
    let now = net.now;
    let mut packets = net.nodes[0].poll(now, 0);
    net.nodes[1].take(now, &packets[0]);
    // The third message starts at 21; this packet claims to be number -19 of it.
    net.receive(1, 0, 8);
    net.nodes[1].take(now, &packets[1]);
    let lie = &mut packets[2];
    lie.header.argument = lie.header.seq.0.wrapping_sub(21);
    let machine = &mut net.nodes[1].machine;
    assert_eq!(machine.preview(&lie.header, &lie.bytes), None);
    machine.handle_packet(now, &lie.header, &lie.bytes, lie.bytes.len());
}
