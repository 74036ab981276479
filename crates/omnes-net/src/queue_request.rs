//! Opening a receive queue of the kernel NIC, once a job has shown that it is worth it.
//!
//! It concerns this rank alone: packets find the queue or the sockets, and the others cannot tell.
//! So nobody is asked. A thread of its own does it, for loading firmware takes 0.1 s or more and an
//! agent may not answer, while the rank must give signs of life. A job of few calls is over before.

use crate::job::JobConfig;
use crate::links::Links;
use omnes_nic::without_signals;
use omnes_nic::{Nic, OpenQueue, Preference, QueuePlan};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Instant;

/// Calls after which a job is worth a queue.
const CALLS_MIN: u64 = 200;

/// A queue with the sockets that it is for, by index.
pub(crate) type Opened = (OpenQueue, Vec<usize>);

/// A queue to be opened.
pub(crate) struct QueueRequest {
    preference: Preference,
    not_before: Instant,
    plan: QueuePlan,
    /// The plan's sockets, by index, and descriptors of the same.
    indices: Vec<usize>,
    sockets: Vec<OwnedFd>,
}

/// A request that is granted, or is not, soon.
pub(crate) struct Opening(JoinHandle<Option<Opened>>);

impl QueueRequest {
    /// For the sockets of `links`; none if no packets of the job come by a network that the NIC
    /// serves.
    pub(crate) fn new(config: &JobConfig, job: u32, links: &Links) -> Option<Self> {
        let preference = config.receive_queue?;
        // A time beyond all clocks never comes.
        let not_before = Instant::now().checked_add(config.queue_after)?;
        let (plan, indices) = links.queue_plan(job)?;
        let all = links.descriptors();
        let double = |index: &usize| {
            // SAFETY: the sockets live as long as `links`.
            unsafe { BorrowedFd::borrow_raw(all[*index]) }.try_clone_to_owned()
        };
        let sockets = indices.iter().map(double).collect::<Result<_, _>>().ok()?;
        Some(Self { preference, not_before, plan, indices, sockets })
    }

    /// True after so many calls, and so long.
    pub(crate) fn is_due(&self, calls: u64) -> bool {
        calls >= CALLS_MIN && Instant::now() >= self.not_before
    }

    /// Begins to open it; none if there is no thread to be had.
    pub(crate) fn start(self) -> Option<Opening> {
        let builder = std::thread::Builder::new().name("omnes-queue".to_owned());
        let thread = without_signals(|| builder.spawn(move || self.open()));
        thread.ok().map(Opening)
    }

    fn open(self) -> Option<Opened> {
        let mut nic = Nic::obtain(self.preference).ok()?;
        let sockets: Vec<BorrowedFd<'_>> = self.sockets.iter().map(AsFd::as_fd).collect();
        let opened = nic.open_queue(&self.plan, &sockets).ok()?;
        Some((opened, self.indices))
    }
}

impl Opening {
    /// True if it is known whether there is a queue.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// The queue; none where the kernel NIC is not to be had.
    pub(crate) fn take(self) -> Option<Opened> {
        self.0.join().ok().flatten()
    }
}
