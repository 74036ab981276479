//! The channel between ranks of a cluster: delivery, named losses, full buffers, immediate sending.

#![allow(clippy::unwrap_used)]

use omnes_proto::channel::{ChannelConfig, Pattern, Reply};
use omnes_sim::{
    COMMUNICATOR, Cluster, Operation, Order, Rule, Send, State, Stream, content, delay,
    delivered_once_in_order, drop, duplicate, no_message_is_in_flight, nothing_is_missing, reorder,
};
use omnes_wire::{CommunicatorId, Kind, Rank};
use std::time::Duration;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Ends the run and runs all checkers that hold after any run without a crash.
fn finish(cluster: &mut Cluster) {
    cluster.run_until_quiescent();
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.run_for(Duration::from_millis(100));
    cluster.check(no_message_is_in_flight);
    cluster.check_quiet_for(Duration::from_secs(3));
}

/// Sends and receives one message on channel 0 with tag 1.
fn exchange(cluster: &mut Cluster, from: u32, to: u32, bytes: usize) {
    cluster.receive(to, from, 1, bytes as u64);
    cluster.send(from, to, 1, bytes);
}

#[test]
fn messages_without_loss_cost_one_packet_each_and_no_repair() {
    let mut cluster = Cluster::builder().ranks(4).seed(7).with_previews().build();
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            exchange(&mut cluster, from, to, 1000);
        }
    }
    finish(&mut cluster);
    for rank in 0..4 {
        assert_eq!(cluster.counters(rank).data_packets, 3);
        assert_eq!(cluster.counters(rank).retransmits, 0);
        assert_eq!(cluster.counters(rank).nacks_sent, 0);
        assert_eq!(cluster.gate(rank).bad_tag, 0);
    }
}

#[test]
fn lost_packet_is_repaired_by_one_nack() {
    // [PM-R13, R18]
    let mut cluster = Cluster::builder().ranks(4).latency(us(25)).seed(7).build();
    let loss = cluster.rule(drop().kind(Kind::Data).seq(3).to(2).times(1));
    exchange(&mut cluster, 0, 2, 14_000);
    finish(&mut cluster);
    assert_eq!(loss.hits(), 1);
    assert_eq!(cluster.counters(2).nacks_sent, 1);
    assert_eq!(cluster.counters(0).retransmits, 1);
    assert_eq!(cluster.counters(0).timeouts, 0);
}

#[test]
fn several_gaps_of_one_window_are_repaired_by_a_few_nacks() {
    let mut cluster = Cluster::builder().latency(us(25)).seed(7).build();
    let _losses =
        [3, 4, 9, 17].map(|seq| cluster.rule(drop().kind(Kind::Data).seq(seq).to(1).times(1)));
    exchange(&mut cluster, 0, 1, 60_000);
    finish(&mut cluster);
    assert_eq!(cluster.counters(0).retransmits, 4);
    assert!(cluster.counters(1).nacks_sent <= 3, "{:?}", cluster.counters(1));
}

#[test]
fn lost_repair_is_requested_again() {
    let mut cluster = Cluster::builder().latency(us(25)).seed(7).build();
    let _loss = cluster.rule(drop().kind(Kind::Data).seq(3).to(1).times(2));
    exchange(&mut cluster, 0, 1, 14_000);
    finish(&mut cluster);
    assert_eq!(cluster.counters(0).retransmits, 2);
    assert_eq!(cluster.counters(1).nacks_sent, 2);
}

#[test]
fn lost_last_packet_is_requested_by_the_waiting_receiver() {
    let mut cluster = Cluster::builder().latency(us(25)).seed(7).build();
    let _loss = cluster.rule(drop().kind(Kind::Data).seq(0).to(1).times(1));
    exchange(&mut cluster, 0, 1, 100);
    finish(&mut cluster);
    assert_eq!(cluster.counters(0).retransmits, 1);
    assert_eq!(cluster.counters(0).timeouts, 0);
    assert_eq!(cluster.counters(1).nacks_sent, 1);
}

#[test]
fn lost_last_packet_is_repaired_by_the_timer_without_a_request() {
    let mut cluster = Cluster::builder().latency(us(25)).seed(7).build();
    let _loss = cluster.rule(drop().kind(Kind::Data).seq(0).to(1).times(1));
    let _silence = cluster.rule(drop().kind(Kind::Nack).to(0));
    exchange(&mut cluster, 0, 1, 100);
    finish(&mut cluster);
    assert_eq!(cluster.counters(0).retransmits, 1);
    assert_eq!(cluster.counters(0).timeouts, 1);
}

