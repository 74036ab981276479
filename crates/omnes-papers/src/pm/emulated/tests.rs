use super::*;
use crate::Verdict;
use omnes_sim::engine::Span;
use omnes_sim::testbed::Origin;

fn finding(id: &str) -> Finding {
    find(Target::find(id).expect("there is such a target")).expect("it is simulated")
}

#[test]
fn calibration_points_are_never_used_as_checks() {
    let constants = Constants::built_in();
    let points = constants.all.iter().flat_map(|constant| &constant.points);
    for point in points {
        assert!(!CHECKED.contains(&point.as_str()), "{point}");
        assert!(finding(point).note.contains("calibration point"), "{point}");
    }
}

#[test]
fn simulated_targets_are_met() {
    for id in CHECKED.into_iter().chain(["PM-M01", "PM-M02", "PM-C01a", "PM-C02b"]) {
        let finding = finding(id);
        assert_eq!(finding.verdict, Verdict::Met, "{id}: {:?}", finding.ours);
    }
}
/// A guessed constant, with its name and how to scale it.
type Guess = (&'static str, fn(&mut Constants, u64, u64));

const GUESSES: [Guess; 11] = [
    ("host.send", |it, by, over| it.host.send = scaled(it.host.send, by, over)),
    ("host.receive", |it, by, over| it.host.receive = scaled(it.host.receive, by, over)),
    ("host.descriptor_words", |it, by, over| {
        it.host.descriptor_words = it.host.descriptor_words * by / over;
    }),
    ("bus.burst_bytes", |it, by, over| it.bus.burst_bytes = it.bus.burst_bytes * by / over),
    ("bus.dma_start", |it, by, over| it.bus.dma_start = scaled(it.bus.dma_start, by, over)),
    ("nic.dispatch_instructions", |it, by, over| it.nic.dispatch = it.nic.dispatch * by / over),
    ("host.return_words", |it, by, over| {
        it.host.return_words = it.host.return_words * by / over;
    }),
    ("nic.engine_instructions", |it, by, over| it.nic.engine = it.nic.engine * by / over),
    ("nic.program_bytes", |it, by, over| it.nic.program_bytes = it.nic.program_bytes * by / over),
    ("link.frame_bytes", |it, by, over| it.link.frame_bytes = it.link.frame_bytes * by / over),
    ("link.switch", |it, by, over| it.link.switch = scaled(it.link.switch, by, over)),
];

fn scaled(span: Span, by: u64, over: u64) -> Span {
    Span::from_ps(span.as_ps() * by / over)
}

/// Adjusts the instructions of flow control so that 8 bytes take 24 us again.
fn refitted(constants: &Constants) -> Constants {
    let with = |flow| {
        let mut constants = constants.clone();
        constants.nic.flow = flow;
        constants
    };
    let off = |flow| (latency_us(&with(flow), Design::PM, 8) - 24.0).abs();
    let best = (8..36).min_by(|a, b| off(*a).total_cmp(&off(*b))).expect("there are some");
    assert!((9..35).contains(&best), "there may be a better one than {best}");
    with(best)
}

#[test]
fn all_assumed_constants_are_varied() {
    let constants = Constants::built_in().all.into_iter();
    let assumed = constants.filter(|constant| constant.origin == Origin::Assumed);
    let mut assumed: Vec<String> = assumed.map(|constant| constant.name).collect();
    let mut varied = GUESSES.map(|(name, _)| name.to_owned()).to_vec();
    assumed.sort();
    varied.sort();
    assert_eq!(assumed, varied);
}

#[test]
fn results_hold_with_assumed_constants_halved_or_doubled() {
    for (name, scale) in GUESSES {
        for (by, over) in [(1, 2), (2, 1)] {
            let mut constants = Constants::built_in();
            scale(&mut constants, by, over);
            let constants = refitted(&constants);
            let of = |design, bytes| rate(&constants, design, bytes);
            let pm = |bytes| of(Design::PM, bytes);
            let half = pm(PAGE) / 2.0;
            // Within 20 % of 300 bytes, or 25 % if starting an engine takes twice as long.
            let is_engine = name == "nic.engine_instructions" && by > over;
            let most = if is_engine { 375 } else { 360 };
            assert!(pm(240) < half && half < pm(most), "{name} {by}/{over}");
            assert!(of(IMMEDIATE, PAGE) > of(NEITHER, PAGE), "{name} {by}/{over}");
            assert!(pm(8) > of(IMMEDIATE, 8), "{name} {by}/{over}");
            let of = |copies| rate_each(&constants, Design::PM, PAGE, (RECEIVERS, copies));
            let gain = of(Copies::Resident) / of(Copies::Fetched);
            assert!((1.6..=2.4).contains(&gain), "{name} {by}/{over}: {gain}");
        }
    }
}
