//! The preload library and the plain MPI programs, built for the installed MPIs.

use crate::mpis::launcher_of;
use omnes_mpi::{Launcher, Library, Mpi};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// An installed MPI, with the files built for it.
pub struct Site {
    /// Launcher of its ranks.
    pub launcher: Launcher,
    /// Library that the ranks preload.
    pub library: Library,
    /// The same library, but connecting all communicators in their first call.
    pub eager: Library,
    /// Folder of the programs.
    folder: PathBuf,
    /// Suffix of the names of its tools: `.mpich` of `mpirun.mpich`.
    suffix: String,
}

/// Folder of the libraries that connect all communicators in their first call.
const EAGER: &str = "eager";

/// Returns all installed MPIs, and prints which missing ones are skipped.
pub fn sites() -> impl Iterator<Item = Site> {
    Mpi::ALL.into_iter().filter_map(launcher_of).map(Site::new)
}

/// Name of the MPI in the programs' Makefile.
pub fn short_name(mpi: Mpi) -> &'static str {
    match mpi {
        Mpi::OpenMpi => "openmpi",
        Mpi::Mpich => "mpich",
    }
}

impl Site {
    fn new(launcher: Launcher) -> Self {
        static BUILT: [OnceLock<PathBuf>; Mpi::ALL.len()] = [const { OnceLock::new() }; 2];
        let name = launcher.name.to_str().unwrap();
        let suffix = name.find('.').map_or("", |dot| &name[dot..]);
        let suffix = if suffix == ".hydra" { "" } else { suffix }.to_owned();
        let index = Mpi::ALL.iter().position(|mpi| *mpi == launcher.mpi).unwrap();
        let folder = BUILT[index].get_or_init(|| build(launcher.mpi, &suffix)).clone();
        let library = Library::named(launcher.mpi, &folder).unwrap();
        let eager = Library::named(launcher.mpi, &folder.join(EAGER)).unwrap();
        Self { launcher, library, eager, folder, suffix }
    }

    /// Search path for libraries: first the folder of this libomnes, as the folders that cargo adds
    /// may have an older one.
    pub fn library_path(&self) -> OsString {
        let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let all = std::iter::once(self.folder.clone()).chain(std::env::split_paths(&others));
        std::env::join_paths(all).unwrap()
    }

    /// Path of a C program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{}", short_name(self.launcher.mpi)))
    }

    /// The Fortran programs; `None` prints that the compiler is missing, which
    /// `OMNES_REQUIRE=mpi` turns into a failure.
    pub fn fortran(&self) -> Option<[PathBuf; 3]> {
        let compiler = format!("mpif90{}", self.suffix);
        if omnes_mpi::find_program(compiler.as_ref()).is_none() {
            let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|word| word == "mpi"),
                "OMNES_REQUIRE=mpi: {compiler}"
            );
            println!("skipped: needs {compiler}");
            return None;
        }
        // Concurrent tests would run programs that are only half built.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = make(self.launcher.mpi, &self.folder);
        succeed(command.arg(format!("MPIF90={compiler}")).arg("fortran"));
        Some(["fixed", "module", "modern"].map(|name| self.program(name)))
    }
}

/// Builds the files for `mpi` in a folder of this test executable, if they have changed since the
/// last run.
fn build(mpi: Mpi, suffix: &str) -> PathBuf {
    let compiler = format!("mpicc{suffix}");
    let executable = std::env::current_exe().unwrap();
    // Without the hash that cargo appends.
    let name = executable.file_stem().unwrap().to_str().unwrap().split('-').next().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join(short_name(mpi));
    std::fs::create_dir_all(&folder).unwrap();
    // Held for the lifetime of this process: concurrent test runs take turns.
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    std::mem::forget(lock);

    build_library(&compiler, &folder, "");
    build_library(&compiler, &folder.join(EAGER), "-DSHIM_MEETING_CALLS=1");
    succeed(make(mpi, &folder).arg(format!("MPICC={compiler}")).arg("c"));
    folder
}

fn build_library(compiler: &str, folder: &Path, flags: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let built = std::env::current_exe().unwrap().with_file_name("libomnes_c.so");
    let soname = concat!("libomnes.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    for name in [soname, "libomnes.so"] {
        let _ = std::fs::remove_file(folder.join(name));
        symlink(&built, folder.join(name)).unwrap();
    }
    let mut command = Command::new(crate_folder().join("build.sh"));
    command.arg("--quiet").arg(folder).env("MPICC", compiler).env("CPPFLAGS", flags);
    succeed(&mut command);
}

fn crate_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("omnes-mpi")
}

fn make(mpi: Mpi, folder: &Path) -> Command {
    let mut command = Command::new("make");
    command.arg("--silent").arg("-C").arg(crate_folder().join("programs"));
    command.arg(format!("OUT={}", folder.display())).arg(format!("MPI={}", short_name(mpi)));
    // A make that runs the tests must not pass its job server or variables on.
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    command
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {errors}", output.status);
}
