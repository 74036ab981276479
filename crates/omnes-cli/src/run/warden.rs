//! The warden: a process that ends what ranks have started when the launcher is ended by KILL.
//!
//! The kernel ends the ranks of such a launcher, but not what they have started. So the launcher
//! tells a process of its own each rank's group. That process waits until its input ends, which it
//! does when the launcher is gone in whatever way, and then kills the groups, unless it was told
//! that the job is over.

use anyhow::{Context, Result, anyhow};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

/// The argument that makes a warden.
const VERB: &str = "warden";
/// The line after which nothing is left to do.
const OVER: &str = "over";

/// The launcher's side. Dropping it says that the job is over: the ranks must have ended by then.
pub struct Warden {
    process: Child,
    input: ChildStdin,
}

impl Warden {
    /// Starts one, away from the signals of the launcher's terminal.
    pub fn start() -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("omnes").arg(VERB).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().context("cannot start the job's warden")?;
        let input = process.stdin.take().expect("stdin is piped");
        Ok(Self { process, input })
    }

    /// Tells it of a rank's process group, which ends with the launcher from now on.
    pub fn watch(&mut self, group: libc::pid_t) {
        self.tell(group);
    }

    fn tell(&mut self, line: impl std::fmt::Display) {
        // One that has been ended itself hears nothing; the job goes on without.
        let _ = self.input.write_all(format!("{line}\n").as_bytes());
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        self.tell(OVER);
        // Fails only if somebody else has reaped it.
        let _ = self.process.wait();
    }
}

/// The warden's own life.
///
/// # Errors
/// A line that no launcher sends, as from somebody who has typed the command.
pub fn serve() -> Result<ExitCode> {
    let mut groups = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        if line == OVER {
            return Ok(ExitCode::SUCCESS);
        }
        let group = line.parse().ok().filter(|group: &libc::pid_t| *group > 1);
        groups.push(group.ok_or_else(|| anyhow!("'{line}' is no process group"))?);
    }
    for group in groups {
        // SAFETY: plain system call. A group keeps its number while anybody is in it; where nobody
        // is, the launcher's end is too recent for the kernel to have given it out again.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    Ok(ExitCode::SUCCESS)
}
