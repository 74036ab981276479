//! Nonblocking operations, held in a [`Scope`] as threads are in `std::thread::scope`: the scope
//! ends only after all of them have, so the memory that they use stays valid.
//!
//! [`OwnedRequest`](crate::OwnedRequest) is for operations that must outlive what started them.

use crate::barrier::BarrierKind;
use crate::bcast::BcastAlgorithm;
use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::pending::{Begun, Pending};
use crate::point_to_point::{Source, Status, Tag};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;

impl Communicator {
    /// Runs `body` with a [`Scope`] for nonblocking operations, and waits for all of them. Errors
    /// of operations that `body` has not waited for are not reported.
    ///
    /// ```no_run
    /// # // Needs a launcher.
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// let (mine, mut theirs) = ([1u8; 64], [0u8; 64]);
    /// let peer = world.rank() ^ 1;
    /// world.scope(|scope| {
    ///     let received = scope.irecv(peer, 7, &mut theirs)?;
    ///     scope.isend(peer, 7, &mine)?.wait()?;
    ///     received.wait()
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// Memory that does not outlive the scope is rejected at compile time:
    ///
    /// ```compile_fail,E0597
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// world.scope(|scope| {
    ///     let mut local = [0u8; 64];
    ///     scope.irecv(0, 7, &mut local).map(drop)
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn scope<'env, T>(&self, body: impl FnOnce(&Scope<'_, 'env>) -> T) -> T {
        let scope = Scope {
            communicator: self,
            open: RefCell::default(),
            started: Cell::new(0),
            memory: PhantomData,
        };
        // Dropping the scope ends its operations, even if `body` panics.
        body(&scope)
    }
}

/// Holds nonblocking operations on memory that lives for `'env`; see [`Communicator::scope`].
/// When dropped, it waits for those in progress, without reporting their errors; if its thread
/// panics, it abandons them.
pub struct Scope<'scope, 'env> {
    pub(crate) communicator: &'scope Communicator,
    open: RefCell<Vec<(RequestId, Pending)>>,
    started: Cell<RequestId>,
    /// Invariant: a shorter lifetime would admit memory that ends before the scope.
    memory: PhantomData<&'env mut &'env ()>,
}

/// Number of a request in its scope.
type RequestId = u64;

/// A nonblocking operation. Dropping it does not end it: its scope waits for it, but does not
/// report its errors.
#[must_use = "only who waits for a request, or tests it, hears of its error"]
pub struct Request<'request> {
    scope: &'request dyn Ends,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// The request is in its scope.
    Open(RequestId),
    Done(Status),
    /// The request has failed, and its error was returned.
    Over,
}

/// The operations of a scope that a request needs.
trait Ends {
    fn wait(&self, id: RequestId) -> Result<Status, Error>;
    fn test(&self, id: RequestId) -> Option<Result<Status, Error>>;
}

