//! Networks that forward only short packets to some rank: broadcasts end with an error that names
//! the rank. Ranks that accept nothing for another reason are not affected.

#![allow(clippy::unwrap_used)]

mod settled;

use omnes_proto::broadcast::{BroadcastConfig, CastGroupConfig, GroupId, Policy};
use omnes_sim::conformance::POLICIES;
use omnes_sim::{Cluster, Rule, State, drop, no_living_rank_is_named};
use omnes_wire::{CommunicatorId, ENVELOPE_BYTES, Rank};
use settled::settle;
use std::time::Duration;

const RANKS: u32 = 6;
/// Too many ranks for each to request the missing packets.
const MANY: u32 = 40;
/// Timeout of a rank that owes acknowledgements.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than the detection takes in any case.
const LIMIT: Duration = Duration::from_secs(5);
/// Payload bytes of a packet, as in a jumbo frame.
const PAYLOAD: usize = 8900;
/// Length of a message of one long packet.
const LONE: usize = PAYLOAD - ENVELOPE_BYTES;
/// Length of a message of several long packets and a short one at its end.
const TAILED: usize = PAYLOAD * 5 + 500;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn config() -> BroadcastConfig {
    BroadcastConfig {
        payload_bytes: PAYLOAD as u16,
        peer_timeout: PEER_TIMEOUT,
        ..BroadcastConfig::default()
    }
}

fn cluster(ranks: u32, text: &str, config: BroadcastConfig) -> (Cluster, GroupId) {
    let mut cluster = Cluster::builder().ranks(ranks).broadcast(config).build();
    let group = cluster.open_group_of_all(policy(text));
    (cluster, group)
}

/// Drops the packets that a switch with the standard Ethernet MTU drops.
fn narrow() -> Rule {
    drop().longer_than(1472)
}

/// Runs until all ranks know that long packets do not reach the victim.
fn run_until_told(cluster: &mut Cluster, victim: u32, case: &str) {
    let is_told = |cluster: &Cluster, rank| cluster.endpoint(rank).is_mtu_black_hole(Rank(victim));
    let are_told = |cluster: &Cluster| (0..cluster.size()).all(|rank| is_told(cluster, rank));
    assert!(cluster.run_while(LIMIT, |cluster| !are_told(cluster)), "{case}");
    for rank in (0..cluster.size()).filter(|rank| *rank != victim) {
        let is_named = |other: &u32| *other != rank && cluster.named_at(rank, *other).is_some();
        let named: Vec<u32> = (0..cluster.size()).filter(is_named).collect();
        assert_eq!(named, [victim], "{case}: {rank}");
    }
    assert!(cluster.is_excluded(victim), "{case}");
}

#[test]
fn rank_unreachable_by_long_packets_is_reported_by_all_with_the_reason() {
    // A short packet at the end, a longer one that also arrives, none; rank 3 may be a co-root.
    let cases = [
        (RANKS, 2, TAILED),
        (RANKS, 3, TAILED),
        (RANKS, 5, PAYLOAD * 3 + 1200),
        (RANKS, 3, LONE),
        (MANY, 39, LONE),
    ];
    for text in POLICIES {
        for (ranks, victim, bytes) in cases {
            let (mut cluster, group) = cluster(ranks, text, config());
            cluster.broadcast_to_all(group, 0, TAILED);
            cluster.run_for(ms(10));
            let _narrow = cluster.rule(narrow().to(victim));
            let operations = cluster.broadcast_to_all(group, 0, bytes);
            let case = format!("{text}, {bytes} bytes to {victim} of {ranks}");
            run_until_told(&mut cluster, victim, &case);
            // Each rank has one operation, in order.
            for (rank, operation) in (0..ranks).zip(&operations).filter(|(rank, _)| *rank != victim)
            {
                assert_ne!(cluster.state(*operation), State::Pending, "{case}: {rank}");
            }
        }
    }
}

