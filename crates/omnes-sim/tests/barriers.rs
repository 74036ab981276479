//! Barriers of groups in the rig, by hosts and by NICs: counts, individually named losses, ranks
//! that are late, ignore the network, sleep, die or leave.

#![allow(clippy::unwrap_used)]

use omnes_proto::LivenessConfig;
use omnes_proto::collective::{
    BarrierGroupConfig, CollectiveCounters, Runner, STEP_JOIN, STEP_RELEASE,
};
use omnes_sim::{
    Builder, Cluster, Forgery, Looking, Operation, State, broken_groups_are_at_rest, conformance,
    delay, drop, missing_ranks_are_reported, no_living_rank_is_named, nothing_is_missing,
    only_the_dead_fail, partition,
};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Instant, Kind, Rank};
use std::time::Duration;

const RUNNERS: [Runner; 2] = [Runner::Host, Runner::Nic];
const GROUP: CommunicatorId = CommunicatorId(9);

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn cluster(ranks: u32) -> Builder {
    Cluster::builder().ranks(ranks).seed(5)
}

fn nodes(nodes: &[&[u32]]) -> Vec<Vec<Rank>> {
    nodes.iter().map(|node| node.iter().copied().map(Rank).collect()).collect()
}

fn group(nodes: Vec<Vec<Rank>>, algorithm: BarrierAlgorithm, runner: Runner) -> BarrierGroupConfig {
    BarrierGroupConfig {
        communicator: GROUP,
        nodes: nodes.into(),
        algorithm,
        runner,
        is_multicast: false,
    }
}

fn end(cluster: &mut Cluster) {
    cluster.run_until_quiescent();
    cluster.check(nothing_is_missing);
    cluster.check(only_the_dead_fail);
    cluster.check(no_living_rank_is_named);
    cluster.check(missing_ranks_are_reported);
    // Answers to questions asked before the end.
    cluster.run_for(us(200));
    cluster.check_quiet_for(Duration::from_secs(2));
}

fn done_at(cluster: &Cluster, operation: Operation) -> Instant {
    match cluster.state(operation) {
        State::Done(at) => at,
        state => panic!("{operation:?} is {state:?}"),
    }
}

fn sum(cluster: &Cluster, of: fn(&CollectiveCounters) -> u64) -> u64 {
    (0..cluster.size()).map(|rank| of(cluster.collective_counters(rank))).sum()
}

fn repeated_by_nics(cluster: &Cluster, group: CommunicatorId) -> u64 {
    (0..cluster.size())
        .filter_map(|rank| cluster.nic_counters(rank, group))
        .map(|counters| counters.repeated)
        .sum()
}

// ---- without faults ---------------------------------------------------------------------------

#[test]
fn ten_nodes_send_the_packet_counts_of_the_formulas() {
    let counts = [
        (BarrierAlgorithm::Dissemination, 40),
        (BarrierAlgorithm::PairwiseExchange, 28),
        (BarrierAlgorithm::GatherBroadcast, 18),
        (BarrierAlgorithm::Counter, 18),
    ];
    for (algorithm, packets) in counts {
        for runner in RUNNERS {
            let mut cluster = cluster(10).build();
            let group = cluster.open_barriers_of_all(algorithm, runner);
            cluster.enter_all(group);
            end(&mut cluster);
            assert_eq!(cluster.step_packets(group), packets, "{algorithm} {runner:?}");
        }
    }
}

/// [CB-R9], [CB-R10], [CB-R11].
#[test]
fn packet_counts_match_the_formulas_for_all_sizes_and_divisions() {
    const BARRIERS: u64 = 3;
    for ranks in 2..=17 {
        for algorithm in BarrierAlgorithm::ALL {
            for (runner, is_multicast) in
                RUNNERS.into_iter().flat_map(|runner| [(runner, false), (runner, true)])
            {
                let divisions = conformance::divisions(ranks);
                for nodes in divisions {
                    let config =
                        BarrierGroupConfig { is_multicast, ..group(nodes, algorithm, runner) };
                    let mut cluster = cluster(ranks).build();
                    cluster.open_barriers(&config);
                    for _ in 0..BARRIERS {
                        cluster.enter_all(GROUP);
                        cluster.run_until_quiescent();
                    }
                    end(&mut cluster);
                    check_counts(&cluster, &config, BARRIERS);
                }
            }
        }
    }
}

