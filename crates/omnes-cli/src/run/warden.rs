//! The warden: a process that ends what ranks have started when the launcher is ended by KILL.
//!
//! The kernel ends the ranks of such a launcher, but not what they have started. So each rank names
//! its process group to a process of the launcher's own, before its command begins: afterwards
//! would be too late for a launcher that is killed in between. That process waits until its input
//! ends, which it does when the launcher is gone in whatever way, and then kills the groups, unless
//! it was told that the job is over.

use anyhow::{Context, Result, anyhow};
use std::io::{Cursor, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// The argument that makes a warden.
const VERB: &str = "warden";
/// The line after which nothing is left to do.
const OVER: &str = "over";

/// The launcher's side. Dropping it says that the job is over: the ranks must have ended by then.
pub struct Warden {
    process: Child,
    /// A socket, as a write to a pipe that nobody reads would end the rank that writes.
    input: UnixStream,
}

impl Warden {
    /// Starts one, away from the signals of the launcher's terminal.
    pub fn start() -> Result<Self> {
        let cannot = "cannot start the job's warden";
        let (input, theirs) = UnixStream::pair().context(cannot)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("omnes").arg(VERB).current_dir("/").process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context(cannot)?;
        Ok(Self { process, input })
    }

    /// Lets `rank`, which must lead a group of its own and start while `self` lives, tell that its
    /// group ends with the launcher.
    pub fn watch(&self, rank: &mut Command) {
        let input = self.input.as_raw_fd();
        // SAFETY: the hook runs between fork and exec: it makes two system calls and writes a
        // number into its own stack.
        unsafe {
            rank.pre_exec(move || {
                let mut line = Cursor::new([0u8; 16]);
                writeln!(line, "{}", libc::getpid())?;
                let (text, len) = (line.get_ref().as_ptr().cast(), line.position() as usize);
                // One that has been ended itself hears nothing; the job goes on without.
                libc::send(input, text, len, libc::MSG_NOSIGNAL);
                Ok(())
            });
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // Fails where it has been ended itself.
        let _ = self.input.write_all(format!("{OVER}\n").as_bytes());
        // Fails only if somebody else has reaped it.
        let _ = self.process.wait();
    }
}

/// The warden's own life.
///
/// # Errors
/// A line that no job sends, as from somebody who has typed the command.
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
        // SAFETY: plain system call. A group keeps its number while anybody is in it; where nobody
        // is, the launcher's end is too recent for the kernel to have given it out again.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    Ok(ExitCode::SUCCESS)
}
