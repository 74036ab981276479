//! The preload library of an MPI: its location, and whether it can be loaded.

use crate::error::Error;
use crate::mpi::Mpi;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variable that names the library, or its folder.
const VARIABLE: &str = "OMNES_MPI_LIBRARY";
/// Folders to search, relative to the command's: that of a build, and two of installations.
const FOLDERS: [&str; 3] = [".", "../lib", "../lib/omnes"];

/// An existing preload library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    /// MPI whose programs can preload it.
    pub mpi: Mpi,
    /// Absolute path of its file, without a space or a colon.
    pub path: PathBuf,
}

impl Library {
    /// Finds the library for programs of `mpi`: the one that `OMNES_MPI_LIBRARY` names, otherwise
    /// the one in the folder of the running command, in `../lib` or in `../lib/omnes`.
    ///
    /// Errors if it does not exist, or its path is not valid in `LD_PRELOAD`.
    pub fn find(mpi: Mpi) -> Result<Self, Error> {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        match named {
            Some(path) => Self::named(mpi, Path::new(&path)),
            None => Self::beside(mpi, &command_folder()),
        }
    }

    /// Returns the library for programs of `mpi` at a path given by the user: its file, or its
    /// folder.
    pub fn named(mpi: Mpi, path: &Path) -> Result<Self, Error> {
        let file = if path.is_dir() { path.join(mpi.library_name()) } else { path.to_owned() };
        let name = file.file_name().unwrap_or_default();
        if Mpi::ALL.iter().any(|other| *other != mpi && name == other.library_name()) {
            return Err(Error::WrongLibrary { path: file, mpi });
        }
        if !file.is_file() {
            return Err(Error::LibraryMissing(file));
        }
        Self::fitting(mpi, file)
    }

    /// Finds the library for programs of `mpi` that belongs to a command in `folder`.
    pub fn beside(mpi: Mpi, folder: &Path) -> Result<Self, Error> {
        let mut looked_at: Vec<PathBuf> =
            FOLDERS.iter().map(|other| joined(folder, other).join(mpi.library_name())).collect();
        match looked_at.iter().position(|path| path.is_file()) {
            Some(index) => Self::fitting(mpi, looked_at.swap_remove(index)),
            None => Err(Error::NoLibrary { mpi, looked_at }),
        }
    }

    fn fitting(mpi: Mpi, path: PathBuf) -> Result<Self, Error> {
        // Fails only for an empty path, or if the working directory does not exist any more.
        let path = std::path::absolute(&path).unwrap_or(path);
        if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
            return Err(Error::UnfitPath(path));
        }
        Ok(Self { mpi, path })
    }

    /// Loads the library into a shell that does nothing; the loader's message if this fails.
    ///
    /// Success shows that libomnes is found, and has all functions that the library needs; whether
    /// the library matches the installed MPI is not checked.
    pub fn check(&self) -> Result<(), String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", ":"]).env("LD_PRELOAD", &self.path).env("LD_BIND_NOW", "1");
        command.stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        // The loader prints a message, and continues without the library.
        if output.status.success() && complaint.is_empty() { Ok(()) } else { Err(complaint) }
    }

    /// True if the path has the file name of a preload library of any MPI.
    pub(crate) fn is_name_of_one(path: &[u8]) -> bool {
        let name = Path::new(OsStr::from_bytes(path)).file_name().unwrap_or_default();
        Mpi::ALL.iter().any(|mpi| name == mpi.library_name())
    }
}

/// Folder of the running command, with symbolic links resolved.
fn command_folder() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent().unwrap_or(Path::new(".")).to_owned()
}

/// `folder/other` without `.` and `..`, for messages.
fn joined(folder: &Path, other: &str) -> PathBuf {
    match (other.strip_prefix("../"), folder.parent()) {
        _ if other == "." => folder.to_owned(),
        (Some(rest), Some(parent)) => parent.join(rest),
        _ => folder.join(other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A folder `bin` for a command, and its parent.
    fn command() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("bin");
        std::fs::create_dir_all(&folder).unwrap();
        (root, folder)
    }

    fn put(folder: &Path, mpi: Mpi) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join(mpi.library_name());
        std::fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn library_in_the_nearest_folder_is_used() {
        let (root, folder) = command();
        for near in ["lib/omnes", "lib", "bin"] {
            let path = put(&root.path().join(near), Mpi::Mpich);
            assert_eq!(Library::beside(Mpi::Mpich, &folder).unwrap().path, path);
        }
    }

    #[test]
    fn missing_library_error_lists_all_searched_paths() {
        let (root, folder) = command();
        put(&folder, Mpi::Mpich);
        let text = Library::beside(Mpi::OpenMpi, &folder).unwrap_err().to_string();
        for place in ["bin", "lib", "lib/omnes"] {
            let path = root.path().join(place).join("libomnes-mpi-openmpi.so");
            assert!(text.contains(&format!(" {}", path.display())), "{text}");
        }
        assert!(text.contains("make mpi"), "{text}");
    }

    #[test]
    fn a_named_library_may_be_a_file_or_a_folder() {
        let (_root, folder) = command();
        let path = put(&folder, Mpi::Mpich);
        for named in [&path, &folder] {
            assert_eq!(Library::named(Mpi::Mpich, named).unwrap().path, path);
        }
        let other = Library::named(Mpi::OpenMpi, &path).unwrap_err();
        assert!(matches!(other, Error::WrongLibrary { mpi: Mpi::OpenMpi, .. }), "{other}");
        let absent = Library::named(Mpi::OpenMpi, &folder).unwrap_err();
        assert!(matches!(absent, Error::LibraryMissing(_)), "{absent}");
    }

    #[test]
    fn library_path_with_loader_separators_is_rejected() {
        let (root, _) = command();
        for name in ["a folder", "a:folder"] {
            let folder = root.path().join(name);
            put(&folder, Mpi::Mpich);
            let error = Library::beside(Mpi::Mpich, &folder).unwrap_err();
            assert!(matches!(error, Error::UnfitPath(_)), "{error}");
        }
    }

    #[test]
    fn loading_a_file_that_is_not_a_library_fails() {
        let (_root, folder) = command();
        put(&folder, Mpi::Mpich);
        let complaint = Library::beside(Mpi::Mpich, &folder).unwrap().check().unwrap_err();
        assert!(complaint.contains("libomnes-mpi-mpich.so"), "{complaint}");
    }
}
