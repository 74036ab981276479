//! `omnes nic`: the kernel's network interface on this machine: what is attached, who has slots,
//! what they count; attaching and detaching.
//!
//! What is attached is asked of the kernel, so that also programs of processes that load the
//! firmware themselves and leftovers of killed ones are seen (root only); slots and counters are
//! asked of the agent `omnesd`. Only this network namespace is looked at. Exit status: 0 done, 2
//! usage or environment, 77 cannot run here.

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
  omnes nic attach eth0   # let the agent serve eth0, or start one
  omnes nic detach eth0   # take the firmware off eth0, leftovers too

Whether a job uses the kernel's network interface, and why not: omnes doctor.";

/// Look at the kernel's network interface, attach and detach it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the agent, what is attached where, and the slots with their owners
    #[command(after_help = "Examples:
  omnes nic list
  omnes nic list --json | jq '.agent.slots[] | {job, rank, pid}'

An ordinary user sees the agent's interfaces and the slots of his own
processes; root sees all, also programs that processes have loaded themselves
(attached by pid N) and filters that a killed process has left on a kernel
without tcx (left behind).")]
    List {
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Show what the firmware counts for each slot
    #[command(after_help = "Examples:
  omnes nic stat
  omnes nic stat --watch 5
  omnes nic stat --json | jq 'select(.counters.bad_tags > 0)'

Columns: barriers (number of the newest that is done); in, out (steps); again
(steps sent again because somebody missed them); twice, useless, nonsense, bad
tag (steps that came in and were dropped); wakes (packets that woke the
process); clones, failed (copies of packets to all). With --watch, barriers,
in and out are per second. JSON has the numbers themselves, one slot per line.")]
    Stat {
        /// Keep showing: seconds between two looks, or a time such as 500ms
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
    /// Let the agent attach the firmware to interfaces; starts an agent if there is none
    #[command(after_help = "Examples:
  omnes nic attach eth0
  omnes nic attach eth0 eth1

Needs root. An agent that is started here serves these interfaces only, in the
background, until `omnes nic detach --all --end` or a signal; its log is in
/run/omnes. For one that starts with the machine: dist/omnesd.service.")]
    Attach {
        /// Names of interfaces
        #[arg(required = true, value_name = "INTERFACE")]
        interfaces: Vec<String>,
    },
    /// Take the firmware off interfaces, also what killed processes have left there
    #[command(after_help = "Examples:
  omnes nic detach eth0
  omnes nic detach --all
  omnes nic detach --all --end --force  # end the agent too

Needs root. The agent leaves the interface alone until `omnes nic attach`.
Programs that a living process has loaded itself stay: they go with the
process.")]
    Detach {
        /// Names of interfaces
        #[arg(required_unless_present = "all", value_name = "INTERFACE")]
        interfaces: Vec<String>,
        /// All interfaces of this network namespace
        #[arg(long, conflicts_with = "interfaces")]
        all: bool,
        /// Also if slots are lent there; their jobs lose them
        #[arg(long)]
        force: bool,
        /// End the agent, too
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
