//! `omnes completions`: prints a script with which a shell completes commands and options.

use crate::print;
use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  source <(omnes completions bash)      # for this shell; or, for all of them:
  omnes completions bash > ~/.local/share/bash-completion/completions/omnes
  omnes completions zsh > ~/.zfunc/_omnes   # with ~/.zfunc in fpath
  omnes completions fish > ~/.config/fish/completions/omnes.fish";

/// Print a script with which a shell completes commands and options.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// The command without its hidden subcommands, which shells would offer.
fn for_people() -> Command {
    let all = crate::Cli::command();
    let shown = all.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
    Command::new("omnes").version(env!("CARGO_PKG_VERSION")).subcommands(shown)
}

/// Prints the script.
pub fn run(args: Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut for_people(), "omnes", &mut script);
    print::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
