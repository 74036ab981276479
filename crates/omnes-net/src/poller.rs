//! Sleeping until a socket, a connection or another thread has news.
//!
//! The sockets are polled, not registered with epoll: a registered socket runs a callback for every
//! packet, even while no thread sleeps. The connections are behind the one descriptor of
//! [`crate::watch`].

use crate::links::CONNECTED_RANKS_MAX;
use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::time::Duration;

/// Most descriptors that are polled together: a socket for each peer, the NIC's two, the group's
/// two, the waker and the connections.
const POLLED_MAX: usize = CONNECTED_RANKS_MAX as usize + 6;

/// Longest sleep if the kernel cannot report which descriptors have news.
const BLIND_SLEEP_MAX: Duration = Duration::from_millis(1);

/// The reason for the end of a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Woken {
    pub(crate) by_connection: bool,
    /// Another thread, or a rank of this node, has woken the poller; only one sleeping thread sees
    /// it.
    pub(crate) by_waker: bool,
    /// The first socket that has packets.
    pub(crate) by_socket: Option<usize>,
}

/// See the module header.
pub(crate) struct Poller {
    connections: RawFd,
    waker: OwnedFd,
    sockets: Vec<RawFd>,
    /// Number of sockets, from the first, that receive packets.
    readable: usize,
}

/// The descriptor in the type that rustix expects.
fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the sockets and the connections live as long as the engine that owns the poller.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl Poller {
    /// Creates a poller for `sockets`, of which the first `readable` are polled for packets, and
    /// the descriptor that reports on `connections`. `waker` is an eventfd that others may write to
    /// as well.
    pub(crate) fn new(
        sockets: Vec<RawFd>,
        readable: usize,
        connections: RawFd,
        waker: OwnedFd,
    ) -> Self {
        Self { connections, waker, sockets, readable }
    }

    /// Sleeps until there is news or `timeout` has passed; `blocked` is a socket in which packets
    /// wait for room.
    pub(crate) fn sleep(&self, timeout: Duration, blocked: Option<usize>) -> Woken {
        let mut polled: ArrayVec<PollFd<'_>, POLLED_MAX> = ArrayVec::new();
        polled.push(PollFd::new(&self.waker, PollFlags::IN));
        polled.push(PollFd::from_borrowed_fd(borrow(self.connections), PollFlags::IN));
        polled.extend(self.readable());
        if let Some(index) = blocked {
            polled.push(PollFd::from_borrowed_fd(borrow(self.sockets[index]), PollFlags::OUT));
        }
        match poll(&mut polled, Some(&timespec(timeout))) {
            // An interrupted sleep ends early.
            Ok(0) | Err(Errno::INTR) => return Woken::default(),
            Ok(_) => {}
            // For instance if the limit of descriptors has been lowered: connections and sockets
            // are then read without knowing which have news.
            Err(_) => {
                std::thread::sleep(timeout.min(BLIND_SLEEP_MAX));
                return Woken { by_connection: true, ..Woken::default() };
            }
        }
        let has_news = |entry: &PollFd<'_>| !entry.revents().is_empty();
        let by_waker = has_news(&polled[0]);
        if by_waker {
            let _ = rustix::io::read(self.waker.as_fd(), &mut [0; 8]);
        }
        let by_socket = polled[2..][..self.readable].iter().position(has_news);
        Woken { by_connection: has_news(&polled[1]), by_waker, by_socket }
    }

    fn readable(&self) -> impl Iterator<Item = PollFd<'_>> {
        let sockets = self.sockets[..self.readable].iter();
        sockets.map(|fd| PollFd::from_borrowed_fd(borrow(*fd), PollFlags::IN))
    }

    /// Calls `read` for every socket that has packets.
    pub(crate) fn for_each_ready(&self, mut read: impl FnMut(usize)) {
        let mut polled: ArrayVec<PollFd<'_>, POLLED_MAX> = self.readable().collect();
        let is_blind = match poll(&mut polled, Some(&timespec(Duration::ZERO))) {
            Ok(0) => return,
            Ok(_) => false,
            Err(_) => true,
        };
        let is_ready = |entry: &PollFd<'_>| is_blind || !entry.revents().is_empty();
        let ready = polled.iter().enumerate().filter(|(_, entry)| is_ready(entry));
        ready.for_each(|(index, _)| read(index));
    }

    /// Ends a sleep of another thread.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}
