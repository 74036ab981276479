//! How the ranks of a node hand each other their segments: through Unix sockets with abstract
//! names.
//!
//! Such a name belongs to the network namespace and vanishes with its socket, so nothing is left
//! behind. It is derived from the job's key, so a stranger cannot guess it; a process that connects
//! or listens must belong to the same user, as the kernel reports, and prove by the [`Card`] that
//! it knows the key.
//!
//! Every rank connects to every other rank of its node, checks the user of the listener, sends the
//! card with two descriptors, and closes the connection. Each direction is independent. A rank
//! reads its own rings from the start, so if its segment reaches a neighbour, that neighbour may
//! write; if it does not, the neighbour's packets still go by UDP, which costs speed and nothing
//! else.

use super::card::{CARD_BYTES, Card, Secret};
use super::layout::Layout;
use crate::peer_user::own_user;
use omnes_wire::Rank;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Silent connections that are kept in addition to those of the neighbours.
const STRANGERS_MAX: usize = 16;
/// Connections accepted before the time is checked: strangers may connect without end.
const ACCEPTED_AT_ONCE: usize = 64;
/// Time between two attempts to reach a neighbour that does not listen yet.
const RETRY_WAIT: Duration = Duration::from_micros(500);

/// A segment that a neighbour has handed over, not checked yet.
pub(super) struct Seat {
    pub(super) from: Rank,
    pub(super) layout: Layout,
    pub(super) segment: OwnedFd,
    pub(super) event: OwnedFd,
}

/// The end at which this rank receives segments. It listens from its creation.
pub(super) struct Exchange<'a> {
    secret: Secret<'a>,
    me: Rank,
    listener: OwnedFd,
    callers: Vec<OwnedFd>,
    seats: Vec<Seat>,
}

/// The segment that this rank hands to all its neighbours.
#[derive(Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) layout: Layout,
    pub(super) segment: BorrowedFd<'a>,
    pub(super) event: BorrowedFd<'a>,
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// True if the other end of the connection belongs to this user, as the kernel reports. Calls
/// libc directly, because a process whose number this namespace does not know has the number 0.
fn is_own_user(connection: BorrowedFd<'_>) -> bool {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let into = std::ptr::from_mut(&mut credentials).cast();
    // SAFETY: `credentials` and `length` are valid for writing during the call.
    let result = unsafe {
        let fd = connection.as_raw_fd();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &mut length)
    };
    result == 0 && credentials.uid == own_user()
}

impl<'a> Exchange<'a> {
    /// Listens for neighbours of rank `me`.
    ///
    /// # Errors
    /// The kernel's error for the socket or its name.
    pub(super) fn open(secret: Secret<'a>, me: Rank) -> io::Result<Self> {
        let listener = unix_socket()?;
        bind(&listener, &address(&secret.name(me))?)?;
        // As many as the kernel allows: a connection that finds the queue full must be retried.
        listen(&listener, i32::MAX)?;
        Ok(Self { secret, me, listener, callers: Vec::new(), seats: Vec::new() })
    }

    /// Hands `offer` to all `neighbours` and takes theirs, until all are done or `timeout` has
    /// passed; returns the segments taken.
    pub(super) fn run(
        mut self,
        neighbours: &[Rank],
        offer: Offer<'_>,
        timeout: Duration,
    ) -> Vec<Seat> {
        let until = Instant::now() + timeout;
        let mut unsent = neighbours.to_vec();
        loop {
            unsent.retain(|rank| self.push(*rank, offer) == Attempt::Later);
            let has_room = self.let_in(neighbours.len());
            self.hear(neighbours);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero()
                || !has_room
                || (unsent.is_empty() && self.seats.len() == neighbours.len())
            {
                return self.seats;
            }
            self.wait(if unsent.is_empty() { left } else { left.min(RETRY_WAIT) });
        }
    }

