//! `omnes papers`: the results of five published systems, computed again by this library's code.
//!
//! Everything is computed here: formulas by functions, structure by counting what the protocol
//! machines do, curves by simulation. Results are the same on every machine and for any number of
//! threads.
//!
//! Exit status: 0; 1 if `--check` finds a target that was met before and no longer is, or one that
//! is missed; 2 for wrong usage or if a file cannot be read or written.

mod report;
mod select;

use crate::files;
use crate::format::FormatArgs;
use crate::stderr::notice;
use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use omnes_papers::{Judged, MetList, Target, Verdict, compute_all, html_page, targets};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Path of the list of met targets in the source tree.
const MET: &str = "papers/met.txt";

const EXAMPLES: &str = "\
Examples:
  omnes papers                     # all five papers
  omnes papers multisend barrier   # two of them
  omnes papers MS-F04 CB-F01       # two targets, with their conditions
  omnes papers --html papers.html  # with figures and contradictions
  omnes papers --check             # has anything become worse?
  omnes papers --json | jq -r 'select(.verdict == \"missed\") | .id'

Papers: multisend (MS), broadcast (BC), pm (PM), barrier (CB), itb (IT).

Verdicts: met, within the tolerance; missed; explained, outside it for a
reason that is given, such as a contradiction inside the paper; not computed,
as for figures of other systems.

`off` is the deviation in percent of what is stated, of several figures the
largest.";

/// Compute the results stated in the papers, and compare.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Targets such as MS-F04, or papers by name or marker [default: all]
    #[arg(value_name = "ID|PAPER")]
    what: Vec<String>,
    /// Fail if a target that was met before no longer is, if a target is missed, or if one that is
    /// met is not in the list
    #[arg(long)]
    check: bool,
    /// Write the list of met targets
    #[arg(long, conflicts_with = "check")]
    bless: bool,
    /// List for --check (default: the built-in one) and --bless (default: papers/met.txt)
    #[arg(long, value_name = "FILE")]
    met: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// Write a self-contained page with tables and figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Number of computing threads [default: the number of cores]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let targets = select::targets_of(&args.what)?;
    let is_met_used = args.check || args.bless || args.met.is_none();
    ensure!(is_met_used, "--met is for --check and --bless; give one of them");
    let known = known(&args)?;
    let written = args.met.as_ref().filter(|_| args.bless);
    for path in args.html.iter().chain(written) {
        files::check(path)?;
    }
    let judged = compute(&targets, args.threads);
    let report = report::Report { judged: &judged, is_detailed: select::names_targets(&args.what) };
    report.print(args.format.chosen())?;
    if let Some(path) = &args.html {
        write(path, &html_page(&judged))?;
    }
    if args.bless {
        let path = args.met.as_deref().unwrap_or(Path::new(MET));
        write(path, &known.renewed(&judged).text())?;
    }
    Ok(if args.check { check(&known, &judged) } else { ExitCode::SUCCESS })
}

/// The list of targets that were met before.
fn known(args: &Args) -> Result<MetList> {
    if args.bless && args.met.is_none() {
        ensure!(
            Path::new(MET).exists(),
            "--bless writes {MET}, which is not here; name another file by --met"
        );
    }
    let Some(path) = &args.met else { return Ok(MetList::built_in()) };
    if args.bless && !path.exists() {
        return Ok(MetList::default());
    }
    let text = std::fs::read_to_string(path);
    let list = MetList::parse(&text.with_context(|| format!("cannot read {}", path.display()))?);
    if let Some(id) = list.ids().find(|id| !targets().iter().any(|target| target.id == *id)) {
        bail!("{}: `{id}` is not a target", path.display());
    }
    Ok(list)
}

fn compute(targets: &[&'static Target], threads: Option<u16>) -> Vec<Judged> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or_else(cores, usize::from);
    let style = ProgressStyle::with_template("computing [{bar:30}] {pos}/{len} {msg}");
    // Drawn on standard error, and only on a terminal.
    let bar = ProgressBar::new(targets.len() as u64)
        .with_style(style.expect("the template is a constant"));
    let judged = compute_all(targets, threads, |target| {
        bar.set_message(target.id.clone());
        bar.inc(1);
    });
    bar.finish_and_clear();
    judged
}

fn check(known: &MetList, judged: &[Judged]) -> ExitCode {
    let worse = known.regressions(judged);
    for Judged { target, finding } in &worse {
        let ours = finding.ours.as_ref().map(|ours| format!(", ours {ours}")).unwrap_or_default();
        let before = if known.contains(&target.id) { "was met and is" } else { "is" };
        notice(format_args!(
            "{} {before} {} now: paper {}{ours}",
            target.id,
            finding.verdict.word(),
            target.value
        ));
    }
    let is_new =
        |one: &&Judged| one.finding.verdict == Verdict::Met && !known.contains(&one.target.id);
    let new: Vec<_> = judged.iter().filter(is_new).collect();
    for Judged { target, .. } in &new {
        notice(format_args!("{} is met and not in the list; --bless enters it", target.id));
    }
    if worse.is_empty() && new.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    notice(format_args!("wrote {}", path.display()));
    Ok(())
}
