//! The MPIs of this machine, and a stand-in for the preload library.
//!
//! If an MPI is missing, its tests print `skipped: needs Open MPI`, which `OMNES_REQUIRE=mpi` turns
//! into a failure.
#![allow(dead_code)] // Each test executable uses a part of it.

use omnes_mpi::{Launcher, Mpi, NAMES};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Open MPI's launcher fails if another launcher exits and removes the folder that both use.
static TURN: Mutex<()> = Mutex::new(());

/// Returns a launcher of `mpi`, if one is installed.
pub fn launcher_of(mpi: Mpi) -> Option<Launcher> {
    let mut found = NAMES.iter().filter_map(|name| Launcher::find(Some(name.as_ref())).ok());
    let launcher = found.find(|launcher| launcher.mpi == mpi);
    if launcher.is_none() {
        let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "mpi"), "OMNES_REQUIRE=mpi: no {mpi}");
        println!("skipped: needs {mpi}");
    }
    launcher
}

/// Arguments for a launcher of `mpi` to start `ranks` ranks on this machine.
pub fn ranks(mpi: Mpi, ranks: &str) -> Vec<&str> {
    match mpi {
        Mpi::OpenMpi => vec!["--oversubscribe", "-n", ranks],
        Mpi::Mpich => vec!["-n", ranks],
    }
}

/// Runs a launcher to completion; returns its output lines, sorted, as the order of ranks is
/// random.
pub fn lines_of(command: &mut Command) -> Vec<String> {
    // By default, Open MPI refuses to run as root.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Creates a copy of some library, under a name that no process has loaded.
pub fn stand_in(folder: &Path) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library = files.find(|file| file.contains("/libgcc_s.so")).unwrap();
    let copy = folder.join("stand-in.so");
    std::fs::copy(library, &copy).unwrap();
    copy
}
