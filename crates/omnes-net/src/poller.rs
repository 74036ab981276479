//! Sleeping until a socket, a connection or another thread has news.
//!
//! The sockets are polled, not registered with epoll: a registered socket pays a callback for
//! every packet, also while nobody sleeps. The connections, of which there may be many and which
//! hardly ever have news, are behind one epoll descriptor.

use crate::error::NetError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::fd::RawFd;
use std::time::Duration;

/// What ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Woken {
    pub(crate) by_connection: bool,
}

/// See the module header.
pub(crate) struct Poller {
    connections: OwnedFd,
    waker: OwnedFd,
    sockets: Vec<RawFd>,
}

fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> NetError {
    move |source| NetError::System { what, source: source.into() }
}

/// The descriptor as rustix wants it.
fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the sockets and the connections live as long as the engine that owns the poller.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl Poller {
    pub(crate) fn new(
        sockets: Vec<RawFd>,
        connections: impl Iterator<Item = RawFd>,
    ) -> Result<Self, NetError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = eventfd(0, flags).map_err(system("eventfd"))?;
        for connection in connections {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, borrow(connection), data, epoll::EventFlags::IN)
                .map_err(system("epoll_ctl"))?;
        }
        Ok(Self { connections: epoll, waker, sockets })
    }

    /// Sleeps until there is news or `timeout` has passed; `wants_room` if packets wait for room
    /// in a socket.
    pub(crate) fn sleep(&self, timeout: Duration, wants_room: bool) -> Woken {
        let interest = if wants_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut polled = Vec::with_capacity(self.sockets.len() + 2);
        polled.push(PollFd::new(&self.waker, PollFlags::IN));
        polled.push(PollFd::new(&self.connections, PollFlags::IN));
        let sockets = self.sockets.iter().map(|fd| PollFd::from_borrowed_fd(borrow(*fd), interest));
        polled.extend(sockets);
        // An interrupted sleep is an early one.
        if poll(&mut polled, Some(&timespec(timeout))).unwrap_or(0) == 0 {
            return Woken::default();
        }
        if !polled[0].revents().is_empty() {
            let _ = rustix::io::read(self.waker.as_fd(), &mut [0; 8]);
        }
        Woken { by_connection: !polled[1].revents().is_empty() }
    }

    /// Calls `read` for every socket that has packets at present.
    pub(crate) fn for_each_ready(&self, mut read: impl FnMut(usize)) {
        let polled = self.sockets.iter();
        let polled = polled.map(|fd| PollFd::from_borrowed_fd(borrow(*fd), PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = polled.collect();
        if poll(&mut polled, Some(&timespec(Duration::ZERO))).unwrap_or(0) == 0 {
            return;
        }
        let ready = polled.iter().enumerate().filter(|(_, entry)| !entry.revents().is_empty());
        ready.for_each(|(index, _)| read(index));
    }

    /// Ends a sleep, from another thread.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}