fn check_counts(cluster: &Cluster, config: &BarrierGroupConfig, barriers: u64) {
    let BarrierGroupConfig { nodes, algorithm, is_multicast, .. } = config;
    let count = nodes.count();
    let mut between = algorithm.messages(count).unwrap();
    if *is_multicast && *algorithm == BarrierAlgorithm::Counter && count > 1 {
        // All releases are one packet.
        between = u64::from(count);
    }
    let led = u64::from(cluster.size() - count);
    assert_eq!(cluster.step_packets(GROUP), barriers * between, "{config:?}");
    assert_eq!(cluster.step_packets_inside(GROUP), barriers * 2 * led, "{config:?}");
    for kind in [Kind::StepNack, Kind::StepAsk, Kind::StepTell] {
        assert_eq!(cluster.packets_about(kind, GROUP), 0, "{config:?}");
    }
}

/// [CB-R8]: a member may be one barrier ahead of another.
#[test]
fn fifty_barriers_can_be_pending_at_the_same_time() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let config = group(nodes(&[&[4, 0], &[1], &[3, 2, 5]]), algorithm, runner);
            let mut cluster = cluster(6).build();
            cluster.open_barriers(&config);
            for rank in [3, 0, 1, 5, 4, 2] {
                for _ in 0..50 {
                    cluster.enter(rank, GROUP);
                }
                cluster.run_for(us(70));
            }
            end(&mut cluster);
            assert!((0..6).all(|rank| cluster.progress(rank, GROUP) == (50, 50)));
            assert_eq!(cluster.step_packets(GROUP), 50 * algorithm.messages(3).unwrap());
        }
    }
}

#[test]
fn nic_host_receives_no_steps_and_no_wakeups() {
    let mut cluster = cluster(8).build();
    let group = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, Runner::Nic);
    for _ in 0..5 {
        cluster.enter_all(group);
        cluster.run_until_quiescent();
    }
    for rank in 0..8 {
        let CollectiveCounters { barriers, doorbells, steps_sent, steps_received, wakes, .. } =
            *cluster.collective_counters(rank);
        assert_eq!((barriers, doorbells, steps_sent, steps_received, wakes), (5, 5, 0, 0, 0));
        let nic = cluster.nic_counters(rank, group).unwrap();
        assert_eq!((nic.packets_in, nic.packets_out, nic.wakes), (15, 15, 0));
    }
    assert_eq!(cluster.network_counters().doorbells, 40);
}

/// [CB-R7]: the next step needs no host.
#[test]
fn nic_continues_the_barrier_while_its_host_is_busy() {
    for (runner, is_prompt) in [(Runner::Nic, true), (Runner::Host, false)] {
        let mut cluster = cluster(8).build();
        let group = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, runner);
        let busy = cluster.enter(3, group);
        cluster.run_for(us(100));
        cluster.distract(3, ms(50));
        let others: Vec<Operation> =
            [0, 1, 2, 4, 5, 6, 7].map(|rank| cluster.enter(rank, group)).into();
        end(&mut cluster);
        let last = others.iter().map(|operation| done_at(&cluster, *operation)).max().unwrap();
        // Three steps of 25 us each.
        let prompt = Instant::ZERO + us(100) + 3 * us(25);
        assert_eq!(last == prompt, is_prompt, "{runner:?} {last:?}");
        assert!(done_at(&cluster, busy) >= Instant::ZERO + us(100) + ms(50));
    }
}

