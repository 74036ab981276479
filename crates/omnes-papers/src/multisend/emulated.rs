//! Multi-send: Fast Messages on Myrinet, packet by packet through modelled resources.
//!
//! Hosts write frames, NICs send copies and move packets, hosts receive them; credits and the send
//! queue's frames are counted; see [`world`] for the path of a packet. The firmware
//! (`omnes_firmware::multisend`) determines the receiver of each copy; trees are those of
//! `omnes-topo`. No time is computed by a formula: the formulas of `closed.rs` result from the
//! events, to the picosecond.
//!
//! Two machines are used, see [`machine`]:
//!
//! | | `fits` | `whole` |
//! |---|---|---|
//! | `t_send`, `t_xmit`, `t_recv` | given [MS §2] | given [MS §2] |
//! | receiving, NIC and host | all the NIC's; MS-F30 varies it | divided by PCI's speed: assumed |
//! | NIC's processors | both directions concurrently | one: assumed from [MS §5] |
//! | changing a header | no time | `t_send(32)`, beside the copy: calibrated on MS-M02 |
//! | credits, frames | assumed | assumed; enough of them, so nothing depends on it |
//!
//! `fits` serves for results derived from the fits (MS-F26 to F30), `whole` for measured results.
//! Calibration: MS-M02 alone, so meeting it is no confirmation. Validation: MS-M01 and MS-M03 to
//! M12, where M11 adds that multicast breaks even at the same size as multi-send.
//!
//! Baselines: the host's binomial tree forwards whole messages; the paper does not say whether it
//! did. An iteration begins on a quiet network, so one stands for the mean of 1,000.
//! Not done: contention in the network, which one switch does not have [MS (d)]; the rival schemes
//! that multicast in the NIC.

mod curves;
mod machine;
mod node;
mod plan;
mod study;
#[cfg(test)]
mod tests;
mod world;

use crate::{Figure, Finding, Target, Tolerance, Value};
use machine::{Machine, Patch};
use omnes_sim::engine::Span;
use omnes_sim::testbed::Testbed;
use omnes_topo::Tree;
use plan::Plan;
use study::{Multicast, ToEach};
use world::{Forwarding, Primitive, Test, World};

/// The message size with the most statements.
const LONG: u64 = 16 << 10;
/// The message size of the conclusions.
const SHORTER: u64 = 8 << 10;
/// Destinations of MS-M01: all nodes but the root.
const DESTINATIONS: u32 = 15;
/// Sizes of the measured groups.
const GROUPS: [u32; 3] = [4, 8, 16];
/// Sizes of messages of one packet.
const SHORT: [u64; 10] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1536];
/// Sizes of messages of several packets.
const MANY: [u64; 4] = [2048, 4096, 8192, LONG];
/// Shares of t_recv that are tried as the host's, in percent.
const SHARES: [u64; 5] = [0, 25, 50, 75, 100];
/// Iterations where one is not enough: credits return in the second at the earliest.
const ITERATIONS: u32 = 100;

/// The finding of a target that is simulated.
pub(super) fn find(target: &Target) -> Option<Finding> {
    let judged = |ours: f64| Finding::judged(target, ours);
    Some(match target.id.as_str() {
        "MS-F26" => judged(ToEach::new(Machine::fits(), DESTINATIONS, LONG).gain()),
        "MS-F27" => judged(stored(Machine::fits(), 4).gain()),
        "MS-F28" => with_lambda(target, stored(Machine::fits(), 8)),
        "MS-F29" => with_lambda(target, stored(Machine::fits(), 16)),
        "MS-F30" => host_shares(target),
        "MS-M01" => many_destinations(target),
        "MS-M02" => break_even(target),
        "MS-M03" => with_lambda(target, piped(4, LONG)),
        "MS-M04" => by_share(target, LONG),
        "MS-M05" => by_share(target, SHORTER),
        "MS-M06" => with_lambda(target, stored(Machine::whole(), 8)),
        "MS-M07" => with_lambda(target, stored(Machine::whole(), 16)),
        "MS-M08" => pipelining(target),
        "MS-M09" => Finding::judged(target, [2048, 1536].map(|bytes| piped(16, bytes).gain())),
        "MS-M10" => over_binomial(target),
        "MS-M11" => over_host_best(target),
        "MS-M12" => host_lambda(target),
        "MS-S02" => writes_per_payload(target),
        "MS-S03" => checks_before_unicast(target),
        "MS-M14" => Finding::not_computed(
            "a figure of another system, quoted there: multicast by the NIC alone is not modelled",
        ),
        _ => return None,
    })
}

