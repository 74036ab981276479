//! Packets as they are on the wire, from the Ethernet header on.

use super::IS_V6;
use omnes_firmware::barrier::Contribution;
use omnes_wire::{
    COMBINE_SHIFT, CommunicatorId, Flags, Header, JobId, JobKey, Kind, PACKET_OVERHEAD_BYTES, Rank,
    Seq, Words,
};
use std::net::{IpAddr, SocketAddr};

/// The job of all tests.
pub const JOB: u32 = 0x7a7a_0001;
/// The job's communicator.
pub const COMMUNICATOR: u32 = 0x0001_0005;
/// Length of the Ethernet, IP and UDP headers.
pub const FRAME_BYTES: usize = if IS_V6 { 62 } else { 42 };
/// Offsets in a frame.
pub const UDP: usize = FRAME_BYTES - 8;
pub const UDP_CHECK: std::ops::Range<usize> = UDP + 6..UDP + 8;
pub const TTL: usize = if IS_V6 { 21 } else { 22 };
pub const PROTOCOL: usize = if IS_V6 { 20 } else { 23 };
const ADDRESS_BYTES: usize = if IS_V6 { 16 } else { 4 };
pub const TO: usize = UDP - ADDRESS_BYTES;
pub const FROM: usize = TO - ADDRESS_BYTES;
/// The version of IP in the Ethernet header.
pub const ETHER_TYPE: [u8; 2] = if IS_V6 { [0x86, 0xdd] } else { [0x08, 0x00] };

/// The job's key.
pub fn job_key() -> JobKey {
    JobKey::new(*b"0123456789abcdef")
}

/// A header of the tests' job without flags.
pub fn header(kind: Kind, source: u32, seq: u32, argument: u32) -> Header {
    Header {
        job: JobId(JOB),
        communicator: CommunicatorId(COMMUNICATOR),
        seq: Seq(seq),
        argument,
        ..Header::blank(kind, Rank(source))
    }
}

/// Header, tag for `to` and body; the tag also covers the first `control` bytes of the body.
pub fn tagged(header: &Header, to: Rank, body: &[u8], control: usize) -> Vec<u8> {
    let bytes = header.emit();
    let tag = job_key().sender(header.source).tag(&bytes, to, &body[..control]);
    [&bytes[..], &tag.0.to_be_bytes(), body].concat()
}

/// A step of a barrier from one rank to another.
pub fn step(from: u32, to: u32, epoch: u32, step: u32) -> Vec<u8> {
    tagged(&header(Kind::Step, from, epoch, step), Rank(to), &[], 0)
}

/// As [`step`], to all.
pub fn step_to_all(from: u32, epoch: u32, step: u32) -> Vec<u8> {
    step_with(from, Rank::ALL, epoch, step, Words::NONE)
}

/// As [`step`], or to all, with words.
pub fn step_with(from: u32, to: Rank, epoch: u32, step: u32, words: Words) -> Vec<u8> {
    let flags = Flags::NONE.with_if(Flags::GROUP, to == Rank::ALL);
    let header = Header { flags, ..header(Kind::Step, from, epoch, step) };
    let behind: Vec<u8> = words.behind().iter().flat_map(|word| word.to_be_bytes()).collect();
    tagged(&words.on(header), to, &behind, behind.len())
}

/// The packet by which a host enters a barrier whose first step is `step`; `to` stands for all
/// members if that step goes to all.
pub fn doorbell(from: u32, to: Rank, epoch: u32, step: u32, own: Contribution) -> Vec<u8> {
    step_with(from, to, epoch, step | own.combine() << COMBINE_SHIFT, own.words())
}

/// A request for a step that `to` owes.
pub fn nack(from: u32, to: u32, epoch: u32, step: u32) -> Vec<u8> {
    tagged(&header(Kind::StepNack, from, epoch, step), Rank(to), &[], 0)
}

