//! Overdue messages: a rank that waits for one asks for it.

use super::*;

/// Four ranks that know how long messages usually take.
fn acquainted() -> Net {
    let mut net = Net::new(4, "combined");
    for at in 0..50 {
        net.broadcast(0, &content(at, 8));
        net.run(10);
    }
    net
}

/// Gap reports and acknowledgements that rank 0 has received.
fn reports(net: &Net) -> (u64, u64) {
    let counters = net.nodes[0].machine.counters();
    (counters.nacks_received, counters.acks_received)
}

#[test]
fn short_lone_message_is_acknowledged_soon_after_delivery() {
    let mut net = acquainted();
    net.run(500);
    let before = reports(&net);
    net.broadcast(0, &content(50, 8));
    net.run(20);
    assert!(net.nodes[1..].iter().all(|node| node.received.len() == 51));
    // Of three receivers, at most one has its turn [BC-R17].
    assert!(reports(&net).1 <= before.1 + 1);
    net.run(500);
    assert_eq!(reports(&net), (before.0, before.1 + 3));
    assert!(net.nodes[0].machine.is_idle());
}

#[test]
fn lost_lone_message_is_repaired_soon_and_only_for_its_receiver() {
    let mut net = acquainted();
    let before = reports(&net);
    let casts = net.casts;
    net.lose =
        Box::new(|header, to| header.kind == Kind::Cast && header.seq.index() == 50 && to == 2);
    let start = net.now;
    net.broadcast(0, &content(50, 8));
    net.run(2);
    net.lose = Box::new(|_, _| false);
    while net.nodes[2].received.len() < 51 {
        net.run(1);
    }
    // The wait has a lower bound, which is five round trips of this fast network; then one more to
    // ask for the message and get it, only for this rank.
    assert!(net.now.since(start) <= config().timeout_min + 4 * STEP, "{:?}", net.now.since(start));
    assert_eq!(reports(&net).0, before.0 + 1);
    assert_eq!(net.casts, casts + 2);
    assert_eq!(net.nodes[1].machine.counters().duplicates, 0);
}

#[test]
fn late_root_is_queried_ever_less_often_and_retransmits_nothing() {
    let mut net = acquainted();
    let before = reports(&net);
    for rank in 1..4 {
        net.receive(rank, 0, 8);
    }
    // 100 ms have space for waits of 0.2, 0.4, 0.8, ... 51.2 ms.
    net.run(5000);
    let asked = reports(&net).0 - before.0;
    assert!((3 * 7..=3 * 10).contains(&asked), "{asked}");
    let casts = net.casts;
    net.send(0, content(50, 8), Reply::Lazy);
    net.run(200);
    let expected: Vec<_> = (0..51).map(|at| content(at, 8)).collect();
    net.assert_received(&expected, 0);
    assert_eq!(net.casts, casts + 1);
}

#[test]
fn message_that_arrived_before_its_receive_is_not_requested() {
    let mut net = acquainted();
    let before = reports(&net);
    net.send(0, content(50, 8), Reply::Lazy);
    net.run(500);
    (1..4).for_each(|rank| net.receive(rank, 0, 8));
    net.run(500);
    assert_eq!(reports(&net).0, before.0);
    assert!(net.nodes[1..].iter().all(|node| node.received.len() == 51));
}

#[test]
fn overdue_long_message_is_recovered_by_a_few_gap_reports() {
    let mut net = acquainted();
    let before = reports(&net);
    let casts = net.casts;
    net.lose = Box::new(|header, to| header.kind == Kind::Cast && to == 2);
    let packets = 41;
    net.broadcast(0, &content(50, 40 * 256));
    net.run(5);
    net.lose = Box::new(|_, _| false);
    while net.nodes[2].received.len() < 51 {
        net.run(1);
    }
    let nacks = reports(&net).0 - before.0;
    assert!((1..=3).contains(&nacks), "{nacks}");
    // Each packet at most once more, except for the two ends.
    assert!(net.casts - casts <= 2 * packets + 2, "{}", net.casts - casts);
}

#[test]
fn idle_time_between_messages_does_not_delay_the_overdue_request() {
    let mut net = acquainted();
    net.broadcast(0, &content(50, 40 * 256));
    net.run(50_000);
    // The next message has begun to arrive when its receives are posted, and its end does not
    // arrive.
    net.lose = Box::new(|header, to| header.seq.index() >= 111 && to == 2);
    net.send(0, content(51, 40 * 256), Reply::Lazy);
    net.run(5);
    let before = reports(&net);
    (1..4).for_each(|rank| net.receive(rank, 0, 40 * 256));
    net.run(60);
    assert!(reports(&net).0 > before.0);
}
