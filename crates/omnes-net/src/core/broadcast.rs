//! Broadcasts over multicast: how they start and end. Their packets travel like all others.

use super::Core;
use super::messages::{SCATTER_BYTES, fitted, slice};
use crate::memory::{Loan, Sink};
use crate::multicast::{HeardFor, MulticastState};
use crate::operations::{Completion, Disruption, Operation, OperationError, OperationKind, Spot};
use crate::waiting::LONG_BYTES;
use omnes_proto::broadcast::{
    Broadcast, BroadcastCounters, BroadcastError, CastGroupConfig, CastMessage, Event, GroupId,
    Hold,
};
use omnes_proto::channel::Reply;
use omnes_proto::group::Nodes;
use omnes_wire::{CommunicatorId, Rank, Words};
use std::ptr::NonNull;

/// A message to broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    /// The destination.
    pub group: GroupId,
    /// When the memory of the message may be reused.
    pub hold: Hold,
    /// Address of the message.
    pub base: NonNull<u8>,
    /// Its length in bytes.
    pub bytes: u64,
    /// What happens to a short message while the window is full.
    pub when_full: WhenFull,
}

/// What happens to a message that would be copied if the window had room for it [BC-R5].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// The caller waits for room.
    Wait,
    /// The message is lent, as longer ones are, and its operation ends when all ranks have it.
    Lend,
}

/// Memory that the engine sends from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backing {
    /// A copy; no caller waits for its arrival.
    Copy,
    /// The caller's memory.
    Loan,
}

impl Core {
    /// Index of the broadcast machine's memory and operations.
    pub(crate) fn cast_channel(&self) -> usize {
        self.endpoint.channels().len()
    }

    fn machine(&mut self) -> Result<&mut Broadcast, OperationError> {
        match &self.multicast {
            MulticastState::Off { reason } if !self.links.has_multisend() => {
                Err(OperationError::NoMulticast { reason: reason.clone() })
            }
            _ => {
                Ok(self.endpoint.broadcast_mut().expect("whoever reaches all has a machine for it"))
            }
        }
    }

    fn refused(&self, error: BroadcastError) -> OperationError {
        match error {
            BroadcastError::PeerFailed { rank } => self.gone(rank),
            BroadcastError::MessageTooLarge { bytes, bytes_max } => {
                OperationError::TooLarge { bytes, bytes_max }
            }
            error => OperationError::Broadcast(error),
        }
    }

    pub(crate) fn open_group(&mut self, group: CastGroupConfig) {
        let (communicator, is_leader) = (group.id.communicator, self.leads_in(&group.nodes));
        let Ok(machine) = self.machine() else { return };
        machine.open(group);
        if is_leader {
            self.links.hear_group_for(HeardFor::Broadcasts(communicator));
        }
    }

    /// True if this rank leads its node in `nodes`.
    pub(super) fn leads_in(&self, nodes: &Nodes) -> bool {
        nodes.place(self.me).is_some_and(|place| nodes.is_leader(place))
    }

    /// Closes the groups of a communicator that has been dropped, and its multi-send when this rank
    /// has nothing in progress there any more; data that ranks below still lack go to them one by
    /// one.
    pub(crate) fn close_groups(&mut self, communicator: CommunicatorId) {
        if let Some(machine) = self.endpoint.broadcast_mut() {
            machine.close(communicator);
        }
        self.closing.push(communicator);
        self.end_closing();
    }

    /// As [`Self::close_groups`], for a communicator whose collectives were given up half-way: what
    /// still arrives there has no receiver.
    pub(crate) fn abandon_groups(&mut self, communicator: CommunicatorId) {
        if let Some(machine) = self.endpoint.broadcast_mut() {
            machine.abandon(communicator);
        }
        for channel in &self.keeping_place {
            self.endpoint.channel_mut(*channel).abandon(communicator);
        }
        self.closing.push(communicator);
        self.send_now();
        self.end_closing();
    }

    pub(super) fn end_closing(&mut self) {
        let machine = self.endpoint.broadcast();
        let is_over = |it: &mut CommunicatorId| machine.is_none_or(|machine| machine.is_over(*it));
        let over: Vec<CommunicatorId> = self.closing.extract_if(.., is_over).collect();
        for communicator in over {
            self.links.forget_in_group(HeardFor::Broadcasts(communicator));
            self.close_multisend(communicator);
        }
    }

    pub(crate) fn announce(&mut self) {
        if let Ok(machine) = self.machine() {
            machine.announce();
        }
    }

    pub(crate) fn heard(&mut self) -> usize {
        self.machine().map_or(0, |machine| machine.heard())
    }

    pub(crate) fn broadcast_counters(&mut self) -> BroadcastCounters {
        self.endpoint.broadcast_mut().map_or_else(BroadcastCounters::default, |it| *it.counters())
    }