#[test]
fn last_packet_wakes_a_sleeping_host() {
    for algorithm in BarrierAlgorithm::ALL {
        let mut cluster = cluster(6).looking(Looking::WhenWoken).build();
        let group = cluster.open_barriers_of_all(algorithm, Runner::Nic);
        let early: Vec<Operation> = (0..5).map(|rank| cluster.enter(rank, group)).collect();
        cluster.run_for(us(300));
        cluster.enter(5, group);
        end(&mut cluster);
        let steps = algorithm.steps(6).unwrap();
        let prompt = Instant::ZERO + us(300) + steps * us(25);
        let last = early.iter().map(|operation| done_at(&cluster, *operation)).max().unwrap();
        assert!(last <= prompt, "{algorithm}: {last:?} after {prompt:?}");
        for rank in 0..5 {
            assert_eq!(cluster.nic_counters(rank, group).unwrap().wakes, 1, "{algorithm} {rank}");
            assert_eq!(cluster.collective_counters(rank).wakes, 1, "{algorithm} {rank}");
        }
    }
}

#[test]
fn barrier_groups_can_be_opened_late() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let config = group(nodes(&[&[0], &[1, 2], &[3], &[4]]), algorithm, runner);
            let mut cluster = cluster(5).build();
            for rank in [3, 0, 2, 4, 1] {
                cluster.open_barriers_at(rank, &config);
                cluster.enter(rank, GROUP);
                cluster.run_for(ms(3));
            }
            end(&mut cluster);
        }
    }
}

// ---- losses -----------------------------------------------------------------------------------

/// [CB-R6]: one question and one retransmission, for any message.
#[test]
fn each_lost_step_is_requested_and_retransmitted_once() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let messages = algorithm.messages(7).unwrap();
            for index in 0..messages {
                let mut cluster = cluster(7).build();
                let group = cluster.open_barriers_of_all(algorithm, runner);
                let loss = cluster.rule(drop().kind(Kind::Step).nth(index));
                cluster.enter_all(group);
                end(&mut cluster);
                assert_eq!(loss.hits(), 1);
                let name = format!("{algorithm} {runner:?}, message {index}");
                let packets = cluster.step_packets(group);
                assert_eq!(packets, messages + 1, "{name}");
                let repeated = sum(&cluster, |it| it.repeated) + repeated_by_nics(&cluster, group);
                assert_eq!(repeated, 1, "{name}");
                assert!(sum(&cluster, |it| it.nacks_sent) >= 1, "{name}");
            }
        }
    }
}

#[test]
fn lost_nack_is_repeated_until_the_step_arrives() {
    for runner in RUNNERS {
        let mut cluster = cluster(3).build();
        let group = cluster.open_barriers_of_all(BarrierAlgorithm::GatherBroadcast, runner);
        let step = cluster.rule(drop().kind(Kind::Step).from(1).to(0).times(1));
        let questions = cluster.rule(drop().kind(Kind::StepNack).from(0).to(1).times(3));
        let answer = cluster.rule(drop().kind(Kind::Step).from(1).to(0).times(1));
        cluster.enter_all(group);
        end(&mut cluster);
        assert_eq!((step.hits(), questions.hits(), answer.hits()), (1, 3, 1));
    }
}

#[test]
fn steps_of_a_finished_barrier_are_retransmitted() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let mut cluster = cluster(5).build();
            let group = cluster.open_barriers_of_all(algorithm, runner);
            let last_step = algorithm.steps(5).unwrap() - 1;
            let loss = cluster.rule(drop().kind(Kind::Step).seq(1).step(last_step).times(2));
            // The sender of the message is in the second barrier by then.
            for rank in 0..5 {
                cluster.enter(rank, group);
                cluster.enter(rank, group);
            }
            end(&mut cluster);
            assert_eq!(loss.hits(), 2, "{algorithm}");
            assert!((0..5).all(|rank| cluster.progress(rank, group) == (2, 2)));
        }
    }
}

#[test]
fn lost_join_and_release_inside_a_node_are_retransmitted() {
    for runner in RUNNERS {
        for step in [STEP_JOIN, STEP_RELEASE] {
            let config = group(nodes(&[&[2, 0, 1], &[3]]), BarrierAlgorithm::Dissemination, runner);
            let mut cluster = cluster(4).build();
            cluster.open_barriers(&config);
            let loss = cluster.rule(drop().kind(Kind::Step).step(step).times(2));
            cluster.enter_all(GROUP);
            end(&mut cluster);
            assert_eq!(loss.hits(), 2);
            assert_eq!(cluster.step_packets_inside(GROUP), 4 + 2);
        }
    }
}

