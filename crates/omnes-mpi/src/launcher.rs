//! Launchers: found in `PATH` or by name, and asked which MPI they are of.

use crate::error::Error;
use crate::identity::{Identity, identify};
use crate::mpi::{Mpi, Version};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names by which launchers are looked for, the preferred first; the later ones are those of
/// systems that have several MPIs.
pub const NAMES: [&str; 5] =
    ["mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra"];
/// Of these the ones that a user means who names none.
const DEFAULTS: usize = 2;

/// A launcher of a supported MPI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launcher {
    /// As it was named, which is how it is run: Open MPI takes an absolute name as its `--prefix`.
    pub name: OsString,
    /// Where it is.
    pub path: PathBuf,
    /// Its MPI.
    pub mpi: Mpi,
    /// The version of that.
    pub version: Version,
}

impl Launcher {
    /// The launcher of that name, or with that path if it has a `/`; without a name `mpirun`, or
    /// else `mpiexec`, in `PATH`.
    ///
    /// Runs it with `--version`. Errors where it is missing, cannot be run, or is of an MPI or a
    /// version that is not supported.
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
        // By its path: a search in PATH of its own would find the same.
        let asked = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = match asked {
            Ok(output) => output,
            Err(source) => return Err(Error::LauncherFails { launcher, source }),
        };
        // Some say it on stderr.
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

/// The program that a shell would run by this name; a name with a `/` is a path.
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
