//! Collectives that a rank gives up half-way, such as a reduction whose limit has passed.
//!
//! Some of the others have what it has sent for it, some wait for what it was to send, and none can
//! tell what comes next from what belongs to the one given up. So the communicator's collectives
//! are over: the rank starts no other, and *tells* all members, by a notice over channels behind
//! all that it has sent. Whoever waits in a collective of the communicator ends with
//! [`Error::CollectivesBroken`], as does every later one.
//!
//! Guarantees: no collective takes what was for another one. Whoever goes on to the next has ended
//! the one before without an error, so it has all that was sent to it for that, and nobody who has
//! ended one with an error sends anything for a later one. Nobody waits for ever: whoever is waited
//! for takes part, has told, or is gone. A rank hears of a notice as soon as it waits, also in a
//! collective before the one given up, which it may be the last to take part in.
//!
//! Broadcasts and barriers that are given up leave the communicator whole: those whom they concern
//! are told by the message that does not come ([`Promise`](crate::bcast)), and barriers go on
//! without their caller, but for those that the kernel NIC runs and has lost. Messages between
//! two ranks go on, too, and so does the last barrier of the job. Cost: one empty message to each
//! member, when something is given up.
//!
//! What arrives by broadcasts for the collective given up is acknowledged and discarded once the
//! communicator is dropped. Not done: messages for it stay in the pool until the rank leaves.

use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::job::COLLECTIVE;
use omnes_net::{Disruption, Message, Reply};
use omnes_wire::CommunicatorId;
use std::ptr::NonNull;

/// Which collective has ended all those of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GivenUp {
    /// By whom; a rank of the communicator.
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

/// A collective under way on this rank; dropped, as after a panic, it is given up.
struct Undertaking<'a> {
    communicator: &'a Communicator,
    collective: Collective,
}

impl Drop for Undertaking<'_> {
    fn drop(&mut self) {
        self.communicator.give_up(self.communicator.rank(), self.collective);
    }
}

/// True if a collective that ends with the error on this rank is over for the others as well, or
/// they hear of the error by themselves.
fn is_whole_after(error: &Error, collective: Collective) -> bool {
    match error {
        // Of parts that each go by themselves all are taken, whatever their lengths.
        error if error.is_of_length() && goes_part_by_part(collective) => true,
        // Of a root's mistake there, all parts are as short.
        Error::LengthMismatch { .. } => collective == Collective::Scatter,
        // Refused before anything is sent, or for what all find alike.
        Error::BufferLength { .. }
        | Error::LengthsCount { .. }
        | Error::NotDivisible { .. }
        | Error::RankOutOfRange { .. }
        | Error::Reduction { .. }
        | Error::Algorithm { .. } => true,
        error => error.is_heard_by_all(),
    }
}

/// True if it is nobody's but the receiver's matter that a part has a wrong length.
pub(crate) fn goes_part_by_part(collective: Collective) -> bool {
    matches!(collective, Collective::Gatherv | Collective::Scatterv)
}

impl Communicator {
    /// Refuses collectives after one that was given up; the last barrier of the job is none of
    /// those.
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        if self.job().engine.has_notices() {
            self.hear_notices();
        }
        match self.inner.given_up.get() {
            Some(given_up) if !self.job().is_finalizing() => Err(Error::from(*given_up)),
            _ => Ok(()),
        }
    }

    /// Does this rank's part in a collective, which is given up if that fails.
    pub(crate) fn run_collective<T>(
        &self,
        collective: Collective,
        part: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.check_whole()?;
        self.finish_collective(collective, part)
    }

    /// The same for what remains of a part that has begun before.
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

    /// How this rank's part in a collective has ended, which is given up if that was badly.
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

    /// The program has no use for this rank's part in a collective, nor for how it has ended, if it
    /// has: that is no reason to give it up.
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

    /// Ends all collectives here, as `rank` has given one up, and tells all members, unless another
    /// one has; what was given up first.
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

    /// Who has given a message up tells all, but what others passed on of it, and do not any more,
    /// may be heard of before. Where calls do not fit each other nobody tells.
    fn wait_for_notice(&self) {
        let job = self.job();
        let concerns = |gone: Disruption<'_>| self.breaks_collective(gone);
        job.engine.wait_for_failure(job.config.peer_timeout, concerns);
    }

    /// Remembers what others have told.
    fn hear_notices(&self) {
        if let Some(told) = self.job().engine.failure(|gone| self.is_notice(gone)) {
            let _ = self.error(told);
        }
    }

    /// The collective that has ended all others: the first one that this rank has heard of.
    pub(crate) fn remember(&self, given_up: GivenUp) -> GivenUp {
        *self.inner.given_up.get_or_init(|| given_up)
    }

    /// True if it is a notice that a collective here has been given up.
    pub(crate) fn is_notice(&self, gone: Disruption<'_>) -> bool {
        matches!(gone, Disruption::Notice { tag, .. } if is_about(tag, self.inner.id))
    }

    fn give_notice(&self, to: u32, collective: Collective) {
        let notice = Message {
            to: self.in_job(to),
            communicator: CommunicatorId::NOTICES,
            tag: tag_of(self.inner.id, collective),
            bytes: 0,
            available: 0,
            reply: Reply::Lazy,
        };
        // Who is gone, or has left itself, need not be told.
        if let Ok(engine) = self.engine_to_start() {
            // SAFETY: no byte is read.
            let _ = unsafe { engine.send(COLLECTIVE, notice, NonNull::dangling()) };
        }
    }
}
