//! Broadcasts in the rig, one guarantee per test: counts without faults, named losses, late ranks,
//! strangers on the group.

#![allow(clippy::unwrap_used)]

mod settled;

use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::{BroadcastConfig, CastGroupConfig, GroupId, Policy};
use omnes_proto::channel::Reply;
use omnes_proto::packet::Destination;
use omnes_sim::conformance::POLICIES;
use omnes_sim::{Cluster, Forgery, Operation, State, dead_are_named_to_all, drop};
use omnes_wire::{CommunicatorId, Instant, Kind, Rank};
use settled::settle;
use std::time::Duration;

/// Latency from one rank to another.
const LATENCY: Duration = Duration::from_micros(25);

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

/// A cluster whose ranks ask for previews, with one group of all ranks.
fn cluster(ranks: u32, text: &str) -> (Cluster, GroupId) {
    cluster_with(ranks, text, BroadcastConfig::default())
}

fn cluster_with(ranks: u32, text: &str, config: BroadcastConfig) -> (Cluster, GroupId) {
    let builder = Cluster::builder().ranks(ranks).latency(LATENCY).broadcast(config);
    let mut cluster = builder.with_previews().build();
    let group = cluster.open_group_of_all(policy(text));
    (cluster, group)
}

fn done_at(cluster: &Cluster, operation: Operation) -> Instant {
    match cluster.state(operation) {
        State::Done(at) => at,
        state => panic!("{operation:?} is {state:?}"),
    }
}

// ---- counts without faults --------------------------------------------------------------------

#[test]
fn lossless_broadcast_sends_each_packet_once_for_any_group_size() {
    for text in POLICIES {
        for ranks in [2, 5, 16] {
            let (mut cluster, group) = cluster(ranks, text);
            for (root, bytes) in [(0, 0), (1, 8), (0, 1416), (1, 1417), (0, 300_000)] {
                cluster.broadcast_to_all(group, root, bytes);
                cluster.run_until_quiescent();
            }
            settle(&mut cluster);
            let packets = cluster.packets_of_broadcasts();
            assert_eq!(cluster.packets_by_multicast(Kind::Cast), packets, "{text} of {ranks}");
            assert_eq!(cluster.packets_by_unicast(Kind::CastNack), 0, "{text} of {ranks}");
            let copies = |rank| cluster.broadcast_counters(rank).unicast_copies;
            let copies: u64 = (0..ranks).map(copies).sum();
            assert_eq!(cluster.packets_by_unicast(Kind::Cast), copies, "{text} of {ranks}");
        }
    }
}

/// Acknowledgements that the root receives for each of 100 small broadcasts, one every 50 µs, which
/// no rank waits for.
fn acks_per_broadcast(ranks: u32, text: &str) -> Vec<u64> {
    let config = BroadcastConfig { ack_delay: ms(20), ..BroadcastConfig::default() };
    let (mut cluster, group) = cluster_with(ranks, text, config);
    let acks = (0..100).map(|_| {
        let before = cluster.packets_to(Kind::CastAck, 0);
        for rank in 1..ranks {
            cluster.receive_broadcast(rank, group, 0, 8);
        }
        cluster.broadcast_with(group, 0, 8, Reply::Lazy);
        cluster.run_for(us(50));
        cluster.packets_to(Kind::CastAck, 0) - before
    });
    let acks = acks.collect();
    settle(&mut cluster);
    assert_eq!(cluster.packets_by_multicast(Kind::Cast), 100);
    acks
}

#[test]
fn every_receiver_acknowledges_each_broadcast_to_a_window_root() {
    for text in ["basic", "window"] {
        assert!(acks_per_broadcast(16, text).iter().all(|acks| *acks == 15), "{text}"); // [BC-R5]
    }
}

#[test]
fn every_tenth_broadcast_is_acknowledged_by_all() {
    let acks = acks_per_broadcast(16, "ack-every=10"); // [BC-R16]
    let expected = |number: usize| if number % 10 == 9 { 15 } else { 0 };
    assert!(acks.iter().enumerate().all(|(number, acks)| *acks == expected(number)), "{acks:?}");
}