#[test]
fn lost_acknowledgement_costs_one_duplicate() {
    let mut cluster = Cluster::builder().latency(us(25)).seed(7).build();
    let _loss = cluster.rule(drop().kind(Kind::Ack).to(0).times(1));
    exchange(&mut cluster, 0, 1, 100);
    finish(&mut cluster);
    assert_eq!(cluster.counters(0).retransmits, 1);
    assert_eq!(cluster.counters(1).duplicates, 1);
}

#[test]
fn duplicates_and_late_packets_are_delivered_once() {
    let mut cluster = Cluster::builder().ranks(3).seed(3).with_previews().build();
    let _twice = cluster.rule(duplicate().ppm(300_000));
    let _late = cluster.rule(delay(us(900)).kind(Kind::Data).ppm(100_000));
    for _ in 0..20 {
        exchange(&mut cluster, 0, 1, 9_000);
        exchange(&mut cluster, 1, 2, 200);
        exchange(&mut cluster, 2, 0, 0);
    }
    finish(&mut cluster);
}

#[test]
fn packets_in_any_order_are_delivered_in_order() {
    let mut cluster =
        Cluster::builder().jitter(us(300), Order::Free).seed(5).with_previews().build();
    let _mixed = cluster.rule(reorder(us(200)).ppm(500_000));
    for _ in 0..30 {
        exchange(&mut cluster, 0, 1, 20_000);
    }
    finish(&mut cluster);
}

#[test]
fn empty_messages_are_delivered_one_by_one() {
    let mut cluster = Cluster::builder().seed(2).build();
    let _loss = cluster.rule(drop().ppm(100_000));
    for _ in 0..40 {
        exchange(&mut cluster, 0, 1, 0);
    }
    finish(&mut cluster);
}

#[test]
fn large_messages_survive_loss_both_ways() {
    let mut cluster = Cluster::builder().latency(us(50)).seed(11).with_previews().build();
    let _loss = cluster.rule(drop().ppm(20_000));
    exchange(&mut cluster, 0, 1, 5_000_000);
    exchange(&mut cluster, 1, 0, 3_000_001);
    finish(&mut cluster);
}

#[test]
fn only_the_lost_bulk_packet_of_a_large_message_is_retransmitted() {
    let mut cluster = Cluster::builder().latency(us(25)).seed(11).build();
    let _loss = cluster.rule(drop().bulk().kind(Kind::Data).seq(40).times(1));
    exchange(&mut cluster, 0, 1, 1_000_000);
    finish(&mut cluster);
    assert_eq!(cluster.counters(0).retransmits, 1);
    assert_eq!(cluster.counters(1).nacks_sent, 1);
}

#[test]
fn large_message_sends_its_head_eagerly_and_the_rest_when_granted() {
    let config = ChannelConfig { eager_bytes: 4096, eager_head_bytes: 2048, ..config(8192) };
    let mut cluster = Cluster::builder().channel(config).seed(1).build();
    let send = cluster.send(0, 1, 1, 100_000);
    cluster.run_for(Duration::from_millis(50));
    assert_eq!(cluster.counters(0).data_packets, 2);
    assert_eq!(cluster.state(send), State::Pending);
    cluster.receive(1, 0, 1, 100_000);
    finish(&mut cluster);
}

#[test]
fn message_longer_than_its_receive_is_truncated() {
    let mut cluster = Cluster::builder().seed(1).with_previews().build();
    for (bytes, capacity) in [(10, 4), (5000, 1000), (5000, 0), (300_000, 1500), (300_000, 200_000)]
    {
        let early = cluster.receive(1, 0, 1, capacity);
        cluster.send(0, 1, 1, bytes);
        cluster.run_until_quiescent();
        cluster.send(0, 1, 1, bytes);
        cluster.run_for(Duration::from_millis(20));
        let late = cluster.receive(1, 0, 1, capacity);
        finish(&mut cluster);
        for receive in [early, late] {
            assert_eq!(cluster.received(receive).unwrap().1.len() as u64, capacity);
        }
    }
}

