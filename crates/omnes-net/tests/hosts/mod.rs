//! Hosts for tests: this machine, or network namespaces joined by a bridge, which the kernel
//! removes when the last process that holds them has ended, in whatever way.
#![allow(dead_code)] // Each test needs another part.

use rustix::fd::{AsFd, OwnedFd};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The host on which a rank runs.
#[derive(Clone)]
pub struct Host {
    /// Address of the host.
    pub address: IpAddr,
    space: Option<Arc<Space>>,
}

/// Namespaces of a host and of the switch, which must live as long.
struct Space {
    own: OwnedFd,
    _switch: Arc<OwnedFd>,
}

/// The address families of a network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Host {
    /// This machine, with one of its addresses.
    pub fn here(address: IpAddr) -> Self {
        Self { address, space: None }
    }

    /// Runs `body` on the host, in a separate thread.
    pub fn inside<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        run_in(self.space.as_ref().map(|space| &space.own), body)
    }
}

fn run_in<T: Send>(space: Option<&OwnedFd>, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(space) = space {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(space.as_fd(), kind).unwrap();
            }
            body()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Creates a network namespace that contains only a loopback interface, which is down.
fn new_space() -> OwnedFd {
    run_in(None, || {
        // SAFETY: only the network of this thread, which ends here, is affected.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET).unwrap() };
        std::fs::File::open("/proc/thread-self/ns/net").unwrap().into()
    })
}

/// Runs `ip` with `lines` in a namespace.
fn ip(space: &OwnedFd, lines: &str) {
    run_in(Some(space), || {
        let mut command = Command::new("ip");
        let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "ip: {lines}");
    });
}

/// Creates hosts with an interface each on one switch; `None`, with a message, for users without
/// that right.
pub fn network(count: usize, family: Family) -> Option<Vec<Host>> {
    if !rustix::process::geteuid().is_root() {
        let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "root"), "OMNES_REQUIRE=root: not root");
        println!("skipped: needs root");
        return None;
    }
    let switch = Arc::new(new_space());
    let spaces: Vec<OwnedFd> = (0..count).map(|_| new_space()).collect();
    let mut lines = "link add br0 type bridge\nlink set br0 up\n".to_owned();
    for (host, space) in spaces.iter().enumerate() {
        let space = format!("/proc/{}/fd/{}", std::process::id(), space.as_raw_fd());
        writeln!(lines, "link add p{host} type veth peer name eth0 netns {space}").unwrap();
        writeln!(lines, "link set p{host} master br0 up").unwrap();
    }
    ip(&switch, &lines);
    let host = |(index, space): (usize, OwnedFd)| {
        let address: IpAddr = match family {
            Family::V4 => [10, 78, 0, index as u8 + 1].into(),
            Family::V6 => [0xfd78, 0, 0, 0, 0, 0, 0, index as u16 + 1].into(),
        };
        let (length, option) = match family {
            Family::V4 => (24, ""),
            Family::V6 => (64, " nodad"),
        };
        let up = format!(
            "link set lo up\nlink set eth0 up\naddr add {address}/{length} dev eth0{option}\n"
        );
        ip(&space, &up);
        let space = Space { own: space, _switch: Arc::clone(&switch) };
        Host { address, space: Some(Arc::new(space)) }
    };
    Some(spaces.into_iter().enumerate().map(host).collect())
}