#[test]
fn skewed_acknowledgements_are_spread_evenly_over_broadcasts() {
    for (ranks, every) in [(16, 10), (64, 10), (64, 3)] {
        let acks = acks_per_broadcast(ranks, &format!("skewed={every}")); // [BC-R17]
        let share = u64::from((ranks - 1) / every);
        let is_share = |acks: &u64| (share..=share + 1).contains(acks);
        assert!(acks.iter().all(is_share), "{ranks} ranks: {acks:?}");
    }
}

#[test]
fn root_is_acknowledged_only_by_its_subgroup_and_its_own_co_roots() {
    for (ranks, collectors) in [(8, 2), (16, 4), (64, 8)] {
        let acks = acks_per_broadcast(ranks, &format!("co-root={collectors}")); // [BC-R10]
        let copies = u32::ilog2(collectors);
        let expected = u64::from(ranks / collectors - 1 + copies);
        assert!(acks.iter().all(|acks| *acks == expected), "{ranks} ranks: {acks:?}");
    }
}

#[test]
fn tree_root_is_acknowledged_only_by_its_children() {
    let acks = acks_per_broadcast(16, "tree-ack=2"); // [BC-R14]
    // The first ones take a while to pass up from the leaves.
    assert!(acks.iter().skip(4).all(|acks| *acks == 4), "{acks:?}");
}

// ---- losses -----------------------------------------------------------------------------------

#[test]
fn packet_lost_by_one_rank_is_retransmitted_to_that_rank_alone() {
    for text in POLICIES {
        let (mut cluster, group) = cluster(6, text);
        let _loss = cluster.rule(drop().kind(Kind::Cast).multicast().seq(3).to(2).times(1));
        cluster.broadcast_to_all(group, 0, 10_000);
        settle(&mut cluster);
        let packets = cluster.packets_of_broadcasts();
        assert_eq!(cluster.packets_by_multicast(Kind::Cast), packets, "{text}");
        let to_it = cluster.packets_to(Kind::Cast, 2);
        assert!((1..=2).contains(&to_it) || text.contains("co-root"), "{text}: {to_it}");
    }
}

#[test]
fn packet_lost_by_all_ranks_is_retransmitted_by_multicast() {
    for text in ["nack", "combined", "nack+window"] {
        // Also if the machine has not measured a round trip yet.
        for learned in [0, 5] {
            let (mut cluster, group) = cluster(12, text);
            for _ in 0..learned {
                cluster.broadcast_to_all(group, 0, 8);
                cluster.run_until_quiescent();
            }
            let lost = drop().at_uplink().kind(Kind::Cast).multicast().nth(3);
            let loss = cluster.rule(lost);
            cluster.broadcast_to_all(group, 0, 20_000);
            settle(&mut cluster);
            assert_eq!(loss.hits(), 1);
            let packets = cluster.packets_of_broadcasts();
            let again = cluster.packets_by_multicast(Kind::Cast) - packets;
            let alone = cluster.packets_by_unicast(Kind::Cast);
            // The first report may be answered before the second arrives.
            assert!(again <= 2 && alone <= 2, "{text}: {again} to all, {alone} alone");
        }
    }
}

/// A single broadcast of 8 bytes; returns how long the last receiver waits for it if the packet is
/// lost on the way to one rank, or to all.
fn time_with_loss(text: &str, is_lost_for_all: Option<u32>) -> Duration {
    let (mut cluster, group) = cluster(8, text);
    // The machine measures the round trip.
    for _ in 0..20 {
        cluster.broadcast_to_all(group, 0, 8);
        cluster.run_until_quiescent();
    }
    let lost = drop().kind(Kind::Cast).times(1);
    let lost = match is_lost_for_all {
        Some(rank) => lost.to(rank),
        None => lost.at_uplink(),
    };
    let _loss = cluster.rule(lost);
    let begun = cluster.now();
    let operations = cluster.broadcast_to_all(group, 0, 8);
    settle(&mut cluster);
    let last = operations[1..].iter().map(|receive| done_at(&cluster, *receive)).max();
    last.unwrap().since(begun)
}

