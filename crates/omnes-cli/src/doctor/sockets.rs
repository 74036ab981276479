//! Behaviour of UDP sockets here, tested over loopback: GSO, GRO, batches, buffers.
//!
//! Buffers are judged by the data that they *hold*, not by their size: the kernel charges the whole
//! memory of a datagram, 2304 bytes for one of 1400, and doubles the requested size to make up for
//! some of that. Buffer overflow is the main cause of loss on a wired network.

use super::{Finding, read_number};
use libc::{SOL_SOCKET, SOL_UDP, c_int, c_void};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Maximum wait for a datagram that should have arrived already.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Payload per segment; a size that fits any MTU.
const SEGMENT_BYTES: usize = 1000;

/// Segments per send that kernels accept: 128 since 2024, 64 before; the smaller numbers detect
/// unusual limits.
const SEGMENT_COUNTS: [usize; 6] = [128, 64, 32, 16, 4, 2];

/// Buffer size that a busy rank requests; the kernel grants twice that if it grants it all.
const BUFFER_BYTES: usize = 4 << 20;

/// Memory that the kernel charges for a received datagram of about 1400 bytes.
const TRUESIZE_BYTES: usize = 2304;

/// Findings about sockets.
pub fn findings() -> Vec<Finding> {
    let mut findings = match plain() {
        Ok(()) => vec![gso(), segments(), gro(), batch()],
        Err(error) => {
            vec![Finding::missing("UDP over loopback", error, "ip link set lo up; see firewall")]
        }
    };
    findings.extend(buffer(&RECEIVE));
    findings.extend(buffer(&SEND));
    findings
}

/// A receiver on loopback with a timeout, and a sender connected to it.
fn pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_read_timeout(Some(PROBE_WAIT))?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    sender.connect(receiver.local_addr()?)?;
    Ok((receiver, sender))
}

