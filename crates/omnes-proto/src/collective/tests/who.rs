//! Questions for the members that have not entered a barrier.

use super::super::*;
use super::net::{GROUP, LATENCY, Net, group, message};
use crate::packet::Destination;
use omnes_topo::BarrierAlgorithm;
use omnes_wire::Header;
use std::time::Duration;

fn all_cases() -> impl Iterator<Item = (BarrierAlgorithm, Runner)> {
    BarrierAlgorithm::ALL.into_iter().flat_map(|it| [(it, Runner::Host), (it, Runner::Nic)])
}

/// A group in which all but the `absent` members have entered the second barrier.
fn without(absent: &[u32], algorithm: BarrierAlgorithm, runner: Runner) -> Net {
    let mut net = Net::new(group(&[3, 1, 2, 1], algorithm, runner));
    net.enter_all();
    assert!(net.run(Duration::from_secs(1)));
    for rank in net.ranks().filter(|rank| !absent.contains(rank)) {
        net.enter(rank);
    }
    assert!(!net.run(8 * LATENCY));
    net
}

#[test]
fn missing_ranks_are_known_after_one_round_trip() {
    let absent = [1, 4, 5];
    for (algorithm, runner) in all_cases() {
        for asker in [0, 2, 3, 6] {
            let mut net = without(&absent, algorithm, runner);
            assert!(!net.machines[asker].has_asked_all(GROUP));
            net.ask(asker as u32);
            assert!(!net.run(2 * LATENCY));
            assert!(net.machines[asker].has_asked_all(GROUP), "{algorithm} {runner:?}");
            assert_eq!(net.machines[asker].missing(GROUP), absent.map(Rank));
        }
    }
}

#[test]
fn unanswered_query_is_repeated_after_the_interval() {
    for (algorithm, runner) in all_cases() {
        let mut net = without(&[1, 4, 5], algorithm, runner);
        // The question to one member and the answer of another are lost.
        let mut lost = 0;
        net.lose = Box::new(move |packet| {
            let is_lost = packet.is(Kind::StepAsk, 2, 0, 6, 4) || packet.from() == 5;
            lost += u32::from(is_lost);
            is_lost && lost <= 2
        });
        net.ask(6);
        let interval = CollectiveConfig::default().ask_interval;
        assert!(!net.run(interval));
        assert!(!net.machines[6].has_asked_all(GROUP), "{algorithm} {runner:?}");
        assert!(!net.run(2 * LATENCY));
        assert!(net.machines[6].has_asked_all(GROUP), "{algorithm} {runner:?}");
        assert_eq!(net.machines[6].missing(GROUP), [1, 4, 5].map(Rank));
    }
}

#[test]
fn rank_that_enters_later_is_no_longer_missing() {
    for (algorithm, runner) in all_cases() {
        let mut net = without(&[1, 4, 5], algorithm, runner);
        net.ask(3);
        net.ask(3);
        let interval = CollectiveConfig::default().ask_interval;
        for (enters, left) in [(4, vec![Rank(1), Rank(5)]), (1, vec![Rank(5)]), (5, vec![])] {
            net.enter(enters);
            net.run(2 * interval);
            assert_eq!(net.machines[3].missing(GROUP), left, "{algorithm} {runner:?}");
            assert!(net.machines[3].has_asked_all(GROUP));
        }
        assert!(net.run(Duration::from_secs(1)));
        assert!(net.ranks().all(|rank| net.done[rank as usize] == 2));
        // No more questions are sent.
        let asked = net.count(Kind::StepAsk);
        net.enter(3);
        assert!(!net.run(10 * interval));
        assert_eq!(net.count(Kind::StepAsk), asked);
    }
}

