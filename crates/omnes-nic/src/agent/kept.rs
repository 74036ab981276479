//! What users keep of the slots and queues that were taken back from them.
//!
//! A page or a queue lives, and takes the agent's memory, as long as any process has its descriptor
//! or maps it; the agent cannot take either away. So it counts what is kept. It leaves a descriptor
//! in an epoll instance and closes it: the entry goes with the last use of the file, and as maps
//! cannot be waited for, the kernel reports an error for each that is still there.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub(super) struct Kept {
    epoll: OwnedFd,
    /// Not fewer than there are.
    entries: usize,
}

impl Kept {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, entries: 0 })
    }

    /// Counts what `map` is the descriptor of, from now until nobody keeps it, for a user.
    pub(super) fn add(&mut self, uid: u32, is_queue: bool, map: impl AsFd) {
        let data = EventData::new_u64(u64::from(uid) << 1 | u64::from(is_queue));
        // Without memory for an entry, it is not counted.
        if epoll::add(&self.epoll, map, data, EventFlags::empty()).is_ok() {
            self.entries += 1;
        }
    }

    /// Pages, or queues, that a user keeps.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn count(&mut self, uid: u32, is_queue: bool) -> io::Result<usize> {
        let mut events: Vec<Event> = Vec::with_capacity(self.entries.max(1));
        let no_wait = Timespec::default();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&no_wait))?;
        self.entries = events.len();
        let wanted = u64::from(uid) << 1 | u64::from(is_queue);
        Ok(events.iter().filter(|event| event.data.u64() == wanted).count())
    }
}
