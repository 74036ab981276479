//! Sockets that prove a port, and those that prove nothing. As an ordinary user: each
//! test has sockets of its own on the loopback interface.

#![allow(clippy::unwrap_used)]

use super::*;
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;

fn me() -> Peer {
    // SAFETY: only returns a number.
    Peer { uid: unsafe { libc::geteuid() }, pid: std::process::id() as i32 }
}

fn bound(socket: &impl AsFd) -> SocketAddr {
    let address = rustix::net::getsockname(socket).unwrap();
    SocketAddr::try_from(address).unwrap()
}

/// This host's own address for each version of IP that the machine has, and its unspecified
/// address.
fn hosts() -> impl Iterator<Item = (IpAddr, IpAddr)> {
    let all: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into()),
        (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()),
    ];
    all.into_iter().filter(|(own, _)| UdpSocket::bind((*own, 0)).is_ok())
}

/// A socket that others may share, bound to `address`.
fn sharing(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

/// Checks the socket as the agent does.
fn own(socket: BorrowedFd<'_>, address: SocketAddr, peer: Peer) -> Result<(), &'static str> {
    super::own(socket, address, peer, &Sockets::at([address.port()]).unwrap())
}

fn group(socket: BorrowedFd<'_>, address: SocketAddr, peer: Peer) -> Result<(), &'static str> {
    super::group(socket, address, peer, &Sockets::at([address.port()]).unwrap())
}

#[test]
fn a_socket_that_has_its_port_alone_proves_it() {
    for (host, _) in hosts() {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        let address = bound(&socket);
        assert_eq!(own(socket.as_fd(), address, me()), Ok(()));
        // A socket held twice is still one socket.
        let _again = socket.try_clone().unwrap();
        assert_eq!(own(socket.as_fd(), address, me()), Ok(()));
    }
}

#[test]
fn another_port_or_address_is_refused() {
    for (host, any) in hosts() {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        let other = UdpSocket::bind((host, 0)).unwrap();
        let refused = own(socket.as_fd(), bound(&other), me()).unwrap_err();
        assert!(refused.contains("not bound"), "{refused}");
        let everywhere = UdpSocket::bind((any, 0)).unwrap();
        let here = SocketAddr::new(host, bound(&everywhere).port());
        assert!(own(everywhere.as_fd(), here, me()).unwrap_err().contains("not bound"));
    }
}

#[test]
fn another_users_socket_is_refused() {
    for (host, _) in hosts() {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        let other = Peer { uid: me().uid + 1, ..me() };
        let refused = own(socket.as_fd(), bound(&socket), other).unwrap_err();
        assert!(refused.contains("another user's"), "{refused}");
    }
}

#[test]
fn what_is_no_udp_socket_is_refused() {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    let six = std::net::TcpListener::bind("[::1]:0");
    let address = bound(&tcp);
    for descriptor in [tcp.as_fd(), file.as_fd()].into_iter().chain(six.iter().map(AsFd::as_fd)) {
        assert!(!is_udp(descriptor));
        assert!(own(descriptor, address, me()).unwrap_err().contains("no UDP socket"));
    }
}

#[test]
fn a_port_that_may_be_shared_is_refused() {
    for (host, _) in hosts() {
        let socket = sharing((host, 0).into());
        let refused = own(socket.as_fd(), bound(&socket), me()).unwrap_err();
        assert!(refused.contains("lets others share"), "{refused}");
    }
}

#[test]
fn a_port_that_is_shared_is_refused_though_the_option_is_taken_back() {
    for (host, any) in hosts() {
        let victim = sharing((host, 0).into());
        let thief = sharing(bound(&victim));
        thief.set_reuse_address(false).unwrap();
        let refused = own(thief.as_fd(), bound(&victim), me()).unwrap_err();
        assert!(refused.contains("another socket shares"), "{refused}");
        // Even if the other socket takes packets to any address.
        let everywhere = sharing((any, 0).into());
        let here = SocketAddr::new(host, bound(&everywhere).port());
        let thief = sharing(here);
        thief.set_reuse_address(false).unwrap();
        assert!(own(thief.as_fd(), here, me()).unwrap_err().contains("another socket shares"));
    }
}

#[test]
fn a_socket_of_the_other_version_of_ip_may_have_the_same_port() {
    let [(four, _), (six, any)] = hosts().collect::<Vec<_>>()[..] else { return };
    let first = UdpSocket::bind((six, 0)).unwrap();
    let Ok(second) = UdpSocket::bind((four, bound(&first).port())) else { return };
    for socket in [first, second] {
        assert_eq!(own(socket.as_fd(), bound(&socket), me()), Ok(()));
    }
    // A socket of any IPv6 address takes packets over IPv4, too.
    let everywhere = sharing((any, 0).into());
    let here = SocketAddr::new(four, bound(&everywhere).port());
    let thief = sharing(here);
    thief.set_reuse_address(false).unwrap();
    assert!(own(thief.as_fd(), here, me()).unwrap_err().contains("another socket shares"));
}

#[test]
fn a_connected_socket_of_the_same_user_may_be_beside() {
    for (host, _) in hosts() {
        let own_socket = sharing((host, 0).into());
        let address = bound(&own_socket);
        let beside = sharing(address);
        beside.connect(&SocketAddr::new(host, 9).into()).unwrap();
        for socket in [&own_socket, &beside] {
            socket.set_reuse_address(false).unwrap();
        }
        assert_eq!(own(own_socket.as_fd(), address, me()), Ok(()));
        // The connected socket is no proof itself: the other one takes packets from elsewhere.
        assert!(own(beside.as_fd(), address, me()).unwrap_err().contains("another socket shares"));
        let other = Peer { uid: me().uid + 1, ..me() };
        assert!(own(own_socket.as_fd(), address, other).is_err());
    }
}

#[test]
fn a_group_may_be_shared_within_a_user() {
    for (host, _) in hosts() {
        let one = sharing((host, 0).into());
        let address = bound(&one);
        let _two = sharing(address);
        assert_eq!(group(one.as_fd(), address, me()), Ok(()));
        let other = Peer { uid: me().uid + 1, ..me() };
        assert!(group(one.as_fd(), address, other).is_err());
        // A socket that is not among those of this namespace.
        let none = Sockets::at([]).unwrap();
        let refused = super::group(one.as_fd(), address, me(), &none).unwrap_err();
        assert!(refused.contains("another network namespace"), "{refused}");
    }
}
