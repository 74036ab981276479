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
fn exclusively_bound_socket_proves_its_port() {
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
fn socket_bound_elsewhere_is_rejected() {
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
fn socket_of_another_user_is_rejected() {
    for (host, _) in hosts() {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        let other = Peer { uid: me().uid + 1, ..me() };
        let refused = own(socket.as_fd(), bound(&socket), other).unwrap_err();
        assert!(refused.contains("another user's"), "{refused}");
    }
}

#[test]
fn descriptors_other_than_udp_sockets_are_rejected() {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    let six = std::net::TcpListener::bind("[::1]:0");
    let address = bound(&tcp);
    for descriptor in [tcp.as_fd(), file.as_fd()].into_iter().chain(six.iter().map(AsFd::as_fd)) {
        assert!(!is_udp(descriptor));
        assert!(own(descriptor, address, me()).unwrap_err().contains("not a UDP socket"));
    }
}

#[test]
fn shareable_port_is_rejected() {
    for (host, _) in hosts() {
        let socket = sharing((host, 0).into());
        let refused = own(socket.as_fd(), bound(&socket), me()).unwrap_err();
        assert!(refused.contains("lets others share"), "{refused}");
    }
}

#[test]
fn shared_port_is_rejected_even_after_clearing_the_option() {
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
fn socket_of_the_other_ip_version_may_use_the_same_port() {
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
fn connected_socket_of_the_same_user_may_share_the_port() {
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
fn group_address_may_be_shared_by_sockets_of_one_user() {
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
