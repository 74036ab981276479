//! The kernel's UDP sockets, as an ordinary user: each test has sockets of its own, on loopback.

#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use socket2::{Domain, Socket, Type};
use std::net::UdpSocket;

/// The entry of a socket.
fn known(socket: &impl AsFd) -> Entry {
    let address = rustix::net::getsockname(socket).unwrap();
    let address = SocketAddr::try_from(address).unwrap();
    let file = rustix::fs::fstat(socket).unwrap();
    Entry {
        address: address.ip(),
        port: address.port(),
        uid: file.st_uid,
        inode: file.st_ino,
        is_connected: rustix::net::getpeername(socket).is_ok_and(|it| it.is_some()),
    }
}

/// A socket of either version of IP, at any address or at a given one, which others may share.
fn sharing(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

#[test]
fn sockets_of_a_port_are_found_among_many_sockets() {
    let (four, six) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
    // More sockets than one answer can list, and as many as fit besides those of other tests.
    let many: Vec<UdpSocket> = (0..600).map(|_| UdpSocket::bind((four, 0)).unwrap()).collect();
    let first = sharing((four, 0).into());
    let port = known(&first).port;
    let mut there: Vec<Socket> = (0..200).map(|_| sharing((four, port).into())).collect();
    let everywhere: SocketAddr = (Ipv6Addr::UNSPECIFIED, port).into();
    let mut takes_four = there.len() + 1;
    if UdpSocket::bind((six, 0)).is_ok() {
        there.push(sharing((six, port).into()));
        there.push(sharing(everywhere));
        takes_four += 1;
    }
    let connected = sharing((four, port).into());
    connected.connect(&SocketAddr::new(four, 9).into()).unwrap();
    there.push(connected);
    takes_four += 1;
    let by_inode = |mut all: Vec<Entry>| {
        all.sort_by_key(|entry| entry.inode);
        all
    };
    let expected = there.iter().chain([&first]).map(known).collect();
    let found = Sockets::at([port]).unwrap();
    assert_eq!(by_inode(found.0.clone()), by_inode(expected));
    assert_eq!(found.beside((four, port).into()).len(), takes_four);
    let other = known(&many[0]);
    assert_eq!(found.beside((four, other.port).into()), []);
    let both = Sockets::at([port, other.port]).unwrap();
    assert_eq!(both.beside((four, other.port).into()), [other]);
    assert_eq!(both.0.len(), found.0.len() + 1);
}

#[test]
fn netlink_errors_are_reported() {
    let message = |kind: u16, code: i32| {
        let header = [&20u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        [&header[..], &code.to_ne_bytes()].concat()
    };
    let told = |bytes: &[u8]| parse(bytes, &mut Vec::new()).map_err(|error| error.raw_os_error());
    assert_eq!(told(&message(NLMSG_DONE, 0)), Ok(true));
    assert_eq!(told(&message(NLMSG_DONE, -2)), Err(Some(2)));
    assert_eq!(told(&message(NLMSG_ERROR, -1)), Err(Some(1)));
    assert_eq!(told(&message(1, 0)), Ok(false));
    assert_eq!(told(&[message(1, 0), message(NLMSG_DONE, 0)].concat()), Ok(true));
    assert_eq!(told(&message(NLMSG_DONE, 0)[..19]), Err(None));
    assert_eq!(told(&[]), Ok(false));
}

proptest! {
    #[test]
    fn arbitrary_netlink_answers_never_panic_the_parser(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        length in 0u32..220,
        kind in 0u16..24,
    ) {
        let mut bytes = bytes;
        let header = [&length.to_ne_bytes()[..], &kind.to_ne_bytes()].concat();
        for (at, byte) in header.into_iter().enumerate().take(bytes.len()) {
            bytes[at] = byte;
        }
        let _ = parse(&bytes, &mut Vec::new());
    }
}
