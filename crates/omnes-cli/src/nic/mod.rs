//! `omnes nic`: the kernel NIC on this machine: attached programs, owners of slots and their
//! counters; attaching and detaching.
//!
//! Attached programs are read from the kernel, including those of processes that load the firmware
//! themselves and leftovers of killed processes (root only); slots and counters are read from the
//! agent `omnesd`. Only this network namespace is covered. Exit status: 0 done, 2 usage or
//! environment, 77 cannot run here.

mod hands;
mod list;
mod stat;
mod survey;

use crate::format::FormatArgs;
use crate::lab::status_of;
use crate::stat::parse_interval;
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  omnes nic list          # agent, interfaces, slots of this network
  omnes nic stat --watch  # counters of the slots, again every second
  omnes nic attach eth0   # let the agent serve eth0, or start an agent
  omnes nic detach eth0   # remove the program from eth0, leftovers too

`omnes doctor` says whether jobs can use the program here, and if not, why.";

/// Inspect, attach and detach the eBPF program that runs barriers in the kernel.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the agent, the interfaces with the program attached, and the slots and their owners
    #[command(after_help = "Examples:
  omnes nic list
  omnes nic list --json | jq '.agent.slots[]? | {job, rank, pid}'

An ordinary user sees the agent's interfaces and the slots of their own
processes. Root sees everything, including programs that processes have loaded
themselves (attached by pid N) and filters that a killed process has left
behind on a kernel without tcx (left behind).")]
    List {
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Show the program's counters for each slot
    #[command(after_help = "Examples:
  omnes nic stat
  omnes nic stat --watch 5
  omnes nic stat --json | jq 'select(.counters.bad_tags > 0)'

Columns: barriers (number of the latest completed one); in, out (steps
received and sent); again (steps sent again because a rank lacked them);
twice, useless, nonsense, bad tag (steps received and dropped); wakes (packets
that woke the process); clones, failed (copies of multi-send packets). With
--watch, barriers, in and out are per second. JSON always has the counters
themselves, one slot per line.")]
    Stat {
        /// Repeat at this interval: seconds, or a time such as 500ms
        #[arg(
            long,
            value_name = "SECONDS",
            num_args = 0..=1,
            default_missing_value = "1",
            value_parser = parse_interval
        )]
        watch: Option<Duration>,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Let the agent attach the program to interfaces; start an agent if there is none
    #[command(after_help = "Examples:
  omnes nic attach eth0
  omnes nic attach eth0 eth1

Needs root. An agent that is started here serves these interfaces only, in the
background, until `omnes nic detach --all --end` or a signal; its log is in
/run/omnes. dist/omnesd.service starts an agent with the machine.")]
    Attach {
        /// Names of interfaces
        #[arg(required = true, value_name = "INTERFACE")]
        interfaces: Vec<String>,
    },
    /// Detach the program from interfaces, including leftovers of killed processes
    #[command(after_help = "Examples:
  omnes nic detach eth0
  omnes nic detach --all
  omnes nic detach --all --end --force  # end the agent too

Needs root. The agent does not use the interface again until `omnes nic
attach`. Programs that a running process has loaded itself remain until that
process ends.")]
    Detach {
        /// Names of interfaces
        #[arg(required_unless_present = "all", value_name = "INTERFACE")]
        interfaces: Vec<String>,
        /// All interfaces of this network namespace
        #[arg(long, conflicts_with = "interfaces")]
        all: bool,
        /// Detach even if slots are lent there; jobs that use them lose them
        #[arg(long)]
        force: bool,
        /// Also end the agent
        #[arg(long, requires = "all")]
        end: bool,
    },
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let done = match args.verb {
        Verb::List { format } => list::show(format.chosen()),
        Verb::Stat { watch, format } => stat::show(watch, format.chosen()),
        Verb::Attach { interfaces } => hands::attach(&interfaces),
        Verb::Detach { interfaces, all, force, end } => {
            hands::detach(&hands::Wanted { interfaces, is_all: all, by_force: force, ends: end })
        }
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => status_of(error),
    }
}
