//! Interface and group that a job's multicast would use; and whether a bridge of this machine is
//! likely to forget group members.
//!
//! The interface is the one with the address under which the other ranks see this one: that of
//! `OMNES_INTERFACE`, else that of the route to rank 0 if a launcher provides its address, else
//! that of the default route, else the first one except the loopback. Nothing is sent to find out.
//!
//! A bridge with IGMP snooping forwards multicast only to members, and forgets members that no
//! querier asks for reports [linux-datapath A.8]. Switches elsewhere cannot be examined from here;
//! Omnes reports its members to them every 100 s in any case.

use super::{Finding, read_number};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

/// An unassigned address (RFC 5737); the route to it is the default route.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// The discard port, to which nothing is sent.
const DISCARD: u16 = 9;
const INTERFACES: &str = "/sys/class/net";

/// Findings about a job's multicast; `variable` reads the environment.
pub fn findings(variable: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = vec![job(&variable)];
    findings.extend(bridges().iter().map(|bridge| bridge.finding()));
    findings
}

fn job(variable: &impl Fn(&str) -> Option<String>) -> Finding {
    let name = "multicast of a job";
    if variable("OMNES_MULTICAST").as_deref() == Some("off") {
        return Finding::limited(name, "off", "unset OMNES_MULTICAST: it is used where it works");
    }
    let wanted = variable("OMNES_INTERFACE").filter(|text| !text.is_empty());
    let own = match wanted {
        Some(text) => match wanted_address(&text) {
            Ok(own) => Some(own),
            Err(why) => {
                return Finding::missing(name, format!("OMNES_INTERFACE={text}"), &why);
            }
        },
        None => own_address(variable("OMNES_RENDEZVOUS").as_deref()).or_else(first_address),
    };
    let Some(own) = own else {
        let advice = "no interface is up but the loopback: jobs of one machine use lo";
        return Finding::limited(name, "no interface", advice);
    };
    let Some(interface) = interface_of(own) else {
        return Finding::missing(name, format!("no interface has {own}"), "see: ip address");
    };
    let group = variable("OMNES_MULTICAST_GROUP").filter(|text| !text.is_empty());
    let group = group.unwrap_or_else(|| usual_group(own).to_owned());
    let ttl = variable("OMNES_MULTICAST_TTL").unwrap_or_else(|| "1".to_owned());
    let value = format!("{group} via {interface} ({own}), TTL {ttl}");
    let advice = "whether it reaches the other hosts is probed at the start of each job; \
                  `omnes bench` prints the outcome";
    Finding { advice: advice.to_owned(), ..Finding::ok(name, value) }
}

/// Range from which a job's number selects the default group.
fn usual_group(own: IpAddr) -> &'static str {
    match own {
        IpAddr::V4(_) => "239.192.0.0/14",
        IpAddr::V6(_) => "ff15::6f6d:6e65:0:0/96",
    }
}

