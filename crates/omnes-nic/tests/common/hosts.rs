//! Network namespaces joined by a bridge. They have no names; the kernel removes them when their
//! last holder has ended, however it ends.

use super::IS_V6;
use super::root::is_root;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A host with one interface, `eth0`.
#[derive(Clone)]
pub struct Host {
    /// Its address, in a network of 16 bits, or of 64 over IPv6.
    pub address: IpAddr,
    space: Arc<Space>,
}

/// A host's namespace, and the switch's, which must last as long.
struct Space {
    own: OwnedFd,
    _switch: Option<Arc<OwnedFd>>,
}

impl Host {
    /// Runs `body` in the host's namespace, in a thread of its own.
    pub fn inside<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        run_in(Some(&self.space.own), body)
    }

    /// Runs a command in the host's namespace.
    pub fn command(&self, words: &str) {
        self.inside(|| {
            let mut words = words.split_whitespace();
            let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        });
    }

    /// Index of its interface.
    pub fn interface(&self) -> u32 {
        self.interface_named("eth0")
    }

    /// Index of another interface.
    pub fn interface_named(&self, name: &str) -> u32 {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: the name ends with 0.
        self.inside(|| unsafe { libc::if_nametoindex(name.as_ptr()) })
    }

    /// MAC address of its interface.
    pub fn mac(&self) -> [u8; 6] {
        self.inside(|| {
            let output = Command::new("ip").args(["-o", "link", "show", "eth0"]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let mac = text.split_once("link/ether ").unwrap().1.split(' ').next().unwrap();
            let bytes: Vec<u8> =
                mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            bytes.try_into().unwrap()
        })
    }
}

fn run_in<T: Send>(space: Option<&OwnedFd>, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(space) = space {
                // SAFETY: affects this thread only, which ends here.
                let code = unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
            }
            body()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Creates a network namespace with only a loopback interface that is down.
fn new_space() -> OwnedFd {
    run_in(None, || {
        // SAFETY: nothing but the network of this thread, which ends here, is affected.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        std::fs::File::open("/proc/thread-self/ns/net").unwrap().into()
    })
}

/// Has `ip` run `lines` in a namespace.
fn ip(space: &OwnedFd, lines: &str) {
    run_in(Some(space), || {
        let mut command = Command::new("ip");
        let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "ip: {lines}");
    });
}

/// Address of host `index` of a network.
pub fn address(index: usize) -> IpAddr {
    if !IS_V6 {
        Ipv4Addr::new(10, 79, (index / 250) as u8, (index % 250) as u8 + 1).into()
    } else {
        Ipv6Addr::new(0xfd00, 79, 0, 0, 0, 0, 0, index as u16 + 1).into()
    }
}

/// Commands by which `ip` gives a host an address, and a route to groups, through an interface.
pub fn settings(address: IpAddr, interface: &str) -> [String; 2] {
    match address {
        IpAddr::V4(address) => [
            format!("addr add {address}/16 dev {interface}"),
            format!("route replace 224.0.0.0/4 dev {interface}"),
        ],
        // Without duplicate address detection, which takes a second.
        IpAddr::V6(address) => [
            format!("addr add {address}/64 dev {interface} nodad"),
            format!("-6 route replace multicast ff00::/8 dev {interface} table local"),
        ],
    }
}

/// Hosts with an interface each on one switch; `None`, after a message, without the permission to
/// create them. Packets to groups go through the interface, too.
pub fn network(count: usize) -> Option<Vec<Host>> {
    if !is_root() {
        return None;
    }
    let switch = Arc::new(new_space());
    let spaces: Vec<OwnedFd> = (0..count).map(|_| new_space()).collect();
    // Without snooping the switch floods packets to a group everywhere, immediately.
    let mut lines = "link add br0 type bridge mcast_snooping 0\nlink set br0 up\n".to_owned();
    for (host, space) in spaces.iter().enumerate() {
        let space = format!("/proc/{}/fd/{}", std::process::id(), space.as_raw_fd());
        writeln!(lines, "link add p{host} type veth peer name eth0 netns {space}").unwrap();
        writeln!(lines, "link set p{host} master br0 up").unwrap();
    }
    ip(&switch, &lines);
    let host = |(index, own)| new_host(index, own, Some(Arc::clone(&switch)));
    Some(spaces.into_iter().enumerate().map(host).collect())
}

/// Two hosts whose interfaces are the two ends of a link; `None` as for [`network`].
pub fn pair() -> Option<[Host; 2]> {
    if !is_root() {
        return None;
    }
    let [first, second] = [new_space(), new_space()];
    let peer = format!("/proc/{}/fd/{}", std::process::id(), second.as_raw_fd());
    ip(&first, &format!("link add eth0 type veth peer name eth0 netns {peer}\n"));
    Some([new_host(0, first, None), new_host(1, second, None)])
}

/// The host in a namespace that contains its interface.
fn new_host(index: usize, own: OwnedFd, switch: Option<Arc<OwnedFd>>) -> Host {
    let address = address(index);
    let [addr, route] = settings(address, "eth0");
    ip(&own, &format!("link set lo up\nlink set eth0 up\n{addr}\n"));
    // For IPv6 the kernel has already set such a route.
    if !IS_V6 {
        ip(&own, &format!("{route}\n"));
    }
    Host { address, space: Arc::new(Space { own, _switch: switch }) }
}