    /// Tries to hand this rank's segment to a neighbour.
    fn push(&self, to: Rank, offer: Offer<'_>) -> Attempt {
        let connection = match connect_to(&self.secret.name(to)) {
            Ok(connection) => connection,
            Err(error) => return Attempt::after(&error),
        };
        if !is_own_user(connection.as_fd()) {
            return Attempt::Over;
        }
        let card = Card { from: self.me, to, layout: offer.layout }.emit(self.secret);
        match hand_over(connection.as_fd(), &card, &[offer.segment, offer.event]) {
            Ok(()) => Attempt::Over,
            Err(error) => Attempt::after(&error),
        }
    }

    /// Accepts some connections of the same user; the one that has been silent longest is dropped
    /// if there are too many. False if no descriptor is left for another one.
    fn let_in(&mut self, neighbours: usize) -> bool {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..ACCEPTED_AT_ONCE {
            match accept_with(&self.listener, flags) {
                Ok(connection) if is_own_user(connection.as_fd()) => {
                    if self.callers.len() == neighbours + STRANGERS_MAX {
                        self.callers.remove(0);
                    }
                    self.callers.push(connection);
                }
                Ok(_) => {}
                Err(error) => return !matches!(error, Errno::MFILE | Errno::NFILE),
            }
        }
        true
    }

    /// Reads the cards of accepted connections; a connection is closed once it has sent one.
    fn hear(&mut self, neighbours: &[Rank]) {
        for connection in std::mem::take(&mut self.callers) {
            match take_card(connection.as_fd()) {
                Err(Errno::AGAIN) => self.callers.push(connection),
                Ok((card, descriptors)) => self.admit(&card, descriptors, neighbours),
                Err(_) => {}
            }
        }
    }

    fn admit(&mut self, card: &[u8], descriptors: Vec<OwnedFd>, neighbours: &[Rank]) {
        let Some(Card { from, to, layout }) = Card::parse(card, self.secret) else { return };
        let is_new = !self.seats.iter().any(|seat| seat.from == from);
        let Ok([segment, event]) = <[OwnedFd; 2]>::try_from(descriptors) else { return };
        if to == self.me && is_new && neighbours.contains(&from) {
            self.seats.push(Seat { from, layout, segment, event });
        }
    }

    /// Sleeps until a connection or a card arrives.
    fn wait(&self, most: Duration) {
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(self.callers.iter().map(|caller| PollFd::new(caller, PollFlags::IN)));
        let most =
            Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        // An interrupted wait is shorter.
        let _ = poll(&mut polled, Some(&most));
    }
}

/// Result of an attempt to hand a segment over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// Done, or never possible.
    Over,
    /// To be retried.
    Later,
}

impl Attempt {
    /// A neighbour that does not listen yet, one with too many connections, and too many
    /// descriptors in flight are temporary errors.
    fn after(error: &io::Error) -> Self {
        let passing =
            [libc::ECONNREFUSED, libc::EAGAIN, libc::EINTR, libc::ETOOMANYREFS, libc::ECONNRESET];
        match error.raw_os_error() {
            Some(number) if passing.contains(&number) => Self::Later,
            _ => Self::Over,
        }
    }
}

/// Connects to the process that listens at `name`.
pub(super) fn connect_to(name: &str) -> io::Result<OwnedFd> {
    let connection = unix_socket()?;
    connect(&connection, &address(name)?)?;
    Ok(connection)
}

/// Sends a card, with descriptors: two of them for a valid card.
pub(super) fn hand_over(
    connection: BorrowedFd<'_>,
    card: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let has_room = control.push(SendAncillaryMessage::ScmRights(descriptors));
    assert!(has_room, "room for the descriptors of a card");
    sendmsg(connection, &[IoSlice::new(card)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Data that a connection has sent, and the descriptors that arrived with them.
fn take_card(connection: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut bytes = [0; CARD_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    // The kernel closes descriptors that do not fit.
    let received = recvmsg(connection, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok((bytes[..received.bytes.min(bytes.len())].to_vec(), descriptors))
}