#[test]
fn any_source_and_any_tag_take_messages_in_order_of_arrival() {
    let mut cluster = Cluster::builder().ranks(5).seed(9).build();
    let any = Pattern { communicator: COMMUNICATOR, source: None, tag: None };
    let receives: Vec<Operation> =
        (0..8).map(|_| cluster.post_receive(0, 0, any, 10_000)).collect();
    for from in 1..5 {
        cluster.send(from, 0, 10 + from, 5000);
        cluster.send(from, 0, 10 + from, 300);
        cluster.run_for(us(500));
    }
    finish(&mut cluster);
    let senders: Vec<u32> =
        receives.iter().map(|receive| cluster.received(*receive).unwrap().0.from.0).collect();
    assert_eq!(senders, [1, 1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn communicators_channels_and_tags_do_not_mix() {
    // [PM-R1]
    let mut cluster = Cluster::builder().seed(4).build();
    let mut receives = Vec::new();
    for channel in [1, 0] {
        for communicator in [8, 7] {
            for tag in [2, 1] {
                let communicator = CommunicatorId(communicator);
                let stream = Stream { from: Rank(0), to: Rank(1), channel, communicator, tag };
                let identity =
                    u64::from(communicator.0) << 8 | u64::from(tag) | (channel as u64) << 4;
                let content = content(identity, 500);
                let available = 500;
                let send = Send { stream, content, available, reply: Reply::Lazy };
                let pattern = Pattern { communicator, source: Some(Rank(0)), tag: Some(tag) };
                receives.push((stream, cluster.post_receive(1, channel, pattern, 500)));
                cluster.post_send(send);
            }
        }
    }
    finish(&mut cluster);
    for (stream, receive) in receives {
        assert_eq!(*cluster.received(receive).unwrap().0, stream);
    }
}

#[test]
fn cancelled_receive_leaves_the_message_to_the_next() {
    let mut cluster = Cluster::builder().seed(4).build();
    let first = cluster.receive(1, 0, 1, 100);
    assert!(cluster.cancel(1, 0, first));
    cluster.send(0, 1, 1, 100);
    cluster.run_for(Duration::from_millis(5));
    cluster.receive(1, 0, 1, 100);
    finish(&mut cluster);
    assert_eq!(cluster.state(first), State::Cancelled);
}

#[test]
fn message_leaves_as_its_bytes_become_available() {
    // [PM-R7]: the rig fails if a byte is sent before it is available.
    let mut cluster = Cluster::builder().seed(6).build();
    let bytes = 400_000;
    let stream =
        Stream { from: Rank(0), to: Rank(1), channel: 0, communicator: COMMUNICATOR, tag: 1 };
    cluster.receive(1, 0, 1, bytes);
    let content = content(1, bytes as usize);
    let send = Send { stream, content, available: 0, reply: Reply::Soon };
    let send = cluster.post_send(send);
    let mut sent_before = 0;
    for available in (0..=bytes).step_by(50_000) {
        cluster.extend(0, 0, send, available);
        cluster.run_for(Duration::from_millis(1));
        let sent = cluster.counters(0).data_packets;
        assert!(available == 0 || sent > sent_before, "nothing new at {available} bytes");
        assert!(sent * 1432 <= available + 2 * 1432, "{sent} packets at {available} bytes");
        sent_before = sent;
    }
    finish(&mut cluster);
}

/// Default settings with `slots` pool slots.
fn config(slots: u32) -> ChannelConfig {
    ChannelConfig { pool_slots: slots, ..ChannelConfig::default() }
}

#[test]
fn full_pool_rejects_senders_and_resumes_when_buffers_are_free() {
    // [PM-R15, R16, R17]: three senders share eight buffers.
    let mut cluster = Cluster::builder().ranks(4).channel(config(8)).seed(8).build();
    for from in 1..4 {
        for tag in 0..10 {
            cluster.send(from, 0, tag, 1000);
        }
    }
    cluster.run_for(Duration::from_millis(100));
    assert!(cluster.counters(0).rejects_sent >= 3, "{:?}", cluster.counters(0));
    for from in 1..4 {
        for tag in 0..10 {
            cluster.receive(0, from, tag, 1000);
        }
    }
    finish(&mut cluster);
}

#[test]
fn rejected_sender_is_resumed_without_waiting_for_its_probe() {
    // [PM-R14, R16]
    let mut cluster = Cluster::builder().channel(config(4)).latency(us(25)).seed(8).build();
    for tag in 0..8 {
        cluster.send(0, 1, tag, 1000);
    }
    cluster.run_for(Duration::from_millis(400));
    let before = cluster.now();
    for tag in 0..8 {
        cluster.receive(1, 0, tag, 1000);
    }
    cluster.run_until_quiescent();
    assert!(cluster.now().since(before) < Duration::from_millis(2));
    finish(&mut cluster);
}

#[test]
fn transfer_survives_the_loss_of_both_reject_and_resume() {
    // [PM-R18]
    let hits = |rule: &dyn Fn(Kind) -> Rule| {
        let mut cluster = Cluster::builder().channel(config(4)).seed(8).build();
        let guards = [Kind::Nack, Kind::Ack].map(|kind| cluster.rule(rule(kind)));
        for tag in 0..12 {
            cluster.send(0, 1, tag, 1000);
        }
        cluster.run_for(Duration::from_millis(20));
        for tag in 0..12 {
            cluster.receive(1, 0, tag, 1000);
        }
        finish(&mut cluster);
        guards.map(|guard| guard.hits())
    };
    let [nacks, acks] = hits(&|kind| delay(Duration::ZERO).kind(kind).to(0));
    assert!(nacks >= 4 && acks > nacks, "{nacks} and {acks}");
    for lost in 0..nacks {
        let hits = hits(&|kind| drop().kind(kind).to(0).nth(lost));
        assert_eq!(hits, [1, 1], "number {lost} of each");
    }
}

#[test]
fn pool_of_one_slot_suffices() {
    for (seed, bytes) in [(1, 0), (2, 1000), (3, 5000)] {
        let mut cluster = Cluster::builder().ranks(4).channel(config(1)).seed(seed).build();
        let _loss = cluster.rule(drop().ppm(50_000));
        for from in 1..4 {
            for _ in 0..5 {
                cluster.send(from, 0, 1, bytes);
            }
        }
        cluster.run_for(Duration::from_millis(30));
        for from in 1..4 {
            for _ in 0..5 {
                cluster.receive(0, from, 1, bytes as u64);
            }
        }
        finish(&mut cluster);
    }
}

#[test]
fn messages_survive_socket_buffer_overruns() {
    let config = ChannelConfig { initial_credit_bytes: 1 << 20, ..config(512) };
    let mut cluster = Cluster::builder()
        .ranks(6)
        .channel(config)
        .receiver_bps(1_000_000_000)
        .receive_queue_bytes(40_000)
        .packet_time(us(15))
        .seed(10)
        .build();
    for from in 1..6 {
        exchange(&mut cluster, from, 0, 300_000);
    }
    finish(&mut cluster);
    assert!(cluster.network_counters().overruns > 0);
}

#[test]
fn computing_rank_delays_only_its_own_messages() {
    let mut cluster = Cluster::builder().ranks(3).seed(12).build();
    cluster.distract(1, Duration::from_millis(900));
    exchange(&mut cluster, 0, 1, 200_000);
    exchange(&mut cluster, 0, 2, 200_000);
    let sent = cluster.send(0, 2, 9, 10);
    let received = cluster.receive(2, 0, 9, 10);
    cluster.run_for(Duration::from_millis(100));
    assert!(matches!(cluster.state(sent), State::Done(_)));
    assert!(matches!(cluster.state(received), State::Done(_)));
    finish(&mut cluster);
}

#[test]
fn large_message_is_received_while_own_messages_are_rejected() {
    // Rank 0 has sent more than rank 1 can buffer, and rank 1 first waits for rank 0 to receive its
    // large message: legal for programs that do not block in their sends.
    let mut cluster = Cluster::builder().channel(config(2)).seed(1).build();
    for _ in 0..5 {
        cluster.send(0, 1, 1, 1000);
    }
    cluster.run_for(Duration::from_millis(5));
    let received = cluster.receive(0, 1, 2, 500_000);
    cluster.send(1, 0, 2, 500_000);
    cluster.run_for(Duration::from_secs(3));
    assert!(matches!(cluster.state(received), State::Done(_)), "{:?}", cluster.state(received));
    for _ in 0..5 {
        cluster.receive(1, 0, 1, 1000);
    }
    finish(&mut cluster);
}
