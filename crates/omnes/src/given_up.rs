//! Collectives that a rank gives up before they are complete, such as a reduction whose time limit
//! has passed.
//!
//! Some of the other ranks have the data that it has sent for the collective, some wait for data
//! that it was to send, and none can distinguish later data from those of the collective given up.
//! So the communicator's collectives end: the rank starts no other, and *notifies* all members, by
//! a notice over channels after everything that it has sent. A rank that waits in a collective of
//! the communicator gets [`Error::CollectivesBroken`], and so does every later collective.
//!
//! Guarantees: no collective receives data of another one. A rank that starts the next collective
//! has ended the previous one without an error, so it has received everything that was sent to it
//! for that one, and a rank that has ended one with an error sends nothing for a later one. No rank
//! waits forever: every rank that it waits for takes part, has sent a notice, or is gone. A rank
//! receives a notice as soon as it waits, even in a collective before the one given up, which it
//! may be the last to join.
//!
//! Broadcasts and barriers that are given up leave the communicator usable: the ranks concerned
//! learn of it because a message is withheld ([`Promise`](crate::bcast)), and barriers continue
//! without their caller, except those that the kernel NIC runs and has lost. Messages between two
//! ranks still work, too, and so does the last barrier of the job.
//! Cost: one empty message to each member, when a collective is given up.
//!
//! Once the communicator is dropped, data that still arrive for its collectives are acknowledged
//! and discarded. A rank that drops it before it has received the notice keeps them.

use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::job::COLLECTIVE;
use omnes_net::{Disruption, Message, Reply};
use omnes_wire::CommunicatorId;
use std::ptr::NonNull;

/// The collective that has ended all those of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GivenUp {
    /// The rank that has given it up, numbered as in the communicator.
    pub(crate) rank: u32,
    pub(crate) collective: Collective,
}

impl From<GivenUp> for Error {
    fn from(GivenUp { rank, collective }: GivenUp) -> Self {
        Self::CollectivesBroken { rank, collective }
    }
}

/// The tag of the notice that a collective of the communicator has been given up.
fn tag_of(communicator: CommunicatorId, collective: Collective) -> u32 {
    communicator.0 << Collective::BITS | u32::from(collective.number())
}

/// True if a notice's tag is about the communicator.
pub(crate) fn is_about(tag: u32, communicator: CommunicatorId) -> bool {
    tag >> Collective::BITS == communicator.0
}

/// The collective that a notice is about.
pub(crate) fn collective_of(tag: u32) -> Collective {
    let number = tag & ((1 << Collective::BITS) - 1);
    Collective::of_number(number as u8).unwrap_or(Collective::Agreement)
}

/// A collective in progress on this rank; if this is dropped, for instance by a panic, the
/// collective is given up.
struct Undertaking<'a> {
    communicator: &'a Communicator,
    collective: Collective,
}

impl Drop for Undertaking<'_> {
    fn drop(&mut self) {
        self.communicator.give_up(self.communicator.rank(), self.collective);
    }
}

/// True if a collective that ends with the error on this rank ends for the others as well, or they
/// learn of the error by themselves.
fn is_whole_after(error: &Error, collective: Collective) -> bool {
    match error {
        // Parts that travel separately are all received, whatever their lengths.
        error if error.is_of_length() && goes_part_by_part(collective) => true,
        // If the root's arguments were wrong, all parts are as short.
        Error::LengthMismatch { .. } => collective == Collective::Scatter,
        // Rejected before anything is sent, or for a reason that all ranks find alike.
        Error::BufferLength { .. }
        | Error::LengthsCount { .. }
        | Error::NotDivisible { .. }
        | Error::RankOutOfRange { .. }
        | Error::Reduction { .. }
        | Error::Algorithm { .. } => true,
        error => error.is_detected_by_all(),
    }
}

/// True if a wrong length of a part concerns only its receiver.
pub(crate) fn goes_part_by_part(collective: Collective) -> bool {
    matches!(collective, Collective::Gatherv | Collective::Scatterv)
}

