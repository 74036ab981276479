//! Groups that are closed, and over: others may miss a message of the last barrier.
//!
//! A barrier that is done here has begun everywhere, so nobody asks for an earlier one; and all
//! that anybody can miss of one that is done carries its result. So that is all that is kept, of
//! each communicator that was closed, as long as the job lives: its number is not used again.

use super::Collective;
use super::emit::header;
use super::group::{Group, Phase};
use super::interface::{Outbound, STEP_JOIN};
use crate::packet::Destination;
use omnes_wire::{Header, Kind, Words};

/// What is left of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rested {
    /// Newest barrier that is done.
    done: u32,
    /// What the words of all make there.
    results: Words,
    is_nic: bool,
}

impl Group {
    /// True if nothing is under way or to be sent, and the caller asks for nothing more.
    fn is_over(&self) -> bool {
        self.is_closed && self.phase == Phase::Idle && !self.is_ready && !self.has_output()
    }
}

impl Collective {
    /// Forgets a group that is closed and over, but for its end.
    pub(super) fn put_to_rest(&mut self, at: usize) {
        let group = &self.groups[at];
        if group.is_over() {
            let Group { communicator, done, results, .. } = *group;
            let rested = Rested { done, results, is_nic: group.is_nic() };
            self.remove(communicator);
            self.rested.insert(communicator, rested);
        }
    }

    /// Handles a packet about a group of which nothing else is left.
    pub(super) fn answer_from_rest(&mut self, asked: &Header, rested: Rested) {
        let Rested { done, results, is_nic } = rested;
        let (to, communicator, step) = (asked.source, asked.communicator, asked.argument);
        match asked.kind {
            Kind::StepNack if asked.seq.0 != done => self.common.counters.ignored += 1,
            // The words that this rank has brought are gone; but its leader hears what all make.
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
