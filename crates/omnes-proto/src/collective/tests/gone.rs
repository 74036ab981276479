//! Members that fail, leave, or close their group.

use super::super::*;
use super::net::{GROUP, LATENCY, Net, Packet, group, message, nodes};
use crate::limits::{BARRIERS_OUTSTANDING_MAX, HEARSAY_ASKS};
use crate::packet::Destination;
use omnes_topo::BarrierAlgorithm;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(1);

fn failed(epoch: u32, rank: u32) -> Event {
    Event::Failed { communicator: GROUP, epoch, rank: Rank(rank) }
}

fn all_cases() -> impl Iterator<Item = (BarrierAlgorithm, Runner)> {
    BarrierAlgorithm::ALL.into_iter().flat_map(|it| [(it, Runner::Host), (it, Runner::Nic)])
}

/// Ranks 0 to 2 on one node, 3 and 4 on others; rank 4 fails while ranks wait for different things.
#[test]
fn every_pending_barrier_names_the_failed_member() {
    for (algorithm, runner) in all_cases() {
        let mut net = Net::new(group(&[3, 1, 1], algorithm, runner));
        for rank in [0, 1, 3] {
            net.enter(rank);
            net.enter(rank);
        }
        assert!(!net.run(Duration::from_millis(30)));
        net.dead[4] = true;
        for rank in 0..4 {
            net.machines[rank].fail_peer(Rank(4));
        }
        // No rank waits for a timer now, so everything ends immediately.
        for rank in [0, 1, 3] {
            let events: Vec<Event> =
                std::iter::from_fn(|| net.machines[rank].poll_event()).collect();
            assert_eq!(events, [failed(1, 4), failed(2, 4)], "{algorithm} {runner:?}");
        }
        assert_eq!(net.machines[2].poll_event(), None, "it had entered none");
        for machine in &mut net.machines[..4] {
            let refused = machine.enter(net.now, GROUP);
            assert_eq!(refused, Err(CollectiveError::PeerFailed { rank: Rank(4) }));
            assert_eq!(machine.nic_waits().count(), 0);
            assert!(machine.missing(GROUP).is_empty() && machine.has_asked_all(GROUP));
        }
        assert!(net.run(LONG));
        assert!(net.machines[..4].iter().all(Collective::is_idle));
    }
}

#[test]
fn first_failure_is_named_and_other_groups_survive() {
    let mut machine = Collective::new(Rank(0), 4, CollectiveConfig::default());
    let config = group(&[1, 1, 1], BarrierAlgorithm::Counter, Runner::Host);
    let other = CommunicatorId(8);
    machine.open(config.clone());
    machine.open(BarrierGroupConfig {
        communicator: other,
        nodes: nodes(&[1, 1]),
        ..config.clone()
    });
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.fail_peer(Rank(2));
    machine.fail_peer(Rank(1));
    machine.fail_peer(Rank(2));
    assert_eq!((machine.poll_event(), machine.poll_event()), (Some(failed(1, 2)), None));
    let error = |rank| Err(CollectiveError::PeerFailed { rank: Rank(rank) });
    assert_eq!(machine.enter(Instant::ZERO, GROUP), error(2));
    assert_eq!(machine.enter(Instant::ZERO, other), error(1));
    // A new group with a failed member is broken from the start.
    machine.open(config.clone());
    assert_eq!(machine.enter(Instant::ZERO, GROUP), error(1));
    machine.open(BarrierGroupConfig { nodes: vec![vec![Rank(0)], vec![Rank(3)]].into(), ..config });
    assert_eq!(machine.enter(Instant::ZERO, GROUP), Ok(1));
}

