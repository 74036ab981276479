//! Trees of acknowledgements: which rank asks which one again, and how soon.

use super::*;
use omnes_wire::{ChannelId, Seq};
use std::cell::RefCell;
use std::rc::Rc;

/// Kind, flags, sender and receiver of each unicast packet.
type Heard = Rc<RefCell<Vec<(Kind, Flags, u32, u32)>>>;

/// Sixteen ranks that know how long answers take, with a list of the packets to each from now on,
/// and the loss of the first packet for which `is_lost` holds.
fn tree_that_loses(
    policy: &str,
    is_lost: impl Fn(&Header, u32) -> bool + 'static,
) -> (Net, Heard, u32) {
    let mut net = Net::new(16, policy);
    for number in 0..20 {
        net.broadcast(0, &content(number, 8));
        net.run(200);
    }
    let (heard, mut has_lost) = (Heard::default(), false);
    let list = heard.clone();
    net.lose = Box::new(move |header, to| {
        list.borrow_mut().push((header.kind, header.flags, header.source.0, to));
        let loses = !has_lost && is_lost(header, to);
        has_lost |= loses;
        loses
    });
    (net, heard, 20)
}

/// Time until the root knows that all ranks have its next message, which it waits for.
fn time_to_free(net: &mut Net, freed: u32) -> Duration {
    (1..16).for_each(|rank| net.receive(rank, 0, 8));
    net.send(0, content(99, 8), Reply::Soon);
    let start = net.now;
    while net.nodes[0].freed <= freed as usize {
        net.run(1);
        assert!(net.now.since(start) < Duration::from_secs(1), "it never ends");
    }
    assert!(net.nodes.iter().skip(1).all(|node| node.received.len() == 21));
    net.now.since(start)
}

/// Round trips of a few hops, and the shortest wait.
const SOON: Duration = Duration::from_micros(400);

#[test]
fn acknowledgement_lost_in_a_tree_is_queried_by_its_collector() {
    // In the tree with radix 2, rank 3 reports to rank 2, which reports to the root [BC-R14].
    for policy in ["tree-ack=2+combined", "tree-ack=2"] {
        let is_lost = |header: &Header, _| header.kind == Kind::CastAck && header.source == Rank(3);
        let (mut net, heard, freed) = tree_that_loses(policy, is_lost);
        let time = time_to_free(&mut net, freed);
        assert!(time < SOON, "{policy}: {time:?}");
        let heard = heard.borrow();
        let question = (Kind::CastAck, Flags::QUERY, 2, 3);
        assert_eq!(heard.iter().filter(|packet| **packet == question).count(), 1, "{policy}");
        // The root may have asked rank 2 in the meantime, and no other rank.
        let again = heard
            .iter()
            .filter(|(kind, flags, _, _)| *kind == Kind::Cast && !flags.has(Flags::GROUP));
        assert!(again.clone().all(|(_, _, _, to)| *to == 2), "{policy}");
        assert!(again.count() <= 1, "{policy}");
    }
}

#[test]
fn lone_packet_lost_in_a_tree_is_repaired_once_and_soon() {
    for policy in ["tree-ack=2+combined", "tree-ack=2"] {
        for leaf in [3, 7, 15] {
            let is_lost = move |header: &Header, to: u32| header.kind == Kind::Cast && to == leaf;
            let (mut net, heard, freed) = tree_that_loses(policy, is_lost);
            let time = time_to_free(&mut net, freed);
            assert!(time < SOON, "{policy}, {leaf}: {time:?}");
            let heard = heard.borrow();
            let is_repair = |packet: &&(Kind, Flags, u32, u32)| {
                packet.0 == Kind::Cast && packet.3 == leaf && !packet.1.has(Flags::GROUP)
            };
            assert_eq!(heard.iter().filter(is_repair).count(), 1, "{policy}, {leaf}");
        }
    }
}

#[test]
fn lone_packets_lost_in_a_tree_mark_no_rank_deaf() {
    // Rank 3 reports to rank 2 what it has, and to the root what it lacks.
    for policy in ["tree-ack=2+combined", "tree-ack=2"] {
        let mut net = Net::new(16, policy);
        let is_to_all = |it: &Header| it.kind == Kind::Cast && it.flags.has(Flags::GROUP);
        net.lose = Box::new(move |it, to| to == 3 && is_to_all(it) && it.seq.0 % 2 == 1);
        for number in 0..40 {
            net.broadcast(0, &content(number, 8));
            net.run(200);
        }
        let counters = net.nodes[0].machine.counters();
        assert!(counters.nacks_received >= 20, "{policy}: {counters:?}");
        assert_eq!(counters.unicast_copies, 0, "{policy}");
    }
}

