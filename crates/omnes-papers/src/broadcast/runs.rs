//! The paper's benchmarks [BC-R26], run on its testbed: our machines on `infiniband-4x`.
//!
//! Latency is measured as in the paper: consecutive broadcasts, after each of which one receiver
//! answers, less the time of a message. The larger cluster has a fat tree of 16-port switches, and
//! its latency is that of a single broadcast, since the paper's model assumes that acknowledgements
//! cost nothing.

use super::closed::Times;
use omnes_proto::algorithm::BcastAlgorithm;
use omnes_proto::broadcast::Policy;
use omnes_sim::engine::{Span, Time};
use omnes_sim::model::{Carrier, Model, Op, Plan, Report, Setup};
use omnes_sim::testbed::{Testbed, named};
use omnes_topo::network::Network;

/// Nodes of the paper's testbed.
pub(super) const NODES: u32 = 8;
/// Ports of the switches of larger clusters.
const RADIX: u32 = 16;
/// Length of the answers.
const ANSWER_BYTES: u64 = 4;
/// Counted answers of each receiver, after as many uncounted ones.
const ANSWERS: u32 = 4;
/// Broadcasts of the throughput test before the counted ones: several windows.
const WARM_BROADCASTS: u32 = 100;
/// Counted broadcasts of the throughput test.
const COUNTED_BROADCASTS: u32 = 400;
/// Broadcasts of the skew test.
const SKEWED_BROADCASTS: u32 = 200;

/// The designs that the paper measures [BC-R25].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Design {
    Original,
    Basic,
    Window,
    CoRoot2,
    Aggregate10,
}

impl Design {
    pub(super) const ALL: [Self; 5] =
        [Self::Original, Self::Basic, Self::Window, Self::CoRoot2, Self::Aggregate10];

    /// Name in the paper.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Original => "Original",
            Self::Basic => "Basic",
            Self::Window => "Window",
            Self::CoRoot2 => "Co-root2",
            Self::Aggregate10 => "Aggregate10",
        }
    }

    pub(super) fn algorithm(self) -> BcastAlgorithm {
        match self {
            Self::Original => BcastAlgorithm::ORIGINAL,
            Self::Basic => BcastAlgorithm::Multicast(Policy::BASIC),
            Self::Window => BcastAlgorithm::Multicast(Policy::WINDOW),
            Self::CoRoot2 => by_multicast("co-root=2"),
            Self::Aggregate10 => by_multicast("ack-every=10"),
        }
    }
}

fn by_multicast(policy: &str) -> BcastAlgorithm {
    BcastAlgorithm::Multicast(policy.parse().expect("it is a policy"))
}

pub(super) fn testbed() -> Testbed {
    named("infiniband-4x").expect("it is built in")
}

fn network(ranks: u32) -> Network {
    let network = if ranks <= NODES {
        Network::single_switch(NODES)
    } else {
        Network::fat_tree(ranks, RADIX)
    };
    network.expect("these networks exist")
}

fn run(ranks: u32, plan: Plan) -> Report {
    run_on(testbed(), ranks, plan)
}