#[test]
fn failed_barrier_does_not_complete_afterwards() {
    let mut machine = Collective::new(Rank(0), 4, CollectiveConfig::default());
    machine.open(group(&[2, 1, 1], BarrierAlgorithm::Counter, Runner::Host));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.handle_packet(Instant::ZERO, &message(Kind::Step, 1, 1, STEP_JOIN), &[]);
    machine.handle_packet(Instant::ZERO, &message(Kind::Step, 2, 1, 0), &[]);
    machine.fail_peer(Rank(1));
    assert_eq!(machine.poll_event(), Some(failed(1, 1)));
    machine.handle_packet(Instant::ZERO, &message(Kind::Step, 3, 1, 0), &[]);
    assert_eq!((machine.poll_event(), machine.poll_transmit(Instant::ZERO)), (None, None));
    assert_eq!(machine.counters().barriers, 0);
}

#[test]
fn every_pending_barrier_fails_exactly_once() {
    let mut machine = Collective::new(Rank(0), 2, CollectiveConfig::default());
    machine.open_after(&group(&[1, 1], BarrierAlgorithm::Counter, Runner::Host), u32::MAX - 9);
    for _ in 0..BARRIERS_OUTSTANDING_MAX {
        machine.enter(Instant::ZERO, GROUP).unwrap();
    }
    machine.fail_peer(Rank(1));
    let mut epoch = u32::MAX - 9;
    while let Some(event) = machine.poll_event() {
        epoch = epoch.wrapping_add(1);
        assert_eq!(event, failed(epoch, 1));
    }
    assert_eq!(epoch, BARRIERS_OUTSTANDING_MAX - 10);
}

/// True for a step of rank 0 to rank 3.
fn is_from_0_to_3(packet: &Packet) -> bool {
    packet.header.kind == Kind::Step && packet.from() == 0 && packet.to == 3
}

#[test]
fn hearsay_replaces_a_step_lost_with_a_departed_member() {
    let mut cases = 0;
    for (algorithm, runner) in all_cases() {
        let mut net = Net::new(group(&[1, 2, 2], algorithm, runner));
        net.lose = Box::new(is_from_0_to_3);
        net.enter_all();
        assert!(!net.run(Duration::from_millis(1)));
        if net.done[0] == 0 {
            continue; // It waits for rank 3 after the lost step.
        }
        cases += 1;
        assert_eq!((net.done[3], net.done[4]), (0, 0), "{algorithm}");
        net.dead[0] = true;
        for rank in 1..5 {
            net.machines[rank].depart_peer(Rank(0));
        }
        assert!(net.run(LONG), "{algorithm} {runner:?}");
        assert!(net.done[1..5].iter().all(|done| *done == 1), "{algorithm} {runner:?}");
        let hearsay = net.machines[3..5].iter().map(|it| it.counters().ended_by_hearsay);
        assert!(hearsay.sum::<u64>() > 0, "{algorithm} {runner:?}");
    }
    assert!(cases >= 6);
}

/// Rank 0 releases 1 and 2, 2 releases 3: a rank that ends by hearsay sends its pending steps.
#[test]
fn rank_that_ends_by_hearsay_sends_its_remaining_steps() {
    let mut net = Net::new(group(&[1; 4], BarrierAlgorithm::GatherBroadcast, Runner::Host));
    net.lose =
        Box::new(|packet| packet.header.kind == Kind::Step && (packet.from(), packet.to) == (0, 2));
    net.enter_all();
    assert!(!net.run(LATENCY * 6));
    assert_eq!(net.done[..4], [1, 1, 0, 0]);
    net.dead[0] = true;
    // Only rank 2 learns of it.
    net.machines[2].depart_peer(Rank(0));
    net.enter(1);
    let released = |net: &Net| net.sent.iter().any(|packet| packet.is(Kind::Step, 1, 3, 2, 3));
    for _ in 0..400 {
        if net.done[2] == 0 {
            assert!(!released(&net) && !net.run(LATENCY / 4));
        }
    }
    assert!(released(&net));
    assert!(!net.run(LATENCY));
    assert_eq!((net.done[3], net.machines[2].counters().repeated), (1, 0));
}