#[test]
fn lost_packet_of_a_lone_broadcast_costs_at_most_three_round_trips() {
    let round_trip = 2 * LATENCY;
    for text in ["basic", "window", "combined"] {
        for to in [Some(5), None] {
            let time = time_with_loss(text, to);
            // One round trip to detect the loss, which takes at least the shortest timeout, and
            // half of one to retransmit.
            let most = LATENCY + (3 * round_trip).max(us(300));
            assert!(time <= most, "{text}: {time:?} with loss to {to:?}");
        }
    }
}

#[test]
fn lost_acknowledgement_causes_no_duplicate_delivery() {
    for text in POLICIES {
        let (mut cluster, group) = cluster(6, text);
        let _loss = cluster.rule(drop().kind(Kind::CastAck).times(3));
        for bytes in [8, 3000] {
            cluster.broadcast_to_all(group, 0, bytes);
        }
        settle(&mut cluster);
    }
}

// ---- windows and buffers ----------------------------------------------------------------------

#[test]
fn coded_repairs_take_fewer_packets_than_were_lost() {
    for text in ["combined", "nack", "tree-ack=4+combined"] {
        let (mut cluster, group) = cluster(16, text);
        // At each receiver separately.
        let lost = cluster.rule(drop().kind(Kind::Cast).multicast().ppm(10_000));
        cluster.broadcast_to_all(group, 0, 1 << 20);
        settle(&mut cluster);
        let root = cluster.broadcast_counters(0);
        let repairs = root.repairs_by_multicast + root.repairs_by_unicast;
        assert!(root.repairs_coded > 10, "{text}: {root:?}");
        assert!(2 * repairs < lost.hits(), "{text}: {repairs} repairs of {} losses", lost.hits());
        let decoded: u64 = (1..16).map(|rank| cluster.broadcast_counters(rank).decoded).sum();
        assert!(decoded > root.repairs_coded, "{text}: {decoded} decoded");
    }
}

#[test]
fn window_is_filled_and_never_exceeded() {
    for text in POLICIES {
        let config = BroadcastConfig { window_packets: 7, ..BroadcastConfig::default() };
        let (mut cluster, group) = cluster_with(5, text, config);
        let _loss = cluster.rule(drop().ppm(50_000));
        cluster.broadcast_to_all(group, 0, 100_000);
        settle(&mut cluster);
        assert_eq!(cluster.broadcast_window_seen(), 7, "{text}");
    }
}

#[test]
fn late_rank_does_not_block_the_root_while_its_window_has_room() {
    let (mut cluster, group) = cluster(5, "window"); // [BC-R5]
    let sent: Vec<Operation> = (0..20)
        .map(|_| {
            for rank in 1..4 {
                cluster.receive_broadcast(rank, group, 0, 1000);
            }
            cluster.broadcast_with(group, 0, 1000, Reply::Lazy)
        })
        .collect();
    cluster.run_for(ms(5));
    // Rank 4 has posted no receive, and has the whole message in its buffers.
    assert!(sent.iter().all(|operation| matches!(cluster.state(*operation), State::Done(_))));
    for _ in 0..20 {
        cluster.receive_broadcast(4, group, 0, 1000);
    }
    settle(&mut cluster);
}

#[test]
fn receives_of_mismatched_sizes_get_their_own_messages() {
    // Receives larger or smaller than their message must not shift the following ones, whatever is
    // lost.
    for lost in 0..12 {
        let (mut cluster, group) = cluster(3, "combined");
        let _loss = cluster.rule(drop().kind(Kind::Cast).seq(lost).to(2).times(1));
        let messages = [5000, 34, 12, 17_494, 0, 9];
        let capacities = [9000, 1703, 12, 18_493, 2000, 4];
        for capacity in capacities {
            cluster.receive_broadcast(1, group, 0, capacity);
            cluster.receive_broadcast(2, group, 0, capacity);
        }
        for bytes in messages {
            cluster.broadcast_with(group, 0, bytes, Reply::Lazy);
        }
        settle(&mut cluster);
    }
}

#[test]
fn packets_ahead_of_a_gap_leave_a_buffer_for_the_missing_packet() {
    for text in POLICIES {
        for pool_slots in [16, 20] {
            let config = BroadcastConfig { pool_slots, ..BroadcastConfig::default() };
            let (mut cluster, group) = cluster_with(8, text, config);
            let lost = drop().kind(Kind::Cast).seq(0).times(5);
            let _loss = cluster.rule(lost);
            cluster.broadcast(group, 0, 20_000);
            cluster.broadcast(group, 1, 20_000);
            cluster.run_for(ms(30));
            for root in [0, 1] {
                for rank in cluster.receivers(group, root) {
                    cluster.receive_broadcast(rank, group, root, 20_000);
                }
            }
            settle(&mut cluster);
        }
    }
}