#[test]
fn one_of_several_ranks_unreachable_by_long_packets_is_given_up() {
    for text in ["window", "combined", "tree-ack=4"] {
        for bytes in [LONE, TAILED] {
            let (mut cluster, group) = cluster(RANKS, text, config());
            let _narrow = cluster.rule(narrow().from(0));
            let operations = cluster.broadcast_to_all(group, 0, bytes);
            let case = format!("{text}, {bytes} bytes");
            let is_named = |cluster: &Cluster, rank| cluster.named_at(0, rank).is_some();
            let is_any_named = |cluster: &Cluster| (1..RANKS).any(|rank| is_named(cluster, rank));
            assert!(cluster.run_while(LIMIT, |cluster| !is_any_named(cluster)), "{case}");
            let victim = (1..RANKS).find(|rank| is_named(&cluster, *rank)).unwrap();
            cluster.run_for(LIMIT);
            run_until_told(&mut cluster, victim, &case);
            for (rank, operation) in (0..RANKS).zip(&operations).filter(|(rank, _)| *rank != victim)
            {
                assert!(matches!(cluster.state(*operation), State::Failed(_)), "{case}: {rank}");
            }
        }
    }
}

/// Advances time by more than a rank may accept nothing, and checks that no rank was given up.
fn wait_in_vain(cluster: &mut Cluster) {
    cluster.run_for(3 * PEER_TIMEOUT);
    cluster.check(no_living_rank_is_named);
}

#[test]
fn rank_with_full_buffers_is_waited_for_and_not_reported_failed() {
    for text in POLICIES {
        for lost in [0, 300_000] {
            let few = BroadcastConfig { pool_slots: 16, ..config() };
            let (mut cluster, group) = cluster(RANKS, text, few);
            let loss = cluster.rule(drop().ppm(lost));
            // The first message fills the buffers of rank 3, so that the others find none.
            let bytes = [PAYLOAD * 3 - 100, PAYLOAD * 40];
            for bytes in bytes {
                cluster.broadcast(group, 0, bytes);
                for rank in (1..RANKS).filter(|rank| *rank != 3) {
                    cluster.receive_broadcast(rank, group, 0, bytes as u64);
                }
            }
            wait_in_vain(&mut cluster);
            bytes.iter().for_each(|bytes| {
                cluster.receive_broadcast(3, group, 0, *bytes as u64);
            });
            cluster.run_for(ms(100));
            loss.heal();
            settle(&mut cluster);
        }
    }
}

#[test]
fn heavy_random_loss_is_not_mistaken_for_a_packet_size_limit() {
    for text in POLICIES {
        let (mut cluster, group) = cluster(RANKS, text, config());
        let loss = cluster.rule(drop().ppm(300_000));
        for _ in 0..40 {
            cluster.broadcast_to_all(group, 0, 100_000);
            cluster.run_for(ms(200));
        }
        cluster.check(no_living_rank_is_named);
        loss.heal();
        settle(&mut cluster);
    }
}

#[test]
fn rank_computing_for_less_than_the_timeout_is_not_reported_failed() {
    for text in POLICIES {
        let (mut cluster, group) = cluster(RANKS, text, config());
        let lost = cluster.rule(drop().ppm(100_000));
        for _ in 0..6 {
            cluster.broadcast_to_all(group, 0, 100_000);
            cluster.distract(3, PEER_TIMEOUT * 3 / 4);
            cluster.run_for(PEER_TIMEOUT);
        }
        cluster.check(no_living_rank_is_named);
        lost.heal();
        settle(&mut cluster);
    }
}

#[test]
fn rank_that_opens_its_group_late_is_waited_for_and_not_reported() {
    for text in POLICIES {
        let mut cluster = Cluster::builder().ranks(4).broadcast(config()).build();
        let nodes = (0..4).map(|rank| vec![Rank(rank)]).collect();
        let id = GroupId { communicator: CommunicatorId(5), number: 3 };
        let group = CastGroupConfig { id, nodes, policy: policy(text) };
        (0..3).for_each(|rank| cluster.open_group_at(rank, &group));
        cluster.broadcast(id, 0, 50_000);
        (1..3).for_each(|rank| _ = cluster.receive_broadcast(rank, id, 0, 50_000));
        wait_in_vain(&mut cluster);
        cluster.open_group_at(3, &group);
        cluster.receive_broadcast(3, id, 0, 50_000);
        settle(&mut cluster);
    }
}
