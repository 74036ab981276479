//! `omnes run` as a user sees it: whole output and exit status.
//!
//! Ranks are small shell scripts. No test sleeps: a rank says `ready` and the test waits for that
//! line; a process is known to be gone when the pipe that it held is at its end. A rank that
//! should have been ended sleeps for a minute, so a broken launcher fails the test and does not
//! hang it.

#![allow(clippy::unwrap_used)]

mod root;

use root::is_root;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");

/// A rank that waits to be ended.
const WAIT: &str = "echo ready; exec sleep 60";

/// A rank that only KILL ends.
const STUBBORN: &str = "trap '' INT TERM HUP; echo ready; exec sleep 60";

/// A rank that ends in order when it gets TERM or INT; `wait` is what a shell can be woken from.
const POLITE: &str = "trap 'echo got TERM; exit 3' TERM; trap 'echo got INT; exit 4' INT;
    sleep 60 & echo ready; wait";

fn omnes_run(arguments: &[&str]) -> Command {
    let mut command = Command::new(OMNES);
    command.arg("run").args(arguments).stdin(Stdio::null());
    // SAFETY: the hook makes one system call. A test runner started in the background may ignore
    // INT, and what is ignored stays so in its children; then the launcher would rightly not hear.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
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
fn layout_is_random_unless_asked_otherwise_and_alike_in_labs() {
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

    /// Status, rest of the output, rest of the errors.
    fn finish(mut self) -> (Option<i32>, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.stdout.read_to_string(&mut output).unwrap();
        self.stderr.read_to_string(&mut errors).unwrap();
        (self.launcher.wait().unwrap().code(), output, errors)
    }
}

/// A stand-in for ssh in a directory of its own; it writes its words to `words`.
struct FakeSsh {
    directory: tempfile::TempDir,
    script: PathBuf,
}

impl FakeSsh {
    /// `act` is shell text; `$2` is the remote command line.
    fn new(act: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("fake-ssh");
        let words = directory.path().join("words");
        let text = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >>{}\n{act}\n", words.display());
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory, script }
    }

    fn run(&self, hosts: &str, options: &[&str]) -> Command {
        let mut command = omnes_run(options);
        command.args(["--hosts", hosts, "--ssh"]).arg(&self.script);
        command
    }

    fn words(&self) -> String {
        fs::read_to_string(self.directory.path().join("words")).unwrap()
    }
}

#[test]
fn every_line_has_its_rank_before_it_and_a_last_line_gets_its_end() {
    let (status, output, errors) =
        shell(&["-n", "2"], "echo one; printf two; echo bad >&2; [ $OMNES_RANK = 0 ]");
    assert_eq!(output, "[0] one\n[0] two\n[1] one\n[1] two");
    assert_eq!(status, 1);
    for line in ["[0] bad", "[1] bad"] {
        assert!(errors.lines().any(|other| other == line), "{errors}");
    }
}

#[test]
fn prefixes_are_as_wide_as_the_largest_rank() {
    let (_, output, _) = shell(&["-n", "11"], "echo x");
    let mut expected: Vec<_> = (0..11).map(|rank| format!("[{rank:2}] x")).collect();
    expected.sort_unstable();
    assert_eq!(output, expected.join("\n"));
}

#[test]
fn output_can_pass_raw() {
    let script = "printf 'no end'; echo error >&2";
    let (status, output, errors) = shell(&["-n", "1", "--no-prefix"], script);
    assert_eq!((status, &*output, &*errors), (0, "no end", "error\n"));
}

#[test]
fn output_can_go_to_files() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("deep/logs");
    let options = ["-n", "2", "--output-dir", logs.to_str().unwrap()];
    let result = shell(&options, "echo out $OMNES_RANK; echo err $OMNES_RANK >&2");
    assert_eq!(result, (0, String::new(), String::new()));
    let read = |name: &str| fs::read_to_string(logs.join(name)).unwrap();
    assert_eq!((read("rank.0.out"), read("rank.1.err")), ("out 0\n".into(), "err 1\n".into()));
}

#[test]
fn megabytes_of_output_arrive_whole() {
    let (status, output, _) = shell(&["-n", "2"], "seq 1 200000");
    assert_eq!((status, output.lines().count()), (0, 400_000));
    assert!(output.lines().all(|line| line.starts_with("[0] ") || line.starts_with("[1] ")));
}

