//! Messages over channels: how they start and end, and how any operation releases its memory.

use super::{Core, LINES_PER_SEND};
use crate::line::Holding;
use crate::memory::{KEPT_BYTES_MAX, Loan, Sink};
use crate::operations::{
    Completion, Disruption, Operation, OperationError, OperationKind, Outcome, Spot,
};
use crate::self_messages::Room;
use crate::waiting::LONG_BYTES;
use omnes_proto::channel::{ChannelError, Event, Message, Pattern, Reply};
use omnes_proto::packet::{ReceiveId, SendId, Source};
use omnes_wire::{Rank, Words};
use std::ptr::NonNull;

/// Receives of at least this size are read straight into place.
pub(super) const SCATTER_BYTES: u64 = 16 << 10;

impl Core {
    /// Starts a send, and sends as much of it as possible; `None` if the send is complete for the
    /// caller. Data of a message that are not `available` yet are sent by [`Self::extend`].
    ///
    /// # Safety
    /// `base` must be valid for reading `message.bytes` until the operation returned has ended or
    /// been released, and bytes that are available must not change.
    pub(crate) unsafe fn send(
        &mut self,
        channel: usize,
        message: Message,
        base: NonNull<u8>,
    ) -> Result<Option<Operation>, OperationError> {
        self.check_standing()?;
        let is_whole = message.available == message.bytes;
        if message.to == self.me {
            // SAFETY: the caller vouches for the memory.
            let data = unsafe { slice(base, message.bytes) };
            self.send_to_self(channel, message, data);
            return Ok(None);
        }
        let is_short = self.endpoint.channels()[channel].copies(message.bytes) && is_whole;
        // No caller waits for the acknowledgement of a message that has been copied; messages that
        // are too many for that are a stream, which is acknowledged without a request.
        let reply = if is_short { Reply::Lazy } else { message.reply };
        let is_copied = is_short && self.memory.has_room(channel, message.to, message.bytes);
        let now = self.now();
        let started = self.endpoint.channel_mut(channel).send(Message { reply, ..message });
        let id = started.map_err(|error| match error {
            ChannelError::MessageTooLarge { bytes, bytes_max } => {
                OperationError::TooLarge { bytes, bytes_max }
            }
            _ => self.gone(message.to),
        })?;
        if is_copied {
            // SAFETY: the caller vouches for the memory.
            let data = unsafe { slice(base, message.bytes) };
            self.memory.copy_in(channel, id, Some(message.to), data);
            self.transmit(now, LINES_PER_SEND);
            return Ok(None);
        }
        let operation = self.operations.start();
        self.memory.lend(channel, id, Loan { base, bytes: message.bytes, operation });
        self.transmit(now, LINES_PER_SEND);
        let (kind, spot) = (OperationKind::Send(id), Spot::At(message.to));
        let is_long = message.bytes >= LONG_BYTES;
        Ok(Some(Operation { id: operation, channel, kind, spot, is_long }))
    }

