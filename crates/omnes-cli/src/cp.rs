//! `omnes cp`: not written yet.

use std::process::ExitCode;

/// Copy a file or a directory to every rank.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
