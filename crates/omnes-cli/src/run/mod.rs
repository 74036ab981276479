//! `omnes run`: not written yet.

use std::process::ExitCode;

/// Launch ranks on this machine, on lab hosts or over ssh.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
