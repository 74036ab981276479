//! Where the ranks of a new job meet: an address of rank 0 that all others reach, and a free port.
//!
//! | ranks | address |
//! |---|---|
//! | `OMNES_RENDEZVOUS` names a host | that one |
//! | on one node | the loopback interface's |
//! | each with an address in a network of rank 0's | rank 0's in the first such network |
//! | else | rank 0's first: there may be routers between |
//!
//! IPv4 is preferred, because its packets have the shorter header. An address that several nodes
//! have does not count, for instance that of a bridge which each of them has for its own
//! containers.

use crate::bcast::tune::masked;
use crate::error::Error;
use if_addrs::IfAddr;
use omnes_net::NetError;
use omnes_net::ring::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

/// Maximum number of addresses that a rank reports; as many as fit a row.
const ADDRESSES_MAX: usize = 12;

/// Which of a host's addresses may be used. Text form: an interface's name, `eth0`, or a network,
/// `10.0.0.0/24`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Interface {
    /// The addresses of this interface.
    Named(String),
    /// The addresses in this network, given by an address and the length of its prefix in bits.
    Network(IpAddr, u8),
}

impl FromStr for Interface {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "must be the name of an interface, such as eth0, or a network, such as 10.0.0.0/24";
        if let Some((address, length)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| WRONG)?;
            let length = length.parse().map_err(|_| WRONG)?;
            let limit = if address.is_ipv4() { 32 } else { 128 };
            return if length <= limit { Ok(Self::Network(address, length)) } else { Err(WRONG) };
        }
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self::Network(address, if address.is_ipv4() { 32 } else { 128 })),
            Err(_) if text.is_empty() || text.contains(char::is_whitespace) => Err(WRONG),
            Err(_) => Ok(Self::Named(text.to_owned())),
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Network(address, length) => write!(f, "{address}/{length}"),
        }
    }
}

impl Interface {
    /// This host's addresses that may be used, IPv4 first.
    ///
    /// # Errors
    /// [`Error::InvalidVariable`], which lists the existing addresses, if none may be used.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, Error> {
        let here = Whereabouts::here(Some(self))?;
        Ok(here.addresses.into_iter().map(|own| own.address).collect())
    }

    /// True if ranks may meet at `address` of the interface `name`.
    pub fn admits(&self, name: &str, address: IpAddr) -> bool {
        match self {
            // A second address may have a label of its own, such as eth0:1.
            Self::Named(wanted) => name.split(':').next() == Some(wanted) || name == wanted,
            Self::Network(network, length) => {
                Address { address: *network, length: *length }.is_near(address)
            }
        }
    }
}

/// An address of a rank, with the length of its network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Address {
    address: IpAddr,
    length: u8,
}

impl Address {
    /// True if `other` is in this one's network.
    fn is_near(self, other: IpAddr) -> bool {
        let network = masked(self.address, self.length);
        self.address.is_ipv4() == other.is_ipv4() && masked(other, self.length) == network
    }
}

/// Report of a rank on where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Whereabouts {
    node: Option<NodeId>,
    addresses: Vec<Address>,
    /// True if the user has limited the addresses.
    is_limited: bool,
}

