//! The network of a lab: a bridge (the switch) and one veth pair per host.
//!
//! ```text
//! host i: eth0 ---- p<i> :switch: br0          10.77.0.<i+1>/16, fd77::<i+1>/64
//! ```
//!
//! Neighbour and forwarding tables are static, so that no query and no flooded unicast frame
//! disturbs a measurement, and no entry changes when a held frame is written back. The bridge
//! floods multicast, as a switch without a querier does. It has no port to the machine's own
//! network.
//!
//! Set up by iproute2 in batch mode: one process per namespace, whatever the number of lines.
//! Interface indices are assigned here, so that the fault program can compute them.
//!
//! Cost: `hosts^2` neighbour entries of each family. Not supported: several switches, VLANs.

use super::namespace::{CannotRun, Spaces, checked, inside, path_of};
use super::options::Link;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Maximum number of hosts of one lab; the limit of the address plan and the fault program's
/// tables.
pub const HOSTS_MAX: usize = 250;
/// Interface index of the switch's port 0.
pub const PORT_INDEX_FIRST: u32 = 1000;
/// Interface index of hold device 0.
pub const HOLD_INDEX_FIRST: u32 = 2000;

/// Maximum number of segments that veth accepts in one packet; the kernel's own default.
const SEGMENTS_MAX: u32 = 65_535;
/// Burst of a shaped, idle link, as time at its rate. Shorter bursts lose bandwidth whenever the
/// shaper's timer is late, which on a busy machine is always. At 1 Gbit/s it holds a train of 64
/// KiB, which then crosses the link whole, as it crosses an interface that segments and coalesces.
const BURST_US: u64 = 600;
/// Queue of a shaped switch port; excess packets are dropped, as in a switch.
const PORT_QUEUE_BYTES: u64 = 1 << 20;
/// Queue of a shaped host: long, because a host blocks its senders rather than drop.
const HOST_QUEUE_BYTES: u64 = 16 << 20;

/// Address of `host`.
pub fn address(host: usize, ipv6: bool) -> IpAddr {
    let number = u16::try_from(host + 1).expect("HOSTS_MAX fits");
    let [high, low] = number.to_be_bytes();
    if ipv6 {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number).into()
    } else {
        Ipv4Addr::new(10, 77, high, low).into()
    }
}

fn mac(host: usize) -> String {
    let number = u16::try_from(host + 1).expect("HOSTS_MAX fits");
    format!("02:4f:6d:00:{:02x}:{:02x}", number >> 8, number & 0xff)
}

/// Connects the hosts of `spaces` to their switch, with addresses of both families.
pub fn connect(spaces: &Spaces, link: &Link) -> Result<()> {
    let hosts = spaces.hosts.len();
    inside(spaces.switch.as_fd(), || {
        // The switch has no address of its own and must not send packets.
        set_sysctls("net/ipv6/conf", "disable_ipv6", "1");
        // Nor does a switch pass each frame to a firewall.
        for filter in ["iptables", "ip6tables", "arptables"] {
            let _ = std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{filter}"), "0");
        }
        batch("ip", &switch_lines(spaces, link.mtu_bytes))?;
        let entries =
            (0..hosts).map(|host| format!("fdb replace {} dev p{host} master static\n", mac(host)));
        batch("bridge", &entries.collect::<String>())
    })?;
    for (host, space) in spaces.hosts.iter().enumerate() {
        inside(space.net.as_fd(), || {
            set_sysctls("net/ipv6/conf", "disable_ipv6", "0");
            // The link-local address is usable immediately, and no router solicitations are sent.
            set_sysctls("net/ipv6/conf", "accept_dad", "0");
            set_sysctls("net/ipv6/conf", "router_solicitations", "0");
            batch("ip", &host_lines(host, hosts))
        })
        .with_context(|| format!("cannot set up host {host}"))?;
    }
    Ok(())
}

fn switch_lines(spaces: &Spaces, mtu: u32) -> String {
    let mut lines = String::from(
        "link set lo up\nlink add br0 type bridge mcast_snooping 0 stp_state 0\nlink set br0 up\n",
    );
    for (host, space) in spaces.hosts.iter().enumerate() {
        let (index, mac) = (PORT_INDEX_FIRST as usize + host, mac(host));
        let _ = write!(
            lines,
            "link add p{host} index {index} mtu {mtu} type veth \
             peer name eth0 address {mac} mtu {mtu} netns {}\n\
             link set p{host} master br0 up\n\
             link set p{host} type bridge_slave learning off\n",
            path_of(space.net.as_fd())
        );
    }
    lines
}

fn host_lines(host: usize, hosts: usize) -> String {
    let mut lines = format!(
        "link set lo up\nlink set eth0 up\n\
         addr add {}/16 brd + dev eth0\nroute add 224.0.0.0/4 dev eth0\n",
        address(host, false)
    );
    let has_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    if has_ipv6 {
        // The kernel itself adds the route for ff00::/8 when eth0 comes up.
        let _ = writeln!(lines, "addr add {}/64 dev eth0 nodad", address(host, true));
    }
    for peer in (0..hosts).filter(|peer| *peer != host) {
        for ipv6 in [false, true].into_iter().filter(|ipv6| !ipv6 || has_ipv6) {
            let (address, mac) = (address(peer, ipv6), mac(peer));
            let _ = writeln!(lines, "neigh replace {address} lladdr {mac} dev eth0 nud permanent");
        }
    }
    lines
}

