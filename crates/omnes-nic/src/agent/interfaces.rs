//! Interfaces of this network namespace, by name, index and address.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

/// An interface of this network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// True if its packets never leave the host.
    pub is_loopback: bool,
    /// True if it has a single peer, and maybe no Ethernet header.
    pub is_point_to_point: bool,
    /// One of its addresses, other than those that are valid on its link only.
    pub address: IpAddr,
}

/// Interfaces that are up, once for each of their addresses except IPv6 addresses that are valid on
/// their link only: every interface has one of these.
///
/// # Errors
/// The kernel's error.
pub fn all() -> io::Result<Vec<Interface>> {
    let known = |it: if_addrs::Interface| {
        let address = it.ip();
        if matches!(address, IpAddr::V6(own) if own.is_unicast_link_local()) {
            return None;
        }
        let (is_loopback, is_point_to_point) = (it.is_loopback(), it.is_p2p());
        let (index, name) = (it.index?, it.name);
        Some(Interface { index, name, is_loopback, is_point_to_point, address })
    };
    Ok(if_addrs::get_if_addrs()?.into_iter().filter_map(known).collect())
}

/// Interfaces that a job may use: those with an Ethernet network and an address, each once,
/// ascending by index.
///
/// # Errors
/// The kernel's error.
pub fn usable() -> io::Result<Vec<Interface>> {
    let mut usable = all()?;
    usable.retain(Interface::is_usable);
    usable.sort_by_key(|interface| interface.index);
    usable.dedup_by_key(|interface| interface.index);
    Ok(usable)
}

/// Index and name of all interfaces, including those that are down or have no address, ascending by
/// index.
///
/// # Errors
/// The kernel's error.
pub fn names() -> io::Result<Vec<(u32, String)>> {
    // Two lines of headings, then `name: counters`; a name has neither space nor colon.
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let names = table.lines().skip(2).filter_map(|line| line.split_once(':'));
    let names = names.map(|(name, _)| name.trim().to_owned());
    let mut all: Vec<_> = names.filter_map(|name| Some((index_of(&name)?, name))).collect();
    all.sort();
    Ok(all)
}

/// The interface with an address.
///
/// # Errors
/// The kernel's error.
pub fn with_address(address: IpAddr) -> io::Result<Option<Interface>> {
    Ok(all()?.into_iter().find(|interface| interface.address == address))
}

impl Interface {
    /// True if the firmware can serve it: its frames begin with an Ethernet header.
    pub fn is_usable(&self) -> bool {
        !self.is_loopback
            && !self.is_point_to_point
            && link(&self.name).is_ok_and(Link::is_ethernet)
    }
}

/// An interface's properties on its link.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    /// An `ARPHRD_` of netdevice(7).
    kind: u16,
    /// MAC address, if it has one of six bytes.
    pub(crate) mac: [u8; 6],
}

impl Link {
    fn is_ethernet(self) -> bool {
        self.kind == libc::ARPHRD_ETHER
    }
}

/// The link of the interface with a name.
///
/// # Errors
/// The kernel's error.
pub(crate) fn link(name: &str) -> io::Result<Link> {
    let socket = super::channel::unix_socket(true)?;
    // SAFETY: plain data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    // SAFETY: the request names an interface, terminates its name, and has room for the answer.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled this part.
    let libc::sockaddr { sa_family: kind, sa_data, .. } = unsafe { request.ifr_ifru.ifru_hwaddr };
    Ok(Link { kind, mac: std::array::from_fn(|at| sa_data[at] as u8) })
}

/// Index of the interface with a name; `None` if no interface has it.
pub fn index_of(name: &str) -> Option<u32> {
    rustix::net::netdevice::name_to_index(any_socket()?, name).ok()
}

/// Name of the interface with an index; `None` if no interface has it.
pub fn name_of(index: u32) -> Option<String> {
    rustix::net::netdevice::index_to_name(any_socket()?, index).ok()
}

/// A socket of any kind, through which interfaces are queried.
fn any_socket() -> Option<std::os::fd::OwnedFd> {
    super::channel::unix_socket(true).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_is_found_and_not_usable() {
        let lo = with_address(Ipv4Addr::LOCALHOST.into()).unwrap().unwrap();
        assert!(lo.is_loopback && !lo.is_usable());
        let link = link(&lo.name).unwrap();
        assert_eq!((link.kind, link.mac), (libc::ARPHRD_LOOPBACK, [0; 6]));
        assert_eq!(index_of(&lo.name), Some(lo.index));
        assert!(names().unwrap().contains(&(lo.index, lo.name.clone())));
        assert_eq!(name_of(lo.index), Some(lo.name));
        assert!(usable().unwrap().iter().all(|interface| interface.index != lo.index));
    }

    #[test]
    fn unknown_interfaces_are_not_found() {
        assert_eq!(index_of("no-such-thing"), None);
        assert_eq!(name_of(u32::MAX / 2), None);
        assert!(link("no-such-thing").is_err() && link(&"x".repeat(99)).is_err());
        // TEST-NET-1 (RFC 5737).
        assert_eq!(with_address(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap(), None);
    }
}