#[test]
fn ranks_learn_who_they_are() {
    let script = r#"echo $OMNES_RANK/$OMNES_SIZE $OMNES_LOCAL_RANK/$OMNES_LOCAL_SIZE "$A" $B"#;
    let options = ["-n", "2", "--env", "A=x=y  z", "--env", "B=", "--no-prefix"];
    assert_eq!(shell(&options, script).1, "0/2 0/2 x=y  z\n1/2 1/2 x=y  z");
}

#[test]
fn all_ranks_share_a_rendezvous_and_a_key_that_is_new_each_time() {
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
fn only_the_chosen_rank_reads_standard_input() {
    let mut command = omnes_run(&["-n", "2", "--stdin", "1", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"[1] hello\n");
}

#[test]
fn the_first_rank_that_fails_gives_the_status_and_the_others_are_ended() {
    let script = format!("[ $OMNES_RANK != 1 ] || exit 7; {WAIT}");
    let (status, _, errors) = shell(&["-n", "3", "--grace", "10ms"], &script);
    assert_eq!(status, 7);
    assert_eq!(
        errors,
        "omnes: rank 1 on this machine exited with status 7; 2 ranks have 10ms to end\n\
         omnes: 2 still running after 10ms: SIGTERM\n"
    );
}

#[test]
fn ranks_that_ignore_term_after_a_failure_are_killed() {
    // Rank 1 fails when rank 0 has opened the pipe's other end, and so ignores TERM already.
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.display();
    let script = format!(
        "[ $OMNES_RANK = 0 ] || {{ read line <{pipe}; exit 7; }}
        trap '' TERM; echo go >{pipe}; exec sleep 60"
    );
    let (status, _, errors) = shell(&["-n", "2", "--grace", "10ms"], &script);
    assert_eq!(status, 7);
    assert!(errors.ends_with("omnes: 1 still running: SIGKILL\n"), "{errors}");
}

#[test]
fn a_rank_that_dies_by_a_signal_gives_128_and_the_signal() {
    let (status, _, errors) = shell(&["-n", "1"], "kill -SEGV $$");
    assert_eq!(status, 128 + libc::SIGSEGV);
    assert_eq!(errors, "omnes: rank 0 on this machine was killed by SIGSEGV\n");
}

#[test]
fn quiet_leaves_only_the_status() {
    let result = shell(&["-n", "1", "--quiet"], "exit 9");
    assert_eq!(result, (9, String::new(), String::new()));
}

#[test]
fn term_reaches_the_ranks_which_end_in_their_own_way() {
    let job = Job::shell(&["-n", "2"], 2, POLITE);
    job.signal(libc::SIGTERM);
    let (status, output, errors) = job.finish();
    assert_eq!(status, Some(3));
    let mut lines: Vec<_> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] got TERM", "[1] got TERM"]);
    let first = errors.lines().next();
    let note = "omnes: SIGTERM forwarded; 2 ranks have 5s to end (a SIGINT kills)";
    assert_eq!(first, Some(note));
}

#[test]
fn an_interrupt_after_a_term_kills_ranks_that_heed_neither() {
    let mut job = Job::shell(&["-n", "1"], 1, "trap '' INT TERM; echo ready; sleep 60");
    job.signal(libc::SIGTERM);
    assert!(job.note().ends_with("(a SIGINT kills)\n"));
    job.signal(libc::SIGINT);
    assert_eq!(job.note(), "omnes: 1 still running: SIGKILL\n");
    assert_eq!(job.finish().0, Some(128 + libc::SIGTERM));
}

#[test]
fn ranks_fill_the_slots_where_no_number_is_given() {
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
fn too_few_descriptors_are_told_with_the_limit() {
    let script = format!("ulimit -n 64; exec {OMNES} run -n 30 -- sleep 0.1");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("ulimit -n"), "{errors}");
}

#[test]
fn interrupt_and_hangup_are_forwarded_as_they_are() {
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGHUP, 129)] {
        let job = Job::shell(&["-n", "2"], 2, WAIT);
        job.signal(signal);
        assert_eq!(job.finish().0, Some(status));
    }
}

/// A rank that ends when it is continued.
const GOES_ON: &str = "trap 'echo goes on; exit 0' CONT; sleep 60 & echo ready; wait";