#[test]
fn no_rank_is_missing_without_a_pending_barrier() {
    let mut net = Net::new(group(&[2, 1], BarrierAlgorithm::Dissemination, Runner::Host));
    net.enter_all();
    assert!(net.run(Duration::from_secs(1)));
    net.machines[0].ask(GROUP);
    assert_eq!(net.machines[0].poll_transmit(net.now), None);
    assert!(net.machines[0].has_asked_all(GROUP) && net.machines[0].missing(GROUP).is_empty());
    let unknown = CommunicatorId(99);
    net.machines[0].ask(unknown);
    assert!(net.machines[0].has_asked_all(unknown) && net.machines[0].missing(unknown).is_empty());
}

#[test]
fn received_messages_prove_which_ranks_have_entered() {
    for runner in [Runner::Host, Runner::Nic] {
        // The counter's root has messages of all complete nodes.
        let net = without(&[4, 6], BarrierAlgorithm::Counter, runner);
        assert_eq!(net.machines[0].missing(GROUP), [4, 5, 6].map(Rank), "{runner:?}");
        // A leader knows which ranks of its node have joined; the NIC shows nothing before it
        // begins.
        let net = without(&[1], BarrierAlgorithm::Counter, runner);
        let missing = net.machines[0].missing(GROUP);
        match runner {
            Runner::Host => assert_eq!(missing, [Rank(1)]),
            Runner::Nic => assert_eq!(missing, [1, 3, 4, 5, 6].map(Rank)),
        }
    }
}

#[test]
fn only_ranks_not_known_to_have_entered_are_queried() {
    for runner in [Runner::Host, Runner::Nic] {
        let mut net = without(&[4, 6], BarrierAlgorithm::Counter, runner);
        net.machines[0].ask(GROUP);
        let now = net.now;
        let asks = std::iter::from_fn(|| net.machines[0].poll_transmit(now));
        let asked: Vec<Destination> = asks.map(|ask| ask.to).collect();
        assert_eq!(asked, [4, 5, 6].map(|rank| Destination::Rank(Rank(rank))));
        assert_eq!(net.machines[0].counters().asks_sent, 3);
    }
}

#[test]
fn answer_contains_the_newest_entered_and_the_last_done_barrier() {
    let mut machine = Collective::new(Rank(0), 3, CollectiveConfig::default());
    machine.open_after(&group(&[2, 1], BarrierAlgorithm::Counter, Runner::Host), 40);
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.enter(Instant::ZERO, GROUP).unwrap();
    let mut answer = |communicator| {
        let ask = Header { communicator, ..message(Kind::StepAsk, 2, 41, 0) };
        machine.handle_packet(Instant::ZERO, &ask, &[]);
        let answer = machine.poll_transmit(Instant::ZERO).unwrap();
        assert_eq!(answer.to, Destination::Rank(Rank(2)));
        assert_eq!(
            (answer.header.kind, answer.header.communicator),
            (Kind::StepTell, communicator)
        );
        (answer.header.seq.0, answer.header.argument)
    };
    assert_eq!(answer(GROUP), (42, 40));
    // A rank that has not opened the group has not entered the barrier in question.
    assert_eq!(answer(CommunicatorId(1)), (40, 40));
}

#[test]
fn all_members_of_a_large_group_are_queried() {
    let ones = vec![1; 1024];
    let mut machine = Collective::new(Rank(5), 1024, CollectiveConfig::default());
    machine.open(group(&ones, BarrierAlgorithm::Dissemination, Runner::Nic));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.ask(GROUP);
    let packets = std::iter::from_fn(|| machine.poll_transmit(Instant::ZERO));
    assert_eq!(packets.filter(|it| it.header.kind == Kind::StepAsk).count(), 1023);
    for from in (0..1024).filter(|from| *from != 5) {
        assert!(!machine.has_asked_all(GROUP));
        let entered = u32::from(from != 1000);
        let tell = message(Kind::StepTell, from, entered, 0);
        machine.handle_packet(Instant::ZERO, &tell, &[]);
    }
    assert!(machine.has_asked_all(GROUP));
    assert_eq!(machine.missing(GROUP), [Rank(1000)]);
}

