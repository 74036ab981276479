//! The bodies that every driver must pass, in the rig: without faults and with all of them.

#![allow(clippy::unwrap_used)]

use omnes_proto::broadcast::{BroadcastConfig, Policy};
use omnes_proto::channel::ChannelConfig;
use omnes_sim::{Cluster, Guard, Order, conformance, corrupt, drop, duplicate, reorder};
use omnes_topo::{Barrier, Tree};
use omnes_wire::Rank;
use std::time::Duration;

/// Runs a body in a faultless cluster, in a bad network, and with hardly any buffers.
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
fn broadcast_reaches_everybody_along_every_tree() {
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
    for algorithm in Barrier::ALL {
        for size in [2, 3, 5, 8, 12] {
            everywhere(size, |cluster| {
                conformance::nobody_leaves_a_barrier_early(cluster, algorithm);
            });
        }
    }
}

// ---- broadcasts over multicast ------------------------------------------------------------

/// Runs a body for each policy, in a faultless cluster, in a bad network, and with hardly any
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
