//! Errors that prevent running a launcher with the preload library.

use crate::mpi::{Mpi, Version};
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Reason why nothing was started; each text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `PATH` has no launcher.
    #[error(
        "no mpirun and no mpiexec in PATH: install Open MPI 4.1 or MPICH 4.0 or later, \
         or name a launcher: --launcher PATH"
    )]
    NoLauncher,
    /// The named launcher does not exist.
    #[error("launcher {0}: no such program; a name without / is searched in PATH")]
    LauncherMissing(PathBuf),
    /// A launcher could not be run.
    #[error("launcher {launcher} cannot be run")]
    LauncherFails {
        /// The launcher, as it was named.
        launcher: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The launcher of an MPI or scheduler that is not supported.
    #[error(
        "launcher {launcher} is of {name}, which is not supported; Open MPI 4.1 or later and \
         MPICH 4.0 or later are{}", way_out(.name)
    )]
    Unsupported {
        /// The launcher, as it was named.
        launcher: PathBuf,
        /// Name of this MPI or scheduler.
        name: &'static str,
    },
    /// A launcher that does not identify its MPI.
    #[error(
        "launcher {launcher}: unknown MPI: its --version says {said:?}; known are Open MPI's and \
         MPICH's (Hydra)"
    )]
    Unknown {
        /// The launcher, as it was named.
        launcher: PathBuf,
        /// First line of its `--version` output.
        said: String,
    },
    /// A launcher of a supported MPI that is too old.
    #[error("launcher {launcher} is of {mpi} {version}; {} or later is needed", .mpi.oldest())]
    TooOld {
        /// The launcher, as it was named.
        launcher: PathBuf,
        /// MPI of the launcher.
        mpi: Mpi,
        /// Version of this MPI.
        version: Version,
    },
    /// There is no preload library for the launcher's MPI.
    #[error(
        "no {} for {mpi}, neither {}; `make mpi` builds it, OMNES_MPI_LIBRARY names it",
        .mpi.library_name(), listed(.looked_at)
    )]
    NoLibrary {
        /// MPI of the launcher.
        mpi: Mpi,
        /// Paths that were searched.
        looked_at: Vec<PathBuf>,
    },
    /// `OMNES_MPI_LIBRARY` names a file that does not exist.
    #[error("OMNES_MPI_LIBRARY={0}: no such file; unset it to look beside this command")]
    LibraryMissing(PathBuf),
    /// `OMNES_MPI_LIBRARY` names the library of another MPI.
    #[error("OMNES_MPI_LIBRARY={path} is not for {mpi}, whose is {}", .mpi.library_name())]
    WrongLibrary {
        /// Path of the library.
        path: PathBuf,
        /// MPI of the launcher.
        mpi: Mpi,
    },
    /// A path that LD_PRELOAD cannot hold.
    #[error("{0}: LD_PRELOAD cannot hold a path with a space or a colon; move or link the library")]
    UnfitPath(PathBuf),
    /// The launcher's arguments set `LD_PRELOAD`, and only one setting takes effect.
    #[error(
        "the launcher's arguments have {0} LD_PRELOAD, which would replace the library of Omnes; \
         set it in the environment instead: LD_PRELOAD=... omnes mpirun ..."
    )]
    PreloadTwice(&'static str),
}

/// Advice for users of an unsupported launcher.
fn way_out(name: &str) -> &'static str {
    match name {
        "Slurm" => "; with srun, set LD_PRELOAD to the library of the program's MPI",
        "PRRTE" => "; its mpirun says of which Open MPI it is",
        _ => "",
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let mut text = String::new();
    for (index, path) in paths.iter().enumerate() {
        let between = if index == 0 { "" } else { " nor " };
        // Writing to a string never fails.
        let _ = write!(text, "{between}{}", path.display());
    }
    text
}