#[test]
fn unreceived_messages_do_not_block_another_group() {
    for text in POLICIES {
        let config = BroadcastConfig { pool_slots: 16, ..BroadcastConfig::default() };
        let (mut cluster, first) = cluster_with(6, text, config);
        let second = cluster.open_group_of_all(policy(text));
        for _ in 0..30 {
            cluster.broadcast_with(first, 0, 1000, Reply::Lazy);
        }
        cluster.run_for(ms(5));
        // Its receives are posted only when the other group's are complete.
        let _loss = cluster.rule(drop().kind(Kind::Cast).seq(0).times(4));
        let begun: Vec<Operation> = [0, 30, 10, 5000]
            .into_iter()
            .flat_map(|bytes| cluster.broadcast_to_all(second, 1, bytes))
            .collect();
        let is_open =
            |cluster: &Cluster, operation: &Operation| cluster.state(*operation) == State::Pending;
        let has_ended =
            cluster.run_while(ms(2000), |cluster| begun.iter().any(|one| is_open(cluster, one)));
        if !has_ended {
            cluster.fail(&format!("{text}: not ended"));
        }
        for rank in 1..6 {
            for _ in 0..30 {
                cluster.receive_broadcast(rank, first, 0, 1000);
            }
        }
        settle(&mut cluster);
    }
}

#[test]
fn group_opened_late_still_gets_earlier_broadcasts() {
    for text in POLICIES {
        let builder = Cluster::builder().ranks(4).broadcast(BroadcastConfig::default());
        let mut cluster = builder.build();
        let nodes = (0..4).map(|rank| vec![Rank(rank)]).collect();
        let id = GroupId { communicator: CommunicatorId(5), number: 3 };
        let group = CastGroupConfig { id, nodes, policy: policy(text) };
        for rank in 0..3 {
            cluster.open_group_at(rank, &group);
        }
        cluster.broadcast(id, 0, 5000);
        cluster.receive_broadcast(1, id, 0, 5000);
        cluster.receive_broadcast(2, id, 0, 5000);
        cluster.run_for(ms(20));
        cluster.open_group_at(3, &group);
        cluster.receive_broadcast(3, id, 0, 5000);
        settle(&mut cluster);
    }
}

// ---- nodes with several ranks, and groups ------------------------------------------------------

#[test]
fn only_the_leaders_of_other_nodes_receive_a_broadcast() {
    let mut cluster = Cluster::builder().ranks(7).broadcast(BroadcastConfig::default()).build();
    let node = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect();
    let nodes = vec![node(&[1, 0]), node(&[2, 3, 4]), node(&[6, 5])];
    let id = GroupId { communicator: CommunicatorId(1), number: 0 };
    cluster.open_group(&CastGroupConfig { id, nodes: nodes.into(), policy: Policy::COMBINED });
    assert_eq!(cluster.receivers(id, 3), [6, 1]);
    let operations = cluster.broadcast_to_all(id, 3, 40_000);
    assert_eq!(operations.len(), 3);
    settle(&mut cluster);
    let refused = cluster.receive_broadcast(5, id, 3, 40_000);
    assert!(matches!(cluster.state(refused), State::Failed(_)));
}

#[test]
fn groups_of_one_communicator_do_not_mix() {
    let (mut cluster, first) = cluster(5, "window");
    let second = cluster.open_group_of_all(policy("co-root=2+nack"));
    let _loss = cluster.rule(drop().ppm(100_000));
    for bytes in [10, 20_000, 0, 7] {
        for root in [0, 3] {
            cluster.broadcast_to_all(first, root, bytes);
            cluster.broadcast_to_all(second, root, bytes + 1);
        }
    }
    settle(&mut cluster);
}

// ---- ranks that die or leave -------------------------------------------------------------------

/// Time within which a death must be known to all.
fn naming_time() -> Duration {
    let LivenessConfig { interval, timeout, .. } = LivenessConfig::default();
    timeout + 2 * interval
}

