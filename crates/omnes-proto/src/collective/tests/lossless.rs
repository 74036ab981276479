//! Without loss: each algorithm sends exactly its number of packets.

use super::super::*;
use super::net::{GROUP, LATENCY, Net, US, group};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{Kind, Words};
use std::time::Duration;

/// Shapes of a group of `ranks` ranks: one node each, nodes of two and three, a single node.
fn shapes(ranks: u32) -> Vec<Vec<u32>> {
    let of = |per_node: u32| {
        let full = (0..ranks / per_node).map(move |_| per_node);
        full.chain(Some(ranks % per_node).filter(|rest| *rest != 0)).collect::<Vec<_>>()
    };
    let mut uneven = vec![1; (ranks as usize).div_ceil(2)];
    uneven[ranks as usize / 3] += ranks - ranks.div_ceil(2);
    vec![of(1), of(2), of(3), of(ranks), uneven]
}

/// Runs three barriers, and returns the number of packets of all of them.
fn packets(config: BarrierGroupConfig) -> u64 {
    let mut net = Net::new(config);
    for round in 1..=3 {
        net.enter_all();
        assert!(net.run(Duration::from_secs(1)), "{:?}", net.config);
        assert!(net.ranks().all(|rank| net.done[rank as usize] == round));
    }
    for machine in &net.machines {
        assert!(machine.is_idle() && machine.poll_timeout().is_none());
        let counters = machine.counters();
        let rare = counters.nacks_sent + counters.repeated + counters.asks_sent;
        let wrong = counters.duplicates + counters.nonsense + counters.doorbells_again;
        assert_eq!(rare + wrong, 0, "{counters:?}");
    }
    assert_eq!(net.count(Kind::Step), net.sent.len());
    net.packets
}

#[test]
fn packet_count_is_the_algorithms_plus_two_per_non_leader() {
    for (ranks, algorithm) in
        (1..=17).flat_map(|ranks| BarrierAlgorithm::ALL.map(|algorithm| (ranks, algorithm)))
    {
        for (shape, runner) in
            shapes(ranks).iter().flat_map(|shape| [(shape, Runner::Host), (shape, Runner::Nic)])
        {
            let nodes = shape.len() as u32;
            let inside = 2 * u64::from(ranks - nodes);
            let between = algorithm.messages(nodes).unwrap();
            let config = group(shape, algorithm, runner);
            assert_eq!(packets(config.clone()), 3 * (inside + between), "{config:?}");
            let config = BarrierGroupConfig { is_multicast: true, ..config };
            // The counter's release is then one packet.
            let is_counter = algorithm == BarrierAlgorithm::Counter && nodes > 1;
            let between = if is_counter { u64::from(nodes) } else { between };
            assert_eq!(packets(config.clone()), 3 * (inside + between), "{config:?}");
        }
    }
}

/// The paper's targets at ten nodes [CB-R9, R10, R11].
#[test]
fn ten_nodes_need_18_28_40_and_18_packets() {
    let ones = [1; 10];
    let of = |algorithm| packets(group(&ones, algorithm, Runner::Host)) / 3;
    assert_eq!(BarrierAlgorithm::ALL.map(of), [18, 28, 40, 18]);
}

#[test]
fn barrier_takes_one_latency_per_step() {
    for (algorithm, steps) in BarrierAlgorithm::ALL.into_iter().zip([6, 3, 3, 2]) {
        for runner in [Runner::Host, Runner::Nic] {
            let mut net = Net::new(group(&[1; 8], algorithm, runner));
            net.enter_all();
            assert!(net.run(Duration::from_secs(1)));
            // The timers that were armed meanwhile are disarmed.
            assert_eq!(net.now, Instant::ZERO + steps * LATENCY, "{algorithm}");
        }
    }
}