#[test]
fn a_launcher_that_is_stopped_stops_its_ranks_which_go_on_with_it() {
    // In a group of its own, as a shell with job control starts it.
    let mut command = omnes_run(&["-n", "2", "--no-prefix", "--", "sh", "-c", GOES_ON]);
    let job = Job::start(command.process_group(0), 2);
    job.signal(libc::SIGTSTP);
    assert!(job.has_stopped());
    job.signal(libc::SIGCONT);
    assert_eq!(job.finish(), (Some(0), "goes on\ngoes on\n".to_owned(), String::new()));
}

#[test]
fn a_launcher_that_nobody_would_continue_does_not_stop() {
    let mut command = omnes_run(&["-n", "2", "--no-prefix", "--", "sh", "-c", GOES_ON]);
    // SAFETY: the hook makes one system call, by which no shell of this session is left.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let job = Job::start(&mut command, 2);
    job.signal(libc::SIGTSTP);
    let has_stopped = job.has_stopped();
    if has_stopped {
        job.signal(libc::SIGKILL);
    }
    let outcome = job.finish();
    assert!(!has_stopped, "{outcome:?}");
    assert_eq!(outcome, (Some(0), "goes on\ngoes on\n".to_owned(), String::new()));
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let mut command = omnes_run(&["-n", "1", "--", "sh", "-c", POLITE]);
    // SAFETY: the hook makes one system call; it runs after that of `omnes_run`.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    let mut job = Job::start(&mut command, 1);
    job.signal(libc::SIGHUP);
    job.signal(libc::SIGTERM);
    // A forwarded HUP would have been noted first, as its number is the lower one.
    assert!(job.note().starts_with("omnes: SIGTERM forwarded"));
    assert_eq!(job.finish().0, Some(3));
}

#[test]
fn ranks_that_ignore_a_signal_are_killed_after_the_grace() {
    let job = Job::shell(&["-n", "2", "--grace", "10ms"], 2, STUBBORN);
    job.signal(libc::SIGTERM);
    let (status, _, errors) = job.finish();
    assert_eq!(status, Some(128 + libc::SIGTERM));
    assert!(errors.ends_with("omnes: 2 still running: SIGKILL\n"), "{errors}");
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let mut job = Job::shell(&["-n", "2", "--grace", "50s"], 2, STUBBORN);
    job.signal(libc::SIGINT);
    assert!(job.note().starts_with("omnes: SIGINT forwarded"));
    job.signal(libc::SIGINT);
    assert_eq!(job.finish().0, Some(128 + libc::SIGINT));
}

#[test]
fn a_launcher_that_only_waits_for_a_slow_reader_has_no_warden() {
    // More than a pipe holds, and less than the two between the rank and the reader.
    let script = "echo ready; head -c 100000 /dev/zero | tr '\\0' x";
    let job = Job::shell(&["-n", "1"], 1, script);
    let pid = job.launcher.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(&children).unwrap() != "" {
        assert!(Instant::now() < deadline, "the warden stays");
        std::thread::yield_now();
    }
    assert_eq!(job.finish().0, Some(0));
}

#[test]
fn ranks_and_what_they_have_started_die_with_a_launcher_that_is_killed() {
    // Raw output: all of them hold the pipe, so its end is theirs.
    let script = "trap '' INT TERM HUP; (sleep 20; echo outlived) & echo ready; sleep 20; echo too";
    let options: &[&[&str]] = &[&["--no-prefix"], &["--no-prefix", "--lab"]];
    for options in &options[..1 + usize::from(is_root())] {
        let job = Job::shell(&[&["-n", "3"], *options].concat(), 3, script);
        job.signal(libc::SIGKILL);
        assert_eq!(job.finish(), (None, String::new(), String::new()));
    }
}

#[test]
fn a_launcher_that_is_killed_by_the_rank_it_starts_leaves_nothing() {
    // In some rounds the rank does so before the launcher has heard of its start.
    let script = "(sleep 20; echo outlived) & kill -KILL $PPID; sleep 20; echo too";
    for round in 0..50 {
        let output = omnes_run(&["-n", "1", "--no-prefix", "--", "sh", "-c", script]).output();
        assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), "", "round {round}");
    }
}

#[test]
fn what_a_rank_leaves_behind_is_ended_with_the_job() {
    let (status, output, _) = shell(&["-n", "1"], "sleep 60 & echo done");
    assert_eq!((status, &*output), (0, "[0] done"));
}

