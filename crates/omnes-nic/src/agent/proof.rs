//! Does a UDP port belong to a process? Proved by the socket that it hands over.
//!
//! A slot receives and answers packets to a port, so it may be lent only to the owner of the port.
//! A socket bound to the port is no proof: another's socket may share the port, and the socket may
//! be in another network namespace, where anybody can take any address, or belong to another user.
//! All three show among the kernel's UDP sockets ([`Sockets`]), which lists those of the agent's
//! own namespace with their ports, users and inodes. Options that allow sharing are rejected as
//! well; alone they prove nothing, because they can be set and reset. The same user's connected
//! socket may exist: it receives only what its one peer sends to it.
//!
//! The socket of a group is shared by nature, with other jobs of that group. It must be the
//! caller's, and so must all others at that port: a slot for another user's group could only be
//! used to disturb it.

use super::channel::Peer;
use super::sockets::{Entry, Sockets};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// True for a UDP socket, which closes without waiting.
pub(super) fn is_udp(socket: BorrowedFd<'_>) -> bool {
    let is_ip = |it| it == AddressFamily::INET || it == AddressFamily::INET6;
    sockopt::socket_domain(socket).is_ok_and(is_ip)
        && sockopt::socket_type(socket).is_ok_and(|it| it == SocketType::DGRAM)
        && sockopt::socket_protocol(socket).is_ok_and(|it| it == Some(ipproto::UDP))
}

/// True if the socket is bound to `address`. A process that has a duplicate of the socket can
/// unbind it, and bind it again to another port.
pub(super) fn is_bound_to(socket: BorrowedFd<'_>, address: SocketAddr) -> bool {
    let bound = rustix::net::getsockname(socket).map(SocketAddr::try_from);
    matches!(bound, Ok(Ok(bound)) if (bound.ip(), bound.port()) == (address.ip(), address.port()))
}

/// Checks that `socket` is bound to `address`, and that only `peer` has that port. `sockets` must
/// be queried after the socket has arrived.
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
    // The kernel may list a socket twice if other sockets change during the walk.
    let is_other =
        |entry: &Entry| entry.inode != inode && !entry.is_connected && entry.takes(address.ip());
    if there.iter().any(is_other) {
        return Err("another socket shares the socket's port");
    }
    of_one_user(&there, peer)
}

/// Checks that `socket` is bound to a group's `address`, and that no other user has the group here.
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
/// users have at two addresses would let one receive packets of the other.
fn of_one_user(sockets: &[Entry], peer: Peer) -> Result<(), &'static str> {
    if sockets.iter().any(|entry| entry.uid != peer.uid) {
        Err("another user has a socket with the same port")
    } else {
        Ok(())
    }
}

/// The checks that both have in common; returns the socket's inode.
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
