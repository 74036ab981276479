//! Nonblocking operations in progress: how they are started, tested, waited for and given up.
//! [`Scope`](crate::Scope) and [`OwnedRequest`](crate::OwnedRequest) hold them for their users.
//!
//! An operation that has been started makes progress by itself: callers inside the library and, if
//! there are none, its progress thread drive all operations. So a broadcast is forwarded to the
//! next rank even while this one computes, or waits for something else.

use crate::barrier::BarrierKind;
use crate::bcast::{BcastAlgorithm, Origin, Started};
use crate::communicator::{Bytes, Communicator, check_length};
use crate::error::Error;
use crate::nonblocking::Scheduled;
use crate::point_to_point::Status;
use omnes_net::{Disruption, Operation, WhenFull};
use std::time::Instant;

/// An operation in progress.
pub(crate) enum Pending {
    /// A message to another rank, with its status on success.
    Send(Operation, Status),
    /// A message from another rank.
    Receive(Operation),
    Broadcast(Broadcast),
    /// A barrier, or a message of a collective.
    Collective(Operation),
    /// A reduction or gather.
    Scheduled(Scheduled),
}

/// A broadcast in progress.
pub(crate) struct Broadcast {
    started: Started,
    /// Its status on success.
    status: Status,
}

/// Result of starting an operation.
pub(crate) enum Begun {
    Pending(Pending),
    /// The operation has ended, as far as the caller is concerned.
    Done(Status),
}

impl Communicator {
    /// Starts this rank's part of a broadcast, without waiting for any other rank.
    ///
    /// # Safety
    /// `data` must stay valid, and not be accessed otherwise, until the operation has ended or was
    /// released.
    pub(crate) unsafe fn begin_bcast(
        &self,
        root: u32,
        data: Bytes,
        algorithm: BcastAlgorithm,
    ) -> Result<Begun, Error> {
        self.check_whole()?;
        let part = self.part(root, data.length, algorithm)?;
        // SAFETY: promised by the caller.
        let started = unsafe { self.start(&part, data, WhenFull::Lend)? };
        let status = Status { source: root, tag: 0, bytes: data.length };
        if part.origin == Origin::Itself && started.sends.is_empty() {
            return Ok(Begun::Done(status));
        }
        Ok(Begun::Pending(Pending::Broadcast(Broadcast { started, status })))
    }

    /// Starts a message, without waiting for any other rank.
    ///
    /// # Safety
    /// `data` must stay valid and unchanged until the operation has ended or was released.
    pub(crate) unsafe fn begin_send(&self, to: u32, tag: u32, data: &[u8]) -> Result<Begun, Error> {
        let status = Status { source: self.rank(), tag, bytes: data.len() };
        // SAFETY: promised by the caller.
        let started = unsafe { self.start_message(to, tag, data)? };
        Ok(started.map_or(Begun::Done(status), |operation| {
            Begun::Pending(Pending::Send(operation, status))
        }))
    }

    /// Enters a barrier, without waiting for any other rank.
    pub(crate) fn begin_barrier(&self) -> Result<Begun, Error> {
        self.start_barrier().map(|started| self.begun_barrier(started))
    }

    /// As [`Self::begin_barrier`], for a kind whose group is open.
    pub(crate) fn begin_barrier_of(&self, kind: BarrierKind) -> Result<Begun, Error> {
        self.start_barrier_of(kind).map(|started| self.begun_barrier(started))
    }

    fn begun_barrier(&self, started: Option<Operation>) -> Begun {
        match started {
            Some(operation) => Begun::Pending(Pending::Collective(operation)),
            None => Begun::Done(Status { source: self.rank(), tag: 0, bytes: 0 }),
        }
    }

    pub(crate) fn wait_for_pending(&self, pending: Pending) -> Result<Status, Error> {
        match pending {
            Pending::Send(operation, status) => self.wait_for_message(operation).map(|_| status),
            Pending::Receive(operation) => {
                self.wait_for_message(operation).map(|completion| self.status(completion))
            }
            Pending::Collective(operation) => {
                let outcome = self.wait_for(operation).map(|completion| self.status(completion));
                self.notify_if_nic_lost(outcome)
            }
            Pending::Scheduled(scheduled) => {
                let Scheduled { operation, collective, status, given_up } = scheduled;
                self.finish_collective(collective, || match given_up {
                    Some((rank, _)) => Err(Error::PeerGaveUp { rank }),
                    None => self.wait_for(operation).map(|_| status),
                })
            }
            Pending::Broadcast(Broadcast { started, status }) => {
                self.finish(started, status.bytes).map(|()| status)
            }
        }
    }

