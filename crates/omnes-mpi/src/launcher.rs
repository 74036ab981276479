//! Finds launchers in `PATH` or by name, and identifies their MPI.

use crate::error::Error;
use crate::identity::{Identity, identify};
use crate::mpi::{Mpi, Version};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of launchers to search for, in order of preference; the last ones are used on systems with
/// several MPIs.
pub const NAMES: [&str; 5] =
    ["mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra"];
/// Number of leading `NAMES` to search if the user names no launcher.
const DEFAULTS: usize = 2;

/// A launcher of a supported MPI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launcher {
    /// Name as given, under which it is run: Open MPI derives `--prefix` from an absolute name.
    pub name: OsString,
    /// Path of the program.
    pub path: PathBuf,
    /// MPI of the launcher.
    pub mpi: Mpi,
    /// Version of this MPI.
    pub version: Version,
}

impl Launcher {
    /// Finds the launcher of this name in `PATH`, or at this path if it contains a `/`; without a
    /// name, finds `mpirun` or else `mpiexec` in `PATH`.
    ///
    /// Runs it with `--version`. Errors if it is missing, cannot be run, or its MPI or version is
    /// not supported.
    pub fn find(name: Option<&OsStr>) -> Result<Self, Error> {
        let candidates = match name {
            Some(name) => vec![name],
            None => NAMES[..DEFAULTS].iter().map(OsStr::new).collect(),
        };
        let found = candidates.into_iter().find_map(|name| Some((name, find_program(name)?)));
        match (found, name) {
            (Some((name, path)), _) => Self::ask(name, path),
            (None, Some(name)) => Err(Error::LauncherMissing(name.into())),
            (None, None) => Err(Error::NoLauncher),
        }
    }

    fn ask(name: &OsStr, path: PathBuf) -> Result<Self, Error> {
        let launcher = PathBuf::from(name);
        // Run by its path, which is what another search in PATH would find.
        let asked = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = match asked {
            Ok(output) => output,
            Err(source) => return Err(Error::LauncherFails { launcher, source }),
        };
        // Some launchers print the version to stderr.
        let answer = [&output.stdout[..], &output.stderr[..]].concat();
        match identify(&String::from_utf8_lossy(&answer)) {
            Identity::Known(mpi, version) if version < mpi.oldest() => {
                Err(Error::TooOld { launcher, mpi, version })
            }
            Identity::Known(mpi, version) => Ok(Self { name: name.to_owned(), path, mpi, version }),
            Identity::Unsupported(name) => Err(Error::Unsupported { launcher, name }),
            Identity::Unknown(said) => Err(Error::Unknown { launcher, said }),
        }
    }
}

/// Path of the program that a shell would run for this name; a name with a `/` is a path.
pub fn find_program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_executable(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
