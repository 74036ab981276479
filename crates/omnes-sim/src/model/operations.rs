//! Progress of a rank's operations over the machines: messages, trees, multicast, barriers.

use super::host::Host;
use super::net::Net;
use super::plan::{BarrierKind, Op, Steps};
use super::shared::{MESSAGES, Shared};
use super::task::{Awaited, Running, Stage, Stepping};
use crate::engine::{Random, Span, Time};
use omnes_proto::algorithm::{BcastAlgorithm, Forwarding, PIPELINE_BYTES};
use omnes_proto::broadcast::{CastMessage, Event as CastEvent, Policy};
use omnes_proto::channel::{Event as ChannelEvent, Message, Pattern, Reply};
use omnes_proto::collective::Event as BarrierEvent;
use omnes_proto::endpoint::Event as EndpointEvent;
use omnes_proto::packet::SendId;
use omnes_topo::Tree;
use omnes_topo::barrier::STEPS_MAX;
use omnes_wire::Rank;

/// The peer that a machine has given up on.
fn lost_peer(event: &EndpointEvent) -> Option<Rank> {
    match *event {
        EndpointEvent::Broadcast(
            CastEvent::SendFailed { rank, .. } | CastEvent::ReceiveFailed { rank, .. },
        )
        | EndpointEvent::Collective(BarrierEvent::Failed { rank, .. })
        | EndpointEvent::PeerFailed(rank)
        | EndpointEvent::Channel(
            _,
            ChannelEvent::SendFailed { to: rank, .. }
            | ChannelEvent::ReceiveFailed { from: rank, .. },
        ) => Some(rank),
        _ => None,
    }
}

impl Host {
    /// Handles the machines' events.
    pub(super) fn take_events(&mut self, net: &mut Net, at: Time) {
        while let Some(event) = self.endpoint.poll_event(at.instant()) {
            match event {
                EndpointEvent::Channel(_, ChannelEvent::Received { id, .. }) => {
                    self.task.on_received(false, id);
                }
                EndpointEvent::Broadcast(CastEvent::Received { id, .. }) => {
                    self.task.on_received(true, id);
                }
                EndpointEvent::Channel(_, ChannelEvent::Sent { id }) => self.task.on_sent(id),
                EndpointEvent::Broadcast(CastEvent::Sent { id }) => {
                    if let Stage::Running(running) = &mut self.task.stage
                        && running.cast == Some(id)
                    {
                        running.cast = None;
                    }
                }
                EndpointEvent::Collective(BarrierEvent::Done { communicator, epoch, .. }) => {
                    if let Stage::Running(running) = &mut self.task.stage
                        && running.barrier == Some((communicator, epoch))
                    {
                        running.barrier = None;
                    }
                }
                other => match lost_peer(&other) {
                    Some(peer) => net.give_up(self.rank, peer.0),
                    None => net.complain(self.rank, &other),
                },
            }
        }
    }

    /// Advances the rank's operations as far as possible; returns the time at the end, and whether
    /// the machines received any command.
    pub(super) fn go_on(&mut self, net: &mut Net, shared: &Shared, at: Time) -> (Time, bool) {
        let (mut at, mut has_begun) = (at, false);
        loop {
            match std::mem::take(&mut self.task.stage) {
                Stage::Ready => {
                    let (later, is_told) = self.begin_next(net, shared, at);
                    at = later;
                    has_begun |= is_told;
                }
                Stage::Computing(until) if until <= at => {}
                Stage::Running(mut running) => {
                    has_begun |= self.continue_running(net, shared, &mut running, &mut at);
                    if !running.is_done() {
                        self.task.stage = Stage::Running(running);
                        return (at, has_begun);
                    }
                    net.ended(self.rank, running.number, running.op, (running.began, at));
                    self.task.used = Some(running);
                }
                waiting => {
                    self.task.stage = waiting;
                    return (at, has_begun);
                }
            }
        }
    }

