//! Test bodies for barriers of groups, for any algorithm, runner and division into nodes.
//!
//! The bodies for barriers over channels are
//! [`nobody_leaves_a_barrier_early`](super::nobody_leaves_a_barrier_early).

use super::{Arm, run};
use crate::rig::script::{BarrierGroup, Outcome, Script, Step};
use omnes_proto::collective::Runner;
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{Instant, Rank};
use std::time::Duration;

/// Number of barriers of one body.
const BARRIERS: u32 = 6;
/// Number of barriers in progress at a time.
const TOGETHER: u32 = 3;

/// Divisions of `size` ranks, at least 2, into nodes: each rank a node, pairs, one node of all, two
/// nodes of which the first has one rank, the same with the last rank as first leader.
pub fn divisions(size: u32) -> Vec<Vec<Vec<Rank>>> {
    let all: Vec<Rank> = (0..size).map(Rank).collect();
    let mut backwards = all.clone();
    backwards.reverse();
    vec![
        all.chunks(1).map(<[Rank]>::to_vec).collect(),
        all.chunks(2).map(<[Rank]>::to_vec).collect(),
        vec![all.clone()],
        vec![all[..1].to_vec(), all[1..].to_vec()],
        vec![backwards[..1].to_vec(), backwards[1..].to_vec()],
    ]
}

/// Groups of all ranks of an arm: every division with this algorithm and runner; if `is_multicast`,
/// every other group sends messages to all as one packet.
pub fn groups(
    size: u32,
    algorithm: BarrierAlgorithm,
    runner: Runner,
    is_multicast: bool,
) -> impl Iterator<Item = BarrierGroup> {
    (0..).zip(divisions(size)).map(move |(number, nodes)| BarrierGroup {
        nodes,
        algorithm,
        runner,
        is_multicast: is_multicast && number % 2 == 0,
    })
}

/// How long a rank computes before the `index`-th barrier: a different rank is late each time, some
/// are not late at all.
fn lateness(rank: u32, index: u32, size: u32) -> Duration {
    Duration::from_micros(u64::from((rank * 7 + index * 3) % size) * 90)
}

/// Ranks of a group.
fn members(group: &BarrierGroup) -> Vec<Rank> {
    group.nodes.iter().flatten().copied().collect()
}

/// Times that the members have recorded under a number.
fn times(outcomes: &[Outcome], members: &[Rank], mark: u32) -> Vec<Instant> {
    let of = |rank: &Rank| {
        let marks = &outcomes[rank.index()].marks;
        marks.iter().filter(|(number, _)| *number == mark).map(|(_, at)| *at).collect::<Vec<_>>()
    };
    let times: Vec<Instant> = members.iter().flat_map(of).collect();
    assert_eq!(times.len(), members.len(), "each member notes {mark} once");
    times
}

/// Checks that the last member to arrive was not later than the first to leave.
fn check_order(outcomes: &[Outcome], group: &BarrierGroup, (came, left): (u32, u32)) {
    let members = members(group);
    let last = times(outcomes, &members, came).into_iter().max();
    let first = times(outcomes, &members, left).into_iter().min();
    assert!(last <= first, "{group:?}: last came {last:?} ({came}), first left {first:?} ({left})");
}

/// No member leaves a group's barrier before all have arrived, whichever member is late; ranks that
/// are not members take no part.
pub fn nobody_leaves_a_barrier_of_a_group_early(arm: &mut impl Arm, group: &BarrierGroup) {
    let size = arm.size();
    let mut scripts = vec![Script::default(); size as usize];
    for rank in members(group) {
        let script = &mut scripts[rank.index()];
        for index in 0..BARRIERS {
            script.step(Step::Compute(lateness(rank.0, index, size)));
            script.step(Step::Mark(2 * index));
            script.barrier(group).wait();
            script.step(Step::Mark(2 * index + 1));
        }
    }
    let outcomes = run(arm, scripts);
    for index in 0..BARRIERS {
        check_order(&outcomes, group, (2 * index, 2 * index + 1));
    }
}

/// Overlapping barriers end, and no member has left the last of them before all have arrived at it.
pub fn barriers_of_a_group_may_overlap(arm: &mut impl Arm, group: &BarrierGroup) {
    let size = arm.size();
    let mut scripts = vec![Script::default(); size as usize];
    for rank in members(group) {
        let script = &mut scripts[rank.index()];
        for round in 0..BARRIERS {
            for index in 0..TOGETHER {
                script.step(Step::Compute(lateness(rank.0, round + index, size)));
                if index == TOGETHER - 1 {
                    script.step(Step::Mark(2 * round));
                }
                script.barrier(group);
            }
            script.wait();
            script.step(Step::Mark(2 * round + 1));
        }
    }
    let outcomes = run(arm, scripts);
    for round in 0..BARRIERS {
        check_order(&outcomes, group, (2 * round, 2 * round + 1));
    }
}

/// Concurrent barriers of two groups do not mix, in whichever order the ranks have entered them.
pub fn barriers_of_two_groups_do_not_mix(
    arm: &mut impl Arm,
    first: &BarrierGroup,
    second: &BarrierGroup,
) {
    let size = arm.size();
    let mut scripts = vec![Script::default(); size as usize];
    for (rank, script) in (0..size).zip(&mut scripts) {
        for index in 0..BARRIERS {
            let is_turned = (rank + index) % 2 == 1;
            let order = if is_turned { [second, first] } else { [first, second] };
            for group in order {
                if members(group).contains(&Rank(rank)) {
                    script.step(Step::Compute(lateness(rank, index, size)));
                    // Both groups record when a rank arrived at its barrier.
                    let is_second = std::ptr::eq(group, second);
                    script.step(Step::Mark(4 * index + u32::from(is_second)));
                    script.barrier(group);
                }
            }
            script.wait();
            script.step(Step::Mark(4 * index + 2));
        }
    }
    let outcomes = run(arm, scripts);
    for index in 0..BARRIERS {
        check_order(&outcomes, first, (4 * index, 4 * index + 2));
        check_order(&outcomes, second, (4 * index + 1, 4 * index + 2));
    }
}
