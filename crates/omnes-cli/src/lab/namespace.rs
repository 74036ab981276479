//! Namespaces of a lab: creating them, working inside them, starting commands in them.
//!
//! A host is three namespaces: network, host name (UTS) and mounts, the last with a `/dev/shm` of
//! its own, so that ranks of one host share memory and ranks of two hosts do not, and with a `/sys`
//! that shows its network ([`super::sysfs`]). The switch is only a network namespace. All are held
//! by file descriptors only: nothing has a name until [`super::named`] pins it, so the kernel
//! removes everything when the holder ends, however it ends.
//!
//! Namespaces belong to threads; each piece of work runs on a short-lived thread of its own, and
//! this process's other threads never change theirs.
//!
//! Assumes CAP_SYS_ADMIN, checked by [`require_privilege`].

use super::sysfs;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Directory that each host has a private, initially empty, instance of.
const SHM: &str = "/dev/shm";

/// This machine or this user cannot have a lab; the command ends with status 77.
#[derive(Debug)]
pub struct CannotRun(pub String);

impl std::fmt::Display for CannotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotRun {}

/// Capabilities a lab needs, with their numbers in `capability(7)`.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21)];

/// Fails with [`CannotRun`] if capabilities are missing, and names them.
pub fn require_privilege() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read own status")?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .context("no CapEff in /proc/self/status")?;
    let missing: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(_, bit)| effective & (1 << bit) == 0)
        .map(|(name, _)| *name)
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        return Err(CannotRun(format!(
            "a lab needs {missing}, which this user lacks: run as root"
        ))
        .into());
    }
    Ok(())
}

/// The namespaces of one host.
pub struct HostSpace {
    /// Network namespace.
    pub net: OwnedFd,
    /// Host name.
    pub uts: OwnedFd,
    /// Mounts, with a `/dev/shm` and a `/sys` of the host's own.
    pub mnt: OwnedFd,
}

/// The namespaces of a lab.
pub struct Spaces {
    /// Network namespace of the switch.
    pub switch: OwnedFd,
    /// One entry per host, in order.
    pub hosts: Vec<HostSpace>,
}

impl Spaces {
    /// Creates the namespaces of a switch and of `hosts` hosts called `NAME-0`, `NAME-1`, ...
    pub fn create(hosts: usize, name: &str) -> Result<Self> {
        on_own_thread(|| {
            let home = File::open("/proc/thread-self/ns/mnt")?;
            unshare(libc::CLONE_NEWNET).context("cannot make a network namespace")?;
            let switch = own_space("net")?;
            let hosts = (0..hosts)
                .map(|host| {
                    create_pinnable_host(&format!("{name}-{host}"), home.as_fd())
                        .with_context(|| format!("cannot make host {host}"))
                })
                .collect::<Result<_>>()?;
            Ok(Self { switch, hosts })
        })
    }

    /// Makes `command` start in `host`, with its original working directory.
    pub fn enter_in(&self, host: usize, command: &mut Command) -> Result<()> {
        let count = self.hosts.len();
        ensure!(host < count, "no host {host}: the lab has hosts 0 to {}", count - 1);
        let HostSpace { net, uts, mnt } = &self.hosts[host];
        if let Ok(place) = std::env::current_dir()
            && place.starts_with(SHM)
            && place != Path::new(SHM)
        {
            bail!("hosts of a lab have a {SHM} of their own, without {}", place.display());
        }
        // Separate descriptors: the command may be started after the lab was dropped.
        let (net, uts, mnt) = (net.try_clone()?, uts.try_clone()?, mnt.try_clone()?);
        let hook = move || enter(net.as_fd(), uts.as_fd(), mnt.as_fd());
        // SAFETY: `enter` makes system calls on descriptors opened before the fork and on memory of
        // its own stack; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(hook) };
        Ok(())
    }
}

