//! Pending output of a group, in the order of urgency; see [`super::emit`].

use std::ops::Range;

/// Steps of one barrier that are to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    pub(super) epoch: u32,
    /// Steps to send, a bit each.
    pub(super) sends: u64,
    /// Next node, for a step that is sent to all nodes one by one.
    pub(super) next_node: u32,
}

/// Members that are to be asked for a message of the barrier in progress.
#[derive(Debug, Default)]
pub(super) struct Nacks {
    /// The step.
    pub(super) step: u32,
    /// Seats of the members, the next one last.
    pub(super) seats: Vec<u32>,
    /// Seat that was asked last, if not all could be asked in one round.
    pub(super) latest: u32,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Steps by parity of the epoch.
    steps: [Steps; 2],
    /// Barrier that this rank has entered and its leader is to be told of.
    pub(super) join: Option<u32>,
    /// Barrier that this rank has entered and the kernel NIC is to be told of, with its first step.
    pub(super) doorbell: Option<(u32, u32)>,
    /// Barrier whose completion the other ranks of this node are told.
    pub(super) released: u32,
    /// Seats of the ranks that are still to be told.
    pub(super) release: Range<u32>,
    pub(super) nacks: Nacks,
    /// Seats of members that are to be asked whether they have completed the barrier.
    pub(super) hearsay: Vec<u32>,
    /// Seat that was asked last.
    pub(super) hearsay_latest: u32,
}

impl Outbox {
    /// Adds steps of barrier `epoch`. Pending steps of barrier `epoch - 2` are dropped, because no
    /// member needs them: all have entered the one in between.
    pub(super) fn add_steps(&mut self, epoch: u32, sends: u64) {
        if sends == 0 {
            return;
        }
        let steps = &mut self.steps[(epoch & 1) as usize];
        if steps.epoch != epoch {
            *steps = Steps { epoch, ..Steps::default() };
        }
        steps.sends |= sends;
    }

    /// Steps of the oldest barrier that has some.
    pub(super) fn steps(&mut self) -> Option<&mut Steps> {
        let [even, odd] = &mut self.steps;
        match (even.sends != 0, odd.sends != 0) {
            (true, true) if odd.epoch == even.epoch.wrapping_sub(1) => Some(odd),
            (true, _) => Some(even),
            (false, true) => Some(odd),
            (false, false) => None,
        }
    }

    /// Drops output that is useful only while the barrier is in progress.
    pub(super) fn withdraw(&mut self) {
        self.join = None;
        self.doorbell = None;
        self.nacks.seats.clear();
        self.hearsay.clear();
    }

    /// True if there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.iter().all(|steps| steps.sends == 0)
            && self.join.is_none()
            && self.doorbell.is_none()
            && self.release.is_empty()
            && self.nacks.seats.is_empty()
            && self.hearsay.is_empty()
    }
}
