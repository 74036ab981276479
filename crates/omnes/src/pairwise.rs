//! Pairwise exchange: every rank sends data to every other. In each step it sends to the next rank
//! further on, and receives from the next one further back, so that each rank has one sender and
//! one receiver at a time.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use crate::in_flight::InFlight;

/// Steps in progress at the same time, by count or by bytes, whichever are more: enough to hide the
/// latency of an acknowledgement, and no more senders to one rank than a switch can buffer.
const STEPS_MIN: usize = 4;
const STEP_BYTES_MAX: usize = 512 << 10;

/// Number of steps of `bytes` bytes each, at least 1, that are in progress at the same time.
pub(crate) fn steps_at_once(bytes: usize) -> usize {
    (STEP_BYTES_MAX / bytes).max(STEPS_MIN)
}

/// True if `steps` steps that have `bytes` bytes together may be in progress at the same time.
pub(crate) fn may_be_at_once(steps: usize, bytes: usize) -> bool {
    steps <= STEPS_MIN || bytes <= STEP_BYTES_MAX
}

impl Communicator {
    /// Sends `outgoing(to)` to each other rank, `at_once` steps at a time; receives from it into
    /// `room(step, from)`, and passes that to `take`, in order of steps, which begin with 1. Empty
    /// parts are sent as messages, too, so that no rank takes a message for one that was not sent.
    ///
    /// # Safety
    /// Outgoing data must not change, and rooms must not be accessed otherwise, until this returns;
    /// rooms of steps less than `at_once` apart must be disjoint.
    pub(crate) unsafe fn exchange_pairwise(
        &self,
        purpose: Purpose,
        at_once: usize,
        outgoing: impl Fn(u32) -> Bytes,
        room: impl Fn(u32, u32) -> Bytes,
        mut take: impl FnMut(Bytes),
    ) -> Result<(), Error> {
        let (me, size) = (u64::from(self.rank()), u64::from(self.size()));
        let to = |step: u32| ((me + u64::from(step)) % size) as u32;
        let from = |step: u32| ((me + size - u64::from(step)) % size) as u32;
        let (mut receives, mut sends) = (InFlight::new(self), InFlight::new(self));
        let mut started = 1;
        for step in 1..self.size() {
            let ahead = (step as usize + at_once).min(self.size() as usize) as u32;
            for next in started..ahead {
                let room = room(next, from(next));
                // SAFETY: promised by the caller.
                unsafe { receives.receive(from(next), purpose, room)? };
            }
            for next in started..ahead {
                sends.wait_until_left(at_once - 1)?;
                let data = outgoing(to(next));
                // SAFETY: promised by the caller.
                unsafe { sends.send(to(next), purpose, data)? };
            }
            started = ahead;
            let came = room(step, from(step));
            receives.wait_for(came.length)?;
            take(came);
        }
        sends.wait_until_left(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_step_limit_is_the_same_by_count_and_by_bytes() {
        for bytes in [1, 1000, STEP_BYTES_MAX / 5, STEP_BYTES_MAX / 4, STEP_BYTES_MAX + 1] {
            let steps = (1..).take_while(|steps| may_be_at_once(*steps, steps * bytes));
            assert_eq!(steps.count(), steps_at_once(bytes));
        }
    }
}