#[test]
fn barrier_of_a_single_rank_completes_immediately() {
    let mut alone = Collective::new(Rank(3), 8, CollectiveConfig::default());
    let config = BarrierGroupConfig {
        nodes: vec![vec![Rank(3)]].into(),
        ..group(&[1], BarrierAlgorithm::Counter, Runner::Nic)
    };
    alone.open(config);
    for epoch in 1..=3 {
        assert_eq!(alone.enter(Instant::ZERO, GROUP), Ok(epoch));
        assert_eq!(
            alone.poll_event(),
            Some(Event::Done { communicator: GROUP, epoch, words: Words::NONE })
        );
    }
    assert_eq!((alone.poll_transmit(Instant::ZERO), alone.poll_timeout()), (None, None));
    assert_eq!((alone.poll_event(), alone.is_idle()), (None, true));
}

#[test]
fn all_ranks_leave_only_after_the_last_has_entered() {
    for (algorithm, runner) in
        BarrierAlgorithm::ALL.into_iter().flat_map(|it| [(it, Runner::Host), (it, Runner::Nic)])
    {
        let mut net = Net::new(group(&[2, 1, 3, 1, 1], algorithm, runner));
        for rank in net.ranks() {
            net.enter_in(if rank == 4 { 5000 * US } else { US * rank }, rank);
        }
        net.run(4999 * US);
        assert!(net.done.iter().all(|done| *done == 0));
        assert!(net.run(Duration::from_secs(1)));
        assert!(net.ranks().all(|rank| net.done[rank as usize] == 1));
        // A waiting rank asks occasionally, but no step is sent again for it.
        let answered: u64 = net.machines.iter().map(|it| it.counters().repeated).sum();
        assert_eq!(answered, 0, "{algorithm} {runner:?}");
        assert!(net.count(Kind::StepNack) > 0);
    }
}

#[test]
fn pending_barriers_complete_in_order() {
    for (algorithm, runner) in
        BarrierAlgorithm::ALL.into_iter().flat_map(|it| [(it, Runner::Host), (it, Runner::Nic)])
    {
        let mut net = Net::new(group(&[1, 2, 1, 1], algorithm, runner));
        for rank in net.ranks() {
            for times in 0..5 {
                let wait = if rank == 2 { 700 * US * times } else { Duration::ZERO };
                net.enter_in(wait, rank);
            }
        }
        assert!(net.run(Duration::from_secs(1)));
        assert!(net.ranks().all(|rank| net.done[rank as usize] == 5));
    }
}

#[test]
fn entering_beyond_the_maximum_of_pending_barriers_is_an_error() {
    let mut machine = Collective::new(Rank(0), 2, CollectiveConfig::default());
    machine.open(group(&[1, 1], BarrierAlgorithm::Dissemination, Runner::Host));
    for epoch in 1..=BARRIERS_OUTSTANDING_MAX {
        assert_eq!(machine.enter(Instant::ZERO, GROUP), Ok(epoch));
    }
    assert_eq!(machine.enter(Instant::ZERO, GROUP), Err(CollectiveError::TooManyBarriers));
}

#[test]
fn barriers_of_different_groups_are_independent() {
    let at = Instant::ZERO;
    let other = CommunicatorId(9);
    let mut ends = [0, 1].map(|rank| {
        let mut machine = Collective::new(Rank(rank), 2, CollectiveConfig::default());
        let config = group(&[1, 1], BarrierAlgorithm::PairwiseExchange, Runner::Host);
        let turned = vec![vec![Rank(1)], vec![Rank(0)]].into();
        machine.open(config.clone());
        machine.open(BarrierGroupConfig { communicator: other, nodes: turned, ..config });
        machine
    });
    assert_eq!((ends[0].enter(at, other), ends[0].enter(at, GROUP)), (Ok(1), Ok(1)));
    assert_eq!(ends[1].enter(at, other), Ok(1));
    for round in 0..4 {
        let (from, to) = (round % 2, 1 - round % 2);
        while let Some(outbound) = ends[from].poll_transmit(at) {
            ends[to].handle_packet(at, &outbound.header, &[]);
        }
    }
    let done = Event::Done { communicator: other, epoch: 1, words: Words::NONE };
    for end in &mut ends {
        assert_eq!((end.poll_event(), end.poll_event()), (Some(done), None));
    }
    assert!(!ends[0].is_idle() && ends[1].is_idle());
}