/// Address under which a job's other ranks see this host.
fn own_address(rendezvous: Option<&str>) -> Option<IpAddr> {
    let meeting = rendezvous.and_then(|text| text.to_socket_addrs().ok()?.next());
    let to = meeting.unwrap_or(SocketAddr::new(NOBODY, DISCARD));
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Only looks up the route; sends nothing.
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Address on this machine that `OMNES_INTERFACE` selects, or the reason why there is none.
fn wanted_address(text: &str) -> Result<IpAddr, String> {
    let wanted: omnes::Interface = text.parse().map_err(str::to_owned)?;
    let addresses = wanted.addresses().map_err(|error| error.to_string())?;
    addresses.first().copied().ok_or_else(|| "no address here fits".to_owned())
}

/// Address to use if there is no default route, as in an isolated cluster.
fn first_address() -> Option<IpAddr> {
    let all = if_addrs::get_if_addrs().ok()?;
    let mut up = all.iter().filter(|it| it.is_oper_up() && !it.is_loopback());
    let first = up.clone().find(|it| it.ip().is_ipv4());
    first.or_else(|| up.next()).map(if_addrs::Interface::ip)
}

fn interface_of(own: IpAddr) -> Option<String> {
    let all = if_addrs::get_if_addrs().ok()?;
    let is_own = |it: &if_addrs::Interface| it.ip() == own || own.is_loopback() && it.is_loopback();
    all.into_iter().find(is_own).map(|interface| interface.name)
}

/// A bridge of this machine.
struct Bridge {
    name: String,
    snoops: bool,
    asks: bool,
}

/// Bridges that the kernel shows; in another network namespace it may show those of others or none.
fn bridges() -> Vec<Bridge> {
    let entries = std::fs::read_dir(INTERFACES).into_iter().flatten().flatten();
    let mut bridges: Vec<Bridge> = entries.filter_map(|entry| bridge(&entry.path())).collect();
    bridges.sort_by(|one, other| one.name.cmp(&other.name));
    bridges
}

fn bridge(path: &Path) -> Option<Bridge> {
    let setting = |name: &str| read_number(path.join("bridge").join(name).to_str()?);
    let snoops = setting("multicast_snooping")? != 0;
    let asks = setting("multicast_querier").unwrap_or(0) != 0;
    Some(Bridge { name: path.file_name()?.to_str()?.to_owned(), snoops, asks })
}

impl Bridge {
    fn finding(&self) -> Finding {
        let name = format!("bridge {}", self.name);
        match (self.snoops, self.asks) {
            (false, _) => Finding::ok(name, "forwards multicast to all ports"),
            (true, true) => Finding::ok(name, "IGMP snooping, with a querier"),
            (true, false) => {
                let advice = format!(
                    "without a querier, members may be forgotten; Omnes reports its own every \
                     100 s: ip link set {} type bridge mcast_querier 1",
                    self.name
                );
                Finding::limited(name, "IGMP snooping, without a querier", &advice)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::doctor::Verdict;

    fn job_with(set: &[(&str, &str)]) -> Finding {
        job(&|name: &str| {
            set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn job_uses_the_interface_of_the_route_to_rank_0() {
        let finding = job_with(&[("OMNES_RENDEZVOUS", "127.0.0.1:4000")]);
        assert_eq!(finding.value, "239.192.0.0/14 via lo (127.0.0.1), TTL 1");
        let named = [("OMNES_MULTICAST_GROUP", "239.1.1.1:5"), ("OMNES_MULTICAST_TTL", "3")];
        let finding = job_with(&[&[("OMNES_RENDEZVOUS", "127.0.0.1:1")][..], &named].concat());
        assert_eq!(finding.value, "239.1.1.1:5 via lo (127.0.0.1), TTL 3");
        assert_eq!(job_with(&[("OMNES_MULTICAST", "off")]).value, "off");
    }

    #[test]
    fn requested_interface_takes_precedence() {
        let own = ("OMNES_INTERFACE", "127.0.0.0/8");
        let finding = job_with(&[("OMNES_RENDEZVOUS", "192.0.2.1:4000"), own]);
        assert_eq!(finding.value, "239.192.0.0/14 via lo (127.0.0.1), TTL 1");
        let none = job_with(&[("OMNES_INTERFACE", "nosuch0")]);
        assert_eq!((none.verdict, &*none.value), (Verdict::Missing, "OMNES_INTERFACE=nosuch0"));
        assert!(none.advice.contains("no address here fits"), "{}", none.advice);
    }

    #[test]
    fn only_a_snooping_bridge_without_a_querier_is_reported() {
        let verdict =
            |snoops, asks| Bridge { name: "br0".to_owned(), snoops, asks }.finding().verdict;
        assert_eq!(verdict(true, false), Verdict::Limited);
        assert_eq!(verdict(true, true), Verdict::Ok);
        assert_eq!(verdict(false, false), Verdict::Ok);
    }
}
