//! One rank's part in broadcasts: groups, commands, events.

use super::{Node, World};
use crate::rig::ledger::{CastStream, Operation, State};
use crate::rig::script::Receipt;
use omnes_proto::broadcast::{Broadcast, CastGroupConfig, CastMessage, Event, GroupId, Policy};
use omnes_proto::channel::Reply;
use omnes_proto::group::Nodes;
use omnes_wire::{CommunicatorId, Rank};
use std::rc::Rc;

/// The communicator of the groups of scripts.
const SCRIPT_GROUPS: CommunicatorId = CommunicatorId(0x5c21);

/// The group that all ranks use for broadcasts of scripts with the `number`-th policy.
pub(crate) fn script_group(ranks: u32, number: u8, policy: Policy) -> CastGroupConfig {
    let nodes = Nodes::one_each(ranks);
    CastGroupConfig { id: GroupId { communicator: SCRIPT_GROUPS, number }, nodes, policy }
}

/// Whether a script waits for the end of an operation that it has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    /// The script waits: the memory is in use.
    Pending,
    /// The script does not wait: the message was copied.
    Copied,
}

impl Node {
    /// The broadcast machine.
    ///
    /// # Panics
    /// If the cluster was built without broadcasts: an error in the test.
    pub(crate) fn machine(&mut self) -> &mut Broadcast {
        match self.endpoint.broadcast_mut() {
            Some(machine) => machine,
            None => panic!("the cluster was built without broadcasts"),
        }
    }

    /// Index of the memory of broadcasts.
    pub(super) fn broadcast_index(&self) -> usize {
        self.endpoint.channels().len()
    }

    pub(crate) fn open_group(&mut self, world: &mut World, group: &Rc<CastGroupConfig>) {
        self.groups.insert(group.id, group.clone());
        self.machine().open(CastGroupConfig::clone(group));
        world.network.casts.on_open(group.id, self.rank);
        let note = format!("opens {:?} {} {:?}", group.id, group.policy, group.nodes);
        world.network.trace.note(world.now, self.rank, note);
    }

    pub(crate) fn close_groups(&mut self, world: &mut World, communicator: CommunicatorId) {
        self.machine().close(communicator);
        let note = format!("closes the groups of {}", communicator.0);
        world.network.trace.note(world.now, self.rank, note);
    }

    pub(crate) fn abandon_groups(&mut self, world: &mut World, communicator: CommunicatorId) {
        self.machine().abandon(communicator);
        let note = format!("abandons the groups of {}", communicator.0);
        world.network.trace.note(world.now, self.rank, note);
    }

    /// The stream of a root in a group.
    ///
    /// # Panics
    /// If this rank has not opened the group: an error in the test.
    fn cast_stream(&self, group: GroupId, root: Rank) -> CastStream {
        let Some(group) = self.groups.get(&group) else { panic!("{group:?} is not open") };
        CastStream { group: group.clone(), root }
    }

    /// Begins to broadcast; the operation has failed if the machine refuses.
    pub(crate) fn broadcast(
        &mut self,
        world: &mut World,
        group: GroupId,
        content: Rc<[u8]>,
        reply: Reply,
    ) -> Operation {
        let stream = self.cast_stream(group, self.rank);
        let bytes = content.len() as u64;
        let (rank, now) = (self.rank, world.now);
        match self.machine().send(CastMessage { group, bytes, reply }) {
            Ok(id) => {
                world.network.casts.on_broadcast(&stream, bytes);
                let (operation, number) = world.ledger.add_broadcast(stream, content.clone());
                self.casts.insert(operation, number);
                let index = self.broadcast_index();
                self.memory[index].add_send(id, operation, content, bytes);
                operation
            }
            Err(error) => {
                world.network.trace.note(now, rank, format!("refused: {error}"));
                world.ledger.add_refused(now, rank, stream)
            }
        }
    }

