//! The headers below Omnes's own: Ethernet, IPv4 and UDP of a packet without data.

use omnes_firmware::slot::FRAME_BYTES;
use omnes_wire::PACKET_OVERHEAD_BYTES;
use std::net::{Ipv4Addr, SocketAddrV4};

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const TTL: u8 = 64;
/// Packets to the group stay on this network.
const TTL_GROUP: u8 = 1;

/// The headers of a step from `from` to `to`; without MAC addresses, unless `to` is a group, whose
/// address follows, and which `mac` sends to.
pub(crate) fn step(from: SocketAddrV4, to: SocketAddrV4, mac: [u8; 6]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    if to.ip().is_multicast() {
        frame[..6].copy_from_slice(&group_mac(*to.ip()));
        frame[6..12].copy_from_slice(&mac);
    }
    frame[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
    let udp_bytes = UDP_BYTES + PACKET_OVERHEAD_BYTES;
    let ip = &mut frame[14..14 + IP_BYTES];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((IP_BYTES + udp_bytes) as u16).to_be_bytes());
    ip[6] = 0x40; // Do not fragment.
    ip[8] = if to.ip().is_multicast() { TTL_GROUP } else { TTL };
    ip[9] = 17;
    ip[12..16].copy_from_slice(&from.ip().octets());
    ip[16..20].copy_from_slice(&to.ip().octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = &mut frame[14 + IP_BYTES..];
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&(udp_bytes as u16).to_be_bytes());
    frame
}

/// The MAC address of a multicast address (RFC 1112, section 6.4).
fn group_mac(group: Ipv4Addr) -> [u8; 6] {
    let [_, second, third, fourth] = group.octets();
    [0x01, 0x00, 0x5e, second & 0x7f, third, fourth]
}

/// The Internet checksum (RFC 1071) of a header whose checksum is 0.
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_the_rfc() {
        // The header of a well-known example, with its checksum b861 left out.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }

    #[test]
    fn groups_have_their_mac_and_stay_near() {
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4000);
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 193, 2, 3), 20000);
        let frame = step(from, group, [2, 0, 0, 0, 0, 9]);
        assert_eq!(frame[..6], [0x01, 0x00, 0x5e, 0x41, 2, 3]);
        assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 9]);
        assert_eq!(frame[22], TTL_GROUP);
        assert_eq!(step(from, from, [2; 6])[..12], [0; 12], "to be found out");
    }
}
