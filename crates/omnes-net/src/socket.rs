//! The UDP socket: trains out by GSO, trains in by GRO, many of either per system call.
//!
//! A *train* is a run of packets to one peer that have equal lengths, except for the last. With GSO
//! it crosses the kernel as one; without, packet by packet, with the same bytes on the wire.
//! Offloads are probed when the socket is made, and given up for this socket when the kernel
//! refuses one later (`EIO`, `EINVAL`: a device without checksum offload, a route that changed).
//!
//! All of the crate's `unsafe` for calls on these sockets is here.

#[cfg(test)]
mod tests;

use omnes_wire::CommunicatorId;
use rustix::net::{SendFlags, send, sendto};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// Most bytes of one UDP datagram, and so of one train.
pub const TRAIN_BYTES_MAX: usize = 65_507;
/// Packets per train; 64 is what every kernel with UDP GSO takes.
pub const TRAIN_PACKETS_MAX: usize = 64;
/// Trains sent by one system call.
pub const TRAINS_PER_CALL: usize = 16;
/// Datagrams received by one system call.
pub const DATAGRAMS_PER_CALL: usize = 8;

const CONTROL_BYTES: usize = 64;

/// Asks what a socket holds and has dropped, in so many values; libc lacks it.
const SO_MEMINFO: libc::c_int = 55;
const MEMORY_VALUES: usize = libc::SK_MEMINFO_DROPS as usize + 1;

/// Room for control messages, aligned as their headers must be.
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
    /// Where to; `None` for a socket that is connected.
    pub to: Option<SocketAddr>,
    /// The communicator whose multi-send takes it to many; resolved before it is sent.
    pub multisend: Option<CommunicatorId>,
    /// Range of the io vectors: first and one past the last.
    pub parts: (usize, usize),
    /// Packets in the train.
    pub packets: usize,
    /// Bytes of each packet but the last.
    pub packet_bytes: usize,
}

/// What a receive call yields for one datagram or train.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes in all.
    pub bytes: usize,
    /// Bytes of each packet but the last, which may be shorter.
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
    /// Pieces in which they came: trains count once.
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
    /// Statistics.
    pub counters: SocketCounters,
    headers: Vec<libc::mmsghdr>,
    addresses: Vec<SockAddr>,
    controls: Vec<Control>,
}

// SAFETY: the raw pointers in `headers` are set anew before each call and point into fields of
// the same struct or into the caller's borrowed arguments; none is used across calls.
unsafe impl Send for UdpSocket {}

