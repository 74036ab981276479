//! The swarm in small: some seeds with everything drawn, and that a seed is all there is.

#![allow(clippy::unwrap_used)]

use omnes_sim::Printing;
use omnes_sim::swarm::run_seed;

/// The seed whose trace is kept: loss, corruption and delays, in 13,000 events.
const GOLDEN_SEED: u64 = 24;
const GOLDEN_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/seed-24.txt");

#[test]
fn two_hundred_seeds_pass() {
    for seed in 0..200 {
        if let Err(report) = run_seed(seed, Printing::Last) {
            panic!("{report}replay: swarm --seed {seed} --trace");
        }
    }
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let run = || run_seed(seed, Printing::Last).unwrap();
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn debug_and_release_give_the_same_trace() {
    let passed = run_seed(GOLDEN_SEED, Printing::Last).unwrap();
    let text = format!("trace_hash {:016x} events {}\n", passed.trace_hash, passed.events);
    if std::env::var_os("OMNES_BLESS").is_some() {
        std::fs::write(GOLDEN_FILE, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN_FILE).unwrap();
    assert_eq!(text, golden, "if the machines changed on purpose: OMNES_BLESS=1 cargo test");
}
