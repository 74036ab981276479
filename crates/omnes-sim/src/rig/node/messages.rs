//! Messages on channels: commands, and the resulting events.

use super::{Node, World};
use crate::rig::ledger::{Operation, State, Stream};
use crate::rig::script::Receipt;
use omnes_proto::channel::{Event as ChannelEvent, Message, Pattern, Reply};
use omnes_wire::CommunicatorId;
use std::rc::Rc;

impl Node {
    // ---- commands -------------------------------------------------------------------------

    /// Begins to send. If the machine refuses, the operation has failed.
    pub(crate) fn send(
        &mut self,
        world: &mut World,
        stream: Stream,
        content: Rc<[u8]>,
        available: u64,
        reply: Reply,
    ) -> Operation {
        let Stream { to, channel, communicator, tag, .. } = stream;
        let bytes = content.len() as u64;
        let is_ready = available == bytes;
        let operation = world.ledger.add_send(stream, content.clone(), is_ready);
        let message = Message { to, communicator, tag, bytes, available, reply };
        match self.endpoint.channel_mut(channel).send(message) {
            Ok(id) => self.memory[channel].add_send(id, operation, content, available),
            Err(_) => world.ledger.settle(operation, State::Failed(world.now)),
        }
        operation
    }

    pub(crate) fn receive(
        &mut self,
        world: &mut World,
        channel: usize,
        pattern: Pattern,
        capacity: u64,
    ) -> Operation {
        let operation = world.ledger.add_receive(self.rank, channel, pattern, capacity);
        match self.endpoint.channel_mut(channel).receive(world.now, pattern, capacity) {
            Ok(id) => self.memory[channel].add_receive(id, operation, capacity),
            Err(_) => world.ledger.settle(operation, State::Failed(world.now)),
        }
        operation
    }

    /// Cancels a receive; false if a message has already matched it.
    pub(crate) fn cancel(&mut self, world: &mut World, channel: usize, what: Operation) -> bool {
        let Some(id) = self.memory[channel].receive_id(what) else { return false };
        if !self.endpoint.channel_mut(channel).cancel(id) {
            return false;
        }
        let abandoned = self.memory[channel].abandon_receive(id).map(|_| ());
        world.check(self.rank, abandoned);
        world.ledger.settle(what, State::Cancelled);
        true
    }

    /// Gives a message up, if not all of it is available.
    pub(crate) fn cut(&mut self, world: &mut World, channel: usize, send: Operation) {
        let Some((id, bytes)) = self.memory[channel].incomplete_send(send) else { return };
        world.ledger.cut(send);
        self.endpoint.cut(channel, id, u64::MAX);
        let left = self.endpoint.channels()[channel].available_bytes(id);
        let is_less =
            if left <= bytes { Ok(()) } else { Err(format!("a cut leaves {left} bytes")) };
        self.memory[channel].extend(send, left);
        world.check(self.rank, is_less);
    }

    // ---- events ---------------------------------------------------------------------------

    pub(super) fn take_channel_event(
        &mut self,
        world: &mut World,
        channel: usize,
        event: ChannelEvent,
    ) -> Result<(), String> {
        let memory = &mut self.memory[channel];
        match event {
            ChannelEvent::Sent { id } => {
                let operation = memory.finish_send(id)?;
                world.ledger.settle(operation, State::Done(world.now));
                self.program.on_done(operation, None);
            }
            ChannelEvent::Received { id, from, tag, bytes } => {
                let (operation, content) = memory.finish_receive(id, bytes)?;
                self.probes.on_received(operation, (from, tag, bytes))?;
                let receipt = Receipt { from, tag, bytes, buffer: 0 };
                self.program.on_done(operation, Some((receipt, &content)));
                let communicator = world.ledger.communicator(operation);
                let stream = Stream { from, to: self.rank, channel, communicator, tag };
                world.ledger.on_received(world.now, operation, stream, bytes, content)?;
            }
            ChannelEvent::Cut { id, from, tag } => {
                let operation = memory.abandon_receive(id)?;
                let communicator = world.ledger.communicator(operation);
                let stream = Stream { from, to: self.rank, channel, communicator, tag };
                world.ledger.on_cut(world.now, operation, stream)?;
                self.program.on_failed(operation);
            }
            ChannelEvent::SendFailed { id, .. } => {
                let operation = memory.finish_send(id)?;
                self.fail(world, operation);
            }
            ChannelEvent::ReceiveFailed { id, .. } => {
                let operation = memory.abandon_receive(id)?;
                self.fail(world, operation);
            }
            ChannelEvent::Notice { from, tag } => {
                let communicator = CommunicatorId::NOTICES;
                let stream = Stream { from, to: self.rank, channel, communicator, tag };
                world.ledger.on_notice(world.now, stream)?;
            }
            ChannelEvent::Sought => {}
            ChannelEvent::Stable => self.stable_at[channel] = Some(world.now),
            ChannelEvent::PeerSilent { rank }
            | ChannelEvent::PeerQuiet { rank }
            | ChannelEvent::MtuBlackHole { rank } => {
                return Err(format!("silence of {rank} gets past the endpoint"));
            }
        }
        Ok(())
    }
}
