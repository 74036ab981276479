//! Finds the process that launched this one, which all ranks of a machine have in common.
//!
//! It is usually the parent, but shells and other programs that start a rank and wait for it may
//! lie in between. The search ends at an unknown program, which may be a launcher of one of several
//! jobs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names of the launchers that start ranks on their own machine; the kernel may truncate them.
const LAUNCHERS: [&str; 9] = [
    "hydra_pmi_proxy",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun",
    "orted",
    "orterun",
    "prted",
    "prterun",
    "slurmstepd",
];
/// Programs that start a rank and wait for it.
const WRAPPERS: [&str; 12] = [
    "sh", "bash", "dash", "zsh", "ksh", "env", "nice", "numactl", "stdbuf", "taskset", "time",
    "timeout",
];
/// Spreads consecutive numbers.
const MIXER: u32 = 0x9e37_79b1;
/// Maximum number of generations searched.
const GENERATIONS_MAX: usize = 16;
/// Bytes of a process name that the kernel keeps.
const NAME_BYTES: usize = 15;

/// A number that the ranks of one launcher on this machine share, and that two launchers hardly
/// ever share: in containers, which may share a network, many launchers are process 1.
pub(crate) fn job_number() -> u32 {
    let space = std::fs::metadata("/proc/self/ns/pid").map_or(0, |space| space.ino());
    launcher().wrapping_add((space as u32).wrapping_mul(MIXER))
}

/// Process number of the nearest ancestor that is a launcher, or of the parent if there is none.
fn launcher() -> u32 {
    let parent = std::os::unix::process::parent_id();
    nearest(parent, look_up).unwrap_or(parent)
}

/// The first of `first` and its ancestors that is a launcher; `look_up` returns the name and the
/// parent of a process.
fn nearest(first: u32, look_up: impl Fn(u32) -> Option<(String, u32)>) -> Option<u32> {
    let mut process = first;
    for _ in 0..GENERATIONS_MAX {
        let (name, parent) = look_up(process)?;
        if is_launcher(&name) {
            return Some(process);
        }
        if !WRAPPERS.contains(&name.as_str()) {
            return None;
        }
        process = parent;
    }
    None
}

fn is_launcher(name: &str) -> bool {
    // Debian appends the name of the MPI, as in `mpirun.mpich`.
    let plain = name.split_once('.').map_or(name, |(plain, _)| plain);
    LAUNCHERS.iter().any(|it| name == &it[..it.len().min(NAME_BYTES)] || plain == *it)
}

/// Name and parent of a process (proc_pid_stat(5)).
fn look_up(process: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    parse(&text.ok()?)
}

/// Parses `stat`; the name is in parentheses and may itself contain parentheses.
fn parse(stat: &str) -> Option<(String, u32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn process_stat_is_parsed_with_any_characters_in_the_name() {
        let read = parse("4711 (a) (b c) S 42 4711 1 0 -1").unwrap();
        assert_eq!(read, ("a) (b c".to_owned(), 42));
        assert_eq!(parse("4711"), None);
        assert_eq!(parse("4711 (a) S"), None);
        let own = look_up(std::process::id()).unwrap();
        assert_eq!(own.1, std::os::unix::process::parent_id());
    }

    #[test]
    fn nearest_launcher_is_found_among_the_ancestors() {
        let table = |process| match process {
            5 => Some(("sh".to_owned(), 4)),
            4 => Some(("hydra_pmi_proxy".to_owned(), 3)),
            3 => Some(("mpiexec.hydra".to_owned(), 1)),
            9 => Some(("sh".to_owned(), 8)),
            8 => Some(("mpirun.openmpi".to_owned(), 1)),
            7 => Some(("env".to_owned(), 6)),
            6 => Some(("mpispawn".to_owned(), 8)),
            _ => Some(("init".to_owned(), 0)),
        };
        assert_eq!(nearest(5, table), Some(4));
        assert_eq!(nearest(3, table), Some(3));
        assert_eq!(nearest(9, table), Some(8));
        assert_eq!(nearest(1, table), None);
        assert_eq!(nearest(7, table), None);
        assert!(!is_launcher("mpirunner"));
    }
}
