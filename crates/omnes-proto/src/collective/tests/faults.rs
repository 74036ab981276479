//! Random loss, duplication and reordering: no rank leaves too early, and all leave in the end.

use super::super::*;
use super::net::{Faults, LATENCY, Net, Random, US, group};
use omnes_topo::BarrierAlgorithm;
use proptest::prelude::*;
use std::time::Duration;

fn any_group() -> impl Strategy<Value = BarrierGroupConfig> {
    let shape = prop_oneof![
        4 => prop::collection::vec(1..=1u32, 1..=17),
        3 => prop::collection::vec(1..=4u32, 1..=8),
        1 => prop::collection::vec(1..=3u32, 1..=70),
    ];
    let runner = prop_oneof![Just(Runner::Host), Just(Runner::Nic)];
    let algorithm = prop::sample::select(BarrierAlgorithm::ALL.to_vec());
    (shape, algorithm, runner, any::<bool>()).prop_map(
        |(shape, algorithm, runner, is_multicast)| BarrierGroupConfig {
            is_multicast,
            ..group(&shape, algorithm, runner)
        },
    )
}

fn any_faults() -> impl Strategy<Value = Faults> {
    (0..=30u64, 0..=30u64, 0..=300u32).prop_map(|(lost, doubled, jitter)| Faults {
        lost,
        doubled,
        jitter: US * jitter,
    })
}

/// All ranks enter `barriers` barriers at random times, possibly the next before the first
/// completes.
fn enter_at_will(net: &mut Net, barriers: u32, random: &mut Random) {
    for rank in net.ranks() {
        let mut wait = Duration::ZERO;
        for _ in 0..barriers {
            let pause = [0, 0, 30, 400, 3000][random.below(5) as usize];
            wait += US * random.below(pause + 1) as u32;
            net.enter_in(wait, rank);
        }
    }
}

fn check(
    config: BarrierGroupConfig,
    faults: Faults,
    seed: u64,
    start: u32,
) -> Result<(), TestCaseError> {
    let mut net = Net::after(config, start);
    let barriers = 6;
    (net.faults, net.random) = (faults, Random(seed));
    enter_at_will(&mut net, barriers, &mut Random(!seed));
    // The longest case: a step lost some ten times in a row, with the longest wait after each loss.
    prop_assert!(net.run(Duration::from_secs(10)), "stuck: done {:?}", net.done);
    prop_assert!(net.ranks().all(|rank| net.done[rank as usize] == barriers));
    for machine in &net.machines {
        prop_assert!(machine.is_idle() && machine.poll_timeout().is_none());
        prop_assert_eq!(machine.counters().nonsense, 0);
    }
    prop_assert!(net.failed.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_rank_leaves_a_barrier_early_and_all_ranks_leave(
        config in any_group(), faults in any_faults(), seed: u64,
    ) {
        check(config, faults, seed, 0)?;
    }

    #[test]
    fn barrier_numbers_wrap_around(
        config in any_group(), faults in any_faults(), seed: u64, before in 0..6u32,
    ) {
        check(config, faults, seed, u32::MAX - before)?;
    }
}

/// A network that loses one packet in a hundred.
#[test]
fn slowest_percent_of_barriers_takes_less_than_ten_round_trips() {
    let fast = [
        BarrierAlgorithm::PairwiseExchange,
        BarrierAlgorithm::Dissemination,
        BarrierAlgorithm::Counter,
    ];
    for (algorithm, runner) in
        fast.into_iter().flat_map(|it| [(it, Runner::Host), (it, Runner::Nic)])
    {
        let mut net = Net::new(group(&[1; 8], algorithm, runner));
        net.faults.lost = 1;
        let mut took = Vec::new();
        for _ in 0..2000 {
            let began = net.now;
            net.enter_all();
            assert!(net.run(Duration::from_secs(1)));
            took.push(net.now - began);
            net.sent.clear();
        }
        took.sort();
        assert!(took[1980] < 10 * (2 * LATENCY), "{algorithm} {runner:?}: {:?}", took[1980]);
    }
}
