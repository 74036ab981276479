//! The warden: a process that ends the descendants of ranks if the launcher is ended by KILL.
//!
//! The kernel ends the ranks of such a launcher, but not the processes that they have started. So
//! each rank reports its process group to a process that the launcher owns, before its command
//! starts: afterwards would be too late if the launcher is killed in between. That process waits
//! until its input ends, which it does when the launcher is gone in whatever way, and then kills
//! the groups, unless it was told that the job is over.

use anyhow::{Context, Result, anyhow};
use std::io::{Cursor, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// Argument that makes the command a warden.
const VERB: &str = "warden";
/// Line after which there is nothing left to do.
const OVER: &str = "over";

/// The launcher's side. Dropping it reports that the job is over: the ranks must have ended by
/// then.
pub struct Warden {
    process: Child,
    /// A socket, because writing to a pipe without a reader would end the writing rank.
    input: UnixStream,
}

impl Warden {
    /// Starts a warden, isolated from the signals of the launcher's terminal.
    pub fn start() -> Result<Self> {
        let cannot = "cannot start the job's warden";
        let (input, theirs) = UnixStream::pair().context(cannot)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("omnes").arg(VERB).current_dir("/").process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context(cannot)?;
        Ok(Self { process, input })
    }

    /// Makes `rank`, which must lead a group of its own and start while `self` lives, report that
    /// its group ends with the launcher.
    pub fn watch(&self, rank: &mut Command) {
        let input = self.input.as_raw_fd();
        // SAFETY: the hook runs between fork and exec: it makes two system calls and writes a
        // number into its own stack.
        unsafe {
            rank.pre_exec(move || {
                let mut line = Cursor::new([0u8; 16]);
                writeln!(line, "{}", libc::getpid())?;
                let (text, len) = (line.get_ref().as_ptr().cast(), line.position() as usize);
                // If the warden has been ended, nobody receives this; the job continues without it.
                libc::send(input, text, len, libc::MSG_NOSIGNAL);
                Ok(())
            });
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // Fails if the warden has been ended.
        let _ = self.input.write_all(format!("{OVER}\n").as_bytes());
        // Fails only if somebody else has reaped it.
        let _ = self.process.wait();
    }
}

/// Runs the warden.
///
/// # Errors
/// A line that no job sends, for example from a user who has typed the command.
pub fn serve() -> Result<ExitCode> {
    let mut groups = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        if line == OVER {
            return Ok(ExitCode::SUCCESS);
        }
        let group = line.parse().ok().filter(|group: &libc::pid_t| *group > 1);
        groups.push(group.ok_or_else(|| anyhow!("'{line}' is not a process group"))?);
    }
    for group in groups {
        // SAFETY: plain system call. A group keeps its number while it has a process; if it has
        // none, the launcher's end is too recent for the kernel to have reused the number.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    Ok(ExitCode::SUCCESS)
}
