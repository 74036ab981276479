//! `omnes mpirun` and `omnes doctor --mpi` as a user sees them: whole output and exit status.
//!
//! Most launchers here only print their arguments (`omnes-mpi/tests/launcher.sh`); with the real
//! ones, the libraries that ranks have loaded are checked.

#![allow(clippy::unwrap_used)]

#[path = "../../omnes-mpi/tests/mpis/mod.rs"]
mod mpis;

use mpis::{launcher_of, lines_of, ranks, stand_in};
use omnes_mpi::Mpi;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");

/// A directory that is all of PATH, with a launcher `mpirun`, and a library.
struct Site {
    folder: tempfile::TempDir,
    library: PathBuf,
    /// Name and version that the launcher reports.
    mpi: &'static str,
}

impl Site {
    fn new(mpi: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../omnes-mpi/tests/launcher.sh");
        symlink(script, folder.path().join("mpirun")).unwrap();
        let library = stand_in(folder.path());
        Self { folder, library, mpi }
    }

    /// `omnes` in an environment of its own.
    fn omnes(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(OMNES);
        command.args(arguments).stdin(Stdio::null()).env_clear();
        command.env("PATH", self.folder.path()).env("FAKE_MPI", self.mpi);
        command.env("OMNES_MPI_LIBRARY", &self.library);
        command
    }

    fn library(&self) -> &str {
        self.library.to_str().unwrap()
    }
}

/// Status, standard output, standard error.
fn finish(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn dry_run_prints_the_open_mpi_command_line() {
    let site = Site::new("openmpi-4.1.4");
    let mut command =
        site.omnes(&["mpirun", "--dry-run", "-n", "2", "./a b", "--report", "--", "c"]);
    let (status, output, errors) = finish(command.env("OMNES_SHM", "off"));
    let library = site.library();
    let added = format!("-x LD_PRELOAD={library} -x OMNES_MPI_LIBRARY -x OMNES_SHM");
    let expected = format!("mpirun {added} -n 2 './a b' --report -- c\n");
    assert_eq!((status, output, errors), (0, expected, String::new()));
}

#[test]
fn dry_run_prints_the_hydra_command_line() {
    let site = Site::new("hydra-4.0.2");
    let mut command = site.omnes(&["mpirun", "--dry-run", "--report", "-host", "a,b", "./a"]);
    let (status, output, errors) = finish(command.env("LD_PRELOAD", ""));
    let library = site.library();
    let expected =
        format!("mpirun -genv LD_PRELOAD {library} -genv OMNES_MPI_REPORT on -host a,b ./a\n");
    assert_eq!((status, output, errors), (0, expected, String::new()));
}

#[test]
fn command_execs_the_launcher_with_its_arguments() {
    let site = Site::new("hydra-4.0.2");
    for arguments in
        [&["-host", "a", "./a", "--help", ""][..], &["--version-of", "-h", "--dry-run"]]
    {
        let mut command = site.omnes(&[&["mpirun"], arguments].concat());
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let process = child.id().to_string();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        let expected = [&[&*process, "-genv", "LD_PRELOAD", site.library()], arguments].concat();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected.join("\n") + "\n");
    }
}

#[test]
fn start_failures_are_reported_in_one_line_with_status_2() {
    let old = Site::new("openmpi-4.0.7");
    let good = Site::new("openmpi-4.1.4");
    let mut without_library = good.omnes(&["mpirun", "-n", "2", "a"]);
    without_library.env("OMNES_MPI_LIBRARY", "/nowhere/lib.so");
    let mut without_launcher = good.omnes(&["mpirun", "-n", "2", "a"]);
    without_launcher.env("PATH", "/nowhere");
    let mut cases = [
        (
            old.omnes(&["mpirun", "a"]),
            "launcher mpirun is of Open MPI 4.0.7; 4.1.0 or later is needed",
        ),
        (
            good.omnes(&["mpirun", "--launcher", "nosuch", "a"]),
            "launcher nosuch: no such program; a name without / is searched in PATH",
        ),
        (
            without_library,
            "OMNES_MPI_LIBRARY=/nowhere/lib.so: no such file; unset it to look beside this command",
        ),
        (
            without_launcher,
            "no mpirun and no mpiexec in PATH: install Open MPI 4.1 or MPICH 4.0 or later, or \
             name a launcher: --launcher PATH",
        ),
        (
            good.omnes(&["mpirun", "-x", "LD_PRELOAD=/a.so", "a"]),
            "the launcher's arguments have -x LD_PRELOAD, which would replace the library of \
             Omnes; set it in the environment instead: LD_PRELOAD=... omnes mpirun ...",
        ),
    ];
    for (command, complaint) in &mut cases {
        let expected = (2, String::new(), format!("omnes: {complaint}\n"));
        assert_eq!(finish(command), expected);
    }
}

