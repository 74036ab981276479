//! Runs MPI programs with Omnes: determines the MPI of a launcher, the preload library for this
//! MPI, and the arguments that make the launcher's ranks load the library.
//!
//! ```no_run
//! use omnes_mpi::{Launch, Launcher, Library, Setup};
//!
//! // No_run: needs an MPI and the library. What `omnes mpirun -n 4 ./solver` does:
//! let launcher = Launcher::find(None)?;
//! let library = Library::find(launcher.mpi)?;
//! let setup = Setup::from_env(&library);
//! let arguments = ["-n", "4", "./solver"].map(Into::into).to_vec();
//! let launch = Launch::new(&launcher, &setup, arguments)?;
//! launch.replace_process()?;
//! # Ok::<(), omnes_mpi::Error>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `mpi` | the supported MPIs, and their minimum versions |
//! | `identity` | the MPI of a launcher, according to its `--version` |
//! | `launcher` | finding launchers in `PATH` or by name |
//! | `library` | the preload library of an MPI: its location, and whether it can be loaded |
//! | `launch` | the launcher's command line, with the variables to pass to the ranks |
//! | `env_list` | Open MPI's list of variables, which excludes the option that sets single ones |
//! | `settings` | the variables that the preload library reads |
//!
//! The preload libraries themselves are written in C, in `c/`; `build.sh` builds one for each
//! installed MPI, since MPIs share function names, but not types.
//!
//! Guarantees: before a launcher is used, it is only run with `--version`. It is run by the name
//! given, because Open MPI treats an absolute name differently; of the caller's arguments only the
//! list of variables is changed. The environment of this process is read, but never written.
//!
//! Not done: options for launchers of schedulers (`srun`); their ranks preload the library if
//! `LD_PRELOAD` is set, as docs/MPI.md shows. A check that the program was built with the
//! launcher's MPI.

mod env_list;
mod error;
mod identity;
mod launch;
mod launcher;
mod library;
mod mpi;
mod settings;

pub use error::Error;
pub use identity::{Identity, identify};
pub use launch::{Launch, Report, Setup};
pub use launcher::{Launcher, NAMES, find_program};
pub use library::Library;
pub use mpi::{Mpi, Version};
pub use settings::VARIABLES;
