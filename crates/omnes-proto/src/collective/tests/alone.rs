//! One machine: its exact output, and what it rejects.

use super::super::*;
use super::net::{GROUP, group, message, step};
use crate::limits::DOORBELLS_MAX;
use crate::packet::Destination;
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{Flags, Header, Words};
use std::time::Duration;

const NOW: Instant = Instant::ZERO;

fn machine(rank: u32, config: &BarrierGroupConfig) -> Collective {
    let mut machine = Collective::new(Rank(rank), 8, CollectiveConfig::default());
    machine.open(config.clone());
    machine
}

fn next(machine: &mut Collective) -> Option<(Destination, Header)> {
    machine.poll_transmit(NOW).map(|outbound| (outbound.to, outbound.header))
}

fn to(rank: u32) -> Destination {
    Destination::Rank(Rank(rank))
}

fn to_nic(rank: u32) -> Destination {
    Destination::Nic { to: Rank(rank), communicator: GROUP }
}

fn to_own_nic(rank: u32) -> Destination {
    Destination::Doorbell { to: Rank(rank), communicator: GROUP }
}

#[test]
fn non_leader_rank_joins_and_is_released() {
    let mut machine = machine(1, &group(&[2, 1], BarrierAlgorithm::Counter, Runner::Host));
    assert_eq!(machine.enter(NOW, GROUP), Ok(1));
    assert_eq!(next(&mut machine), Some((to(0), message(Kind::Step, 1, 1, STEP_JOIN))));
    assert_eq!((next(&mut machine), machine.poll_event()), (None, None));
    machine.handle_packet(NOW, &message(Kind::Step, 0, 1, STEP_RELEASE), &[]);
    let done = Event::Done { communicator: GROUP, epoch: 1, words: Words::NONE };
    assert_eq!((machine.poll_event(), machine.poll_event()), (Some(done), None));
    assert!(machine.is_idle() && machine.poll_timeout().is_none());
}

#[test]
fn leader_sends_its_step_only_after_its_node_has_joined() {
    let mut machine = machine(0, &group(&[2, 1], BarrierAlgorithm::Counter, Runner::Host));
    machine.handle_packet(NOW, &step(2, 1, 0), &[]);
    assert_eq!(machine.enter(NOW, GROUP), Ok(1));
    assert_eq!((next(&mut machine), machine.poll_event()), (None, None));
    machine.handle_packet(NOW, &message(Kind::Step, 1, 1, STEP_JOIN), &[]);
    assert_eq!(next(&mut machine), Some((to(2), step(0, 1, 1))));
    assert_eq!(next(&mut machine), Some((to(1), message(Kind::Step, 0, 1, STEP_RELEASE))));
    assert_eq!(next(&mut machine), None);
    assert_eq!(
        machine.poll_event(),
        Some(Event::Done { communicator: GROUP, epoch: 1, words: Words::NONE })
    );
    let counters = machine.counters();
    assert_eq!((counters.steps_sent, counters.steps_received, counters.barriers), (2, 2, 1));
}

#[test]
fn release_to_all_is_one_packet_with_multicast() {
    let config = group(&[1; 4], BarrierAlgorithm::Counter, Runner::Host);
    let config = BarrierGroupConfig { is_multicast: true, ..config };
    let mut machine = machine(0, &config);
    machine.enter(NOW, GROUP).unwrap();
    (1..4).for_each(|from| machine.handle_packet(NOW, &step(from, 1, 0), &[]));
    let header = Header { flags: Flags::GROUP, ..step(0, 1, 1) };
    assert_eq!(next(&mut machine), Some((Destination::Group, header)));
    assert_eq!(next(&mut machine), None);
    // Only the rank that lacks the step gets it.
    machine.handle_packet(NOW, &message(Kind::StepNack, 2, 1, 1), &[]);
    assert_eq!(next(&mut machine), Some((to(2), step(0, 1, 1))));
}

#[test]
fn doorbell_contains_the_first_step_to_send() {
    let first = |rank: u32, algorithm| {
        let mut machine = machine(rank, &group(&[1, 2, 1], algorithm, Runner::Nic));
        machine.enter(NOW, GROUP).unwrap();
        machine.handle_packet(NOW, &message(Kind::Step, 2, 1, STEP_JOIN), &[]);
        assert!(machine.nic_waits().eq([GROUP]));
        let doorbell = next(&mut machine).unwrap();
        assert_eq!(next(&mut machine), None);
        assert_eq!(machine.counters().doorbells, 1);
        doorbell
    };
    assert_eq!(first(0, BarrierAlgorithm::Dissemination), (to_own_nic(1), step(0, 1, 0)));
    assert_eq!(first(3, BarrierAlgorithm::Dissemination), (to_own_nic(0), step(3, 1, 0)));
    assert_eq!(first(1, BarrierAlgorithm::Counter), (to_own_nic(0), step(1, 1, 0)));
    // The root of gather-broadcast has two steps that only wait before it sends.
    assert_eq!(first(0, BarrierAlgorithm::GatherBroadcast), (to_own_nic(3), step(0, 1, 2)));
    let to_all = Header { flags: Flags::GROUP, ..step(0, 1, 1) };
    assert_eq!(first(0, BarrierAlgorithm::Counter), (to_own_nic(1), to_all));
}

