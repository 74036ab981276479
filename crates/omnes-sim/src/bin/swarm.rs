//! Runs many seeds of the swarm on all cores: `swarm --seeds 10000 [--from 0]`, or repeats one:
//! `swarm --seed 7 --trace`. The seeds are those of channels unless `--machine broadcast`,
//! `--machine collective` or `--machine all` is given.
//!
//! The result goes to standard output, progress and failures to standard error. Exit code 0 if all
//! seeds passed, 1 if one failed, 2 for invalid arguments.

use omnes_sim::Printing;
use omnes_sim::swarm::{Machine, Passed, run_seed};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const USAGE: &str = "usage: swarm --seeds COUNT [--from SEED] | swarm --seed SEED [--trace]
with --machine channel (usual), broadcast, collective or all (also called both)";
/// Command that runs this program.
const REPLAY: &str = "cargo run -p omnes-sim --bin swarm --";
/// Failures printed in full.
const REPORTS_MAX: u64 = 3;

struct Arguments {
    seeds: u64,
    from: u64,
    trace: Printing,
    machines: Vec<Machine>,
}

impl Arguments {
    fn runs(&self) -> u64 {
        self.seeds * self.machines.len() as u64
    }
}

fn arguments() -> Option<Arguments> {
    let machines = vec![Machine::Channel];
    let mut arguments = Arguments { seeds: 0, from: 0, trace: Printing::Last, machines };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--from" => arguments.from = number()?,
            "--seed" => {
                arguments.from = number()?;
                arguments.seeds = 1;
            }
            "--machine" => {
                let name = words.next()?;
                let is_meant =
                    |machine: &Machine| machine.name() == name || name == "all" || name == "both";
                arguments.machines = Machine::ALL.into_iter().filter(is_meant).collect();
                if arguments.machines.is_empty() {
                    return None;
                }
            }
            "--trace" => arguments.trace = Printing::All,
            _ => return None,
        }
    }
    (arguments.seeds > 0).then_some(arguments)
}

/// State shared by all threads.
struct Progress {
    next: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    events: AtomicU64,
    /// Longest time that a run took to settle in a healed network, in milliseconds, and its name.
    slowest: Mutex<(u128, String)>,
}

fn work(arguments: &Arguments, progress: &Progress) {
    loop {
        let index = progress.next.fetch_add(1, Ordering::Relaxed);
        if index >= arguments.runs() {
            return;
        }
        let count = arguments.machines.len() as u64;
        let seed = arguments.from + index / count;
        let machine = arguments.machines[(index % count) as usize];
        let name = format!("--seed {seed} --machine {}", machine.name());
        match run_seed(machine, seed, arguments.trace) {
            Ok(passed) => {
                progress.events.fetch_add(passed.events, Ordering::Relaxed);
                note_slowest(progress, name, &passed);
                if arguments.seeds == 1 {
                    say(&format!("trace hash {:016x}", passed.trace_hash));
                }
            }
            Err(report) => {
                if progress.failed.fetch_add(1, Ordering::Relaxed) < REPORTS_MAX {
                    eprintln!("{report}again: {REPLAY} {name} --trace\n");
                } else {
                    let first = report.lines().next().unwrap_or_default();
                    eprintln!("{first}");
                }
            }
        }
        let done = progress.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(1000) {
            eprintln!("{done} of {} seeds", arguments.runs());
        }
    }
}

/// Prints a result; a reader that closes the pipe is not a failure.
fn say(result: &str) {
    let _ = writeln!(std::io::stdout(), "{result}");
}

fn note_slowest(progress: &Progress, name: String, passed: &Passed) {
    let time_ms = passed.settled_after.as_millis();
    let Ok(mut slowest) = progress.slowest.lock() else { return };
    if time_ms > slowest.0 {
        *slowest = (time_ms, name);
    }
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A failing seed is reported with its options; the panic message itself would be a duplicate.
    std::panic::set_hook(Box::new(|_| {}));
    let progress = Progress {
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        events: AtomicU64::new(0),
        slowest: Mutex::new((0, String::new())),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(arguments.runs() as usize) {
            scope.spawn(|| work(&arguments, &progress));
        }
    });
    let failed = progress.failed.load(Ordering::Relaxed);
    eprintln!("{} events", progress.events.load(Ordering::Relaxed));
    if let Ok(slowest) = progress.slowest.lock() {
        eprintln!("slowest to settle: {} after {} ms", slowest.1, slowest.0);
    }
    say(&format!("{} seeds passed, {failed} failed", arguments.runs() - failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