fn set_option(socket: RawFd, level: c_int, name: c_int, value: usize) -> io::Result<()> {
    let value = c_int::try_from(value).map_err(io::Error::other)?;
    let length = libc::socklen_t::try_from(size_of::<c_int>()).expect("4 fits");
    // SAFETY: `value` is a live int of `length` bytes; the kernel copies it.
    let result =
        unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Exchanges one datagram; if that fails, the probes below would report a wrong cause.
fn plain() -> io::Result<()> {
    let (receiver, sender) = pair()?;
    sender.send(&[0])?;
    receiver.recv(&mut [0]).map(|_| ())
}

fn gso() -> Finding {
    let name = "UDP GSO";
    let probe = || -> io::Result<bool> {
        let (receiver, sender) = pair()?;
        set_option(sender.as_raw_fd(), SOL_UDP, libc::UDP_SEGMENT, SEGMENT_BYTES)?;
        sender.send(&[0; 2 * SEGMENT_BYTES])?;
        let mut buffer = [0; 2 * SEGMENT_BYTES];
        Ok(receiver.recv(&mut buffer)? == SEGMENT_BYTES
            && receiver.recv(&mut buffer)? == SEGMENT_BYTES)
    };
    match probe() {
        Ok(true) => Finding::ok(name, "2 segments sent as one, received as 2"),
        Ok(false) => Finding::limited(name, "wrong segments", "packets are sent one by one"),
        Err(error) => Finding::missing(name, error, "kernel 4.18 or later; sendmmsg is used"),
    }
}

fn segments() -> Finding {
    let name = "UDP GSO segments, most";
    let accepted = |count: usize| -> io::Result<()> {
        let (_receiver, sender) = pair()?;
        let segment_bytes = 100;
        set_option(sender.as_raw_fd(), SOL_UDP, libc::UDP_SEGMENT, segment_bytes)?;
        sender.send(&vec![0; count * segment_bytes]).map(|_| ())
    };
    match SEGMENT_COUNTS.into_iter().find(|&count| accepted(count).is_ok()) {
        Some(count) if count >= 64 => Finding::ok(name, count),
        Some(count) => Finding::limited(name, count, "64 are usual; trains are shorter here"),
        None => Finding::missing(name, "none", "packets are sent one by one"),
    }
}

fn gro() -> Finding {
    let name = "UDP GRO";
    let probe = || -> io::Result<(usize, Option<c_int>)> {
        let (receiver, sender) = pair()?;
        set_option(receiver.as_raw_fd(), SOL_UDP, libc::UDP_GRO, 1)?;
        set_option(sender.as_raw_fd(), SOL_UDP, libc::UDP_SEGMENT, SEGMENT_BYTES)?;
        sender.send(&[0; 2 * SEGMENT_BYTES])?;
        receive_train(&receiver)
    };
    match probe() {
        Ok((bytes, Some(stride))) if bytes == 2 * SEGMENT_BYTES => {
            Finding::ok(name, format!("{bytes} bytes in one, stride {stride}"))
        }
        Ok(_) => Finding::limited(name, "does not coalesce", "recvmmsg takes packets one by one"),
        Err(error) => Finding::missing(name, error, "kernel 5.0 or later; recvmmsg is used"),
    }
}

/// Receives once; returns the length, and the stride if the kernel coalesced several datagrams.
fn receive_train(receiver: &UdpSocket) -> io::Result<(usize, Option<c_int>)> {
    let mut buffer = [0_u8; 4 * SEGMENT_BYTES];
    let mut control = [0_u64; 16]; // u64: control messages must be aligned
    let mut part =
        libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
    // SAFETY: an all-zero msghdr is a valid value of that plain C struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message points to one part and a control buffer, both live and of these sizes.
    let bytes = unsafe { libc::recvmsg(receiver.as_raw_fd(), &raw mut message, 0) };
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled `message`; CMSG_FIRSTHDR gives null or a header inside `control`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let is_stride =
        |header: &&libc::cmsghdr| header.cmsg_level == SOL_UDP && header.cmsg_type == libc::UDP_GRO;
    let stride = header.filter(is_stride).map(|header| {
        // SAFETY: the data of this control message is an int; it may be unaligned.
        unsafe { libc::CMSG_DATA(header).cast::<c_int>().read_unaligned() }
    });
    Ok((bytes, stride))
}

fn batch() -> Finding {
    const COUNT: usize = 4;
    let name = "recvmmsg";
    let probe = || -> io::Result<usize> {
        let (receiver, sender) = pair()?;
        for _ in 0..COUNT {
            sender.send(&[0; 8])?;
        }
        let mut buffers = [[0_u8; 8]; COUNT];
        let mut parts = buffers.each_mut().map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        });
        let mut messages = parts.each_mut().map(|part| {
            // SAFETY: an all-zero mmsghdr is a valid value of that plain C struct.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        });
        let count = u32::try_from(COUNT).expect("4 fits");
        let socket = receiver.as_raw_fd();
        // SAFETY: `count` messages, each with one live part; the only timeout is the socket's own.
        let received = unsafe {
            libc::recvmmsg(socket, messages.as_mut_ptr(), count, 0, std::ptr::null_mut())
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    };
    match probe() {
        Ok(COUNT) => Finding::ok(name, format!("{COUNT} datagrams in one call")),
        Ok(count) => Finding::limited(name, format!("{count} of {COUNT} datagrams"), "try again"),
        Err(error) => Finding::missing(name, error, "each datagram costs a system call"),
    }
}

/// The two sides of a socket's memory.
struct Side {
    name: &'static str,
    option: c_int,
    force: c_int,
    read: fn(&Socket) -> io::Result<usize>,
    setting: &'static str,
}

const RECEIVE: Side = Side {
    name: "receive buffer",
    option: libc::SO_RCVBUF,
    force: libc::SO_RCVBUFFORCE,
    read: Socket::recv_buffer_size,
    setting: "rmem_max",
};

const SEND: Side = Side {
    name: "send buffer",
    option: libc::SO_SNDBUF,
    force: libc::SO_SNDBUFFORCE,
    read: Socket::send_buffer_size,
    setting: "wmem_max",
};

/// Buffer sizes granted to a socket.
struct Granted {
    default_bytes: usize,
    asked_bytes: usize,
    is_force_allowed: bool,
}

fn buffer(side: &Side) -> Vec<Finding> {
    let Side { name, setting, .. } = side;
    let granted = match measure(side) {
        Ok(granted) => granted,
        Err(error) => return vec![Finding::missing(*name, error, "no UDP sockets here")],
    };
    let holds = |bytes: usize| format!("{bytes} bytes, {} datagrams", bytes / TRUESIZE_BYTES);
    let most = read_number(&format!("/proc/sys/net/core/{setting}"))
        .map_or_else(|| "not shown here".to_owned(), |bytes| format!("{bytes} bytes"));
    let asked = format!("{name}, {BUFFER_BYTES} bytes asked");
    let value = holds(granted.asked_bytes);
    let is_enough = granted.asked_bytes >= 2 * BUFFER_BYTES;
    vec![
        Finding::ok(format!("{name}, default"), holds(granted.default_bytes)),
        Finding::ok(format!("net.core.{setting}"), most),
        match (is_enough, granted.is_force_allowed) {
            (true, _) => Finding::ok(asked, value),
            (false, true) => {
                let advice = "Omnes forces more".to_owned();
                Finding { advice, ..Finding::ok(asked, value) }
            }
            (false, false) => {
                let advice = format!("sysctl -w net.core.{setting}=16777216");
                Finding::limited(asked, value, &advice)
            }
        },
        match (granted.is_force_allowed, is_enough) {
            (true, _) => Finding::ok(format!("{name}, forced"), "allowed"),
            (false, true) => Finding::ok(format!("{name}, forced"), "not allowed, not needed"),
            (false, false) => {
                Finding::missing(format!("{name}, forced"), "not allowed", "needs CAP_NET_ADMIN")
            }
        },
    ]
}

fn measure(side: &Side) -> io::Result<Granted> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let default_bytes = (side.read)(&socket)?;
    set_option(socket.as_raw_fd(), SOL_SOCKET, side.option, BUFFER_BYTES)?;
    let asked_bytes = (side.read)(&socket)?;
    let is_force_allowed =
        set_option(socket.as_raw_fd(), SOL_SOCKET, side.force, BUFFER_BYTES).is_ok();
    Ok(Granted { default_bytes, asked_bytes, is_force_allowed })
}