fn set_option<T>(fd: RawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for `length` bytes during the call.
    let result =
        unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What this socket sends crosses the network as it is or not at all: neither this host nor a
/// router cuts it up. What this host believes of the way to the receiver does not count, only its
/// own link does.
///
/// # Errors
/// What the kernel says.
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
    /// Adds what another socket counted.
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
    /// A non-blocking socket on `address` with any free port, and buffers of `buffer_bytes` if
    /// the machine allows that much.
    ///
    /// # Errors
    /// What the kernel says of socket or address.
    pub fn bind(address: IpAddr, buffer_bytes: usize) -> io::Result<Self> {
        let address = SocketAddr::new(address, 0);
        let socket = Self::open(address)?;
        socket.bind(&address.into())?;
        Self::new(socket, buffer_bytes)
    }

    /// As [`Self::bind`], without UDP checksums where the IP version allows that (IPv4), and
    /// without offloads.
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

    /// A socket at the same address that is connected to `peer`, of the kind that
    /// [`Self::bind_unchecked`] gives. What comes from elsewhere comes in by this one as before.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn beside(&self, peer: SocketAddr) -> io::Result<Self> {
        let address = self.local_address()?;
        let second = Self::open(address)?;
        // For as long as it takes to bind: an address must have no third owner. By `SO_REUSEADDR`
        // another user's process could become that; `SO_REUSEPORT` is for those of one user.
        self.socket.set_reuse_port(true)?;
        let bound = second.set_reuse_port(true).and_then(|()| second.bind(&address.into()));
        self.socket.set_reuse_port(false)?;
        bound?;
        second.set_reuse_port(false)?;
        second.connect(&peer.into())?;
        let buffer_bytes = self.receive_buffer_bytes() / 2; // The kernel doubles what is asked for.
        Self::new(second, buffer_bytes)?.unchecked()
    }

    /// A non-blocking socket of the kind that `address` needs, not bound yet.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Socket> {
        let kind = Type::DGRAM.nonblocking().cloexec();
        Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))
    }

    /// Takes over a socket that is bound, and gives it buffers as [`Self::bind`] does.
    pub(crate) fn new(socket: Socket, buffer_bytes: usize) -> io::Result<Self> {
        let fd = socket.as_raw_fd();
        let bytes = i32::try_from(buffer_bytes).unwrap_or(i32::MAX);
        // Over the limit only where privilege allows; then as much as the limit allows.
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
            counters: SocketCounters::default(),
            headers: Vec::with_capacity(TRAIN_PACKETS_MAX),
            addresses: Vec::with_capacity(TRAIN_PACKETS_MAX),
            controls: vec![Control([0; CONTROL_BYTES]); TRAINS_PER_CALL.max(DATAGRAMS_PER_CALL)],
        })
    }

    /// Ties the socket to one peer: no route is looked up per packet on either side.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(&peer.into())
    }

    /// Gives up offloads by choice.
    pub fn restrict(&mut self, offloads: Offloads) {
        self.offloads.gso &= offloads.gso;
        if self.offloads.gro && !offloads.gro {
            self.offloads.gro = false;
            // Refusing to switch it off is harmless: trains are understood either way.
            let _ = set_option(self.fd(), libc::SOL_UDP, libc::UDP_GRO, &0i32);
        }
    }

    /// What the kernel does for this socket at present.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// The socket itself, for options that only some sockets have.
    pub(crate) fn options(&self) -> &Socket {
        &self.socket
    }

    /// The descriptor, for waiting.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The address others send to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Receive buffer that was granted, in bytes of truesize.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.socket.recv_buffer_size().unwrap_or(212_992)
    }

    /// Packets, or trains of them, that the kernel dropped before they were read: those that a
    /// filter refused, and those that found the receive buffer full. 0 where it does not tell.
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

    /// Largest IP packet on the way to `to`, as the kernel knows it.
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

    // ---- sending --------------------------------------------------------------------------

    /// Sends trains in order; returns how many the kernel took. Fewer than given means that its
    /// buffer is full: the rest must be tried again first. A train that cannot be sent at all
    /// (no route, say) counts as sent and lost.
    pub fn send(&mut self, trains: &[Train], parts: &mut [libc::iovec]) -> usize {
        let mut done = 0;
        while done < trains.len() {
            if let Some(sent) = self.send_plain(&trains[done], parts) {
                match sent {
                    Ok(()) => done += 1,
                    Err(error) => match self.on_send_error(&error, 1) {
                        AfterError::Full => return done,
                        AfterError::Again => {}
                        AfterError::Skip => done += 1,
                    },
                }
                continue;
            }
            if !self.offloads.gso && trains[done].packets > 1 {
                if !self.send_packetwise(&trains[done], parts) {
                    return done;
                }
                done += 1;
                continue;
            }
            let batch = self.batch_end(trains, done);
            match self.send_batch(&trains[done..batch], parts) {
                Ok(sent) => {
                    for train in &trains[done..done + sent] {
                        self.count_sent(train, parts);
                    }
                    done += sent;
                }
                Err(error) => match self.on_send_error(&error, trains[done].packets) {
                    AfterError::Full => return done,
                    AfterError::Again => {}
                    AfterError::Skip => done += 1,
                },
            }
        }
        done
    }

    /// Sends a packet in one part by the cheapest call there is; `None` if the train is not of that
    /// kind.
    fn send_plain(&mut self, train: &Train, parts: &[libc::iovec]) -> Option<io::Result<()>> {
        if train.packets > 1 || train.parts.1 - train.parts.0 > 1 {
            return None;
        }
        let part = parts[train.parts.0];
        // SAFETY: the part points to memory that the caller keeps alive and does not change.
        let data = unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) };
        self.counters.send_calls += 1;
        // Not by libc, where these calls are points of cancellation and cost more.
        let sent = match train.to {
            None => send(&self.socket, data, SendFlags::DONTWAIT),
            Some(to) => sendto(&self.socket, data, SendFlags::DONTWAIT, &to),
        };
        if let Err(error) = sent {
            return Some(Err(error.into()));
        }
        self.count_sent(train, parts);
        Some(Ok(()))
    }

    fn batch_end(&self, trains: &[Train], from: usize) -> usize {
        let most = trains.len().min(from + TRAINS_PER_CALL);
        let is_plain = |train: &Train| train.packets == 1 && train.parts.1 - train.parts.0 == 1;
        let whole = |train: &&Train| (self.offloads.gso || train.packets == 1) && !is_plain(train);
        from + trains[from..most].iter().take_while(whole).count()
    }

    fn count_sent(&mut self, train: &Train, parts: &[libc::iovec]) {
        let bytes: usize = parts[train.parts.0..train.parts.1].iter().map(|p| p.iov_len).sum();
        self.counters.packets_sent += train.packets as u64;
        self.counters.bytes_sent += bytes as u64;
    }

    fn on_send_error(&mut self, error: &io::Error, packets: usize) -> AfterError {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => AfterError::Full,
            Some(libc::EINTR) => AfterError::Again,
            // What an earlier packet met with, told late: this one has not been tried.
            Some(libc::ECONNREFUSED) => AfterError::Again,
            Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if packets > 1 => {
                self.offloads.gso = false;
                AfterError::Again
            }
            _ => {
                self.counters.send_errors += 1;
                AfterError::Skip
            }
        }
    }

    fn send_batch(&mut self, trains: &[Train], parts: &mut [libc::iovec]) -> io::Result<usize> {
        self.headers.clear();
        self.addresses.clear();
        self.addresses.extend(trains.iter().filter_map(|train| train.to).map(SockAddr::from));
        for (index, train) in trains.iter().enumerate() {
            // SAFETY: all-zero is a valid `mmsghdr`.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            if train.to.is_some() {
                let address = &self.addresses[index];
                header.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
                header.msg_hdr.msg_namelen = address.len();
            }
            header.msg_hdr.msg_iov = parts[train.parts.0..train.parts.1].as_mut_ptr();
            header.msg_hdr.msg_iovlen = train.parts.1 - train.parts.0;
            if train.packets > 1 {
                segment_control(&mut header.msg_hdr, &mut self.controls[index], train);
            }
            self.headers.push(header);
        }
        self.counters.send_calls += 1;
        let fd = self.fd();
        // SAFETY: every header points to addresses, control buffers and io vectors that live
        // until the call returns; the io vectors point to memory that the caller keeps alive.
        let sent = unsafe {
            match &mut self.headers[..] {
                [single] => {
                    let sent = libc::sendmsg(fd, &single.msg_hdr, libc::MSG_DONTWAIT);
                    if sent < 0 { -1 } else { 1 }
                }
                all => {
                    let count = all.len() as u32;
                    libc::sendmmsg(fd, all.as_mut_ptr(), count, libc::MSG_DONTWAIT)
                }
            }
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// The train packet by packet; false if the buffer is full before the first is out. If it
    /// fills up later, the rest of the train counts as lost.
    fn send_packetwise(&mut self, train: &Train, parts: &[libc::iovec]) -> bool {
        let mut left = &parts[train.parts.0..train.parts.1];
        let (mut offset, mut is_first) = (0, true);
        let mut packet = Vec::new();
        loop {
            take_packet(&mut packet, &mut left, &mut offset, train.packet_bytes);
            if packet.is_empty() {
                return true;
            }
            let single = Train { parts: (0, packet.len()), packets: 1, ..*train };
            let sent = loop {
                match self.send_batch(&[single], &mut packet) {
                    Ok(_) => break true,
                    Err(error) => match self.on_send_error(&error, 1) {
                        AfterError::Full if is_first => return false,
                        AfterError::Again => {}
                        AfterError::Full | AfterError::Skip => break false,
                    },
                }
            };
            if sent {
                self.count_sent(&single, &packet);
            }
            is_first = false;
        }
    }

    // ---- receiving ------------------------------------------------------------------------

    /// Receives waiting datagrams, one per buffer; how many. None is no error.
    pub fn receive(&mut self, buffers: &mut [libc::iovec], out: &mut Vec<Received>) -> usize {
        out.clear();
        self.headers.clear();
        let count = buffers.len().min(DATAGRAMS_PER_CALL);
        for (index, buffer) in buffers[..count].iter_mut().enumerate() {
            // SAFETY: all-zero is a valid `mmsghdr`.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = buffer;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            self.headers.push(header);
        }
        self.counters.receive_calls += 1;
        // SAFETY: headers point to control buffers of this struct and to the caller's io vectors,
        // whose memory the caller keeps valid for writing.
        let received = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(
                self.fd(),
                self.headers.as_mut_ptr(),
                count as u32,
                flags,
                std::ptr::null_mut(),
            )
        };
        for header in self.headers.iter().take(received.max(0) as usize) {
            let bytes = header.msg_len as usize;
            let packet_bytes = gro_packet_bytes(&header.msg_hdr).unwrap_or(bytes);
            out.push(Received { bytes, packet_bytes: packet_bytes.max(1) });
        }
        for received in out.iter() {
            self.count_received(*received);
        }
        out.len()
    }

    /// Receives one datagram into several buffers, or only looks at it. `None` if there is none.
    pub fn receive_scattered(
        &mut self,
        buffers: &mut [libc::iovec],
        take: Take,
    ) -> Option<Received> {
        // SAFETY: all-zero is a valid `msghdr`.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = buffers.as_mut_ptr();
        header.msg_iovlen = buffers.len();
        header.msg_control = self.controls[0].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
        let flags = match take {
            Take::Look => libc::MSG_DONTWAIT | libc::MSG_TRUNC | libc::MSG_PEEK,
            Take::Out => libc::MSG_DONTWAIT | libc::MSG_TRUNC,
        };
        self.counters.receive_calls += 1;
        // SAFETY: as in `receive`.
        let bytes = unsafe { libc::recvmsg(self.fd(), &mut header, flags) };
        let bytes = usize::try_from(bytes).ok()?;
        let packet_bytes = gro_packet_bytes(&header).unwrap_or(bytes).max(1);
        let received = Received { bytes, packet_bytes };
        if take == Take::Out {
            self.count_received(received);
        }
        Some(received)
    }

    fn count_received(&mut self, received: Received) {
        self.counters.trains_received += 1;
        self.counters.packets_received += received.bytes.div_ceil(received.packet_bytes) as u64;
        self.counters.bytes_received += received.bytes as u64;
    }
}

