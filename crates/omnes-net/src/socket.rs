//! The UDP socket: trains sent by GSO and received by GRO, many of either per system call.
//!
//! A *train* is a run of packets to one peer that have equal lengths, except for the last. With GSO
//! it crosses the kernel as one; without, packet by packet, with the same bytes on the wire.
//! Offloads are probed when the socket is created, and given up for this socket when the kernel
//! refuses one later (`EIO`, `EINVAL`: a device without checksum offload, a route that changed).
//!
//! All of the crate's `unsafe` for calls on these sockets is here.

mod receive;
mod segmentation;
mod send;
#[cfg(test)]
mod tests;

pub use receive::Take;

use omnes_wire::CommunicatorId;
use segmentation::Segmentation;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// Maximum bytes of one UDP datagram, and so of one train.
pub const TRAIN_BYTES_MAX: usize = 65_507;
/// Maximum packets per train; 64 is supported by every kernel with UDP GSO.
pub const TRAIN_PACKETS_MAX: usize = 64;
/// Trains sent by one system call.
pub const TRAINS_PER_CALL: usize = 16;
/// Datagrams received by one system call.
pub const DATAGRAMS_PER_CALL: usize = 8;

const CONTROL_BYTES: usize = 64;

/// Socket option that returns a socket's memory use and drops, as that many values; libc lacks it.
const SO_MEMINFO: libc::c_int = 55;
const MEMORY_VALUES: usize = libc::SK_MEMINFO_DROPS as usize + 1;

/// Space for control messages, aligned as their headers must be.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// UDP offloads of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offloads {
    /// Trains are cut into packets by the kernel or the interface (UDP GSO).
    pub gso: bool,
    /// Consecutive packets are received as one train (UDP GRO).
    pub gro: bool,
}

/// One train to send, as a range of the io vectors given with it.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// The destination; `None` for a connected socket.
    pub to: Option<SocketAddr>,
    /// The communicator whose multi-send sends it to many ranks; resolved before it is sent.
    pub multisend: Option<CommunicatorId>,
    /// Range of the io vectors: first and one past the last.
    pub parts: (usize, usize),
    /// Packets in the train.
    pub packets: usize,
    /// Length in bytes of each packet except the last.
    pub packet_bytes: usize,
}

/// Result of a receive call for one datagram or train.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Total bytes.
    pub bytes: usize,
    /// Length in bytes of each packet except the last, which may be shorter.
    pub packet_bytes: usize,
}

/// Calls and packets, for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketCounters {
    /// System calls that send.
    pub send_calls: u64,
    /// `recvmmsg` and `recvmsg` calls.
    pub receive_calls: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Datagrams received: a train counts once.
    pub trains_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// Sends that the kernel refused for another reason than a full buffer.
    pub send_errors: u64,
}

/// See the module header.
pub struct UdpSocket {
    socket: Socket,
    offloads: Offloads,
    segmentation: Segmentation,
    /// Statistics.
    pub counters: SocketCounters,
    headers: Vec<libc::mmsghdr>,
    addresses: Vec<SockAddr>,
    controls: Vec<Control>,
}

// SAFETY: the raw pointers in `headers` are set anew before each call and point into fields of the
// same struct or into the caller's borrowed arguments; none is used across calls.
unsafe impl Send for UdpSocket {}

fn set_option<T>(fd: RawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for `length` bytes during the call.
    let result =
        unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Prevents fragmentation: packets of this socket cross the network as they are or not at all;
/// neither this host nor a router fragments them. This host's knowledge of the path to the receiver
/// does not count, only its own link does.
///
/// # Errors
/// The kernel's error.
pub(crate) fn forbid_fragments(socket: &std::net::UdpSocket) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    if socket.local_addr()?.is_ipv4() {
        let probe = libc::IP_PMTUDISC_PROBE;
        return set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &probe);
    }
    let probe = libc::IPV6_PMTUDISC_PROBE;
    set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &probe)?;
    set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, &1i32)
}

impl SocketCounters {
    /// Adds the counters of another socket.
    pub fn add(&mut self, other: &Self) {
        self.send_calls += other.send_calls;
        self.receive_calls += other.receive_calls;
        self.packets_sent += other.packets_sent;
        self.bytes_sent += other.bytes_sent;
        self.packets_received += other.packets_received;
        self.trains_received += other.trains_received;
        self.bytes_received += other.bytes_received;
        self.send_errors += other.send_errors;
    }
}

impl UdpSocket {
    /// Creates a non-blocking socket on `address` with any free port, and buffers of `buffer_bytes`
    /// if the machine allows that much.
    ///
    /// # Errors
    /// The kernel's error for the socket or the address.
    pub fn bind(address: IpAddr, buffer_bytes: usize) -> io::Result<Self> {
        let address = SocketAddr::new(address, 0);
        let socket = Self::open(address)?;
        socket.bind(&address.into())?;
        Self::new(socket, buffer_bytes)
    }