    /// Begins the rank's next operation; returns the time at the end, and whether the machines
    /// received any command.
    fn begin_next(&mut self, net: &mut Net, shared: &Shared, at: Time) -> (Time, bool) {
        let number = self.task.next;
        let Some(op) = shared.plan.op(number) else {
            self.task.stage = Stage::Over;
            net.finished += 1;
            return (at, false);
        };
        self.task.next += 1;
        match op {
            Op::Meet => {
                self.task.stage = Stage::Meeting;
                net.met += 1;
                (at, false)
            }
            Op::Compute { most, root } => {
                if self.rank != root {
                    let name = u64::from(number) << 32 | u64::from(self.rank);
                    let time = Random::named(shared.seed, "compute", name).within(0, most.as_ps());
                    self.task.stage = Stage::Computing(at + Span::from_ps(time));
                }
                (at, false)
            }
            Op::Message { from, to, .. } | Op::Stream { from, to, .. }
                if self.rank != from && self.rank != to =>
            {
                (at, false)
            }
            Op::Bcast { .. } | Op::Barrier(_) | Op::Message { .. } | Op::Stream { .. } => {
                let mut running = Running::begin(self.task.used.take(), number, op, at);
                net.began(self.rank, number, op, at);
                let mut at = self.spend(net, at, net.testbed.host.call.fixed);
                match op {
                    Op::Bcast {
                        algorithm: BcastAlgorithm::Tree { tree, forwarding },
                        root,
                        bytes,
                    } => {
                        let shape = (tree, forwarding);
                        self.begin_tree(net, shared, &mut running, (shape, root, bytes), &mut at);
                    }
                    Op::Bcast { algorithm: BcastAlgorithm::Multicast(policy), root, bytes } => {
                        self.begin_cast(shared, &mut running, (policy, root, bytes), at);
                    }
                    Op::Barrier(kind) => {
                        self.begin_barrier(net, shared, &mut running, (kind, at));
                    }
                    Op::Message { from, to, bytes } if self.rank == from => {
                        self.send(net, &mut running, (Rank(to), bytes, bytes), &mut at);
                    }
                    Op::Message { from, bytes, .. } => {
                        self.receive(&mut running, (Rank(from), number, bytes), at);
                    }
                    Op::Stream { from, to, bytes, messages } => {
                        let what = (from, to, bytes);
                        for _ in 0..messages {
                            self.begin_streamed(net, &mut running, what, &mut at);
                        }
                    }
                    Op::Meet | Op::Compute { .. } => {}
                }
                self.task.stage = Stage::Running(running);
                (at, true)
            }
        }
    }

    // ---- messages -------------------------------------------------------------------------

    /// Begins a message of the operation; returns its id, if the operation waits for it.
    fn send(
        &mut self,
        net: &mut Net,
        running: &mut Running,
        (to, bytes, available): (Rank, u64, u64),
        at: &mut Time,
    ) -> Option<SendId> {
        let tag = running.stepping.as_ref().map_or(running.number, |stepping| stepping.tag);
        let is_copied = self.endpoint.channels()[0].copies(bytes) && available == bytes;
        let reply = if is_copied { Reply::Lazy } else { Reply::Soon };
        let message = Message { to, communicator: MESSAGES, tag, bytes, available, reply };
        let begun = self.endpoint.channel_mut(0).send(message);
        let Ok(id) = begun else {
            net.complain(self.rank, &begun);
            return None;
        };
        if is_copied {
            *at = self.spend(net, *at, net.testbed.host.copy.of(bytes));
            return None;
        }
        running.sends.push(id);
        Some(id)
    }

    fn receive(&mut self, running: &mut Running, what: (Rank, u32, u64), at: Time) {
        let (from, tag, bytes) = what;
        let pattern = Pattern { communicator: MESSAGES, source: Some(from), tag: Some(tag) };
        if let Ok(id) = self.endpoint.channel_mut(0).receive(at.instant(), pattern, bytes) {
            running.awaited.push(Awaited { is_cast: false, id });
        }
    }

    /// Begins this rank's part in a message of a stream.
    fn begin_streamed(
        &mut self,
        net: &mut Net,
        running: &mut Running,
        (from, to, bytes): (u32, u32, u64),
        at: &mut Time,
    ) {
        if self.rank == from {
            self.send(net, running, (Rank(to), bytes, bytes), at);
        } else {
            let number = running.number;
            self.receive(running, (Rank(from), number, bytes), *at);
        }
    }

    // ---- broadcasts -----------------------------------------------------------------------

    fn begin_tree(
        &mut self,
        net: &mut Net,
        shared: &Shared,
        running: &mut Running,
        ((tree, forwarding), root, bytes): ((Tree, Forwarding), u32, u64),
        at: &mut Time,
    ) {
        let Some(shape) = shared.shape(tree) else {
            net.complain(self.rank, &tree);
            return;
        };
        running.is_whole = forwarding == Forwarding::Store || bytes <= PIPELINE_BYTES;
        running.children.extend(shape.children(self.rank, root));
        match shape.parent(self.rank, root) {
            Some(parent) => self.receive(running, (parent, running.number, bytes), *at),
            None => self.pass_on(net, running, (bytes, bytes), at),
        }
    }