    /// Posts a receive; the operation has failed if the machine refuses.
    pub(crate) fn receive_broadcast(
        &mut self,
        world: &mut World,
        group: GroupId,
        root: Rank,
        capacity: u64,
    ) -> Operation {
        let stream = self.cast_stream(group, root);
        let (rank, now) = (self.rank, world.now);
        match self.machine().receive(now, group, root, capacity) {
            Ok(id) => {
                let operation = world.ledger.add_broadcast_receive(rank, stream, capacity);
                let index = self.broadcast_index();
                self.memory[index].add_receive(id, operation, capacity);
                operation
            }
            Err(error) => {
                world.network.trace.note(now, rank, format!("refused: {error}"));
                world.ledger.add_refused(now, rank, stream)
            }
        }
    }

    pub(super) fn take_broadcast_event(
        &mut self,
        world: &mut World,
        event: Event,
    ) -> Result<(), String> {
        let index = self.broadcast_index();
        match event {
            Event::Sent { id } => {
                let operation = self.memory[index].finish_send(id)?;
                world.ledger.settle(operation, State::Done(world.now));
                self.program.on_done(operation, None);
                let number = self.casts.remove(&operation);
                let stream = world.ledger.cast_stream(operation);
                if let (Some(number), Some(stream)) = (number, stream) {
                    world.network.casts.on_done(stream, number)?;
                }
            }
            Event::Received { id, bytes } => {
                let (operation, content) = self.memory[index].finish_receive(id, bytes)?;
                let from = world.ledger.cast_stream(operation).map_or(self.rank, |cast| cast.root);
                let receipt = Receipt { from, tag: 0, bytes, buffer: 0 };
                self.program.on_done(operation, Some((receipt, &content)));
                world.ledger.on_broadcast_received(world.now, operation, bytes, content)?;
            }
            Event::SendFailed { id, .. } => {
                let operation = self.memory[index].finish_send(id)?;
                self.casts.remove(&operation);
                self.fail(world, operation);
            }
            Event::ReceiveFailed { id, .. } => {
                let operation = self.memory[index].abandon_receive(id)?;
                self.fail(world, operation);
            }
        }
        Ok(())
    }

    // ---- the script -----------------------------------------------------------------------

    /// True if the root of a broadcast must wait for room in its window before it begins.
    pub(super) fn is_window_full(&self, policy: Policy, root: Rank, bytes: usize) -> bool {
        if root != self.rank || !is_copied(policy, bytes) {
            return false;
        }
        let Some(group) = self.group_of(policy) else { return false };
        self.endpoint.broadcast().is_some_and(|machine| !machine.has_room(group))
    }

    fn group_of(&self, policy: Policy) -> Option<GroupId> {
        let of_scripts = |group: &&Rc<CastGroupConfig>| group.id.communicator == SCRIPT_GROUPS;
        let mut groups = self.groups.values().filter(of_scripts);
        groups.find(|group| group.policy == policy).map(|group| group.id)
    }

    /// Runs a step of a script: the root sends the buffer, all others receive into it.
    pub(super) fn begin_broadcast(
        &mut self,
        world: &mut World,
        policy: Policy,
        root: Rank,
        buffer: usize,
    ) -> (Operation, Begun) {
        let Some(group) = self.group_of(policy) else { panic!("no group for {policy}") };
        let bytes = self.program.outcome.buffers[buffer].len();
        if root != self.rank {
            let operation = self.receive_broadcast(world, group, root, bytes as u64);
            return (operation, Begun::Pending);
        }
        let content: Rc<[u8]> = self.program.outcome.buffers[buffer].as_slice().into();
        if is_copied(policy, bytes) {
            (self.broadcast(world, group, content, Reply::Lazy), Begun::Copied)
        } else {
            (self.broadcast(world, group, content, Reply::Soon), Begun::Pending)
        }
    }
}

fn is_copied(policy: Policy, bytes: usize) -> bool {
    policy.hold.copies(bytes as u64)
}
