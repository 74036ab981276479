//! Models of clusters: they finish, are repeatable, and obey simple laws.

use omnes_proto::algorithm::BcastAlgorithm;
use omnes_proto::collective::Runner;
use omnes_sim::engine::{Cost, Span};
use omnes_sim::model::{BarrierKind, Carrier, Cloning, Model, Op, Plan, Report, Setup, Steps};
use omnes_sim::testbed::{Progress, Testbed, WhenFull};
use omnes_topo::network::Network;
use omnes_topo::{BarrierAlgorithm, Tree};

fn setup(ranks: u32) -> Setup {
    let testbed = Testbed::parse(include_str!("testbeds/plain.toml")).expect("a testbed");
    let network = Network::single_switch(ranks).expect("a network");
    Setup { testbed, network, ranks, seed: 1, loss_ppm: 0, carrier: Carrier::Multicast }
}

fn run(setup: Setup, plan: Plan) -> Report {
    match Model::new(setup, plan, false).and_then(Model::run) {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

fn bcast(algorithm: &str, bytes: u64) -> Op {
    let algorithm: BcastAlgorithm = algorithm.parse().expect("it is an algorithm");
    Op::Bcast { algorithm, root: 0, bytes }
}

fn barrier(algorithm: BarrierAlgorithm, steps: Steps) -> Op {
    Op::Barrier(BarrierKind { algorithm, steps, is_multicast: true })
}

#[test]
fn run_progress_is_monotonic_and_ends_at_exactly_one() {
    let stream = Op::Stream { from: 0, to: 3, bytes: 100_000, messages: 5 };
    let barrier = barrier(BarrierAlgorithm::Dissemination, Steps::Channel);
    for ops in [
        vec![Op::Meet, bcast("combined", 4 << 20)],
        vec![Op::Meet, bcast("binomial", 4 << 20), bcast("chain", 8)],
        vec![barrier, stream, Op::Message { from: 2, to: 1, bytes: 0 }],
    ] {
        for loss_ppm in [0, 10_000] {
            let setup = Setup { loss_ppm, ..setup(8) };
            let mut told = Vec::new();
            let model = Model::new(setup, Plan::new(ops.clone(), 2), false).expect("a model");
            let report = model.run_with_progress(|share| told.push(share)).expect("it ends");
            assert_eq!(told.last(), Some(&1.0), "{ops:?}");
            assert!(told.is_sorted(), "{told:?}");
            assert_eq!(told.len() as u64, 1 + report.counters.events / (1 << 14));
        }
    }
}

#[test]
fn error_explains_a_network_that_delivers_nothing() {
    for op in [
        bcast("combined", 8),
        bcast("binomial", 8),
        barrier(BarrierAlgorithm::Dissemination, Steps::Machine(Runner::Nic)),
        barrier(BarrierAlgorithm::Dissemination, Steps::Machine(Runner::Host)),
    ] {
        let mut setup = setup(4);
        // No packet fits into the buffer.
        (setup.testbed.switch.buffer_bytes, setup.testbed.switch.when_full) = (1, WhenFull::Drop);
        let model = Model::new(setup, Plan::new([op], 1), false).expect("a model");
        let error = model.run().expect_err("nothing gets through").to_string();
        assert!(error.contains("gave up on rank") && error.contains("buffers"), "{op:?}: {error}");
    }
}

#[test]
fn barrier_refused_by_the_machine_is_an_error() {
    // A single NIC counts at most 1,024.
    let kind = barrier(BarrierAlgorithm::Counter, Steps::Machine(Runner::Nic));
    assert_eq!(run(setup(1024), Plan::new([kind], 1)).samples.len(), 1);
    let model = Model::new(setup(1025), Plan::new([kind], 1), false).expect("a model");
    let error = model.run().expect_err("refused").to_string();
    assert!(error.contains("1024"), "{error}");
}

#[test]
fn every_broadcast_algorithm_completes_at_every_rank() {
    for algorithm in [
        "binomial",
        "binomial:store",
        "chain",
        "postal=3",
        "basic",
        "window",
        "combined",
        "tree-ack=4",
        "co-root=2",
        "ack-every=10",
        "skewed=10",
        "nack",
    ] {
        for bytes in [0, 8, 5_000, 300_000] {
            let report = run(setup(9), Plan::new([Op::Meet, bcast(algorithm, bytes)], 3));
            assert_eq!(report.samples.len(), 3, "{algorithm} {bytes}");
            assert!(report.samples.iter().all(|sample| sample.ranks == 9), "{algorithm} {bytes}");
        }
    }
}

#[test]
fn every_barrier_algorithm_completes_at_every_rank() {
    for algorithm in BarrierAlgorithm::ALL {
        for steps in [Steps::Channel, Steps::Machine(Runner::Host), Steps::Machine(Runner::Nic)] {
            let report = run(setup(11), Plan::new([barrier(algorithm, steps)], 5));
            assert!(
                report.samples.iter().all(|sample| sample.ranks == 11),
                "{algorithm} {steps:?}"
            );
            assert_eq!(report.samples.len(), 5);
        }
    }
}

#[test]
fn losses_are_repaired_and_cost_time() {
    let plan = Plan::new([Op::Meet, bcast("combined", 1_000_000)], 5);
    let clean = run(setup(8), plan.clone());
    let lossy = run(Setup { loss_ppm: 10_000, ..setup(8) }, plan);
    assert!(lossy.counters.lost > 0);
    assert!(lossy.counters.packets > clean.counters.packets);
    assert!(lossy.end > clean.end);
}

#[test]
fn multi_send_sends_one_copy_to_each_rank() {
    for cloning in [Cloning::Nic, Cloning::Host] {
        let carrier = Carrier::MultiSend { tree: Tree::Binomial, cloning };
        let report = run(Setup { carrier, ..setup(8) }, Plan::new([Op::Meet, bcast("nack", 8)], 1));
        assert_eq!(report.samples[0].ranks, 8);
        // In addition an answer of each, which arrives after the last operation.
        assert_eq!(report.counters.packets, 7 + 7);
    }
}

#[test]
fn forwarding_hosts_pay_per_train_and_not_per_packet() {
    let carrier = Carrier::MultiSend { tree: Tree::Chain, cloning: Cloning::Host };
    let plain = Setup { carrier, ..setup(3) };
    // A train of twelve packets.
    let plan = || Plan::new([Op::Meet, bcast("nack", 16 << 10)], 1);
    let took = |train: Cost, receive_train: Cost| {
        let mut setup = plain.clone();
        setup.testbed.host.train = train;
        setup.testbed.nic.receive_train = receive_train;
        let report = run(setup, plan());
        report.samples[0].ended - report.samples[0].root_began
    };
    let each = Span::from_ns(1_000_000);
    let (dear, free) = (Cost { fixed: each, ..Cost::default() }, Cost::default());
    let base = took(free, free);
    // Train costs apply at the root and at rank 1, which also answers.
    for time in [took(dear, free), took(free, dear)] {
        assert!(time > each * 2 && time < base + each * 6, "{base} and {time}");
    }
}

#[test]
fn equal_seeds_give_equal_hashes_and_different_seeds_different_ones() {
    let plan = Plan::new(
        [Op::Compute { most: Span::from_ns(50_000), root: 0 }, bcast("combined", 100_000)],
        4,
    );
    let lossy = |seed| Setup { loss_ppm: 5_000, seed, ..setup(16) };
    let hash = |seed| run(lossy(seed), plan.clone()).hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
    // Equal in debug and release builds, on every machine.
    assert_eq!(hash(7), 0x19f2_8868_b8a0_b517, "{:#x}", hash(7));
}

#[test]
fn time_of_one_message_is_the_sum_of_its_resource_costs() {
    let op = Op::Message { from: 0, to: 1, bytes: 8 };
    let report = run(setup(2), Plan::new([Op::Meet, op], 1));
    let time = report.samples[0].ended - report.samples[0].root_began;
    // The head is 48 bytes, the data are 8: each segment of the path once, both links, one switch.
    let testbed = setup(2).testbed;
    let (host, nic, link) = (testbed.host, testbed.nic, testbed.link);
    let head = 40 + omnes_wire::ENVELOPE_BYTES as u64;
    let bytes = head + 8;
    let parts = [
        host.call.fixed,
        host.copy.of(8),
        host.train.of(bytes),
        host.send.of(bytes),
        nic.transmit.of(bytes),
        link.latency * 2,
        link.wire.of(bytes + link.frame_bytes),
        testbed.switch.latency,
        nic.receive.of(bytes) + nic.receive_train.of(bytes),
        nic.latency * 2,
        host.notice.fixed,
        host.batch.of(bytes),
        host.receive.of(bytes),
    ];
    assert_eq!(time, parts.into_iter().sum());
}

#[test]
fn stream_messages_overlap_and_are_counted() {
    let stream = Op::Stream { from: 0, to: 1, bytes: 64 << 10, messages: 8 };
    let streamed = run(setup(2), Plan::new([Op::Meet, stream], 1));
    let one = Op::Message { from: 0, to: 1, bytes: 64 << 10 };
    let single = run(setup(2), Plan::new([Op::Meet, one], 1));
    let time = |report: &Report| report.samples[0].from_root();
    assert!(time(&streamed) < time(&single) * 8, "{} {}", time(&streamed), time(&single));
    assert_eq!(streamed.ranks[0].data_packets, 8 * single.ranks[0].data_packets);
    assert!(single.ranks[0].data_packets >= (64 << 10) / 1432);
    assert_eq!((streamed.ranks[0].repairs, streamed.ranks[1].data_packets), (0, 0));
}

#[test]
fn large_multicast_broadcast_uses_over_half_the_link_rate() {
    let bytes = 64 << 20;
    let report = run(setup(16), Plan::new([Op::Meet, bcast("combined", bytes)], 1));
    let wire = Span::from_ps(320) * bytes;
    let time = report.samples[0].from_root();
    assert!(time > wire && time < wire + wire, "{time} beside {wire}");
}

#[test]
fn multi_hop_networks_are_slower_and_reach_all_ranks() {
    let plan = Plan::new([Op::Meet, bcast("combined", 8), Op::Meet, bcast("binomial", 8)], 2);
    let on = |network| run(Setup { network, ..setup(100) }, plan.clone());
    let single = on(Network::single_switch(100).expect("a network"));
    for network in [Network::fat_tree(100, 8), Network::dragonfly(100)] {
        let report = on(network.expect("a network"));
        assert!(report.samples.iter().all(|sample| sample.ranks == 100));
        assert!(report.samples[0].from_root() > single.samples[0].from_root());
        assert!(report.samples[1].from_root() > single.samples[1].from_root());
    }
}

#[test]
fn hosts_that_share_a_core_take_turns() {
    let plan = Plan::new([Op::Meet, bcast("combined", 8)], 1);
    let alone = run(setup(8), plan.clone());
    let mut shared = setup(8);
    shared.testbed.host.cores = 2;
    let crowded = run(shared, plan);
    // Four hosts on a core receive the packet one after the other.
    let turn = setup(8).testbed.host.receive.fixed * 3;
    assert!(crowded.samples[0].from_root() > alone.samples[0].from_root() + turn);
}

/// A run on the usual testbed, modified by `change`.
fn run_changed(ranks: u32, ops: &[Op], change: impl FnOnce(&mut Testbed)) -> Report {
    let mut setup = setup(ranks);
    change(&mut setup.testbed);
    run(setup, Plan::new(ops, 1))
}

#[test]
fn acknowledgement_packets_have_the_cost_set_in_the_testbed() {
    let ops = [Op::Meet, bcast("basic", 8)];
    // The root of "basic" waits for the acknowledgement.
    let time = |send: u64, receive: u64| {
        let report = run_changed(2, &ops, |testbed| {
            testbed.host.report_send = Some(fixed(send));
            testbed.host.report_receive = Some(fixed(receive));
        });
        report.samples[0].root_ended - report.samples[0].root_began
    };
    assert_eq!(time(7_000, 0), time(0, 0) + Span::from_ns(7_000));
    assert_eq!(time(0, 3_000), time(0, 0) + Span::from_ns(3_000));
}

#[test]
fn fixed_cost_of_granted_data_is_charged_once() {
    let ops = [Op::Meet, Op::Message { from: 0, to: 1, bytes: 20_000 }];
    let time = |eager: u32, send: u64, receive: u64| {
        let report = run_changed(2, &ops, |testbed| {
            testbed.protocol.eager_bytes = Some(eager);
            testbed.host.granted_send = Some(fixed(send));
            testbed.host.granted_receive = Some(fixed(receive));
        });
        report.samples[0].ended - report.samples[0].root_began
    };
    let (least, most) = (Span::from_ns(900_000), Span::from_ns(1_000_000));
    for (send, receive) in [(1_000_000, 0), (0, 1_000_000)] {
        let (with, without) = (time(1_000, send, receive), time(1_000, 0, 0));
        assert!(with >= without + least && with <= without + most, "{with} and {without}");
        // A message that needs no grant has no granted data.
        assert_eq!(time(1 << 20, send, receive), time(1 << 20, 0, 0));
    }
}

#[test]
fn nic_latency_delays_packets_without_occupying_the_nic() {
    let (latency, multicast) = (Span::from_ns(5_000), Span::from_ns(20_000));
    let change = |testbed: &mut Testbed| {
        (testbed.nic.latency, testbed.nic.multicast) = (latency, multicast);
    };
    let both = |op: Op| {
        let time = |report: Report| report.samples[0].ended - report.samples[0].root_began;
        let without = time(run_changed(2, &[Op::Meet, op], |_| {}));
        (time(run_changed(2, &[Op::Meet, op], change)), without)
    };
    // Many packets are delayed as much as one; the sender of a long message waits for the answer.
    for (bytes, ways) in [(8, 1), (30_000, 2)] {
        let (with, without) = both(Op::Message { from: 0, to: 1, bytes });
        assert_eq!(with, without + latency * 2 * ways);
    }
    let (with, without) = both(bcast("nack", 8));
    assert_eq!(with, without + latency * 2 + multicast);
}

#[test]
fn large_switch_buffer_before_a_slow_link_drops_nothing() {
    let ops = [bcast("binomial", 8)];
    let report = run_changed(4, &ops, |testbed| {
        testbed.link.wire.per_byte = Span::from_ns(1_000_000);
        testbed.switch.buffer_bytes = 1 << 50;
    });
    assert_eq!(report.counters.dropped_by_switches, 0);
}

#[test]
fn library_with_progress_only_in_calls_answers_in_the_next_call() {
    let most = Span::from_ns(1_000_000);
    let ops = [Op::Meet, Op::Compute { most, root: 0 }, bcast("basic", 8)];
    let time = |progress| {
        let report = run_changed(8, &ops, |testbed| testbed.host.progress = progress);
        report.samples[0].root_ended - report.samples[0].root_began
    };
    assert!(time(Progress::Always) < Span::from_ns(100_000), "{}", time(Progress::Always));
    assert!(time(Progress::InCalls) > Span::from_ns(300_000), "{}", time(Progress::InCalls));
}

fn fixed(ns: u64) -> Cost {
    Cost { fixed: Span::from_ns(ns), per_byte: Span::ZERO }
}

// ---- large jobs -------------------------------------------------------------------------------

/// Small broadcasts, each on a quiet network.
fn lone_broadcasts(ranks: u32, algorithm: &str, loss_ppm: u32, count: u32) -> Report {
    let plan = Plan::new([Op::Meet, bcast(algorithm, 8)], count);
    run(Setup { loss_ppm, ..setup(ranks) }, plan)
}

#[test]
fn answers_of_many_ranks_are_awaited_without_being_requested_again() {
    for algorithm in ["combined", "tree-ack=8+combined"] {
        for ranks in [64, 512, 8192] {
            let report = lone_broadcasts(ranks, algorithm, 0, 3);
            // One packet to all, and an acknowledgement of each.
            assert_eq!(report.counters.packets, 3 * u64::from(ranks), "{algorithm} {ranks}");
            assert_eq!(report.counters.dropped_by_hosts, 0, "{algorithm} {ranks}");
        }
    }
}

#[test]
fn loss_in_an_acknowledgement_tree_costs_a_few_round_trips() {
    let algorithm = "tree-ack=8+combined";
    let [clean, lossy] = [0, 200].map(|ppm| lone_broadcasts(512, algorithm, ppm, 200));
    assert!(lossy.counters.lost > 10, "{}", lossy.counters.lost);
    let longest = |report: &Report| report.samples.iter().map(|sample| sample.from_root()).max();
    // The first ones are in flight before any round trip is measured.
    let known = Report { samples: lossy.samples[20..].to_vec(), ..lossy };
    let least = longest(&clean).expect("a sample") + Span::from_ns(400_000);
    assert!(longest(&known).expect("a sample") < least, "{:?}", longest(&known));
    // Each loss costs a question or two, an answer and a repair.
    let more = known.counters.packets - clean.counters.packets;
    assert!(more <= 10 * known.counters.lost, "{more} for {}", known.counters.lost);
}
