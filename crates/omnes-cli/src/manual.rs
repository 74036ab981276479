//! `omnes manual`: writes the help texts as pages for `man`.

use anyhow::{Context, Result};
use clap::CommandFactory;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  omnes manual ~/.local/share/man/man1   # then: man omnes, man omnes-bench";

/// Write the help of all commands as pages for `man`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directory for omnes.1, omnes-run.1 and so on; created if it does not exist
    folder: PathBuf,
}

/// Writes the pages.
pub fn run(args: Args) -> Result<ExitCode> {
    let folder = &args.folder;
    let cannot_write = || format!("cannot write pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot_write)?;
    clap_mangen::generate_to(crate::Cli::command(), folder).with_context(cannot_write)?;
    Ok(ExitCode::SUCCESS)
}
