//! The test bodies that every driver must pass, in the rig: without faults and with all faults.

#![allow(clippy::unwrap_used)]

use omnes_proto::broadcast::{BroadcastConfig, Policy};
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::Runner;
use omnes_sim::script::BarrierGroup;
use omnes_sim::{
    Cluster, Guard, Looking, Order, conformance, corrupt, drop, duplicate, nothing_is_missing,
    reorder,
};
use omnes_topo::{BarrierAlgorithm, Tree};
use omnes_wire::Rank;
use std::time::Duration;

/// Runs a body in a cluster without faults, in a bad network, and with hardly any buffers.
fn everywhere(ranks: u32, body: impl Fn(&mut Cluster)) {
    body(&mut Cluster::builder().ranks(ranks).with_previews().build());
    let jitter = Duration::from_micros(100);
    let bad = Cluster::builder().ranks(ranks).jitter(jitter, Order::Free).seed(2);
    let mut bad = bad.with_previews().build();
    let _faults = faults(&mut bad);
    body(&mut bad);
    let config = ChannelConfig { pool_slots: 6, window_packets: 5, ..ChannelConfig::default() };
    let mut poor = Cluster::builder().ranks(ranks).channel(config).seed(3).build();
    let _faults = faults(&mut poor);
    body(&mut poor);
}

fn faults(cluster: &mut Cluster) -> [Guard; 4] {
    [
        cluster.rule(drop().ppm(50_000)),
        cluster.rule(duplicate().ppm(50_000)),
        cluster.rule(corrupt().ppm(20_000)),
        cluster.rule(reorder(Duration::from_micros(400)).ppm(100_000)),
    ]
}

#[test]
fn messages_of_every_length_arrive() {
    everywhere(3, conformance::messages_of_every_length_arrive);
}

#[test]
fn equal_tags_keep_their_order() {
    everywhere(2, conformance::equal_tags_keep_their_order);
}

#[test]
fn any_source_takes_each_message_once() {
    everywhere(9, conformance::any_source_takes_each_message_once);
}

#[test]
fn broadcast_reaches_all_ranks_along_every_tree() {
    let knomial = Tree::Knomial { radix: 3 };
    for tree in [Tree::Binomial, Tree::Chain, Tree::Flat, knomial] {
        for (size, root, bytes, chunk_bytes) in
            [(2, 1, 0, 0), (5, 3, 10, 0), (8, 0, 100_000, 10_000), (7, 2, 200_000, 0)]
        {
            everywhere(size, |cluster| {
                let root = Rank(root);
                conformance::broadcast_reaches_everybody(cluster, tree, root, bytes, chunk_bytes);
            });
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_early() {
    for algorithm in BarrierAlgorithm::ALL {
        for size in [2, 3, 5, 8, 12] {
            everywhere(size, |cluster| {
                conformance::nobody_leaves_a_barrier_early(cluster, algorithm);
            });
        }
    }
}

// ---- broadcasts over multicast ------------------------------------------------------------

/// Runs a body for each policy, in a cluster without faults, in a bad network, and with hardly any
/// buffers.
fn everywhere_by_multicast(ranks: u32, body: impl Fn(&mut Cluster, Policy)) {
    for text in conformance::POLICIES {
        let policy = text.parse().unwrap();
        let builder = Cluster::builder().ranks(ranks).broadcast(BroadcastConfig::default());
        body(&mut builder.with_previews().build(), policy);
        let jitter = Duration::from_micros(100);
        let bad = Cluster::builder().ranks(ranks).jitter(jitter, Order::Free).seed(2);
        let bad = bad.broadcast(BroadcastConfig::default()).with_previews();
        let mut bad = bad.build();
        let _faults = faults(&mut bad);
        body(&mut bad, policy);
        let config =
            BroadcastConfig { pool_slots: 16, window_packets: 5, ..BroadcastConfig::default() };
        let mut poor = Cluster::builder().ranks(ranks).broadcast(config).seed(3).build();
        let _faults = faults(&mut poor);
        body(&mut poor, policy);
    }
}

#[test]
fn broadcasts_of_every_length_arrive() {
    for ranks in [2, 5] {
        everywhere_by_multicast(ranks, conformance::broadcasts_of_every_length_arrive);
    }
}

#[test]
fn broadcasts_back_to_back_keep_their_order() {
    everywhere_by_multicast(7, conformance::broadcasts_back_to_back_keep_their_order);
}

#[test]
fn broadcasts_of_all_roots_at_once_arrive() {
    everywhere_by_multicast(6, conformance::broadcasts_of_all_roots_at_once_arrive);
}

#[test]
fn late_rank_gets_every_broadcast() {
    for late in [0, 2, 5] {
        everywhere_by_multicast(6, |cluster, policy| {
            conformance::late_rank_gets_every_broadcast(cluster, policy, Rank(late));
        });
    }
}

#[test]
fn roots_take_turns() {
    everywhere_by_multicast(4, conformance::roots_take_turns);
}

// ---- barriers of groups ----------------------------------------------------------------------

/// Runs a body for each algorithm and runner, in a cluster without faults and in a bad network with
/// ranks that sleep.
fn everywhere_by_steps(
    ranks: u32,
    body: impl Fn(&mut Cluster, &mut dyn Iterator<Item = BarrierGroup>),
) {
    for algorithm in BarrierAlgorithm::ALL {
        for runner in [Runner::Host, Runner::Nic] {
            let groups = || conformance::groups(ranks, algorithm, runner, true);
            let mut good = Cluster::builder().ranks(ranks).build();
            body(&mut good, &mut groups());
            good.check(nothing_is_missing);
            let jitter = Duration::from_micros(100);
            let bad = Cluster::builder().ranks(ranks).jitter(jitter, Order::Free).seed(2);
            let mut bad = bad.looking(Looking::WhenWoken).build();
            let _faults = faults(&mut bad);
            body(&mut bad, &mut groups());
            bad.check(nothing_is_missing);
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_of_a_group_early() {
    for ranks in [2, 3, 4, 5, 8, 10, 13] {
        everywhere_by_steps(ranks, |cluster, groups| {
            for group in groups {
                conformance::nobody_leaves_a_barrier_of_a_group_early(cluster, &group);
            }
        });
    }
}

#[test]
fn barriers_of_a_group_may_overlap() {
    for ranks in [2, 5, 8, 11] {
        everywhere_by_steps(ranks, |cluster, groups| {
            for group in groups {
                conformance::barriers_of_a_group_may_overlap(cluster, &group);
            }
        });
    }
}

#[test]
fn barriers_of_two_groups_do_not_mix() {
    everywhere_by_steps(7, |cluster, groups| {
        let groups: Vec<BarrierGroup> = groups.collect();
        for pair in groups.windows(2) {
            conformance::barriers_of_two_groups_do_not_mix(cluster, &pair[0], &pair[1]);
        }
        // A group of some ranks, in addition to one of all.
        let nodes = vec![vec![Rank(6), Rank(1)], vec![Rank(3)], vec![Rank(0), Rank(2)]];
        let some = BarrierGroup { nodes, ..groups[0].clone() };
        conformance::barriers_of_two_groups_do_not_mix(cluster, &groups[0], &some);
        conformance::nobody_leaves_a_barrier_of_a_group_early(cluster, &some);
    });
}
