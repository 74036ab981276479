//! Opening a receive queue of the kernel NIC, once a job has shown that it is worth it.
//!
//! The queue concerns this rank alone: packets arrive in the queue or in the sockets, and other
//! ranks cannot tell, so no other rank is asked. A separate thread opens it, because loading
//! firmware takes 0.1 s or more and an agent may not answer, while the rank must send keep-alives.
//! A job of few calls ends before that.

use crate::job::JobConfig;
use crate::links::Links;
use omnes_nic::without_signals;
use omnes_nic::{Nic, OpenQueue, Preference, QueuePlan};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Instant;

/// Number of calls after which a job is worth a queue.
const CALLS_MIN: u64 = 200;

/// A queue and the indices of the sockets that it serves.
pub(crate) type Opened = (OpenQueue, Vec<usize>);

/// A request to open a queue.
pub(crate) struct QueueRequest {
    preference: Preference,
    not_before: Instant,
    plan: QueuePlan,
    /// The plan's sockets, by index, and their descriptors.
    indices: Vec<usize>,
    sockets: Vec<OwnedFd>,
}

/// A request in progress.
pub(crate) struct Opening(JoinHandle<Option<Opened>>);

impl QueueRequest {
    /// Request for the sockets of `links`; `None` if no packets of the job arrive by a network that
    /// the NIC serves.
    pub(crate) fn new(config: &JobConfig, job: u32, links: &Links) -> Option<Self> {
        let preference = config.receive_queue?;
        // A time that exceeds the clock's range never comes.
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

    /// True after enough calls and enough time.
    pub(crate) fn is_due(&self, calls: u64) -> bool {
        calls >= CALLS_MIN && Instant::now() >= self.not_before
    }

    /// Begins to open the queue; `None` if no thread can be started.
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
    /// True if the request has succeeded or failed.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// The queue; `None` if the kernel NIC is not available.
    pub(crate) fn take(self) -> Option<Opened> {
        self.0.join().ok().flatten()
    }
}