/// A packet of a broadcast; if it is a message's first, `body` begins with the envelope.
pub fn cast(from: u32, seq: u32, is_first: bool, body: &[u8]) -> Vec<u8> {
    let flags = Flags::GROUP.with_if(Flags::FIRST, is_first);
    let header = Header { flags, ..header(Kind::Cast, from, seq, 0) };
    tagged(&header, Rank::ALL, body, if is_first { omnes_wire::ENVELOPE_BYTES } else { 0 })
}

/// Source and destination of a frame.
#[derive(Clone, Copy)]
pub struct Way {
    pub mac_from: [u8; 6],
    pub mac_to: [u8; 6],
    pub from: SocketAddr,
    pub to: SocketAddr,
}

/// A frame with correct checksums.
pub fn frame(way: Way, payload: &[u8]) -> Vec<u8> {
    let udp_bytes = 8 + payload.len() as u16;
    let mut bytes = [&way.mac_to[..], &way.mac_from, &ETHER_TYPE].concat();
    if IS_V6 {
        // Traffic class and flow label may have any value.
        bytes.extend([0x62, 0x34, 0x56, 0x78]);
        bytes.extend(udp_bytes.to_be_bytes());
        bytes.extend([17, 9]);
    } else {
        bytes.extend([0x45, 0]);
        bytes.extend((20 + udp_bytes).to_be_bytes());
        bytes.extend([0, 7, 0x40, 0, 9, 17, 0, 0]);
    }
    for address in [way.from.ip(), way.to.ip()] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    if !IS_V6 {
        let check = fold(sum(&bytes[14..34]));
        bytes[24..26].copy_from_slice(&(!check).to_be_bytes());
    }
    for word in [way.from.port(), way.to.port(), udp_bytes, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    let check = !udp_sum(&bytes);
    let check = if check == 0 { 0xffff } else { check };
    bytes[UDP_CHECK].copy_from_slice(&check.to_be_bytes());
    bytes
}

fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sum of what a UDP checksum covers, including the checksum: 0xffff if it is right.
pub fn udp_sum(frame: &[u8]) -> u16 {
    fold(u32::from(pseudo_sum(frame)) + sum(&frame[UDP..]))
}

/// Sum of an IPv4 header: 0xffff if its checksum is right. IPv6 has no header checksum.
pub fn ip_sum(frame: &[u8]) -> u16 {
    if IS_V6 { 0xffff } else { fold(sum(&frame[14..34])) }
}

/// Uncomplemented sum of the pseudo header: the value in place of the checksum while the rest is
/// still to be summed.
pub fn pseudo_sum(frame: &[u8]) -> u16 {
    fold(sum(&frame[FROM..UDP]) + 17 + sum(&frame[UDP + 4..UDP + 6]))
}

/// The destination of a frame: address and UDP port.
pub fn to(frame: &[u8]) -> SocketAddr {
    socket_at(frame, TO, UDP + 2)
}

/// The source of a frame, likewise.
pub fn from(frame: &[u8]) -> SocketAddr {
    socket_at(frame, FROM, UDP)
}

fn socket_at(frame: &[u8], address: usize, port: usize) -> SocketAddr {
    let octets = &frame[address..address + ADDRESS_BYTES];
    let address: IpAddr = match <[u8; 4]>::try_from(octets) {
        Ok(octets) => octets.into(),
        Err(_) => <[u8; 16]>::try_from(octets).unwrap().into(),
    };
    SocketAddr::new(address, u16::from_be_bytes([frame[port], frame[port + 1]]))
}

/// Kind, number, argument and receiver, as proved by the tag, of a frame from a rank.
pub fn open(frame: &[u8], to: Rank) -> Option<Header> {
    let (header, tag) = Header::parse(&frame[FRAME_BYTES..]).ok()?;
    let first = header.kind == Kind::Cast && header.flags.has(Flags::FIRST);
    let control = if first { omnes_wire::ENVELOPE_BYTES } else { 0 };
    let body = &frame[FRAME_BYTES + PACKET_OVERHEAD_BYTES..][..control];
    let head = frame[FRAME_BYTES..].first_chunk()?;
    job_key().sender(header.source).verify(tag, head, to, body).then_some(header)
}
