//! `omnes run` as a user sees it: whole output and exit status.
//!
//! Ranks are small shell scripts. No test sleeps: a rank says `ready` and the test waits for that
//! line; a process is known to be gone when the pipe that it held is at its end. A rank that should
//! have been ended sleeps for a minute, so a broken launcher fails the test and does not block it.

#![allow(clippy::unwrap_used)]

#[path = "../as_root/mod.rs"]
mod as_root;
mod ending;
mod output;
mod ssh;

use as_root::is_root;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");

/// Ranks that print the signals they receive that have no meaning to the launcher, until the second
/// one. A process that they wait for would also be a target.
const TELLS: &str = "trap 'echo USR1' USR1; trap 'echo USR2; exit 0' USR2; echo ready
while :; do :; done";

/// A rank that waits to be ended.
const WAIT: &str = "echo ready; exec sleep 60";

/// A rank that only KILL ends.
const STUBBORN: &str = "trap '' INT TERM HUP; echo ready; exec sleep 60";

/// A rank that ends in order when it receives TERM or INT; `wait` is what a shell can be woken
/// from.
const POLITE: &str = "trap 'echo got TERM; exit 3' TERM; trap 'echo got INT; exit 4' INT;
    sleep 60 & echo ready; wait";

fn omnes_run(arguments: &[&str]) -> Command {
    let mut command = Command::new(OMNES);
    command.arg("run").args(arguments).stdin(Stdio::null());
    // SAFETY: the hook makes system calls only. A test runner started in the background may ignore
    // these signals, and children inherit that; then the launcher would rightly ignore them.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// Status, standard output, standard error; lines of output sorted, as ranks are not ordered.
fn finish(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), lines.join("\n"), errors)
}

fn shell(options: &[&str], script: &str) -> (i32, String, String) {
    finish(omnes_run(options).args(["--", "sh", "-c", script]))
}

#[test]
fn address_layout_follows_the_aslr_option_and_is_fixed_in_labs() {
    let personality = |options: &[&str]| {
        let (status, output, errors) =
            shell(&[&["-n", "2", "--no-prefix"], options].concat(), "cat /proc/self/personality");
        assert_eq!(status, 0, "{errors}");
        output
    };
    let (random, alike) = ("00000000\n00000000", "00040000\n00040000");
    let own = std::fs::read_to_string("/proc/self/personality").unwrap();
    assert_eq!(personality(&[]), format!("{own}{}", own.trim_end()), "the launcher's");
    assert_eq!(personality(&["--aslr", "on"]), random);
    assert_eq!(personality(&["--aslr", "off"]), alike);
    if is_root() {
        assert_eq!(personality(&["--lab"]), alike);
        assert_eq!(personality(&["--lab", "--aslr", "on"]), random);
    }
}

/// A launcher whose ranks have all said `ready`.
struct Job {
    launcher: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Job {
    fn start(command: &mut Command, ranks: usize) -> Self {
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(launcher.stdout.take().unwrap());
        let stderr = BufReader::new(launcher.stderr.take().unwrap());
        let mut job = Self { launcher, stdout, stderr };
        for _ in 0..ranks {
            let mut line = String::new();
            job.stdout.read_line(&mut line).unwrap();
            assert!(line.ends_with("ready\n"), "{line:?}");
        }
        job
    }

    fn shell(options: &[&str], ranks: usize, script: &str) -> Self {
        Self::start(omnes_run(options).args(["--", "sh", "-c", script]), ranks)
    }

    fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.launcher.id()).unwrap();
        // SAFETY: plain system call; the launcher is our child and not yet reaped.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Waits until the launcher has stopped or ended; true if it has stopped.
    fn has_stopped(&self) -> bool {
        let id = libc::id_t::from(self.launcher.id());
        let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: an all-zero siginfo_t is a valid value of that plain C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is valid for writing; the launcher is our child and not yet reaped.
        assert_eq!(unsafe { libc::waitid(libc::P_PID, id, &mut info, flags) }, 0);
        info.si_code == libc::CLD_STOPPED
    }