#[test]
fn release_multicast_lost_for_all_is_retransmitted_by_unicast() {
    for runner in RUNNERS {
        let nodes = (0..6).map(|rank| vec![Rank(rank)]).collect();
        let config = BarrierGroupConfig {
            is_multicast: true,
            ..group(nodes, BarrierAlgorithm::Counter, runner)
        };
        let mut cluster = cluster(7).build();
        cluster.open_barriers(&config);
        let loss = cluster.rule(drop().kind(Kind::Step).at_uplink().multicast().times(1));
        cluster.enter_all(GROUP);
        end(&mut cluster);
        assert_eq!(loss.hits(), 1);
        assert_eq!(cluster.step_packets(GROUP), 6 + 5);
    }
}

#[test]
fn counter_requests_only_the_missing_reports() {
    for runner in RUNNERS {
        let mut cluster = cluster(6).build();
        let group = cluster.open_barriers_of_all(BarrierAlgorithm::Counter, runner);
        let _loss = cluster.rule(drop().kind(Kind::Step).from(4).to(0).times(1));
        cluster.enter(0, group);
        cluster.run_for(us(30));
        (1..6).for_each(|rank| {
            cluster.enter(rank, group);
        });
        end(&mut cluster);
        assert_eq!(cluster.collective_counters(0).nacks_sent, 1, "{runner:?}");
    }
}

#[test]
fn doorbell_lost_on_the_way_to_the_nic_is_repeated() {
    let mut cluster = cluster(4).build();
    let group = cluster.open_barriers_of_all(BarrierAlgorithm::PairwiseExchange, Runner::Nic);
    let lost = cluster.rule(drop().at_doorstep().from(2).times(3));
    let late = cluster.rule(delay(ms(2)).at_doorstep().from(1).times(1));
    cluster.enter_all(group);
    end(&mut cluster);
    assert_eq!((lost.hits(), late.hits()), (3, 1));
    assert_eq!(cluster.collective_counters(2).doorbells_again, 3);
    // The late doorbell changes nothing, as another one has entered the barrier by then.
    assert_eq!(cluster.step_packets(group), 8 + repeated_by_nics(&cluster, group));
}

#[test]
fn closed_group_still_answers_members_that_miss_its_last_step() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let mut cluster = cluster(4).build();
            let group = cluster.open_barriers_of_all(algorithm, runner);
            let cut = cluster.rule(drop().kind(Kind::Step).to(1).seq(2));
            let operations: Vec<Operation> =
                (0..2).flat_map(|_| cluster.enter_all(group)).collect();
            cluster.run_for(ms(5));
            let is_open = |cluster: &Cluster, rank: u32| cluster.progress(rank, group).1 < 2;
            assert!(is_open(&cluster, 1), "{algorithm} {runner:?}");
            let closed: Vec<u32> = (0..4).filter(|rank| !is_open(&cluster, *rank)).collect();
            closed.iter().for_each(|rank| cluster.close_barriers(*rank, group));
            cluster.run_for(ms(5));
            cut.heal();
            end(&mut cluster);
            let all = operations.iter().map(|operation| cluster.state(*operation));
            assert!(all.into_iter().all(|state| matches!(state, State::Done(_))));
        }
    }
}

// ---- late ranks -------------------------------------------------------------------------------

#[test]
fn late_member_is_reported_missing_after_a_query() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let division: [&[u32]; 5] = [&[0], &[1, 2], &[3], &[4, 5, 6], &[7]];
            let config = group(nodes(&division), algorithm, runner);
            for late in 0..8 {
                let mut cluster = cluster(8).build();
                cluster.open_barriers(&config);
                for rank in (0..8).filter(|rank| *rank != late) {
                    cluster.enter(rank, GROUP);
                }
                cluster.run_for(ms(1));
                cluster.check(missing_ranks_are_reported);
                for rank in (0..8).filter(|rank| *rank != late) {
                    cluster.ask(rank, GROUP);
                }
                cluster.run_for(ms(1));
                cluster.check(missing_ranks_are_reported);
                for rank in (0..8).filter(|rank| *rank != late) {
                    let machine = cluster.endpoint(rank).collective();
                    assert!(machine.has_asked_all(GROUP), "{config:?}: {late} is late at {rank}");
                    assert_eq!(machine.missing(GROUP), [Rank(late)], "{config:?}: at {rank}");
                }
                cluster.enter(late, GROUP);
                end(&mut cluster);
            }
        }
    }
}

