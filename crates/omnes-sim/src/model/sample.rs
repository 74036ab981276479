//! What became of each operation, of all ranks together.

use super::net::{Event, Net};
use super::plan::{OPERATION_BYTES, Op};
use crate::engine::{Span, Time};

/// What became of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The operation, counted over all repetitions.
    pub number: u32,
    /// When the first rank began.
    pub first_began: Time,
    /// When the last one did.
    pub last_began: Time,
    /// When the root, or the sender, began; the first rank where there is none.
    pub root_began: Time,
    /// When the root's call was over.
    pub root_ended: Time,
    /// When that of the last other rank was.
    pub others_ended: Time,
    /// When the last rank's was.
    pub ended: Time,
    /// Time in the call, of all ranks together, in picoseconds: more than a span may last.
    in_call_ps: u128,
    /// Ranks that have ended it.
    pub ranks: u32,
}

impl Sample {
    fn new(number: u32) -> Self {
        Self {
            number,
            first_began: Time::from_ps(u64::MAX),
            last_began: Time::ZERO,
            root_began: Time::from_ps(u64::MAX),
            root_ended: Time::ZERO,
            others_ended: Time::ZERO,
            ended: Time::ZERO,
            in_call_ps: 0,
            ranks: 0,
        }
    }

    /// From the root's begin until the last rank is done.
    pub fn from_root(&self) -> Span {
        self.ended - self.root_began
    }

    /// Time in the call, on average over the ranks that have ended it.
    pub fn mean_in_call(&self) -> Span {
        let mean = self.in_call_ps.checked_div(u128::from(self.ranks)).unwrap_or_default();
        Span::from_ps(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

impl Net {
    /// All ranks begin, or go on after a meeting.
    pub(super) fn release(&mut self, at: Time) {
        self.met = 0;
        for host in 0..self.ranks {
            self.push(at, Event::Go { host });
        }
    }

    fn sample(&mut self, number: u32) -> &mut Sample {
        // Operations come in order, so the newest is at the end.
        let found = self.samples.binary_search_by_key(&number, |sample| sample.number);
        let at = found.unwrap_or_else(|at| {
            self.samples.insert(at, Sample::new(number));
            at
        });
        &mut self.samples[at]
    }

    pub(super) fn began(&mut self, rank: u32, number: u32, op: Op, at: Time) {
        let sample = self.sample(number);
        sample.first_began = sample.first_began.min(at);
        sample.last_began = sample.last_began.max(at);
        if rank == root_of(op) {
            sample.root_began = at;
        }
    }

    pub(super) fn ended(&mut self, rank: u32, number: u32, op: Op, (began, ended): (Time, Time)) {
        self.done_bytes += OPERATION_BYTES;
        let sample = self.sample(number);
        sample.ended = sample.ended.max(ended);
        sample.in_call_ps += u128::from((ended - began).as_ps());
        sample.ranks += 1;
        if rank == root_of(op) {
            sample.root_ended = ended;
        } else {
            sample.others_ended = sample.others_ended.max(ended);
        }
    }
}

/// Who sends first.
fn root_of(op: Op) -> u32 {
    match op {
        Op::Bcast { root, .. } | Op::Compute { root, .. } => root,
        Op::Message { from, .. } | Op::Stream { from, .. } => from,
        Op::Barrier(_) | Op::Meet => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_long_calls_of_many_ranks_is_theirs() {
        let late: u64 = 3000 * 1_000_000_000_000;
        let in_call_ps = u128::from(late) * 65_536;
        let sample = Sample { in_call_ps, ranks: 65_536, ..Sample::new(0) };
        assert_eq!(sample.mean_in_call(), Span::from_ps(late));
        assert_eq!(Sample::new(0).mean_in_call(), Span::ZERO);
    }
}
