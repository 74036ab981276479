//! Ranks that lack different packets: one coded packet brings each rank what it lacks.

use super::*;
use omnes_wire::{CodedSet, Header, Seq};

/// Data bytes of `packets` packets of a message.
fn bytes_of(packets: usize) -> usize {
    packets * usize::from(config().payload_bytes) - omnes_wire::ENVELOPE_BYTES
}

/// Broadcasts a message of 40 packets of which each rank loses those in `lost` once, and runs until
/// all have it. Returns the number of repairs, and how many of them were coded.
fn repaired(policy: &str, last_bytes: usize, lost: &[(u32, u32)]) -> (u64, u64) {
    let mut net = Net::new(5, policy);
    let mut lost: Vec<(u32, u32)> = lost.to_vec();
    net.lose = Box::new(move |header, to| {
        let is_lost = |(seq, rank): &(u32, u32)| (header.seq.index(), to) == (*seq, *rank);
        let at = lost.iter().position(is_lost).filter(|_| header.kind == Kind::Cast);
        at.map(|at| lost.swap_remove(at)).is_some()
    });
    let message = content(7, bytes_of(39) + last_bytes);
    net.broadcast(0, &message);
    net.run(2000);
    net.assert_received(&[message], 0);
    let counters = net.nodes[0].machine.counters();
    (counters.repairs_by_unicast + counters.repairs_by_multicast, counters.repairs_coded)
}

#[test]
fn different_losses_of_many_ranks_are_repaired_by_one_coded_packet() {
    assert_eq!(repaired("combined", 256, &[(5, 1), (9, 2), (30, 3), (32, 4)]), (1, 1));
    // A rank that lacks two of them gets two; a rank that has all gets nothing new.
    assert_eq!(repaired("combined", 256, &[(5, 1), (6, 1), (9, 2)]), (2, 1));
    assert_eq!(repaired("combined", 256, &[(5, 1), (9, 2), (9, 3)]), (1, 1));
}

/// Header of a coded packet from rank 0 that combines the packets of a set.
fn coded_header(first: u32, later: u64) -> Header {
    let mut header = Header::blank(Kind::CastCoded, Rank(0));
    header.communicator = GROUP.communicator;
    header.flags = Flags::GROUP;
    CodedSet { first: Seq::nth(first), later }.name_in(header)
}

#[test]
fn short_last_packet_is_decoded_and_used_for_decoding() {
    for (last_bytes, lost) in [(1, 39), (255, 39), (1, 38), (255, 38)] {
        let mut net = Net::new(2, "combined");
        // Only the packets made here repair it.
        net.lose = Box::new(move |header, to| to == 1 && header.seq.index() == lost);
        let message = content(7, bytes_of(39) + last_bytes);
        net.broadcast(0, &message);
        net.run(4);
        assert!(net.nodes[1].received.is_empty());
        let header = coded_header(38, 1);
        let mut data = message[bytes_of(38)..bytes_of(39)].to_vec();
        xor_into(&mut data, &message[bytes_of(39)..]);
        let bytes = [&header.emit()[..], &[0; 8], &data].concat();
        let packet = Packet { from: 0, to: Destination::Group, bytes, header };
        net.nodes[1].take(net.now, &packet);
        assert!(net.nodes[1].received == [message], "{last_bytes} bytes in the last, {lost} lost");
    }
}

#[test]
fn first_packet_of_a_message_is_never_coded() {
    assert_eq!(repaired("combined", 256, &[(0, 1), (9, 2)]), (2, 0));
}

#[test]
fn published_policies_send_no_coded_repairs() {
    let lost = [(5, 1), (9, 2), (30, 3), (32, 4)];
    for policy in ["basic", "window", "co-root=2+combined"] {
        assert_eq!(repaired(policy, 256, &lost).1, 0, "{policy}");
    }
    assert!(repaired("tree-ack=2+combined", 256, &lost).1 > 0);
}

#[test]
fn rank_that_cannot_decode_gets_an_uncoded_repair() {
    let mut net = Net::new(4, "combined");
    let lost = [(5, 1), (9, 2)];
    net.lose = Box::new(move |header, to| match header.kind {
        Kind::Cast if header.flags.has(Flags::GROUP) => lost.contains(&(header.seq.index(), to)),
        _ => false,
    });
    // No receive has been posted: arriving packets are kept in buffers.
    let message = content(3, bytes_of(40));
    net.send(0, message.clone(), Reply::Lazy);
    net.run(2000);
    let counters = *net.nodes[0].machine.counters();
    assert!(net.nodes[0].machine.is_idle(), "all have it");
    assert_eq!((counters.repairs_coded, counters.repairs_by_unicast), (1, 2));
    (1..4).for_each(|rank| net.receive(rank, 0, message.len()));
    net.run(10);
    net.assert_received(&[message], 0);
}

#[test]
fn invalid_coded_packet_is_ignored() {
    let mut net = Net::new(3, "combined");
    net.lose =
        Box::new(|header, to| header.kind == Kind::Cast && to == 1 && header.seq.index() == 5);
    net.receive(1, 0, bytes_of(40));
    net.receive(2, 0, bytes_of(40));
    net.send(0, content(3, bytes_of(40)), Reply::Lazy);
    net.run(4);
    let node = &mut net.nodes[1];
    let mut handle = |header: Header, bytes: usize| {
        let packet = vec![0xaa; bytes];
        let placed = node.machine.handle_packet(net.now, &header, &packet, bytes);
        (placed.is_some(), node.machine.poll_move().is_some())
    };
    let whole = PACKET_OVERHEAD_BYTES + 256;
    assert_eq!(handle(coded_header(5, 0), whole - 1), (false, false), "not as long as a packet");
    assert_eq!(handle(Header { source: Rank(2), ..coded_header(5, 1) }, whole), (false, false));
    assert_eq!(handle(coded_header(5, 1 << 40), whole), (false, false), "with one that is none");
    assert_eq!(handle(coded_header(0, 1 << 4), whole), (false, false), "with the first");
    assert_eq!(handle(coded_header(6, 1), whole), (false, false), "with nothing new");
    assert_eq!(handle(coded_header(u32::MAX - 2, 0xff), whole), (false, false), "around the start");
    assert_eq!(handle(coded_header(5, 1), whole), (true, true));
}
