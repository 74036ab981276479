//! The `omnes` command: launches ranks, including those of MPI programs, copies files to all of
//! them, measures, simulates, creates labs, inspects the machine, its kernel NIC and its ranks, and
//! reproduces the results of the papers.
//!
//! One module per subcommand; each has `Args` (the options as typed) and `run` (the action).
//! Results go to stdout (see `print`), everything else to stderr. Exit status: 0 done, 1 a check
//! failed, 2 usage or environment, including output that cannot be written, 77 cannot run here;
//! `omnes run` returns the first failing rank's status, `omnes mpirun` its launcher's. A reader
//! that stops early (`| head`) is not a failure.

#![deny(clippy::print_stdout, reason = "all output goes through `print`")]

mod bench;
mod causes;
mod completions;
mod cp;
mod doctor;
mod environment;
mod files;
mod format;
mod help;
mod lab;
mod manual;
mod mounts;
mod mpirun;
mod nic;
mod papers;
mod print;
mod run;
mod sim;
mod stat;
mod stderr;
mod tune;
mod units;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  omnes doctor                         # what this machine allows
  omnes run -n 8 -- omnes bench bcast  # eight ranks on this machine
  omnes run -n 3 --hosts a,b,c -- omnes cp model.bin /data/model.bin
  omnes mpirun -n 16 ./solver          # an MPI program, unchanged
  omnes bench --help                   # options and examples of a command";

/// Collective communication for clusters on plain Ethernet.
#[derive(Parser)]
#[command(name = "omnes", version, max_term_width = 100, after_help = EXAMPLES)]
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
    Completions(completions::Args),
    Manual(manual::Args),
    /// End the processes that a launcher's ranks have started, if it is killed
    #[command(hide = true)]
    Warden,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return tell(&answer),
    };
    let result = match cli.command {
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
        Command::Completions(args) => completions::run(args),
        Command::Manual(args) => manual::run(args),
        Command::Warden => run::serve_warden(),
    };
    result.unwrap_or_else(|error| fail(&error))
}

/// Prints help and versions to stdout, as results, and usage errors to stderr.
fn tell(answer: &clap::Error) -> ExitCode {
    if answer.use_stderr() {
        // The ranks of a job mostly have the same command line; one of them prints the full usage.
        if std::env::var("OMNES_RANK").map_or(true, |rank| rank == "0") {
            // If stderr is closed, the error cannot be reported anywhere.
            let _ = answer.print();
        } else if let Some(what) = answer.to_string().lines().next() {
            stderr::write_line(format_args!("{what}"));
        }
        return ExitCode::from(2);
    }
    match print::settle(answer.print()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&error.into()),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    stderr::notice(format_args!("{}", causes::with_causes(error)));
    ExitCode::from(2)
}