/// What the page shows of barrier 1 in a group of 2.
fn view(entered: u32, done: u32, at: u32) -> NicView {
    NicView { entered, done, at, results: [0; 4], arrived: [0; 16] }
}

#[test]
fn doorbell_not_seen_by_the_nic_is_repeated() {
    let mut machine = machine(0, &group(&[1, 1], BarrierAlgorithm::Dissemination, Runner::Nic));
    machine.enter(NOW, GROUP).unwrap();
    let doorbell = next(&mut machine).unwrap();
    let run_out = |machine: &mut Collective| {
        let at = machine.poll_timeout().unwrap();
        machine.handle_timeout(at);
        next(machine)
    };
    assert_eq!(run_out(&mut machine), Some(doorbell));
    machine.handle_nic(NOW, GROUP, &view(0, 0, 0));
    assert_eq!(run_out(&mut machine), Some(doorbell));
    // Then the NIC has entered, and lacks the other node's step.
    machine.handle_nic(NOW, GROUP, &view(1, 0, 0));
    assert_eq!(run_out(&mut machine), Some((to_nic(1), message(Kind::StepNack, 0, 1, 0))));
    machine.handle_nic(NOW, GROUP, &view(1, 1, 1));
    assert_eq!(
        machine.poll_event(),
        Some(Event::Done { communicator: GROUP, epoch: 1, words: Words::NONE })
    );
    assert_eq!(next(&mut machine), None);
    assert_eq!((machine.nic_waits().count(), machine.poll_timeout()), (0, None));
    let counters = machine.counters();
    assert_eq!((counters.doorbells, counters.doorbells_again, counters.nacks_sent), (3, 2, 1));
    // What the page shows of this barrier later has no effect.
    machine.handle_nic(NOW, GROUP, &view(1, 1, 1));
    assert_eq!(machine.poll_event(), None);
    // Nor has it for the next barrier.
    machine.enter(NOW, GROUP).unwrap();
    machine.handle_nic(NOW, GROUP, &view(1, 1, 1));
    assert_eq!(machine.poll_event(), None);
    assert_eq!(next(&mut machine), Some((to_own_nic(1), step(0, 2, 0))));
}

#[test]
fn only_a_nic_that_misses_many_doorbells_in_a_row_is_given_up() {
    let mut machine = machine(0, &group(&[1, 1], BarrierAlgorithm::Dissemination, Runner::Nic));
    let ring = |machine: &mut Collective, times: u32| {
        for _ in 0..times {
            assert!(!machine.has_lost_doorbells(GROUP));
            let at = machine.poll_timeout().unwrap();
            machine.handle_timeout(at);
            next(machine).unwrap();
        }
    };
    machine.enter(NOW, GROUP).unwrap();
    ring(&mut machine, DOORBELLS_MAX - 1);
    machine.handle_nic(NOW, GROUP, &view(1, 1, 1));
    machine.enter(NOW, GROUP).unwrap();
    ring(&mut machine, DOORBELLS_MAX - 1);
    machine.reset_doorbell_count(GROUP);
    ring(&mut machine, DOORBELLS_MAX);
    assert!(machine.has_lost_doorbells(GROUP));
    // It takes a second, no less, because many ranks may wait for one core.
    assert!(machine.poll_timeout().unwrap() > NOW + Duration::from_millis(500));
}

#[test]
fn queued_packets_of_a_completed_barrier_are_withdrawn() {
    let mut machine = machine(0, &group(&[1, 1], BarrierAlgorithm::Dissemination, Runner::Nic));
    for (epoch, is_seen) in [(1, false), (2, true)] {
        machine.enter(NOW, GROUP).unwrap();
        next(&mut machine).unwrap();
        if is_seen {
            machine.handle_nic(NOW, GROUP, &view(epoch, epoch - 1, 0));
        }
        // The repeated doorbell, or a NACK.
        let at = machine.poll_timeout().unwrap();
        machine.handle_timeout(at);
        assert!(!machine.is_idle());
        machine.handle_nic(at, GROUP, &view(epoch, epoch, 1));
        assert_eq!(next(&mut machine), None);
        assert!(machine.is_idle());
    }
}