#[test]
fn query_is_repeated_until_answered() {
    for runner in RUNNERS {
        let mut cluster = cluster(3).build();
        let group = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, runner);
        let lost = cluster.rule(drop().kind(Kind::StepAsk).to(2).times(2));
        let unheard = cluster.rule(drop().kind(Kind::StepTell).from(2).times(2));
        cluster.enter(0, group);
        cluster.ask(0, group);
        let is_asked = |cluster: &Cluster| cluster.endpoint(0).collective().has_asked_all(group);
        cluster.run_for(ms(35));
        assert!(!is_asked(&cluster), "{runner:?}");
        cluster.run_for(ms(10));
        assert!(is_asked(&cluster), "{runner:?}");
        assert_eq!((lost.hits(), unheard.hits()), (2, 2));
        assert_eq!(cluster.endpoint(0).collective().missing(group), [Rank(1), Rank(2)]);
        cluster.enter(1, group);
        cluster.run_for(ms(11));
        assert_eq!(cluster.endpoint(0).collective().missing(group), [Rank(2)]);
        cluster.enter(2, group);
        end(&mut cluster);
    }
}

// ---- departures -------------------------------------------------------------------------------

/// Time within which a death must be known to all.
fn naming_time() -> Duration {
    let LivenessConfig { interval, timeout, .. } = LivenessConfig::default();
    timeout + 2 * interval
}

#[test]
fn barrier_fails_in_time_everywhere_if_a_rank_dies_before_entering() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            for victim in [0, 1, 4] {
                let config = group(nodes(&[&[0, 1], &[2], &[4, 3]]), algorithm, runner);
                let mut cluster = cluster(6).build();
                cluster.open_barriers(&config);
                let others = (0..5).filter(|rank| *rank != victim);
                let operations: Vec<Operation> =
                    others.clone().map(|rank| cluster.enter(rank, GROUP)).collect();
                cluster.crash_at(victim, Instant::ZERO + ms(100));
                cluster.run_for(ms(100) + naming_time());
                for operation in operations {
                    assert!(matches!(cluster.state(operation), State::Failed(_)));
                }
                cluster.check(broken_groups_are_at_rest);
                let refused = cluster.enter(2, GROUP);
                assert!(matches!(cluster.state(refused), State::Failed(_)));
                end(&mut cluster);
            }
        }
    }
}

#[test]
fn barriers_of_other_groups_survive_a_dead_rank() {
    for runner in RUNNERS {
        let mut cluster = cluster(5).build();
        let config = group(nodes(&[&[0], &[1], &[3]]), BarrierAlgorithm::Dissemination, runner);
        cluster.open_barriers(&config);
        let all = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, runner);
        cluster.crash(4);
        for _ in 0..20 {
            cluster.enter_all(GROUP);
            cluster.run_for(ms(300));
        }
        let doomed = cluster.enter_all(all);
        end(&mut cluster);
        assert!([0, 1, 3].iter().all(|rank| cluster.progress(*rank, GROUP) == (20, 20)));
        assert!(doomed.iter().all(|it| matches!(cluster.state(*it), State::Failed(_))));
    }
}

/// D-09.
#[test]
fn barrier_ends_by_hearsay_if_the_sender_of_a_lost_step_has_left() {
    for runner in RUNNERS {
        let mut cluster = cluster(4).build();
        let group = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, runner);
        // Of the three other ranks, one is done with the barrier and one has never received the
        // last message.
        let _loss = cluster.rule(drop().kind(Kind::Step).from(0).to(2).step(1));
        cluster.enter_all(group);
        cluster.run_for(us(100));
        let done =
            |cluster: &Cluster| [0, 1, 2, 3].map(|rank| cluster.progress(rank, group).1).to_vec();
        assert_eq!(done(&cluster), [1, 1, 0, 1]);
        cluster.leave(0);
        end(&mut cluster);
        assert_eq!(done(&cluster), [1, 1, 1, 1]);
        assert_eq!(cluster.collective_counters(2).ended_by_hearsay, 1, "{runner:?}");
    }
}

