//! One rank as a process of this machine: started, watched, signalled, reaped.
//!
//! Guarantees:
//! - *Dies with the launcher.* Each child asks the kernel for KILL when the launcher is gone, even
//!   if by KILL. The kernel ties this to the *thread* that started the child, so ranks are started
//!   by the main thread, which lives as long as the process.
//! - *Signals reach the rank's descendants.* Every rank leads a process group of its own, in the
//!   launcher's session: a session of its own would get its own share of the cores from the
//!   kernel's autogroups, and ranks that spin would starve each other.
//! - *No signal to unrelated processes.* The end of a rank is observed without reaping it; as a
//!   zombie it keeps its process id, so a group signal can only reach processes that belonged to
//!   the rank.
//!
//! Dropping a process kills the remaining processes of its group, then reaps it.
//!
//! If the launcher itself is ended by KILL, the warden ends the groups.
//!
//! Not done: processes that leave the group on purpose (`setsid`) outlive the job.

use super::signals::FORWARDED;
use super::ssh;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A started rank.
pub struct Process {
    /// `0..size`.
    pub rank: usize,
    /// Its host, for messages.
    pub host: String,
    child: Child,
    /// Group of the child, equal to its process id.
    group: libc::pid_t,
    /// The control pipe of a rank over ssh.
    control: Option<ChildStdin>,
    /// Length of the first line of that pipe; longer than all others.
    first_line_bytes: usize,
    is_ended: bool,
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// The connection of a rank over ssh, or ssh itself, failed; or the rank exited with the same
    /// status as ssh does then.
    Disconnected,
}

impl End {
    /// True for anything except status 0.
    pub fn is_failure(self) -> bool {
        self != End::Exited(0)
    }

    /// Status that a shell would show: 128 + signal for signals.
    pub fn status(self) -> u8 {
        let status = match self {
            End::Exited(status) => status,
            End::Signalled(signal) => 128 + signal,
            End::Disconnected => ssh::SSH_FAILED_STATUS,
        };
        u8::try_from(status).unwrap_or(u8::MAX)
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            End::Exited(status @ 127) => write!(f, "exited with status {status} (not found?)"),
            // Shells report a child's signal in this way; the remote side of ssh always does.
            End::Exited(status @ 129..=192) => {
                write!(f, "exited with status {status} (128 + {})", signal_name(status - 128))
            }
            End::Exited(status) => write!(f, "exited with status {status}"),
            End::Signalled(signal) => write!(f, "was killed by {}", signal_name(signal)),
            End::Disconnected => {
                write!(f, "ended with status 255: its own, or ssh's for a connection that fails")
            }
        }
    }
}

/// `SIGTERM` for 15; the number for signals without a name.
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// Makes `command` the leader of a group that dies with the launcher. Call it after hooks that may
/// change the user, which would cancel the request.
pub fn tie_to_launcher(command: &mut Command) {
    command.process_group(0);
    let launcher = std::process::id();
    // SAFETY: the hook runs between fork and exec; prctl and getppid are plain system calls, and
    // errors made from an error number do not allocate.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // If the launcher died before the request, its end would never be noticed.
            if u32::try_from(libc::getppid()) != Ok(launcher) {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

impl Process {
    /// Starts `command`, prepared by [`tie_to_launcher`]; main thread only.
    pub fn start(rank: usize, host: String, mut command: Command) -> std::io::Result<Self> {
        let child = command.spawn()?;
        let group = libc::pid_t::try_from(child.id()).expect("Linux process ids fit pid_t");
        Ok(Self { rank, host, child, group, control: None, first_line_bytes: 0, is_ended: false })
    }

    /// Makes the standard input of an ssh child its control pipe and sends the first line.
    pub fn open_control(&mut self, first_line: &str) {
        self.control = self.child.stdin.take();
        self.first_line_bytes = first_line.len();
        self.write_control(first_line.as_bytes());
    }

    /// The pipe to the rank's standard input, if it has one; only once.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The pipes from the rank, if it has them; only once.
    pub fn take_outputs(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Sends `signal` to the rank and its descendants; does nothing if it has ended.
    pub fn signal(&mut self, signal: i32) {
        if self.is_ended {
            return;
        }
        // An ssh that still connects has started nothing on the other side.
        if FORWARDED.contains(&signal) && self.is_connecting() {
            return self.signal_group(signal);
        }
        match ssh::control_line(signal).filter(|_| self.control.is_some()) {
            Some(line) => self.write_control(line),
            // KILL is sent to ssh itself: the remote side sees the end of the control pipe, and
            // kills. CONT is for an ssh that the terminal has stopped.
            None if self.control.is_some() && !matches!(signal, libc::SIGKILL | libc::SIGCONT) => {}
            None => self.signal_group(signal),
        }
    }

    /// How the rank ended, reported once; `None` while it lives and after the report.
    pub fn poll_end(&mut self) -> Option<End> {
        if self.is_ended {
            return None;
        }
        let end = self.look()?;
        self.is_ended = true;
        let is_remote = self.control.take().is_some();
        match end {
            End::Exited(ssh::SSH_FAILED_STATUS) if is_remote => Some(End::Disconnected),
            end => Some(end),
        }
    }

    /// Signal that has stopped the rank, reported once.
    pub fn poll_stop(&self) -> Option<i32> {
        if self.is_ended {
            return None;
        }
        let (_, status) = self.wait(libc::WSTOPPED | libc::WNOHANG)?;
        Some(status)
    }

    /// Process group of the rank, equal to its process id.
    pub fn group(&self) -> libc::pid_t {
        self.group
    }

    /// True for a rank over ssh, while it lives.
    pub fn is_remote(&self) -> bool {
        self.control.is_some()
    }

    /// True for a rank over ssh whose control pipe has not been read yet. Signals that are still in
    /// it, behind the first line, are shorter.
    pub fn is_connecting(&self) -> bool {
        let unread = |control: &ChildStdin| rustix::io::ioctl_fionread(control).unwrap_or(0);
        self.control.as_ref().is_some_and(|it| unread(it) >= self.first_line_bytes as u64)
    }

    /// True once [`Self::poll_end`] has reported the end.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn look(&self) -> Option<End> {
        let (code, status) = self.wait(libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)?;
        Some(if code == libc::CLD_EXITED { End::Exited(status) } else { End::Signalled(status) })
    }

    /// State of the child as reported by waitid(2): code and status.
    fn wait(&self, flags: libc::c_int) -> Option<(libc::c_int, libc::c_int)> {
        let id = libc::id_t::try_from(self.group).expect("process ids are positive");
        // SAFETY: an all-zero siginfo_t is a valid value of that plain C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is valid for writing; the child is ours and not yet reaped, because only
        // `drop` reaps it.
        let result = unsafe { libc::waitid(libc::P_PID, id, &mut info, flags) };
        // SAFETY: waitid filled the fields for SIGCHLD, or left all zero if nothing has changed.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        (result == 0 && pid != 0).then_some((info.si_code, status))
    }

    fn write_control(&mut self, line: &[u8]) {
        // A failed write means that ssh has ended; poll_end reports the end.
        if let Some(control) = &mut self.control {
            let _ = control.write_all(line).and_then(|()| control.flush());
        }
    }

    fn signal_group(&self, signal: i32) {
        // SAFETY: plain system call; the group is ours as long as the child is not reaped. ESRCH is
        // the only error, and means that the group has no process.
        let _ = unsafe { libc::kill(-self.group, signal) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.control = None;
        self.signal_group(libc::SIGKILL);
        // Fails only if somebody else has reaped our child; there is then nothing to do.
        let _ = self.child.wait();
    }
}
