//! A small swarm: several seeds with everything drawn, and repeatability from the seed alone.

#![allow(clippy::unwrap_used)]

use omnes_sim::Printing;
use omnes_sim::swarm::{Machine, run_seed};

/// The seeds whose traces are kept: with loss, corruption and delays, each of about 10,000 events.
const GOLDEN: [(Machine, u64, &str); 3] = [
    (Machine::Channel, 32, "seed-32.txt"),
    (Machine::Broadcast, 24, "broadcast-seed-24.txt"),
    (Machine::Collective, 24, "collective-seed-24.txt"),
];

fn two_hundred_seeds_pass(machine: Machine) {
    for seed in 0..200 {
        if let Err(report) = run_seed(machine, seed, Printing::Last) {
            let name = machine.name();
            panic!("{report}replay: swarm --seed {seed} --machine {name} --trace");
        }
    }
}

#[test]
fn two_hundred_seeds_of_channels_pass() {
    two_hundred_seeds_pass(Machine::Channel);
}

#[test]
fn two_hundred_seeds_of_broadcasts_pass() {
    two_hundred_seeds_pass(Machine::Broadcast);
}

#[test]
fn two_hundred_seeds_of_barriers_pass() {
    two_hundred_seeds_pass(Machine::Collective);
}

#[test]
fn same_seed_gives_the_same_trace() {
    for machine in Machine::ALL {
        for seed in 0..20 {
            let run = || run_seed(machine, seed, Printing::Last).unwrap();
            assert_eq!(run(), run(), "seed {seed}");
        }
    }
}

#[test]
fn debug_and_release_give_the_same_trace() {
    for (machine, seed, file) in GOLDEN {
        let passed = run_seed(machine, seed, Printing::Last).unwrap();
        let text = format!("trace_hash {:016x} events {}\n", passed.trace_hash, passed.events);
        let path = format!("{}/golden/{file}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("OMNES_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, golden, "if the machines changed on purpose: OMNES_BLESS=1 cargo test");
    }
}