/// Knowledge from half the number space ago proves nothing.
#[test]
fn knowledge_from_half_the_number_space_ago_is_discarded() {
    for runner in [Runner::Host, Runner::Nic] {
        let mut machine = Collective::new(Rank(0), 3, CollectiveConfig::default());
        machine.open_after(&group(&[1; 3], BarrierAlgorithm::GatherBroadcast, runner), 5);
        let at = &mut machine.groups[0];
        (at.entered, at.done) = (5 + (1 << 31) + 7, 5 + (1 << 31) + 7);
        at.phase = Phase::Held;
        assert_eq!(machine.missing(GROUP), [Rank(1), Rank(2)], "{runner:?}");
        let epoch = 5 + (1 << 31) + 8;
        machine.handle_packet(Instant::ZERO, &message(Kind::StepTell, 2, epoch, 0), &[]);
        assert_eq!(machine.missing(GROUP), [Rank(1)], "{runner:?}");
        machine.handle_packet(Instant::ZERO, &message(Kind::StepTell, 2, epoch - 1, 0), &[]);
        assert_eq!(machine.missing(GROUP), [Rank(1)], "an older answer overtaken by a newer one");
    }
}

#[test]
fn query_moves_to_the_next_barrier_when_the_first_is_done() {
    for (algorithm, runner) in all_cases() {
        let mut net = Net::new(group(&[2, 1, 1], algorithm, runner));
        for rank in [0, 0, 1, 2, 2, 3] {
            net.enter(rank);
        }
        net.machines[2].ask(GROUP);
        // The first barrier completes; then ranks 1 and 3 are missing.
        assert!(!net.run(CollectiveConfig::default().ask_interval));
        assert_eq!(net.done[..4], [1; 4]);
        assert!(net.machines[2].has_asked_all(GROUP), "{algorithm} {runner:?}");
        assert_eq!(net.machines[2].missing(GROUP), [1, 3].map(Rank));
        // The next one is asked about if it was entered before the question was repeated.
        net.enter(2);
        net.ask(2);
        net.enter(1);
        net.enter(3);
        assert!(!net.run(CollectiveConfig::default().ask_interval));
        assert!(net.machines[2].has_asked_all(GROUP), "{algorithm} {runner:?}");
        assert_eq!(net.machines[2].missing(GROUP), [0, 1, 3].map(Rank));
        // It is not if it was entered later.
        net.enter(2);
        net.enter(0);
        net.enter(1);
        net.enter(3);
        assert!(!net.run(Duration::from_millis(1)));
        let asked = net.count(Kind::StepAsk);
        assert!(!net.run(Duration::from_millis(50)));
        assert_eq!((net.done[2], net.count(Kind::StepAsk)), (3, asked));
        assert!(!net.machines[2].has_asked_all(GROUP));
    }
}

#[test]
fn query_is_complete_if_all_ranks_are_known_to_have_entered() {
    let mut machine = Collective::new(Rank(0), 2, CollectiveConfig::default());
    machine.open(group(&[1, 1], BarrierAlgorithm::Counter, Runner::Nic));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    assert!(!machine.has_asked_all(GROUP));
    machine.handle_packet(Instant::ZERO, &message(Kind::StepTell, 1, 1, 0), &[]);
    assert!(machine.has_asked_all(GROUP));
}

#[test]
fn answers_about_one_barrier_do_not_count_for_the_next() {
    let mut machine = Collective::new(Rank(1), 3, CollectiveConfig::default());
    machine.open(group(&[1; 3], BarrierAlgorithm::Counter, Runner::Host));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.ask(GROUP);
    machine.handle_packet(Instant::ZERO, &message(Kind::StepTell, 0, 0, 0), &[]);
    machine.handle_packet(Instant::ZERO, &message(Kind::StepTell, 2, 1, 0), &[]);
    assert!(machine.has_asked_all(GROUP));
    assert_eq!(machine.missing(GROUP), [Rank(0)]);
    machine.handle_packet(Instant::ZERO, &message(Kind::Step, 0, 1, 1), &[]);
    assert!(!machine.has_asked_all(GROUP));
    assert_eq!(machine.missing(GROUP), [Rank(0), Rank(2)]);
}
