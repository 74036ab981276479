//! Testbeds of the barriers in the NIC: the points that they were fitted to are reproduced, and the
//! NICs' own work has the expected cost.

use omnes_proto::collective::Runner;
use omnes_sim::engine::Span;
use omnes_sim::model::{BarrierKind, Carrier, Model, Op, Plan, Report, Setup, Steps};
use omnes_sim::testbed::{Testbed, named};
use omnes_topo::BarrierAlgorithm;
use omnes_topo::network::Network;

const REPEAT: u32 = 100;

fn run(testbed: Testbed, ranks: u32, ops: Vec<Op>) -> Report {
    let network = Network::single_switch(ranks).expect("a network");
    let carrier = Carrier::Multicast;
    let setup = Setup { testbed, network, ranks, seed: 1, loss_ppm: 0, carrier };
    match Model::new(setup, Plan::new(ops, REPEAT), false).and_then(Model::run) {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

fn mean_us(report: &Report) -> f64 {
    report.end.as_ps() as f64 / 1e6 / f64::from(REPEAT)
}

fn by_name(name: &str) -> Testbed {
    named(name).expect("it is built in")
}

fn is_near(ours: f64, point: f64) -> bool {
    (ours / point - 1.0).abs() < 0.005
}

fn ping_pong() -> Vec<Op> {
    [(0, 1), (1, 0)].map(|(from, to)| Op::Message { from, to, bytes: 8 }).to_vec()
}

/// Both ranks of a pair send concurrently, then wait for each other.
fn exchange(steps: Steps) -> Op {
    Op::Barrier(BarrierKind {
        algorithm: BarrierAlgorithm::PairwiseExchange,
        steps,
        is_multicast: false,
    })
}

#[test]
fn newer_myrinet_messages_take_their_fitted_times() {
    let one_way = mean_us(&run(by_name("myrinet-lanaixp"), 2, ping_pong())) / 2.0;
    assert!(is_near(one_way, 6.7), "{one_way}");
    let both = mean_us(&run(by_name("myrinet-lanaixp"), 2, vec![exchange(Steps::Channel)]));
    assert!(is_near(both, 10.1), "{both}");
}

#[test]
fn barriers_of_two_and_four_ranks_take_their_fitted_times() {
    // [CB §Analytical Model]: T_init + T_fin, and one T_trig more.
    for (name, points) in [("myrinet-lanaixp", [7.44, 10.94]), ("quadrics-elan3", [2.3, 4.42])] {
        for (ranks, point) in [2, 4].into_iter().zip(points) {
            let op = exchange(Steps::Machine(Runner::Nic));
            let ours = mean_us(&run(by_name(name), ranks, vec![op]));
            assert!(is_near(ours, point), "{name} with {ranks}: {ours}");
        }
    }
}

#[test]
fn nics_acknowledge_each_message_if_answers_have_a_cost() {
    let with = by_name("myrinet-lanaixp");
    let mut without = with.clone();
    without.nic.answer = Default::default();
    let [with, without] = [with, without].map(|testbed| run(testbed, 2, ping_pong()).counters);
    // The hosts' channels send the same packets; the NICs acknowledge these as well.
    assert_eq!(with.packets, 2 * without.packets);
}

#[test]
fn trigger_cost_delays_only_the_steps_after_the_first() {
    let quick = by_name("myrinet-lanaixp");
    let mut slow = quick.clone();
    slow.nic.trigger.fixed = Span::from_ns(1000);
    for (ranks, more) in [(2, 0.0), (4, 1.0), (8, 2.0)] {
        let took = |testbed: &Testbed| {
            let op = exchange(Steps::Machine(Runner::Nic));
            mean_us(&run(testbed.clone(), ranks, vec![op]))
        };
        assert!((took(&slow) - took(&quick) - more).abs() < 1e-6, "{ranks}");
    }
}
