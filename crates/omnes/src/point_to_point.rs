//! Messages between two ranks; [`Scope`](crate::Scope) has those that do not block.

use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::job::POINT_TO_POINT;
use crate::under_way::UnderWay;
use omnes_net::{Completion, Message, Operation, Pattern, Reply};

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
    /// packet is on its way then, a longer one has arrived. A message above
    /// [`Config::eager_bytes`](crate::Config::eager_bytes) waits until its receiver has asked for
    /// it: two ranks that both send such a message first wait for ever; use [`Self::sendrecv`] or
    /// [`Scope::isend`](crate::Scope::isend).
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::TooLarge`], [`Error::PeerFailed`], [`Error::PeerLeft`].
    pub fn send(&self, to: u32, tag: u32, data: &[u8]) -> Result<(), Error> {
        // SAFETY: waited for below.
        let started = unsafe { self.start_message(to, tag, data)? };
        started.map_or(Ok(()), |operation| self.wait_for_message(operation).map(|_| ()))
    }

    /// Waits for the oldest message from `from` with `tag` that no receive has taken, and puts it
    /// into `buffer`, which may be longer. Messages of one sender with one tag come in the order
    /// sent.
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

    /// Sends `data` to rank `to` with `tag`, and receives the oldest message from `from` with
    /// `wanted` into `buffer` meanwhile, so that ranks may exchange messages of any length.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::recv`]. After an error other than [`Error::Truncated`] what
    /// has not been sent yet is given up.
    pub fn sendrecv(
        &self,
        to: u32,
        tag: u32,
        data: &[u8],
        from: impl Into<Source>,
        wanted: impl Into<Tag>,
        buffer: &mut [u8],
    ) -> Result<Status, Error> {
        let mut sent = UnderWay::new(self);
        // SAFETY: waited for, or given up, before this returns.
        sent.push_begun(unsafe { self.begin_send(to, tag, data)? });
        let received = self.recv(from, wanted, buffer);
        match received {
            Ok(_) | Err(Error::Truncated { .. }) => sent.wait_until_left(0).and(received),
            Err(_) => received,
        }
    }

    pub(crate) fn status(&self, completion: Completion) -> Status {
        Status {
            source: self.here(completion.peer.0),
            tag: completion.tag,
            bytes: completion.bytes as usize,
        }
    }

    /// # Safety
    /// `data` must stay valid and unchanged until the operation has ended or was released.
    pub(crate) unsafe fn start_message(
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
        let started = unsafe { self.engine_to_start()?.send(POINT_TO_POINT, message, base) };
        started.map_err(|error| self.error(error))
    }

    /// # Safety
    /// `data` must stay valid and be used by nobody else until the operation has ended or was
    /// released.
    pub(crate) unsafe fn start_message_receive(
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
        let started =
            unsafe { self.engine_to_start()?.receive(POINT_TO_POINT, pattern, base, length) };
        started.map_err(|error| self.error(error))
    }
}