/// A long message to 40 ranks, of which `late` post their receives only after 200 ms, when it may
/// have arrived completely at all others.
fn with_late_leaves(late: &[u32]) -> Net {
    let packets = 3000;
    let data = content(7, packets * 256);
    let mut net = Net::new(40, "tree-ack=2+combined");
    for number in 0..20 {
        net.broadcast(0, &content(number, 8));
        net.run(200);
    }
    net.nodes.iter_mut().for_each(|node| node.received.clear());
    let in_time = (1..40).filter(|rank| !late.contains(rank));
    in_time.for_each(|rank| net.receive(rank, 0, data.len()));
    net.send(0, data.clone(), Reply::Soon);
    let steps = Duration::from_millis(200).as_micros() / (2 * STEP).as_micros();
    net.run(steps as u32);
    late.iter().for_each(|rank| net.receive(*rank, 0, data.len()));
    net.run(20_000);
    assert!(net.nodes.iter().skip(1).all(|node| node.received == [data.clone()]));
    net
}

#[test]
fn late_receiver_in_a_tree_slows_the_root_without_many_repairs() {
    for late in [&[3][..], &[3, 39]] {
        let net = with_late_leaves(late);
        let root = net.nodes[0].machine.counters();
        for rank in late {
            let leaf = net.nodes[*rank as usize].machine.counters();
            assert!(leaf.discarded < 100, "{late:?}: {leaf:?}");
        }
        assert!(root.repairs_by_unicast < 100, "{late:?}: {root:?}");
        assert!(root.repairs_by_multicast < 100, "{late:?}: {root:?}");
    }
}

#[test]
fn tree_ranks_acknowledge_only_after_their_children() {
    let (mut net, heard, freed) = tree_that_loses("tree-ack=2+combined", |_, _| false);
    time_to_free(&mut net, freed);
    net.run(1000);
    let heard = heard.borrow();
    let acks = heard.iter().filter(|packet| packet.0 == Kind::CastAck);
    assert_eq!((heard.len(), acks.count()), (30, 15));
}

#[test]
fn request_for_an_overdue_message_acknowledges_the_previous_one() {
    let (mut net, heard, freed) = tree_that_loses("tree-ack=2+combined", |_, _| false);
    net.broadcast(0, &content(99, 8));
    net.run(2);
    (1..16).for_each(|rank| net.receive(rank, 0, 8));
    net.run(60);
    let heard = heard.borrow();
    assert!(heard.iter().any(|(kind, ..)| *kind == Kind::CastNack), "nobody has asked");
    let questions =
        heard.iter().filter(|(kind, flags, ..)| *kind == Kind::CastAck && flags.has(Flags::QUERY));
    assert_eq!((questions.count(), net.nodes[0].freed), (0, freed as usize + 1));
}

#[test]
fn query_from_a_rank_that_is_not_the_collector_is_rejected() {
    let mut net = Net::new(4, "tree-ack=2");
    net.broadcast(0, &content(1, 8));
    net.run(50);
    let now = net.now;
    for (source, expects) in [(1, 1), (2, 1 << 20)] {
        let header = Header {
            job: JobId(1),
            communicator: GROUP.communicator,
            channel: ChannelId(GROUP.number),
            flags: Flags::QUERY,
            expects: Seq::nth(expects),
            ..Header::blank(Kind::CastAck, Rank(source))
        };
        let machine = &mut net.nodes[3].machine;
        assert_eq!(machine.handle_packet(now, &header, &header.emit(), 40), None);
    }
    let counters = net.nodes[3].machine.counters();
    assert_eq!((counters.malformed, counters.beyond_window), (1, 1));
    assert!(net.nodes[3].poll(now, 3).is_empty());
}

#[test]
fn acknowledgements_of_tree_collectors_are_never_piggybacked() {
    // Rank 3 reports to rank 2, and receives no packets at the end.
    for policy in ["tree-ack=2+combined", "tree-ack=2+skewed=9"] {
        let mut net = Net::new(4, policy);
        for number in 0..20 {
            net.broadcast(0, &content(number, 8));
            net.run(200);
        }
        net.lose = Box::new(|_, to| to == 3);
        let mut carried = [0, 0];
        for number in 0..16 {
            net.broadcast(0, &content(number, 8));
            net.run(1);
            for (rank, carried) in [1, 2].into_iter().zip(&mut carried) {
                let report = net.nodes[rank].machine.take_carried(Rank(0));
                *carried += u32::from(report.is_some());
            }
        }
        assert!(carried[0] > 0 && carried[1] == 0, "{policy}: {carried:?}");
    }
}
