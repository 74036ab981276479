//! Chores of the Omnes workspace: `cargo xtask NAME`.
//!
//! `ci` is what continuous integration runs and nothing else; the other chores are its parts, or
//! take longer than a check may. A chore that finds something prints one line per finding, as
//! `path:line: what`, and exits with status 1; status 2 means that the chore itself could not run.
//!
//! Sources are read by a small tokenizer (`source`), not by a parser: it knows comments, strings
//! and braces, which is all that lengths, markers and banned names need. Code inside macros is read
//! as plain code.

mod arrows;
mod ci;
mod markers;
mod modules;
mod purity;
mod sanitize;
mod source;
mod tidy;
mod workspace;

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::process::{Command, ExitCode};
use workspace::Workspace;

/// Chores of the Omnes workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Every check and every test, as continuous integration runs them
    Ci,
    /// Check that crates depend on each other only in the allowed direction
    Arrows,
    /// Check lengths, widths, banned words and dead files
    Tidy,
    /// Check that docs/PROTOCOLS.md says which requirement is met and tested where
    Markers(markers::Args),
    /// Check that the pure crates use no clock, thread, socket or hash map
    Purity,
    /// Fuzz one target, or each in turn (needs `make setup-fuzz`)
    Fuzz {
        /// Time for each target, in seconds
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// `header`, `channel`, `broadcast` or `collective`; all of them if omitted
        target: Option<String>,
    },
    /// Look for data races and missing memory orderings (needs `make setup-fuzz`)
    Sanitize(sanitize::Args),
    /// Run the simulator over many seeds
    Swarm {
        /// Number of seeds
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
    },
    /// Run the benchmarks; arguments go to tools/bench.sh
    Bench {
        /// Passed on as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().chore) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one chore; true if it found nothing.
fn run(chore: Chore) -> anyhow::Result<bool> {
    let workspace = Workspace::load()?;
    match chore {
        Chore::Ci => ci::run(&workspace),
        Chore::Arrows => Ok(report("arrows", &arrows::findings(&workspace))),
        Chore::Tidy => tidy::run(&workspace),
        Chore::Markers(args) => markers::run(&workspace, &args),
        Chore::Purity => purity::run(&workspace),
        Chore::Fuzz { seconds, target } => fuzz(&workspace, seconds, target),
        Chore::Sanitize(args) => sanitize::run(&workspace, &args),
        Chore::Swarm { seeds } => swarm(&workspace, seeds),
        Chore::Bench { arguments } => {
            succeeds(Command::new(workspace.root.join("tools/bench.sh")).args(arguments))
        }
    }
}

/// Prints the findings of a check to stderr, or one line if it has none; true if it has none.
fn report(check: &str, findings: &[String]) -> bool {
    for finding in findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => eprintln!("{check}: ok"),
        count => eprintln!("{check}: {count} to mend"),
    }
    findings.is_empty()
}

/// Runs a command with our input and output; true if its status is 0.
///
/// Errors if the command cannot be started, naming it.
fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    Ok(status.success())
}

fn fuzz(workspace: &Workspace, seconds: u64, target: Option<String>) -> anyhow::Result<bool> {
    let all = ["header", "channel", "broadcast", "collective"];
    let targets = match &target {
        None => all.to_vec(),
        Some(name) if all.contains(&name.as_str()) => vec![name.as_str()],
        Some(name) => anyhow::bail!("no fuzz target `{name}`; there are {}", all.join(", ")),
    };
    for target in targets {
        // libfuzzer writes its findings to the first folder: the checked-in corpus stays small.
        let found = workspace.root.join("fuzz/target/corpus").join(target);
        std::fs::create_dir_all(&found).with_context(|| format!("{}", found.display()))?;
        let passed = succeeds(
            Command::new("rustup")
                .args(["run", "nightly", "cargo", "fuzz", "run", target])
                .arg(&found)
                .arg(workspace.root.join("fuzz/corpus").join(target))
                .arg("--")
                .arg(format!("-max_total_time={seconds}"))
                .current_dir(&workspace.root),
        )?;
        if !passed {
            return Ok(false);
        }
    }
    Ok(true)
}

fn swarm(workspace: &Workspace, seeds: u64) -> anyhow::Result<bool> {
    succeeds(
        workspace
            .cargo()
            .args(["run", "--release", "--package", "omnes-sim", "--bin", "swarm", "--"])
            .args(["--machine", "both", "--seeds", &seeds.to_string()]),
    )
}
