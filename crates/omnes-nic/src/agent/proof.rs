//! Is a UDP port a process's own? Shown by the socket that it hands over.
//!
//! A slot takes in and answers packets to a port, so it may be lent only to the owner of the port.
//! That it is bound there is not enough: another's socket may share the port, the socket may be of
//! another network namespace, where anybody can take any address, or belong to another user. All
//! three are found among the kernel's UDP sockets ([`Sockets`]), which shows those of the agent's
//! own namespace with their ports, users and inodes. Options that allow sharing are refused as
//! well; by themselves they show nothing, for they can be set and taken back. A socket of the same
//! user that is connected may be there: it takes nothing but what its one peer sends to it.
//!
//! The socket of a group is shared by nature, with other jobs of that group. It must be the
//! caller's, and so must be all others at that port: a slot for another user's group could only be
//! used to disturb it.

use super::channel::Peer;
use super::sockets::{Entry, Sockets};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// True for a UDP socket, which is closed without waiting.
pub(super) fn is_udp(socket: BorrowedFd<'_>) -> bool {
    let is_ip = |it| it == AddressFamily::INET || it == AddressFamily::INET6;
    sockopt::socket_domain(socket).is_ok_and(is_ip)
        && sockopt::socket_type(socket).is_ok_and(|it| it == SocketType::DGRAM)
        && sockopt::socket_protocol(socket).is_ok_and(|it| it == Some(ipproto::UDP))
}

/// True if the socket is bound to `address`. Whoever has a duplicate of it can take that away, and
/// bind it again to another port.
pub(super) fn is_bound_to(socket: BorrowedFd<'_>, address: SocketAddr) -> bool {
    let bound = rustix::net::getsockname(socket).map(SocketAddr::try_from);
    matches!(bound, Ok(Ok(bound)) if (bound.ip(), bound.port()) == (address.ip(), address.port()))
}

/// Checks that `socket` is bound to `address`, and that nobody but `peer` has that port. `sockets`
/// are asked for after the socket has come.
///
/// # Errors
/// Why the slot is not lent, for people.
pub(super) fn own(
    socket: BorrowedFd<'_>,
    address: SocketAddr,
    peer: Peer,
    sockets: &Sockets,
) -> Result<(), &'static str> {
    let inode = check(socket, address, peer)?;
    let shares = sockopt::socket_reuseaddr(socket).unwrap_or(true)
        || sockopt::socket_reuseport(socket).unwrap_or(true);
    if shares {
        return Err("the socket lets others share its port");
    }
    let there = sockets.beside(address);
    if !there.iter().any(|entry| entry.inode == inode) {
        return Err("the socket is of another network namespace");
    }
    // The kernel may show a socket twice if others change while they are walked through.
    let is_other =
        |entry: &Entry| entry.inode != inode && !entry.is_connected && entry.takes(address.ip());
    if there.iter().any(is_other) {
        return Err("another socket shares the socket's port");
    }
    of_one_user(&there, peer)
}

/// Checks that `socket` is bound to a group's `address`, and that nobody else uses the group here.
///
/// # Errors
/// As [`own`].
pub(super) fn group(
    socket: BorrowedFd<'_>,
    address: SocketAddr,
    peer: Peer,
    sockets: &Sockets,
) -> Result<(), &'static str> {
    let inode = check(socket, address, peer)?;
    let there = sockets.beside(address);
    if !there.iter().any(|entry| entry.inode == inode) {
        return Err("the group's socket is of another network namespace");
    }
    of_one_user(&there, peer)
}

/// The firmware finds slots by version of IP and port, whatever the address, so a port that two
/// users have at two addresses would let one have packets of the other.
fn of_one_user(sockets: &[Entry], peer: Peer) -> Result<(), &'static str> {
    if sockets.iter().any(|entry| entry.uid != peer.uid) {
        Err("another user has a socket with the same port")
    } else {
        Ok(())
    }
}

/// What both have in common; the socket's inode.
fn check(socket: BorrowedFd<'_>, address: SocketAddr, peer: Peer) -> Result<u64, &'static str> {
    if !is_udp(socket) {
        return Err("the descriptor is not a UDP socket");
    }
    if !is_bound_to(socket, address) {
        return Err("the socket is not bound to the address of the plan");
    }
    let file = rustix::fs::fstat(socket).map_err(|_| "the socket cannot be looked at")?;
    if file.st_uid != peer.uid {
        return Err("the socket is another user's");
    }
    Ok(file.st_ino)
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
