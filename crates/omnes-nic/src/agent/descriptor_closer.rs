//! Closes descriptors that processes have handed over, without waiting for it.
//!
//! Closing a descriptor may take as long as its owner wants: a TCP socket that lingers, or a file
//! of a file system that the owner serves; so may closing a connection in which such descriptors
//! wait to be received. Hence other threads close them: one for each user who has left descriptors
//! to close, which ends when all of them are closed. Until then nothing more is read from that
//! user's processes ([`DescriptorCloser::is_busy_with`]), so a user can occupy only that one
//! thread, and only the descriptors of the user's own connections; when these exhaust the agent's
//! descriptors, nobody gets new slots, and all keep what they have.

use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

pub(super) struct DescriptorCloser {
    users: BTreeMap<u32, User>,
    /// Readable when a descriptor has been closed.
    bell: Arc<OwnedFd>,
    done: Receiver<u32>,
    report: Sender<u32>,
}

struct User {
    unclosed: usize,
    work: Sender<Vec<OwnedFd>>,
}

impl DescriptorCloser {
    pub(super) fn new() -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (report, done) = channel();
        Ok(Self { users: BTreeMap::new(), bell, done, report })
    }

    /// Readable when [`Self::collect`] has something to do.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// True while descriptors of this user are still to be closed.
    pub(super) fn is_busy_with(&self, uid: u32) -> bool {
        self.users.contains_key(&uid)
    }

    /// Closes `remains` of a user, eventually.
    pub(super) fn close(&mut self, uid: u32, remains: Vec<OwnedFd>) {
        if remains.is_empty() {
            return;
        }
        let user = match self.users.remove(&uid) {
            Some(user) => user,
            None => match self.begin(uid) {
                Some(work) => User { unclosed: 0, work },
                // No thread can be started: better to wait than to keep them.
                None => return,
            },
        };
        // The thread takes work until the sender is dropped.
        if user.work.send(remains).is_ok() {
            self.users.insert(uid, User { unclosed: user.unclosed + 1, ..user });
        }
    }

    fn begin(&self, uid: u32) -> Option<Sender<Vec<OwnedFd>>> {
        let (work, given) = channel::<Vec<OwnedFd>>();
        let (report, bell) = (self.report.clone(), Arc::clone(&self.bell));
        let thread = std::thread::Builder::new().name("closing".to_owned()).spawn(move || {
            for remains in given {
                drop(remains);
                // After the agent has ended nobody needs the report.
                let _ = report.send(uid);
                let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
            }
        });
        thread.ok().map(|_| work)
    }

    /// Notes what has been closed meanwhile.
    pub(super) fn collect(&mut self) {
        // The bell only says that something has happened.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        for uid in self.done.try_iter() {
            if let Some(user) = self.users.get_mut(&uid) {
                user.unclosed -= 1;
                if user.unclosed == 0 {
                    self.users.remove(&uid);
                }
            }
        }
    }
}
