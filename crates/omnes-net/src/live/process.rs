//! The process that has written a file, and whether it still runs.
//!
//! A process is identified by its number, its start time (numbers are reused), the pid namespace in
//! which the number is valid, and the boot of the machine. All of these are read from `/proc`.

use crate::boot::boot_id;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process, distinguished from all others that ever had or will have its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Clock ticks from the boot of the machine to the start of the process.
    pub(super) start_ticks: u64,
    /// Inode of the pid namespace.
    pub(super) pid_namespace: u64,
    pub(super) boot_id: [u8; 16],
}

/// State of a process as far as it can be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Liveness {
    Runs,
    Gone,
    /// The number is valid in another pid namespace, or on another machine.
    OutOfSight,
}

impl Process {
    /// This process. Fields that `/proc` does not provide are 0.
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_ticks: read_stat(pid).map_or(0, |(_, start_ticks)| start_ticks),
            pid_namespace: own_pid_namespace(),
            boot_id: own_boot_id(),
        }
    }

    pub(super) fn liveness(&self) -> Liveness {
        let namespace = own_pid_namespace();
        // Without /proc nothing is known.
        let is_same = namespace != 0 && self.pid_namespace == namespace;
        if !is_same || self.boot_id != own_boot_id() {
            return Liveness::OutOfSight;
        }
        match read_stat(self.pid) {
            // Killed, but not waited for yet.
            Some(('Z' | 'X', _)) => Liveness::Gone,
            Some((_, start_ticks)) if start_ticks == self.start_ticks => Liveness::Runs,
            _ => Liveness::Gone,
        }
    }
}

fn own_pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

fn own_boot_id() -> [u8; 16] {
    boot_id().unwrap_or_default()
}

/// State and start time of a process, if a process with that number exists.
fn read_stat(pid: u32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &str) -> Option<(char, u64)> {
    // The name in parentheses may contain anything, including spaces and parentheses.
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // Fields are counted from 1 in proc(5): state is the third, the start is number 22.
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Name of this machine.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Name of the program that this process runs, without its path and arguments.
pub(super) fn command_name() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn start_time_is_parsed_after_any_process_name() {
        let fields = "S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 4711 999 1";
        for name in ["sh", "a b", ") Z 1 (", "(("] {
            assert_eq!(parse_stat(&format!("12 ({name}) {fields}")), Some(('S', 4711)));
        }
        assert_eq!(parse_stat("12 (sh) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn own_process_runs_but_its_pid_with_another_start_time_does_not() {
        let this = Process::this();
        assert!(this.start_ticks > 0 && this.pid_namespace > 0 && this.boot_id != [0; 16]);
        assert_eq!(this.liveness(), Liveness::Runs);
        let earlier = Process { start_ticks: this.start_ticks - 1, ..this };
        assert_eq!(earlier.liveness(), Liveness::Gone);
    }

    #[test]
    fn killed_process_counts_as_gone_even_as_a_zombie() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (_, start_ticks) = read_stat(child.id()).unwrap();
        let process = Process { pid: child.id(), start_ticks, ..Process::this() };
        assert_eq!(process.liveness(), Liveness::Runs);
        child.kill().unwrap();
        // The number is free once it has been waited for; before that it is a zombie's.
        while !matches!(read_stat(child.id()), Some(('Z', _))) {
            std::thread::yield_now();
        }
        assert_eq!(process.liveness(), Liveness::Gone);
        child.wait().unwrap();
        assert_eq!(process.liveness(), Liveness::Gone);
    }

    #[test]
    fn processes_of_another_pid_namespace_or_boot_are_out_of_sight() {
        let this = Process::this();
        let inside = Process { pid_namespace: 1, ..this };
        let before = Process { boot_id: [1; 16], ..this };
        assert_eq!(inside.liveness(), Liveness::OutOfSight);
        assert_eq!(before.liveness(), Liveness::OutOfSight);
    }
}
