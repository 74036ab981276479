//! `omnes tune`: measures the costs of broadcasts on this network, shows and stores the choices.
//!
//! Runs in every rank, under any launcher; rank 0 measures, prints and stores. `--show` and
//! `--clear` need no launcher. Jobs on the same network, with as many ranks on as many nodes, then
//! choose by these figures instead of a quick measurement at their start ([`omnes::tune`]).
//!
//! Exit status: 0; 1 if a rank failed or the file cannot be written; 2 for wrong usage, without a
//! launcher, or where there is nothing to choose.

mod report;
mod testbed;

use crate::bench::rank;
use crate::environment;
use crate::format::{Format, FormatArgs};
use crate::print;
use crate::stderr::notice;
use crate::units::{format_bytes, parse_bytes, parse_duration};
use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use omnes::tune::{BYTES_MAX, Cache, Effort, Entry, Plan, Tuned};
use omnes::{Communicator, Config, Error, Tune};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  omnes run -n 8 --lab --no-prefix -- omnes tune  # root: lab hosts
  omnes run -n 3 --hosts node1,node2,node3 --no-prefix -- omnes tune
  omnes run -n 8 --lab --no-prefix -- omnes tune --dry-run --json | jq .ranges
  omnes run -n 8 --lab --no-prefix -- omnes tune --testbed lab.toml
  omnes tune --show
  omnes tune --clear

Broadcast algorithms compared: multicast; binomial, a tree; chain, from rank
to rank. The predicted time of a message of at most 128 KiB, until the slowest
rank has it, is
  T = depth * (us/level + bytes * ns/byte/level)
where depth, the number of levels, is 1 for multicast, log2(ranks) for the
tree and ranks - 1 for the chain. Bytes beyond the first 128 KiB are pipelined
and cost `ns/byte pipelined` each; in the tree log2(ranks) times that, because
the root sends each byte that often. The table shows both costs as measured,
and for each size the measured time and, in brackets, the predicted one. The
algorithm with the smallest T is used; among those within an eighth of it, the
first in the order above. A communicator with fewer than half of the nodes
does not use multicast, because all nodes would receive it. At the start of a
job, chains of more than 64 ranks are not measured; the tree's costs are used
for them.

Where multi-send replaces multicast, its hops are measured first, by size:
send, the host's time for a multi-send to one destination; transmit, the time
for each further destination; receive, the rest of half a round trip. Lambda
is their sum in units of transmit; what send and transmit have in common
counts once if they exceed the half round trip. The tree is the one with which
all nodes have such a message first. The lambda of a full packet determines
the tree of this job and of later ones, unless OMNES_MULTISEND names one.

Results are kept in $XDG_CACHE_HOME/omnes/tune.json or
~/.cache/omnes/tune.json of the user that runs rank 0, per machine of rank 0,
network, packet size, number of ranks and their distribution over nodes. If
there are none, the start of a job takes a quick measurement. Four later jobs
repeat it, after a minute, a quarter of an hour, four hours and a day, and the
medians are used. OMNES_TUNE=off uses built-in rules instead;
OMNES_TUNE=/some/file keeps the results there. OMNES_NETWORK names a network
that its address does not identify. OMNES_BCAST overrides all of this.";

/// Measure the costs of broadcasts on this network, from which jobs choose algorithms.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Message sizes to measure (8, 64k, 4m); if none is at most 1k, from 64k to 128k, or at least
    /// 256k, then 8, 128k or 512k is added, because the costs are derived from these
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_bytes,
          default_value = "8,256,1k,8k,32k,128k,256k,1m,4m")]
    sizes: Vec<u64>,
    /// Time for which each size is measured with each algorithm
    #[arg(long, default_value = "0.2s", value_name = "TIME", value_parser = parse_duration)]
    budget: Duration,
    #[command(flatten)]
    format: FormatArgs,
    /// Measure and print, but do not store the results
    #[arg(long)]
    dry_run: bool,
    /// Measure the costs of hosts and network instead, and write them as a testbed for `omnes sim`;
    /// needs at least 3 ranks, each on a host of its own
    #[arg(long, value_name = "FILE.toml",
          conflicts_with_all = ["sizes", "budget", "dry_run", "show", "clear", "format", "json"])]
    testbed: Option<PathBuf>,
    /// Show the stored results, without measuring
    #[arg(long, conflicts_with_all = ["sizes", "budget", "dry_run", "clear"])]
    show: bool,
    /// Delete the stored results of all networks
    #[arg(long, conflicts_with_all = ["sizes", "budget", "dry_run", "format", "json"])]
    clear: bool,
}