/// Shapes every link in both directions to the rate of `link`, or stops shaping.
pub fn shape(spaces: &Spaces, link: &Link) -> Result<()> {
    let line = |device: &str, queue: u64| match link.rate_bps {
        Some(bps) => {
            // At least two full frames with their headers, so that any frame passes.
            let frame = u64::from(link.mtu_bytes) + 18;
            let burst = (bps / 8 * BURST_US / 1_000_000).max(2 * frame);
            format!(
                "qdisc replace dev {device} root tbf rate {bps}bit burst {burst} limit {queue}\n"
            )
        }
        None => format!("qdisc replace dev {device} root noqueue\n"),
    };
    inside(spaces.switch.as_fd(), || {
        let ports = (0..spaces.hosts.len()).map(|host| line(&format!("p{host}"), PORT_QUEUE_BYTES));
        batch("tc", &ports.collect::<String>())
    })?;
    spaces.hosts.iter().try_for_each(|space| {
        inside(space.net.as_fd(), || batch("tc", &line("eth0", HOST_QUEUE_BYTES)))
    })
}

/// How packets cross the links.
#[derive(Clone, Copy, PartialEq)]
pub enum Crossing {
    /// Trains of segments cross as one packet: fast.
    Trains,
    /// Every wire packet crosses alone, so that each meets its own fault; the receiver coalesces
    /// them again (GRO), as behind a real link.
    Single,
}

/// Sets how packets cross every link.
///
/// A limit of one segment makes the kernel split trains of UDP and TCP alike before the device,
/// which `tso off gso off` does not: veth keeps its UDP segmentation then. GRO of a veth coalesces
/// packets again only if the other end has TSO off.
pub fn set_crossing(spaces: &Spaces, crossing: Crossing) -> Result<()> {
    const ETHTOOL_STSO: u32 = 0x1f;
    const ETHTOOL_SGRO: u32 = 0x2c;
    let (segments, tso, gro) = match crossing {
        Crossing::Trains => (SEGMENTS_MAX, 1, 0),
        Crossing::Single => (1, 0, 1),
    };
    let hosts = spaces.hosts.len();
    inside(spaces.switch.as_fd(), || {
        (0..hosts).try_for_each(|host| set_offload(&format!("p{host}"), ETHTOOL_STSO, tso))
    })?;
    spaces.hosts.iter().try_for_each(|space| {
        inside(space.net.as_fd(), || {
            batch("ip", &format!("link set eth0 gso_max_segs {segments}\n"))?;
            set_offload("eth0", ETHTOOL_SGRO, gro)
        })
    })
}

/// Sets whether the hosts' interfaces compute the checksums of outgoing packets; otherwise the
/// kernel does, as with a network interface that cannot.
pub fn set_tx_offload(spaces: &Spaces, is_on: bool) -> Result<()> {
    const ETHTOOL_STXCSUM: u32 = 0x17;
    spaces.hosts.iter().try_for_each(|space| {
        inside(space.net.as_fd(), || set_offload("eth0", ETHTOOL_STXCSUM, is_on.into()))
    })
}

/// Turns one offload of `device` in the calling thread's namespace on (1) or off (0); `which` is an
/// ethtool command.
fn set_offload(device: &str, which: u32, value: u32) -> Result<()> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let mut value = [which, value]; // struct ethtool_value
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    checked(socket)?;
    // SAFETY: just opened and owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: `request` points to `value`; both live through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) };
    checked(result).with_context(|| format!("cannot set an offload of {device}"))
}

/// Feeds `lines` to `TOOL -batch -` in the calling thread's namespace; stops at the first error.
pub fn batch(tool: &str, lines: &str) -> Result<()> {
    let spawned = Command::new(tool)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| missing_tool(tool, error))?;
    let mut input = child.stdin.take().expect("stdin is piped");
    // A tool that ends early breaks the pipe; its own message is more helpful than ours would be.
    let written = input.write_all(lines.as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{tool}: {}", String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "));
    }
    written.with_context(|| format!("cannot write to {tool}"))
}

/// Error for a `tool` of iproute2 that cannot be started.
pub fn missing_tool(tool: &str, error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            CannotRun(format!("a lab needs `{tool}`, which is not found: install iproute2")).into()
        }
        _ => anyhow::Error::new(error).context(format!("cannot start {tool}")),
    }
}

/// Sets `name` for present and future interfaces of the calling thread's namespace.
///
/// A kernel without IPv6 has no such entry, and a read-only /proc keeps its defaults; neither is a
/// reason not to create a lab.
fn set_sysctls(folder: &str, name: &str, value: &str) {
    for interface in ["all", "default"] {
        let _ = std::fs::write(format!("/proc/sys/{folder}/{interface}/{name}"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_distinct_addresses() {
        assert_eq!(address(0, false).to_string(), "10.77.0.1");
        assert_eq!(address(HOSTS_MAX - 1, false).to_string(), "10.77.0.250");
        assert_eq!(address(0, true).to_string(), "fd77::1");
        assert_eq!(address(HOSTS_MAX - 1, true).to_string(), "fd77::fa");
        assert_eq!(mac(9), "02:4f:6d:00:00:0a");
    }

    #[test]
    fn hosts_have_neighbour_entries_for_all_others_but_not_themselves() {
        let lines = host_lines(1, 3);
        assert!(lines.contains("neigh replace 10.77.0.1 lladdr 02:4f:6d:00:00:01"));
        assert!(lines.contains("neigh replace 10.77.0.3 lladdr 02:4f:6d:00:00:03"));
        assert!(!lines.contains("neigh replace 10.77.0.2 "));
    }
}