/// Creates the namespaces of the host `name` such that they can be pinned in the mount namespace
/// `home`, where the calling thread is before and afterwards.
///
/// The kernel pins a mount namespace only in one with a smaller number, lest they hold each other;
/// but newer kernels number them by the processor on which they are created, so that a later one
/// may have a smaller number. Then it is created again on another processor.
fn create_pinnable_host(name: &str, home: BorrowedFd) -> Result<HostSpace> {
    // All processors, not only those that this process is restricted to.
    // SAFETY: takes no pointers.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let processors = usize::try_from(processors).unwrap_or(1);
    for processor in 0.. {
        let space = create_host(name)?;
        // Return, so that the next host does not inherit this one's /dev/shm.
        set_namespace(home, libc::CLONE_NEWNS)?;
        let is_later = match (mount_space_number(home), mount_space_number(space.mnt.as_fd())) {
            (Some(home), Some(own)) => own > home,
            _ => true, // An older kernel, which counts.
        };
        if is_later || processor == processors {
            return Ok(space);
        }
        run_on(processor);
    }
    unreachable!("the loop ends after the last processor")
}

/// Number of a mount namespace, if the kernel reports it (since 6.10).
fn mount_space_number(space: BorrowedFd) -> Option<u64> {
    const NS_GET_MNTNS_ID: libc::c_ulong = 0x8008_b705;
    let mut number = 0u64;
    // SAFETY: the call writes one 64-bit number to the address given.
    let result = unsafe { libc::ioctl(space.as_raw_fd(), NS_GET_MNTNS_ID, &mut number) };
    (result == 0).then_some(number)
}

/// Moves the calling thread to a processor; has no effect if that is not allowed.
fn run_on(processor: usize) {
    // SAFETY: all-zero is a valid set, and the call reads no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &raw const set);
    }
}

/// Creates the three namespaces of the host `name`; leaves the calling thread inside them.
fn create_host(name: &str) -> Result<HostSpace> {
    unshare(libc::CLONE_NEWNET | libc::CLONE_NEWUTS | libc::CLONE_NEWNS)?;
    // SAFETY: the pointer and length are those of `name`, which the call only reads.
    let named = unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) };
    checked(named).context("cannot set the host name")?;
    // Slave: later mounts on the machine appear here too, and none propagates back.
    mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_SLAVE, c"")
        .context("cannot detach the mounts")?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    mount(c"omnes-lab", c"/dev/shm", c"tmpfs", flags, c"mode=1777")
        .context("cannot mount a private /dev/shm")?;
    // If that is not allowed, as in some containers, /sys still shows the machine.
    let _ = sysfs::show_own_network();
    Ok(HostSpace { net: own_space("net")?, uts: own_space("uts")?, mnt: own_space("mnt")? })
}

/// Runs `work` on a thread inside the network namespace `net`; processes it starts are inside too.
pub fn inside<T: Send>(net: BorrowedFd, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    on_own_thread(|| {
        set_namespace(net, libc::CLONE_NEWNET).context("cannot enter a network namespace")?;
        work()
    })
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Path under which processes of this machine can open `space` while this process holds it.
pub fn path_of(space: BorrowedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), space.as_raw_fd())
}

/// Mounts; see mount(2).
pub fn mount(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: libc::c_ulong,
    data: &CStr,
) -> io::Result<()> {
    // SAFETY: all pointers are to NUL-terminated strings that live through the call.
    checked(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    })
}

/// Moves the calling child, between fork and exec, into a host. Async-signal-safe.
fn enter(net: BorrowedFd, uts: BorrowedFd, mnt: BorrowedFd) -> io::Result<()> {
    let mut cwd = [0u8; libc::PATH_MAX as usize];
    // The raw call, because the C function may allocate for long paths.
    // SAFETY: the kernel writes at most `cwd.len()` bytes, terminated by NUL.
    if unsafe { libc::syscall(libc::SYS_getcwd, cwd.as_mut_ptr(), cwd.len()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    set_namespace(net, libc::CLONE_NEWNET)?;
    set_namespace(uts, libc::CLONE_NEWUTS)?;
    set_namespace(mnt, libc::CLONE_NEWNS)?; // moves to its root
    // SAFETY: `cwd` was filled with a NUL-terminated string above.
    checked(unsafe { libc::chdir(cwd.as_ptr().cast()) })
}

/// The calling thread's namespace of `kind`.
fn own_space(kind: &str) -> io::Result<OwnedFd> {
    File::open(format!("/proc/thread-self/ns/{kind}")).map(OwnedFd::from)
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers; changes the calling thread alone.
    checked(unsafe { libc::unshare(flags) })
}

fn set_namespace(space: BorrowedFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers; changes the calling thread alone.
    checked(unsafe { libc::setns(space.as_raw_fd(), kind) })
}

/// Returns the error of a C call that failed with -1.
pub fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