    /// The outcome, if the operation has ended; `pending` is then finished. Makes progress on all
    /// operations.
    pub(crate) fn test_pending(&self, pending: &mut Pending) -> Option<Result<Status, Error>> {
        let engine = &self.job().engine;
        let outcome = match pending {
            Pending::Send(operation, status) => {
                let outcome = engine.test(*operation, |gone| self.breaks_message(gone))?;
                return Some(outcome.map(|_| *status).map_err(|error| self.note_error(error)));
            }
            Pending::Receive(operation) => {
                engine.test(*operation, |gone| self.breaks_message(gone))
            }
            Pending::Collective(operation) => {
                let outcome = engine.test(*operation, |gone| self.breaks_collective(gone))?;
                let outcome = outcome.map(|completion| self.status(completion));
                return Some(
                    self.notify_if_nic_lost(outcome.map_err(|error| self.note_error(error))),
                );
            }
            Pending::Scheduled(scheduled) => return self.test_scheduled(scheduled),
            Pending::Broadcast(broadcast) => return self.test_broadcast(broadcast),
        };
        let done = outcome?.map(|completion| self.status(completion));
        Some(done.map_err(|error| self.note_error(error)))
    }

    /// The outcome of a schedule, if it has ended. If a rank has given up its part, there is an
    /// outcome only once that is known: [`Self::conclude`] would wait for it, and a test never
    /// waits.
    fn test_scheduled(&self, scheduled: &mut Scheduled) -> Option<Result<Status, Error>> {
        let Scheduled { operation, collective, status, given_up } = scheduled;
        let engine = &self.job().engine;
        let breaks = |gone: Disruption<'_>| self.breaks_collective(gone);
        let (rank, since) = match *given_up {
            Some(known) => known,
            None => {
                match engine.test(*operation, breaks)?.map_err(|error| self.note_error(error)) {
                    Err(Error::PeerGaveUp { rank }) => *given_up.insert((rank, Instant::now())),
                    outcome => return Some(self.conclude(*collective, outcome.map(|_| *status))),
                }
            }
        };
        if engine.failure(breaks).is_none() && since.elapsed() < self.job().config.peer_timeout {
            return None;
        }
        Some(Err(self.give_up(rank, *collective).into()))
    }

    /// The outcome of a broadcast, if all of this rank's part in it has ended.
    fn test_broadcast(&self, broadcast: &mut Broadcast) -> Option<Result<Status, Error>> {
        let Broadcast { started, status } = broadcast;
        let breaks = |gone: Disruption<'_>| self.breaks_collective(gone);
        while let Some(operation) = started.receive.or(started.sends.last().copied()) {
            let outcome = self.job().engine.test(operation, breaks)?;
            let is_receive = started.receive.take().is_some();
            if !is_receive {
                started.sends.pop();
            }
            let outcome = match outcome {
                Err(error) => Err(self.note_error(error)),
                Ok(completion) if is_receive => check_length(completion.bytes, status.bytes),
                Ok(_) => Ok(()),
            };
            if let Err(error) = outcome {
                // Data that did not arrive are never forwarded.
                self.abandon_started(started);
                return Some(Err(error));
            }
        }
        Some(Ok(*status))
    }

    /// Abandons an operation, so that its memory is free.
    pub(crate) fn release_pending(&self, pending: &Pending) {
        match pending {
            Pending::Send(operation, _)
            | Pending::Receive(operation)
            | Pending::Collective(operation) => {
                self.job().engine.release(*operation);
            }
            Pending::Scheduled(Scheduled { operation, collective, given_up, .. }) => {
                if let Some((rank, _)) = *given_up {
                    self.give_up(rank, *collective);
                    return;
                }
                let ended = self.job().engine.release(*operation);
                let ended = ended.map(|outcome| outcome.map_err(|error| self.note_error(error)));
                self.conclude_dropped(*collective, ended);
            }
            Pending::Broadcast(Broadcast { started, .. }) => self.release(started),
        }
    }
}
