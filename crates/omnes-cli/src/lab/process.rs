//! Processes of a lab: identified by number and start time, found by namespace, ended.
//!
//! A number alone is not enough, because the kernel reuses it; with the start time it is.

use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Maximum time for processes to end after TERM, and again after KILL.
const GRACE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// A process, live or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    start_ticks: u64,
}

impl Process {
    /// The process that has number `pid` now.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything, so count from its end; field 22 of proc(5).
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        // A zombie has ended; only its parent has not reaped it yet.
        if fields.next()? == "Z" {
            return None;
        }
        Some(Self { pid, start_ticks: fields.nth(18)?.parse().ok()? })
    }

    /// True while the process runs.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    fn signal(self, signal: libc::c_int) {
        if self.is_alive() {
            // SAFETY: takes no pointers. If the process has ended since, the call fails, as
            // intended.
            unsafe { libc::kill(self.pid, signal) };
        }
    }
}

/// All processes except this one for which `is_wanted` is true.
pub fn find(is_wanted: impl Fn(i32) -> bool) -> Vec<Process> {
    let own = std::process::id() as i32;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own && is_wanted(*pid))
        .filter_map(Process::of)
        .collect()
}

/// Identity of the file at `path`: device and inode, which also identify a namespace.
pub fn identity(path: &str) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Sends TERM to the processes that `search` finds, then KILL; true when none is left.
///
/// Searches again each time, because a process may have started others meanwhile.
pub fn end(search: impl Fn() -> Vec<Process>) -> bool {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let deadline = Instant::now() + GRACE;
        let mut signalled: Vec<Process> = Vec::new();
        loop {
            let found = search();
            if found.is_empty() {
                return true;
            }
            for process in found {
                if !signalled.contains(&process) {
                    process.signal(signal);
                    signalled.push(process);
                }
            }
            if Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(POLL);
        }
    }
    search().is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn exited_process_is_not_alive_and_a_pid_alone_is_no_identity() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id() as i32).unwrap();
        assert!(process.is_alive());
        assert!(!Process { start_ticks: process.start_ticks + 1, ..process }.is_alive());
        assert!(end(|| if process.is_alive() { vec![process] } else { Vec::new() }));
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
