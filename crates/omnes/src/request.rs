//! Nonblocking operations that own what they need, for callers whose requests outlive the call that
//! started them, such as bindings for other languages, which cannot use a [`Scope`](crate::Scope).

use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator};
use crate::compare::Call;
use crate::error::Error;
use crate::pending::{Begun, Pending};
use crate::point_to_point::{Source, Status, Tag};
use std::fmt;
use std::ptr::NonNull;

/// A nonblocking operation that holds its communicator. If it is dropped before it has ended, it is
/// abandoned, so that its memory can be reused:
///
/// - the message of a receive is left to the next receive, or lost if it has begun to arrive;
/// - a send may still arrive; its data are copied, whatever their length;
/// - ranks to which this rank would have forwarded a broadcast get [`Error::PeerGaveUp`], the
///   others get the data, and later broadcasts are not affected;
/// - a barrier continues.
#[must_use = "an operation that is dropped is abandoned"]
pub struct OwnedRequest {
    communicator: Communicator,
    state: State,
}

enum State {
    Open(Pending),
    Done(Status),
    /// The operation has failed, and its error was returned.
    Over,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "under way",
            Self::Done(_) => "done",
            Self::Over => "failed",
        }
    }
}

impl Communicator {
    /// As [`Self::bcast`], of the root's `bytes` bytes at `base`, the same number on all ranks.
    ///
    /// # Safety
    /// The memory must be valid for reading and writing, and not accessed otherwise, until this
    /// returns; at the root it is only read, and others may read it.
    ///
    /// # Errors
    /// As [`Self::bcast`].
    pub unsafe fn bcast_raw(
        &self,
        root: u32,
        base: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Bcast).with_bytes(bytes).with_root(root))?;
        let data = Bytes { base, length: bytes };
        // SAFETY: promised by the caller.
        unsafe { self.broadcast_bytes(root, data, self.usual_bcast(bytes)) }
    }

    /// Starts a broadcast of the root's `bytes` bytes at `base`, the same number on all ranks, as
    /// [`Scope::ibcast`](crate::Scope::ibcast) does.
    ///
    /// # Safety
    /// The memory must be valid for reading and writing, and not accessed otherwise, until the
    /// request has ended or was dropped; at the root others may read it.
    ///
    /// # Errors
    /// As [`Self::bcast`].
    pub unsafe fn ibcast_raw(
        &self,
        root: u32,
        base: NonNull<u8>,
        bytes: usize,
    ) -> Result<OwnedRequest, Error> {
        let data = Bytes { base, length: bytes };
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_bcast(root, data, self.usual_bcast(bytes))? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// Starts to send the `bytes` bytes at `base` to rank `to`, as
    /// [`Scope::isend`](crate::Scope::isend) does.
    ///
    /// # Safety
    /// The memory must be valid for reading, and not be written to, until the request has ended or
    /// was dropped.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub unsafe fn isend_raw(
        &self,
        to: u32,
        tag: u32,
        base: NonNull<u8>,
        bytes: usize,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller.
        let data = unsafe { std::slice::from_raw_parts(base.as_ptr(), bytes) };
        // SAFETY: promised by the caller; dropping the request releases the operation.
        Ok(OwnedRequest::new(self.clone(), unsafe { self.begin_send(to, tag, data)? }))
    }

    /// Starts to receive a message into the `bytes` bytes at `base`, as
    /// [`Scope::irecv`](crate::Scope::irecv) does.
    ///
    /// # Safety
    /// The memory must be valid for writing, and not accessed otherwise, until the request has
    /// ended or was dropped.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub unsafe fn irecv_raw(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        base: NonNull<u8>,
        bytes: usize,
    ) -> Result<OwnedRequest, Error> {
        let data = Bytes { base, length: bytes };
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let operation = unsafe { self.start_message_receive(from.into(), tag.into(), data)? };
        Ok(OwnedRequest::new(self.clone(), Begun::Pending(Pending::Receive(operation))))
    }

    /// Enters a barrier without waiting for it, as [`Scope::ibarrier`](crate::Scope::ibarrier)
    /// does.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn ibarrier_owned(&self) -> Result<OwnedRequest, Error> {
        Ok(OwnedRequest::new(self.clone(), self.begin_barrier()?))
    }
}

impl OwnedRequest {
    pub(crate) fn new(communicator: Communicator, begun: Begun) -> Self {
        let state = match begun {
            Begun::Pending(pending) => State::Open(pending),
            Begun::Done(status) => State::Done(status),
        };
        Self { communicator, state }
    }

    /// The outcome, if the operation has ended. Makes progress on all operations, without waiting.
    /// May be called while another call waits, including by
    /// [`Config::while_waiting`](crate::Config).
    ///
    /// # Errors
    /// As [`Communicator::send`], [`Communicator::recv`] and [`Communicator::bcast`];
    /// [`Error::RequestFailed`] if it has returned an error before.
    pub fn test(&mut self) -> Result<Option<Status>, Error> {
        let outcome = match &mut self.state {
            State::Done(status) => return Ok(Some(*status)),
            State::Over => return Err(Error::RequestFailed),
            State::Open(pending) => self.communicator.test_pending(pending),
        };
        let Some(outcome) = outcome else { return Ok(None) };
        self.state = outcome.as_ref().map_or(State::Over, |status| State::Done(*status));
        outcome.map(Some)
    }

    /// Waits until the operation has ended.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn wait(mut self) -> Result<Status, Error> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Open(pending) => self.communicator.wait_for_pending(pending),
            State::Done(status) => Ok(status),
            State::Over => Err(Error::RequestFailed),
        }
    }
}

impl fmt::Debug for OwnedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedRequest({})", self.state.name())
    }
}

impl Drop for OwnedRequest {
    fn drop(&mut self) {
        if let State::Open(pending) = &self.state {
            self.communicator.release_pending(pending);
        }
    }
}