#[test]
fn hearsay_queries_go_to_a_few_members_at_a_time() {
    let ones = vec![1; 1024];
    let mut machine = Collective::new(Rank(1), 1024, CollectiveConfig::default());
    machine.open(group(&ones, BarrierAlgorithm::Counter, Runner::Host));
    machine.depart_peer(Rank(0));
    machine.depart_peer(Rank(4));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    assert_eq!(machine.poll_transmit(Instant::ZERO).unwrap().header.kind, Kind::Step);
    let mut asked = Vec::new();
    while asked.len() < 1500 {
        let now = machine.poll_timeout().unwrap();
        assert_eq!(machine.poll_transmit(now), None);
        machine.handle_timeout(now);
        let round: Vec<Outbound> = std::iter::from_fn(|| machine.poll_transmit(now)).collect();
        assert_eq!(round.len(), HEARSAY_ASKS);
        assert!(round.iter().all(|it| it.header == message(Kind::StepAsk, 1, 1, 0)));
        asked.extend(round.into_iter().map(|it| it.to));
    }
    // All present members, one after the other.
    let others = (2..1024).filter(|rank| *rank != 4).cycle().take(asked.len());
    assert!(asked.into_iter().eq(others.map(|rank| Destination::Rank(Rank(rank)))));
}

#[test]
fn barrier_can_be_entered_after_a_member_has_left() {
    let mut net = Net::new(group(&[1; 3], BarrierAlgorithm::Dissemination, Runner::Host));
    net.enter_all();
    assert!(net.run(LONG));
    net.dead[2] = true;
    for rank in 0..2 {
        net.machines[rank].depart_peer(Rank(2));
        net.enter(rank as u32);
    }
    assert!(!net.run(Duration::from_millis(50)));
    net.machines[0].ask(GROUP);
    assert!(!net.run(Duration::from_millis(50)));
    // Rank 2 is reported as missing; no rank waits for its answer, nor asks it for anything.
    assert!(net.machines[0].has_asked_all(GROUP));
    assert_eq!(net.machines[0].missing(GROUP), [Rank(2)]);
    let to_gone = net.sent.iter().filter(|packet| packet.to == 2);
    assert!(to_gone.map(|packet| packet.header.kind).all(|kind| kind == Kind::Step));
    assert!(net.failed.is_empty());
}

#[test]
fn closed_group_still_answers_nacks_for_its_steps() {
    for (algorithm, runner) in all_cases() {
        let mut net = Net::new(group(&[2, 1, 1], algorithm, runner));
        let mut lost = 0;
        let last = algorithm.steps(3).unwrap() - 1;
        net.lose = Box::new(move |packet| {
            let is_lost = packet.header.kind == Kind::Step
                && packet.from() == 0
                && (packet.header.argument >= last)
                && packet.to != 4;
            lost += u32::from(is_lost);
            is_lost && lost <= 2
        });
        net.enter_all();
        net.run(Duration::from_micros(500));
        assert_eq!(net.done[0], 1);
        net.machines[0].close(GROUP);
        net.nics[0] = None;
        assert!(!net.machines[0].is_open(GROUP) && net.machines[0].is_idle());
        assert!(net.run(LONG), "{algorithm} {runner:?}");
        assert_eq!(net.done[..4], [1; 4], "{algorithm} {runner:?}");
        assert!(net.machines[0].counters().repeated > 0);
    }
}

#[test]
fn host_barrier_continues_after_the_group_is_closed() {
    for algorithm in BarrierAlgorithm::ALL {
        let mut net = Net::new(group(&[2, 1, 2, 1], algorithm, Runner::Host));
        net.enter_all();
        net.machines[0].close(GROUP);
        net.machines[4].close(GROUP);
        assert!(net.run(LONG));
        assert_eq!(net.done[..6], [0, 1, 1, 1, 0, 1], "{algorithm}");
    }
}

