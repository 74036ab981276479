//! Sleeping until the socket, a connection or another thread has news.

use crate::error::NetError;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::fd::RawFd;
use std::time::Duration;

const SOCKET: u64 = 0;
const WAKER: u64 = 1;
const CONNECTION: u64 = 2;

/// What ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Woken {
    pub(crate) by_connection: bool,
}

/// See the module header.
pub(crate) struct Poller {
    epoll: OwnedFd,
    waker: OwnedFd,
    socket: RawFd,
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
        socket: RawFd,
        connections: impl Iterator<Item = RawFd>,
    ) -> Result<Self, NetError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = eventfd(0, flags).map_err(system("eventfd"))?;
        let add = |fd: BorrowedFd<'_>, name| {
            let data = epoll::EventData::new_u64(name);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(system("epoll_ctl"))
        };
        add(borrow(socket), SOCKET)?;
        add(waker.as_fd(), WAKER)?;
        for connection in connections {
            add(borrow(connection), CONNECTION)?;
        }
        Ok(Self { epoll, waker, socket })
    }

    /// Sleeps until there is news or `timeout` has passed; `wants_room` if packets wait for room
    /// in the socket.
    pub(crate) fn sleep(&self, timeout: Duration, wants_room: bool) -> Woken {
        if wants_room {
            self.watch_socket(epoll::EventFlags::IN | epoll::EventFlags::OUT);
        }
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 8];
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // An interrupted sleep is an early one.
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&timeout)).unwrap_or(0);
        if wants_room {
            self.watch_socket(epoll::EventFlags::IN);
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

    fn watch_socket(&self, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(SOCKET);
        // Failing costs a late wake-up, which the timeout bounds.
        let _ = epoll::modify(&self.epoll, borrow(self.socket), data, flags);
    }

    /// Ends a sleep, from another thread.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}
