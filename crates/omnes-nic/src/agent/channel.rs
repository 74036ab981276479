//! A Unix socket that carries bytes and descriptors: the identity of the peer, and both directions.

use super::limits::DESCRIPTORS_MAX;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Maximum number of descriptors in one message. With room for fewer, the kernel would close the
/// others, which could take as long as the sender wants.
const CARRIED_MAX: usize = 253;

/// Identity of a process, as the kernel reports it for its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    pub(super) uid: u32,
    /// 0 if the process is in another process namespace.
    pub(super) pid: i32,
}

/// Creates a socket of the kind that agent and processes use.
pub(super) fn unix_socket(is_blocking: bool) -> io::Result<OwnedFd> {
    let blocking = if is_blocking { SocketFlags::empty() } else { SocketFlags::NONBLOCK };
    let flags = SocketFlags::CLOEXEC | blocking;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The agent's address.
pub(super) fn agent_address() -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(super::SOCKET_NAME.as_bytes())?)
}

/// The process at the other end, as of when it connected or began to listen. Implemented here
/// because a process whose number this namespace does not know has the number 0.
pub(super) fn peer(connection: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    option(connection, libc::SO_PEERCRED, &mut credentials)?;
    Ok(Peer { uid: credentials.uid, pid: credentials.pid })
}

/// A descriptor of the process at the other end, which becomes readable when that process ends;
/// `None` if the kernel has none to give (before 6.5).
pub(super) fn peer_process(connection: BorrowedFd<'_>) -> Option<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut descriptor: libc::c_int = -1;
    option(connection, SO_PEERPIDFD, &mut descriptor).ok()?;
    // SAFETY: a new descriptor that nobody else has.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let into = std::ptr::from_mut(value).cast();
    // SAFETY: the callers' types are plain data, valid for writing as many bytes as given.
    let code = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, into, &raw mut length)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives some bytes into `buffer`, and appends the descriptors that come along; returns the
/// number of bytes, 0 at the end.
///
/// # Errors
/// The kernel's error; [`io::ErrorKind::InvalidData`] if it had to leave descriptors out.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CARRIED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing"));
    }
    Ok(got.bytes)
}

/// Sends some of `bytes`, with `descriptors`; returns the number of bytes sent.
///
/// # Errors
/// The kernel's error.
///
/// # Panics
/// If there are more than [`DESCRIPTORS_MAX`] descriptors.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(fits, "there is room for as many descriptors");
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}