    /// As [`Self::bind`], without UDP checksums if the IP version allows that (IPv4), and without
    /// offloads.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_unchecked(address: IpAddr, buffer_bytes: usize) -> io::Result<Self> {
        Self::bind(address, buffer_bytes)?.unchecked()
    }

    fn unchecked(mut self) -> io::Result<Self> {
        self.restrict(Offloads { gso: false, gro: false });
        if self.local_address()?.is_ipv4() {
            set_option(self.fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, &1i32)?;
        }
        Ok(self)
    }

    /// Creates a socket at the same address that is connected to `peer`, of the same kind as
    /// [`Self::bind_unchecked`]. Packets from elsewhere arrive at this socket as before.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn beside(&self, peer: SocketAddr) -> io::Result<Self> {
        let address = self.local_address()?;
        let second = Self::open(address)?;
        // Only while binding: an address must have no third owner. With `SO_REUSEADDR` another
        // user's process could become one; `SO_REUSEPORT` is restricted to processes of one user.
        self.socket.set_reuse_port(true)?;
        let bound = second.set_reuse_port(true).and_then(|()| second.bind(&address.into()));
        self.socket.set_reuse_port(false)?;
        bound?;
        second.set_reuse_port(false)?;
        second.connect(&peer.into())?;
        let buffer_bytes = self.receive_buffer_bytes() / 2; // The kernel doubles what is asked for.
        Self::new(second, buffer_bytes)?.unchecked()
    }

    /// Opens a non-blocking socket of the kind that `address` needs, not bound yet.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Socket> {
        let kind = Type::DGRAM.nonblocking().cloexec();
        Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))
    }

    /// Takes over a bound socket, and gives it buffers as [`Self::bind`] does.
    pub(crate) fn new(socket: Socket, buffer_bytes: usize) -> io::Result<Self> {
        let fd = socket.as_raw_fd();
        let bytes = i32::try_from(buffer_bytes).unwrap_or(i32::MAX);
        // Exceeds the limit only with privileges; otherwise as much as the limit allows.
        if set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes).is_err() {
            socket.set_recv_buffer_size(buffer_bytes)?;
        }
        if set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes).is_err() {
            socket.set_send_buffer_size(buffer_bytes)?;
        }
        let gso = set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, &0i32).is_ok();
        let gro = set_option(fd, libc::SOL_UDP, libc::UDP_GRO, &1i32).is_ok();
        Ok(Self {
            socket,
            offloads: Offloads { gso, gro },
            segmentation: Segmentation::default(),
            counters: SocketCounters::default(),
            headers: Vec::with_capacity(TRAIN_PACKETS_MAX),
            addresses: Vec::with_capacity(TRAIN_PACKETS_MAX),
            controls: vec![Control([0; CONTROL_BYTES]); TRAINS_PER_CALL.max(DATAGRAMS_PER_CALL)],
        })
    }

    /// Connects the socket to one peer: no route is looked up per packet on either side.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(&peer.into())
    }

    /// Disables offloads by choice.
    pub fn restrict(&mut self, offloads: Offloads) {
        self.offloads.gso &= offloads.gso;
        if self.offloads.gro && !offloads.gro {
            self.offloads.gro = false;
            // If the kernel refuses to disable it, no harm is done: trains are handled either way.
            let _ = set_option(self.fd(), libc::SOL_UDP, libc::UDP_GRO, &0i32);
        }
    }

    /// Offloads in use for this socket at present.
    pub fn offloads(&self) -> Offloads {
        Offloads { gso: self.segments(), ..self.offloads }
    }

    /// The socket itself, for options that only some sockets have.
    pub(crate) fn options(&self) -> &Socket {
        &self.socket
    }

    /// The descriptor, for polling.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Address to which other ranks send.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The kernel's unique identifier of this socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn cookie(&self) -> io::Result<u64> {
        Ok(rustix::net::sockopt::socket_cookie(&self.socket)?)
    }

    /// Receive buffer granted, in bytes of truesize.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.socket.recv_buffer_size().unwrap_or(212_992)
    }

    /// Packets, or trains of them, that the kernel dropped before they were read, because a filter
    /// rejected them or the receive buffer was full. 0 if the kernel does not report it.
    pub fn dropped(&self) -> u64 {
        let mut values = [0u32; MEMORY_VALUES];
        let mut length = size_of_val(&values) as libc::socklen_t;
        let to = values.as_mut_ptr().cast();
        // SAFETY: `values` and `length` are valid for writing during the call.
        let result = unsafe {
            libc::getsockopt(self.fd(), libc::SOL_SOCKET, SO_MEMINFO, to, &raw mut length)
        };
        let is_told = result == 0 && length as usize == size_of_val(&values);
        if is_told { u64::from(values[libc::SK_MEMINFO_DROPS as usize]) } else { 0 }
    }

    /// Largest IP packet on the path to `to`, as the kernel knows it.
    pub fn path_mtu(local: IpAddr, to: SocketAddr) -> io::Result<u32> {
        let probe = std::net::UdpSocket::bind(SocketAddr::new(local, 0))?;
        probe.connect(to)?;
        let (level, name) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let mut mtu = 0i32;
        let mut length = size_of::<i32>() as libc::socklen_t;
        let value = std::ptr::from_mut(&mut mtu).cast();
        // SAFETY: `mtu` and `length` are valid for writing during the call.
        let result =
            unsafe { libc::getsockopt(probe.as_raw_fd(), level, name, value, &mut length) };
        if result == 0 { Ok(mtu.unsigned_abs()) } else { Err(io::Error::last_os_error()) }
    }
}