    fn note(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    /// Sends USR1, waits for the rank's answer, sends USR2, and finishes.
    fn finish_after_both(mut self) -> (i32, String, String) {
        self.signal(libc::SIGUSR1);
        let mut told = String::new();
        self.stdout.read_line(&mut told).unwrap();
        self.signal(libc::SIGUSR2);
        let (status, rest, errors) = self.finish();
        (status, told + &rest, errors)
    }

    /// Status, or the signal that ended it, negative; remaining output, remaining errors.
    fn finish(mut self) -> (i32, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.stdout.read_to_string(&mut output).unwrap();
        self.stderr.read_to_string(&mut errors).unwrap();
        let status = self.launcher.wait().unwrap();
        (status.code().or(status.signal().map(|signal| -signal)).unwrap(), output, errors)
    }
}

#[test]
fn ranks_get_their_rank_size_and_variables() {
    let script = r#"echo $OMNES_RANK/$OMNES_SIZE $OMNES_LOCAL_RANK/$OMNES_LOCAL_SIZE "$A" $B"#;
    let options = ["-n", "2", "--env", "A=x=y  z", "--env", "B=", "--no-prefix"];
    assert_eq!(shell(&options, script).1, "0/2 0/2 x=y  z\n1/2 1/2 x=y  z");
}

#[test]
fn ranks_share_a_rendezvous_and_a_fresh_job_key() {
    let script = "echo $OMNES_RENDEZVOUS $OMNES_JOB_KEY";
    let (_, first, _) = shell(&["-n", "2", "--no-prefix"], script);
    let (_, second, _) = shell(&["-n", "1", "--no-prefix", "--ipv6"], script);
    let lines: Vec<_> = first.lines().collect();
    assert_eq!(lines[0], lines[1]);
    let (rendezvous, key) = lines[0].split_once(' ').unwrap();
    assert!(rendezvous.starts_with("127.0.0.1:"), "{rendezvous}");
    assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert!(second.starts_with("[::1]:"), "{second}");
    assert!(!second.contains(key));
}

#[test]
fn ranks_default_to_the_number_of_slots() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    fs::write(&file, "a slots=2 # two\nnode[08-09]\n").unwrap();
    let hosts = |option: &str, value: &str| {
        let plan = finish(&mut omnes_run(&[option, value, "--dry-run", "--", "true"]));
        assert_eq!((plan.0, &*plan.2), (0, ""), "{plan:?}");
        let host = |line: &str| line.split(' ').nth(1).unwrap().to_owned();
        plan.1.lines().filter(|line| line.starts_with('[')).map(host).collect::<Vec<_>>()
    };
    let expected = ["a:", "a:", "node08:", "node09:"];
    assert_eq!(hosts("--hosts", "a:2,node[08-09]"), expected);
    assert_eq!(hosts("--hostfile", file.to_str().unwrap()), expected);
    let neither = finish(&mut omnes_run(&["--", "true"]));
    assert!(neither.0 == 2 && neither.2.contains("--ranks"), "{neither:?}");
    let (status, _, errors) = finish(&mut omnes_run(&["-np", "2", "--", "true"]));
    assert!(status == 2 && errors.contains("there is no `-np`; write `-n 2`"), "{errors}");
}

#[test]
fn descriptor_shortage_is_reported_with_the_limit() {
    let script = format!("ulimit -n 64; exec {OMNES} run -n 30 -- sleep 0.1");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("ulimit -n"), "{errors}");
}

#[test]
fn ranks_stay_in_the_session_of_the_launcher() {
    // Field 6 of stat is the session; a session of its own would give each rank its own share of
    // the cores, and ranks that spin would starve the others.
    let script = "cut -d' ' -f6 /proc/$PPID/stat; cut -d' ' -f6 /proc/$$/stat";
    let (_, output, _) = shell(&["-n", "1", "--no-prefix"], script);
    let sessions: Vec<_> = output.lines().collect();
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions[0], sessions[1]);
}

#[test]
fn commands_that_fail_to_start_are_named() {
    let (status, _, errors) = finish(&mut omnes_run(&["-n", "2", "--", "no-such-command"]));
    assert_eq!(status, 127);
    assert!(errors.starts_with("omnes: cannot start 'no-such-command': not found"), "{errors}");
    let (status, _, errors) = finish(&mut omnes_run(&["-n", "2", "--", "/etc/passwd"]));
    assert_eq!(status, 126);
    assert!(errors.starts_with("omnes: cannot start '/etc/passwd': not executable"), "{errors}");
}

