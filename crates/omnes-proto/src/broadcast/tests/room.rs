//! Full buffers, and advertised shares of the socket buffer.

use super::*;

#[test]
fn root_waiting_for_room_is_notified_when_receives_are_posted() {
    let few = BroadcastConfig {
        pool_slots: 16,
        initial_credit_bytes: 16 * 2304,
        ack_delay: Duration::from_micros(100),
        ..config()
    };
    let mut net = Net::with(2, "nack+window", few);
    for at in 0..60 {
        net.send(0, content(at, 8), Reply::Lazy);
    }
    net.run(2000);
    let held = net.nodes[1].machine.config().pool_slots - net.nodes[1].machine.free_slots();
    assert_eq!(held, 15, "one buffer is spared");
    let waits = net.nodes[0].machine.counters().timeouts;
    for _ in 0..60 {
        net.receive(1, 0, 8);
    }
    net.run(30);
    assert_eq!(net.nodes[1].received.len(), 60);
    assert!(net.nodes[0].machine.counters().timeouts <= waits, "it is told, and need not ask");
}

#[test]
fn full_buffers_are_reported_in_every_later_nack() {
    // Rank 2 keeps everything for rank 3, which no packet reaches, until its buffers run out.
    let config = BroadcastConfig { pool_slots: 16, ..config() };
    let mut net = Net::with(4, "co-root=2+combined", config);
    let (sender, receiver) = std::sync::mpsc::channel();
    net.lose = Box::new(move |header, to| {
        if header.source == Rank(2) && header.kind == Kind::CastNack {
            sender.send(header.flags.has(Flags::REJECT)).unwrap();
        }
        to == 3
    });
    net.broadcast(0, &content(0, 40 * 240));
    net.run(30_000);
    let told: Vec<bool> = receiver.try_iter().collect();
    assert!(told.len() > 3 && told.iter().all(|is_told| *is_told), "{told:?}");
}

#[test]
fn credits_of_concurrent_roots_never_exceed_the_socket_buffer() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut net = Net::new(5, "combined");
    net.lose = Box::new(move |header, to| {
        if header.source == Rank(0) && matches!(header.kind, Kind::CastAck | Kind::CastNack) {
            sender.send((to, u32::from(header.credits))).unwrap();
        }
        false
    });
    let bytes = 2_000_000;
    for root in 1..5 {
        (0..5).filter(|rank| *rank != root).for_each(|rank| net.receive(rank, root, bytes));
    }
    (1..5).for_each(|root| net.send(root, content(root as usize, bytes), Reply::Soon));
    let mut looked = 0;
    while net.nodes[0].received.is_empty() {
        net.run(1);
        let latest: BTreeMap<u32, u32> = receiver.try_iter().collect();
        if latest.len() == 4 && net.nodes[0].machine.active_streams() == 4 {
            let offered = latest.values().sum::<u32>() * crate::limits::CREDIT_UNIT_BYTES;
            let socket = net.nodes[0].machine.config().receive_truesize_bytes;
            assert!(offered <= socket, "{latest:?} of {socket}");
            looked += 1;
        }
    }
    assert!(looked > 5, "{looked}");
}
