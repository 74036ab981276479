//! Acknowledgements of broadcasts that travel with messages [BC-R15].
#![allow(clippy::unwrap_used)]

mod pair;

use omnes_proto::broadcast::{BroadcastConfig, CastGroupConfig, CastMessage, GroupId};
use omnes_proto::channel::{Message, Pattern, Reply};
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_proto::group::Nodes;
use omnes_proto::packet::{Head, Source};
use omnes_wire::{CommunicatorId, Instant, Rank};

const GROUP: GroupId = GroupId { communicator: CommunicatorId(0), number: 0 };
const SENT: &[u8] = b"a message that carries something";

fn endpoint(me: u32) -> Endpoint {
    let broadcast = Some(BroadcastConfig::default().build().unwrap());
    let config = EndpointConfig { broadcast, ..pair::config(me) };
    let mut endpoint = Endpoint::new(Instant::ZERO, config);
    let nodes = Nodes::one_each(2);
    let policy = "skewed=10".parse().unwrap();
    endpoint.broadcast_mut().unwrap().open(CastGroupConfig { id: GROUP, nodes, policy });
    endpoint
}

/// Lets `to` handle everything that `from` sends, with data from `memory`; returns the data placed.
fn pass(now: Instant, from: &mut Endpoint, to: &mut Endpoint, memory: &[u8]) -> Vec<u8> {
    let (mut head, mut placed) = (Head::default(), Vec::new());
    while let Some(transmit) = from.poll_transmit(now, &mut head) {
        let mut packet = head.as_bytes().to_vec();
        if let Some(segment) = transmit.segment {
            assert!(matches!(segment.source, Source::Message(_)));
            let at = segment.offset as usize;
            packet.extend_from_slice(&memory[at..at + segment.bytes as usize]);
        }
        if let Some(placement) = to.handle_packet(now, &packet, packet.len()) {
            let start = placement.packet_offset;
            placed.extend_from_slice(&packet[start..start + placement.bytes]);
        }
    }
    placed
}

fn at(us: u64) -> Instant {
    Instant::from_ns(us * 1000)
}

/// A root, and a leaf that owes the root an acknowledgement that is not due.
fn pair_with_a_debt() -> (Endpoint, Endpoint) {
    let (mut root, mut leaf) = (endpoint(0), endpoint(1));
    for number in 0..3 {
        let cast = CastMessage { group: GROUP, bytes: 8, reply: Reply::Lazy };
        leaf.broadcast_mut().unwrap().receive(at(number), GROUP, Rank(0), 8).unwrap();
        root.broadcast_mut().unwrap().send(cast).unwrap();
        assert_eq!(pass(at(number), &mut root, &mut leaf, b"12345678"), b"12345678");
        pass(at(number), &mut leaf, &mut root, b"");
    }
    // Position 1 acknowledges unasked after message 1, and owes message 2.
    assert_eq!(root.broadcast_mut().unwrap().counters().acks_received, 1);
    (root, leaf)
}

/// The leaf sends the root a message.
fn send(root: &mut Endpoint, leaf: &mut Endpoint, sent: &[u8]) {
    let communicator = CommunicatorId(0);
    let pattern = Pattern { communicator, source: Some(Rank(1)), tag: None };
    root.channel_mut(0).receive(at(11), pattern, 100).unwrap();
    let bytes = sent.len() as u64;
    let (to, tag, reply) = (Rank(0), 1, Reply::Lazy);
    let message = Message { to, communicator, tag, bytes, available: bytes, reply };
    leaf.channel_mut(0).send(message).unwrap();
    assert_eq!(pass(at(11), leaf, root, sent), sent);
}

#[test]
fn message_to_the_root_carries_the_owed_acknowledgement() {
    let (mut root, mut leaf) = pair_with_a_debt();
    send(&mut root, &mut leaf, SENT);
    assert_eq!(root.broadcast_mut().unwrap().counters().acks_carried, 1);
    assert!(root.broadcast_mut().unwrap().is_idle() && leaf.broadcast_mut().unwrap().is_idle());
    // Nothing is owed any more, so no further acknowledgement is sent.
    leaf.handle_timeout(at(100_000));
    root.handle_timeout(at(100_000));
    pass(at(100_000), &mut leaf, &mut root, SENT);
    assert_eq!(root.broadcast_mut().unwrap().counters().acks_received, 1);
}

#[test]
fn message_that_would_outgrow_its_size_class_carries_no_report() {
    // With the report, the packet is longer than 128 bytes.
    let (mut root, mut leaf) = pair_with_a_debt();
    let sent = &[7; 60];
    send(&mut root, &mut leaf, sent);
    assert_eq!(root.broadcast_mut().unwrap().counters().acks_carried, 0);
    leaf.handle_timeout(at(100_000));
    pass(at(100_000), &mut leaf, &mut root, sent);
    let counters = root.broadcast_mut().unwrap().counters();
    assert_eq!((counters.acks_carried, counters.acks_received), (0, 2));
}
