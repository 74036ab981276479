//! Messages between two ranks; [`Scope`](crate::Scope) has the nonblocking forms.

use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::job::POINT_TO_POINT;
use omnes_net::{Completion, Disruption, Message, Operation, Outcome, Pattern, Reply};

/// Which ranks a receive accepts messages from.
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

/// Which tags a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// This tag.
    Is(u32),
    /// Any tag.
    Any,
}

impl From<u32> for Tag {
    fn from(tag: u32) -> Self {
        Self::Is(tag)
    }
}

/// Sender, tag and length of the message of a completed operation.
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
    /// Sends `data` to rank `to`, and returns when `data` may be used again. Messages of one sender
    /// with the same tag arrive in the order sent.
    ///
    /// A message of up to 16 KiB is copied, and the call returns immediately. A longer message
    /// blocks until it has arrived, and one above
    /// [`Config::eager_bytes`](crate::Config::eager_bytes) until the receiver has posted a matching
    /// receive: if two ranks both send such a message to each other first, they deadlock. Use
    /// [`Self::sendrecv`] or [`Scope::isend`](crate::Scope::isend).
    ///
    /// As with MPI's standard mode, buffering is limited. The sender copies at most 4 MiB per
    /// receiver, counting 128 bytes of overhead per message, and blocks beyond that until the
    /// message has arrived. The receiver buffers
    /// [`Config::pool_packets`](crate::Config::pool_packets) packets of unexpected messages, of all
    /// senders together. Messages to oneself are buffered without limit.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::TooLarge`], [`Error::PeerFailed`], [`Error::PeerLeft`].
    pub fn send(&self, to: u32, tag: u32, data: &[u8]) -> Result<(), Error> {
        // SAFETY: waited for below.
        let started = unsafe { self.start_message(to, tag, data)? };
        started.map_or(Ok(()), |operation| self.wait_for_message(operation).map(|_| ()))
    }

    /// Waits for the oldest message from `from` with `tag` that no receive has taken yet, and
    /// stores it in `buffer`, which may be longer. Messages of one sender with the same tag arrive
    /// in the order sent.
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

    /// Sends `data` to rank `to` with `tag`, and at the same time receives the oldest message from
    /// `from` with tag `wanted` into `buffer`, so that ranks can exchange messages of any length.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::recv`]. After an error other than
    /// [`Error::Truncated`], `data` still arrive if at most 4 MiB of them had not been sent;
    /// otherwise their receiver gets [`Error::PeerGaveUp`].
    pub fn sendrecv(
        &self,
        to: u32,
        tag: u32,
        data: &[u8],
        from: impl Into<Source>,
        wanted: impl Into<Tag>,
        buffer: &mut [u8],
    ) -> Result<Status, Error> {
        let mut sent = InFlight::new(self);
        // SAFETY: waited for, or given up, before this returns.
        sent.push_begun(unsafe { self.begin_send(to, tag, data)? });
        let received = self.recv(from, wanted, buffer);
        match received {
            Ok(_) | Err(Error::Truncated { .. }) => sent.wait_until_left(0).and(received),
            Err(_) => received,
        }
    }

    /// Waits for the oldest message from `from` with `tag` that no receive has taken yet, as
    /// [`Self::recv`] does, but does not take it. Its sender, tag and length tell how to receive
    /// it: a receive from that sender with that tag gets it, unless another thread's receive got it
    /// first.
    ///
    /// ```no_run
    /// # // Needs a launcher.
    /// # use omnes::{Source, Tag};
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// let found = world.probe(Source::Any, Tag::Any)?;
    /// let mut message = vec![0; found.bytes];
    /// world.recv(found.source, found.tag, &mut message)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::PeerFailed`], [`Error::PeerLeft`].
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status, Error> {
        let pattern = self.pattern(from.into(), tag.into())?;
        let breaks = |gone: Disruption<'_>| self.breaks_message(gone);
        self.probed(self.engine_to_start()?.probe(POINT_TO_POINT, &pattern, breaks))
    }

    /// As [`Self::probe`], but without waiting: `None` if no such message has arrived yet.
    ///
    /// # Errors
    /// As [`Self::probe`].
    pub fn iprobe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Status>, Error> {
        let pattern = self.pattern(from.into(), tag.into())?;
        let breaks = |gone: Disruption<'_>| self.breaks_message(gone);
        let found = self.engine_to_start()?.iprobe(POINT_TO_POINT, &pattern, breaks);
        found.map(|outcome| self.probed(outcome)).transpose()
    }

    fn probed(&self, outcome: Outcome) -> Result<Status, Error> {
        outcome.map(|found| self.status(found)).map_err(|error| self.note_error(error))
    }

    /// The pattern of the messages that a receive or probe accepts.
    fn pattern(&self, from: Source, tag: Tag) -> Result<Pattern, Error> {
        let source = match from {
            Source::Any => None,
            Source::Rank(rank) => {
                self.check_rank(rank)?;
                Some(self.job_rank(rank))
            }
        };
        let tag = match tag {
            Tag::Any => None,
            Tag::Is(tag) => Some(tag),
        };
        Ok(Pattern { communicator: self.inner.id, source, tag })
    }

    pub(crate) fn status(&self, completion: Completion) -> Status {
        Status {
            source: self.comm_rank(completion.peer.0),
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
            to: self.job_rank(to),
            communicator: self.inner.id,
            tag,
            bytes,
            available: bytes,
            reply: Reply::Soon,
        };
        let base = Bytes::of(data).base;
        // SAFETY: promised by the caller.
        let started = unsafe { self.engine_to_start()?.send(POINT_TO_POINT, message, base) };
        started.map_err(|error| self.note_error(error))
    }

    /// # Safety
    /// `data` must stay valid and not be accessed otherwise until the operation has ended or was
    /// released.
    pub(crate) unsafe fn start_message_receive(
        &self,
        from: Source,
        tag: Tag,
        data: Bytes,
    ) -> Result<Operation, Error> {
        let pattern = self.pattern(from, tag)?;
        let (base, length) = (data.base, data.length as u64);
        // SAFETY: promised by the caller.
        let started =
            unsafe { self.engine_to_start()?.receive(POINT_TO_POINT, pattern, base, length) };
        started.map_err(|error| self.note_error(error))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::two_nodes::on_two_nodes;
    use crate::{Config, OwnedRequest};
    use omnes_net::KEPT_BYTES_MAX;
    use std::ptr::NonNull;
    use std::time::Duration;

    /// Packets that the receiver keeps; the sender keeps the rest.
    const POOL_PACKETS: u32 = 64;

    fn kept_bytes(world: &Communicator) -> u64 {
        world.job().engine.counters().kept_bytes
    }

    fn data(bytes: usize, number: u32) -> Vec<u8> {
        (0..bytes).map(|at| (at as u32 * 7 + number) as u8).collect()
    }

    fn receive_all(world: &Communicator, bytes: usize, count: u32) {
        let mut buffer = vec![0; bytes];
        for number in 0..count {
            world.recv(0, number, &mut buffer).unwrap();
            assert!(buffer == data(bytes, number), "message {number}");
        }
    }

    /// Runs `body` with receivers that keep little, by sockets and through shared memory.
    fn on_each_way(body: fn(&Communicator)) {
        on_two_nodes(|config: &mut Config| config.pool_packets = POOL_PACKETS, body);
        let shares = |config: &mut Config| {
            (config.pool_packets, config.shared_memory) = (POOL_PACKETS, true);
        };
        on_two_nodes(shares, body);
    }

    /// Messages of `bytes` bytes that a sender keeps.
    fn kept_max(bytes: usize) -> u32 {
        (KEPT_BYTES_MAX / (bytes as u64 + 128)) as u32
    }

    fn start_too_many(world: &Communicator, bytes: usize) {
        let count = 2 * kept_max(bytes) + POOL_PACKETS;
        if world.rank() == 1 {
            world.barrier().unwrap();
            return receive_all(world, bytes, count);
        }
        let messages: Vec<_> = (0..count).map(|number| data(bytes, number)).collect();
        let start = |(number, data): (u32, &Vec<u8>)| {
            let base = NonNull::from(&data[..]).cast();
            // SAFETY: waited for below, and nothing changes the messages.
            unsafe { world.isend_raw(1, number, base, bytes).unwrap() }
        };
        let mut sends: Vec<_> = (0..).zip(&messages).map(start).collect();
        assert!(kept_bytes(world) <= KEPT_BYTES_MAX);
        let is_open = |send: &mut OwnedRequest| send.test().unwrap().is_none();
        let open = sends.iter_mut().map(is_open).filter(|is_open| *is_open).count();
        // All other messages are kept, here or by the receiver.
        assert!(open >= kept_max(bytes) as usize, "{open} of {count} wait");
        world.barrier().unwrap();
        sends.into_iter().for_each(|send| assert!(send.wait().is_ok()));
        // The last messages are kept until they are acknowledged; those of barriers may still be in
        // flight.
        let is_freed = || kept_bytes(world) <= 16 * 128;
        let waits = (0..10_000).take_while(|_| !is_freed());
        waits.for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        assert!(is_freed(), "{} bytes are kept", kept_bytes(world));
    }

    #[test]
    fn unreceived_short_messages_are_buffered_up_to_a_limit() {
        on_each_way(|world| start_too_many(world, 1000));
        on_each_way(|world| start_too_many(world, 0));
    }

    #[test]
    fn multi_packet_sends_complete_before_any_receive_is_posted() {
        on_each_way(|world| {
            // More packets than the receiver keeps.
            let (bytes, count) = (16 << 10, 2 * POOL_PACKETS);
            if world.rank() == 0 {
                (0..count).for_each(|number| world.send(1, number, &data(bytes, number)).unwrap());
                world.barrier().unwrap();
            } else {
                world.barrier().unwrap();
                receive_all(world, bytes, count);
            }
        });
    }

    #[test]
    fn sender_over_the_buffer_limit_waits_for_arrivals() {
        on_each_way(|world| {
            let (bytes, count) = (1000, 3 * kept_max(1000));
            if world.rank() == 1 {
                return receive_all(world, bytes, count);
            }
            for number in 0..count {
                world.send(1, number, &data(bytes, number)).unwrap();
                assert!(kept_bytes(world) <= KEPT_BYTES_MAX, "after {number} messages");
            }
        });
    }
}