#[test]
fn ranks_stay_in_the_session_of_the_launcher() {
    // Field 6 of stat is the session; a session of its own would give each rank its own share of
    // the cores, and ranks that spin would starve the rest.
    let script = "cut -d' ' -f6 /proc/$PPID/stat; cut -d' ' -f6 /proc/$$/stat";
    let (_, output, _) = shell(&["-n", "1", "--no-prefix"], script);
    let sessions: Vec<_> = output.lines().collect();
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions[0], sessions[1]);
}

#[test]
fn a_job_over_its_time_limit_ends_with_124() {
    let (status, _, errors) = shell(&["-n", "2", "--timeout", "50ms"], "exec sleep 60");
    assert_eq!(status, 124);
    assert_eq!(errors, "omnes: the job's 50ms are over (--timeout); ranks got SIGTERM\n");
}

#[test]
fn a_job_whose_rank_has_failed_has_a_time_limit_all_the_same() {
    let script = "[ $OMNES_RANK != 1 ] || exit 7; exec sleep 60";
    let options = ["-n", "2", "--grace", "50s", "--timeout", "1s"];
    let (_, _, errors) = shell(&options, script);
    let told = "omnes: the job's 1s are over (--timeout); ranks got SIGTERM";
    assert_eq!(errors.lines().last(), Some(told), "{errors}");
}

#[test]
fn commands_that_cannot_be_started_are_named() {
    let (status, _, errors) = finish(&mut omnes_run(&["-n", "2", "--", "no-such-command"]));
    assert_eq!(status, 127);
    assert!(errors.starts_with("omnes: cannot start 'no-such-command': not found"), "{errors}");
    let (status, _, errors) = finish(&mut omnes_run(&["-n", "2", "--", "/etc/passwd"]));
    assert_eq!(status, 126);
    assert!(errors.starts_with("omnes: cannot start '/etc/passwd': not executable"), "{errors}");
}