#[test]
fn no_rank_leaves_a_barrier_that_a_departed_rank_never_entered() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            for leaver in 0..5 {
                let config = group(nodes(&[&[0, 1], &[2], &[4, 3]]), algorithm, runner);
                let mut cluster = cluster(5).build();
                cluster.open_barriers(&config);
                let others: Vec<u32> = (0..5).filter(|rank| *rank != leaver).collect();
                others.iter().for_each(|rank| {
                    cluster.enter(*rank, GROUP);
                });
                cluster.run_for(ms(1));
                cluster.leave(leaver);
                cluster.run_for(ms(300));
                let is_held = |rank: &u32| cluster.progress(*rank, GROUP) == (1, 0);
                assert!(others.iter().all(is_held), "{algorithm} {runner:?} without {leaver}");
            }
        }
    }
}

#[test]
fn barrier_stays_pending_if_its_missing_step_left_with_the_last_peer() {
    for runner in RUNNERS {
        let mut cluster = cluster(2).build();
        let group = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, runner);
        let _loss = cluster.rule(drop().kind(Kind::Step).to(1));
        let operations = cluster.enter_all(group);
        cluster.run_for(us(100));
        cluster.leave(0);
        cluster.run_for(ms(500));
        // The barrier cannot end; the caller must decide.
        assert!(matches!(cluster.state(operations[0]), State::Done(_)));
        assert_eq!(cluster.state(operations[1]), State::Pending);
        cluster.close_barriers(1, group);
        cluster.run_until_quiescent();
        assert_eq!(cluster.state(operations[1]), State::Cancelled);
    }
}

// ---- strangers --------------------------------------------------------------------------------

#[test]
fn forged_steps_do_not_advance_barriers() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let mut cluster = cluster(4).build();
            let group = cluster.open_barriers_of_all(algorithm, runner);
            cluster.enter(0, group);
            for index in 0..400 {
                let forgery = Forgery::ALL[index % Forgery::ALL.len()];
                cluster.forge_step(forgery, index as u32 % 4, group);
                cluster.run_for(us(50));
            }
            assert_eq!(cluster.progress(0, group), (1, 0));
            (1..4).for_each(|rank| {
                cluster.enter(rank, group);
            });
            end(&mut cluster);
            let strangers: u64 = (0..4)
                .filter_map(|rank| cluster.nic_counters(rank, group))
                .map(|counters| counters.bad_tags)
                .sum();
            assert_eq!(strangers > 0, runner == Runner::Nic);
        }
    }
}

#[test]
fn barrier_survives_a_partition_shorter_than_the_failure_timeout() {
    for runner in RUNNERS {
        for algorithm in BarrierAlgorithm::ALL {
            let mut cluster = cluster(9).build();
            let group = cluster.open_barriers_of_all(algorithm, runner);
            cluster.enter_all(group);
            cluster.run_until_quiescent();
            let sides: (&[u32], &[u32]) = (&[0, 3, 4, 8], &[1, 2, 5, 6, 7]);
            let cut = cluster.rule(partition(sides.0, sides.1, omnes_sim::Ways::Both));
            cluster.enter_all(group);
            cluster.run_for(ms(3000));
            assert!((0..9).all(|rank| cluster.progress(rank, group) == (2, 1)));
            // No rank asks more often than every 10 ms.
            let asked = cluster.packets_about(Kind::StepNack, group);
            assert!(asked < 8 * 9 * 310, "{algorithm}: {asked} questions");
            cut.heal();
            // Nor less often, so that progress resumes soon: each step may be requested once more.
            cluster.run_for(algorithm.steps(9).unwrap() * ms(11));
            assert!((0..9).all(|rank| cluster.progress(rank, group) == (2, 2)));
            end(&mut cluster);
        }
    }
}