#[test]
fn closed_group_is_unknown_to_the_caller() {
    let mut machine = Collective::new(Rank(0), 2, CollectiveConfig::default());
    let config = group(&[1, 1], BarrierAlgorithm::Counter, Runner::Nic);
    machine.close(GROUP);
    machine.open(config.clone());
    machine.enter(Instant::ZERO, GROUP).unwrap();
    assert!(machine.nic_waits().eq([GROUP]));
    machine.close(GROUP);
    machine.close(GROUP);
    assert_eq!(machine.nic_waits().count(), 0);
    machine.fail_peer(Rank(1));
    assert_eq!((machine.poll_event(), machine.poll_timeout()), (None, None));
    let unknown = Err(CollectiveError::UnknownGroup { communicator: GROUP });
    assert_eq!(machine.enter(Instant::ZERO, GROUP), unknown);
    // The next group of this communicator has none of its state.
    let mut machine = Collective::new(Rank(0), 2, CollectiveConfig::default());
    machine.open(config.clone());
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.open(BarrierGroupConfig { runner: Runner::Host, ..config });
    assert_eq!((machine.nic_waits().count(), machine.poll_timeout()), (0, None));
    assert_eq!(machine.poll_transmit(Instant::ZERO), None);
    assert_eq!(machine.enter(Instant::ZERO, GROUP), Ok(1));
}

#[test]
fn final_state_of_a_thousand_closed_groups_is_kept() {
    let mut machine = Collective::new(Rank(0), 2, CollectiveConfig::default());
    let about = |communicator, kind, (seq, argument)| omnes_wire::Header {
        communicator,
        ..message(kind, 1, seq, argument)
    };
    let end = |machine: &mut Collective, communicator| {
        let config = group(&[1, 1], BarrierAlgorithm::Dissemination, Runner::Host);
        machine.open(BarrierGroupConfig { communicator, ..config });
        machine.enter(Instant::ZERO, communicator).unwrap();
        machine.handle_packet(Instant::ZERO, &about(communicator, Kind::Step, (1, 0)), &[]);
    };
    for number in 0..1000 {
        let communicator = CommunicatorId(number);
        end(&mut machine, communicator);
        machine.close(communicator);
        while machine.poll_transmit(Instant::ZERO).is_some() {}
    }
    assert_eq!(machine.groups.len(), 0);
    let mut answer = |communicator, kind, what| {
        machine.handle_packet(Instant::ZERO, &about(CommunicatorId(communicator), kind, what), &[]);
        let header = machine.poll_transmit(Instant::ZERO)?.header;
        Some((header.communicator.0, header.kind, header.seq.0, header.argument))
    };
    assert_eq!(answer(0, Kind::StepNack, (1, 0)), Some((0, Kind::Step, 1, 0)));
    assert_eq!(answer(0, Kind::StepAsk, (1, 0)), Some((0, Kind::StepTell, 1, 1)));
    assert_eq!(answer(0, Kind::StepNack, (2, 0)), None);
    assert_eq!(answer(0, Kind::Step, (1, 0)), None);
    assert_eq!(answer(1000, Kind::StepAsk, (1, 0)), Some((1000, Kind::StepTell, 0, 0)));
    assert_eq!((machine.counters().ignored, machine.counters().unknown_group), (2, 1));
}

#[test]
fn contribution_is_resent_to_a_leader_that_is_a_barrier_behind() {
    let mut machine = Collective::new(Rank(1), 4, CollectiveConfig::default());
    machine.open(group(&[2, 1, 1], BarrierAlgorithm::GatherBroadcast, Runner::Host));
    for word in [5, 9] {
        let own = Contribution::new(Combine::ALL[0], &[word]);
        machine.enter_with(Instant::ZERO, GROUP, own).unwrap();
    }
    machine.depart_peer(Rank(3));
    // By hearsay this rank knows that the first barrier is complete, and joins the second.
    machine.handle_packet(Instant::ZERO, &message(Kind::StepTell, 2, 1, 1), &[]);
    let next = |machine: &mut Collective| {
        let outbound = machine.poll_transmit(Instant::ZERO).unwrap();
        (outbound.header.seq.0, outbound.words.as_slice().to_vec())
    };
    assert_eq!(next(&mut machine), (2, vec![9]));
    for (epoch, word) in [(1, 5), (2, 9)] {
        let nack = message(Kind::StepNack, 0, epoch, STEP_JOIN);
        machine.handle_packet(Instant::ZERO, &nack, &[]);
        assert_eq!(next(&mut machine), (epoch, vec![word]));
    }
}
