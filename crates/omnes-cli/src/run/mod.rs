//! `omnes run`: launches the ranks of a job on this machine, on lab hosts or over ssh.
//!
//! | module | what it does |
//! |---|---|
//! | `placement` | which rank runs where, and where they meet |
//! | `hosts` | hosts of `--hosts` and `--hostfile` |
//! | `job` | what every rank receives: environment, key, command |
//! | `ssh` | the remote command line and its control pipe |
//! | `start` | which ranks are started next |
//! | `process` | one rank as a child of the launcher |
//! | `output` | lines of all ranks, prefixed |
//! | `notes` | the launcher's own messages |
//! | `signals`, `supervise` | events that reach the launcher, and its decisions |
//! | `warden` | ends the remaining processes if the launcher is killed |
//! | `joining` | whether ranks may still wait for each other |
//! | `published` | live counters of ranks that the user ended |
//! | `layout` | whether the ranks' memory layout is random |
//! | `launch` | combines these: start, supervise, end |
//!
//! Guarantees: no rank outlives the launcher, and neither does any process that a rank has started,
//! unless the process leaves the rank's process group, or a host does not learn of the launcher's
//! end (see `ssh`); a rank that fails ends the job, and its status is the job's; the job key is on
//! no command line and in no output.
//!
//! Under `mpirun`, `srun` or `torchrun` this launcher is not needed: Omnes reads their environment.

mod hosts;
mod job;
mod joining;
mod launch;
mod layout;
mod notes;
mod output;
mod placement;
mod process;
mod published;
pub mod signals;
mod ssh;
mod start;
mod supervise;
mod warden;

pub use ssh::quote;
pub use warden::serve as serve_warden;

use crate::lab;
use crate::print;
use crate::units::parse_duration;
use anyhow::{Result, ensure};
use job::Job;
use placement::{Host, Place, RANKS_MAX, Site, SiteArgs};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  omnes run -n 8 -- ./solver --steps 100
  omnes run -n 4 --env OMNES_SPIN=0us --timeout 30s -- omnes bench bcast
  # root: eight hosts for this job
  omnes run -n 8 --lab --loss 1% -- omnes bench barrier
  # root: after `omnes lab up 8`
  omnes run -n 16 --lab omnes -- ./solver
  omnes run --hosts 'node[01-16]:4' -- ./solver  # ssh keys must be in place
  omnes run -n 3 --hosts a,b,c --encrypt -- omnes cp secret /srv/secret
  # writes logs/rank.0.out, logs/rank.0.err, ...
  omnes run -n 8 --output-dir logs -- ./solver

Every rank gets OMNES_RANK, OMNES_SIZE, OMNES_RENDEZVOUS, OMNES_JOB_KEY,
OMNES_LOCAL_RANK and OMNES_LOCAL_SIZE (ranks that share the machine's cores).
All other OMNES_* variables that are set here are passed on to the ranks, even
over ssh, which passes on nothing else of this environment; --env overrides
them. At startup, ranks wait for each other for OMNES_JOIN_TIMEOUT (default
60s). `omnes doctor --help` lists all variables.

Signals: INT (Ctrl-C), TERM and HUP are forwarded to the ranks, with CONT for
those that are stopped; they have --grace to end, and a further INT kills
them. A signal that is repeated within 50 ms counts once: programs such as
timeout send it twice. USR1, USR2 and QUIT (Ctrl-\\) are passed on. Ctrl-Z
stops the ranks, too (not over ssh).

Output: ranks' lines stay whole behind their prefix; lines of more than 1 MiB
are broken. --no-prefix and --output-dir leave it as it is. Prefixes are
coloured on a terminal, unless NO_COLOR is set.

Exit status: that of the first rank that fails (128 + signal if killed by a
signal); 124 after --timeout; 126 or 127 if CMD cannot be started; 2 for wrong
usage, or if output is lost because it cannot be written; 77 if a lab is asked
for without root. A job that ends by a forwarded signal ends the launcher by
it, too, which shells show as 128 + signal.";

/// Launch ranks on this machine, on lab hosts or over ssh.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Number of ranks, 1 to 4096 [default with --hosts, --hostfile: one for each slot]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = parse_ranks)]
    #[arg(required_unless_present = "remote")]
    ranks: Option<usize>,
    /// Set a variable for every rank (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = job::parse_variable)]
    env: Vec<(String, String)>,
    /// Encrypt user data between the ranks' nodes, as OMNES_ENCRYPT=on does
    #[arg(long)]
    encrypt: bool,
    /// Connect standard input to this rank (not over ssh); all others get end of file immediately
    #[arg(long, value_name = "RANK", conflicts_with = "remote")]
    stdin: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
    /// How long to wait for the other ranks to exit after one has failed, and again after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    grace: Duration,
    /// End the job after this time, with status 124
    #[arg(long, value_name = "TIME", value_parser = parse_limit)]
    timeout: Option<Duration>,
    /// Randomize each rank's memory layout; off: all ranks have the same layout, so that ranks that
    /// share a core can use each other's branch predictions (not over ssh) [default: as for the
    /// launcher itself, but off in labs]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    #[arg(conflicts_with = "remote")]
    aslr: Option<lab::Switch>,
    /// Print the commands that would be run, without running them
    #[arg(long)]
    dry_run: bool,
    /// Print nothing about failed ranks and signals; see the exit status
    #[arg(long)]
    quiet: bool,
    /// Program and arguments, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    // Last: options that follow would be listed below its heading, which is about links.
    #[command(flatten)]
    site: SiteArgs,
}