fn run_on(testbed: Testbed, ranks: u32, plan: Plan) -> Report {
    let setup = Setup {
        testbed,
        network: network(ranks),
        ranks,
        seed: 1,
        loss_ppm: 0,
        carrier: Carrier::Multicast,
    };
    match Model::new(setup, plan, false).and_then(Model::run) {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

fn bcast(algorithm: BcastAlgorithm, bytes: u64) -> Op {
    Op::Bcast { algorithm, root: 0, bytes }
}

fn us(from: Time, to: Time) -> f64 {
    to.since(from).as_us()
}

/// One-way latency of a message between two nodes, in microseconds: half a ping-pong.
pub(super) fn point_to_point(bytes: u64) -> f64 {
    let rounds = 20;
    let there = Op::Message { from: 0, to: 1, bytes };
    let back = Op::Message { from: 1, to: 0, bytes };
    let report = run(2, Plan::new([there, back], 2 * rounds));
    let samples = &report.samples;
    let (middle, end) = (samples[samples.len() / 2 - 1].ended, samples[samples.len() - 1].ended);
    us(middle, end) / f64::from(2 * rounds)
}

/// Time of consecutive broadcasts, each answered by the same receiver, less the answer: in
/// microseconds, for the receiver for which it is longest.
pub(super) fn latency(design: Design, ranks: u32, bytes: u64) -> f64 {
    let of_receiver = |rank| {
        let answer = Op::Message { from: rank, to: 0, bytes: ANSWER_BYTES };
        let plan = Plan::new([bcast(design.algorithm(), bytes), answer], 2 * ANSWERS);
        // Every second sample is an answer, complete when the root has it; the first half warms up.
        period(&run(ranks, plan), 2 * ANSWERS) * 2.0
    };
    let slowest = (1..ranks).map(of_receiver).fold(0.0, f64::max);
    slowest - point_to_point(ANSWER_BYTES)
}

/// A single broadcast, from the root's start until the last receiver has the message.
pub(super) fn alone(algorithm: BcastAlgorithm, ranks: u32, bytes: u64) -> f64 {
    let report = run(ranks, Plan::new([Op::Meet, bcast(algorithm, bytes)], 2));
    report.samples[1].from_root().as_us()
}

/// Raw multicast to `receivers` receivers: without acknowledgements.
pub(super) fn raw_multicast(receivers: u32, bytes: u64) -> f64 {
    alone(BcastAlgorithm::Multicast(Policy::NACK), receivers + 1, bytes)
}

/// Broadcasts per second, in sequence.
pub(super) fn throughput(design: Design, bytes: u64) -> f64 {
    let plan = Plan::new([bcast(design.algorithm(), bytes)], WARM_BROADCASTS + COUNTED_BROADCASTS);
    1e6 / period(&run(NODES, plan), WARM_BROADCASTS)
}

/// The same in a larger cluster, with `collectors` collectors of acknowledgements.
pub(super) fn throughput_of_collectors(ranks: u32, collectors: u32, bytes: u64) -> f64 {
    let algorithm = match collectors {
        1 => BcastAlgorithm::Multicast(Policy::WINDOW),
        _ => by_multicast(&format!("co-root={collectors}")),
    };
    // The time to free a place in a full window does not depend on its size; a small window fills
    // soon.
    let window = 16;
    let mut testbed = testbed();
    testbed.protocol.window_messages = Some(window);
    let plan = Plan::new([bcast(algorithm, bytes)], 2 * window);
    1e6 / period(&run_on(testbed, ranks, plan), window + 2)
}

/// Mean time from one operation's end to the next one's, in microseconds, after `warm` operations.
fn period(report: &Report, warm: u32) -> f64 {
    let (warm, end) = (warm as usize - 1, report.samples.len() - 1);
    let ended = |at: usize| report.samples[at].ended;
    us(ended(warm), ended(end)) / (end - warm) as f64
}

/// Mean time in the call if receivers arrive up to `most_us` microseconds late.
pub(super) fn time_in_call(design: Design, most_us: u64, bytes: u64) -> f64 {
    let compute = Op::Compute { most: Span::from_ns(1000 * most_us), root: 0 };
    let ops = [Op::Meet, compute, bcast(design.algorithm(), bytes)];
    let report = run(NODES, Plan::new(ops, SKEWED_BROADCASTS));
    let means = report.samples.iter().map(|sample| sample.mean_in_call().as_us());
    means.sum::<f64>() / report.samples.len() as f64
}

/// The times of the paper's model, from the testbed and from a multicast to one receiver.
pub(super) fn model_times(bytes: u64) -> Times {
    let host = testbed().host;
    let copy = host.copy.of(bytes).as_us();
    let post = (host.call.fixed + host.send.fixed).as_us();
    let acknowledgement = host.report_receive.unwrap_or(host.receive).fixed.as_us();
    Times {
        copy,
        post,
        multicast: raw_multicast(1, bytes) - 2.0 * copy - post,
        unicast: copy + host.send.fixed.as_us(),
        acknowledgement,
        ..Times::default()
    }
}
