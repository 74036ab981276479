//! How a sender wakes a sleeping reader, and does not disturb one that is awake.
//!
//! A reader sleeps in `poll`, together with its sockets, so a wake-up is a write to its eventfd: a
//! system call, which is only worth it while the reader sleeps. The reader's board says whether it
//! sleeps, in one word for all its rings.
//!
//! No wake-up is lost:
//!
//! ```text
//!   reader                               sender
//!   R1  sleeping = 1                     S1  tail = new          (publish)
//!   R2  fence                            S2  fence
//!   R3  look at every tail               S3  look at sleeping
//!   R4  sleep if all rings are empty     S4  wake it if it was 1, and set it to 0
//! ```
//!
//! Sequentially consistent fences have one order. If R2 precedes S2, S3 sees the value written by
//! R1, so the sender wakes the reader; if S2 precedes R2, R3 sees the value written by S1, so the
//! reader does not sleep. A wake-up before R4 leaves the eventfd readable, and `poll` returns
//! immediately. Due to the swap in S4, only one of several senders wakes the reader. The reader
//! sets the word back to 0 when it is awake; a sender that has seen the 1 before causes one
//! unnecessary wake-up, which is harmless.

use super::layout::Layout;
use super::map::BoardMap;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

/// Wake-up of this rank: its eventfd, and the word that says whether it sleeps.
pub struct WakeEvent {
    board: BoardMap,
    event: OwnedFd,
}

impl WakeEvent {
    pub(super) fn new(segment: BorrowedFd<'_>, layout: &Layout) -> io::Result<Self> {
        Ok(Self { board: BoardMap::open(segment, layout)?, event: event()? })
    }

    /// Creates a wake event on a board without a file.
    #[cfg(test)]
    pub(super) fn of(board: BoardMap) -> io::Result<Self> {
        Ok(Self { board, event: event()? })
    }

    /// The descriptor that becomes readable when another rank wakes this one.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Announces that this rank is about to sleep; it may only do so if it then finds its rings
    /// empty.
    pub fn arm(&self) {
        self.board.sleeping().store(1, Ordering::Relaxed); // R1
        fence(Ordering::SeqCst); // R2
    }

    /// Announces that this rank is awake.
    pub fn disarm(&self) {
        self.board.sleeping().store(0, Ordering::Relaxed);
    }
}

/// Wake-up of another rank.
pub struct Waker {
    board: BoardMap,
    event: OwnedFd,
}

impl Waker {
    pub(super) fn new(
        segment: BorrowedFd<'_>,
        layout: &Layout,
        event: OwnedFd,
    ) -> io::Result<Self> {
        Ok(Self { board: BoardMap::open(segment, layout)?, event })
    }

    /// Creates a waker on a board without a file.
    #[cfg(test)]
    pub(super) fn of(board: BoardMap, event: OwnedFd) -> Self {
        Self { board, event }
    }

    /// Wakes the reader if it sleeps; true if it did. [`order`] must have been called between
    /// publishing and this.
    pub fn wake(&self) -> bool {
        let sleeping = self.board.sleeping();
        // S3 and S4. The swap orders nothing: the write to the eventfd is a system call.
        if sleeping.load(Ordering::Relaxed) == 0 || sleeping.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        // The write fails if the counter is full, and then the eventfd is readable.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        true
    }
}

/// A new eventfd, as used by wake events.
pub(super) fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// S2 above: once for all rings that have been published, before their readers are woken.
pub fn order() {
    fence(Ordering::SeqCst);
}
