//! Groups of one rank per host, their plans and sockets.

use super::IS_V6;
use super::hosts::{Host, address};
use super::packets::{COMMUNICATOR, JOB, job_key};
use omnes_nic::{MemberPlan, SlotPlan};
use omnes_wire::Rank;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// UDP port of member `index`; each member has another, so that a port that is not updated shows.
pub fn port(index: usize) -> u16 {
    5000 + index as u16
}

/// The socket of member `index`.
pub fn socket_address(index: usize) -> SocketAddr {
    SocketAddr::new(address(index), port(index))
}

/// The multicast address of the tests' group.
pub const GROUP: SocketAddr = SocketAddr::new(
    if !IS_V6 {
        IpAddr::V4(Ipv4Addr::new(239, 193, 2, 3))
    } else {
        IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0x6f6d, 0x6e65, 0x40c1, 0x0203))
    },
    20000,
);

/// The MAC address of the group.
pub const GROUP_MAC: [u8; 6] =
    if IS_V6 { [0x33, 0x33, 0x40, 0xc1, 2, 3] } else { [1, 0, 0x5e, 0x41, 2, 3] };

/// Rank of member `index`: a different number, so that confusing them shows.
pub fn rank(index: usize) -> u32 {
    100 + index as u32
}

/// A plan without a purpose for member `own` of `size`; barrier or tree are still to be set.
pub fn plan(own: usize, size: usize) -> SlotPlan {
    let member = |index: usize| MemberPlan {
        rank: rank(index),
        index: index as u32,
        key: job_key().sender(Rank(rank(index))).to_bytes(),
    };
    SlotPlan {
        job: JOB,
        communicator: COMMUNICATOR,
        channel: 0,
        rank: rank(own),
        own: own as u32,
        socket: socket_address(own),
        doorbell: None,
        peers: (0..size).map(|index| (rank(index), socket_address(index))).collect(),
        members: (0..size).map(member).collect(),
        group: None,
        group_ttl: 1,
        barrier: None,
        tree: None,
        forwards: false,
        by_mac: false,
    }
}

/// The plan of a member that runs barriers.
pub fn barrier_plan(own: usize, size: usize, algorithm: &str, is_multicast: bool) -> SlotPlan {
    let group = is_multicast.then_some(GROUP);
    SlotPlan { barrier: Some(algorithm.to_owned()), group, ..plan(own, size) }
}

/// The plan of a member that forwards packets.
pub fn multisend_plan(own: usize, size: usize, tree: &str, by_mac: bool) -> SlotPlan {
    SlotPlan {
        tree: Some(tree.to_owned()),
        group: Some(GROUP),
        forwards: true,
        by_mac,
        ..plan(own, size)
    }
}

/// A socket that receives the group's packets at a host's interface.
pub fn group_socket(host: &Host) -> UdpSocket {
    host.inside(|| {
        let socket = UdpSocket::bind(GROUP).unwrap();
        match (GROUP.ip(), host.address) {
            (IpAddr::V4(group), IpAddr::V4(own)) => socket.join_multicast_v4(&group, &own),
            (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, host.interface()),
            _ => unreachable!("the host has an address of the group's version"),
        }
        .unwrap();
        socket
    })
}

/// The socket of member `index` on its host; without UDP checksums if it is for steps.
pub fn socket(host: &Host, index: usize, has_checksum: bool) -> UdpSocket {
    host.inside(|| {
        let socket = UdpSocket::bind(socket_address(index)).unwrap();
        if !has_checksum {
            leave_checksum_out(&socket);
        }
        socket
    })
}

/// Makes a socket send without UDP checksums, if the version of IP allows that.
pub fn leave_checksum_out(socket: &UdpSocket) {
    if !IS_V6 {
        set_option(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
    }
}

/// Sets the hops that packets of a socket to groups may take, and that none loop back.
pub fn send_to_groups(socket: &UdpSocket, hops: u8) {
    let hops = hops.into();
    let (level, options) = if !IS_V6 {
        (libc::IPPROTO_IP, [(libc::IP_MULTICAST_LOOP, 0), (libc::IP_MULTICAST_TTL, hops)])
    } else {
        let loops = (libc::IPV6_MULTICAST_LOOP, 0);
        (libc::IPPROTO_IPV6, [loops, (libc::IPV6_MULTICAST_HOPS, hops)])
    };
    for (option, value) in options {
        set_option(socket, level, option, value);
    }
}

/// Sets an option that is one number.
pub fn set_option(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    // SAFETY: the option's value is a number, which lives as long as the call.
    let code = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4)
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}
