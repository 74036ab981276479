//! `omnes doctor`: not written yet.

use std::process::ExitCode;

/// Say what this machine allows and what to change.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
