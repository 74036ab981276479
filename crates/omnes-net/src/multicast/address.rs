//! Destination of a job's multicast: the group's address and port, and the interface.
//!
//! All ranks must find the same group without asking each other, so it is derived from the job's
//! number, all 32 bits of which are in address and port. IPv4 addresses are from the range for use
//! inside one organisation [RFC 2365], IPv6 ones are transient and of site scope [RFC 4291]; both
//! end in bits of the job's number, which switches filter by.

use super::{MulticastConfig, NoMulticast};
use omnes_wire::JobId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first address of 239.192.0.0/14, and the bits of an address that may be chosen.
const BASE_V4: u32 = 0xefc0_0000;
const CHOICE_BITS_V4: u32 = 18;
/// The first segments of an IPv6 group, of which `omne` identifies the owner.
const PREFIX_V6: [u16; 6] = [0xff15, 0, 0, 0, 0x6f6d, 0x6e65];
/// Lowest port: with the other bits of the job's number, below those that Linux assigns
/// automatically, which a socket of another program may have on all addresses.
const PORT_MIN: u16 = 16_384;

const _: () = assert!(PORT_MIN as u32 + (u32::MAX >> CHOICE_BITS_V4) < 32_768);

/// The interface that multicast goes through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    /// Addresses of this host, on any interface.
    pub(super) host: Vec<IpAddr>,
}

/// The group of a job whose ranks have addresses of the same family as `own`.
pub(super) fn group(
    job: JobId,
    own: IpAddr,
    config: &MulticastConfig,
) -> Result<SocketAddr, NoMulticast> {
    let port = config.port.unwrap_or(PORT_MIN + (job.0 >> CHOICE_BITS_V4) as u16);
    let group = config.group.unwrap_or_else(|| derived(job, own));
    if !group.is_multicast() {
        return Err(NoMulticast::NotMulticast { group });
    }
    if group.is_ipv4() != own.is_ipv4() {
        return Err(NoMulticast::OtherFamily { group, own });
    }
    Ok(SocketAddr::new(group, port))
}

fn derived(job: JobId, own: IpAddr) -> IpAddr {
    match own {
        IpAddr::V4(_) => {
            let choice = job.0 & ((1 << CHOICE_BITS_V4) - 1);
            Ipv4Addr::from(BASE_V4 | choice).into()
        }
        IpAddr::V6(_) => {
            let [a, b, c, d, e, f] = PREFIX_V6;
            Ipv6Addr::new(a, b, c, d, e, f, (job.0 >> 16) as u16, job.0 as u16).into()
        }
    }
}

/// The interface that has the address `own`.
pub(super) fn interface_of(own: IpAddr) -> Result<Interface, NoMulticast> {
    let all = if_addrs::get_if_addrs().map_err(|source| NoMulticast::Interfaces { source })?;
    let host: Vec<IpAddr> = all.iter().map(if_addrs::Interface::ip).collect();
    // All of 127.0.0.0/8 is this host's, though only one address of it is listed.
    let has_own = |it: &&if_addrs::Interface| {
        it.ip() == own
            || own.is_loopback() && it.is_loopback() && it.ip().is_ipv4() == own.is_ipv4()
    };
    let found = all.iter().find(has_own).ok_or(NoMulticast::NoInterface { own })?;
    let index = found.index.ok_or(NoMulticast::NoInterface { own })?;
    Ok(Interface { name: found.name.clone(), index, host })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn derived_group(job: u32, own: &str) -> SocketAddr {
        group(JobId(job), own.parse().unwrap(), &MulticastConfig::default()).unwrap()
    }

    #[test]
    fn derived_groups_are_in_the_organisation_local_ranges() {
        for job in [0, 1, 0x3ffff, 0x40000, 0xdead_beef, u32::MAX] {
            let SocketAddr::V4(v4) = derived_group(job, "10.1.2.3") else { panic!() };
            let [first, second, ..] = v4.ip().octets();
            assert!(first == 239 && (192..=195).contains(&second), "{v4}");
            assert!((16_384..32_768).contains(&v4.port()), "{v4}");
            let SocketAddr::V6(v6) = derived_group(job, "fd00::1") else { panic!() };
            assert_eq!(v6.ip().segments()[0], 0xff15);
        }
        assert_eq!(derived_group(5, "10.0.0.1").to_string(), "239.192.0.5:16384");
        assert_eq!(derived_group(5, "::1").to_string(), "[ff15::6f6d:6e65:0:5]:16384");
    }

    #[test]
    fn jobs_that_differ_in_one_bit_have_different_groups() {
        for own in ["10.0.0.1", "::1"] {
            let jobs = (0..32).map(|bit| 1u32 << bit).chain([0]);
            let groups: BTreeSet<SocketAddr> = jobs.map(|job| derived_group(job, own)).collect();
            assert_eq!(groups.len(), 33);
        }
    }

    #[test]
    fn configured_group_must_be_multicast_and_of_the_same_ip_version() {
        let own = "10.0.0.1".parse().unwrap();
        let configured = |group: &str| MulticastConfig {
            group: Some(group.parse().unwrap()),
            port: Some(777),
            ..MulticastConfig::default()
        };
        let found = group(JobId(9), own, &configured("239.255.1.2")).unwrap();
        assert_eq!(found.to_string(), "239.255.1.2:777");
        let error = group(JobId(9), own, &configured("10.0.0.9")).unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.9 is not a multicast address");
        let error = group(JobId(9), own, &configured("ff15::1")).unwrap_err();
        assert!(error.to_string().contains("another IP version"), "{error}");
    }

    #[test]
    fn loopback_addresses_are_found_on_the_loopback_interface() {
        for own in ["127.0.0.1", "127.0.1.1"] {
            let interface = interface_of(own.parse().unwrap()).unwrap();
            assert!(interface.index > 0 && interface.host.contains(&"127.0.0.1".parse().unwrap()));
        }
        let error = interface_of("192.0.2.77".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "no interface has this rank's address 192.0.2.77");
    }
}
