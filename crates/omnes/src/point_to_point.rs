//! Messages between two ranks.
//!
//! Nonblocking operations live in a [`Scope`], as threads do in `std::thread::scope`: it does not
//! end before they have, so the memory that they use cannot go away under them.

use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::job::POINT_TO_POINT;
use omnes_net::{Completion, Message, Operation, Pattern, Reply};
use std::cell::RefCell;
use std::marker::PhantomData;

/// From whom a message may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// From this rank.
    Rank(u32),
    /// From any rank of the communicator.
    Any,
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

/// Which tag a message may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// This one.
    Is(u32),
    /// Any.
    Any,
}

impl From<u32> for Tag {
    fn from(tag: u32) -> Self {
        Self::Is(tag)
    }
}

/// What a finished operation was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The sender of a received message; this rank for a sent one.
    pub source: u32,
    /// The message's tag.
    pub tag: u32,
    /// The message's length in bytes.
    pub bytes: usize,
}

impl Communicator {
    /// Sends `data` to rank `to`. Returns when `data` may be used again; a message of up to one
    /// packet is on its way then, a longer one has arrived.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::PeerFailed`], [`Error::PeerLeft`].
    pub fn send(&self, to: u32, tag: u32, data: &[u8]) -> Result<(), Error> {
        // SAFETY: waited for below.
        let started = unsafe { self.start_message(to, tag, data)? };
        started.map_or(Ok(()), |operation| self.wait_for_message(operation).map(|_| ()))
    }

    /// Receives the next message that fits into `buffer`, which may be longer than the message.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the message is longer than `buffer`, which then holds its
    /// beginning; [`Error::RankOutOfRange`], [`Error::PeerFailed`], [`Error::PeerLeft`].
    pub fn recv(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &mut [u8],
    ) -> Result<Status, Error> {
        // SAFETY: waited for below.
        let operation =
            unsafe { self.start_message_receive(from.into(), tag.into(), Bytes::of_mut(buffer))? };
        self.wait_for_message(operation).map(|completion| self.status(completion))
    }

    /// Runs `body` with a [`Scope`] for nonblocking operations, and waits for all of them.
    ///
    /// ```no_run
    /// # // Needs a launcher.
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// let (mine, mut theirs) = ([1u8; 64], [0u8; 64]);
    /// let peer = world.rank() ^ 1;
    /// world.scope(|scope| {
    ///     let received = scope.irecv(peer, 7, &mut theirs)?;
    ///     scope.isend(peer, 7, &mine)?;
    ///     received.wait()
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn scope<'env, T>(&self, body: impl FnOnce(&Scope<'_, 'env>) -> T) -> T {
        let scope = Scope { communicator: self, open: RefCell::default(), memory: PhantomData };
        // The scope's drop waits, so it does when `body` panics too.
        body(&scope)
    }

    fn status(&self, completion: Completion) -> Status {
        Status {
            source: self.here(completion.peer.0),
            tag: completion.tag,
            bytes: completion.bytes as usize,
        }
    }

    /// # Safety
    /// `data` must stay valid and unchanged until the operation has ended or was released.
    unsafe fn start_message(
        &self,
        to: u32,
        tag: u32,
        data: &[u8],
    ) -> Result<Option<Operation>, Error> {
        self.check_rank(to)?;
        let bytes = data.len() as u64;
        let message = Message {
            to: self.in_job(to),
            communicator: self.inner.id,
            tag,
            bytes,
            available: bytes,
            reply: Reply::Soon,
        };
        let base = Bytes::of(data).base;
        // SAFETY: promised by the caller.
        let started = unsafe { self.job().engine.send(POINT_TO_POINT, message, base) };
        started.map_err(|error| self.error(error))
    }

    /// # Safety
    /// `data` must stay valid and be used by nobody else until the operation has ended or was
    /// released.
    unsafe fn start_message_receive(
        &self,
        from: Source,
        tag: Tag,
        data: Bytes,
    ) -> Result<Operation, Error> {
        let source = match from {
            Source::Any => None,
            Source::Rank(rank) => {
                self.check_rank(rank)?;
                Some(self.in_job(rank))
            }
        };
        let tag = match tag {
            Tag::Any => None,
            Tag::Is(tag) => Some(tag),
        };
        let pattern = Pattern { communicator: self.inner.id, source, tag };
        let (base, length) = (data.base, data.length as u64);
        // SAFETY: promised by the caller.
        let started = unsafe { self.job().engine.receive(POINT_TO_POINT, pattern, base, length) };
        started.map_err(|error| self.error(error))
    }
}

