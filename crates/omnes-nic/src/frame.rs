//! The headers in front of Omnes's own: Ethernet, IP and UDP of a packet without data.

use omnes_firmware::slot::FRAME_BYTES_V6;
use omnes_wire::PACKET_OVERHEAD_BYTES;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const MAC_BYTES: usize = 6;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
const TTL: u8 = 64;

/// The headers of a step from `from` to `to`, which have the same version of IP, at the end of the
/// array; without MAC addresses, unless `to` is a group: then the destination follows from its
/// address, the source is `mac`, and the TTL is `group_ttl`.
pub(crate) fn step(
    from: SocketAddr,
    to: SocketAddr,
    mac: [u8; MAC_BYTES],
    group_ttl: u8,
) -> [u8; FRAME_BYTES_V6] {
    let mut room = [0; FRAME_BYTES_V6];
    let udp_bytes = (UDP_BYTES + PACKET_OVERHEAD_BYTES) as u16;
    let ttl = if to.ip().is_multicast() { group_ttl } else { TTL };
    let (ip, pseudo_sum) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (ipv4(from, to, ttl, udp_bytes), 0),
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            (ipv6(from, to, ttl, udp_bytes), pseudo_sum(from, to, udp_bytes))
        }
        _ => unreachable!("the plan has been checked"),
    };
    let udp = [from.port(), to.port(), udp_bytes, pseudo_sum].map(u16::to_be_bytes).concat();
    let start = FRAME_BYTES_V6 - 2 * MAC_BYTES - ip.len() - udp.len();
    let frame = &mut room[start..];
    if to.ip().is_multicast() {
        frame[..MAC_BYTES].copy_from_slice(&group_mac(to.ip()));
        frame[MAC_BYTES..2 * MAC_BYTES].copy_from_slice(&mac);
    }
    frame[2 * MAC_BYTES..].copy_from_slice(&[ip, udp].concat());
    room
}

/// The frame's type, and an IPv4 header.
fn ipv4(from: Ipv4Addr, to: Ipv4Addr, ttl: u8, udp_bytes: u16) -> Vec<u8> {
    const BYTES: u16 = 20;
    let mut ip = vec![0x45, 0];
    ip.extend((BYTES + udp_bytes).to_be_bytes());
    ip.extend([0, 0, 0x40, 0]); // Do not fragment.
    ip.extend([ttl, UDP, 0, 0]);
    ip.extend([from.octets(), to.octets()].concat());
    let sum = !sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[0x08, 0x00], &ip[..]].concat()
}

/// The frame's type, and an IPv6 header.
fn ipv6(from: Ipv6Addr, to: Ipv6Addr, ttl: u8, udp_bytes: u16) -> Vec<u8> {
    let mut ip = vec![0x86, 0xdd, 0x60, 0, 0, 0];
    ip.extend(udp_bytes.to_be_bytes());
    ip.extend([UDP, ttl]);
    ip.extend([from.octets(), to.octets()].concat());
    ip
}

/// The sum of what a UDP checksum over IPv6 covers besides the datagram (RFC 8200, section 8.1).
fn pseudo_sum(from: Ipv6Addr, to: Ipv6Addr, udp_bytes: u16) -> u16 {
    let rest = [udp_bytes, UDP.into()].map(u16::to_be_bytes).concat();
    sum(&[&from.octets()[..], &to.octets(), &rest].concat())
}

/// The MAC address of a multicast address (RFC 1112, section 6.4; RFC 2464, section 7).
fn group_mac(group: IpAddr) -> [u8; MAC_BYTES] {
    match group {
        IpAddr::V4(group) => {
            let [_, second, third, fourth] = group.octets();
            [0x01, 0x00, 0x5e, second & 0x7f, third, fourth]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

/// The one's complement sum of an even number of bytes, whose complement is the Internet checksum
/// (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ip_checksum_matches_a_known_example() {
        // The header of a well-known example, with its checksum b861 left out.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(!sum(&header), 0xb861);
        // The carry of the carry is added, too.
        assert_eq!(sum(&[0xff, 0xff, 0, 1, 0xff, 0xff]), 1);
    }

    #[test]
    fn multicast_frames_have_the_group_mac_and_ttl() {
        let cases: [(&str, &str, [u8; 6], usize, usize); 2] = [
            ("10.0.0.1:4000", "239.193.2.3:20000", [0x01, 0x00, 0x5e, 0x41, 2, 3], 20, 22),
            ("[fd00::1]:4000", "[ff15::4193:203]:20000", [0x33, 0x33, 0x41, 0x93, 2, 3], 0, 21),
        ];
        for (from, group, mac, start, ttl) in cases {
            let (from, group) = (from.parse().unwrap(), group.parse().unwrap());
            let frame = &step(from, group, [2, 0, 0, 0, 0, 9], 3)[start..];
            assert_eq!(frame[..6], mac);
            assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 9]);
            assert_eq!(frame[ttl], 3);
            let alone = step(from, from, [2; 6], 3);
            assert_eq!(alone[start + ttl], TTL);
            assert_eq!(alone[..start + 12], vec![0; start + 12], "to be found out");
        }
    }

    #[test]
    fn checksum_field_holds_the_pseudo_header_sum() {
        let (from, to) = ("[fd00::1]:1".parse().unwrap(), "[fd00::2]:2".parse().unwrap());
        let frame = step(from, to, [0; 6], 1);
        assert_eq!(frame[60..], (0xfd00u32 * 2 + 1 + 2 + 48 + 17 - 0xffff).to_be_bytes()[2..]);
        let (from, to) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        assert_eq!(step(from, to, [0; 6], 1)[60..], [0, 0], "steps over IPv4 have none");
    }
}
