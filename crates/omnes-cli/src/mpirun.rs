//! `omnes mpirun`: runs the launcher of an MPI library; its ranks preload the library that
//! accelerates collectives.
//!
//! All of the work is done by [`omnes_mpi`]; this file has the arguments and the output. This
//! process *becomes* the launcher: nothing stands between it and the terminal, so signals, output
//! and status are those of the launcher alone.

use crate::print;
use crate::run::quote;
use anyhow::Result;
use omnes_mpi::{Launch, Launcher, Library, Report, Setup};
use std::ffi::OsString;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  omnes mpirun -n 8 --hostfile hosts ./solver --steps 100
  # at the end, what Omnes has handled, on stderr
  omnes mpirun --report -n 8 --hostfile hosts ./solver
  omnes mpirun --dry-run -n 8 ./solver        # the line that would be run
  omnes mpirun --launcher mpirun.mpich -n 8 python3 train.py
  OMNES_MPI=bcast omnes mpirun -n 8 ./solver  # only broadcasts
  OMNES_MPI=off omnes mpirun -n 8 ./solver    # as without Omnes

Options of this command come first; everything from the first other word on
is passed to the launcher. The launcher is mpirun in PATH, else mpiexec; it
must be that of Open MPI 4.1, or of MPICH 4.0, or later. The library must have
the same path on the nodes of all ranks.

The library in the ranks is controlled by environment variables, which `omnes
doctor --help` lists; `omnes doctor --mpi` shows what is set and what would be
done here. docs/MPI.md describes everything, including how to do without this
command (LD_PRELOAD, srun).

Exit status: the launcher's; 2 if it cannot be started.";

/// Run an MPI program with faster broadcasts, barriers and other short collectives.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Launcher, by path or name [default: mpirun, else mpiexec]
    #[arg(long, value_name = "PATH")]
    launcher: Option<OsString>,
    /// At the end, let rank 0 of each communicator report what Omnes has handled, and why not more
    #[arg(long)]
    report: bool,
    /// Print the launcher's command line without running it
    #[arg(long)]
    dry_run: bool,
    /// The launcher's own arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "ARGS"
    )]
    arguments: Vec<OsString>,
}

/// Runs the subcommand; on success it returns only if it prints the command line.
pub fn run(args: Args) -> Result<ExitCode> {
    let launcher = Launcher::find(args.launcher.as_deref())?;
    let library = Library::find(launcher.mpi)?;
    let report = if args.report { Report::On } else { Report::AsSet };
    let setup = Setup::from_env(&library).with_report(report);
    let launch = Launch::new(&launcher, &setup, args.arguments)?;
    if args.dry_run {
        let words: Vec<Vec<u8>> = launch.words().iter().map(|word| quote(word)).collect();
        let mut line = words.join(&b' ');
        line.push(b'\n');
        print::bytes(&line)?;
        return Ok(ExitCode::SUCCESS);
    }
    match launch.replace_process()? {}
}