/// Holds nonblocking operations on memory that lives for `'env`; see [`Communicator::scope`].
pub struct Scope<'scope, 'env> {
    communicator: &'scope Communicator,
    open: RefCell<Vec<Operation>>,
    memory: PhantomData<&'env mut [u8]>,
}

/// A nonblocking operation. Dropping it does not end it: its scope waits for it.
pub struct Request<'request> {
    scope: &'request dyn Ends,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Open(Operation),
    Done(Status),
}

/// What a request needs of its scope.
trait Ends {
    fn wait(&self, operation: Operation) -> Result<Status, Error>;
    fn test(&self, operation: Operation) -> Option<Result<Status, Error>>;
}

impl<'env> Scope<'_, 'env> {
    /// Starts to send `data` to rank `to`.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn isend(&self, to: u32, tag: u32, data: &'env [u8]) -> Result<Request<'_>, Error> {
        // SAFETY: `data` outlives the scope, which ends only after the operation has.
        let started = unsafe { self.communicator.start_message(to, tag, data)? };
        let source = self.communicator.rank();
        Ok(match started {
            Some(operation) => self.request(operation),
            None => {
                let status = Status { source, tag, bytes: data.len() };
                Request { scope: self, state: State::Done(status) }
            }
        })
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
        Ok(self.request(operation))
    }

    fn request(&self, operation: Operation) -> Request<'_> {
        self.open.borrow_mut().push(operation);
        Request { scope: self, state: State::Open(operation) }
    }

    fn close(&self, operation: Operation) {
        self.open.borrow_mut().retain(|open| *open != operation);
    }
}

impl Ends for Scope<'_, '_> {
    fn wait(&self, operation: Operation) -> Result<Status, Error> {
        self.close(operation);
        let completion = self.communicator.wait_for_message(operation)?;
        Ok(self.communicator.status(completion))
    }

    fn test(&self, operation: Operation) -> Option<Result<Status, Error>> {
        let communicator = self.communicator;
        let outcome = communicator.job().engine.test(operation)?;
        self.close(operation);
        let done = outcome.map(|completion| communicator.status(completion));
        Some(done.map_err(|error| communicator.error(error)))
    }
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        for operation in self.open.take() {
            if std::thread::panicking() {
                self.communicator.job().engine.release(operation);
            } else {
                // Whoever wants the outcome waits for the request itself.
                let _ = self.communicator.wait_for_message(operation);
            }
        }
    }
}

impl Request<'_> {
    /// Waits for the end of the operation.
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::recv`].
    pub fn wait(self) -> Result<Status, Error> {
        match self.state {
            State::Done(status) => Ok(status),
            State::Open(operation) => self.scope.wait(operation),
        }
    }

    /// The outcome, if the operation has ended; moves all operations on.
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::recv`].
    pub fn test(&mut self) -> Result<Option<Status>, Error> {
        let State::Open(operation) = self.state else {
            let State::Done(status) = self.state else { return Ok(None) };
            return Ok(Some(status));
        };
        let Some(outcome) = self.scope.test(operation) else { return Ok(None) };
        let status = outcome?;
        self.state = State::Done(status);
        Ok(Some(status))
    }
}