#[test]
fn dead_root_co_root_or_leaf_breaks_its_own_groups_only() {
    for text in POLICIES {
        // With 6 ranks and 2 collectors, 3 is the co-root of root 0.
        for victim in [0, 3, 5] {
            // A co-root cannot hold all of a message for a leaf that is dead.
            let config =
                BroadcastConfig { window_packets: 64, pool_slots: 200, ..Default::default() };
            let (mut cluster, all) = cluster_with(6, text, config);
            let others = (0..6).filter(|rank| *rank != victim).map(|rank| vec![Rank(rank)]);
            let id = GroupId { communicator: CommunicatorId(2), number: 0 };
            let whole = CastGroupConfig { id, nodes: others.collect(), policy: policy(text) };
            cluster.open_group(&whole);
            let broken = cluster.broadcast_to_all(all, 0, 1_000_000);
            let root = if victim == 0 { 1 } else { 0 };
            let sound = cluster.broadcast_to_all(id, root, 1_000_000);
            cluster.run_for(us(10));
            cluster.crash(victim);
            cluster.run_for(naming_time());
            cluster.check(dead_are_named_to_all);
            cluster.run_until_quiescent();
            let failed =
                |operation: &Operation| matches!(cluster.state(*operation), State::Failed(_));
            assert!(broken.iter().any(failed), "{text} without {victim}");
            assert!(!sound.iter().any(failed), "{text} without {victim}");
            let late = cluster.broadcast(all, if victim == 2 { 1 } else { 2 }, 10);
            assert!(matches!(cluster.state(late), State::Failed(_)));
            settle(&mut cluster);
        }
    }
}

#[test]
fn rank_that_leaves_after_finishing_does_not_disturb_the_broadcast() {
    for text in POLICIES {
        let (mut cluster, group) = cluster(6, text);
        cluster.broadcast_to_all(group, 0, 50_000);
        let late = cluster.rule(drop().kind(Kind::Cast).to(5));
        cluster.run_for(ms(3));
        late.heal();
        // Rank 3 has everything, and so have all ranks that it answers for.
        assert!(cluster.run_while(ms(500), |cluster| !cluster.is_idle(3)));
        cluster.leave(3);
        settle(&mut cluster);
    }
}

#[test]
fn departure_unknown_to_the_root_does_not_hang_the_root() {
    let (mut cluster, group) = cluster(4, "combined");
    cluster.broadcast_to_all(group, 0, 8);
    let _deaf = cluster.rule(drop().from(2).to(0));
    cluster.run_for(ms(1));
    assert!(cluster.is_idle(2));
    cluster.leave(2);
    // Its neighbour in the ring has heard the farewell, so only the root can detect the failure.
    cluster.run_for(2 * naming_time());
    assert!(cluster.is_quiescent());
}

// ---- strangers --------------------------------------------------------------------------------

#[test]
fn forged_group_packets_only_increment_counters() {
    let (mut cluster, group) = cluster(4, "combined");
    for round in 0..60 {
        cluster.broadcast_to_all(group, round % 4, 4000);
        for forgery in Forgery::ALL {
            cluster.forge_to_group(forgery);
        }
        cluster.run_for(us(70));
    }
    settle(&mut cluster);
    for rank in 0..4 {
        let gate = cluster.gate(rank);
        assert!(gate.malformed >= 60 && gate.unknown_version == 60, "{gate:?}");
        assert!(gate.foreign_job == 60 && gate.bad_tag >= 60, "{gate:?}");
    }
}

#[test]
fn multicast_hellos_are_counted_per_sender() {
    let builder = Cluster::builder().ranks(5).broadcast(BroadcastConfig::default());
    let mut cluster = builder.build();
    let _deaf = cluster.rule(drop().kind(Kind::Hello).to(3));
    for rank in 0..4 {
        cluster.announce(rank);
    }
    cluster.run_for(ms(1));
    let heard: Vec<usize> = (0..5).map(|rank| cluster.heard(rank)).collect();
    assert_eq!(heard, [3, 3, 3, 0, 4]);
    assert_eq!(cluster.packets(Kind::Hello, 0, Destination::Group), 1);
}
