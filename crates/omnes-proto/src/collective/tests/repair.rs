//! Lost messages, one by one: which rank asks which, when, and with what result.

use super::super::*;
use super::net::{GROUP, LATENCY, Net, Packet, US, group, message, step};
use crate::limits::{ANSWERS_MAX, NACKS_PER_ROUND};
use crate::packet::Destination;
use omnes_topo::BarrierAlgorithm;
use std::time::Duration;

/// Wait before the first NACK of a group that has had no barrier.
const FIRST_WAIT: Duration = Duration::from_micros(1200);
const LONG: Duration = Duration::from_secs(1);

fn both_runners() -> [Runner; 2] {
    [Runner::Host, Runner::Nic]
}

/// Loses the first packet for which `is_meant` holds.
fn lose_once(net: &mut Net, is_meant: impl Fn(&Packet) -> bool + 'static) {
    let mut has_lost = false;
    net.lose = Box::new(move |packet| {
        let is_lost = !has_lost && is_meant(packet);
        has_lost |= is_lost;
        is_lost
    });
}

/// Sender, receiver and step of all NACKs.
fn nacks(net: &Net) -> Vec<(u32, u32, u32)> {
    let nacks = net.sent.iter().filter(|packet| packet.header.kind == Kind::StepNack);
    nacks.map(|packet| (packet.from(), packet.to, packet.header.argument)).collect()
}

/// [CB-R6]
#[test]
fn missing_step_is_requested_from_its_sender() {
    for runner in both_runners() {
        let mut net = Net::new(group(&[1; 4], BarrierAlgorithm::Dissemination, runner));
        lose_once(&mut net, |packet| packet.is(Kind::Step, 1, 0, 0, 1));
        net.enter_all();
        assert!(net.run(LONG));
        assert!(net.ranks().all(|rank| net.done[rank as usize] == 1));
        // Rank 3 waits for the next step of rank 1, which has not been made: the NACK is ignored.
        assert_eq!(nacks(&net), [(1, 0, 0), (3, 1, 1)]);
        assert_eq!(net.count(Kind::Step), 8 + 1);
        // The wait, a round trip, and the delayed step; rank 3 had begun to wait later.
        assert_eq!(net.now, Instant::ZERO + FIRST_WAIT + 3 * LATENCY, "{runner:?}");
    }
}

/// [CB-R8]
#[test]
fn step_of_the_previous_barrier_is_retransmitted_from_the_record() {
    for runner in both_runners() {
        let mut net = Net::new(group(&[1; 3], BarrierAlgorithm::Counter, runner));
        lose_once(&mut net, |packet| packet.is(Kind::Step, 1, 1, 0, 2));
        net.enter_all();
        assert!(!net.run(LATENCY * 4));
        assert_eq!(net.done[..3], [1, 1, 0]);
        // Two ranks are in the next barrier already.
        net.enter(0);
        net.enter(1);
        assert!(!net.run(LONG));
        assert_eq!(net.done[..3], [1, 1, 1]);
        assert!(nacks(&net).contains(&(2, 0, 1)));
        net.enter(2);
        assert!(net.run(LONG));
        assert_eq!(net.done[..3], [2, 2, 2]);
    }
}

/// [CB-R8]
#[test]
fn nack_for_a_step_not_yet_sent_is_ignored() {
    let mut machine = Collective::new(Rank(0), 3, CollectiveConfig::default());
    machine.open(group(&[1; 3], BarrierAlgorithm::GatherBroadcast, Runner::Host));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    for number in 0..4 {
        machine.handle_packet(Instant::ZERO, &message(Kind::StepNack, 1, 1, number), &[]);
        machine.handle_packet(Instant::ZERO, &message(Kind::StepNack, 1, 2, number), &[]);
    }
    assert_eq!(machine.poll_transmit(Instant::ZERO), None);
    let counters = machine.counters();
    assert_eq!((counters.nacks_received, counters.repeated), (8, 0));
}

#[test]
fn wait_between_nacks_doubles_up_to_its_bound() {
    for runner in both_runners() {
        let mut net = Net::new(group(&[1; 2], BarrierAlgorithm::PairwiseExchange, runner));
        net.enter(0);
        let mut at = Vec::new();
        for _ in 0..40_000 {
            let before = net.count(Kind::StepNack);
            assert!(!net.run(US));
            if net.count(Kind::StepNack) > before {
                at.push(net.now.as_ns() / 1000);
            }
        }
        assert_eq!(at, [1200, 2400, 4800, 9600, 19_200, 29_200, 39_200], "{runner:?}");
    }
}

#[test]
fn nack_wait_follows_the_measured_barrier_time() {
    for runner in both_runners() {
        let mut net = Net::new(group(&[1; 8], BarrierAlgorithm::GatherBroadcast, runner));
        net.enter_all();
        assert!(net.run(LONG));
        // The root completed after three latencies, the others wait longer.
        lose_once(&mut net, |packet| packet.is(Kind::Step, 2, 0, 1, 0));
        net.enter_all();
        let began = net.now;
        assert!(net.run(LONG));
        let took = net.now - began;
        // The root waits for 3 x 60 us, asks and gets an answer; the release passes three edges.
        assert_eq!(nacks(&net)[0], (0, 1, 0));
        assert_eq!(took, 180 * US + 5 * LATENCY, "{runner:?}");
    }
}

