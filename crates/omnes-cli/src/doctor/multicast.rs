//! Interfaces, and multicast on them: joins on each interface that is up, a real packet over
//! loopback.
//!
//! A successful join shows only that this host would receive. Whether switches forward multicast is
//! probed at the start of a job, with its real members; clouds mostly do not.

use super::{Finding, read_number};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A group of the organisation-local scope, and one of the link-local scope.
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 77);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x4d4d, 1);

/// Maximum wait for a packet that loopback should have delivered immediately.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Omnes joins one group per job; a host with many jobs needs some room.
const MEMBERSHIPS_WANTED: u64 = 20;

/// An interface that is up.
struct Interface {
    name: String,
    index: u32,
    is_loopback: bool,
    is_multicast: bool,
}

/// Findings about interfaces and multicast.
pub fn findings() -> Vec<Finding> {
    let mut findings = vec![memberships()];
    let interfaces = match interfaces() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            findings.push(Finding::missing("interfaces", error, "the kernel does not list them"));
            return findings;
        }
    };
    if !interfaces.iter().any(|interface| interface.is_loopback) {
        findings.push(Finding::missing("interface lo", "not up", "ip link set lo up"));
    }
    for interface in &interfaces {
        findings.push(describe(interface));
        findings.push(join(interface, "IPv4", join_v4));
        findings.push(join(interface, "IPv6", join_v6));
        if interface.is_loopback {
            let unicast = "ranks of this machine use unicast";
            findings.push(exchange("IPv4", exchange_v4(interface), unicast));
            // A route of type multicast lets packets out and drops them on the way in.
            let route = "use IPv4, or: ip -6 route add local ff00::/8 dev lo table local";
            findings.push(exchange("IPv6", exchange_v6(interface), route));
        }
    }
    findings
}

fn memberships() -> Finding {
    let name = "igmp_max_memberships";
    match read_number("/proc/sys/net/ipv4/igmp_max_memberships") {
        Some(count) if count >= MEMBERSHIPS_WANTED => Finding::ok(name, count),
        Some(count) => Finding::limited(name, count, "sysctl -w net.ipv4.igmp_max_memberships=20"),
        None => Finding::limited(name, "not shown here", "20 groups per socket are usual"),
    }
}

/// Interfaces that are up, by name.
fn interfaces() -> io::Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is valid for writing; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = BTreeMap::new(); // an interface has one entry per address
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list, which lives until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let has =
            |flag: libc::c_int| u32::try_from(flag).is_ok_and(|flag| entry.ifa_flags & flag != 0);
        if has(libc::IFF_UP) {
            // SAFETY: the name of an entry is a C string that lives as long as the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            // SAFETY: `name` is a C string.
            let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            let name = name.to_string_lossy().into_owned();
            let (is_loopback, is_multicast) = (has(libc::IFF_LOOPBACK), has(libc::IFF_MULTICAST));
            found.insert(name.clone(), Interface { name, index, is_loopback, is_multicast });
        }
    }
    // SAFETY: the list came from getifaddrs and is freed once.
    unsafe { libc::freeifaddrs(first) };
    Ok(found.into_values().collect())
}

fn describe(interface: &Interface) -> Finding {
    let name = format!("interface {}", interface.name);
    // Read from this network namespace, because /sys may show another one.
    match mtu(&interface.name) {
        Err(error) => Finding::limited(name, format!("up, MTU unknown ({error})"), ""),
        Ok(mtu) if interface.is_multicast || interface.is_loopback => {
            Finding::ok(name, format!("up, MTU {mtu}"))
        }
        Ok(mtu) => {
            let advice = format!("ip link set {} multicast on, if its network can", interface.name);
            Finding::limited(name, format!("up, MTU {mtu}, no multicast"), &advice)
        }
    }
}

fn mtu(name: &str) -> io::Result<i32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: an all-zero ifreq is a valid value of that plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1; // the last byte stays 0
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: `request` is live and holds a name that ends with 0; SIOCGIFMTU writes ifru_mtu.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel has written this field.
    Ok(unsafe { request.ifr_ifru.ifru_mtu })
}

fn join(interface: &Interface, family: &str, join: fn(u32) -> io::Result<Socket>) -> Finding {
    let name = format!("{family} multicast join, {}", interface.name);
    match join(interface.index) {
        Ok(_) => Finding::ok(name, "joined"),
        Err(error) => Finding::missing(name, error, "a tree of unicast sends is used there"),
    }
}

/// Creates a socket on a free port that receives the group, from one interface only.
fn join_v4(index: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_read_timeout(Some(PROBE_WAIT))?;
    // Otherwise the socket would also receive groups that other processes of this host have joined.
    socket.set_multicast_all_v4(false)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into())?;
    socket.join_multicast_v4_n(&GROUP_V4, &socket2::InterfaceIndexOrAddress::Index(index))?;
    Ok(socket)
}

/// Like [`join_v4`].
fn join_v6(index: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    socket.set_read_timeout(Some(PROBE_WAIT))?;
    socket.set_only_v6(true)?;
    socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0).into())?;
    socket.join_multicast_v6(&GROUP_V6, index)?;
    Ok(socket)
}

fn exchange_v4(loopback: &Interface) -> io::Result<()> {
    let receiver = join_v4(loopback.index)?;
    let port = local_port(&receiver)?;
    let sender = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    sender.set_multicast_ttl_v4(0)?; // never leaves this host
    send_and_receive(&sender, &SocketAddrV4::new(GROUP_V4, port).into(), &receiver)
}

fn exchange_v6(loopback: &Interface) -> io::Result<()> {
    let receiver = join_v6(loopback.index)?;
    let port = local_port(&receiver)?;
    let sender = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    sender.set_multicast_if_v6(loopback.index)?;
    sender.set_multicast_hops_v6(0)?;
    let group = SocketAddrV6::new(GROUP_V6, port, 0, loopback.index);
    send_and_receive(&sender, &group.into(), &receiver)
}

fn local_port(socket: &Socket) -> io::Result<u16> {
    let address = socket.local_addr()?.as_socket();
    Ok(address.expect("an IP socket has an IP address").port())
}

fn send_and_receive(sender: &Socket, group: &SockAddr, receiver: &Socket) -> io::Result<()> {
    const PROBE: [u8; 8] = *b"omnes?\r\n";
    sender.send_to(&PROBE, group)?;
    let mut buffer = [MaybeUninit::new(0); PROBE.len()];
    match receiver.recv(&mut buffer)? {
        length if length == PROBE.len() => Ok(()),
        length => {
            Err(io::Error::other(format!("received {length} bytes instead of {}", PROBE.len())))
        }
    }
}

fn exchange(family: &str, result: io::Result<()>, advice: &str) -> Finding {
    let name = format!("{family} multicast over lo");
    match result {
        Ok(()) => Finding::ok(name, "sent and received"),
        Err(error) => Finding::missing(name, error, advice),
    }
}
