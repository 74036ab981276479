//! `omnes stat` beside real ranks: while they run, after they were killed, after they left.
//!
//! Ranks are processes: this test program itself, started again ([`plays_a_rank`]), and controlled
//! by lines of input. Each test has a directory of its own for the live files, so that it sees no
//! other ranks. No test relies on sleeping: published values are polled until they appear.
#![allow(clippy::unwrap_used)]

use omnes::{Communicator, Error};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const RANKS: u32 = 2;
/// A limit for events that take milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);

// ---- the ranks ----------------------------------------------------------------------------

/// Not a test of its own: the body of a rank. Each line of input is a command: `work` and `finish`.
#[test]
fn plays_a_rank() {
    if std::env::var("TEST_RANK").is_err() {
        return;
    }
    if let Err(error) = Communicator::from_env().and_then(obey) {
        println!("ended: {error}");
        std::process::exit(3);
    }
    std::process::exit(0);
}

fn obey(world: Communicator) -> Result<(), Error> {
    world.barrier()?;
    println!("ready");
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "work" => (0..100).try_for_each(|_| world.barrier())?,
            "finish" => break,
            other => panic!("no order '{other}'"),
        }
        println!("done");
    }
    world.finalize()
}

/// A rank, killed when dropped.
struct Rank {
    process: Child,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Rank {
    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// Reads until a line that contains `wanted`.
    fn wait_for(&mut self, wanted: &str) {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "no '{wanted}'");
        }
    }

    fn finish(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a job whose ranks publish as the variable says, and waits until all are ready.
fn start(variable: &str, value: &Path) -> Vec<Rank> {
    let port = omnes::free_port(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "plays_a_rank", "--nocapture"]).env("TEST_RANK", "yes");
        command.env_remove("OMNES_STATS").env(variable, value);
        command.env("OMNES_RANK", rank.to_string()).env("OMNES_SIZE", RANKS.to_string());
        command.env("OMNES_RENDEZVOUS", format!("127.0.0.1:{port}"));
        // Most of these tests count packets on the network.
        command.env("OMNES_SHM", "off");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let orders = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Rank { process, orders, output }
    };
    let mut ranks: Vec<Rank> = (0..RANKS).map(start).collect();
    ranks.iter_mut().for_each(|rank| rank.wait_for("ready"));
    ranks
}

// ---- the command --------------------------------------------------------------------------

/// A directory with the permissions that ranks require.
fn private_directory() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn stat_command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(OMNES);
    command.arg("stat").args(arguments).env("OMNES_STATS", directory);
    command
}

/// Standard output and standard error of `omnes stat`, whose status must be 0.
fn stat(directory: &Path, arguments: &[&str]) -> (String, String) {
    let output = stat_command(directory, arguments).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    (String::from_utf8(output.stdout).unwrap(), errors)
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the published rows as soon as `is_wanted` holds.
fn wait_until(directory: &Path, is_wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rows = rows(&stat(directory, &["--format", "json"]).0);
        if is_wanted(&rows) {
            return rows;
        }
        assert!(Instant::now() < deadline, "{rows:?}");
    }
}

fn counter(row: &Value, name: &str) -> u64 {
    row["counters"][name].as_u64().unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

// ---- the tests ----------------------------------------------------------------------------

#[test]
fn running_ranks_are_listed_and_leave_no_files_after_a_clean_exit() {
    let directory = private_directory();
    let path = directory.path();
    let mut ranks = start("OMNES_STATS", path);
    let seen = wait_until(path, |rows| rows.len() == 2);
    for (rank, row) in ranks.iter().zip(&seen) {
        assert_eq!((&row["pid"], &row["size"]), (&rank.process.id().into(), &RANKS.into()));
        assert_eq!((&row["state"], &row["is_whole"]), (&"running".into(), &true.into()));
        assert!(row["command"].as_str().unwrap().starts_with("stat"), "{row}");
    }
    assert_eq!((&seen[0]["rank"], &seen[1]["rank"]), (&0.into(), &1.into()));
    assert_eq!(seen[0]["job"], seen[1]["job"]);
    // A barrier costs each of two ranks one packet; published counters continue to increase.
    let before = counter(&seen[0], "packets_sent");
    ranks.iter_mut().for_each(|rank| rank.order("work"));
    ranks.iter_mut().for_each(|rank| rank.wait_for("done"));
    let is_counted = |row: &Value| counter(row, "packets_sent") >= before + 100;
    wait_until(path, |rows| rows.iter().all(is_counted));
    let job = seen[0]["job"].as_str().unwrap();
    let (table, errors) = stat(path, &["--job", &job[..3]]);
    assert!(table.starts_with("2 ranks of 1 job; mean rates"), "{table}");
    assert!(table.contains(job) && table.contains("1/2") && errors.is_empty(), "{table}{errors}");
    let (all, _) = stat(path, &["--all"]);
    for (name, _) in omnes::Stats::COUNTERS {
        assert!(all.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
    }
    ranks.iter_mut().for_each(|rank| rank.order("finish"));
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.finish(), Some(0)));
    assert!(files(path).is_empty());
    assert!(stat(path, &[]).0.starts_with("no rank found (looked in "));
}