    /// Begins the messages to the children; `available` bytes of the message have arrived.
    fn pass_on(
        &mut self,
        net: &mut Net,
        running: &mut Running,
        (bytes, available): (u64, u64),
        at: &mut Time,
    ) {
        let mut children = std::mem::take(&mut running.children);
        for child in children.drain(..) {
            let sent = self.send(net, running, (child, bytes, available), at);
            if available < bytes {
                running.passing.extend(sent);
            }
        }
        running.children = children;
    }

    fn begin_cast(
        &mut self,
        shared: &Shared,
        running: &mut Running,
        (policy, root, bytes): (Policy, u32, u64),
        at: Time,
    ) {
        let group = shared.group(policy);
        if self.rank == root {
            running.held = Some((group, bytes));
            return;
        }
        let Some(machine) = self.endpoint.broadcast_mut() else { return };
        if let Ok(id) = machine.receive(at.instant(), group, Rank(root), bytes) {
            running.awaited.push(Awaited { is_cast: true, id });
        }
    }

    /// Sends a broadcast that waits for room, if there is room now; true if it was sent.
    fn let_go(&mut self, net: &mut Net, running: &mut Running, at: &mut Time) -> bool {
        let Some((group, bytes)) = running.held else { return false };
        let Op::Bcast { algorithm: BcastAlgorithm::Multicast(policy), .. } = running.op else {
            return false;
        };
        let Some(machine) = self.endpoint.broadcast_mut() else { return false };
        let is_copied = policy.hold.copies(bytes);
        if is_copied && !machine.has_room(group) {
            return false;
        }
        let reply = if is_copied { Reply::Lazy } else { Reply::Soon };
        running.held = None;
        match machine.send(CastMessage { group, bytes, reply }) {
            Ok(_) if is_copied => {
                *at = self.spend(net, *at, net.testbed.host.copy.of(bytes));
            }
            Ok(id) => running.cast = Some(id),
            Err(error) => net.complain(self.rank, &error),
        }
        true
    }

    // ---- barriers -------------------------------------------------------------------------

    fn begin_barrier(
        &mut self,
        net: &mut Net,
        shared: &Shared,
        running: &mut Running,
        (kind, at): (BarrierKind, Time),
    ) {
        match kind.steps {
            Steps::Machine(_) => {
                let communicator = shared.communicator(kind);
                match self.endpoint.collective_mut().enter(at.instant(), communicator) {
                    Ok(epoch) => running.barrier = Some((communicator, epoch)),
                    Err(error) => net.note(self.rank, || error.to_string()),
                }
            }
            Steps::Channel => {
                let steps = kind.algorithm.schedule(Rank(self.rank), shared.ranks);
                let steps = steps.unwrap_or_default();
                let tag = (running.number + 1) * STEPS_MAX;
                running.stepping = Some(Stepping { steps, next: 0, tag });
            }
        }
    }

    /// Runs the next steps of a barrier by messages; true if there was one to run.
    fn take_steps(
        &mut self,
        net: &mut Net,
        shared: &Shared,
        running: &mut Running,
        at: &mut Time,
    ) -> bool {
        if !running.awaited.is_empty() {
            return false;
        }
        let Some(stepping) = &mut running.stepping else { return false };
        let Some(step) = stepping.steps.get(stepping.next).copied() else {
            running.stepping = None;
            return true;
        };
        stepping.next += 1;
        stepping.tag += 1;
        let (me, tag) = (Rank(self.rank), stepping.tag);
        for to in step.send_to.ranks(me, shared.ranks) {
            self.send(net, running, (to, 0, 0), at);
        }
        for from in step.receive_from.ranks(me, shared.ranks) {
            self.receive(running, (from, tag, 0), *at);
        }
        true
    }

    /// Advances an operation; true if the machines received any command.
    fn continue_running(
        &mut self,
        net: &mut Net,
        shared: &Shared,
        running: &mut Running,
        at: &mut Time,
    ) -> bool {
        if running.held.is_some() {
            return self.let_go(net, running, at);
        }
        if running.stepping.is_some() {
            return self.take_steps(net, shared, running, at);
        }
        let Op::Bcast { algorithm: BcastAlgorithm::Tree { .. }, bytes, .. } = running.op else {
            return false;
        };
        let is_here = running.awaited.is_empty();
        let available = match running.awaited.first() {
            Some(Awaited { id, .. }) => self.endpoint.channel_mut(0).received_bytes(*id),
            None => bytes,
        };
        if !running.children.is_empty() {
            let begins = is_here || (!running.is_whole && available > 0);
            if begins {
                self.pass_on(net, running, (bytes, available), at);
            }
            return begins;
        }
        let is_progress = !running.passing.is_empty();
        for id in &running.passing {
            self.endpoint.channel_mut(0).extend(*id, available);
        }
        if is_here {
            running.passing.clear();
        }
        is_progress && is_here
    }
}
