//! What stands between an MPI program and Omnes: which MPI a launcher belongs to, which preload
//! library fits it, and what the launcher must be told so that its ranks load it.
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
//! | module | what it holds |
//! |---|---|
//! | `mpi` | the MPIs that are supported, and from which version on |
//! | `identity` | which MPI a launcher says it belongs to |
//! | `launcher` | launchers in `PATH` or by name |
//! | `library` | the preload library of an MPI: where it is, whether it loads |
//! | `launch` | the command line with what must be passed to the ranks |
//! | `env_list` | Open MPI's list of variables, which excludes the options that set them |
//! | `settings` | the variables that the preload library reads |
//!
//! The preload libraries themselves are C, in `c/`; `build.sh` makes one for each MPI that is here,
//! since the MPIs agree on names and not on types.
//!
//! Guarantees: before a launcher is run, it is only asked for its version. It is run by the name
//! that was given, because an absolute name means something else to Open MPI; of its arguments only
//! the list of variables is changed. The environment of this process is read and never written.
//!
//! Not done: launchers of schedulers (`srun`) get no options from here; their ranks preload the
//! library if `LD_PRELOAD` is set, as docs/MPI.md shows. It is not checked whether the program was
//! built with the launcher's MPI.

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
