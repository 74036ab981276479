//! The `omnes` command: launch ranks, also those of MPI programs, copy files to all of them,
//! measure, simulate, make a lab, look at the machine, its network interface and what its ranks are
//! doing, compute what the papers state.
//!
//! One module per subcommand; each has `Args` (what was typed) and `run` (what is done). Results
//! go to stdout, everything else to stderr. Exit status: 0 done, 1 a check failed, 2 usage or
//! environment, 77 cannot run here; `omnes run` returns the first failing rank's status,
//! `omnes mpirun` its launcher's.

mod bench;
mod complain;
mod cp;
mod doctor;
mod lab;
mod mpirun;
mod nic;
mod papers;
mod run;
mod sim;
mod stat;
mod tune;
mod units;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Collective communication for clusters on plain Ethernet.
#[derive(Parser)]
#[command(name = "omnes", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Mpirun(mpirun::Args),
    Cp(cp::Args),
    Bench(bench::Args),
    Sim(sim::Args),
    Lab(lab::Args),
    Nic(nic::Args),
    Doctor(doctor::Args),
    Stat(stat::Args),
    Tune(tune::Args),
    Papers(papers::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Mpirun(args) => mpirun::run(args),
        Command::Cp(args) => cp::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Nic(args) => nic::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Papers(args) => papers::run(args),
    };
    result.unwrap_or_else(|error| {
        complain::complain(format_args!("{error:#}"));
        ExitCode::from(2)
    })
}
