//! Captures frames at a host's interface, with the kernel's information about checksum and train.

use super::hosts::Host;
use super::packets::{ETHER_TYPE, FRAME_BYTES, PROTOCOL};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Captures all frames of the tests' version of IP that arrive through `eth0`, from its creation
/// on.
pub struct Sniffer {
    socket: OwnedFd,
    wants_outgoing: bool,
}

/// A frame as it arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sniffed {
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
    /// The UDP checksum is still to be completed.
    pub is_partial: bool,
    /// Payload bytes of each packet of a train; 0 for a single packet.
    pub train_bytes: u16,
}

impl Sniffed {
    /// The number of packets that the frame becomes on a link.
    pub fn packets(&self) -> usize {
        match self.train_bytes {
            0 => 1,
            bytes => (self.frame.len() - FRAME_BYTES).div_ceil(bytes.into()),
        }
    }
}

/// Size of the kernel's `struct virtio_net_hdr`, and its flags.
const HEADER_BYTES: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
const ETH_P_ALL: u16 = 3;
const PACKET_OUTGOING: u8 = 4;
const PACKET_VNET_HDR: i32 = 15;

impl Sniffer {
    /// Begins to capture, only UDP packets with Omnes's magic number.
    pub fn new(host: &Host) -> Self {
        Self::at(host, "eth0", false)
    }

    /// As [`Self::new`], for frames that leave through another interface.
    pub fn outgoing(host: &Host, interface: &str) -> Self {
        Self::at(host, interface, true)
    }

    fn at(host: &Host, interface: &str, wants_outgoing: bool) -> Self {
        let interface = host.interface_named(interface);
        // Leaving frames are shown only to sockets that capture every protocol.
        let protocol =
            if wants_outgoing { ETH_P_ALL } else { u16::from_be_bytes(ETHER_TYPE) }.to_be();
        let socket = host.inside(|| {
            // SAFETY: creates a descriptor.
            let socket =
                unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol)) };
            assert!(socket >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: a new descriptor that nobody else has.
            unsafe { OwnedFd::from_raw_fd(socket) }
        });
        for (level, option, value) in [
            (libc::SOL_PACKET, PACKET_VNET_HDR, 1i32),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20),
        ] {
            // SAFETY: the option's value is a number.
            let code = unsafe {
                let value = (&raw const value).cast();
                libc::setsockopt(socket.as_raw_fd(), level, option, value, 4)
            };
            assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
        }
        // SAFETY: plain data, for which zeros are a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = interface as i32;
        // SAFETY: an address of the length given.
        let code = unsafe {
            let bytes = size_of::<libc::sockaddr_ll>() as u32;
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes)
        };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
        Self { socket, wants_outgoing }
    }

    /// The next Omnes frame that arrives, or `None` within `limit`.
    pub fn next(&self, limit: Duration) -> Option<Sniffed> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut poll =
                libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which lives as long as the call.
            let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) };
            if ready <= 0 {
                return None;
            }
            if let Some(sniffed) = self.receive() {
                return Some(sniffed);
            }
        }
    }

    /// All Omnes frames until none arrives for `silence`; the first `expected` packets are waited
    /// for longer.
    pub fn all(&self, expected: usize, patience: Duration, silence: Duration) -> Vec<Sniffed> {
        let (mut frames, mut packets) = (Vec::new(), 0);
        while let Some(sniffed) = self.next(if packets < expected { patience } else { silence }) {
            packets += sniffed.packets();
            frames.push(sniffed);
        }
        frames
    }

    fn receive(&self) -> Option<Sniffed> {
        let mut bytes = vec![0u8; 70_000];
        // SAFETY: plain data, for which zeros are a value.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut from_bytes = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: buffers of the lengths given.
        let got = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                0,
                (&raw mut from).cast(),
                &raw mut from_bytes,
            )
        };
        assert!(got >= HEADER_BYTES as isize, "{}", std::io::Error::last_os_error());
        bytes.truncate(got as usize);
        let frame = bytes.split_off(HEADER_BYTES);
        let is_ours = frame.len() > FRAME_BYTES + 2
            && frame[12..14] == ETHER_TYPE
            && frame[PROTOCOL] == 17
            && frame[FRAME_BYTES..FRAME_BYTES + 2] == *b"Om";
        let is_outgoing = from.sll_pkttype == PACKET_OUTGOING;
        (is_ours && is_outgoing == self.wants_outgoing).then(|| Sniffed {
            frame,
            is_partial: bytes[0] & NEEDS_CHECKSUM != 0,
            train_bytes: u16::from_ne_bytes([bytes[4], bytes[5]]),
        })
    }
}