impl<'env> Scope<'_, 'env> {
    /// Starts to send `data` to rank `to`, without waiting. If [`Communicator::send`] would block
    /// for this message, the request ends when the message has arrived.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn isend(&self, to: u32, tag: u32, data: &'env [u8]) -> Result<Request<'_>, Error> {
        // SAFETY: `data` outlives the scope, which ends only after the operation has.
        Ok(self.request(unsafe { self.communicator.begin_send(to, tag, data)? }))
    }

    /// Starts to receive a message into `buffer`.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn irecv(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &'env mut [u8],
    ) -> Result<Request<'_>, Error> {
        let data = Bytes::of_mut(buffer);
        // SAFETY: `buffer` is borrowed for longer than the scope lives.
        let operation =
            unsafe { self.communicator.start_message_receive(from.into(), tag.into(), data)? };
        Ok(self.request(Begun::Pending(Pending::Receive(operation))))
    }

    /// Starts a broadcast of the root's `buffer`, of the same length on all ranks. Several may be
    /// in progress at the same time; all collectives must be started in the same order on all
    /// ranks. The status names the root.
    ///
    /// Returns immediately, even at the root of more short messages than the window holds [BC-R7]:
    /// an operation beyond the window ends when the others have the message.
    ///
    /// # Errors
    /// As [`Communicator::bcast`].
    pub fn ibcast(&self, root: u32, buffer: &'env mut [u8]) -> Result<Request<'_>, Error> {
        self.ibcast_with(root, buffer, self.communicator.usual_bcast(buffer.len()))
    }

    /// As [`Self::ibcast`], with the given algorithm, which must be the same on all ranks.
    ///
    /// # Errors
    /// As [`Communicator::bcast_with`].
    pub fn ibcast_with(
        &self,
        root: u32,
        buffer: &'env mut [u8],
        algorithm: BcastAlgorithm,
    ) -> Result<Request<'_>, Error> {
        let data = Bytes::of_mut(buffer);
        // SAFETY: `buffer` is borrowed for longer than the scope lives, which ends only after the
        // operations have.
        let begun = unsafe { self.communicator.begin_bcast(root, data, algorithm)? };
        Ok(self.request(begun))
    }

    /// Enters a barrier without waiting for it. Several may be in progress; they end in the order
    /// in which they were started, which must be the same on all ranks, including blocking
    /// barriers. All ranks must enter it by a nonblocking call, because a blocking barrier may
    /// first reach an agreement with the other ranks.
    ///
    /// # Errors
    /// As [`Communicator::barrier`].
    pub fn ibarrier(&self) -> Result<Request<'_>, Error> {
        Ok(self.request(self.communicator.begin_barrier()?))
    }

    /// As [`Self::ibarrier`], for a kind that this communicator has already used in a blocking
    /// barrier: only a blocking barrier can reach the agreement that a new kind needs.
    ///
    /// # Errors
    /// As [`Communicator::barrier`]; [`Error::Barrier`] if there was no such barrier.
    pub fn ibarrier_with(&self, kind: impl Into<BarrierKind>) -> Result<Request<'_>, Error> {
        Ok(self.request(self.communicator.begin_barrier_of(kind.into())?))
    }

    pub(crate) fn request(&self, begun: Begun) -> Request<'_> {
        let pending = match begun {
            Begun::Pending(pending) => pending,
            Begun::Done(status) => return Request { scope: self, state: State::Done(status) },
        };
        let id = self.started.get();
        self.started.set(id + 1);
        self.open.borrow_mut().push((id, pending));
        Request { scope: self, state: State::Open(id) }
    }

    /// Index of an open request in its scope's list.
    fn place(open: &[(RequestId, Pending)], id: RequestId) -> usize {
        let place = open.iter().position(|(other, _)| *other == id);
        place.expect("an open request is in its scope")
    }
}

impl Ends for Scope<'_, '_> {
    fn wait(&self, id: RequestId) -> Result<Status, Error> {
        let mut open = self.open.borrow_mut();
        let place = Self::place(&open, id);
        let (_, pending) = open.remove(place);
        drop(open);
        self.communicator.wait_for_pending(pending)
    }

    fn test(&self, id: RequestId) -> Option<Result<Status, Error>> {
        let mut open = self.open.borrow_mut();
        let place = Self::place(&open, id);
        let outcome = self.communicator.test_pending(&mut open[place].1);
        if outcome.is_some() {
            open.remove(place);
        }
        outcome
    }
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        let open = self.open.take().into_iter().map(|(_, pending)| pending);
        let mut open = InFlight::of(self.communicator, open);
        // If the thread panics, its operations are abandoned instead.
        if !std::thread::panicking() {
            open.wait_for_each();
        }
    }
}

impl Request<'_> {
    /// Waits until the operation has ended.
    ///
    /// # Errors
    /// As [`Communicator::send`], [`Communicator::recv`] and [`Communicator::bcast`];
    /// [`Error::RequestFailed`] if it has returned an error before.
    pub fn wait(self) -> Result<Status, Error> {
        match self.state {
            State::Done(status) => Ok(status),
            State::Open(id) => self.scope.wait(id),
            State::Over => Err(Error::RequestFailed),
        }
    }

    /// The outcome, if the operation has ended. Makes progress on all operations, without waiting.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn test(&mut self) -> Result<Option<Status>, Error> {
        let outcome = match self.state {
            State::Done(status) => return Ok(Some(status)),
            State::Over => return Err(Error::RequestFailed),
            State::Open(id) => self.scope.test(id),
        };
        let Some(outcome) = outcome else { return Ok(None) };
        self.state = outcome.as_ref().map_or(State::Over, |status| State::Done(*status));
        outcome.map(Some)
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Open(_) => "under way",
            State::Done(_) => "done",
            State::Over => "failed",
        };
        write!(f, "Request({state})")
    }
}