    /// True if all broadcasts have arrived, and this rank owes no answer for any.
    pub(crate) fn has_cast_all(&mut self) -> bool {
        self.endpoint.broadcast_mut().is_none_or(|machine| machine.is_idle())
    }

    /// Disables multicast from now on.
    pub(crate) fn disable_multicast(&mut self, reason: &str) {
        self.links.leave_group();
        self.multicast = MulticastState::Off { reason: reason.to_owned() };
    }

    /// Starts a broadcast and sends as much of it as possible; `None` if it waits for room in the
    /// window. Otherwise as [`Core::send`].
    ///
    /// # Safety
    /// As for [`Core::send`].
    pub(crate) unsafe fn try_broadcast(
        &mut self,
        cast: Cast,
        concerns: &impl Fn(Disruption<'_>) -> bool,
    ) -> Option<Result<Option<Operation>, OperationError>> {
        if let Some(failure) = self.failure(concerns) {
            return Some(Err(failure));
        }
        let has_room = match self.machine() {
            Ok(machine) => machine.has_room(cast.group),
            Err(error) => return Some(Err(error)),
        };
        let backing = match (cast.hold.copies(cast.bytes), has_room, cast.when_full) {
            (true, false, WhenFull::Wait) => return None,
            (true, true, _) => Backing::Copy,
            (true, false, WhenFull::Lend) | (false, _, _) => Backing::Loan,
        };
        let now = self.now();
        // SAFETY: the caller's promise is passed on.
        let started = unsafe { self.broadcast(cast, backing) };
        self.send_at(now);
        Some(started)
    }

    /// # Safety
    /// As for [`Core::send`].
    unsafe fn broadcast(
        &mut self,
        cast: Cast,
        backing: Backing,
    ) -> Result<Option<Operation>, OperationError> {
        let Cast { group, hold, base, bytes, .. } = cast;
        // A full window means a stream of messages, which is acknowledged without a request, also
        // if the messages are lent: otherwise each of them would cause an answer from every rank.
        let reply = if hold.copies(bytes) { Reply::Lazy } else { Reply::Soon };
        let sent = self.machine()?.send(CastMessage { group, bytes, reply });
        let id = sent.map_err(|error| self.refused(error))?;
        let channel = self.cast_channel();
        if backing == Backing::Copy {
            // SAFETY: the caller vouches for the memory.
            self.memory.copy_in(channel, id, None, unsafe { slice(base, bytes) });
            return Ok(None);
        }
        let operation = self.operations.start();
        self.memory.lend(channel, id, Loan { base, bytes, operation });
        let (kind, spot) = (OperationKind::Send(id), Spot::Anywhere);
        Ok(Some(Operation { id: operation, channel, kind, spot, is_long: bytes >= LONG_BYTES }))
    }

    /// Starts to receive the next message of `root` that has no receive yet.
    ///
    /// # Safety
    /// As for [`Core::receive`].
    pub(crate) unsafe fn receive_broadcast(
        &mut self,
        group: GroupId,
        root: Rank,
        base: NonNull<u8>,
        capacity: u64,
    ) -> Result<Operation, OperationError> {
        self.check_standing()?;
        let now = self.now();
        let posted = self.machine()?.receive(now, group, root, capacity);
        let receive = posted.map_err(|error| self.refused(error))?;
        let (channel, operation) = (self.cast_channel(), self.operations.start());
        let (base, waits) = (Some(base), Some(operation));
        let sink = Sink { base, capacity, operation: waits, from: Some(root) };
        self.memory.open_sink(channel, receive, sink);
        if capacity >= SCATTER_BYTES {
            self.inbound.large_casts += 1;
        }
        self.send_at(now);
        let (kind, spot) = (OperationKind::Receive(Some(receive)), Spot::Group);
        Ok(Operation { id: operation, channel, kind, spot, is_long: capacity >= LONG_BYTES })
    }

    pub(super) fn on_broadcast_event(&mut self, event: Event) {
        let channel = self.cast_channel();
        match event {
            Event::Sent { id } => {
                self.withdraw(channel, id);
                if let Some(Loan { bytes, operation, .. }) = self.memory.take_source(channel, id) {
                    let sent = Completion { peer: self.me, tag: 0, bytes, words: Words::NONE };
                    self.operations.end(operation, Ok(sent));
                }
            }
            Event::Received { id, bytes } => {
                let Some(sink) = self.close(channel, id) else { return };
                let root = sink.from.unwrap_or(self.me);
                self.end_receive(sink, fitted(sink, root, 0, bytes));
            }
            Event::SendFailed { id, rank } => {
                self.withdraw(channel, id);
                if let Some(loan) = self.memory.take_source(channel, id) {
                    self.operations.end(loan.operation, Err(self.gone(rank)));
                }
            }
            Event::ReceiveFailed { id, rank } => {
                let Some(sink) = self.close(channel, id) else { return };
                self.end_receive(sink, Err(self.gone(rank)));
            }
        }
    }
}