/// Curves of the simulations, with the points that the paper states.
pub(super) fn figures() -> Vec<Figure> {
    curves::all()
}

/// The long message, forwarded as a whole.
fn stored(machine: Machine, nodes: u32) -> Multicast {
    Multicast::assisted(machine, nodes, LONG).not_pipelined()
}

/// A message forwarded packet by packet, on the whole machine.
fn piped(nodes: u32, bytes: u64) -> Multicast {
    Multicast::assisted(Machine::whole(), nodes, bytes)
}

fn with_lambda(target: &Target, multicast: Multicast) -> Finding {
    let best = multicast.best();
    let note = format!("best of lambda 1 to {}: {}", multicast.nodes, best.lambda);
    Finding::judged(target, multicast.gain()).noting(note)
}

/// Gains of pipelining on 16 nodes, with an increasing share of t_recv done by the host.
fn gains_by_share(bytes: u64) -> [f64; SHARES.len()] {
    SHARES.map(|percent| {
        Multicast::assisted(Machine::fits().with_host_share(percent), 16, bytes).gain()
    })
}

fn host_shares(target: &Target) -> Finding {
    let gains = gains_by_share(LONG);
    let shorter = range(&gains_by_share(SHORTER));
    Finding::judged(target, [gains[SHARES.len() - 1], gains[0]]).noting(format!(
        "all of t_recv the forwarding host's, and none. The stated lower end counts the host's \
         part twice, in the latency and again in the processor's time; counted once it is ours. \
         With 8 KB {shorter}"
    ))
}

fn many_destinations(target: &Target) -> Finding {
    let test = ToEach::new(Machine::whole(), DESTINATIONS, LONG);
    let after = ToEach { machine: test.machine.patching_after(), ..test }.gain();
    let again = ToEach { iterations: ITERATIONS, ..test }.gain();
    Finding::judged(target, test.gain()).noting(format!(
        "{after:.3} if headers are changed after each copy and not beside it; {again:.3} as the \
         mean of {ITERATIONS} iterations, in which credits come back in packets of their own"
    ))
}

/// The smallest size at which multi-send does not lose, for all numbers of destinations.
fn break_even(target: &Target) -> Finding {
    let sizes = [3, 7, 15].map(|destinations| {
        let wins = |bytes: &u64| ToEach::new(Machine::whole(), destinations, *bytes).gain() >= 1.0;
        (0..=128).find(wins).unwrap_or(u64::MAX)
    });
    let largest = sizes.into_iter().max().unwrap_or_default();
    Finding::judged(target, largest as f64).noting(format!(
        "calibrated on this, so no confirmation: a header takes as long as makes it so; {sizes:?} \
         bytes to 3, 7 and 15 destinations"
    ))
}

fn by_share(target: &Target, bytes: u64) -> Finding {
    let multicast = piped(16, bytes);
    Finding::judged(target, multicast.gain()).noting(format!(
        "lambda {}; with nothing but the fits {}, by how much of t_recv is the forwarding \
             host's",
        multicast.best().lambda,
        range(&gains_by_share(bytes)),
    ))
}

/// The largest gain of pipelining in cases where there should be none.
fn pipelining(target: &Target) -> Finding {
    let short = GROUPS.into_iter().flat_map(|nodes| SHORT.map(|bytes| (nodes, bytes)));
    let flat = MANY.map(|bytes| (4, bytes));
    let gain = |(nodes, bytes)| {
        let piped = piped(nodes, bytes);
        study::ratio(piped.not_pipelined().best().time, piped.best().time) - 1.0
    };
    let largest = short.chain(flat).map(gain).fold(f64::MIN, f64::max);
    let long = (100.0 * gain((16, LONG))).round();
    Finding::judged(target, largest)
        .noting(format!("against {long} % for 16 KB on 16 nodes, where there is something to gain"))
}

