//! Opening a receive queue of the kernel's NIC, once a job has shown that it is worth it.
//!
//! It concerns this rank alone: packets find the queue or the sockets, and the others cannot tell.
//! So nobody is asked, and the progress thread does it, beside the callers: loading firmware takes
//! milliseconds. A job of few calls is over before.

use crate::links::Links;
use omnes_nic::{Nic, OpenQueue, Preference, QueuePlan};
use std::os::fd::{BorrowedFd, RawFd};

/// Calls after which a job is worth a queue.
const CALLS_MIN: u64 = 200;

/// A queue to be opened.
pub(crate) struct QueueWish {
    preference: Preference,
    plan: QueuePlan,
    /// The plan's sockets, by index, and their descriptors.
    sockets: Vec<usize>,
    descriptors: Vec<RawFd>,
}

impl QueueWish {
    /// For the sockets of `links`; none if no packets of the job come by a network that the NIC
    /// serves.
    pub(crate) fn new(preference: Option<Preference>, job: u32, links: &Links) -> Option<Self> {
        let (plan, sockets) = links.queue_plan(job)?;
        let all = links.descriptors();
        let descriptors = sockets.iter().map(|index| all[*index]).collect();
        Some(Self { preference: preference?, plan, sockets, descriptors })
    }

    /// True after so many calls.
    pub(crate) fn is_due(&self, calls: u64) -> bool {
        calls >= CALLS_MIN
    }

    /// Opens it, with the sockets it is for; none where the kernel's NIC is not to be had.
    pub(crate) fn fulfil(self) -> Option<(OpenQueue, Vec<usize>)> {
        let mut nic = Nic::obtain(self.preference).ok()?;
        // SAFETY: the sockets live as long as the engine, which waits for its thread.
        let borrow = |fd: &RawFd| unsafe { BorrowedFd::borrow_raw(*fd) };
        let sockets: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(borrow).collect();
        let opened = nic.open_queue(&self.plan, &sockets).ok()?;
        Some((opened, self.sockets))
    }
}
