//! How the ranks of a node hand each other their segments: through Unix sockets with abstract
//! names.
//!
//! Such a name belongs to the network namespace and vanishes with its socket, so nothing is left
//! behind. It follows from the job's key, so a stranger cannot guess it; a process that connects or
//! listens must belong to the same user, as the kernel tells, and prove by the [`Card`] that it
//! knows the key.
//!
//! Every rank pushes to every other of its node: connect, check who listens, send the card with two
//! descriptors, close. Each direction stands for itself. A rank reads its own rings from the start,
//! so if its segment reaches a neighbour, that neighbour may write; if it does not, the neighbour's
//! packets go by UDP as before, which costs speed and nothing else.

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

/// Silent connections that are kept beside those of the neighbours.
const STRANGERS_MAX: usize = 16;
/// Connections that are looked at before the time is: strangers may come without end.
const ACCEPTED_AT_ONCE: usize = 64;
/// Time between two attempts to reach a neighbour that does not listen yet.
const RETRY_WAIT: Duration = Duration::from_micros(500);

/// What a neighbour has handed over; not looked at yet.
pub(super) struct Seat {
    pub(super) from: Rank,
    pub(super) layout: Layout,
    pub(super) segment: OwnedFd,
    pub(super) event: OwnedFd,
}

/// Where this rank is handed segments. Listening from the moment it is made.
pub(super) struct Exchange<'a> {
    secret: Secret<'a>,
    me: Rank,
    listener: OwnedFd,
    callers: Vec<OwnedFd>,
    seats: Vec<Seat>,
}

/// What this rank hands to all its neighbours.
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

/// True if the other end of the connection is this user's, as the kernel says. By hand, since a
/// process whose number this namespace does not know has the number 0.
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
    /// What the kernel says of the socket or its name.
    pub(super) fn open(secret: Secret<'a>, me: Rank) -> io::Result<Self> {
        let listener = unix_socket()?;
        bind(&listener, &address(&secret.name(me))?)?;
        // As many as the kernel allows: who comes when it is full must come again.
        listen(&listener, i32::MAX)?;
        Ok(Self { secret, me, listener, callers: Vec::new(), seats: Vec::new() })
    }

    /// Hands `offer` to all `neighbours` and takes theirs, until all is done or `timeout` has
    /// passed; what was taken.
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

    /// Takes some connections of the same user; who has been silent longest makes way. False if
    /// there is no descriptor for another one.
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

    /// Listens to those who have come; a connection is over once it has spoken.
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

    /// Sleeps until somebody comes or speaks.
    fn wait(&self, most: Duration) {
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(self.callers.iter().map(|caller| PollFd::new(caller, PollFlags::IN)));
        let most =
            Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        // An interrupted wait is a short one.
        let _ = poll(&mut polled, Some(&most));
    }
}

/// What became of an attempt to hand a segment over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// Done, or never to be done.
    Over,
    /// To be tried again.
    Later,
}

impl Attempt {
    /// A neighbour that does not listen yet, one with too many callers, and too many descriptors
    /// under way pass.
    fn after(error: &io::Error) -> Self {
        let passing =
            [libc::ECONNREFUSED, libc::EAGAIN, libc::EINTR, libc::ETOOMANYREFS, libc::ECONNRESET];
        match error.raw_os_error() {
            Some(number) if passing.contains(&number) => Self::Later,
            _ => Self::Over,
        }
    }
}

/// A connection to whoever listens under `name`.
pub(super) fn connect_to(name: &str) -> io::Result<OwnedFd> {
    let connection = unix_socket()?;
    connect(&connection, &address(name)?)?;
    Ok(connection)
}

/// Sends a card, with descriptors: two of them, if it is to be of use.
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

/// What a connection has said, and the descriptors that came with it.
fn take_card(connection: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut bytes = [0; CARD_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    // What does not fit the room for descriptors is closed by the kernel.
    let received = recvmsg(connection, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok((bytes[..received.bytes.min(bytes.len())].to_vec(), descriptors))
}