/// Where the ranks' output goes.
#[derive(clap::Args)]
struct OutputArgs {
    /// Pass output through immediately, without `[rank]` and without waiting for whole lines
    #[arg(long)]
    no_prefix: bool,
    /// Write output to DIR/rank.N.out and DIR/rank.N.err instead of the terminal; files of an
    /// earlier job are replaced
    #[arg(long, value_name = "DIR", conflicts_with = "no_prefix")]
    output_dir: Option<PathBuf>,
}

fn parse_ranks(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| match text {
        "p" => "there is no `-np`; write `-n 2`".to_owned(),
        _ => "must be a whole number, as in `-n 2`".to_owned(),
    })
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("a job takes time; without --timeout it has no limit".to_owned()),
        limit => Ok(limit),
    }
}

/// Runs the subcommand; the exit status is that of the job.
pub fn run(args: Args) -> Result<ExitCode> {
    let hosts = args.site.ssh_hosts()?;
    let ranks = args.ranks.unwrap_or_else(|| hosts.as_deref().map_or(0, placement::slots));
    ensure!(
        (1..=RANKS_MAX).contains(&ranks),
        "-n {ranks}: a job has 1 to {RANKS_MAX} ranks; for more use your cluster's launcher"
    );
    if let Some(rank) = args.stdin {
        ensure!(rank < ranks, "--stdin {rank}: no such rank; ranks are 0 to {}", ranks - 1);
    }
    let is_dry = args.dry_run;
    let built = args.site.resolve(ranks, hosts).and_then(|mut site| {
        if !is_dry {
            site.build()?;
        }
        Ok(site)
    });
    let site = match built {
        Ok(site) => site,
        Err(error) => return lab::status_of(error),
    };
    let places = site.places(ranks);
    let mut environment = match site {
        Site::Ssh { .. } => job::settings(std::env::vars_os()),
        Site::Here { .. } | Site::Lab(_) => Vec::new(), // inherited
    };
    environment.extend(args.env);
    if args.encrypt {
        environment.push(("OMNES_ENCRYPT".to_owned(), "on".to_owned()));
    }
    let job = Job::new(ranks, site.rendezvous()?, environment, args.command)?;
    if is_dry {
        return print_plan(&job, &site, &places).map(|()| ExitCode::SUCCESS);
    }
    layout::choose(args.aslr, &site)?;
    let options = launch::Options {
        stdin: args.stdin,
        output: launch::Output::from(args.output),
        grace: args.grace,
        timeout: args.timeout,
        voice: if args.quiet { launch::Voice::Quiet } else { launch::Voice::Stderr },
    };
    let launch::Outcome { status, signal } = launch::launch(&job, &site, &places, &options)?;
    drop(site);
    if let Some(signal) = signal {
        signals::end_by(signal);
    }
    Ok(ExitCode::from(status))
}

impl From<OutputArgs> for launch::Output {
    fn from(args: OutputArgs) -> Self {
        match args.output_dir {
            Some(directory) => launch::Output::Files(directory),
            None if args.no_prefix => launch::Output::Raw,
            None => launch::Output::Prefixed,
        }
    }
}

/// Prints one line per rank: its host, then words that a shell accepts.
fn print_plan(job: &Job, site: &Site, places: &[Place]) -> Result<()> {
    let directory = ssh::working_directory()?;
    let mut plan = Vec::new();
    for place in places {
        let words: Vec<OsString> = match (&place.host, site) {
            (Host::Ssh(name), Site::Ssh { ssh, .. }) => {
                let command = ssh::command(ssh, name, job, place, &directory);
                let program = std::iter::once(command.get_program());
                program.chain(command.get_args()).map(OsStr::to_owned).collect()
            }
            _ => {
                let environment = job.environment(place).into_iter();
                let assignments = environment.map(|(name, value)| format!("{name}={value}").into());
                let key = OsString::from(format!("{}=(secret)", job::KEY_NAME));
                let command = job.command.iter().cloned();
                assignments.chain([key]).chain(command).collect()
            }
        };
        let quoted: Vec<Vec<u8>> = words.iter().map(|word| ssh::quote(word)).collect();
        plan.extend(format!("[{}] {}: ", place.rank, place.host).into_bytes());
        plan.extend(quoted.join(&b' '));
        plan.push(b'\n');
    }
    print::bytes(&plan)?;
    Ok(())
}
