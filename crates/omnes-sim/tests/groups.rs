//! Groups in the rig: opened long after other members have opened them, closed, and with departed
//! members.

#![allow(clippy::unwrap_used)]

mod settled;

use omnes_proto::broadcast::{BroadcastConfig, CastGroupConfig, GroupId};
use omnes_proto::collective::{self as barriers, Runner};
use omnes_sim::conformance::POLICIES;
use omnes_sim::{Cluster, Operation, State, drop, no_living_rank_is_named, only_the_dead_fail};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Kind, Rank};
use settled::settle;
use std::time::Duration;

const BYTES: usize = 5000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn cluster(ranks: u32) -> Cluster {
    Cluster::builder().ranks(ranks).broadcast(BroadcastConfig::default()).build()
}

/// A group of all ranks.
fn group(ranks: u32, communicator: u32, policy: &str) -> CastGroupConfig {
    let id = GroupId { communicator: CommunicatorId(communicator), number: 3 };
    let nodes = (0..ranks).map(|rank| vec![Rank(rank)]).collect();
    CastGroupConfig { id, nodes, policy: policy.parse().unwrap() }
}

/// A rank opens the group and takes part in a broadcast of rank 0.
fn begin(cluster: &mut Cluster, group: &CastGroupConfig, rank: u32) -> Operation {
    cluster.open_group_at(rank, group);
    match rank {
        0 => cluster.broadcast(group.id, 0, BYTES),
        _ => cluster.receive_broadcast(rank, group.id, 0, BYTES as u64),
    }
}

#[test]
fn ranks_that_open_a_group_late_are_not_reported_failed() {
    for (policy, late) in POLICIES.into_iter().flat_map(|text| [(text, 5..6), (text, 1..8)]) {
        let mut cluster = cluster(8);
        let group = group(8, 5, policy);
        for rank in (0..8).filter(|rank| !late.contains(rank)) {
            begin(&mut cluster, &group, rank);
        }
        cluster.run_for(2 * BroadcastConfig::default().peer_timeout);
        cluster.check(no_living_rank_is_named);
        for rank in late {
            begin(&mut cluster, &group, rank);
        }
        settle(&mut cluster);
    }
}

#[test]
fn group_opened_after_a_member_failed_is_broken_from_the_start() {
    let mut cluster = cluster(3);
    cluster.crash(2);
    cluster.run_for(2 * BroadcastConfig::default().peer_timeout);
    let group = group(3, 1, "combined");
    let all = [0, 1].map(|rank| begin(&mut cluster, &group, rank));
    assert!(all.iter().all(|it| matches!(cluster.state(*it), State::Failed(_))));
    cluster.check(only_the_dead_fail);
}

#[test]
fn departed_root_is_not_asked_for_missing_packets() {
    let mut cluster = cluster(3);
    let id = cluster.open_group_of_all("combined".parse().unwrap());
    let _loss = cluster.rule(drop().kind(Kind::Cast).from(0).to(1).seq(5));
    // A message that arrives whole, and one that does not.
    for _ in 0..2 {
        cluster.broadcast(id, 0, BYTES);
        cluster.receive_broadcast(2, id, 0, BYTES as u64);
    }
    cluster.run_for(ms(20));
    cluster.leave(0);
    cluster.run_for(ms(500));
    cluster.check_quiet_for(ms(500));
    let receives = [0, 1].map(|_| cluster.receive_broadcast(1, id, 0, BYTES as u64));
    cluster.run_for(ms(100));
    let [whole, partial] = receives.map(|it| cluster.state(it));
    assert!(matches!((whole, partial), (State::Done(_), State::Failed(_))));
    for rank in 1..3 {
        let machine = cluster.endpoint(rank).broadcast().unwrap();
        assert_eq!(machine.active_streams(), 0);
        assert_eq!(machine.free_slots(), machine.config().pool_slots);
    }
}

// ---- closed ------------------------------------------------------------------------------------

/// Rank 0 has a barrier with each of the others, and closes the group immediately.
#[test]
fn lost_last_step_is_repaired_after_a_hundred_groups_were_closed() {
    const OTHERS: u32 = 100;
    let mut cluster = Cluster::builder().ranks(OTHERS + 1).build();
    let pair = |other: u32| barriers::BarrierGroupConfig {
        communicator: CommunicatorId(other),
        nodes: vec![vec![Rank(0)], vec![Rank(other)]].into(),
        algorithm: BarrierAlgorithm::Dissemination,
        runner: Runner::Host,
        is_multicast: false,
    };
    let cut = cluster.rule(drop().kind(Kind::Step).from(0).to(1));
    let mut all = Vec::new();
    for group in (1..=OTHERS).map(pair) {
        let other = group.communicator.0;
        cluster.open_barriers(&group);
        all.extend([other, 0].map(|rank| cluster.enter(rank, group.communicator)));
        cluster.run_for(ms(1));
        cluster.close_barriers(0, group.communicator);
    }
    assert_eq!(cluster.state(all[0]), State::Pending);
    cut.heal();
    cluster.run_for(ms(100));
    assert!(all.iter().all(|it| matches!(cluster.state(*it), State::Done(_))));
}