#[test]
fn lost_joins_and_releases_inside_a_node_are_requested() {
    let mut net = Net::new(group(&[3, 1], BarrierAlgorithm::Counter, Runner::Host));
    let (mut joins, mut releases) = (0, 0);
    net.lose = Box::new(move |packet| {
        joins += u32::from(packet.is(Kind::Step, 1, STEP_JOIN, 2, 0));
        releases += u32::from(packet.is(Kind::Step, 1, STEP_RELEASE, 0, 1));
        let is_join = packet.is(Kind::Step, 1, STEP_JOIN, 2, 0) && joins == 1;
        is_join || packet.is(Kind::Step, 1, STEP_RELEASE, 0, 1) && releases == 1
    });
    net.enter_all();
    assert!(net.run(LONG));
    assert!(net.ranks().all(|rank| net.done[rank as usize] == 1));
    assert!(nacks(&net).contains(&(0, 2, STEP_JOIN)));
    assert!(nacks(&net).contains(&(1, 0, STEP_RELEASE)));
    assert_eq!(net.machines[2].counters().repeated, 1);
    assert_eq!(net.machines[0].counters().repeated, 1);
}

#[test]
fn duplicate_packets_have_no_effect() {
    for runner in both_runners() {
        for algorithm in BarrierAlgorithm::ALL {
            let mut net = Net::new(group(&[2, 1, 1, 3], algorithm, runner));
            net.faults.doubled = 100;
            for _ in 0..3 {
                net.enter_all();
                assert!(net.run(LONG));
            }
            assert!(net.ranks().all(|rank| net.done[rank as usize] == 3));
            let between = 3 * algorithm.messages(4).unwrap() as usize;
            assert_eq!(net.sent.len(), between + 3 * 6, "each was sent once");
        }
    }
}

// ---- one machine --------------------------------------------------------------------------------

/// The root of the counter in a group of `nodes` nodes, in its first barrier.
fn counting(nodes: u32) -> Collective {
    let mut machine = Collective::new(Rank(0), nodes, CollectiveConfig::default());
    let ones = vec![1; nodes as usize];
    machine.open(group(&ones, BarrierAlgorithm::Counter, Runner::Host));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    assert_eq!(machine.poll_transmit(Instant::ZERO), None);
    machine
}

/// Ranks that the machine asks when its timer next expires.
fn asked(machine: &mut Collective) -> Vec<u32> {
    let now = machine.poll_timeout().unwrap();
    machine.handle_timeout(now);
    let nacks = std::iter::from_fn(|| machine.poll_transmit(now));
    nacks
        .map(|nack| match nack {
            Outbound { to: Destination::Rank(to), header, .. } => {
                assert_eq!(header, message(Kind::StepNack, 0, 1, 0));
                to.0
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn many_missing_steps_are_requested_in_rounds() {
    let mut machine = counting(200);
    for from in 10..20 {
        machine.handle_packet(Instant::ZERO, &step(from, 1, 0), &[]);
    }
    let first: Vec<u32> = (1..10).chain(20..75).collect();
    assert_eq!(first.len(), NACKS_PER_ROUND);
    assert_eq!(asked(&mut machine), first);
    assert_eq!(asked(&mut machine), (75..139).collect::<Vec<_>>());
    let third: Vec<u32> = (139..200).chain(1..4).collect();
    assert_eq!(asked(&mut machine), third);
    // If few are missing, all of them are asked.
    for from in 1..190 {
        machine.handle_packet(Instant::ZERO, &step(from, 1, 0), &[]);
    }
    assert_eq!(asked(&mut machine), (190..200).collect::<Vec<_>>());
}

#[test]
fn rank_that_answered_in_the_meantime_gets_no_nack() {
    let mut machine = counting(4);
    let now = machine.poll_timeout().unwrap();
    machine.handle_timeout(now);
    machine.handle_packet(now, &step(1, 1, 0), &[]);
    machine.handle_packet(now, &step(3, 1, 0), &[]);
    let next = machine.poll_transmit(now).unwrap();
    assert_eq!(next.to, Destination::Rank(Rank(2)));
    assert_eq!(machine.poll_transmit(now), None);
    assert_eq!(machine.counters().nacks_sent, 1);
}

#[test]
fn pending_answers_to_nacks_are_bounded() {
    let mut machine = counting(3);
    let now = Instant::ZERO;
    for from in [1, 2] {
        machine.handle_packet(now, &step(from, 1, 0), &[]);
    }
    assert_eq!(std::iter::from_fn(|| machine.poll_transmit(now)).count(), 2);
    for _ in 0..ANSWERS_MAX + 5 {
        machine.handle_packet(now, &message(Kind::StepNack, 1, 1, 1), &[]);
    }
    assert_eq!(std::iter::from_fn(|| machine.poll_transmit(now)).count(), ANSWERS_MAX);
    let counters = machine.counters();
    assert_eq!((counters.repeated, counters.answers_dropped), (ANSWERS_MAX as u64, 5));
    assert!(machine.is_idle());
}