/// Whether a datagram stays in the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// It stays.
    Look,
    /// It is taken out.
    Out,
}

enum AfterError {
    Full,
    Again,
    Skip,
}

/// Cuts the next packet of `packet_bytes` off what is left of a train, of whose first part `offset`
/// bytes are gone: a train that was received lies in one part. Empty if nothing is left.
fn take_packet(
    packet: &mut Vec<libc::iovec>,
    left: &mut &[libc::iovec],
    offset: &mut usize,
    packet_bytes: usize,
) {
    packet.clear();
    let mut room = packet_bytes;
    while let Some((part, rest)) = left.split_first().filter(|_| room > 0) {
        let bytes = (part.iov_len - *offset).min(room);
        let iov_base = part.iov_base.wrapping_byte_add(*offset);
        packet.extend((bytes > 0).then_some(libc::iovec { iov_base, iov_len: bytes }));
        (room, *offset) = (room - bytes, *offset + bytes);
        if *offset == part.iov_len {
            (*left, *offset) = (rest, 0);
        }
    }
}

/// Asks the kernel to cut the train into packets.
fn segment_control(header: &mut libc::msghdr, control: &mut Control, train: &Train) {
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the control buffer is longer than one header with two bytes of data, and is
    // written through the accessors that libc gives for it.
    unsafe {
        let entry = libc::CMSG_FIRSTHDR(header);
        (*entry).cmsg_level = libc::SOL_UDP;
        (*entry).cmsg_type = libc::UDP_SEGMENT;
        (*entry).cmsg_len = libc::CMSG_LEN(2) as usize;
        std::ptr::write_unaligned(libc::CMSG_DATA(entry).cast(), train.packet_bytes as u16);
        header.msg_controllen = libc::CMSG_SPACE(2) as usize;
    }
}

/// Packet length of a train, if the kernel put one together.
fn gro_packet_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has filled in the control buffer and its length.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(header);
        while !entry.is_null() {
            if (*entry).cmsg_level == libc::SOL_UDP && (*entry).cmsg_type == libc::UDP_GRO {
                let bytes: i32 = std::ptr::read_unaligned(libc::CMSG_DATA(entry).cast());
                return usize::try_from(bytes).ok();
            }
            entry = libc::CMSG_NXTHDR(header, entry);
        }
    }
    None
}
