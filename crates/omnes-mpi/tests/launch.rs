//! Installed launchers and their treatment of the inserted words; rejected launchers.
//!
//! Ranks are `grep` and `printenv`, which show loaded libraries and variables without an MPI
//! program.

#![allow(clippy::unwrap_used)]

mod mpis;

use mpis::{launcher_of, lines_of, ranks, stand_in};
use omnes_mpi::{Error, Launch, Launcher, Library, Mpi, Report, Setup};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Counts the mappings of the stand-in library in the rank.
const MAPPED: [&str; 3] = ["grep", "-c", "stand-in.so"];
const MAPS: &str = "/proc/self/maps";

/// An installed MPI, with a library for its ranks.
struct Site {
    launcher: Launcher,
    setup: Setup,
    _folder: tempfile::TempDir,
}

impl Site {
    fn of(mpi: Mpi) -> Option<Self> {
        let launcher = launcher_of(mpi)?;
        let folder = tempfile::tempdir().unwrap();
        let library = Library::named(mpi, &stand_in(folder.path())).unwrap();
        Some(Self { launcher, setup: Setup::new(&library, []), _folder: folder })
    }

    fn lines(&self, setup: &Setup, arguments: &[&str]) -> Vec<String> {
        let arguments = arguments.iter().map(Into::into).collect();
        let launch = Launch::new(&self.launcher, setup, arguments).unwrap();
        lines_of(&mut launch.command())
    }
}

/// True if every line is a count, and none is 0.
fn are_counts(lines: &[String]) -> bool {
    lines.iter().all(|line| line.parse::<u32>().is_ok_and(|count| count > 0))
}

#[test]
fn every_rank_has_the_library_loaded() {
    for site in Mpi::ALL.into_iter().filter_map(Site::of) {
        let mpi = site.launcher.mpi;
        let lines = site.lines(&site.setup, &[&ranks(mpi, "2")[..], &MAPPED, &[MAPS]].concat());
        assert!(lines.len() == 2 && are_counts(&lines), "{mpi}: {lines:?}");
    }
}

#[test]
fn ranks_of_several_programs_have_the_library_loaded() {
    for site in Mpi::ALL.into_iter().filter_map(Site::of) {
        let mpi = site.launcher.mpi;
        let program = [&MAPPED[..], &[MAPS]].concat();
        let one = [&ranks(mpi, "1"), &program[..]].concat();
        let other = [&["-n", "1"], &program[..]].concat();
        let lines = site.lines(&site.setup, &[&one[..], &[":"], &other].concat());
        assert!(lines.len() == 2 && are_counts(&lines), "{mpi}: {lines:?}");
    }
}

#[test]
fn requested_report_reaches_every_rank() {
    for site in Mpi::ALL.into_iter().filter_map(Site::of) {
        let mpi = site.launcher.mpi;
        let setup = site.setup.clone().with_report(Report::On);
        let arguments = [&ranks(mpi, "2")[..], &["printenv", "OMNES_MPI_REPORT"]].concat();
        assert_eq!(site.lines(&setup, &arguments), ["on", "on"], "{mpi}");
    }
}

#[test]
fn open_mpi_list_variables_reach_every_rank_with_the_library() {
    let Some(site) = Site::of(Mpi::OpenMpi) else { return };
    let list = ["--mca", "mca_base_env_list", "OMNES_LISTED=yes"];
    let script = "echo $OMNES_LISTED $(grep -c stand-in.so /proc/self/maps)";
    let program = ["sh", "-c", script];
    let first = [&ranks(Mpi::OpenMpi, "1"), &list[..], &program[..]].concat();
    let arguments = [&first[..], &[":", "-n", "1"], &program[..]].concat();
    let lines = site.lines(&site.setup, &arguments);
    let counts: Vec<String> =
        lines.iter().filter_map(|line| line.strip_prefix("yes ")).map(str::to_owned).collect();
    assert!(counts.len() == 2 && are_counts(&counts), "{lines:?}");
}

/// A launcher of this name, and its folder.
fn fake(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/launcher.sh"), &path).unwrap();
    (folder, path)
}

fn refused(name: &str) -> Error {
    let (_folder, path) = fake(name);
    Launcher::find(Some(path.as_ref())).unwrap_err()
}

#[test]
fn supported_launcher_versions_are_accepted() {
    for (name, mpi, version) in [
        ("openmpi-4.1.0", Mpi::OpenMpi, "4.1.0"),
        ("openmpi-5.0.6", Mpi::OpenMpi, "5.0.6"),
        ("hydra-4.0", Mpi::Mpich, "4.0.0"),
        ("hydra-4.3.0rc1", Mpi::Mpich, "4.3.0"),
    ] {
        let (_folder, path) = fake(name);
        let launcher = Launcher::find(Some(path.as_ref())).unwrap();
        assert_eq!((launcher.mpi, &*launcher.version.to_string()), (mpi, version), "{name}");
    }
}

#[test]
fn outdated_launcher_error_names_the_required_version() {
    for (name, ending) in [
        ("openmpi-4.0.7", "is of Open MPI 4.0.7; 4.1.0 or later is needed"),
        ("hydra-3.4.3", "is of MPICH 3.4.3; 4.0.0 or later is needed"),
    ] {
        let error = refused(name);
        assert!(matches!(error, Error::TooOld { .. }), "{error}");
        assert!(error.to_string().ends_with(ending), "{error}");
    }
}

#[test]
fn unsupported_launchers_are_rejected_by_name() {
    let error = refused("Intel(R) MPI Library for Linux* OS, Version 2021.8").to_string();
    assert!(error.contains("is of Intel MPI, which is not supported"), "{error}");
    let error = refused("slurm 22.05.8").to_string();
    assert!(
        error.ends_with("with srun, set LD_PRELOAD to the library of the program's MPI"),
        "{error}"
    );
    let error = refused("fancy-run 1.0").to_string();
    assert!(error.contains("\"fancy-run 1.0\""), "{error}");
}

#[test]
fn launchers_that_cannot_run_are_rejected() {
    let missing = Launcher::find(Some("no-such-launcher".as_ref())).unwrap_err();
    assert!(matches!(missing, Error::LauncherMissing(_)), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("mpirun");
    std::fs::write(&data, "").unwrap();
    let data = Launcher::find(Some(data.as_ref())).unwrap_err();
    assert!(matches!(data, Error::LauncherMissing(_)), "{data}");
}
