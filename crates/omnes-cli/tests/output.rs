//! Output that has no reader or cannot be written, for all commands alike.

#![allow(clippy::unwrap_used)]

use rustix::fs::{OFlags, fcntl_setfl};
use std::ffi::OsStr;
use std::fs::{OpenOptions, Permissions};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
/// A limit for events that take milliseconds; reached only by a failure.
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

/// Status with which a process ends within milliseconds, or the signal, negative; `None` if it does
/// not end.
fn status_soon(mut process: Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait().unwrap() {
            return status.code().or(status.signal().map(|signal| -signal));
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
fn unwritable_output_is_reported_with_status_2() {
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
fn non_utf8_variables_are_not_treated_as_unset() {
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
fn unwritable_notes_are_not_a_failure() {
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

/// A pipe filled to its capacity.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// A job whose ranks are running and are ended only by KILL, and whose notes nobody reads; its
/// ranks' outputs reach their end when all ranks do.
fn unread_job(options: &str) -> (Child, BufReader<PipeReader>, PipeReader) {
    let (errors, full) = full_pipe();
    let (output, ranks) = std::io::pipe().unwrap();
    let mut command = command(&format!("run -n 2 --grace 100ms {options} -- sh -c"));
    command.arg("trap '' INT TERM HUP; echo ready; exec sleep 60").stdout(ranks).stderr(full);
    let process = command.spawn().unwrap();
    drop(command);
    let mut output = BufReader::new(output);
    for _ in 0..2 {
        output.read_line(&mut String::new()).unwrap();
    }
    (process, output, errors)
}

#[test]
fn time_limit_applies_while_notes_are_not_read() {
    // Without prefix, the ranks hold the output that is read here.
    let options = "--no-prefix --timeout 3s";
    let (mut process, mut output, mut errors) = unread_job(options);
    let pid = process.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let deadline = Instant::now() + PATIENCE;
    while std::fs::read_to_string(&children).unwrap() != "" {
        if Instant::now() > deadline {
            process.kill().unwrap();
            panic!("the ranks live on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(process.try_wait().unwrap(), None, "the notes are lost");
    let mut told = String::new();
    errors.read_to_string(&mut told).unwrap();
    assert!(told.contains("(--timeout); ranks got SIGTERM"), "{told}");
    assert!(told.ends_with("2 still running: SIGKILL\n"), "{told}");
    assert_eq!(output.read_to_string(&mut String::new()).unwrap(), 0);
    assert_eq!(process.wait().unwrap().code(), Some(124));
}

#[test]
fn signal_ends_a_launcher_with_unread_notes() {
    for options in ["--no-prefix", "--timeout 60s"] {
        let (process, _output, _errors) = unread_job(options);
        let pid = libc::pid_t::try_from(process.id()).unwrap();
        // SAFETY: plain system call; the launcher is our child and not yet reaped.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        assert_eq!(status_soon(process), Some(-libc::SIGTERM), "{options}");
    }
}

#[test]
fn nonblocking_output_is_written_completely() {
    for redirection in ["", " >&2"] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let mut command = job("-- sh -c");
        command.arg(format!("yes 0123456789 | head -n 50000{redirection}"));
        if redirection.is_empty() {
            command.stdout(writer);
        } else {
            command.stderr(writer);
        }
        let process = command.spawn().unwrap();
        drop(command);
        // The pipe is full before it is read.
        std::thread::sleep(Duration::from_millis(500));
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        let whole = read.lines().filter(|line| line.ends_with("] 0123456789")).count();
        assert_eq!((whole, read.lines().count()), (100_000, 100_000), "{redirection}");
        assert_eq!(status_soon(process), Some(0), "{redirection}");
    }
}

#[test]
fn reader_that_closes_the_pipe_early_is_not_a_failure() {
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
fn idle_watch_ends_when_its_reader_closes_the_pipe() {
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
fn simulation_stops_when_its_reader_closes_the_pipe() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // Iterations for a quarter of an hour.
    let mut command = command("sim barrier -n 512 --repeat 900000");
    assert_eq!(status_soon(command.stdout(writer).spawn().unwrap()), Some(0));
}

#[test]
fn simulation_files_are_written_even_if_output_fails() {
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
