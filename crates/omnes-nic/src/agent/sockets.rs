//! The UDP sockets of the calling thread's network namespace, as the kernel knows them, by port.
//!
//! Queried by `NETLINK_SOCK_DIAG` (sock_diag(7)), which any user may do. The kernel walks its
//! sockets once for each port and version of IP, and lists those of the port only, so a user with
//! tens of thousands of sockets costs the others about a millisecond. The tables in `/proc` are
//! walked again for each page of their text.
//!
//! Assumes a kernel with `CONFIG_INET_UDP_DIAG`; as a module (`udp_diag`) it is loaded on demand.

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, netlink, recv,
    send, socket_with,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// A socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) uid: u32,
    pub(super) inode: u64,
    pub(super) is_connected: bool,
}

impl Entry {
    /// True if packets to an address could reach this socket.
    pub(super) fn takes(&self, address: IpAddr) -> bool {
        let own = self.address.to_canonical();
        self.takes_version_of(address) && (own == address || own.is_unspecified())
    }

    /// True if packets of the same version of IP as those to `address` could reach this socket,
    /// whatever their address.
    fn takes_version_of(&self, address: IpAddr) -> bool {
        match self.address.to_canonical() {
            IpAddr::V4(_) => address.is_ipv4(),
            // A socket of any address may be for IPv6 only; that is not queried.
            IpAddr::V6(own) => address.is_ipv6() || own.is_unspecified(),
        }
    }
}

/// All UDP sockets at some ports.
pub(super) struct Sockets(Vec<Entry>);

impl Sockets {
    /// Queries the sockets at `ports`; each port once, because each takes a walk.
    ///
    /// # Errors
    /// The reason that is reported instead of lending a slot.
    pub(super) fn at(ports: impl IntoIterator<Item = u16>) -> Result<Self, String> {
        let failed = |error| format!("the kernel shows no UDP sockets (udp_diag): {error}");
        Self::ask(ports).map_err(failed)
    }

    fn ask(ports: impl IntoIterator<Item = u16>) -> io::Result<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let kernel = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
        // So that no other process can send to it.
        connect(&kernel, &netlink::SocketAddrNetlink::new(0, 0))?;
        let mut found = Vec::new();
        for port in ports {
            for family in [AddressFamily::INET, AddressFamily::INET6] {
                dump(kernel.as_fd(), family, port, &mut found)?;
            }
        }
        Ok(Self(found))
    }

    /// Sockets that receive packets of an address's version of IP at its port, at whichever
    /// address.
    pub(super) fn beside(&self, address: SocketAddr) -> Vec<Entry> {
        let is_beside =
            |entry: &&Entry| entry.port == address.port() && entry.takes_version_of(address.ip());
        self.0.iter().filter(is_beside).copied().collect()
    }
}

// Messages of netlink(7) and sock_diag(7).
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Maximum number of bytes in one answer of the kernel.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// A request for all sockets of a family at a port, connected or not.
fn request(family: AddressFamily, port: u16) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST_DUMP.to_ne_bytes());
    // struct inet_diag_req_v2: family, protocol, two bytes, states, ports, and no addresses.
    put(HEADER_BYTES, &[family.as_raw() as u8, ipproto::UDP.as_raw().get() as u8]);
    put(HEADER_BYTES + 4, &u32::MAX.to_ne_bytes());
    put(HEADER_BYTES + 8, &port.to_be_bytes());
    bytes
}

/// Adds all sockets of a family at a port.
fn dump(
    kernel: BorrowedFd<'_>,
    family: AddressFamily,
    port: u16,
    found: &mut Vec<Entry>,
) -> io::Result<()> {
    retry_on_intr(|| send(kernel, &request(family, port), SendFlags::empty()))?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    loop {
        let (bytes, _) = retry_on_intr(|| recv(kernel, &mut answer[..], RecvFlags::empty()))?;
        if parse(&answer[..bytes], found)? {
            return Ok(());
        }
    }
}

/// Adds the sockets that an answer lists; true if it is the last one.
fn parse(mut answer: &[u8], found: &mut Vec<Entry>) -> io::Result<bool> {
    while let Some(bytes) = number(answer, 0) {
        let kind = u16_at(answer, 4);
        let message = answer.get(HEADER_BYTES..bytes as usize).ok_or(io::ErrorKind::InvalidData)?;
        match kind.map(u16::from_ne_bytes) {
            Some(SOCK_DIAG_BY_FAMILY) => found.extend(entry(message)),
            // Both begin with 0 or a negative error.
            Some(NLMSG_ERROR | NLMSG_DONE) => {
                return match number(message, 0).map_or(0, u32::cast_signed) {
                    0 => Ok(true),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                };
            }
            _ => {}
        }
        // The next one begins at a multiple of four.
        answer = answer.get(bytes.next_multiple_of(4) as usize..).unwrap_or_default();
    }
    Ok(false)
}

/// A struct inet_diag_msg: family and three bytes, both ports, both addresses, interface and
/// cookie, three numbers that are not used here, user and inode.
fn entry(message: &[u8]) -> Option<Entry> {
    let address: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    let [first, second, third, fourth, ..] = address;
    let address = match AddressFamily::from_raw(u16::from(*message.first()?)) {
        AddressFamily::INET => Ipv4Addr::new(first, second, third, fourth).into(),
        AddressFamily::INET6 => Ipv6Addr::from(address).into(),
        _ => return None,
    };
    Some(Entry {
        address,
        port: u16::from_be_bytes(u16_at(message, 4)?),
        uid: number(message, 64)?,
        inode: number(message, 68)?.into(),
        is_connected: u16_at(message, 6)? != [0; 2],
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<[u8; 2]> {
    bytes.get(at..at + 2)?.try_into().ok()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "sockets_tests.rs"]
mod tests;