#[test]
fn killed_rank_is_shown_as_dead_with_its_counters_until_cleaned() {
    let directory = private_directory();
    let path = directory.path();
    let mut ranks = start("OMNES_STATS", path);
    let before = wait_until(path, |rows| {
        rows.len() == 2 && rows.iter().all(|row| counter(row, "packets_sent") > 0)
    });
    ranks[1].process.kill().unwrap();
    // Not reaped yet: a zombie still has its process id.
    let after = wait_until(path, |rows| rows[1]["state"] == "dead");
    assert_eq!(after[0]["state"], "running");
    assert!(counter(&after[1], "packets_sent") >= counter(&before[1], "packets_sent"));
    assert_eq!(ranks[1].process.wait().unwrap().signal(), Some(libc::SIGKILL));
    // The other one leaves because of the failure, but in order.
    ranks[0].order("work");
    ranks[0].wait_for("ended: rank 1 has failed");
    assert_eq!(ranks[0].finish(), Some(3));
    let (table, _) = stat(path, &[]);
    assert!(table.starts_with("1 rank of 1 job, 1 dead"), "{table}");
    let other_job = format!("{:08x}", !u32::from_str_radix(job_of(&after[1]), 16).unwrap());
    let (nothing, _) = stat(path, &["--clean", "--job", &other_job]);
    assert_eq!((nothing.as_str(), files(path).len()), ("no dead rank to remove\n", 1));
    let (removed, _) = stat(path, &["--clean"]);
    let pid = ranks[1].process.id();
    let line = format!("removed job {} rank 1/2 (pid {pid}, stat", job_of(&after[1]));
    assert!(removed.starts_with(&line), "{removed}");
    assert!(files(path).is_empty());
}

fn job_of(row: &Value) -> &str {
    row["job"].as_str().unwrap()
}

#[test]
fn invalid_files_are_rejected_by_name_and_ranks_are_still_shown() {
    let directory = private_directory();
    let path = directory.path();
    let _ranks = start("OMNES_STATS", path);
    wait_until(path, |rows| rows.len() == 2);
    let good = fs::read(files(path).pop().unwrap()).unwrap();
    let mut of_next_year = good.clone();
    of_next_year[8] = 9;
    let mut vast = good.clone();
    vast[12..16].copy_from_slice(&[0xff; 4]);
    for (name, bytes) in [
        ("cut.live", &good[..good.len() / 2]),
        ("elf.live", b"\x7fELF".repeat(1000).as_slice()),
        ("vast.live", &vast),
        ("version.live", &of_next_year),
    ] {
        fs::write(path.join(name), bytes).unwrap();
    }
    std::os::unix::fs::symlink("/dev/zero", path.join("link.live")).unwrap();
    let (table, errors) = stat(path, &[]);
    assert!(table.starts_with("2 ranks of 1 job"), "{table}");
    let cut = format!("has {} bytes in place of {}", good.len() / 2, good.len());
    for (name, reason) in [
        ("cut.live", cut.as_str()),
        ("elf.live", "is not a file of live counters"),
        ("link.live", "is not a regular file"),
        ("vast.live", "claims 4294967295 counters"),
        ("version.live", "has layout 9, this program knows 1"),
    ] {
        let line = format!("omnes: ignored: {} {reason}", path.join(name).display());
        assert!(errors.lines().any(|other| other.starts_with(&line)), "{line}\n{errors}");
    }
    assert_eq!(errors.lines().count(), 5, "{errors}");
}

