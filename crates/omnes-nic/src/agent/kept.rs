//! Pages and queues that users keep after they were taken back.
//!
//! A page or a queue lives, and takes the agent's memory, as long as any process has its descriptor
//! or maps it; the agent cannot take either away. So it counts what is kept. It adds the descriptor
//! to an epoll instance and closes it: the entry vanishes with the last use of the file and,
//! because maps cannot be polled, the kernel reports an error for each that still exists.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub(super) struct Kept {
    epoll: OwnedFd,
    /// At least as many as exist.
    entries: usize,
}

impl Kept {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, entries: 0 })
    }

    /// Counts what `map` refers to, from now until no process keeps it, for a user.
    pub(super) fn add(&mut self, uid: u32, is_queue: bool, map: impl AsFd) {
        let data = EventData::new_u64(u64::from(uid) << 1 | u64::from(is_queue));
        // Without memory for an entry, it is not counted.
        if epoll::add(&self.epoll, map, data, EventFlags::empty()).is_ok() {
            self.entries += 1;
        }
    }

    /// Number of pages, or queues, that a user keeps.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn count(&mut self, uid: u32, is_queue: bool) -> io::Result<usize> {
        let mut events: Vec<Event> = Vec::with_capacity(self.entries.max(1));
        let no_wait = Timespec::default();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&no_wait))?;
        self.entries = events.len();
        let wanted = u64::from(uid) << 1 | u64::from(is_queue);
        Ok(events.iter().filter(|event| event.data.u64() == wanted).count())
    }
}
