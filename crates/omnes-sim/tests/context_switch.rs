//! Stopping a channel until it is stable, and resuming it: PM's context switch, C1 to C5 and C8.

#![allow(clippy::unwrap_used)]

use omnes_proto::channel::ChannelConfig;
use omnes_sim::{
    Cluster, Guard, delivered_once_in_order, drop, duplicate, no_message_is_in_flight,
    nothing_is_missing, reorder,
};
use std::time::Duration;

const RANKS: u32 = 5;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn faults(cluster: &mut Cluster) -> [Guard; 3] {
    [
        cluster.rule(drop().ppm(50_000)),
        cluster.rule(duplicate().ppm(50_000)),
        cluster.rule(reorder(ms(1)).ppm(50_000)),
    ]
}

fn stop_all(cluster: &mut Cluster) {
    for rank in 0..RANKS {
        cluster.stop(rank, 0);
    }
    let is_unstable = |cluster: &Cluster| (0..RANKS).any(|r| cluster.stable_at(r, 0).is_none());
    assert!(cluster.run_while(ms(10_000), is_unstable), "some rank never becomes stable");
}

fn resume_all(cluster: &mut Cluster) {
    for rank in 0..RANKS {
        cluster.resume(rank, 0);
    }
}

fn packets_sent(cluster: &Cluster) -> u64 {
    let of = |rank| cluster.counters(rank).data_packets + cluster.counters(rank).retransmits;
    (0..RANKS).map(of).sum()
}

/// All ranks send to all others and post half of the receives; returns the remaining receives.
fn traffic(cluster: &mut Cluster, bytes: usize) -> Vec<(u32, u32)> {
    let mut late = Vec::new();
    for from in 0..RANKS {
        for to in (0..RANKS).filter(|to| *to != from) {
            cluster.send(from, to, 1, bytes);
            if (from + to) % 2 == 0 {
                cluster.receive(to, from, 1, bytes as u64);
            } else {
                late.push((to, from));
            }
        }
    }
    late
}

fn finish(cluster: &mut Cluster, late: Vec<(u32, u32)>, bytes: usize) {
    for (to, from) in late {
        cluster.receive(to, from, 1, bytes as u64);
    }
    cluster.run_until_quiescent();
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
}

#[test]
fn stopped_channel_becomes_stable_with_nothing_in_flight() {
    // [PM-R20, R21, R23]
    for bytes in [0, 3000, 300_000] {
        let mut cluster = Cluster::builder().ranks(RANKS).seed(1).build();
        let late = traffic(&mut cluster, bytes);
        cluster.run_for(Duration::from_micros(60));
        stop_all(&mut cluster);
        let sent = packets_sent(&cluster);
        cluster.check(no_message_is_in_flight);
        cluster.run_for(ms(1000));
        assert_eq!(packets_sent(&cluster), sent);
        resume_all(&mut cluster);
        finish(&mut cluster, late, bytes);
    }
}

#[test]
fn channel_becomes_stable_despite_loss_and_then_sends_nothing() {
    // [PM-R20, R21, R23]
    for seed in 0..20 {
        let mut cluster = Cluster::builder().ranks(RANKS).seed(seed).build();
        let faults = faults(&mut cluster);
        let late = traffic(&mut cluster, 40_000);
        cluster.run_for(Duration::from_micros(100 * seed));
        stop_all(&mut cluster);
        let sent = packets_sent(&cluster);
        cluster.run_for(ms(200));
        assert_eq!(packets_sent(&cluster), sent);
        resume_all(&mut cluster);
        let healed = faults.map(Guard::heal);
        assert_eq!(healed.len(), 3);
        finish(&mut cluster, late, 40_000);
    }
}

#[test]
fn rejected_messages_count_as_answered_and_are_sent_after_the_resume() {
    // [PM-R20]: each message is delivered, retransmitted later, or never sent.
    for seed in 0..10 {
        let config = ChannelConfig { pool_slots: 3, ..ChannelConfig::default() };
        let mut cluster = Cluster::builder().ranks(RANKS).channel(config).seed(seed).build();
        let faults = faults(&mut cluster);
        let late = traffic(&mut cluster, 8000);
        cluster.run_for(Duration::from_micros(500 * (seed + 1)));
        stop_all(&mut cluster);
        let sent = packets_sent(&cluster);
        // Buffers that become free meanwhile must not cause a rank to send.
        for (to, from) in &late[..5] {
            cluster.receive(*to, *from, 1, 8000);
        }
        cluster.run_for(ms(300));
        assert_eq!(packets_sent(&cluster), sent);
        resume_all(&mut cluster);
        assert_eq!(faults.map(Guard::heal).len(), 3);
        finish(&mut cluster, late[5..].to_vec(), 8000);
    }
}

#[test]
fn long_stop_of_a_rejected_sender_is_not_reported_as_failure() {
    let config = ChannelConfig { pool_slots: 1, ..ChannelConfig::default() };
    let mut cluster = Cluster::builder().ranks(RANKS).channel(config).seed(1).build();
    let late = traffic(&mut cluster, 8000);
    cluster.run_for(ms(20));
    stop_all(&mut cluster);
    cluster.run_for(ms(20_000));
    resume_all(&mut cluster);
    finish(&mut cluster, late, 8000);
}

#[test]
fn stopped_rank_still_receives_and_acknowledges() {
    // [PM-R23]: otherwise the other ranks would never become stable.
    let mut cluster = Cluster::builder().ranks(RANKS).seed(1).build();
    cluster.stop(0, 0);
    cluster.send(1, 0, 1, 300_000);
    cluster.receive(0, 1, 1, 300_000);
    let held = cluster.send(0, 1, 1, 10);
    cluster.receive(1, 0, 1, 10);
    cluster.run_for(ms(100));
    assert_eq!(cluster.counters(0).data_packets, 0);
    assert_eq!(cluster.state(held), omnes_sim::State::Pending);
    cluster.resume(0, 0);
    cluster.run_until_quiescent();
    cluster.check(delivered_once_in_order);
}

#[test]
fn stopping_one_channel_does_not_affect_the_other() {
    // [PM-R1]
    let mut cluster = Cluster::builder().ranks(RANKS).seed(1).build();
    for rank in 0..RANKS {
        cluster.stop(rank, 1);
    }
    let late = traffic(&mut cluster, 3000);
    finish(&mut cluster, late, 3000);
}
