//! How jobs end: by failures, signals, limits, and the end of the launcher.

use super::as_root::is_root;
use super::{Job, OMNES, POLITE, STUBBORN, TELLS, WAIT, omnes_run, shell};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn first_failed_rank_sets_the_status_and_the_others_are_ended() {
    let script = format!("[ $OMNES_RANK != 1 ] || exit 7; {WAIT}");
    let (status, _, errors) = shell(&["-n", "3", "--grace", "1s"], &script);
    assert_eq!(status, 7);
    assert_eq!(
        errors,
        "omnes: rank 1 on this machine exited with status 7; 2 ranks have 1s to end\n\
         omnes: 2 still running after 1s: SIGTERM\n"
    );
}

#[test]
fn ranks_that_ignore_sigterm_after_a_failure_are_killed() {
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
fn rank_killed_by_a_signal_sets_status_128_plus_signal() {
    let (status, _, errors) = shell(&["-n", "1"], "kill -SEGV $$");
    assert_eq!(status, 128 + libc::SIGSEGV);
    assert_eq!(errors, "omnes: rank 0 on this machine was killed by SIGSEGV\n");
}

#[test]
fn sigterm_is_forwarded_and_ranks_exit_on_their_own_terms() {
    let job = Job::shell(&["-n", "2"], 2, POLITE);
    job.signal(libc::SIGTERM);
    let (status, output, errors) = job.finish();
    assert_eq!(status, 3);
    let mut lines: Vec<_> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] got TERM", "[1] got TERM"]);
    let first = errors.lines().next();
    let note = "omnes: SIGTERM forwarded; 2 ranks have 5s to end (a SIGINT kills)";
    assert_eq!(first, Some(note));
}

#[test]
fn sigint_after_sigterm_kills_ranks_that_ignore_both() {
    let mut job = Job::shell(&["-n", "1"], 1, "trap '' INT TERM; echo ready; sleep 60");
    job.signal(libc::SIGTERM);
    assert!(job.note().ends_with("(a SIGINT kills)\n"));
    job.signal(libc::SIGINT);
    assert_eq!(job.note(), "omnes: 1 still running: SIGKILL\n");
    assert_eq!(job.finish().0, -libc::SIGTERM);
}

#[test]
fn sigint_and_sighup_are_forwarded_and_also_end_the_launcher() {
    for signal in [libc::SIGINT, libc::SIGHUP] {
        let job = Job::shell(&["-n", "2"], 2, WAIT);
        job.signal(signal);
        assert_eq!(job.finish().0, -signal);
    }
}

#[test]
fn user_signals_are_forwarded_to_the_ranks() {
    let job = Job::shell(&["-n", "1", "--no-prefix"], 1, TELLS);
    assert_eq!(job.finish_after_both(), (0, "USR1\nUSR2\n".to_owned(), String::new()));
}

/// As Ctrl-\ does: its meaning to the ranks, such as "show progress", is up to them.
#[test]
fn sigquit_is_forwarded_and_ends_ranks_without_a_handler() {
    let script = "trap 'echo here; exit 0' QUIT; echo ready; while :; do :; done";
    let job = Job::shell(&["-n", "1", "--no-prefix"], 1, script);
    job.signal(libc::SIGQUIT);
    assert_eq!(job.finish(), (0, "here\n".to_owned(), String::new()));
    let job = Job::shell(&["-n", "2"], 2, &format!("ulimit -c 0; {WAIT}"));
    job.signal(libc::SIGQUIT);
    assert_eq!(job.finish().0, 128 + libc::SIGQUIT);
}

#[test]
fn stopped_rank_still_handles_sigterm() {
    let script = "trap 'echo saved; exit 0' TERM; echo ready; kill -STOP $$; while :; do :; done";
    let job = Job::shell(&["-n", "1", "--no-prefix"], 1, script);
    let children = format!("/proc/{0}/task/{0}/children", job.launcher.id());
    // All children of the launcher except the warden are ranks.
    let is_stopped = || {
        let children = std::fs::read_to_string(&children).unwrap();
        let mut states = children.split_whitespace().map(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        });
        states.any(|is_stopped| is_stopped)
    };
    while !is_stopped() {
        std::thread::yield_now();
    }
    job.signal(libc::SIGTERM);
    let (status, output, _) = job.finish();
    assert_eq!((status, output.as_str()), (0, "saved\n"));
}

/// A rank that ends when it is continued.
const GOES_ON: &str = "trap 'echo goes on; exit 0' CONT; sleep 60 & echo ready; wait";

#[test]
fn stopping_and_continuing_the_launcher_applies_to_its_ranks() {
    // In a group of its own, as a shell with job control starts it.
    let mut command = omnes_run(&["-n", "2", "--no-prefix", "--", "sh", "-c", GOES_ON]);
    let job = Job::start(command.process_group(0), 2);
    job.signal(libc::SIGTSTP);
    assert!(job.has_stopped());
    job.signal(libc::SIGCONT);
    assert_eq!(job.finish(), (0, "goes on\ngoes on\n".to_owned(), String::new()));
}

