//! Output that nobody reads or that cannot be written, for all commands alike.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
/// A limit for what happens within milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Command lines that print, without privileges and quickly.
const LINES: [&str; 10] = [
    "--help",
    "--version",
    "doctor --mpi",
    "completions bash",
    "nic list",
    "stat",
    "sim testbeds",
    "sim pingpong --sizes 8 --repeat 1",
    "papers MS-F04",
    "run -n 2 --dry-run -- echo hi",
];

/// Ranks that print, as arguments of the launcher.
const JOBS: [&str; 3] = [
    "-- echo hi",
    "--no-prefix -- OMNES bench barrier --budget 10ms",
    "-- OMNES bench bcast --sizes 8,16 --budget 10ms --format json",
];

fn command(line: &str) -> Command {
    let line = line.replace("OMNES", OMNES);
    let mut command = Command::new(OMNES);
    command.args(line.split_whitespace()).stdin(Stdio::null()).env_remove("OMNES_STATS");
    command
}

fn job(line: &str) -> Command {
    command(&format!("run -n 2 --timeout 60s {line}"))
}

fn onto_full_disk(mut command: Command) -> Output {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.stdout(full).output().unwrap()
}

/// The status of a process that ends within milliseconds; `None` if it does not.
fn status_soon(mut process: Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    None
}

fn into_closed_pipe(mut command: Command) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer).output().unwrap()
}

#[test]
fn output_that_cannot_be_written_is_told_with_status_2() {
    let commands = LINES.map(command).into_iter().chain(JOBS.map(job));
    for command in commands {
        let shown = format!("{command:?}");
        let Output { status, stderr, .. } = onto_full_disk(command);
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{shown}: {errors}");
        let reason = "cannot write the output: No space left on device";
        assert!(errors.contains(reason) && !errors.contains("panicked"), "{shown}: {errors}");
    }
}

#[test]
fn variables_that_are_no_text_are_not_taken_as_unset() {
    let home = tempfile::tempdir().unwrap();
    let kept = home.path().join("omnes/tune.json");
    std::fs::create_dir(home.path().join("omnes")).unwrap();
    std::fs::write(&kept, "[]").unwrap();
    for (line, variable) in [
        ("tune --clear", "OMNES_TUNE"),
        ("tune --show", "OMNES_TUNE"),
        ("stat --clean", "OMNES_STATS"),
        ("stat", "OMNES_STATS"),
    ] {
        let mut command = command(line);
        command.env("XDG_CACHE_HOME", home.path()).env("XDG_RUNTIME_DIR", home.path());
        command.env(variable, OsStr::from_bytes(b"/tmp/\xff"));
        let Output { status, stdout, stderr } = command.output().unwrap();
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{line}: {errors}");
        assert!(errors.contains(&format!("{variable}=/tmp/\u{fffd}")), "{line}: {errors}");
        assert!(kept.exists(), "{line}");
    }
}

#[test]
fn notes_that_cannot_be_written_are_no_failure() {
    for command in [
        command("sim pingpong --sizes 8 --repeat 1 --format json"),
        job("--no-prefix -- OMNES bench barrier --budget 10ms --format json"),
    ] {
        let mut command = command;
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stderr(full).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}: {output:?}");
        assert!(!output.stdout.is_empty(), "{command:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for command in LINES.map(command) {
        let shown = format!("{command:?}");
        let Output { status, stderr, .. } = into_closed_pipe(command);
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), &*errors), (Some(0), ""), "{shown}");
    }
    for command in JOBS.map(job) {
        let shown = format!("{command:?}");
        let Output { status, stderr, .. } = into_closed_pipe(command);
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(0), "{shown}: {errors}");
        assert!(!errors.contains("cannot") && !errors.contains("panicked"), "{shown}: {errors}");
    }
}

#[test]
fn a_watch_that_has_nothing_to_show_ends_when_its_reader_is_gone() {
    let directory = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir();
    let directory = directory.unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = command("stat --watch 200ms --json");
    command.env("OMNES_STATS", directory.path()).stdout(writer);
    let process = command.spawn().unwrap();
    drop((command, reader));
    assert_eq!(status_soon(process), Some(0));
}

#[test]
fn nothing_is_simulated_for_a_reader_that_is_gone() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // Iterations for a quarter of an hour.
    let mut command = command("sim barrier -n 512 --repeat 900000");
    assert_eq!(status_soon(command.stdout(writer).spawn().unwrap()), Some(0));
}

#[test]
fn files_of_a_simulation_are_written_also_where_nothing_can_be_printed() {
    for format in ["table", "json"] {
        let directory = tempfile::tempdir().unwrap();
        let files = ["plot.svg", "lines.txt", "bars.json"].map(|name| directory.path().join(name));
        let mut command = command("sim pingpong --sizes 8 --repeat 1 --format");
        command.arg(format);
        for (flag, file) in ["--plot", "--trace", "--perfetto"].iter().zip(&files) {
            command.arg(flag).arg(file);
        }
        let Output { status, stderr, .. } = onto_full_disk(command);
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{errors}");
        assert!(errors.contains("cannot write the output"), "{errors}");
        for file in files {
            assert!(std::fs::metadata(&file).is_ok_and(|it| it.len() > 0), "{format}: {file:?}");
        }
    }
}
