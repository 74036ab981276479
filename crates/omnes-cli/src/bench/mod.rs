//! `omnes bench`: not written yet.

use std::process::ExitCode;

/// Measure latency, bandwidth, broadcast and barrier.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
