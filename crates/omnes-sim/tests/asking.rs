//! Ranks that wait for messages over channels and send requests for them: what requests must not
//! cause.

#![allow(clippy::unwrap_used)]

use omnes_proto::channel::ChannelConfig;
use omnes_sim::{Builder, Cluster, State, drop};
use omnes_wire::Kind;
use std::time::Duration;

const US: Duration = Duration::from_micros(1);
const SECOND: Duration = Duration::from_secs(1);

/// As in jobs whose ranks have separate cores; a waiting rank asks after `ask_min`.
fn cluster(ranks: u32, ask_min: Duration) -> Builder {
    let (ack_delay, timeout_min) = (40 * US, 80 * US);
    let channel = ChannelConfig { ask_min, ack_delay, timeout_min, ..ChannelConfig::default() };
    Cluster::builder().ranks(ranks).latency(25 * US).channel(channel).seed(3)
}

fn questions(cluster: &Cluster, ranks: u32) -> u64 {
    (0..ranks).map(|rank| cluster.counters(rank).nacks_sent).sum()
}

/// Packets that senders `1..ranks` retransmit when each sends `bytes` to rank 0, whose link is
/// slow, after 30 rounds of short messages.
fn repeated_by_incast(ask_min: Duration, ranks: u32, receiver_bps: u64, bytes: usize) -> u64 {
    let mut cluster = cluster(ranks, ask_min).receiver_bps(receiver_bps).build();
    for round in 0..31 {
        let bytes = if round < 30 { 8 } else { bytes };
        (1..ranks).for_each(|from| _ = cluster.receive(0, from, 1, bytes as u64));
        (1..ranks).for_each(|from| _ = cluster.send(from, 0, 1, bytes));
        cluster.run_until_quiescent();
    }
    (1..ranks).map(|rank| cluster.counters(rank).retransmits).sum()
}

#[test]
fn queued_packets_are_not_retransmitted_repeatedly() {
    for (ranks, bps) in [(2, 100_000_000), (2, 1_000_000_000), (5, 1_000_000_000)] {
        for bytes in [64 << 10, 1 << 20] {
            let without = repeated_by_incast(100 * SECOND, ranks, bps, bytes);
            let with = repeated_by_incast(40 * US, ranks, bps, bytes);
            println!("{ranks} ranks, {bps} bit/s, {bytes} B: {without} and {with} repeated");
            assert!(with <= without + 4 * u64::from(ranks), "{ranks} {bps} {bytes}");
        }
    }
}

#[test]
fn one_way_dead_link_is_detected_although_the_receiver_sends_requests() {
    for is_all in [true, false] {
        let mut cluster = cluster(5, 40 * US).build();
        let rule = if is_all { drop() } else { drop().kind(Kind::Data) };
        let _dead = cluster.rule(rule.from(0).to(2));
        cluster.receive(2, 0, 1, 8);
        let send = cluster.send(0, 2, 1, 8);
        cluster.run_for(10 * SECOND);
        assert!(!matches!(cluster.state(send), State::Pending), "all packets: {is_all}");
    }
}

#[test]
fn requests_stop_after_a_few_when_no_sender_answers() {
    for ranks in [4, 64] {
        let mut cluster = cluster(ranks, 40 * US).build();
        (1..ranks).for_each(|rank| _ = cluster.receive(rank, 0, 1, 8));
        cluster.run_for(20 * SECOND);
        assert_eq!(questions(&cluster, ranks), 4 * u64::from(ranks - 1));
    }
}

#[test]
fn requests_to_a_consistently_late_sender_cease() {
    for late in [3_000 * US, 200_000 * US] {
        let mut cluster = cluster(2, 40 * US).build();
        for round in 0..40 {
            let before = questions(&cluster, 2);
            cluster.receive(1, 0, 1, 8);
            cluster.run_for(late);
            cluster.send(0, 1, 1, 8);
            cluster.run_until_quiescent();
            let asked = questions(&cluster, 2) - before;
            assert!(round < 20 || asked == 0, "{asked} questions in round {round} of {late:?}");
        }
    }
}