    pub(crate) fn extend(&mut self, operation: Operation, available: u64) {
        let OperationKind::Send(id) = operation.kind else { return };
        if self.operations.is_ended(operation.id) {
            return;
        }
        self.endpoint.channel_mut(operation.channel).extend(id, available);
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// `base` must be valid for writing `capacity` bytes, and not be used otherwise, until the
    /// operation returned has ended or been released.
    pub(crate) unsafe fn receive(
        &mut self,
        channel: usize,
        pattern: Pattern,
        base: NonNull<u8>,
        capacity: u64,
    ) -> Result<Operation, OperationError> {
        self.check_standing()?;
        let id = self.operations.start();
        let spot = pattern.source.map_or(Spot::Anywhere, Spot::At);
        let is_long = capacity >= LONG_BYTES;
        let mut operation =
            Operation { id, channel, kind: OperationKind::Receive(None), spot, is_long };
        if pattern.source.is_none_or(|source| source == self.me) {
            // SAFETY: the caller's promise is passed on.
            let outcome =
                unsafe { self.own.receive(channel, pattern, Room { base, capacity }, id) };
            if let Some(outcome) = outcome {
                self.operations.end(id, outcome);
                return Ok(operation);
            }
            if pattern.source == Some(self.me) {
                return Ok(operation);
            }
        }
        let now = self.now();
        match self.endpoint.channel_mut(channel).receive(now, pattern, capacity) {
            Ok(receive) => {
                let from = pattern.source;
                self.memory.open_sink(
                    channel,
                    receive,
                    Sink { base: Some(base), capacity, operation: Some(id), from },
                );
                self.own.pair(id, receive);
                operation.kind = OperationKind::Receive(Some(receive));
                if capacity >= SCATTER_BYTES {
                    self.inbound.large_receives += 1;
                }
                // The remaining data of a message that has already started to arrive are requested
                // now.
                self.send_at(now);
            }
            Err(_) => {
                let gone = self.gone(pattern.source.unwrap_or(self.me));
                self.own.cancel(id);
                self.operations.end(id, Err(gone));
            }
        }
        Ok(operation)
    }

    /// The oldest matching message that has no receive yet, if one has arrived; it stays in place.
    /// Otherwise it is awaited, until another such message arrives or a receive is posted.
    fn probe(
        &mut self,
        channel: usize,
        pattern: &Pattern,
    ) -> Result<Option<Completion>, OperationError> {
        self.check_standing()?;
        let own = self.own.probe(channel, pattern);
        if own.is_some() || pattern.source == Some(self.me) {
            return Ok(own);
        }
        let there = &self.endpoint.channels()[channel];
        if let Some((peer, tag, bytes)) = there.probe(pattern) {
            return Ok(Some(Completion { peer, tag, bytes, words: Words::NONE }));
        }
        if !there.is_seeking(pattern) {
            let now = self.now();
            let sought = self.endpoint.channel_mut(channel).seek(now, pattern);
            sought.map_err(|_| self.gone(pattern.source.unwrap_or(self.me)))?;
            self.send_at(now);
        }
        Ok(None)
    }

    /// Outcome of a wait for such a message, if it has arrived or a rank that concerns the caller
    /// has failed or left.
    pub(crate) fn try_probe(
        &mut self,
        channel: usize,
        pattern: &Pattern,
        concerns: &impl Fn(Disruption<'_>) -> bool,
    ) -> Option<Outcome> {
        let found = self.probe(channel, pattern).transpose();
        found.or_else(|| self.failure(concerns).map(Err))
    }

    /// Releases an operation's memory, regardless of other ranks: a receive without a message is
    /// cancelled, or takes its message without memory; transfers in progress continue from the
    /// engine's own memory. Returns the outcome if the operation has ended.
    pub(crate) fn release(&mut self, operation: Operation) -> Option<Outcome> {
        self.let_go(operation, u64::MAX)
    }

    /// As [`Self::release`], for an operation that an error or the program has ended: the remaining
    /// data of a long message are not sent any more, and its receiver is notified.
    pub(crate) fn abandon(&mut self, operation: Operation) {
        self.let_go(operation, KEPT_BYTES_MAX);
    }

    /// If more than `rest_max` bytes of a message have not been sent, they never are.
    fn let_go(&mut self, operation: Operation, rest_max: u64) -> Option<Outcome> {
        let Operation { id, channel, kind, spot, .. } = operation;
        self.relay_no_more(id);
        if let Some(outcome) = self.operations.take(id) {
            return Some(outcome);
        }
        match kind {
            OperationKind::Send(send) => {
                self.withdraw(channel, send);
                let wanted = if channel == self.cast_channel() {
                    0..u64::MAX // All of it may be needed again.
                } else {
                    self.endpoint.cut(channel, send, rest_max);
                    let channel = &self.endpoint.channels()[channel];
                    channel.unanswered_from(send)..channel.available_bytes(send)
                };
                let to = match spot {
                    Spot::At(rank) => Some(rank),
                    Spot::Group | Spot::Page | Spot::Anywhere => None,
                };
                self.memory.keep_source(channel, send, to, wanted);
            }
            OperationKind::Barrier => self.barriers.forget(id),
            OperationKind::Schedule => self.release_schedule(id),
            OperationKind::Receive(receive) => {
                self.own.cancel(id);
                if let Some(receive) = receive {
                    self.release_receive(channel, receive);
                }
            }
        }
        self.operations.forget(id);
        None
    }

    fn release_receive(&mut self, channel: usize, receive: ReceiveId) {
        // A broadcast, or another collective's message, precedes others of its root.
        let stays = channel == self.cast_channel() || self.keeping_place.contains(&channel);
        if !stays && self.endpoint.channel_mut(channel).cancel(receive) {
            self.close(channel, receive);
        } else if let Some(sink) = self.memory.drop_sink(channel, receive) {
            self.uncount(channel, sink);
        }
    }

    /// Data lined up of a message must not be sent from memory that has been returned to its owner.
    pub(super) fn withdraw(&mut self, channel: usize, id: SendId) {
        self.line.withdraw(Holding { channel, source: Source::Message(id) });
    }

    /// Ends the use of a receive's memory.
    pub(super) fn close(&mut self, channel: usize, id: ReceiveId) -> Option<Sink> {
        let sink = self.memory.close_sink(channel, id)?;
        self.uncount(channel, sink);
        Some(sink)
    }

    /// Stops counting a large receive whose memory is released, if it had any.
    fn uncount(&mut self, channel: usize, sink: Sink) {
        if sink.base.is_some() && sink.capacity >= SCATTER_BYTES {
            if channel == self.cast_channel() {
                self.inbound.large_casts -= 1
            } else {
                self.inbound.large_receives -= 1
            }
        }
    }

    fn send_to_self(&mut self, channel: usize, message: Message, data: &[u8]) {
        let endpoint = &mut self.endpoint;
        let take_back = |receive| endpoint.channel_mut(channel).cancel(receive);
        let Some(done) = self.own.send(channel, message, data, take_back) else {
            return self.operations.on_sought();
        };
        if let Some(receive) = done.paired {
            self.close(channel, receive);
        }
        self.operations.end(done.operation, done.outcome);
    }

    pub(super) fn end_receive(&mut self, sink: Sink, outcome: Outcome) {
        if let Some(operation) = sink.operation {
            self.own.cancel(operation);
            self.operations.end(operation, outcome);
        }
    }

    /// Completion of an operation that has no sender, tag or length to report.
    pub(crate) fn own_completion(&self) -> Completion {
        Completion { peer: self.me, tag: 0, bytes: 0, words: Words::NONE }
    }

    pub(super) fn on_channel_event(&mut self, channel: usize, event: Event) {
        match event {
            Event::Sent { id } => {
                self.withdraw(channel, id);
                if let Some(loan) = self.memory.take_source(channel, id) {
                    self.operations.end(loan.operation, Ok(self.own_completion()));
                }
            }
            Event::Received { id, from, tag, bytes } => {
                let Some(sink) = self.close(channel, id) else { return };
                self.end_receive(sink, fitted(sink, from, tag, bytes));
            }
            Event::Cut { id, from, .. } => {
                let Some(sink) = self.close(channel, id) else { return };
                self.end_receive(sink, Err(OperationError::GivenUp { rank: from }));
            }
            Event::Sought => self.operations.on_sought(),
            Event::Notice { from, tag } => self.standing.on_notice(from, tag),
            Event::SendFailed { id, to } => {
                self.withdraw(channel, id);
                if let Some(loan) = self.memory.take_source(channel, id) {
                    self.operations.end(loan.operation, Err(self.gone(to)));
                }
            }
            Event::ReceiveFailed { id, from } => {
                let Some(sink) = self.close(channel, id) else { return };
                self.end_receive(sink, Err(self.gone(from)));
            }
            Event::PeerSilent { .. }
            | Event::PeerQuiet { .. }
            | Event::MtuBlackHole { .. }
            | Event::Stable => {}
        }
    }
}

/// Outcome of a receive whose message has arrived.
pub(super) fn fitted(sink: Sink, peer: Rank, tag: u32, bytes: u64) -> Outcome {
    match sink.capacity {
        capacity if bytes > capacity => Err(OperationError::Truncated { bytes, capacity }),
        _ => Ok(Completion { peer, tag, bytes, words: Words::NONE }),
    }
}

/// User memory as bytes.
///
/// # Safety
/// `base` must be valid for reading `bytes` bytes for as long as the slice is used.
pub(super) unsafe fn slice<'a>(base: NonNull<u8>, bytes: u64) -> &'a [u8] {
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(base.as_ptr(), bytes as usize) }
}
