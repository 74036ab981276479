#![allow(clippy::unwrap_used)]

use super::machine::{Machine, Patch};
use super::node::{Kind, Outgoing, To};
use super::plan::Plan;
use super::study::{Multicast, ToEach};
use super::world::{Forwarding, Primitive, Test, World};
use crate::{Target, Verdict};
use omnes_sim::engine::{Cost, Span, Time};
use omnes_topo::{Lambda, Tree};

/// A host's write with write combining, which the paper takes from another study [MS §2].
const COMBINED_PER_BYTE: Span = Span::from_ps(10_600);

fn flat(machine: Machine, plan: &Plan, bytes: u64, primitive: Primitive) -> Test<'_> {
    let replier = plan.nodes() - 1;
    let forwarding = Forwarding::WholeMessage;
    Test { machine, plan, bytes, primitive, forwarding, replier, iterations: 1 }
}

/// Time at which the last of six destinations has a full packet.
fn last_of_six(machine: Machine, primitive: Primitive) -> Time {
    let plan = Plan::new(Tree::Flat, 7);
    World::new(flat(machine, &plan, 1536, primitive)).run_out().unwrap()
}

#[test]
fn events_reproduce_the_worked_example_to_the_picosecond() {
    // [MS-F04] and [MS-F05].
    let fits = Machine::fits();
    assert_eq!(last_of_six(fits, Primitive::MultiSend), Time::from_ps(153_208_900));
    assert_eq!(last_of_six(fits, Primitive::Unicast), Time::from_ps(333_729_400));
    // The same wherever receiving is done.
    let host = fits.with_host_share(100);
    assert_eq!(last_of_six(host, Primitive::MultiSend), Time::from_ps(153_208_900));
    let whole = Machine::whole();
    assert_eq!(last_of_six(whole, Primitive::MultiSend), Time::from_ps(153_208_900));
}

#[test]
fn events_reproduce_the_worked_example_with_write_combining() {
    // [MS-F07] to [MS-F10].
    let fits = Machine::fits();
    let send = Cost { per_byte: COMBINED_PER_BYTE, ..fits.send };
    let combining = Machine { send, ..fits };
    let [multi, unicast] = [Primitive::MultiSend, Primitive::Unicast]
        .map(|primitive| last_of_six(combining, primitive).as_ps());
    assert_eq!(multi, 123_256_900);
    assert_eq!(unicast, 154_017_400);
    assert!((unicast as f64 / multi as f64 - 1.25).abs() < 0.005);
}

#[test]
fn both_testbeds_use_the_costs_fitted_in_the_paper() {
    let [fits, whole] = [Machine::fits(), Machine::whole()]
        .map(|it| [0, 1, 1536].map(|bytes| it.nic_receive.of(bytes) + it.host_receive.of(bytes)));
    assert_eq!(fits, whole);
    assert_eq!(fits[2], Span::from_ps(39_610_000));
    let others = [Machine::fits(), Machine::whole()].map(|it| (it.send, it.transmit));
    assert_eq!(others[0], others[1]);
}

#[test]
fn a_destination_without_credit_blocks_the_whole_multi_send() {
    // [MS-S01], [MS-R7, R12]
    let plan = Plan::new(Tree::Flat, 5);
    let mut world = World::new(flat(Machine::fits(), &plan, 100, Primitive::MultiSend));
    world.nodes[0].host.credits = vec![1, 1, 1, 0, 1];
    assert_eq!(world.run(), None);
    assert_eq!(world.nodes[0].nic.copies, 0);
    // Nothing is reserved meanwhile, either [MS-R14].
    assert_eq!(world.nodes[0].host.credits, [1, 1, 1, 0, 1]);
    assert_eq!(world.nodes[0].nic.frames_used, 0);
}

#[test]
fn multi_send_resumes_when_the_missing_credit_arrives() {
    let plan = Plan::new(Tree::Flat, 3);
    let machine = Machine { credits: 4, credits_owed_max: 2, ..Machine::fits() };
    let mut world = World::new(flat(machine, &plan, 20 * 1536, Primitive::MultiSend));
    assert!(world.run().is_some());
    // 20 packets with 4 credits: the credits returned many times, each time in a separate packet.
    assert!(world.nodes[1].nic.copies >= 8, "{}", world.nodes[1].nic.copies);
    let total = |world: &World<'_>, of: usize| {
        let host = &world.nodes[0].host;
        host.credits[of] + world.nodes[of].host.owed[0]
    };
    world.run_out();
    assert_eq!([1, 2].map(|of| total(&world, of)), [4, 4]);
}

#[test]
fn credits_are_piggybacked_on_packets_to_the_sender() {
    // [MS-R5]
    let plan = Plan::new(Tree::Flat, 2);
    let mut world = World::new(flat(Machine::fits(), &plan, 3 * 1536, Primitive::MultiSend));
    world.run().unwrap();
    // The answer carried all three credits, and no other packet was sent.
    assert_eq!(world.nodes[0].host.credits[1], Machine::fits().credits);
    assert_eq!(world.nodes[1].nic.copies, 1);
}

#[test]
fn only_credits_are_accepted_while_an_open_stream_is_blocked() {
    // [MS-S04], [MS-R14]
    let plan = Plan::new(Tree::Flat, 3);
    let mut locked = flat(Machine::fits(), &plan, 1536, Primitive::MultiSend);
    let taken = |test: Test<'_>| {
        let mut world = World::new(test);
        let host = &mut world.nodes[1].host;
        host.credits = vec![0; 3];
        host.outgoing.push_back(Outgoing { kind: Kind::Data, to: To::One(2), bytes: 9 });
        world.run();
        world.nodes[1].host.delivered.is_some()
    };
    assert!(!taken(locked.clone()));
    locked.forwarding = Forwarding::Packetwise;
    assert!(taken(locked));
}

