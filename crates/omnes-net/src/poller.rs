//! Sleeping until the socket, a connection or another thread has news.

use crate::error::NetError;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::fd::RawFd;
use std::time::Duration;

const WAKER: u64 = u64::MAX;
const CONNECTION: u64 = u64::MAX - 1;
/// Other names are indices of sockets.
const READY_MAX: usize = 32;

/// What ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Woken {
    pub(crate) by_connection: bool,
}

/// See the module header.
pub(crate) struct Poller {
    epoll: OwnedFd,
    waker: OwnedFd,
    sockets: Vec<RawFd>,
}

fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> NetError {
    move |source| NetError::System { what, source: source.into() }
}

/// The descriptor as rustix wants it.
fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the socket and the connections live as long as the engine that owns the poller.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl Poller {
    pub(crate) fn new(
        sockets: Vec<RawFd>,
        connections: impl Iterator<Item = RawFd>,
    ) -> Result<Self, NetError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = eventfd(0, flags).map_err(system("eventfd"))?;
        let add = |fd: BorrowedFd<'_>, name| {
            let data = epoll::EventData::new_u64(name);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(system("epoll_ctl"))
        };
        for (index, socket) in sockets.iter().enumerate() {
            add(borrow(*socket), index as u64)?;
        }
        add(waker.as_fd(), WAKER)?;
        for connection in connections {
            add(borrow(connection), CONNECTION)?;
        }
        Ok(Self { epoll, waker, sockets })
    }

    /// Sleeps until there is news or `timeout` has passed; `wants_room` if packets wait for room
    /// in the socket.
    pub(crate) fn sleep(&self, timeout: Duration, wants_room: bool) -> Woken {
        if wants_room {
            self.watch_sockets(epoll::EventFlags::IN | epoll::EventFlags::OUT);
        }
        let (events, count) = self.wait(timeout);
        if wants_room {
            self.watch_sockets(epoll::EventFlags::IN);
        }
        let mut woken = Woken::default();
        for event in &events[..count] {
            match event.data.u64() {
                WAKER => {
                    let _ = rustix::io::read(&self.waker, &mut [0; 8]);
                }
                CONNECTION => woken.by_connection = true,
                _ => {}
            }
        }
        woken
    }

    fn watch_sockets(&self, flags: epoll::EventFlags) {
        for (index, socket) in self.sockets.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            // Failing costs a late wake-up, which the timeout bounds.
            let _ = epoll::modify(&self.epoll, borrow(*socket), data, flags);
        }
    }

    /// Sockets that have packets at present.
    pub(crate) fn ready(&self) -> impl Iterator<Item = usize> + use<> {
        let (events, count) = self.wait(Duration::ZERO);
        let sockets = self.sockets.len() as u64;
        let names = events.into_iter().take(count).map(|event| event.data.u64());
        names.filter(move |name| *name < sockets).map(|name| name as usize)
    }

    fn wait(&self, timeout: Duration) -> ([epoll::Event; READY_MAX], usize) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; READY_MAX];
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // An interrupted sleep is an early one.
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&timeout)).unwrap_or(0);
        (events, count)
    }

    /// Ends a sleep, from another thread.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}
