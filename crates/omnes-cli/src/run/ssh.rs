//! Ranks on hosts reached by ssh: the remote command line, and the control pipe.
//!
//! The local child is `ssh HOST COMMAND`, where COMMAND makes the remote login shell start `sh`
//! with a small script. The standard input of ssh is a *control pipe* held by the launcher:
//!
//! ```text
//! launcher                         remote sh
//!   job key, one line      ──►     exported as OMNES_JOB_KEY, seen on no command line
//!   INT, USR1, ..., lines  ──►     sent to the process group of the session
//!   end of input           ──►     KILL to that group: the launcher or the connection is gone
//! ```
//!
//! The first line also tells the launcher that the connection is up: ssh reads it only then, so as
//! long as it is unread in the pipe, the rank counts as connecting (see `start`).
//!
//! So the real signal reaches the rank, and nothing survives a closed connection, without a
//! terminal on the remote side. If the launcher's machine loses its power or its network, nobody
//! closes the connection: sshd detects it after its `ClientAliveInterval`, which is off by default,
//! else TCP does, after minutes to hours. The shell stays as the parent of the rank: a rank that is
//! killed by signal s is then seen as status 128+s, where ssh itself would only return 255.
//!
//! Assumes: login shells that understand POSIX quoting (sh, bash, dash, ksh, zsh), and sshd's habit
//! of one session per command, which makes "group 0" the rank and its descendants. Of the
//! launcher's own environment the rank gets the variables named `OMNES_…`; all of them except the
//! key are visible on the remote command line. Not supported: a rank's standard input, because the
//! pipe is taken; TSTP, because a remote session has no job control.

use super::job::Job;
use super::placement::Place;
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Status of ssh's own failures, as opposed to that of the remote command.
pub const SSH_FAILED_STATUS: i32 = 255;

/// Arguments: directory, `NAME=VALUE` repeated, `--`, command.
///
/// The rank's process is there before the watcher, so that no signal is lost; its shell starts the
/// watcher through another one, so that the rank has no child that it does not know. The watcher
/// must not hold the output (sshd would wait for it), and it ignores the signals that it sends.
/// `exec` prevents names such as `exit` from being taken as builtins.
const SCRIPT: &str = r#"IFS= read -r OMNES_JOB_KEY || exit 255
export OMNES_JOB_KEY
cd -- "$1" || exit 126
shift
while [ "$1" != -- ]; do export "$1"; shift; done
shift
exec 3<&0 </dev/null
trap : HUP INT QUIT TERM USR1 USR2
(
( (
trap "" HUP INT QUIT TERM USR1 USR2
while read -r signal; do kill -s "$signal" 0; done
kill -s KILL 0
) <&3 >/dev/null 2>&1 & )
exec 3<&-
exec "$@"
)
exit "$?"
"#;

/// Local command for a rank on `host`: `ssh` as split words, standard input a pipe that must
/// receive [`key_line`] first and stay open as long as the rank may live.
pub fn command(ssh: &[String], host: &str, job: &Job, place: &Place, directory: &Path) -> Command {
    let (program, arguments) = ssh.split_first().expect("resolve checked that --ssh has a word");
    let mut command = Command::new(program);
    command.args(arguments).arg(host).arg(remote_line(job, place, directory));
    command.stdin(Stdio::piped());
    command
}

/// Working directory of ranks, under the name that the user's shell has for it, because the
/// kernel's name, with symbolic links resolved, may not exist on other machines.
///
/// Errors: it has been removed.
pub fn working_directory() -> Result<PathBuf> {
    let physical = std::env::current_dir().context("the working directory is gone")?;
    let logical = std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
    let identity = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    let is_it = |path: &PathBuf| identity(path).is_some_and(|it| Some(it) == identity(&physical));
    Ok(logical.filter(is_it).unwrap_or(physical))
}

/// First line of the control pipe.
pub fn key_line(job: &Job) -> String {
    format!("{}\n", job.key())
}

/// Line that makes the remote shell send `signal`; `None` for signals it does not know.
pub fn control_line(signal: i32) -> Option<&'static [u8]> {
    match signal {
        libc::SIGINT => Some(b"INT\n"),
        libc::SIGTERM => Some(b"TERM\n"),
        libc::SIGHUP => Some(b"HUP\n"),
        libc::SIGUSR1 => Some(b"USR1\n"),
        libc::SIGUSR2 => Some(b"USR2\n"),
        libc::SIGQUIT => Some(b"QUIT\n"),
        _ => None,
    }
}

fn remote_line(job: &Job, place: &Place, directory: &Path) -> OsString {
    let mut line = b"exec sh -c ".to_vec();
    let mut push = |word: &OsStr| {
        line.extend(quote(word));
        line.push(b' ');
    };
    push(OsStr::new(SCRIPT));
    push(OsStr::new("omnes-rank"));
    push(directory.as_os_str());
    for (name, value) in job.environment(place) {
        push(OsStr::new(&format!("{name}={value}")));
    }
    push(OsStr::new("--"));
    job.command.iter().for_each(|word| push(word));
    line.pop(); // the last space
    OsString::from_vec(line)
}

/// Quotes one word of any bytes for a POSIX shell; plain words stay unchanged.
pub fn quote(word: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(byte);
    let bytes = word.as_bytes();
    // A leading '=' or '~' has a special meaning in zsh and other shells.
    if !bytes.is_empty() && bytes[0] != b'=' && bytes.iter().all(plain) {
        return bytes.to_vec();
    }
    let mut quoted = vec![b'\''];
    for &byte in bytes {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::time::{Duration, Instant};

    /// As many signals as there are attempts meet the shell at different places.
    #[test]
    fn signal_behind_the_key_ends_the_rank_wherever_it_arrives() {
        for attempt in 0..40 {
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT, "omnes-rank", "/", "--", "sleep", "60"]);
            let mut shell = command.process_group(0).stdin(Stdio::piped()).spawn().unwrap();
            let mut control = shell.stdin.take().unwrap();
            control.write_all(b"key\n").unwrap();
            std::thread::sleep(Duration::from_micros(attempt % 20 * 200));
            control.write_all(control_line(libc::SIGTERM).unwrap()).unwrap();
            let start = Instant::now();
            let status = loop {
                if let Some(status) = shell.try_wait().unwrap() {
                    break status;
                }
                if start.elapsed() > Duration::from_secs(20) {
                    drop(control);
                    panic!("attempt {attempt}: {:?}", shell.wait());
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(status.code(), Some(128 + libc::SIGTERM), "attempt {attempt}");
        }
    }

    #[test]
    fn quoted_words_pass_through_a_shell_unchanged() {
        let words: [&[u8]; 9] =
            [b"", b"a b", b"it's", b"$HOME `x` \\", b"~", b"=ls", b"two\nlines", b"*", b"\xff\x01"];
        for word in words {
            let mut line = b"printf %s ".to_vec();
            line.extend(quote(OsStr::from_bytes(word)));
            let output = Command::new("sh").arg("-c").arg(OsString::from_vec(line)).output();
            assert_eq!(output.unwrap().stdout, word, "{word:?}");
        }
    }
}
