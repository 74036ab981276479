//! Broadcasts over multicast: how they start and end. In between their packets travel as all do.

use super::{Core, LINES_PER_PUSH, SCATTER_BYTES, fitted, slice};
use crate::core::Look;
use crate::memory::{Loan, Sink};
use crate::multicast::MulticastState;
use crate::operations::{Completion, Gone, Operation, OperationError, Part, Spot};
use crate::poller::Poller;
use omnes_proto::broadcast::{
    Broadcast, BroadcastCounters, BroadcastError, CastMessage, Event, GroupConfig, GroupId, Hold,
};
use omnes_proto::channel::Reply;
use omnes_wire::Rank;
use std::ptr::NonNull;
use std::time::Duration;

/// Longest time that a rank which only broadcasts goes without hearing what the others report.
const DEAF_MAX: Duration = Duration::from_micros(100);

/// A message to broadcast.
#[derive(Clone, Copy)]
pub(crate) struct Cast {
    pub(crate) group: GroupId,
    pub(crate) hold: Hold,
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: u64,
}

impl Cast {
    /// True if the engine sends a copy, and nobody waits for its arrival.
    fn is_copied(&self) -> bool {
        self.hold.copies(self.bytes)
    }
}

impl Core {
    /// The index of the broadcast machine's memory and of its operations.
    pub(crate) fn cast_channel(&self) -> usize {
        self.endpoint.channels().len()
    }

    fn machine(&mut self) -> Result<&mut Broadcast, OperationError> {
        match &self.multicast {
            MulticastState::Off { reason } if !self.links.has_spread() => {
                Err(OperationError::NoMulticast { reason: reason.clone() })
            }
            _ => Ok(self.endpoint.broadcast().expect("whoever reaches all has a machine for it")),
        }
    }

    fn refused(&self, error: BroadcastError) -> OperationError {
        match error {
            BroadcastError::PeerFailed { rank } => self.gone(rank),
            error => OperationError::Broadcast(error),
        }
    }

    pub(crate) fn open_group(&mut self, group: GroupConfig) {
        if let Ok(machine) = self.machine() {
            machine.open(group);
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
        self.endpoint.broadcast().map_or_else(BroadcastCounters::default, |it| *it.counters())
    }

    /// True if all that was broadcast has arrived, and nothing is owed for what came.
    pub(crate) fn has_cast_all(&mut self) -> bool {
        self.endpoint.broadcast().is_none_or(|machine| machine.is_idle())
    }

    /// Does without multicast from now on.
    pub(crate) fn disable_multicast(&mut self, reason: &str) {
        self.links.leave_group();
        self.multicast = MulticastState::Off { reason: reason.to_owned() };
    }

    /// Starts a broadcast and sends what may be sent of it; `None` if the window has no room for a
    /// message that is copied. Otherwise as [`Core::send`].
    ///
    /// # Safety
    /// As for [`Core::send`].
    pub(crate) unsafe fn try_broadcast(
        &mut self,
        cast: Cast,
        concerns: &impl Fn(Gone) -> bool,
    ) -> Option<Result<Option<Operation>, OperationError>> {
        if let Some(failure) = self.failure(concerns) {
            return Some(Err(failure));
        }
        let is_full = |machine: &mut Broadcast| cast.is_copied() && !machine.has_room(cast.group);
        match self.machine().map(is_full) {
            Ok(true) => return None,
            Ok(false) => {}
            Err(error) => return Some(Err(error)),
        }
        // SAFETY: the caller's promise is passed on.
        let started = unsafe { self.broadcast(cast) };
        let now = self.now();
        self.settle(now);
        self.transmit(now, LINES_PER_PUSH);
        Some(started)
    }

    /// # Safety
    /// As for [`Core::send`].
    unsafe fn broadcast(&mut self, cast: Cast) -> Result<Option<Operation>, OperationError> {
        let Cast { group, base, bytes, .. } = cast;
        let reply = if cast.is_copied() { Reply::Lazy } else { Reply::Soon };
        let now = self.now();
        let sent = self.machine()?.send(now, CastMessage { group, bytes, reply });
        let id = sent.map_err(|error| self.refused(error))?;
        let channel = self.cast_channel();
        if cast.is_copied() {
            // SAFETY: the caller vouches for the memory.
            self.memory.copy_in(channel, id, unsafe { slice(base, bytes) });
            return Ok(None);
        }
        let operation = self.operations.start();
        self.memory.lend(channel, id, Loan { base, bytes, operation });
        let (part, spot) = (Part::Send(id), Spot::Anywhere);
        Ok(Some(Operation { id: operation, channel, part, spot }))
    }

    /// Looks what the others report, if that has not been done for a while: a rank that starts one
    /// broadcast after the other and waits for none would leave losses unrepaired.
    pub(crate) fn listen(&mut self, poller: &Poller) {
        if self.now().since(self.stepped_at) >= DEAF_MAX {
            self.progress(Look::Everywhere(poller));
            self.step();
        }
    }

    /// Starts to receive the next message of `root` that no receive waits for.
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
        let sink = Sink { base, capacity, operation, from: Some(root) };
        self.memory.open_sink(channel, receive, sink);
        if capacity >= SCATTER_BYTES {
            self.large_casts += 1;
        }
        self.settle(now);
        let (part, spot) = (Part::Receive(Some(receive)), Spot::Group);
        Ok(Operation { id: operation, channel, part, spot })
    }

    pub(super) fn on_broadcast_event(&mut self, event: Event) {
        let channel = self.cast_channel();
        match event {
            Event::Sent { id } => {
                self.withdraw(channel, id);
                if let Some(Loan { bytes, operation, .. }) = self.memory.take_source(channel, id) {
                    let sent = Completion { peer: self.me, tag: 0, bytes };
                    self.operations.end(operation, Ok(sent));
                }
            }
            Event::Received { id, bytes } => {
                let Some(sink) = self.close(channel, id) else { return };
                let root = sink.from.unwrap_or(self.me);
                self.operations.end(sink.operation, fitted(sink, root, 0, bytes));
            }
            Event::SendFailed { id, rank } => {
                self.withdraw(channel, id);
                if let Some(loan) = self.memory.take_source(channel, id) {
                    self.operations.end(loan.operation, Err(self.gone(rank)));
                }
            }
            Event::ReceiveFailed { id, rank } => {
                let Some(sink) = self.close(channel, id) else { return };
                self.operations.end(sink.operation, Err(self.gone(rank)));
            }
        }
    }
}
