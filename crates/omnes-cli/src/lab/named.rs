//! Named labs: pinned in the file system, kept until `omnes lab down`.
//!
//! ```text
//! /run/omnes-lab/NAME/     a mount of its own, private, so that no pin propagates
//!     net.switch           network namespace of the switch
//!     net.0 uts.0 mnt.0    namespaces of host 0, and so on
//!     state.json           hosts, links, numbers of the fault program, the keeper
//! ```
//!
//! `nsenter --net=/run/omnes-lab/NAME/net.0` enters a host with other tools. Removal relies on the
//! files there and on the mount table, not on the state, which may be damaged.
//!
//! The pins are mounts of one mount namespace, that of `omnes lab up`, while the files are visible
//! in others too, such as those of the hosts. So a lab can be used and removed only in its own
//! mount namespace, and is rejected elsewhere, unless that namespace is gone.

use super::cluster::{Hold, Lab, Wiring};
use super::firmware::{Firmware, FirmwareIds};
use super::keeper;
use super::namespace::{HostSpace, Spaces, checked, mount, path_of};
use super::options::Link;
use super::process::{self, Process, identity};
use crate::mounts::mount_points;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Directory of named labs.
const ROOT: &str = "/run/omnes-lab";
const STATE_FILE: &str = "state.json";
const NAME_BYTES_MAX: usize = 32;
const OWN_MOUNT_SPACE: &str = "/proc/self/ns/mnt";

/// State of a named lab.
#[derive(Serialize, Deserialize)]
pub struct State {
    /// Name of the lab.
    pub name: String,
    /// Number of hosts.
    pub hosts: usize,
    /// Properties of its links.
    pub link: Link,
    /// The fault program, if faults are on.
    pub firmware: Option<FirmwareIds>,
    /// Process that holds delayed frames, if one was needed.
    pub keeper: Option<Process>,
    /// Identity of the mount namespace that has the pins.
    #[serde(default)]
    mount_space: Option<(u64, u64)>,
    /// Identities of the hosts' network namespaces.
    #[serde(default)]
    networks: Vec<(u64, u64)>,
}

impl State {
    /// State of a lab whose pins are in this process's mount namespace.
    pub(super) fn of(name: &str, spaces: &Spaces, wiring: &Wiring) -> Self {
        let keeper = match wiring.hold {
            Some(Hold::Process(keeper)) => Some(keeper),
            _ => None,
        };
        let firmware = wiring.firmware.as_ref().map(Firmware::ids);
        Self {
            name: name.to_owned(),
            hosts: spaces.hosts.len(),
            link: wiring.link.clone(),
            firmware,
            keeper,
            mount_space: identity(OWN_MOUNT_SPACE),
            networks: networks(spaces),
        }
    }

    fn wiring(self) -> Result<Wiring> {
        let Self { name, link, firmware, keeper, .. } = self;
        let damaged = || format!("lab `{name}` is damaged; remove it with `{}`", removal(&name));
        let firmware = firmware.map(Firmware::open).transpose().with_context(damaged)?;
        Ok(Wiring { link, firmware, hold: keeper.map(Hold::Process) })
    }

    /// Rejects a lab whose pins are in another mount namespace that still exists.
    fn check_is_here(&self) -> Result<()> {
        let Some(home) = self.mount_space else { return Ok(()) };
        if identity(OWN_MOUNT_SPACE) == Some(home) {
            return Ok(());
        }
        if let Some(way) = way_to(home, &self.name) {
            bail!("lab `{}` belongs to another mount namespace; run this there: {way}", self.name);
        }
        Ok(())
    }

    /// Reads the state of the lab `name`.
    pub fn load(name: &str) -> Result<Self> {
        let path = folder(name).join(STATE_FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && !folder(name).exists() => {
                bail!("no lab `{name}` is up; make one with `omnes lab up N --name {name}`")
            }
            text => text.map_err(anyhow::Error::new),
        };
        text.and_then(|text| Ok(serde_json::from_slice(&text)?))
            .with_context(|| format!("lab `{name}` is damaged; remove it with `{}`", removal(name)))
    }

    /// Writes the state atomically.
    pub fn save(&self) -> Result<()> {
        let path = folder(&self.name).join(STATE_FILE);
        let fresh = path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Parses a lab's name: letters, digits and dashes; not a number and not `ephemeral`, which have
/// other meanings for `omnes run --lab`.
pub fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(is_plain) {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} letters, digits and dashes"));
    }
    if text.starts_with('-') || text == "ephemeral" || text.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("`{text}` means something else to `omnes run --lab`"));
    }
    Ok(text.to_owned())
}

