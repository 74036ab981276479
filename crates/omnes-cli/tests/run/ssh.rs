//! Ranks on other machines, through a stand-in for ssh.

use super::{Job, OMNES, POLITE, STUBBORN, TELLS, finish, omnes_run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A stand-in for ssh in a directory of its own; it writes its arguments to `words`.
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
fn ssh_ranks_get_host_environment_and_working_directory() {
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
fn caller_settings_reach_ssh_ranks_unless_overridden_by_env() {
    // This remote side has nothing of the launcher's environment.
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
fn arguments_pass_through_the_remote_shell_unchanged() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    let arguments =
        ["", "a b", "it's", "$HOME", "`id`", "\\", "\"", "*", "two\nlines", "-n", "ü;&|"];
    let mut command = ssh.run("a", &["-n", "1", "--no-prefix"]);
    let output = command.args(["--", "printf", "<%s>"]).args(arguments).output().unwrap();
    let expected: String = arguments.iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn job_key_reaches_ssh_ranks_without_appearing_on_a_command_line() {
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
fn signals_are_forwarded_unchanged_to_ssh_ranks() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    for (signal, word, expected) in [(libc::SIGTERM, "TERM", 3), (libc::SIGINT, "INT", 4)] {
        let mut command = ssh.run("a:2", &["-n", "2"]);
        let job = Job::start(command.args(["--", "sh", "-c", POLITE]), 2);
        job.signal(signal);
        let (status, output, _) = job.finish();
        assert_eq!(status, expected, "{output}");
        assert_eq!(output.matches(&format!("got {word}")).count(), 2, "{output}");
    }
}

#[test]
fn user_signals_are_forwarded_to_ssh_ranks() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    let mut command = ssh.run("a:1", &["-n", "1", "--no-prefix"]);
    let job = Job::start(command.args(["--", "sh", "-c", TELLS]), 1);
    assert_eq!(job.finish_after_both(), (0, "USR1\nUSR2\n".to_owned(), String::new()));
}

#[test]
fn signal_ends_an_ssh_that_still_connects() {
    let ssh = FakeSsh::new(r#"[ "$1" = a ] || exec sleep 60; exec sh -c "$2""#);
    let mut command = ssh.run("a,b", &["-n", "2", "--grace", "60s"]);
    let start = Instant::now();
    let job = Job::start(command.args(["--", "sh", "-c", POLITE]), 1);
    job.signal(libc::SIGTERM);
    let (status, output, errors) = job.finish();
    assert!(output.contains("got TERM"), "{output}{errors}");
    assert!(status != 0 && start.elapsed() < Duration::from_secs(30), "{status} {errors}");
}

/// An ssh that has read the job key is connected, even if it is slow to read what follows.
#[test]
fn signals_do_not_end_an_ssh_that_is_slow_to_read_them() {
    let ssh = FakeSsh::new(
        r#"read -r key; trap 'echo hit' TERM; echo ready; sleep 0.5; read -r one; read -r two
        echo "$one $two""#,
    );
    let mut command = ssh.run("a", &["-n", "1", "--no-prefix"]);
    let job = Job::start(command.args(["--", "true"]), 1);
    job.signal(libc::SIGUSR1);
    std::thread::sleep(Duration::from_millis(100));
    job.signal(libc::SIGTERM);
    let (status, output, _) = job.finish();
    assert_eq!((status, output.trim()), (0, "USR1 TERM"));
}

#[test]
fn a_hostfile_may_be_a_pipe() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    let script =
        "printf 'a\nb:2\n' | \"$0\" run --ssh \"$1\" --hostfile /dev/stdin --dry-run -- true";
    let mut shell = Command::new("sh");
    let (status, output, errors) = finish(shell.args(["-c", script, OMNES]).arg(&ssh.script));
    let ranks = output.lines().filter(|line| line.starts_with('['));
    assert_eq!((status, ranks.count()), (0, 3), "{errors}");
}

#[test]
fn ssh_ranks_use_the_logical_working_directory_of_the_shell() {
    let ssh = FakeSsh::new(r#"exec sh -c "$2""#);
    let (place, name) = (ssh.directory.path().join("place"), ssh.directory.path().join("name"));
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(&place, &name).unwrap();
    // A PWD that is not a name of the directory is ignored.
    for (pwd, expected) in [(name.as_path(), &name), (ssh.directory.path(), &place)] {
        let mut command = ssh.run("a", &["-n", "1", "--no-prefix"]);
        command.current_dir(&place).env("PWD", pwd).args(["--", "sh", "-c", "echo \"$PWD\""]);
        let (_, output, errors) = finish(&mut command);
        assert_eq!(output, expected.to_str().unwrap(), "{errors}");
    }
}

#[test]
fn ssh_ranks_end_with_the_connection() {
    // This ssh stays as a process of its own, so that its death leaves the remote side alone.
    let ssh = FakeSsh::new(r#"sh -c "$2"; exit"#);
    let mut command = ssh.run("a:2", &["-n", "2", "--no-prefix"]);
    let job = Job::start(command.args(["--", "sh", "-c", STUBBORN]), 2);
    job.signal(libc::SIGKILL);
    assert_eq!(job.finish(), (-libc::SIGKILL, String::new(), String::new()));
}

#[test]
fn statuses_of_ssh_ranks_and_of_ssh_itself_are_distinguished() {
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
    assert!(errors.contains("rank 0 on lost ended with status 255"), "{errors}");
}

/// An ssh that records when it starts to connect and when it is through, host by host; to `a` it is
/// not through before eight are connecting.
const SLOW_SSH: &str = r#"
log=${0%/*}/log.$1
echo begin >>"$log"
[ "$1" != u@a ] || until [ "$(grep -c begin "$log")" -ge 8 ]; do sleep 0.01; done
echo through >>"$log"
exec sh -c "$2"
"#;

#[test]
fn at_most_eight_ranks_connect_to_a_machine_concurrently() {
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
fn ranks_queued_for_ssh_are_not_started_after_a_failure() {
    // The first is rejected once eight are connecting, and no other gets through.
    let ssh = FakeSsh::new(
        r#"mkdir "${0%/*}/first" 2>/dev/null || exec sleep 60
        until [ "$(grep -cx a "${0%/*}/words")" -ge 8 ]; do sleep 0.01; done; exit 255"#,
    );
    let mut command = ssh.run("a:20", &["-n", "20", "--grace", "10ms"]);
    let (status, _, errors) = finish(command.args(["--", "true"]));
    assert_eq!(status, 255, "{errors}");
    assert!(errors.contains("ended with status 255"), "{errors}");
    let started = ssh.words().lines().filter(|word| *word == "a").count();
    assert!((8..=9).contains(&started), "{started}");
}

#[test]
fn missing_ssh_command_is_named() {
    let mut command = omnes_run(&["-n", "1", "--hosts", "a", "--ssh", "no-such-ssh", "--", "true"]);
    let (status, _, errors) = finish(&mut command);
    assert_eq!(status, 127);
    assert!(errors.contains("'no-such-ssh': not found; install ssh"), "{errors}");
}