#[test]
fn wrong_usage_names_the_value_and_the_way_out() {
    for (options, expected) in [
        (&["-n", "0"][..], "-n 0: a job has 1 to 4096 ranks"),
        (&["-n", "3", "--hosts", "a,b"], "-n 3: the hosts of --hosts a,b have room for 2"),
        (&["-n", "1", "--hosts=-oX"], "'-oX' names no host"),
        (&["-n", "2", "--stdin", "2"], "--stdin 2: there is no such rank"),
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
fn a_dry_run_shows_the_ranks_and_keeps_the_key_to_itself() {
    let (status, output, _) = shell(&["-n", "2", "--dry-run"], "echo 'must not run'");
    assert_eq!(status, 0);
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[1].starts_with("[1] this machine: OMNES_RANK=1 OMNES_SIZE=2 "), "{}", lines[1]);
    let end = r"'OMNES_JOB_KEY=(secret)' sh -c 'echo '\''must not run'\'''";
    assert!(lines[1].ends_with(end), "{}", lines[1]);
}

#[test]
fn ssh_ranks_get_their_host_environment_and_directory() {
    let ssh = FakeSsh::new(r#"FAKE_HOST=$1 exec sh -c "$2""#);
    let directory = tempfile::tempdir().unwrap();
    let odd = directory.path().join("it's a $dir");
    fs::create_dir(&odd).unwrap();
    let script = r#"echo $FAKE_HOST $OMNES_RANK/$OMNES_SIZE $OMNES_LOCAL_RANK/$OMNES_LOCAL_SIZE \
        "$A" "$PWD" ${OMNES_RENDEZVOUS%:*}"#;
    let mut command = ssh.run("u@a,b:2", &["-n", "3", "--env", "A=it's  $A"]);
    let (status, output, errors) =
        finish(command.current_dir(&odd).args(["--", "sh", "-c", script]));
    let end = format!("it's  $A {} a", fs::canonicalize(&odd).unwrap().display());
    assert_eq!(output, format!("[0] u@a 0/3 0/1 {end}\n[1] b 1/3 0/2 {end}\n[2] b 2/3 1/2 {end}"));
    assert_eq!((status, &*errors), (0, ""));
}

#[test]
fn the_callers_settings_reach_ssh_ranks_unless_env_says_otherwise() {
    // This far side has nothing of the launcher's environment.
    let ssh = FakeSsh::new(r#"exec env -i PATH="$PATH" sh -c "$2""#);
    let run = |options: &[&str]| {
        let mut command =
            ssh.run("a", &[&["-n", "1", "--env", "OMNES_SPIN=2us"], options].concat());
        command.envs([("OMNES_ENCRYPT", "on"), ("OMNES_NETWORK", "it's $mine")]);
        command.envs([("OMNES_SPIN", "1us"), ("OMNES_RANK", "7"), ("OMNES_JOB_KEY", "another's")]);
        command.envs([("OMNES_NO-NAME", "of a shell's variable"), ("OTHER", "stays here")]);
        let script = r#"echo "$OMNES_ENCRYPT $OMNES_NETWORK $OMNES_SPIN $OMNES_RANK $OTHER.""#;
        finish(command.args(["--", "sh", "-c", script]))
    };
    let (status, output, errors) = run(&[]);
    assert_eq!((status, &*output, &*errors), (0, "[0] on it's $mine 2us 0 .", ""));
    assert!(!ssh.words().contains("another"), "{}", ssh.words());
    let (_, plan, _) = run(&["--dry-run"]);
    assert!(plan.contains("OMNES_ENCRYPT=on") && !plan.contains("another"), "{plan}");
}

#[test]
fn any_argument_survives_the_remote_shell() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    let arguments =
        ["", "a b", "it's", "$HOME", "`id`", "\\", "\"", "*", "two\nlines", "-n", "ü;&|"];
    let mut command = ssh.run("a", &["-n", "1", "--no-prefix"]);
    let output = command.args(["--", "printf", "<%s>"]).args(arguments).output().unwrap();
    let expected: String = arguments.iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn the_key_reaches_ssh_ranks_but_no_command_line() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    let mut command = ssh.run("a:2", &["-n", "2", "--no-prefix"]);
    let script = "echo $OMNES_JOB_KEY; cat"; // cat: standard input must be at its end
    let (status, output, _) = finish(command.args(["--", "sh", "-c", script]));
    let keys: Vec<_> = output.lines().collect();
    assert_eq!((status, keys.len(), keys[0].len()), (0, 2, 32));
    assert_eq!(keys[0], keys[1]);
    assert!(ssh.words().contains("OMNES_RANK=1"));
    assert!(!ssh.words().contains(keys[0]));
}

#[test]
fn signals_reach_ssh_ranks_as_they_are() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    for (signal, word, expected) in [(libc::SIGTERM, "TERM", 3), (libc::SIGINT, "INT", 4)] {
        let mut command = ssh.run("a:2", &["-n", "2"]);
        let job = Job::start(command.args(["--", "sh", "-c", POLITE]), 2);
        job.signal(signal);
        let (status, output, _) = job.finish();
        assert_eq!(status, Some(expected), "{output}");
        assert_eq!(output.matches(&format!("got {word}")).count(), 2, "{output}");
    }
}

#[test]
fn ssh_ranks_end_with_the_connection() {
    // This ssh stays as a process of its own, so that its death leaves the far side to itself.
    let ssh = FakeSsh::new(r#"sh -c "$2"; exit"#);
    let mut command = ssh.run("a:2", &["-n", "2", "--no-prefix"]);
    let job = Job::start(command.args(["--", "sh", "-c", STUBBORN]), 2);
    job.signal(libc::SIGKILL);
    assert_eq!(job.finish(), (None, String::new(), String::new()));
}

#[test]
fn statuses_of_ssh_ranks_and_of_ssh_itself_are_told_apart() {
    let ssh = FakeSsh::new(r#"[ "$1" != lost ] || exit 255; exec sh -c "$2""#);
    let mut command = ssh.run("a", &["-n", "1"]);
    let (status, _, errors) = finish(command.args(["--", "sh", "-c", "kill -SEGV $$"]));
    assert_eq!(status, 139);
    assert!(errors.contains("rank 0 on a exited with status 139 (128 + SIGSEGV)"), "{errors}");
    let mut command = ssh.run("a", &["-n", "1"]);
    assert_eq!(finish(command.args(["--", "no-such-command"])).0, 127);
    let mut command = ssh.run("lost", &["-n", "1"]);
    let (status, _, errors) = finish(command.args(["--", "true"]));
    assert_eq!(status, 255);
    assert!(errors.contains("rank 0 on lost ended with the connection"), "{errors}");
}

/// An ssh that notes when it begins to connect and when it is through, host by host; to `a` it is
/// not before eight are under way.
const SLOW_SSH: &str = r#"
log=${0%/*}/log.$1
echo begin >>"$log"
[ "$1" != u@a ] || until [ "$(grep -c begin "$log")" -ge 8 ]; do sleep 0.01; done
echo through >>"$log"
exec sh -c "$2"
"#;

#[test]
fn at_most_eight_ranks_connect_to_a_machine_at_once() {
    let ssh = FakeSsh::new(SLOW_SSH);
    let mut command = ssh.run("u@a:20,b:3", &["-n", "23"]);
    let (status, output, errors) = finish(command.args(["--", "sh", "-c", "echo $OMNES_RANK"]));
    assert_eq!((status, &*errors), (0, ""));
    let mut expected: Vec<_> = (0..23).map(|rank| format!("[{rank:2}] {rank}")).collect();
    expected.sort_unstable();
    assert_eq!(output, expected.join("\n"));
    let log = |host| fs::read_to_string(ssh.directory.path().join(host)).unwrap();
    assert_eq!(log("log.b").matches("through").count(), 3);
    let log = log("log.u@a");
    let connecting = log.lines().scan(0, |connecting, line| {
        *connecting += if line == "begin" { 1 } else { -1 };
        Some(*connecting)
    });
    assert_eq!(connecting.max(), Some(8), "{log}");
}

#[test]
fn ranks_that_wait_for_others_to_connect_are_not_started_after_a_failure() {
    // The first is refused at once, and no other gets through.
    let ssh = FakeSsh::new(r#"! mkdir "${0%/*}/first" 2>/dev/null || exit 255; exec sleep 60"#);
    let mut command = ssh.run("a:20", &["-n", "20", "--grace", "10ms"]);
    let (status, _, errors) = finish(command.args(["--", "true"]));
    assert_eq!(status, 255, "{errors}");
    assert!(errors.contains("ended with the connection"), "{errors}");
    let started = ssh.words().lines().filter(|word| *word == "a").count();
    assert!((8..=9).contains(&started), "{started}");
}

#[test]
fn more_ranks_than_the_usual_limit_of_descriptors_allows_are_started() {
    let run = format!("ulimit -Sn 40; exec {OMNES} run -n 60 -- true");
    let (status, _, errors) = finish(Command::new("sh").args(["-c", &run]));
    assert_eq!((status, &*errors), (0, ""));
}

#[test]
fn a_missing_ssh_is_named() {
    let mut command = omnes_run(&["-n", "1", "--hosts", "a", "--ssh", "no-such-ssh", "--", "true"]);
    let (status, _, errors) = finish(&mut command);
    assert_eq!(status, 127);
    assert!(errors.contains("'no-such-ssh': not found; install ssh"), "{errors}");
}

#[test]
fn ephemeral_lab_gives_every_rank_a_host_of_its_own() {
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
fn doctor_sees_a_rank_of_a_lab_and_sockets_that_work() {
    // On a lab host, so that the joins it tries announce nothing to a real network.
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
    assert_eq!(find("OMNES_SPNI")["advice"], "no program of Omnes reads a variable of this name");
    let refused = find("OMNES_SPIN");
    assert_eq!(refused["verdict"], "missing");
    assert!(refused["advice"].as_str().unwrap().contains("needs a unit of time"), "{refused}");
}

#[test]
fn ranks_that_wait_for_one_that_has_ended_are_told_of() {
    let script = format!("[ $OMNES_RANK = 1 ] && exit 0; exec {OMNES} bench barrier");
    let mut command = omnes_run(&["-n", "3", "--", "sh", "-c", &script]);
    let mut job = Job::start(command.env_remove("OMNES_STATS"), 0);
    let expected = "omnes: rank 1 has ended with status 0; if the others wait for it, they do \
                    until OMNES_JOIN_TIMEOUT (default 60s)\n";
    assert_eq!(job.note(), expected);
    job.signal(libc::SIGTERM);
    job.finish();
}

#[test]
fn ranks_that_do_not_meet_may_end_one_after_the_other() {
    let (status, _, errors) = shell(&["-n", "2"], "[ $OMNES_RANK = 1 ] || exec sleep 4");
    assert_eq!((status, &*errors), (0, ""));
}

#[test]
fn an_interface_that_is_not_here_is_refused_with_those_that_are() {
    let options = ["-n", "1", "--env", "OMNES_INTERFACE=eth9"];
    let script = format!("exec {OMNES} bench barrier --budget 1ms");
    let (status, _, errors) = shell(&options, &script);
    assert_eq!(status, 2, "{errors}");
    let reason = "OMNES_INTERFACE=eth9: no address here fits; there are lo 127.0.0.1/8";
    assert!(errors.contains(reason), "{errors}");
}