#[test]
fn statistics_in_the_default_directory_are_private_to_the_user() {
    let directory = private_directory();
    let mut ranks = start("XDG_RUNTIME_DIR", directory.path());
    let published = directory.path().join("omnes");
    let files = files(&published);
    assert_eq!((mode(&published), files.len()), (0o700, 2));
    assert!(files.iter().all(|file| mode(file) == 0o600));
    let name = files[0].file_name().unwrap().to_str().unwrap();
    let mut command = Command::new(OMNES);
    command.args(["stat", "--format", "json", "--job", &name[..8]]);
    command.env_remove("OMNES_STATS").env("XDG_RUNTIME_DIR", directory.path());
    let seen = rows(&String::from_utf8(command.output().unwrap().stdout).unwrap());
    assert_eq!(seen.len(), 2);
    ranks.iter_mut().for_each(|rank| rank.order("finish"));
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.finish(), Some(0)));
}

#[test]
fn ranks_run_without_statistics_if_the_directory_is_not_private() {
    let directory = private_directory();
    let path = directory.path();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    let mut ranks = start("OMNES_STATS", path);
    let (text, errors) = stat(path, &[]);
    assert!(text.starts_with("no rank found"), "{text}");
    assert!(errors.contains("is open to others (mode 755): chmod 700"), "{errors}");
    ranks.iter_mut().for_each(|rank| rank.order("finish"));
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.finish(), Some(0)));
    assert!(files(path).is_empty());
}

#[test]
fn ranks_with_statistics_disabled_publish_nothing() {
    let directory = private_directory();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "plays_a_rank"]).env("TEST_RANK", "yes").stdin(Stdio::null());
    command.env("OMNES_RANK", "0").env("OMNES_SIZE", "1");
    command.env("OMNES_STATS", "off").env("XDG_RUNTIME_DIR", directory.path());
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    assert!(files(directory.path()).is_empty());
    let error = Command::new(OMNES).arg("stat").env("OMNES_STATS", "no").output().unwrap();
    assert_eq!(error.status.code(), Some(2));
    let text = String::from_utf8(error.stderr).unwrap();
    assert_eq!(text, "omnes: OMNES_STATS=no: must be on, off, or a directory that starts with /\n");
}

#[test]
fn watch_shows_rates_per_interval_and_ends_when_the_pipe_is_closed() {
    let directory = private_directory();
    let path = directory.path();
    let mut ranks = start("OMNES_STATS", path);
    wait_until(path, |rows| rows.len() == 2);
    let arguments = ["--watch", "200ms", "--format", "json"];
    let mut watch = stat_command(path, &arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = [next(), next()];
    ranks.iter_mut().for_each(|rank| rank.order("work"));
    // Until the interval in which the work was published.
    let is_busy = |row: &Value| row["packets_sent_per_s"].as_f64().is_some_and(|rate| rate > 0.0);
    let busy = (0..100).map(|_| next()).find(is_busy).unwrap();
    let (rank, interval_ns) = (busy["rank"].as_u64().unwrap(), &busy["interval_ns"]);
    let since_ns = busy["updated_unix_ns"].as_u64().unwrap()
        - first[rank as usize]["updated_unix_ns"].as_u64().unwrap();
    assert!((1..=since_ns).contains(&interval_ns.as_u64().unwrap()), "{busy}");
    drop(lines);
    assert!(watch.wait().unwrap().success());
}

#[test]
fn ranks_ended_by_the_user_leave_no_files() {
    let directory = private_directory();
    let path = directory.path();
    let mut command = Command::new(OMNES);
    command.args(["run", "-n", "2", "--timeout", "60s", "--", OMNES, "bench", "barrier"]);
    command.args(["--budget", "50s", "--max-iters", "1000000000"]).env("OMNES_STATS", path);
    let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(path, |rows| rows.len() == 2);
    let pid = libc::pid_t::try_from(launcher.id()).unwrap();
    // SAFETY: plain system call; the launcher is our child and not yet reaped.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    assert_eq!(launcher.wait().unwrap().signal(), Some(libc::SIGTERM));
    assert!(files(path).is_empty());
}
