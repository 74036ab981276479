//! A `/sys` for a host: interfaces and their settings are those of its own network.
//!
//! A sysfs shows the network in which it was mounted, so each host gets a fresh one over the
//! machine's, as `ip netns exec` does. Unlike there, mounts below the machine's `/sys` (control
//! groups, BPF, tracing) are kept. The remainder of `/sys` is the same for all: it describes the
//! machine.

use super::namespace::{checked, mount};
use crate::mounts::mount_points;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the new tree is assembled: in the host's own `/dev/shm`.
const PLACE: &CStr = c"/dev/shm/.omnes-sys";
const SYS: &CStr = c"/sys";

/// Mounts a new `/sys` for the calling thread, which is in its own network and mount namespaces and
/// has a private `/dev/shm`. Errors leave `/sys` unchanged: the machine's.
pub fn show_own_network() -> io::Result<()> {
    let place = Path::new(PLACE.to_str().expect("a constant"));
    std::fs::create_dir(place)?;
    let moved = put_together().and_then(|()| mount(PLACE, SYS, c"none", libc::MS_MOVE, c""));
    if moved.is_err() {
        // SAFETY: a NUL-terminated constant. Nothing is mounted there if the first mount has
        // failed.
        unsafe { libc::umount2(PLACE.as_ptr(), libc::MNT_DETACH) };
    }
    std::fs::remove_dir(place)?;
    moved
}

fn put_together() -> io::Result<()> {
    let kept = [libc::MS_NOSUID, libc::MS_NODEV, libc::MS_NOEXEC, libc::MS_RDONLY];
    let own = flags(SYS)?;
    let flags = kept.into_iter().filter(|flag| own & flag != 0).fold(0, |all, flag| all | flag);
    mount(c"omnes-lab", PLACE, c"sysfs", flags, c"")?;
    for below in mounts_below(&std::fs::read("/proc/thread-self/mountinfo")?) {
        let below = below.as_os_str().as_bytes();
        let from = CString::new([b"/sys/", below].concat())?;
        let to = CString::new([PLACE.to_bytes(), b"/", below].concat())?;
        mount(&from, &to, c"none", libc::MS_BIND | libc::MS_REC, c"")?;
    }
    Ok(())
}

/// Mount flags of the file system at `path`; those of statvfs(3) have the same values.
fn flags(path: &CStr) -> io::Result<libc::c_ulong> {
    // SAFETY: all fields of a statvfs are plain numbers, so all zeros are valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the string is zero-terminated, and the kernel writes one statvfs into one that lives
    // here.
    checked(unsafe { libc::statvfs(path.as_ptr(), &raw mut found) })?;
    Ok(found.f_flag)
}

/// Mounts directly below `/sys`, as relative paths; not mounts below these, which are included with
/// them.
fn mounts_below(mountinfo: &[u8]) -> Vec<PathBuf> {
    let places = mount_points(mountinfo).filter_map(|place| {
        let below = place.strip_prefix("/sys").ok()?;
        (!below.as_os_str().is_empty()).then(|| below.to_owned())
    });
    let mut below: Vec<PathBuf> = places.collect();
    below.sort_unstable();
    let mut tops: Vec<PathBuf> = Vec::new();
    for place in below {
        if !tops.iter().any(|top| place.starts_with(top)) {
            tops.push(place);
        }
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_topmost_mounts_below_sysfs_are_listed() {
        let mountinfo = b"\
23 27 0:22 / /sys rw - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw
33 23 0:30 / /sys/fs/cgroup2 rw - cgroup2 none rw
40 27 0:31 / /system rw - tmpfs tmpfs rw
41 23 0:32 / /sys/with\\040space rw - tmpfs tmpfs rw
34 23 0:13 / /sys/kernel/tracing rw - tracefs none rw";
        let expected = ["fs/cgroup", "fs/cgroup2", "kernel/tracing", "with space"].map(Path::new);
        assert_eq!(mounts_below(mountinfo), expected);
    }
}
