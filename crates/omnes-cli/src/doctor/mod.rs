//! `omnes doctor`: reports what this machine supports, and what to change.
//!
//! Every line is a *finding*: a name, what was found, a verdict, and advice where something can be
//! gained. Whatever can be tested is tested, with real sockets over loopback (segmentation offload,
//! coalescing, multicast, buffer sizes), because settings and versions promise more than containers
//! and old drivers deliver. Features that cannot be tested without leaving traces are looked up
//! (capabilities, kernel version, tools). Omnes variables that are set are checked by the parser
//! that ranks use. With `--mpi` the report is about MPI programs instead.
//!
//! Guarantees: nothing is changed; a failed probe is a finding, not an error; a probe waits at most
//! one second, the one of the agent at most five; exit status 0. Cost: a few dozen loopback
//! datagrams, one IGMP or MLD report for each interface that is up, because a join is announced to
//! the network, and, where it is permitted, the firmware of the network interface loaded once and
//! attached to nothing.

mod group;
mod launcher;
mod machine;
mod mpi;
mod multicast;
mod nic;
mod settings;
mod sockets;

use crate::format::{Format, FormatArgs};
use crate::help::described;
use crate::print;
use anyhow::Result;
use serde::Serialize;
use std::ffi::OsString;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  omnes doctor
  omnes doctor --json | jq '.findings[] | select(.verdict != \"ok\")'
  omnes doctor --mpi                    # what `omnes mpirun` would do
  omnes run -n 2 --lab -- omnes doctor  # root: what lab hosts allow

Verdicts: ok; limited (works, but slower or with less than possible); missing
(not available; Omnes works without it).";

/// Text below the long help: the examples, and every variable that a rank reads.
fn examples_and_variables() -> String {
    let mut text = format!("{EXAMPLES}\n\nEnvironment variables that every rank reads:\n");
    let listed = |variables: &[(&str, &str)]| -> String {
        variables.iter().map(|(name, meaning)| described(name, meaning, 23)).collect()
    };
    text += &listed(omnes::VARIABLES);
    text += "\nAdditional variables for MPI programs, with `omnes mpirun`:\n";
    text + &listed(omnes_mpi::VARIABLES)
}

/// Report what this machine supports and what to change.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = examples_and_variables())]
pub struct Args {
    #[command(flatten)]
    format: FormatArgs,
    /// Only report what `omnes mpirun` would do: launchers, libraries, settings, interfaces
    #[arg(long)]
    mpi: bool,
}

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// Nothing to gain.
    Ok,
    /// Works, but slower or with less than possible.
    Limited,
    /// Not available; Omnes works without it.
    Missing,
}

/// One line of the report.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    name: String,
    value: String,
    verdict: Verdict,
    /// Empty if there is nothing to do.
    advice: String,
}

impl Finding {
    fn ok(name: impl Into<String>, value: impl ToString) -> Self {
        let advice = String::new();
        Self { name: name.into(), value: value.to_string(), verdict: Verdict::Ok, advice }
    }

    fn limited(name: impl Into<String>, value: impl ToString, advice: &str) -> Self {
        let advice = advice.to_owned();
        Self { name: name.into(), value: value.to_string(), verdict: Verdict::Limited, advice }
    }

    fn missing(name: impl Into<String>, value: impl ToString, advice: &str) -> Self {
        let advice = advice.to_owned();
        Self { name: name.into(), value: value.to_string(), verdict: Verdict::Missing, advice }
    }
}

#[derive(Serialize)]
struct Report {
    omnes_version: &'static str,
    findings: Vec<Finding>,
}

/// Runs the subcommand; the exit status is 0 whatever is found.
pub fn run(args: Args) -> Result<ExitCode> {
    // As ranks read them: a variable that is not valid text still counts as set.
    let text = |value: OsString| value.to_string_lossy().into_owned();
    let variable = |name: &str| std::env::var_os(name).map(text);
    let mut findings = if args.mpi { mpi::findings(variable) } else { all_findings(variable) };
    let names = std::env::vars_os().map(|(name, _)| text(name));
    findings.extend(settings::findings(variable, names));
    match args.format.chosen() {
        Format::Json => {
            let report = Report { omnes_version: env!("CARGO_PKG_VERSION"), findings };
            print::line(serde_json::to_string_pretty(&report)?)?
        }
        Format::Table => print::line(table(&findings))?,
    };
    Ok(ExitCode::SUCCESS)
}

/// Findings about this machine, whatever runs on it.
fn all_findings(variable: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = machine::findings();
    findings.extend(sockets::findings());
    findings.extend(multicast::findings());
    findings.extend(group::findings(&variable));
    findings.extend(nic::findings(&variable));
    findings.extend(launcher::findings(&variable));
    findings
}

fn table(findings: &[Finding]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table.set_header(["name", "value", "verdict", "advice"]);
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
        };
        table.add_row([&*finding.name, &*finding.value, verdict, &*finding.advice]);
    }
    table
}

/// Number in a file of the kernel; `None` if the kernel has no such file.
fn read_number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
