//! Co-roots below co-roots: which of them copies, collects and repairs.

use super::*;
use omnes_wire::Seq;

#[test]
fn co_root_reports_to_its_copy_source_and_is_repaired_there() {
    // Co-roots 2 and 4 below the root, 6 below 4, and a leaf below each [BC-R10, R12].
    for policy in ["co-root=4", "co-root=4+combined"] {
        let mut net = Net::new(8, policy);
        let (mut to_six, mut reports) = (0, Vec::new());
        let (sender, receiver) = std::sync::mpsc::channel();
        net.lose = Box::new(move |header, to| {
            if matches!(header.kind, Kind::CastAck | Kind::CastNack) {
                sender.send((header.source.0, to)).unwrap();
            }
            // The multicast packet and the first copy.
            to_six += u32::from(header.kind == Kind::Cast && to == 6);
            header.kind == Kind::Cast && to == 6 && to_six <= 2
        });
        net.broadcast(0, &content(1, 8));
        net.run(2000);
        net.assert_received(&[content(1, 8)], 0);
        reports.extend(receiver.try_iter());
        reports.sort_unstable();
        reports.dedup();
        assert_eq!(reports, [(1, 0), (2, 0), (3, 2), (4, 0), (5, 4), (6, 4), (7, 6)], "{policy}");
        let repairs = |rank: usize| {
            let counters = net.nodes[rank].machine.counters();
            counters.repairs_by_unicast + counters.repairs_by_multicast
        };
        assert_eq!([0, 2, 4, 6].map(repairs), [0, 0, 1, 0], "{policy}");
    }
}

#[test]
fn co_root_copying_to_a_slow_one_offers_only_its_own_free_room() {
    // Rank 3 posts no receive; 2 keeps everything for it: its buffers limit what the root sends.
    let few = BroadcastConfig {
        pool_slots: 32,
        initial_credit_bytes: 16 * 2304,
        ack_delay: Duration::from_micros(100),
        ..config()
    };
    let mut net = Net::with(4, "co-root=4", few);
    for at in 0..300 {
        net.send(0, content(at, 8), Reply::Lazy);
        net.receive(1, 0, 8);
        net.receive(2, 0, 8);
    }
    net.run(3000);
    assert!(net.nodes[2].machine.free_slots() < 32);
    assert!(net.nodes[0].machine.counters().casts_sent < 150, "the root waits for room");
    (0..300).for_each(|_| net.receive(3, 0, 8));
    net.run(20_000);
    net.assert_received(&(0..300).map(|at| content(at, 8)).collect::<Vec<_>>(), 0);
}

#[test]
fn copies_are_sent_in_runs_per_destination() {
    let mut net = Net::new(8, "co-root=2");
    net.send(0, content(0, 60_000), Reply::Lazy);
    let packets = net.nodes[0].poll(net.now, 0);
    let turns = packets.windows(2).filter(|pair| pair[0].to != pair[1].to).count();
    assert!(packets.len() > 400 && turns < 20, "{turns} turns of {}", packets.len());
}

#[test]
fn buffers_kept_for_copies_are_freed_when_the_copies_end() {
    // Rank 3 has received and acknowledged the message before co-root 2 receives it.
    let mut net = Net::new(4, "co-root=2");
    net.lose = Box::new(|header, to| header.kind == Kind::Cast && to == 2);
    net.broadcast(0, &content(1, 8));
    net.run(200);
    assert_eq!((net.nodes[3].received.len(), net.nodes[2].received.len()), (1, 0));
    net.lose = Box::new(|_, _| false);
    for _ in 0..20_000 {
        if !net.nodes[2].received.is_empty() {
            break;
        }
        // As if rank 3 had been deaf until then.
        let machine = &mut net.nodes[2].machine;
        let (_, stream) = machine.streams.iter_mut().next().unwrap();
        stream.copied = vec![(Rank(3), Seq::FIRST)];
        net.run(1);
    }
    net.run(2000);
    assert_eq!(net.nodes[2].received.len(), 1);
    assert_eq!(net.nodes[2].machine.free_slots(), config().pool_slots);
}