#[test]
fn steps_that_reach_a_nic_host_only_cause_a_wakeup() {
    let mut machine = machine(0, &group(&[1, 1], BarrierAlgorithm::Dissemination, Runner::Nic));
    machine.enter(NOW, GROUP).unwrap();
    next(&mut machine).unwrap();
    machine.handle_packet(NOW, &step(1, 1, 0), &[]);
    assert_eq!((machine.poll_event(), next(&mut machine)), (None, None));
    assert_eq!((machine.counters().wakes, machine.counters().steps_received), (1, 0));
    // The kernel NIC answers NACKs; one that gets here arrived while it had no program.
    machine.handle_packet(NOW, &message(Kind::StepNack, 1, 1, 0), &[]);
    assert_eq!(next(&mut machine), None);
}

#[test]
fn multicast_release_is_ignored_by_followers_and_non_members() {
    let config = BarrierGroupConfig {
        is_multicast: true,
        ..group(&[1, 2], BarrierAlgorithm::Counter, Runner::Host)
    };
    let release = Header { flags: Flags::GROUP, ..step(0, 1, 1) };
    let mut follower = machine(2, &config);
    follower.enter(NOW, GROUP).unwrap();
    next(&mut follower).unwrap();
    follower.handle_packet(NOW, &release, &[]);
    assert_eq!((follower.poll_event(), follower.counters().ignored), (None, 1));
    let mut stranger = Collective::new(Rank(5), 8, CollectiveConfig::default());
    stranger.handle_packet(NOW, &release, &[]);
    assert_eq!(stranger.counters().unknown_group, 1);
}

#[test]
fn entering_an_unservable_group_returns_the_reason() {
    let mut machine = Collective::new(Rank(0), 2000, CollectiveConfig::default());
    let mut refused = |ranks: &[u32]| {
        machine.open(group(ranks, BarrierAlgorithm::Counter, Runner::Nic));
        assert!(!machine.is_open(GROUP));
        machine.enter(NOW, GROUP)
    };
    let (nodes, nodes_max) = (1025, 1024);
    let too_large = Err(CollectiveError::GroupTooLarge { nodes, nodes_max });
    assert_eq!(refused(&[1; 1025]), too_large);
    assert_eq!(refused(&[1, 2000]), Err(CollectiveError::Misplaced { rank: Rank(2000) }));
    assert_eq!(refused(&[1, 0]), Err(CollectiveError::Misplaced { rank: Rank(0) }));
    let unknown = Err(CollectiveError::UnknownGroup { communicator: GROUP });
    machine.close(GROUP);
    assert_eq!(machine.enter(NOW, GROUP), unknown);
    machine.open(group(&[1; 1024], BarrierAlgorithm::Counter, Runner::Nic));
    assert_eq!(machine.enter(NOW, GROUP), Ok(1));
    // The native form serves larger groups.
    machine.open(group(&[1; 1025], BarrierAlgorithm::Counter, Runner::Host));
    assert_eq!(machine.enter(NOW, GROUP), Ok(1));
    // A group that cannot be served replaces one that can.
    machine.open(group(&[1; 1025], BarrierAlgorithm::Counter, Runner::Nic));
    assert_eq!(machine.enter(NOW, GROUP), too_large);
}

#[test]
fn closed_group_sends_few_nacks_for_steps_that_may_never_come() {
    let asks_within_a_minute = |rank: u32, runner, algorithm| {
        let mut machine = machine(rank, &group(&[2, 1], algorithm, runner));
        machine.enter(NOW, GROUP).unwrap();
        if rank == 0 {
            machine.handle_packet(NOW, &message(Kind::Step, 1, 1, STEP_JOIN), &[]);
        }
        machine.close(GROUP);
        let end = NOW + Duration::from_secs(60);
        while let Some(at) = machine.poll_timeout().filter(|at| *at < end) {
            machine.handle_timeout(at);
            while machine.poll_transmit(at).is_some() {}
        }
        machine.counters().nacks_sent
    };
    // A rank whose leader has left the kernel NIC's barrier and never releases it.
    let held = asks_within_a_minute(1, Runner::Nic, BarrierAlgorithm::Dissemination);
    // Leaders of nodes; the barrier has ended everywhere by a time limit.
    let leader = asks_within_a_minute(0, Runner::Host, BarrierAlgorithm::Dissemination);
    let alone = asks_within_a_minute(2, Runner::Host, BarrierAlgorithm::Counter);
    for nacks in [held, leader, alone] {
        assert!((5..25).contains(&nacks), "{nacks}");
    }
    // The kernel NIC's barrier itself is abandoned.
    assert_eq!(asks_within_a_minute(0, Runner::Nic, BarrierAlgorithm::Dissemination), 0);
}