/// Runs the subcommand; without `--show` and `--clear`, in this rank.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.show {
        return show(args.format.chosen());
    }
    if args.clear {
        return clear();
    }
    args.check()?;
    let (comm, place, rendezvous) = join()?;
    if let Some(path) = &args.testbed {
        return testbed::run(comm, &rendezvous, path);
    }
    let outcome = measure(&comm, &args, &place);
    if matches!(outcome, Ok(Outcome::NothingToChoose)) {
        let error = anyhow!("nothing to choose: it takes at least 3 ranks on at least 2 nodes");
        return Ok(rank::refuse(&comm, &error));
    }
    Ok(rank::leave(comm, outcome.map(|outcome| outcome == Outcome::Done)))
}

impl Args {
    fn check(&self) -> Result<()> {
        if let Some(bytes) = self.sizes.iter().find(|bytes| **bytes > BYTES_MAX) {
            bail!("--sizes: {bytes} bytes is above 1g");
        }
        Ok(())
    }
}

/// Joins the job with its own measurement turned off; also returns where figures are kept.
fn join() -> Result<(Communicator, Tune, String)> {
    let example = "omnes run -n 8 --lab --no-prefix -- omnes tune";
    let mut config = match Config::from_env() {
        Err(Error::NoLauncher) => {
            bail!(
                "this measures inside a job, but no launcher started this process; run `{example}`"
            )
        }
        other => other?,
    };
    let place = std::mem::replace(&mut config.tune, Tune::Off);
    let rendezvous = config.rendezvous.clone();
    let comm = Communicator::from_config(config).context("cannot join the job")?;
    Ok((comm, place, rendezvous))
}

/// Outcome, as known to one rank.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    /// The same at every rank.
    NothingToChoose,
    NotStored,
}

fn measure(comm: &Communicator, args: &Args, place: &Tune) -> Result<Outcome> {
    let plan = Plan::thorough(&args.sizes, args.budget);
    let bar = progress(comm, &plan);
    let tuned = comm.tune(&plan, |bytes| {
        bar.set_message(format_bytes(bytes));
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    if comm.figures().is_none() {
        return Ok(Outcome::NothingToChoose);
    }
    tuned.map_or(Ok(Outcome::Done), |tuned| conclude(tuned, args, place))
}

/// Progress bar, shown only at rank 0 and only on a terminal.
fn progress(comm: &Communicator, plan: &Plan) -> ProgressBar {
    if comm.rank() != 0 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("measuring [{bar:30}] {pos}/{len} {msg}");
    let bar = ProgressBar::new(plan.points.len() as u64);
    bar.with_style(style.expect("the template is a constant"))
}

/// Stores and prints the results, at rank 0.
fn conclude(tuned: Tuned, args: &Args, place: &Tune) -> Result<Outcome> {
    let Tuned { network, figures, measured, hops } = tuned;
    let entry = Entry::new(network, figures, Effort::Thorough);
    let cache = Cache::of(place).filter(|_| !args.dry_run);
    let stored = cache.as_ref().map(|cache| cache.store(entry.clone()));
    let report = Report::new(&entry, &measured).with_hops(&hops);
    report.print(args.format.chosen())?;
    if std::env::var_os("OMNES_BCAST").is_some_and(|value| !value.is_empty()) {
        notice(format_args!("OMNES_BCAST is set and overrides the choice"));
    }
    match (stored, cache) {
        (Some(Ok(())), Some(cache)) => notice(format_args!("kept in {}", cache.path().display())),
        (Some(Err(error)), Some(cache)) => {
            notice(format_args!("cannot write {}: {error}", cache.path().display()));
            return Ok(Outcome::NotStored);
        }
        _ if args.dry_run => {}
        _ => notice(format_args!("kept nowhere: OMNES_TUNE is off, or HOME is not set")),
    }
    Ok(Outcome::Done)
}

/// Cache file that this environment selects.
fn cache() -> Result<Cache> {
    let place = match environment::text("OMNES_TUNE")? {
        Some(text) => text.parse().map_err(|reason| anyhow!("OMNES_TUNE={text}: {reason}"))?,
        None => Tune::Auto,
    };
    Cache::of(&place).context("measurements are not stored: OMNES_TUNE is off, or HOME is not set")
}

fn show(format: Format) -> Result<ExitCode> {
    let cache = cache()?;
    let entries = cache.entries();
    for entry in &entries {
        Report::new(entry, &[]).print(format)?;
    }
    match cache.fault() {
        Some(fault) => notice(format_args!("{} {fault}", cache.path().display())),
        None if entries.is_empty() => {
            notice(format_args!("nothing is kept in {}", cache.path().display()));
        }
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn clear() -> Result<ExitCode> {
    let cache = cache()?;
    let path = cache.path().display();
    if cache.clear().with_context(|| format!("cannot remove {path}"))? {
        print::line(format_args!("removed {path}"))?
    } else {
        print::line(format_args!("nothing is kept in {path}"))?
    };
    Ok(ExitCode::SUCCESS)
}