impl Communicator {
    /// Rejects collectives after one that was given up; except for the last barrier of the job.
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        if self.job().engine.has_notices() {
            self.hear_notices();
        }
        match self.inner.given_up.get() {
            Some(given_up) if !self.job().is_finalizing() => Err(Error::from(*given_up)),
            _ => Ok(()),
        }
    }

    /// Runs this rank's part in a collective, which is given up if the part fails.
    pub(crate) fn run_collective<T>(
        &self,
        collective: Collective,
        part: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.check_whole()?;
        self.finish_collective(collective, part)
    }

    /// As [`Self::run_collective`], for the remainder of a part that has already begun.
    pub(crate) fn finish_collective<T>(
        &self,
        collective: Collective,
        part: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let undertaking = Undertaking { communicator: self, collective };
        let outcome = part();
        std::mem::forget(undertaking);
        self.conclude(collective, outcome)
    }

    /// Concludes this rank's part in a collective, which is given up if `outcome` requires that.
    pub(crate) fn conclude<T>(
        &self,
        collective: Collective,
        outcome: Result<T, Error>,
    ) -> Result<T, Error> {
        match outcome {
            Err(Error::PeerGaveUp { rank }) => {
                self.wait_for_notice();
                Err(self.give_up(rank, collective).into())
            }
            Err(error) if !is_whole_after(&error, collective) => {
                self.give_up(self.rank(), collective);
                Err(error)
            }
            outcome => outcome,
        }
    }

    /// Concludes a collective whose request the program has dropped, which is no reason to give up
    /// a collective that has ended.
    pub(crate) fn conclude_dropped<T>(
        &self,
        collective: Collective,
        ended: Option<Result<T, Error>>,
    ) {
        let rank = match ended {
            Some(Ok(_)) => return,
            Some(Err(error)) if is_whole_after(&error, collective) => return,
            Some(Err(Error::PeerGaveUp { rank })) => rank,
            Some(Err(_)) | None => self.rank(),
        };
        self.give_up(rank, collective);
    }

    /// Ends all collectives here, because `rank` has given one up, and notifies all members, unless
    /// another rank already has; returns what was given up first.
    pub(crate) fn give_up(&self, rank: u32, collective: Collective) -> GivenUp {
        self.hear_notices();
        if let Some(given_up) = self.inner.given_up.get() {
            return *given_up;
        }
        let given_up = self.remember(GivenUp { rank, collective });
        (0..self.size()).filter(|other| *other != self.rank()).for_each(|other| {
            self.give_notice(other, collective);
        });
        given_up
    }

    /// The rank that has given up a message notifies all, but this rank may notice earlier that
    /// others no longer forward the message. If calls do not match, no rank sends a notice.
    fn wait_for_notice(&self) {
        let job = self.job();
        let concerns = |gone: Disruption<'_>| self.breaks_collective(gone);
        job.engine.wait_for_failure(job.config.peer_timeout, concerns);
    }

    /// Records the notices of other ranks.
    fn hear_notices(&self) {
        if let Some(told) = self.job().engine.failure(|gone| self.is_notice(gone)) {
            let _ = self.note_error(told);
        }
    }

    /// Records the collective that has ended all others, and returns the first one that this rank
    /// has learnt of.
    pub(crate) fn remember(&self, given_up: GivenUp) -> GivenUp {
        *self.inner.given_up.get_or_init(|| given_up)
    }

    /// True if this is a notice that a collective of this communicator has been given up.
    pub(crate) fn is_notice(&self, gone: Disruption<'_>) -> bool {
        matches!(gone, Disruption::Notice { tag, .. } if is_about(tag, self.inner.id))
    }

    fn give_notice(&self, to: u32, collective: Collective) {
        let notice = Message {
            to: self.job_rank(to),
            communicator: CommunicatorId::NOTICES,
            tag: tag_of(self.inner.id, collective),
            bytes: 0,
            available: 0,
            reply: Reply::Lazy,
        };
        // A rank that is gone needs no notice, and a rank that has left sends none.
        if let Ok(engine) = self.engine_to_start() {
            // SAFETY: no byte is read.
            let _ = unsafe { engine.send(COLLECTIVE, notice, NonNull::dangling()) };
        }
    }
}
