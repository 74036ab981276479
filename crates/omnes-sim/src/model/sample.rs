//! Times of each operation, over all ranks.

use super::net::{Event, Net};
use super::plan::{OPERATION_BYTES, Op};
use crate::engine::{Span, Time};

/// Times of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Number of the operation, counted over all repetitions.
    pub number: u32,
    /// Time at which the first rank began.
    pub first_began: Time,
    /// Time at which the last rank began.
    pub last_began: Time,
    /// Time at which the root, or the sender, began; the first rank if there is none.
    pub root_began: Time,
    /// Time at which the root's call ended.
    pub root_ended: Time,
    /// Time at which the call of the last other rank ended.
    pub others_ended: Time,
    /// Time at which the call of the last rank ended.
    pub ended: Time,
    /// Time spent in the call, summed over all ranks, in picoseconds: may exceed the range of
    /// [`Span`].
    in_call_ps: u128,
    /// Number of ranks that have ended the operation.
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

    /// Time from the root's start until the last rank is done.
    pub fn from_root(&self) -> Span {
        self.ended - self.root_began
    }

    /// Time spent in the call, averaged over the ranks that have ended the operation.
    pub fn mean_in_call(&self) -> Span {
        let mean = self.in_call_ps.checked_div(u128::from(self.ranks)).unwrap_or_default();
        Span::from_ps(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

impl Net {
    /// All ranks start, or continue after a meeting.
    pub(super) fn release(&mut self, at: Time) {
        self.met = 0;
        for host in 0..self.ranks {
            self.push(at, Event::Go { host });
        }
    }

    fn sample(&mut self, number: u32) -> &mut Sample {
        // Operations arrive in order, so the newest is at the end.
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

/// The rank that sends first.
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
    fn mean_call_time_of_many_ranks_does_not_overflow() {
        let late: u64 = 3000 * 1_000_000_000_000;
        let in_call_ps = u128::from(late) * 65_536;
        let sample = Sample { in_call_ps, ranks: 65_536, ..Sample::new(0) };
        assert_eq!(sample.mean_in_call(), Span::from_ps(late));
        assert_eq!(Sample::new(0).mean_in_call(), Span::ZERO);
    }
}