#[test]
fn the_payload_is_written_once_for_any_number_of_destinations() {
    // [MS-S02]
    for destinations in [1, 2, 15] {
        let plan = Plan::new(Tree::Flat, destinations + 1);
        let written = |primitive| {
            let mut world = World::new(flat(Machine::whole(), &plan, 5000, primitive));
            world.run().unwrap();
            world.nodes[0].host.bytes_written
        };
        assert_eq!(written(Primitive::MultiSend), 5000);
        assert_eq!(written(Primitive::Unicast), 5000 * u64::from(destinations));
    }
}

#[test]
fn unicast_time_does_not_depend_on_the_header_patch_cost() {
    // [MS-S03], [MS-R10]: unicast takes the same time whatever a header costs.
    let time = |patch| {
        let machine = Machine { patch, ..Machine::whole() };
        ToEach::new(machine, 15, 40).time(Primitive::Unicast)
    };
    assert_eq!(time(Patch::None), time(Patch::After(Span::from_ns(9000))));
}

#[test]
fn copies_leave_in_the_order_of_the_firmware() {
    let plan = Plan::new(Tree::Binomial, 8);
    let mut world = World::new(flat(Machine::fits(), &plan, 0, Primitive::MultiSend));
    world.run_out().unwrap();
    let at = |node: usize| world.nodes[node].host.delivered.unwrap();
    assert!(plan.children(0).eq([4, 2, 1]));
    assert!(at(4) < at(2) && at(2) < at(1));
    assert_eq!(plan.last_leaves(), [1, 3, 5, 7]);
}

#[test]
fn full_send_queue_stalls_the_host() {
    let one = Machine { frames: 1, ..Machine::whole() };
    let time = |machine| ToEach::new(machine, 15, 8192).time(Primitive::MultiSend);
    let (stopped, usual) = (time(one), time(Machine::whole()));
    assert!(stopped > usual, "{stopped} {usual}");
}

#[test]
fn results_do_not_depend_on_the_number_of_credits_and_frames() {
    let usual = Machine::whole();
    let more = Machine { credits: 1000, credits_owed_max: 500, frames: 100, ..usual };
    for nodes in [4, 16] {
        let best = |machine| Multicast::assisted(machine, nodes, 16 << 10).best();
        assert_eq!(best(usual), best(more));
    }
    let time = |machine| ToEach::new(machine, 15, 16 << 10).time(Primitive::MultiSend);
    assert_eq!(time(usual), time(more));
}

#[test]
fn one_iteration_equals_the_mean_of_many() {
    // With enough credits that none must return in a separate packet.
    let (credits, credits_owed_max) = (1 << 20, 1 << 20);
    let machine = Machine { credits, credits_owed_max, ..Machine::whole() };
    let test = ToEach::new(machine, 15, 4096);
    for primitive in [Primitive::MultiSend, Primitive::Unicast] {
        let mean = ToEach { iterations: 50, ..test }.time(primitive);
        assert_eq!(mean, test.time(primitive));
    }
}

#[test]
fn pipelining_gains_nothing_for_one_packet_and_much_for_many() {
    let tree = Tree::Postal { lambda: Lambda::whole(2) };
    let plan = Plan::new(tree, 16);
    let gain = |bytes| {
        let piped = Multicast::assisted(Machine::whole(), 16, bytes);
        piped.not_pipelined().time(&plan).as_us() / piped.time(&plan).as_us()
    };
    assert!((gain(1536) - 1.0).abs() < 1e-9);
    assert!(gain(16 << 10) > 1.5, "{}", gain(16 << 10));
}

#[test]
fn receivers_with_one_processor_are_slower_than_with_two() {
    // [MS-R24]: the longest time of a leaf, with the best lambda.
    use omnes_sim::testbed::Processors;
    let one = Machine::whole();
    let two = Machine { processors: Processors::Two, ..one };
    let time = |machine| Multicast::assisted(machine, 16, 4096).best().time;
    assert!(time(one) > time(two));
}

#[test]
fn emulated_targets_are_met_or_explained() {
    let mut met = 0;
    for target in crate::targets() {
        let Some(finding) = super::find(target) else { continue };
        println!("{} {:?} {:?}\n    {}", target.id, finding.ours, finding.verdict, finding.note);
        match finding.verdict {
            Verdict::Met => met += 1,
            Verdict::Explained(_) => assert_eq!(target.id, "MS-M10"),
            Verdict::NotComputed(_) => assert_eq!(target.id, "MS-M14"),
            Verdict::Missed => panic!("{} {:?}", target.id, finding.ours),
        }
    }
    assert_eq!(met, 18);
    assert!(super::find(Target::find("MS-M13").unwrap()).is_none());
}

#[test]
fn stated_points_lie_on_the_curves() {
    for figure in super::figures() {
        assert!(figure.series.iter().all(|series| series.points.len() > 4), "{}", figure.title);
        for mark in &figure.stated {
            let is_near = |series: &crate::Series| {
                series.points.iter().any(|(x, y)| *x == mark.x && (y - mark.y).abs() < 0.5)
            };
            assert!(figure.series.iter().any(is_near), "{} {}", figure.title, mark.id);
        }
    }
}
