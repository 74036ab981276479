//! `omnes lab`: not written yet.

use std::process::ExitCode;

/// Make a cluster of namespace hosts on this machine.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
