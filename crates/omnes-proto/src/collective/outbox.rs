//! What a group has to send, in the order of urgency; see [`super::emit`].

use std::ops::Range;

/// Steps of one barrier that are to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    pub(super) epoch: u32,
    /// A bit each.
    pub(super) sends: u64,
    /// Of a step that goes to all one by one, the next node.
    pub(super) next_node: u32,
}

/// Members that are to be asked for a message of the barrier that is under way.
#[derive(Debug, Default)]
pub(super) struct Nacks {
    /// The step.
    pub(super) step: u32,
    /// The members' seats, the next one last.
    pub(super) seats: Vec<u32>,
    /// The seat that was asked last, where not all could be at a time.
    pub(super) latest: u32,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// By parity of the epoch.
    steps: [Steps; 2],
    /// This rank has entered: its leader is told.
    pub(super) join: Option<u32>,
    /// This rank has entered: the kernel NIC is told, with this step.
    pub(super) doorbell: Option<(u32, u32)>,
    /// The barrier of which the others of this node are told that it is done.
    pub(super) released: u32,
    /// The seats of those that are still to be told.
    pub(super) release: Range<u32>,
    pub(super) nacks: Nacks,
    /// The seats of members that are to be asked whether they are done.
    pub(super) hearsay: Vec<u32>,
    /// The seat that was asked last.
    pub(super) hearsay_latest: u32,
}

impl Outbox {
    /// Adds steps of barrier `epoch`. What is left of the barrier two before is of no use to
    /// anybody: all have entered the one in between.
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

    /// Takes back what only makes sense while the barrier is under way.
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
