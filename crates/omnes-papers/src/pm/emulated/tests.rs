use super::*;
use crate::Verdict;

fn finding(id: &str) -> Finding {
    find(Target::find(id).expect("there is such a target")).expect("it is simulated")
}

#[test]
fn nothing_is_checked_against_a_point_that_it_was_fitted_to() {
    let constants = Constants::built_in();
    let points = constants.all.iter().flat_map(|constant| &constant.points);
    for point in points {
        assert!(!CHECKED.contains(&point.as_str()), "{point}");
        assert!(finding(point).note.contains("calibration point"), "{point}");
    }
}

#[test]
fn all_that_is_simulated_is_met() {
    for id in CHECKED.into_iter().chain(["PM-M01", "PM-M02", "PM-C01a", "PM-C02b"]) {
        let finding = finding(id);
        assert_eq!(finding.verdict, Verdict::Met, "{id}: {:?}", finding.ours);
    }
}
/// A guess, by its name, and how to halve and double it.
type Guess = (&'static str, fn(&mut Constants, u64, u64));

const GUESSES: [Guess; 8] = [
    ("host.send", |it, by, over| it.host.send = scaled(it.host.send, by, over)),
    ("host.receive", |it, by, over| it.host.receive = scaled(it.host.receive, by, over)),
    ("host.descriptor_words", |it, by, over| {
        it.host.descriptor_words = it.host.descriptor_words * by / over;
    }),
    ("bus.burst_bytes", |it, by, over| it.bus.burst_bytes = it.bus.burst_bytes * by / over),
    ("bus.dma_start", |it, by, over| it.bus.dma_start = scaled(it.bus.dma_start, by, over)),
    ("nic.dispatch", |it, by, over| it.nic.dispatch = it.nic.dispatch * by / over),
    ("link.frame_bytes", |it, by, over| it.link.frame_bytes = it.link.frame_bytes * by / over),
    ("link.switch", |it, by, over| it.link.switch = scaled(it.link.switch, by, over)),
];

fn scaled(span: omnes_sim::engine::Span, by: u64, over: u64) -> omnes_sim::engine::Span {
    omnes_sim::engine::Span::from_ps(span.as_ps() * by / over)
}

/// With as many instructions of flow control as make 8 bytes take 24 us again.
fn refitted(constants: &Constants) -> Constants {
    let with = |flow| {
        let mut constants = constants.clone();
        constants.nic.flow = flow;
        constants
    };
    let off = |flow| (latency_us(&with(flow), Design::PM, 8) - 24.0).abs();
    let best = (10..34).min_by(|a, b| off(*a).total_cmp(&off(*b)));
    with(best.expect("there are some"))
}

#[test]
fn no_result_hangs_on_a_guess() {
    for (name, scale) in GUESSES {
        for (by, over) in [(1, 2), (2, 1)] {
            let mut constants = Constants::built_in();
            scale(&mut constants, by, over);
            let constants = refitted(&constants);
            let of = |design, bytes| rate(&constants, design, bytes);
            let pm = |bytes| of(Design::PM, bytes);
            let half = pm(PAGE) / 2.0;
            assert!(pm(240) < half && half < pm(360), "{name} {by}/{over}");
            assert!(of(IMMEDIATE, PAGE) > of(NEITHER, PAGE), "{name} {by}/{over}");
            assert!(pm(8) > of(IMMEDIATE, 8), "{name} {by}/{over}");
            let of = |copies| rate_each(&constants, Design::PM, PAGE, (RECEIVERS, copies));
            let gain = of(Copies::Resident) / of(Copies::Fetched);
            assert!((1.6..=2.4).contains(&gain), "{name} {by}/{over}: {gain}");
        }
    }
}