fn over_binomial(target: &Target) -> Finding {
    let sizes = [&SHORT[..], &MANY[..]].concat();
    let least = GROUPS.map(|nodes| over_sizes(nodes, &sizes, Multicast::gain).0);
    let ties = SHORT.map(|bytes| piped(4, bytes).gain()).into_iter().filter(|gain| *gain == 1.0);
    let fits = SHORT.map(|bytes| Multicast::assisted(Machine::fits(), 4, bytes).gain());
    Finding::judged(target, least)
        .explained(
            (Tolerance::AtLeast(1.0), [1.0; 3]),
            format!(
                "equal on 4 nodes at the {} smallest sizes, else better: a flat tree loses there \
                 for the reason that it does in MS-M11, and in the binomial tree the slowest path \
                 has first copies only, which take the same time",
                ties.count()
            ),
        )
        .noting(format!(
            "the least of 4 bytes to 16 KB on 4, 8 and 16 nodes; with nothing but the fits, one \
             packet to 4 nodes gains {}",
            range(&fits)
        ))
}

fn over_host_best(target: &Target) -> Finding {
    let below: Vec<u64> = (0..machine::BREAK_EVEN_BYTES).collect();
    let gains = |sizes: &[u64]| GROUPS.map(|it| over_sizes(it, sizes, Multicast::gain_over_best));
    let at = gains(&[machine::BREAK_EVEN_BYTES]).map(|(least, _)| least);
    let least = gains(&below).map(|(least, _)| least);
    let most = gains(&below).map(|(_, most)| most);
    Finding::judged(target, most).noting(format!(
        "the most of 0 to 31 bytes on 4, 8 and 16 nodes; the least {}, and at 32 bytes {}",
        range(&least),
        range(&at)
    ))
}

/// Smallest and largest gain over these sizes, pipelined.
fn over_sizes(nodes: u32, sizes: &[u64], gain: impl Fn(Multicast) -> f64) -> (f64, f64) {
    let gains: Vec<f64> = sizes.iter().map(|bytes| gain(piped(nodes, *bytes))).collect();
    ends(&gains)
}

/// The lambda of the host's best tree, if it is the same for all messages of several packets.
fn host_lambda(target: &Target) -> Finding {
    let mut found: Vec<f64> = Vec::new();
    for (nodes, bytes) in GROUPS.into_iter().flat_map(|nodes| MANY.map(|bytes| (nodes, bytes))) {
        let piped = piped(nodes, bytes).by_host();
        found.extend([piped, piped.not_pipelined()].map(|it| f64::from(it.best().lambda)));
    }
    found.dedup();
    let ours = match found[..] {
        [only] => Value::Number(only),
        _ => Value::Numbers(found),
    };
    Finding::judged(target, ours).noting("2 to 16 KB on 4, 8 and 16 nodes, pipelined and not")
}

/// Formats the range from the smallest to the largest.
fn range(numbers: &[f64]) -> String {
    let (least, most) = ends(numbers);
    format!("{least:.3} to {most:.3}")
}

fn ends(numbers: &[f64]) -> (f64, f64) {
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    (least, numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// Number of times that the host writes a payload, for any number of destinations.
fn writes_per_payload(target: &Target) -> Finding {
    let mut most = 0.0_f64;
    for destinations in [1, 5, 31] {
        let plan = Plan::new(Tree::Flat, destinations + 1);
        let mut world = World::new(Test {
            machine: Machine::whole(),
            plan: &plan,
            bytes: LONG,
            primitive: Primitive::MultiSend,
            forwarding: Forwarding::WholeMessage,
            replier: destinations as usize,
            iterations: 1,
        });
        if world.run().is_none() {
            return Finding::seen(target, Err("the run stops".to_owned()));
        }
        most = most.max(world.nodes[0].host.bytes_written as f64 / LONG as f64);
    }
    Finding::judged(target, most).noting("1, 5 and 31 destinations")
}

/// Number of checks for further destinations that a unicast packet waits for: the increase of its
/// latency if each check takes some time, less than a packet's time in transit.
fn checks_before_unicast(target: &Target) -> Finding {
    let check = Span::from_ns(1000);
    let time = |look, patch| {
        let machine = Machine { look, patch, ..Machine::whole() };
        ToEach::new(machine, DESTINATIONS, LONG).time(Primitive::Unicast)
    };
    let longer = time(check, Patch::After(check)).as_us() - time(Span::ZERO, Patch::None).as_us();
    Finding::judged(target, longer / check.as_us()).noting(
        "of the NIC simulated here; the kernel's hook first compares type, protocol and port",
    )
}

/// The testbed that is not built in.
pub(super) fn testbed() -> Testbed {
    machine::parted()
}
