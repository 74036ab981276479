//! Groups that are closed and over: other members may lack a message of the last barrier.
//!
//! If a barrier is complete here, it has begun everywhere, so no member asks for an earlier one;
//! and every message that a member can lack of a completed barrier carries its results. So only
//! number and results are kept, for each closed communicator, as long as the job lives: its number
//! is not reused.

use super::Collective;
use super::emit::header;
use super::group::{Group, Phase};
use super::interface::{Outbound, STEP_JOIN};
use crate::packet::Destination;
use omnes_wire::{Header, Kind, Words};

/// Remaining state of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dormant {
    /// Newest completed barrier.
    done: u32,
    /// Results of that barrier.
    results: Words,
    is_nic: bool,
}

impl Group {
    /// True if nothing is in progress or to be sent, and the caller has closed the group.
    fn is_over(&self) -> bool {
        self.is_closed && self.phase == Phase::Idle && !self.is_ready && !self.has_output()
    }
}

impl Collective {
    /// Replaces a group that is closed and over by its final state.
    pub(super) fn make_dormant(&mut self, at: usize) {
        let group = &self.groups[at];
        if group.is_over() {
            let Group { communicator, done, results, .. } = *group;
            let dormant = Dormant { done, results, is_nic: group.is_nic() };
            self.remove(communicator);
            self.dormant.insert(communicator, dormant);
        }
    }

    /// Handles a packet about a group of which only the final state is left.
    pub(super) fn answer_dormant(&mut self, asked: &Header, dormant: Dormant) {
        let Dormant { done, results, is_nic } = dormant;
        let (to, communicator, step) = (asked.source, asked.communicator, asked.argument);
        match asked.kind {
            Kind::StepNack if asked.seq.0 != done => self.common.counters.ignored += 1,
            // The words of this rank are gone; but its leader gets the results.
            Kind::StepAsk => self.common.tell(asked, (done, done), results),
            Kind::StepNack if step == STEP_JOIN => self.common.tell(asked, (done, done), results),
            Kind::StepNack => {
                let to = if is_nic && step < STEP_JOIN {
                    Destination::Nic { to, communicator }
                } else {
                    Destination::Rank(to)
                };
                let header = header(self.me, communicator, Kind::Step, done, step);
                self.common.answer(Outbound::carrying(to, header, results));
            }
            _ => self.common.counters.ignored += 1,
        }
    }
}
