//! Schedules: sequences of messages of this rank, such as those of a nonblocking collective
//! [Hoefler, Lumsdaine, Rehm 2007].
//!
//! A *schedule* is a list of rounds. A round starts all its messages concurrently; when they have
//! ended it folds the received data into those in place, and the next round starts. Schedules are
//! advanced in each step of the core, so they make progress whichever thread drives the core: a
//! caller that waits for something else, or the progress thread while the application computes.
//!
//! Guarantees: memory is used from the start until the operation has ended or been released, and no
//! message of a schedule is in progress afterwards. A message that fails ends the schedule with its
//! error, and so does a message whose length differs from that of its memory. Such an error takes
//! effect when the messages after it in the round have ended, because only the last pending one is
//! checked; if the schedule takes all lengths, a wrong length takes effect when all messages have
//! ended, so that none of them is mistaken for another. Cost: nothing in a step without schedules,
//! otherwise one check per schedule.

use crate::core::Core;
use crate::operations::{Operation, OperationError, OperationId, OperationKind, Outcome, Spot};
use crate::waiting::LONG_BYTES;
use omnes_proto::channel::{Message, Pattern, Reply};
use omnes_wire::{CommunicatorId, Rank};
use std::collections::VecDeque;
use std::ptr::NonNull;

/// Memory of a message of a schedule, and the rank with which it is exchanged.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The other side; a rank of the job, not this one.
    pub with: Rank,
    /// Start of the memory.
    pub base: NonNull<u8>,
    /// Length of the memory and of the message, in bytes.
    pub bytes: usize,
}

/// Combines received data, `from`, with data in place.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    /// First operand and result.
    pub into: NonNull<u8>,
    /// Second operand, which is only read.
    pub from: NonNull<u8>,
    /// Length of both, in bytes.
    pub bytes: usize,
}

/// See the module header.
#[derive(Clone, Default, Debug)]
pub struct Round {
    /// Messages to send.
    pub sends: Vec<Transfer>,
    /// Messages to receive.
    pub receives: Vec<Transfer>,
    /// Folds to compute in this order once all messages have ended.
    pub folds: Vec<Fold>,
}

/// Combines the elements of two buffers of equal length into the first.
pub type Combiner = fn(&mut [u8], &[u8]);

/// See the module header.
pub struct Schedule {
    /// The channel of its messages.
    pub channel: usize,
    /// Their communicator.
    pub communicator: CommunicatorId,
    /// Their tag, which no other messages use meanwhile.
    pub tag: u32,
    /// The rounds, in order.
    pub rounds: VecDeque<Round>,
    /// Combines the operands of folds.
    pub combine: Combiner,
    /// True if messages whose length differs from their memory end it only when all have ended.
    pub takes_all_lengths: bool,
    /// Memory of its own, which may contain transfers and folds.
    pub room: Vec<u8>,
}

/// A message in progress.
struct Pending {
    operation: Operation,
    /// The required length, for a receive.
    expected: Option<u64>,
}

/// A schedule in progress.
pub(crate) struct Running {
    /// `None` if no caller waits for it.
    id: Option<OperationId>,
    schedule: Schedule,
    pending: Vec<Pending>,
    folds: Vec<Fold>,
    /// Error of the first message whose length differs from its memory.
    of_length: Option<OperationError>,
}

impl Core {
    /// Starts a schedule.
    ///
    /// # Safety
    /// The memory of transfers and folds must be valid, and not be used otherwise, until the
    /// operation has ended or been released; data to send are only read.
    pub(crate) unsafe fn start_schedule(
        &mut self,
        schedule: Schedule,
    ) -> Result<Operation, OperationError> {
        self.check_standing()?;
        let (id, channel) = (self.operations.start(), schedule.channel);
        let bytes = |round: &Round| round.receives.iter().map(|it| it.bytes as u64).sum::<u64>();
        let is_long = schedule.rounds.iter().map(bytes).sum::<u64>() >= LONG_BYTES;
        self.push_schedule(schedule, Some(id));
        let (kind, spot) = (OperationKind::Schedule, Spot::Anywhere);
        Ok(Operation { id, channel, kind, spot, is_long })
    }

