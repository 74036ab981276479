//! What keeps a launcher from being run with the preload library.

use crate::mpi::{Mpi, Version};
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Why nothing was started; each says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `PATH` has no launcher at all.
    #[error(
        "no mpirun and no mpiexec in PATH: install Open MPI 4.1 or MPICH 4.0 or later, \
         or name a launcher: --launcher PATH"
    )]
    NoLauncher,
    /// The launcher that was named is not there.
    #[error("launcher {0}: no such program; a name without / is searched in PATH")]
    LauncherMissing(PathBuf),
    /// A launcher could not be run.
    #[error("launcher {launcher} cannot be run")]
    LauncherFails {
        /// As it was named.
        launcher: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A launcher of an MPI or scheduler without a preload library.
    #[error(
        "launcher {launcher} is of {name}, which is not supported; Open MPI 4.1 or later and \
         MPICH 4.0 or later are{}", way_out(.name)
    )]
    Unsupported {
        /// As it was named.
        launcher: PathBuf,
        /// Of whom it is.
        name: &'static str,
    },
    /// A program that does not say which MPI it is of.
    #[error(
        "launcher {launcher}: unknown MPI: its --version says {said:?}; known are Open MPI's and \
         MPICH's (Hydra)"
    )]
    Unknown {
        /// As it was named.
        launcher: PathBuf,
        /// First line of its answer.
        said: String,
    },
    /// A launcher of a supported MPI that is too old.
    #[error("launcher {launcher} is of {mpi} {version}; {} or later is needed", .mpi.oldest())]
    TooOld {
        /// As it was named.
        launcher: PathBuf,
        /// Its MPI.
        mpi: Mpi,
        /// The version of that.
        version: Version,
    },
    /// There is no preload library for the launcher's MPI.
    #[error(
        "no {} for {mpi}, neither {}; `make mpi` builds it, OMNES_MPI_LIBRARY names it",
        .mpi.library_name(), listed(.looked_at)
    )]
    NoLibrary {
        /// The MPI.
        mpi: Mpi,
        /// Files that would have been it.
        looked_at: Vec<PathBuf>,
    },
    /// `OMNES_MPI_LIBRARY` names nothing that there is.
    #[error("OMNES_MPI_LIBRARY={0}: no such file; unset it to look beside this command")]
    LibraryMissing(PathBuf),
    /// `OMNES_MPI_LIBRARY` names the library of another MPI.
    #[error("OMNES_MPI_LIBRARY={path} is not for {mpi}, whose is {}", .mpi.library_name())]
    WrongLibrary {
        /// The variable's value.
        path: PathBuf,
        /// The launcher's MPI.
        mpi: Mpi,
    },
    /// A path that LD_PRELOAD cannot hold.
    #[error("{0}: LD_PRELOAD cannot hold a path with a space or a colon; move or link the library")]
    UnfitPath(PathBuf),
    /// The launcher's arguments set `LD_PRELOAD`, and only one setting counts.
    #[error(
        "the launcher's arguments have {0} LD_PRELOAD, which would replace the library of Omnes; \
         set it in the environment instead: LD_PRELOAD=... omnes mpirun ..."
    )]
    PreloadTwice(&'static str),
}

/// What those can do whose launcher takes no options from here.
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
