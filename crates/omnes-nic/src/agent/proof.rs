//! Is a UDP port a process's own? Shown by the socket that it hands over.
//!
//! A slot takes in and answers packets to a port, so it may be lent only to the owner of the port.
//! That it is bound there is not enough: another's socket may share the port, the socket may be of
//! another network namespace, where anybody can take any address, or belong to another user. All
//! three are found in the kernel's table of UDP sockets, which shows those of the agent's own
//! namespace with their ports, users and inodes. Options that allow sharing are refused as well; by
//! themselves they show nothing, for they can be set and taken back. A socket of the same user that
//! is connected may be there: it takes nothing but what its one peer sends to it.
//!
//! The socket of a group is shared by nature, with other jobs of that group. It must be the
//! caller's, and so must be all others at that port: a slot for another user's group could only be
//! used to disturb it.

use super::channel::Peer;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Tables of the UDP sockets in the calling thread's network namespace.
const TABLES: [&str; 2] = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];

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
/// is read after the socket has come.
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
    // The table may show a socket twice if others change while it is read.
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
        return Err("the descriptor is no UDP socket");
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

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    address: IpAddr,
    port: u16,
    uid: u32,
    inode: u64,
    is_connected: bool,
}

impl Entry {
    /// True if packets to an address could come to it.
    fn takes(&self, address: IpAddr) -> bool {
        let own = self.address.to_canonical();
        self.takes_version_of(address) && (own == address || own.is_unspecified())
    }

    /// True if packets of the same version of IP as those to `address` could come to it, whatever
    /// their address.
    fn takes_version_of(&self, address: IpAddr) -> bool {
        match self.address.to_canonical() {
            IpAddr::V4(_) => address.is_ipv4(),
            // One of any address may be for IPv6 only; the table does not tell.
            IpAddr::V6(own) => address.is_ipv6() || own.is_unspecified(),
        }
    }
}

/// All UDP sockets, as the kernel shows them. Reading them takes as long as there are many, whoever
/// has them: once per request.
pub(super) struct Sockets(BTreeMap<u16, Vec<Entry>>);

impl Sockets {
    /// Reads the tables.
    ///
    /// # Errors
    /// What is told instead of lending a slot.
    pub(super) fn read() -> Result<Self, &'static str> {
        Self::read_tables().map_err(|_| "the kernel shows no UDP sockets")
    }

    fn read_tables() -> io::Result<Self> {
        let mut found: BTreeMap<u16, Vec<Entry>> = BTreeMap::new();
        for table in TABLES {
            let file = match File::open(table) {
                Ok(file) => file,
                // A kernel without IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => {
                    break;
                }
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).lines().skip(1) {
                if let Some(entry) = parse(&line?) {
                    found.entry(entry.port).or_default().push(entry);
                }
            }
        }
        Ok(Self(found))
    }

    /// Those that take packets of an address's version of IP to its port, at whichever address.
    fn beside(&self, address: SocketAddr) -> Vec<Entry> {
        let there = self.0.get(&address.port()).map_or(&[][..], Vec::as_slice);
        there.iter().filter(|entry| entry.takes_version_of(address.ip())).copied().collect()
    }
}

/// A row's fields: number, address:port, peer, state, queues, timer, retransmits, user, timeout,
/// inode, and what is of no interest here (proc_net_udp(5)).
fn parse(line: &str) -> Option<Entry> {
    let mut fields = line.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let (_, peer_port) = fields.next()?.split_once(':')?;
    let is_connected = u16::from_str_radix(peer_port, 16).ok()? != 0;
    let uid = fields.nth(4)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(Entry { address: parse_address(address)?, port, uid, inode, is_connected })
}

/// An address as the kernel writes it: words in its own byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(8 * at..8 * at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (at, bytes) in octets.chunks_exact_mut(4).enumerate() {
                bytes.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