#[test]
fn usage_errors_name_the_value_and_a_fix() {
    for (options, expected) in [
        (&["-n", "0"][..], "-n 0: a job has 1 to 4096 ranks"),
        (&["-n", "3", "--hosts", "a,b"], "-n 3: the hosts of --hosts a,b have room for 2"),
        (&["-n", "1", "--hosts=-oX"], "'-oX' names no host"),
        (&["-n", "2", "--stdin", "2"], "--stdin 2: no such rank"),
        (&["-n", "1", "--timeout", "5x"], "`5x`: a time ends in ns"),
        (&["-n", "1", "--env", "OMNES_RANK=1"], "OMNES_RANK is set by omnes run"),
        (&["-n", "1", "--loss", "1%"], "need --lab"),
    ] {
        let (status, output, errors) = shell(options, "echo must not run");
        assert_eq!((status, &*output), (2, ""), "{options:?}");
        assert!(errors.contains(expected), "{options:?}: {errors}");
    }
}

#[test]
fn dry_run_lists_the_ranks_without_the_key() {
    let (status, output, _) = shell(&["-n", "2", "--dry-run"], "echo 'must not run'");
    assert_eq!(status, 0);
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[1].starts_with("[1] this machine: OMNES_RANK=1 OMNES_SIZE=2 "), "{}", lines[1]);
    let end = r"'OMNES_JOB_KEY=(secret)' sh -c 'echo '\''must not run'\'''";
    assert!(lines[1].ends_with(end), "{}", lines[1]);
}

#[test]
fn ranks_beyond_the_soft_descriptor_limit_are_started() {
    let run = format!("ulimit -Sn 40; exec {OMNES} run -n 60 -- true");
    let (status, _, errors) = finish(Command::new("sh").args(["-c", &run]));
    assert_eq!((status, &*errors), (0, ""));
}

#[test]
fn ephemeral_lab_gives_every_rank_its_own_host() {
    if !is_root() {
        return;
    }
    let script = "readlink /proc/self/ns/net; echo $OMNES_RENDEZVOUS $OMNES_LOCAL_SIZE >&2";
    let (status, output, errors) = shell(&["-n", "2", "--lab", "--no-prefix"], script);
    assert_eq!(status, 0, "{errors}");
    let own = fs::read_link(Path::new("/proc/self/ns/net")).unwrap();
    let namespaces: Vec<_> = output.lines().collect();
    assert_eq!(namespaces.len(), 2);
    assert_ne!(namespaces[0], namespaces[1]);
    assert!(namespaces.iter().all(|name| Path::new(name) != own));
    let told: Vec<_> = errors.lines().collect();
    assert_eq!(told[0], told[1]);
    assert!(told[0].ends_with(" 2") && !told[0].starts_with("127."), "{}", told[0]);
}

#[test]
fn doctor_inside_a_lab_rank_finds_the_launcher_and_working_sockets() {
    // On a lab host, so that the joins it tests announce nothing to a real network.
    if !is_root() {
        return;
    }
    let mut command = omnes_run(&["-n", "1", "--lab", "--no-prefix", "--", OMNES, "doctor"]);
    command.args(["--format", "json"]).envs([("OMNES_SPIN", "4"), ("OMNES_SPNI", "3")]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let find = |name: &str| {
        let found = findings.iter().find(|finding| finding["name"] == name);
        found.unwrap_or_else(|| panic!("no finding {name}"))
    };
    assert_eq!(find("IPv4 multicast over lo")["verdict"], "ok");
    assert_eq!(find("IPv4 multicast join, eth0")["verdict"], "ok");
    assert_eq!(find("launcher omnes run")["value"], "OMNES_RANK=0 OMNES_SIZE=1");
    assert_eq!(find("launcher omnes run")["advice"], "used");
    assert_eq!(find("OMNES_RANK")["verdict"], "ok");
    assert_eq!(
        find("OMNES_SPNI")["advice"],
        "no rank or command of Omnes reads a variable of this name"
    );
    let refused = find("OMNES_SPIN");
    assert_eq!(refused["verdict"], "missing");
    assert!(refused["advice"].as_str().unwrap().contains("needs a unit of time"), "{refused}");
}

#[test]
fn unknown_interface_is_rejected_with_the_available_ones() {
    let options = ["-n", "1", "--env", "OMNES_INTERFACE=eth9"];
    let script = format!("exec {OMNES} bench barrier --budget 1ms");
    let (status, _, errors) = shell(&options, &script);
    assert_eq!(status, 2, "{errors}");
    let reason = "OMNES_INTERFACE=eth9: no address here fits; there are lo 127.0.0.1/8";
    assert!(errors.contains(reason), "{errors}");
}