/// Command that removes the lab `name`.
pub fn removal(name: &str) -> String {
    format!("omnes lab down --name {name}")
}

fn folder(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

/// Names of all existing labs, including damaged ones, in order.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The lock for changes of named labs, held by one process at a time.
pub struct Lock(#[expect(dead_code, reason = "held for its effect")] File);

impl Lock {
    /// Waits for the lock. It is the directory of all labs itself, so that nothing is left behind.
    pub fn take() -> Result<Self> {
        loop {
            fs::create_dir_all(ROOT).with_context(|| format!("cannot make {ROOT}"))?;
            let Ok(root) = File::open(ROOT) else { continue };
            root.lock().with_context(|| format!("cannot lock {ROOT}"))?;
            // The previous holder may have removed the directory; then this lock is void.
            if identity(ROOT) == root.metadata().ok().map(|root| (root.dev(), root.ino())) {
                return Ok(Self(root));
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Succeeds only after the last lab has been removed.
        let _ = fs::remove_dir(ROOT);
    }
}

/// Creates the named lab `name`; if it fails midway, removes what it has created.
pub fn up(name: &str, hosts: usize, link: &Link) -> Result<Lab> {
    let _lock = Lock::take()?;
    if folder(name).exists() {
        let hosts = State::load(name)?.hosts;
        bail!("lab `{name}` is up already, with {hosts} hosts; remove it with `{}`", removal(name));
    }
    let lab = Lab::perfect(hosts, Some(name), link.mtu_bytes)?;
    match pin(name, &lab.spaces).and_then(|()| lab.rewire(link)) {
        Ok(()) => Ok(lab),
        Err(error) => {
            // The first error is the one that the user needs; this one is reported beside it.
            if let Err(error) = remove(name) {
                crate::stderr::notice(format_args!("{error:#}"));
            }
            Err(error)
        }
    }
}

/// Opens the named lab `name`.
pub(super) fn open(name: &str) -> Result<Lab> {
    open_now(name).or_else(|_| {
        // Another process may be changing it.
        let _lock = Lock::take()?;
        open_now(name)
    })
}

fn open_now(name: &str) -> Result<Lab> {
    let state = State::load(name)?;
    state.check_is_here()?;
    let spaces = open_spaces(name, state.hosts)?;
    let wiring = Mutex::new(state.wiring()?);
    Ok(Lab { spaces, name: Some(name.to_owned()), wiring })
}

/// Reads the wiring of the lab `name`, whose hosts are in `spaces`, again.
pub(super) fn wiring(name: &str, spaces: &Spaces) -> Result<Wiring> {
    let state = State::load(name)?;
    let is_same = state.networks == networks(spaces);
    ensure!(is_same, "lab `{name}` has just been made anew; run this once more");
    state.wiring()
}

/// Identities of the hosts' network namespaces.
fn networks(spaces: &Spaces) -> Vec<(u64, u64)> {
    spaces.hosts.iter().filter_map(|host| identity(&path_of(host.net.as_fd()))).collect()
}

/// Opens the pinned namespaces of the lab `name`.
pub fn open_spaces(name: &str, hosts: usize) -> Result<Spaces> {
    let namespaces = fs::metadata("/proc/self/ns/net")?.dev();
    let open = |pin: String| -> Result<OwnedFd> {
        let file = File::open(folder(name).join(&pin)).map_err(anyhow::Error::new);
        // A file without a mount on it would open just as well.
        file.and_then(|file| {
            ensure!(file.metadata()?.dev() == namespaces, "{pin} is not a namespace");
            Ok(file.into())
        })
        .with_context(|| format!("lab `{name}` is damaged; remove it with `{}`", removal(name)))
    };
    let host = |host| {
        let space = |kind| open(format!("{kind}.{host}"));
        Ok(HostSpace { net: space("net")?, uts: space("uts")?, mnt: space("mnt")? })
    };
    let hosts = (0..hosts).map(host).collect::<Result<_>>()?;
    Ok(Spaces { switch: open("net.switch".to_owned())?, hosts })
}

/// Pins the namespaces of the lab `name` in its directory.
fn pin(name: &str, spaces: &Spaces) -> Result<()> {
    let folder = folder(name);
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = c_path(&folder);
    mount(&path, &path, c"none", libc::MS_BIND, c"")
        .and_then(|()| mount(c"none", &path, c"none", libc::MS_PRIVATE, c""))
        .with_context(|| format!("cannot mount {}", folder.display()))?;
    let pin_one = |pin: &str, space: BorrowedFd| -> Result<()> {
        let target = folder.join(pin);
        File::create_new(&target)?;
        let source = CString::new(path_of(space))?;
        mount(&source, &c_path(&target), c"none", libc::MS_BIND, c"")
            .with_context(|| format!("cannot pin {}", target.display()))
    };
    pin_one("net.switch", spaces.switch.as_fd())?;
    for (host, HostSpace { net, uts, mnt }) in spaces.hosts.iter().enumerate() {
        for (kind, space) in [("net", net), ("uts", uts), ("mnt", mnt)] {
            pin_one(&format!("{kind}.{host}"), space.as_fd())?;
        }
    }
    Ok(())
}

/// How to enter the mount namespace `home`, which has the pins of the lab `name`; `None` if it is
/// gone. The kernel may have reused its number for another one since, which has no such pins.
fn way_to(home: (u64, u64), name: &str) -> Option<String> {
    let is_in = |pid: i32| identity(&format!("/proc/{pid}/ns/mnt")) == Some(home);
    let has_pins = |pid: i32| {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let pin = folder(name).join("net.switch");
        pin.strip_prefix("/").is_ok_and(|pin| is_namespace(&root.join(pin)))
    };
    let inside = process::find(|pid| is_in(pid) && has_pins(pid));
    if let Some(Process { pid, .. }) = inside.first() {
        return Some(format!("nsenter --mount=/proc/{pid}/ns/mnt, or outside of all lab hosts"));
    }
    // If it was created on a host of another lab, no process may be running there.
    names().into_iter().find_map(|other| {
        let state = State::load(&other).ok()?;
        let is_home = |host: &usize| {
            let pin = folder(&other).join(format!("mnt.{host}"));
            identity(&pin.to_string_lossy()) == Some(home)
        };
        let host = (0..state.hosts).find(is_home)?;
        Some(format!("omnes lab exec {host} --name {other} -- ..."))
    })
}

fn is_namespace(path: &Path) -> bool {
    let namespaces = fs::metadata(OWN_MOUNT_SPACE).map(|space| space.dev());
    let found = fs::metadata(path).map(|found| found.dev());
    matches!((namespaces, found), (Ok(namespaces), Ok(found)) if namespaces == found)
}

/// Removes whatever is left of the lab `name`; false if it does not exist. Needs the [`Lock`];
/// [`up`] holds it.
///
/// Errors: its pins are in another mount namespace, or processes remain in it.
pub fn remove(name: &str) -> Result<bool> {
    let folder = folder(name);
    if !folder.exists() {
        return Ok(false);
    }
    let state = State::load(name).ok();
    state.as_ref().map_or(Ok(()), State::check_is_here)?;
    let networks: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .flatten()
        .filter(|pin| pin.file_name().to_string_lossy().starts_with("net."))
        .filter_map(|pin| identity(&pin.path().to_string_lossy()))
        .collect();
    let inside = || {
        process::find(|pid| {
            identity(&format!("/proc/{pid}/ns/net")).is_some_and(|net| networks.contains(&net))
        })
    };
    let ended = process::end(|| inside().into_iter().chain(keeper::find(name)).collect());
    for target in mounts_below(&folder)? {
        let path = c_path(&target);
        // SAFETY: `path` is NUL-ended and lives through the call.
        checked(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) })
            .with_context(|| format!("cannot unmount {}", target.display()))?;
    }
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    ensure!(ended, "lab `{name}` is removed, but processes in it refuse to end");
    check_is_empty(name, &state.map_or(Vec::new(), |state| state.networks))?;
    Ok(true)
}

/// Reports processes that remain in the hosts' `networks`, whose pins were gone. They are not
/// ended: the kernel may have reused the numbers of these namespaces since.
fn check_is_empty(name: &str, networks: &[(u64, u64)]) -> Result<()> {
    let is_inside = |pid: i32| {
        identity(&format!("/proc/{pid}/ns/net")).is_some_and(|net| networks.contains(&net))
    };
    let left: Vec<String> =
        process::find(is_inside).iter().map(|process| process.pid.to_string()).collect();
    ensure!(
        left.is_empty(),
        "lab `{name}` is removed, but its pins were gone before, and processes {} seem to run on \
         its hosts; end them if so",
        left.join(", ")
    );
    Ok(())
}

/// Mounts at `folder` and below, the most recent first.
fn mounts_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo").context("cannot read the mounts")?;
    let targets = mount_points(&table).filter(|target| target.starts_with(folder));
    let mut targets: Vec<_> = targets.collect();
    targets.reverse();
    Ok(targets)
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).expect("names have no NUL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_or_unsafe_lab_names_are_rejected() {
        assert!(parse_name("omnes").is_ok() && parse_name("a-1").is_ok());
        for name in ["", "8", "ephemeral", "-x", "a/b", "..", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert!(parse_name(name).is_err(), "{name}");
        }
    }
}
