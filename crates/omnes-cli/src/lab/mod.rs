//! `omnes lab`: a cluster of namespace hosts on this machine, with link faults on demand.
//!
//! Real kernel, real sockets, real loss: every host has its own network, host name, `/dev/shm` and
//! view of `/sys`, and all traffic between hosts passes through the switch. Other subcommands use
//! labs through [`Lab`]. Exit status: 0 done, 2 usage or environment, 77 cannot run here; `exec`
//! returns the status of its command.
//!
//! ```text
//! options --> cluster (Lab) --> namespace   hosts and switch
//!               |   |    +----> network     bridge, addresses, shaping
//!               |   +---------> firmware    loss, duplication; sends frames to be held to
//!               |               hold        delay, reordering (thread, or keeper process)
//!               +-- named, process          labs that outlive the command
//! ```

mod cluster;
mod firmware;
mod hold;
mod keeper;
mod list;
mod named;
mod namespace;
mod network;
mod options;
mod process;
mod stats;
mod sysfs;

pub use cluster::Lab;
pub use namespace::CannotRun;
pub use network::HOSTS_MAX;
pub use options::{LinkOptions, Switch};

use crate::causes::with_causes;
use crate::format::FormatArgs;
use crate::print;
use crate::stderr::notice;
use anyhow::{Context, Result};
use clap::Subcommand;
use options::Link;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Status of a command that cannot run here.
const STATUS_CANNOT_RUN: u8 = 77;

const EXAMPLES: &str = "\
Examples:
  omnes lab up 8 --rate 1gbit --loss 1%  # eight hosts, from 10.77.0.1 on
  omnes lab exec 0 -- ip address         # what host 0 sees
  omnes lab set --loss 0% --delay 50us   # change the links in use
  omnes lab list                         # the labs, and their hosts' counters
  omnes lab down                         # end all inside, remove the lab

Needs root and iproute2; link faults need a build with clang.";

/// Create a cluster of network-namespace hosts on this machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Args)]
struct Name {
    /// Name of the lab
    #[arg(long, default_value = "omnes", value_parser = named::parse_name)]
    name: String,
}

#[derive(Subcommand)]
enum Verb {
    /// Create a lab of N hosts that stays until `omnes lab down`
    #[command(after_help = "Examples:
  omnes lab up 8
  omnes lab up 16 --name big --rate 1gbit --delay 50us --loss 0.1%")]
    Up {
        /// Number of hosts, 1 to 250
        #[arg(value_name = "N")]
        hosts: usize,
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        link: LinkOptions,
    },
    /// End all processes in a lab and remove it; no error if it does not exist
    #[command(after_help = "Examples:
  omnes lab down
  omnes lab down --all")]
    Down {
        #[command(flatten)]
        name: Name,
        /// Remove every named lab, including damaged ones
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Run a command on a host and return its status
    #[command(after_help = "Examples:
  omnes lab exec 0 -- ip address
  omnes lab exec 3 --name big -- bash")]
    Exec {
        /// Host, from 0
        host: usize,
        #[command(flatten)]
        name: Name,
        /// Command with its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Show the labs that are up, their links and the counters of their hosts
    #[command(after_help = "Examples:
  omnes lab list
  omnes lab list --json

Of each host: packets and bytes that it has sent (tx) and received (rx);
packets that its link has lost (dropped), doubled, delayed and reordered on
the way to the switch, and lost on the way from it (receive dropped); packets
for which a queue of the lab had no room (queue drops).")]
    List {
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Change the links of a lab while it is in use; all other options keep their values
    #[command(after_help = "Examples:
  omnes lab set --loss 2%
  omnes lab set --name big --loss 0% --reorder 1% --rate none

The defaults that are shown are those of `omnes lab up`.")]
    Set {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        link: Option<LinkOptions>,
    },
    /// Hold the delayed frames of a named lab
    #[command(hide = true)]
    Keep {
        #[command(flatten)]
        name: Name,
    },
    /// Create an ephemeral lab, print how to enter its hosts, keep it until standard input ends
    #[command(hide = true)]
    Hold {
        #[arg(value_name = "N")]
        hosts: usize,
        #[command(flatten)]
        link: LinkOptions,
    },
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let done = match args.verb {
        Verb::Up { hosts, name, link } => up(&name.name, hosts, &link),
        Verb::Down { name, all } => down(&name.name, all),
        Verb::Exec { host, name, command } => exec(&name.name, host, &command),
        Verb::List { format } => list::show(format.chosen()),
        Verb::Set { name, link } => set(&name.name, link.as_ref()),
        Verb::Keep { name } => keeper::serve(&name.name),
        Verb::Hold { hosts, link } => hold(hosts, &link),
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => status_of(error),
    }
}

/// Exit status that `error` carries, after reporting the reason; returns other errors unchanged.
pub fn status_of(error: anyhow::Error) -> Result<ExitCode> {
    let status = match error.downcast_ref::<NotStarted>() {
        Some(not_started) => not_started.status,
        None if error.is::<CannotRun>() => STATUS_CANNOT_RUN,
        None => return Err(error),
    };
    notice(format_args!("{}", with_causes(&error)));
    Ok(ExitCode::from(status))
}

fn up(name: &str, hosts: usize, options: &LinkOptions) -> Result<()> {
    namespace::require_privilege()?;
    let lab = named::up(name, hosts, &Link::resolve(options)?)?;
    let (first, last) = (lab.address(0, false), lab.address(hosts - 1, false));
    let link = lab.link();
    print::line(format_args!("lab {name}: {hosts} hosts, {first} to {last}, links: {link}"))?;
    Ok(())
}

fn down(name: &str, is_all: bool) -> Result<()> {
    namespace::require_privilege()?;
    let _lock = named::Lock::take()?;
    let names = if is_all { named::names() } else { vec![name.to_owned()] };
    let mut outcome = Ok(());
    for name in &names {
        match named::remove(name) {
            Ok(true) => {}
            Ok(false) => notice(format_args!("no lab `{name}` is up")),
            // The other labs are removed all the same.
            Err(error) if outcome.is_ok() => outcome = Err(error),
            Err(error) => notice(format_args!("{}", with_causes(&error))),
        }
    }
    outcome
}

fn set(name: &str, options: Option<&LinkOptions>) -> Result<()> {
    let options = options.context("nothing to change: give a link option, such as --loss 1%")?;
    Lab::open(name)?.set_faults(options)
}

/// The command of `omnes lab exec` could not be started.
#[derive(Debug)]
struct NotStarted {
    reason: String,
    status: u8,
}

impl std::fmt::Display for NotStarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for NotStarted {}

/// Replaces this process by the command; returns only on failure.
fn exec(name: &str, host: usize, words: &[OsString]) -> Result<()> {
    let (program, arguments) = words.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(arguments);
    let lab = Lab::open(name)?;
    lab.restore_hold()?;
    lab.enter_in(host, &mut command)?;
    let error = command.exec();
    // The statuses that shells use.
    let status = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    let reason = format!("cannot run {} on host {host}: {error}", program.to_string_lossy());
    Err(NotStarted { reason, status }.into())
}

/// Keeps an ephemeral lab; prints where to find its networks and its fault program.
fn hold(hosts: usize, options: &LinkOptions) -> Result<()> {
    let lab = Lab::ephemeral(hosts, options)?;
    for space in &lab.spaces.hosts {
        print::line(format_args!("net {}", namespace::path_of(space.net.as_fd())))?;
    }
    if let Some(program) = lab.program_id() {
        print::line(format_args!("program {program}"))?;
    }
    print::line("ready")?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