#[test]
fn missing_mpi_library_is_reported_by_name_and_path() {
    let site = Site::new("openmpi-4.1.4");
    // A command of its own, with nothing beside it; a link needs the same file system.
    let folder = tempfile::tempdir_in(Path::new(OMNES).parent().unwrap()).unwrap();
    let own = folder.path().join("omnes");
    std::fs::hard_link(OMNES, &own).unwrap();
    let mut command = Command::new(own);
    command.args(["mpirun", "a"]).env_clear();
    command.env("PATH", site.folder.path()).env("FAKE_MPI", site.mpi);
    let (status, _, errors) = finish(&mut command);
    let name = "libomnes-mpi-openmpi.so";
    let place = folder.path().join(name);
    assert_eq!(status, 2);
    assert!(
        errors.contains(&format!("no {name} for Open MPI, neither {}", place.display())),
        "{errors}"
    );
    assert!(errors.contains("`make mpi` builds it"), "{errors}");
}

#[test]
fn ranks_of_either_mpi_have_the_library_loaded() {
    for launcher in Mpi::ALL.into_iter().filter_map(launcher_of) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(OMNES);
        command.args(["mpirun", "--launcher"]).arg(&launcher.name).args(ranks(launcher.mpi, "2"));
        command.args(["grep", "-c", "stand-in.so", "/proc/self/maps"]);
        command.env("OMNES_MPI_LIBRARY", stand_in(folder.path()));
        let lines = lines_of(&mut command);
        let is_count = |line: &String| line.parse::<u32>().is_ok_and(|count| count > 0);
        assert!(lines.len() == 2 && lines.iter().all(is_count), "{}: {lines:?}", launcher.mpi);
    }
}

#[test]
fn ranks_started_through_shells_join_the_job() {
    for launcher in Mpi::ALL.into_iter().filter_map(launcher_of) {
        let mut command = Command::new(&launcher.name);
        // With a further command, the shell stays between launcher and rank.
        let line = "\"$0\" bench barrier --budget 1ms; exit $?";
        command.args(ranks(launcher.mpi, "2")).args(["sh", "-c", line, OMNES]);
        let lines = lines_of(command.env("OMNES_JOIN_TIMEOUT", "20s"));
        assert!(lines.iter().any(|line| line.contains(" barrier ")), "{lines:?}");
    }
}

#[test]
fn doctor_reports_the_mpi_launcher_and_invalid_settings() {
    let site = Site::new("hydra-4.0.2");
    let mut command = site.omnes(&["doctor", "--mpi", "--json"]);
    command.env("OMNES_MPI", "barrier").env("OMNES_MPI_RAPORT", "on").env("OMNES_BCAST", "foo");
    let (status, output, errors) = finish(&mut command);
    assert_eq!((status, errors), (0, String::new()));
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let find = |name: &str| findings.iter().find(|finding| finding["name"] == name).unwrap();
    let launcher = format!("MPICH 4.0.2, {}", site.folder.path().join("mpirun").display());
    assert_eq!(find("launcher mpirun")["value"], launcher);
    let library = find("library for MPICH");
    assert_eq!(library["value"], format!("{}, loads", site.library()));
    assert_eq!(
        find("`omnes mpirun` adds")["value"],
        format!("-genv LD_PRELOAD {}", site.library())
    );
    assert!(find("handled by Omnes")["value"].as_str().unwrap().starts_with("barriers, "));
    assert_eq!(find("OMNES_MPI_RAPORT")["verdict"], "limited");
    assert_eq!(find("OMNES_BCAST")["verdict"], "missing");
}
