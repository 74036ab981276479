//! `omnes stat`: live counters of the ranks of this node, running or dead.
//!
//! Ranks publish their counters in small files ([`omnes::live`]), which are read here without
//! disturbing the ranks. Rates are differences of two readings, divided by the time between their
//! updates, so they are exact even if a reading is late; for a rank seen for the first time, the
//! rate is its mean since its start.
//!
//! A fault of a file is reported once on stderr, with the file's name, and the others are shown.
//! Exit status: 0, also if there is nothing to show; 2 usage or environment.

mod earlier;
mod json;
mod table;

use crate::environment;
use crate::format::{Format, FormatArgs};
use crate::help::described;
use crate::print::{self, Reader};
use crate::stderr::notice;
use crate::units;
use anyhow::{Context, Result};
use earlier::Earlier;
use omnes::live::{Snapshot, StatsPlace, Survey};
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Ranks publish about ten times per second; shorter intervals would show nothing new.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// Clears a terminal and moves to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

const EXAMPLES: &str = "\
Examples:
  omnes stat                       # every rank here, with its mean rates
  omnes stat --watch               # again every second, with its rates
  omnes stat --watch 5 --job 1a2b  # one job, by its first digits
  omnes stat --all                 # every counter, a column for each rank
  omnes stat --json | jq 'select(.state == \"dead\") | .counters'
  omnes stat --clean               # forget the ranks that were killed

JSON is one object per rank and line, always with every counter.

States: running; silent (no update for 5 s: stopped or starved); dead (its
process ended without leaving the job; the values are at most a tenth of a
second older than its end).

Ranks publish unless OMNES_STATS=off. The directory is $XDG_RUNTIME_DIR/omnes,
/run/omnes-UID or /tmp/omnes-UID; OMNES_STATS=/some/directory names another
one, for ranks and for this command. The superuser sees the ranks of all
users.";

/// Text below the long help: the examples, and the meaning of each counter.
fn examples_and_counters() -> String {
    let mut text = format!("{EXAMPLES}\n\nCounters:\n");
    for (name, meaning) in omnes::Stats::COUNTERS {
        text += &described(name, meaning, 25);
    }
    text
}

/// Show what the ranks of this node are doing, or did before they were killed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = examples_and_counters())]
pub struct Args {
    /// Repeat at this interval: seconds, or a time such as 500ms
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = parse_interval
    )]
    watch: Option<Duration>,
    /// Show every counter
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: FormatArgs,
    /// Only ranks of this job: its number, or the first digits of it
    #[arg(long, value_parser = parse_job)]
    job: Option<String>,
    /// Remove the files of dead ranks, and list these ranks
    #[arg(long, conflicts_with_all = ["watch", "all", "format", "json"])]
    clean: bool,
}

/// Parses seconds, as `watch` takes them, or a time with its unit.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let interval = seconds.map_or_else(|| units::parse_duration(text), Ok)?;
    if interval < INTERVAL_MIN {
        return Err(format!("`{text}` is below 200ms; ranks publish ten times per second"));
    }
    Ok(interval)
}

/// Parses one to eight hexadecimal digits.
fn parse_job(text: &str) -> Result<String, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_number || !(1..=8).contains(&text.len()) {
        return Err(format!("`{text}` is not a job: give 1 to 8 hexadecimal digits (1a2b)"));
    }
    Ok(text.to_ascii_lowercase())
}

/// Number of a job, as shown and typed.
fn job_name(job: u32) -> String {
    format!("{job:08x}")
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let place = place()?;
    if args.clean {
        return clean(&place, &args);
    }
    let mut earlier = Earlier::default();
    let mut reported = BTreeSet::new();
    loop {
        let mut survey = Survey::take(&place);
        survey.ranks.retain(|rank| args.is_meant(rank));
        report(&survey, &mut reported);
        let reader = print::text(&shown(&args, &survey, &earlier)?)?;
        let Some(interval) = args.watch.filter(|_| reader == Reader::Listens) else { break };
        earlier.note(&survey.ranks);
        std::thread::sleep(interval);
    }
    Ok(ExitCode::SUCCESS)
}

/// Directory in which the ranks of this environment publish.
fn place() -> Result<StatsPlace> {
    match environment::text("OMNES_STATS")? {
        Some(text) => text.parse().with_context(|| format!("OMNES_STATS={text}")),
        None => Ok(StatsPlace::Usual),
    }
}

impl Args {
    fn is_meant(&self, rank: &Snapshot) -> bool {
        self.job.as_ref().is_none_or(|job| job_name(rank.job).starts_with(job))
    }
}

/// Reports each rejected file once.
fn report(survey: &Survey, reported: &mut BTreeSet<PathBuf>) {
    for refusal in &survey.refused {
        if reported.insert(refusal.path.clone()) {
            notice(format_args!("ignored: {refusal}"));
        }
    }
}

fn shown(args: &Args, survey: &Survey, earlier: &Earlier) -> Result<String> {
    if args.format.chosen() == Format::Json {
        return Ok(json::lines(&survey.ranks, earlier)?);
    }
    let text = match args {
        _ if survey.ranks.is_empty() => nothing(args, survey),
        Args { all: true, .. } => table::all_counters(&survey.ranks),
        _ => table::overview(&survey.ranks, earlier),
    };
    let is_refreshed = args.watch.is_some() && io::stdout().is_terminal();
    let start = if is_refreshed { CLEAR } else { "" };
    let end = if args.watch.is_some() && !is_refreshed { "\n" } else { "" };
    Ok(format!("{start}{text}\n{end}"))
}

fn nothing(args: &Args, survey: &Survey) -> String {
    let of_job = args.job.as_ref().map_or_else(String::new, |job| format!(" of job {job}"));
    let places: Vec<_> = survey.directories.iter().map(|path| path.display().to_string()).collect();
    let looked = if places.is_empty() {
        "nobody has published here yet".to_owned()
    } else {
        format!("looked in {}", places.join(", "))
    };
    format!("no rank{of_job} found ({looked}); ranks publish unless OMNES_STATS=off")
}

fn clean(place: &StatsPlace, args: &Args) -> Result<ExitCode> {
    let cleaned = Survey::clean(place, |rank| args.is_meant(rank));
    report(&cleaned, &mut BTreeSet::new());
    for rank in &cleaned.ranks {
        let Snapshot { rank: number, size, pid, command, .. } = rank;
        let job = job_name(rank.job);
        print::line(format_args!("removed job {job} rank {number}/{size} (pid {pid}, {command})"))?;
    }
    if cleaned.ranks.is_empty() {
        print::line("no dead rank to remove")?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn intervals_are_seconds_or_have_a_unit() {
        assert_eq!(parse_interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        assert!(parse_interval("10ms").unwrap_err().contains("200ms"));
        for text in ["-1", "", "soon", "inf", "nan", "1y"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn job_ids_are_hexadecimal() {
        assert_eq!(parse_job("1A2b"), Ok("1a2b".to_owned()));
        for text in ["", "123456789", "job", "0x1"] {
            assert!(parse_job(text).is_err(), "{text}");
        }
        assert_eq!(job_name(0xab), "000000ab");
    }
}