    /// Starts a schedule whose outcome is discarded.
    ///
    /// # Safety
    /// As for [`Self::start_schedule`], until the core is dropped.
    pub(crate) unsafe fn run_schedule(&mut self, schedule: Schedule) -> Result<(), OperationError> {
        self.check_standing()?;
        self.push_schedule(schedule, None);
        Ok(())
    }

    fn push_schedule(&mut self, schedule: Schedule, id: Option<OperationId>) {
        let (pending, folds, of_length) = (Vec::new(), Vec::new(), None);
        self.schedules.push(Running { id, schedule, pending, folds, of_length });
        self.advance_schedules();
    }

    /// Starts the rounds that are due.
    pub(crate) fn advance_schedules(&mut self) {
        while !self.schedules.is_empty() {
            let ended = self.operations.ended;
            // Starting messages settles events, which leads here again.
            let mut schedules = std::mem::take(&mut self.schedules);
            schedules.retain_mut(|running| match self.advance_schedule(running) {
                None => true,
                Some(outcome) => {
                    self.end_schedule(running);
                    if let Some(id) = running.id {
                        self.operations.end(id, outcome);
                    }
                    false
                }
            });
            self.schedules = schedules;
            if self.operations.ended == ended {
                return;
            }
        }
    }

    /// Releases an operation that may be a schedule.
    pub(crate) fn release_schedule(&mut self, id: OperationId) {
        let Some(at) = self.schedules.iter().position(|running| running.id == Some(id)) else {
            return;
        };
        let mut running = self.schedules.swap_remove(at);
        self.end_schedule(&mut running);
    }

    fn end_schedule(&mut self, running: &mut Running) {
        running.pending.drain(..).for_each(|pending| self.abandon(pending.operation));
    }

    /// Outcome of the schedule, if it has ended.
    fn advance_schedule(&mut self, running: &mut Running) -> Option<Outcome> {
        loop {
            while let Some(pending) = running.pending.last() {
                let outcome = self.operations.take(pending.operation.id)?;
                let outcome = outcome.and_then(|done| match pending.expected {
                    Some(expected) if expected != done.bytes => {
                        Err(OperationError::Short { bytes: done.bytes, expected })
                    }
                    _ => Ok(()),
                });
                running.pending.pop();
                match outcome {
                    Ok(()) => {}
                    Err(
                        error @ (OperationError::Truncated { .. } | OperationError::Short { .. }),
                    ) if running.schedule.takes_all_lengths => {
                        running.of_length.get_or_insert(error);
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            for Fold { into, from, bytes } in running.folds.drain(..) {
                // SAFETY: promised by the caller that started the schedule; no message uses either
                // now.
                let (into, from) = unsafe {
                    let from = std::slice::from_raw_parts(from.as_ptr(), bytes);
                    (std::slice::from_raw_parts_mut(into.as_ptr(), bytes), from)
                };
                (running.schedule.combine)(into, from);
            }
            let Some(round) = running.schedule.rounds.pop_front() else {
                return Some(running.of_length.take().map_or(Ok(self.own_completion()), Err));
            };
            if let Err(error) = self.begin_round(running, round) {
                return Some(Err(error));
            }
        }
    }

    /// Receives are posted first, so that messages of other ranks find their memory.
    fn begin_round(&mut self, running: &mut Running, round: Round) -> Result<(), OperationError> {
        let &Schedule { channel, communicator, tag, .. } = &running.schedule;
        running.folds = round.folds;
        for Transfer { with, base, bytes } in round.receives {
            let pattern = Pattern { communicator, source: Some(with), tag: Some(tag) };
            // SAFETY: promised by the caller that started the schedule, which releases pending
            // operations.
            let operation = unsafe { self.receive(channel, pattern, base, bytes as u64)? };
            running.pending.push(Pending { operation, expected: Some(bytes as u64) });
        }
        for Transfer { with, base, bytes } in round.sends {
            let (to, bytes) = (with, bytes as u64);
            let message =
                Message { to, communicator, tag, bytes, available: bytes, reply: Reply::Soon };
            // SAFETY: as above.
            let operation = unsafe { self.send(channel, message, base)? };
            let pending = operation.map(|operation| Pending { operation, expected: None });
            running.pending.extend(pending);
        }
        Ok(())
    }
}
