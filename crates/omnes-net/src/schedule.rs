//! Schedules: messages of this rank that follow one another, as those of a nonblocking collective
//! do [Hoefler, Lumsdaine, Rehm 2007].
//!
//! A *schedule* is a list of rounds. A round starts all its messages at once; when they have ended
//! it folds what has come into what is there, and the next one starts. It is part of each step of
//! the core, so it goes on whoever moves the core on: a caller that waits for something else, or
//! the progress thread while the application computes.
//!
//! Guarantees: memory is used from the start until the operation has ended or was released, and no
//! message of a schedule is under way afterwards. A message that fails ends it with that error; so
//! does one that is not as long as its room: when those behind it in the round have ended, as one
//! look goes to the last that is left alone, or, where all lengths are taken, when all have, so
//! that none of these is taken for anything else. Cost: nothing in a step without schedules, else
//! one look per schedule.

use crate::core::Core;
use crate::operations::{Operation, OperationError, OperationId, OperationKind, Outcome, Spot};
use crate::waiting::LONG_BYTES;
use omnes_proto::channel::{Message, Pattern, Reply};
use omnes_wire::{CommunicatorId, Rank};
use std::collections::VecDeque;
use std::ptr::NonNull;

/// Memory of a message of a schedule, and with whom it is exchanged.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The other side; a rank of the job, not this one.
    pub with: Rank,
    /// Start of the memory.
    pub base: NonNull<u8>,
    /// Its length, and that of the message.
    pub bytes: usize,
}

/// What has come, `from`, is combined with what is there.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    /// Where the result is.
    pub into: NonNull<u8>,
    /// What is only read.
    pub from: NonNull<u8>,
    /// Length of both.
    pub bytes: usize,
}

/// See the module header.
#[derive(Clone, Default, Debug)]
pub struct Round {
    /// Messages to send.
    pub sends: Vec<Transfer>,
    /// Messages to receive.
    pub receives: Vec<Transfer>,
    /// What to do in this order once all of them have ended.
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
    /// Their tag, which no other messages have meanwhile.
    pub tag: u32,
    /// The rounds, in order.
    pub rounds: VecDeque<Round>,
    /// For folds.
    pub combine: Combiner,
    /// If messages of other lengths than their rooms end it only when all have ended.
    pub takes_all_lengths: bool,
    /// Memory of its own, in which transfers and folds may lie.
    pub room: Vec<u8>,
}

/// A message under way.
struct Pending {
    operation: Operation,
    /// The length that it must have, if it comes in.
    expected: Option<u64>,
}

/// A schedule under way.
pub(crate) struct Running {
    id: OperationId,
    schedule: Schedule,
    pending: Vec<Pending>,
    folds: Vec<Fold>,
    /// What was wrong with the first message of another length than its room.
    of_length: Option<OperationError>,
}

impl Core {
    /// Starts a schedule.
    ///
    /// # Safety
    /// The memory of transfers and folds must be valid, and used by nobody else, until the
    /// operation has ended or was released; what is sent is only read.
    pub(crate) unsafe fn start_schedule(
        &mut self,
        schedule: Schedule,
    ) -> Result<Operation, OperationError> {
        self.check_standing()?;
        let (id, channel) = (self.operations.start(), schedule.channel);
        let bytes = |round: &Round| round.receives.iter().map(|it| it.bytes as u64).sum::<u64>();
        let is_long = schedule.rounds.iter().map(bytes).sum::<u64>() >= LONG_BYTES;
        let (pending, folds, of_length) = (Vec::new(), Vec::new(), None);
        self.schedules.push(Running { id, schedule, pending, folds, of_length });
        self.advance_schedules();
        let (kind, spot) = (OperationKind::Schedule, Spot::Anywhere);
        Ok(Operation { id, channel, kind, spot, is_long })
    }

    /// Begins the rounds that are due.
    pub(crate) fn advance_schedules(&mut self) {
        while !self.schedules.is_empty() {
            let ended = self.operations.ended;
            // Messages that are started settle what has come, which gets here again.
            let mut schedules = std::mem::take(&mut self.schedules);
            schedules.retain_mut(|running| match self.advance_schedule(running) {
                None => true,
                Some(outcome) => {
                    self.end_schedule(running);
                    self.operations.end(running.id, outcome);
                    false
                }
            });
            self.schedules = schedules;
            if self.operations.ended == ended {
                return;
            }
        }
    }

    /// An operation is let go that may be a schedule.
    pub(crate) fn release_schedule(&mut self, id: OperationId) {
        let Some(at) = self.schedules.iter().position(|running| running.id == id) else { return };
        let mut running = self.schedules.swap_remove(at);
        self.end_schedule(&mut running);
    }

    fn end_schedule(&mut self, running: &mut Running) {
        running.pending.drain(..).for_each(|pending| self.abandon(pending.operation));
    }

    /// How the schedule has ended, if it has.
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
                // SAFETY: promised by who started the schedule; no message uses either now.
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

    /// Receives come first: what others send has its place then.
    fn begin_round(&mut self, running: &mut Running, round: Round) -> Result<(), OperationError> {
        let &Schedule { channel, communicator, tag, .. } = &running.schedule;
        running.folds = round.folds;
        for Transfer { with, base, bytes } in round.receives {
            let pattern = Pattern { communicator, source: Some(with), tag: Some(tag) };
            // SAFETY: promised by who started the schedule, which releases what is pending.
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