#[test]
fn launcher_without_job_control_does_not_stop() {
    let mut command = omnes_run(&["-n", "2", "--no-prefix", "--", "sh", "-c", GOES_ON]);
    // SAFETY: the hook makes one system call, after which no shell of this session remains.
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
    assert_eq!(outcome, (0, "goes on\ngoes on\n".to_owned(), String::new()));
}

#[test]
fn initially_ignored_sighup_stays_ignored() {
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
    assert_eq!(job.finish().0, 3);
}

#[test]
fn ranks_that_ignore_a_signal_are_killed_after_the_grace_period() {
    let job = Job::shell(&["-n", "2", "--grace", "10ms"], 2, STUBBORN);
    job.signal(libc::SIGTERM);
    let (status, _, errors) = job.finish();
    assert_eq!(status, -libc::SIGTERM);
    assert!(errors.ends_with("omnes: 2 still running: SIGKILL\n"), "{errors}");
}

#[test]
fn second_sigint_kills_immediately() {
    let mut job = Job::shell(&["-n", "2", "--grace", "50s"], 2, STUBBORN);
    job.signal(libc::SIGINT);
    assert!(job.note().starts_with("omnes: SIGINT forwarded"));
    // At once it would be the same signal again.
    std::thread::sleep(Duration::from_millis(60));
    job.signal(libc::SIGINT);
    assert_eq!(job.finish().0, -libc::SIGINT);
}

#[test]
fn initially_blocked_signals_are_heard_by_launcher_and_ranks() {
    let mut command = omnes_run(&["-n", "1", "--", "sh", "-c", POLITE]);
    // SAFETY: the hook makes two calls, which are allowed in a forked child.
    unsafe {
        command.pre_exec(|| {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
            Ok(())
        });
    }
    let job = Job::start(&mut command, 1);
    job.signal(libc::SIGTERM);
    assert_eq!(job.finish().0, 3);
}

#[test]
fn launcher_waiting_only_for_a_slow_reader_has_no_warden() {
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
    assert_eq!(job.finish().0, 0);
}

#[test]
fn ranks_and_their_descendants_die_with_a_killed_launcher() {
    // Raw output: all of them hold the pipe, so its end shows that they have ended.
    let script = "trap '' INT TERM HUP; (sleep 20; echo outlived) & echo ready; sleep 20; echo too";
    let options: &[&[&str]] = &[&["--no-prefix"], &["--no-prefix", "--lab"]];
    for options in &options[..1 + usize::from(is_root())] {
        let job = Job::shell(&[&["-n", "3"], *options].concat(), 3, script);
        job.signal(libc::SIGKILL);
        assert_eq!(job.finish(), (-libc::SIGKILL, String::new(), String::new()));
    }
}

#[test]
fn launcher_killed_by_its_own_rank_leaves_no_processes() {
    // In some rounds the rank does so before the launcher has learned of its start.
    let script = "(sleep 20; echo outlived) & kill -KILL $PPID; sleep 20; echo too";
    for round in 0..50 {
        let output = omnes_run(&["-n", "1", "--no-prefix", "--", "sh", "-c", script]).output();
        assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), "", "round {round}");
    }
}

#[test]
fn processes_left_by_a_rank_end_with_the_job() {
    let (status, output, _) = shell(&["-n", "1"], "sleep 60 & echo done");
    assert_eq!((status, &*output), (0, "[0] done"));
}

#[test]
fn job_over_its_time_limit_exits_with_124() {
    let (status, _, errors) = shell(&["-n", "2", "--timeout", "50ms"], "exec sleep 60");
    assert_eq!(status, 124);
    assert_eq!(errors, "omnes: the job has exceeded 50ms (--timeout); ranks got SIGTERM\n");
}

#[test]
fn time_limit_still_applies_after_a_rank_has_failed() {
    let script = "[ $OMNES_RANK != 1 ] || exit 7; exec sleep 60";
    let options = ["-n", "2", "--grace", "50s", "--timeout", "1s"];
    let (_, _, errors) = shell(&options, script);
    let told = "omnes: the job has exceeded 1s (--timeout); ranks got SIGTERM";
    assert_eq!(errors.lines().last(), Some(told), "{errors}");
}

#[test]
fn ranks_waiting_for_an_ended_rank_are_reported() {
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
fn ranks_that_never_join_may_end_at_different_times() {
    let (status, _, errors) = shell(&["-n", "2"], "[ $OMNES_RANK = 1 ] || exec sleep 4");
    assert_eq!((status, &*errors), (0, ""));
}

#[test]
fn ranks_stopped_by_the_terminal_are_named() {
    let options = ["-n", "2", "--grace", "10ms"];
    let script = "echo ready; [ $OMNES_RANK = 0 ] || kill -TTOU $$; sleep 60";
    let mut job = Job::shell(&options, 2, script);
    let note = "omnes: rank 1 on this machine was stopped by SIGTTOU: ranks cannot use the \
                terminal; --stdin gives it to one of them\n";
    assert_eq!(job.note(), note);
    job.signal(libc::SIGTERM);
    assert_eq!(job.finish().0, -libc::SIGTERM);
}