impl Whereabouts {
    /// The location of this process, with the addresses that the user permits.
    pub(super) fn here(limit: Option<&Interface>) -> Result<Self, Error> {
        let system = |source| NetError::System { what: "list of network interfaces", source };
        let all = if_addrs::get_if_addrs().map_err(system)?;
        let usable = all.iter().filter(|it| it.is_oper_up());
        let mut named: Vec<(&str, Address)> = usable
            .map(|it| {
                let length = match &it.addr {
                    IfAddr::V4(v4) => v4.prefixlen,
                    IfAddr::V6(v6) => v6.prefixlen,
                };
                (it.name.as_str(), Address { address: it.ip(), length })
            })
            // Link-local addresses are meaningless without the name of the link.
            .filter(|(_, own)| !matches!(own.address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
            .collect();
        named.sort_by_key(|(_, own)| own.address.is_ipv6());
        let fits = |(name, own): &&(&str, Address)| {
            limit.is_none_or(|limit| limit.admits(name, own.address))
        };
        let addresses = named.iter().filter(fits).map(|(_, own)| *own).take(ADDRESSES_MAX);
        let addresses: Vec<Address> = addresses.collect();
        match limit {
            Some(limit) if addresses.is_empty() => Err(no_matching_address(limit, &named)),
            _ => Ok(Self { node: NodeId::this(), addresses, is_limited: limit.is_some() }),
        }
    }

    /// Addresses at which other nodes may reach this one.
    fn outward(&self) -> impl Iterator<Item = Address> {
        self.addresses.iter().copied().filter(|own| !own.address.is_loopback())
    }

    /// True if this rank, of the same node or another, is in the network of rank 0's `address`.
    fn is_near(&self, first: &Self, address: Address) -> bool {
        let own = || self.outward().map(|own| own.address);
        if is_one_node([first, self]) {
            own().any(|own| own == address.address)
        } else {
            own().any(|own| own != address.address && address.is_near(own))
        }
    }
}

fn no_matching_address(limit: &Interface, named: &[(&str, Address)]) -> Error {
    let show = |(name, own): &(&str, Address)| format!("{name} {}/{}", own.address, own.length);
    let there: Vec<String> = named.iter().map(show).collect();
    let reason = format!("no address here fits; there are {}", there.join(", "));
    Error::InvalidVariable { name: "OMNES_INTERFACE".to_owned(), value: limit.to_string(), reason }
}

/// True if all of these are on one node.
pub(super) fn is_one_node<'a>(all: impl IntoIterator<Item = &'a Whereabouts>) -> bool {
    let mut nodes = all.into_iter().map(|one| one.node);
    let first = nodes.next().flatten();
    first.is_some() && nodes.all(|node| node == first)
}

/// The address of rank 0 at which to meet, given the location of each rank; the same on all ranks,
/// as is the error.
pub(super) fn choose(all: &[Whereabouts]) -> Result<IpAddr, Error> {
    let lacks = |rank, reason: &str| Error::Exchange { rank, reason: reason.to_owned() };
    let first = all.first().ok_or_else(|| lacks(0, "there are no ranks"))?;
    if is_one_node(all) {
        let local = first.addresses.iter().find(|own| own.address.is_loopback());
        let local = local.filter(|_| !first.is_limited).or(first.addresses.first());
        return local.map(|own| own.address).ok_or_else(|| lacks(0, "it has no network address"));
    }
    if let Some((rank, one)) = (0..).zip(all).find(|(_, one)| one.outward().next().is_none()) {
        return Err(lacks(
            rank,
            if one.is_limited {
                "OMNES_INTERFACE leaves it no address under which other nodes reach it"
            } else {
                "it has no network address under which other nodes could reach it"
            },
        ));
    }
    let common = first.outward().find(|own| all[1..].iter().all(|one| one.is_near(first, *own)));
    let chosen = common.or_else(|| first.outward().next());
    chosen.map(|own| own.address).ok_or_else(|| lacks(0, "it has no network address"))
}

/// Listens, at rank 0, at a free port of `chosen`.
pub(super) fn listen_at(chosen: IpAddr) -> Result<TcpListener, Error> {
    let address = chosen.to_string();
    TcpListener::bind((chosen, 0)).map_err(|source| NetError::Listen { address, source }.into())
}

/// Listens, at rank 0, at the address that the user has set: at `host:port`, or at a free port if
/// the port is 0 or missing.
pub(super) fn listen_as_told(wanted: &str, is_one_node: bool) -> Result<TcpListener, Error> {
    let refuse = |reason: &str| Error::InvalidVariable {
        name: "OMNES_RENDEZVOUS".to_owned(),
        value: wanted.to_owned(),
        reason: reason.to_owned(),
    };
    let (host, port) = split_port(wanted).ok_or_else(|| refuse("give host or host:port"))?;
    let resolve = |source| NetError::Resolve { address: wanted.to_owned(), source };
    let mut resolved = (host, port).to_socket_addrs().map_err(resolve)?;
    let address = resolved.next().ok_or_else(|| resolve(std::io::ErrorKind::NotFound.into()))?;
    if address.ip().is_unspecified() {
        return Err(refuse("it must be one address of rank 0's host"));
    }
    if address.ip().is_loopback() && !is_one_node {
        return Err(refuse("it is a loopback address, and the ranks are on several nodes"));
    }
    let listen = |source| NetError::Listen { address: wanted.to_owned(), source };
    Ok(TcpListener::bind(address).map_err(listen)?)
}

/// Host and port of `host:port`, `host`, `10.0.0.1`, `[fd00::1]:5000` or `fd00::1`; the port is 0
/// if it is missing.
fn split_port(text: &str) -> Option<(&str, u16)> {
    if text.parse::<IpAddr>().is_ok() {
        return Some((text, 0));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, 0),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A rank on this node, or on an unknown one, with these addresses.
    fn rank(is_here: bool, addresses: &[&str]) -> Whereabouts {
        let address = |text: &&str| {
            let (address, length) = text.split_once('/').unwrap();
            Address { address: address.parse().unwrap(), length: length.parse().unwrap() }
        };
        Whereabouts {
            node: NodeId::this().filter(|_| is_here),
            addresses: addresses.iter().map(address).collect(),
            is_limited: false,
        }
    }

    fn chosen(all: &[Whereabouts]) -> String {
        choose(all).map_or_else(|error| error.to_string(), |address| address.to_string())
    }

    #[test]
    fn ranks_of_one_node_meet_over_loopback_unless_configured_otherwise() {
        let mut all = [rank(true, &["10.0.0.1/24", "127.0.0.1/8"]), rank(true, &["10.0.0.1/24"])];
        assert_eq!(chosen(&all), "127.0.0.1");
        all[0].is_limited = true;
        assert_eq!(chosen(&all), "10.0.0.1");
        assert_eq!(chosen(&[rank(true, &["10.0.0.1/24"]), rank(true, &[])]), "10.0.0.1");
        assert_eq!(chosen(&[rank(true, &[])]), "rank 0: it has no network address");
    }

    #[test]
    fn nodes_meet_in_the_first_network_common_to_all() {
        let zero = || rank(false, &["127.0.0.1/8", "10.1.0.1/24", "10.2.0.1/16", "10.3.0.1/24"]);
        let near = rank(false, &["127.0.0.1/8", "10.2.9.9/16", "10.3.0.2/24"]);
        let nearer = rank(false, &["10.3.0.3/24", "10.1.0.3/24", "10.2.0.3/24"]);
        assert_eq!(chosen(&[zero(), near.clone(), nearer.clone()]), "10.2.0.1");
        assert_eq!(chosen(&[zero(), nearer]), "10.1.0.1");
        // Possibly through a router.
        assert_eq!(chosen(&[zero(), near, rank(false, &["192.168.0.1/24"])]), "10.1.0.1");
    }

    #[test]
    fn address_shared_with_other_nodes_is_not_chosen() {
        let bridge = "172.17.0.1/16";
        let all = [rank(false, &[bridge, "10.0.0.1/24"]), rank(false, &[bridge, "10.0.0.2/24"])];
        assert_eq!(chosen(&all), "10.0.0.1");
        // Ranks on rank 0's node have the same addresses.
        let here = || rank(true, &[bridge, "10.0.0.1/24"]);
        assert_eq!(chosen(&[here(), here(), all[1].clone()]), "10.0.0.1");
    }

    #[test]
    fn unreachable_rank_is_named() {
        let all = [rank(false, &["10.0.0.1/24"]), rank(false, &["127.0.0.1/8"])];
        assert!(chosen(&all).starts_with("rank 1: it has no network address under which"));
        let mut all = [all[1].clone(), all[0].clone()];
        all[0].is_limited = true;
        assert!(chosen(&all).starts_with("rank 0: OMNES_INTERFACE leaves it no address"));
    }

    #[test]
    fn addresses_are_compared_only_within_their_ip_version() {
        let all = [rank(false, &["fd00::1/64", "0.0.0.1/0"]), rank(false, &["fd00::2/64"])];
        assert_eq!(chosen(&all), "fd00::1");
    }

    #[test]
    fn interfaces_are_parsed_and_matched_by_name_and_by_network() {
        for text in ["eth0", "10.0.0.0/24", "fd00::/64"] {
            assert_eq!(text.parse::<Interface>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.7".parse::<Interface>().unwrap().to_string(), "10.0.0.7/32");
        for text in ["", "eth 0", "10.0.0.0/33", "fd00::/129", "eth0/24", "10.0.0.0/"] {
            assert!(text.parse::<Interface>().is_err(), "{text}");
        }
        let own: IpAddr = "10.0.0.1".parse().unwrap();
        let has = |text: &str, name| text.parse::<Interface>().unwrap().admits(name, own);
        assert!(has("eth0", "eth0") && has("eth0", "eth0:1") && has("eth0:1", "eth0:1"));
        assert!(!has("eth0:1", "eth0") && !has("eth", "eth0"));
        for text in ["10.0.0.0/8", "0.0.0.0/0", "10.0.0.1", "10.0.0.0/31"] {
            assert!(has(text, "any"), "{text}");
        }
        for text in ["10.0.1.0/24", "::/0", "10.0.0.2", "10.0.0.2/31"] {
            assert!(!has(text, "any"), "{text}");
        }
        let v6 = |text: &str| {
            text.parse::<Interface>().unwrap().admits("any", "fd00::5".parse().unwrap())
        };
        assert!(v6("fd00::/64") && v6("fd00::5") && !v6("fd01::/64") && !v6("0.0.0.0/0"));
    }

    #[test]
    fn loopback_can_be_selected_and_an_unmatched_interface_is_named() {
        let lo = Whereabouts::here(Some(&"127.0.0.0/8".parse().unwrap())).unwrap();
        assert_eq!(chosen(&[lo.clone(), lo]), "127.0.0.1");
        let error = Whereabouts::here(Some(&"nosuch0".parse().unwrap())).unwrap_err().to_string();
        assert!(error.starts_with("OMNES_INTERFACE=nosuch0: no address here fits; "), "{error}");
        assert!(error.contains("lo 127.0.0.1/8"), "{error}");
    }

    #[test]
    fn hosts_are_parsed_with_and_without_a_port() {
        assert_eq!(split_port("host:5000"), Some(("host", 5000)));
        assert_eq!(split_port("host:0"), Some(("host", 0)));
        assert_eq!(split_port("host"), Some(("host", 0)));
        assert_eq!(split_port("10.0.0.1"), Some(("10.0.0.1", 0)));
        assert_eq!(split_port("fd00::1"), Some(("fd00::1", 0)));
        assert_eq!(split_port("[fd00::1]:7"), Some(("fd00::1", 7)));
        assert_eq!(split_port("[fd00::1]"), Some(("fd00::1", 0)));
        for wrong in [":7", "host:x", "host:", "host:70000", "[]:1"] {
            assert_eq!(split_port(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rank_0_listens_at_the_configured_address_or_reports_the_reason() {
        let told = |text| listen_as_told(text, true).map(|it| it.local_addr().unwrap());
        let drawn = told("127.0.0.1").unwrap();
        assert!(drawn.ip().is_loopback() && drawn.port() != 0);
        assert_ne!(told("127.0.0.1:0").unwrap().port(), 0);
        let error = |text, is_one_node| listen_as_told(text, is_one_node).unwrap_err().to_string();
        assert!(error("0.0.0.0:4000", true).contains("OMNES_RENDEZVOUS=0.0.0.0:4000: it must be"));
        assert!(error("127.0.0.1", false).contains("it is a loopback address"));
        assert!(error("192.0.2.77", true).starts_with("rank 0 cannot listen at '192.0.2.77': "));
        assert!(error("host:x", true).contains("give host or host:port"));
    }
}
