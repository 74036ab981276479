//! One rank's part in barriers: groups, commands, events, and the NIC of its node.

use super::{Node, World};
use crate::rig::builder::{JOB, KEY};
use crate::rig::ledger::{Operation, State};
use crate::rig::network::{InFlight, Sent};
use crate::rig::nic::{Host, Leaving, Nic, NicCounters, Passage};
use crate::rig::script::BarrierGroup;
use crate::rig::trace::What;
use crate::rig::words;
use omnes_proto::collective::{BarrierGroupConfig, CollectiveError, Event, Runner};
use omnes_wire::CommunicatorId;
use std::collections::BTreeMap;
use std::rc::Rc;

/// First communicator of the groups of scripts.
const SCRIPT_BARRIERS: u32 = 0x6200;

/// How a rank learns about the progress of its node's NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looking {
    /// The rank polls the page all the time, unless it ignores the network.
    Always,
    /// The rank sleeps until a packet or a timer wakes it.
    WhenWoken,
}

/// A rank's state for barriers.
pub(crate) struct Barriers {
    /// Groups that have been opened and not closed.
    pub(crate) groups: BTreeMap<CommunicatorId, Rc<BarrierGroupConfig>>,
    /// Barriers in progress, by the machine's identifier.
    pending: BTreeMap<(CommunicatorId, u32), Operation>,
    nic: Nic,
    looking: Looking,
}

/// The group that all ranks use for barriers in the `number`-th group of the scripts.
pub(crate) fn script_barriers(number: usize, group: &BarrierGroup) -> BarrierGroupConfig {
    let BarrierGroup { nodes, algorithm, runner, is_multicast } = group.clone();
    let communicator = CommunicatorId(SCRIPT_BARRIERS + number as u32);
    BarrierGroupConfig { communicator, nodes: nodes.into(), algorithm, runner, is_multicast }
}

impl Barriers {
    pub(crate) fn new(looking: Looking) -> Self {
        Self { groups: BTreeMap::new(), pending: BTreeMap::new(), nic: Nic::default(), looking }
    }

    /// True if a barrier of a group has been entered and has not ended.
    pub(crate) fn is_under_way(&self, communicator: CommunicatorId) -> bool {
        self.pending.keys().any(|(of, _)| *of == communicator)
    }

    /// Counters of a group's slot, if the slot is open.
    pub(crate) fn nic_counters(&self, communicator: CommunicatorId) -> Option<&NicCounters> {
        self.nic.counters(communicator)
    }
}

impl Node {
    // ---- commands -------------------------------------------------------------------------

    pub(crate) fn open_barriers(&mut self, world: &mut World, group: &Rc<BarrierGroupConfig>) {
        let BarrierGroupConfig { communicator, nodes, algorithm, runner, is_multicast } = &**group;
        let note = format!(
            "opens barriers of {} {algorithm} by {runner:?}, multicast {is_multicast}, {nodes:?}",
            communicator.0
        );
        world.network.trace.note(world.now, self.rank, note);
        self.barriers.groups.insert(*communicator, group.clone());
        if *runner == Runner::Nic {
            self.barriers.nic.open((JOB, &KEY), self.rank, group);
        }
        self.endpoint.collective_mut().open(BarrierGroupConfig::clone(group));
        let is_open = if self.endpoint.collective().is_open(*communicator) {
            Ok(())
        } else {
            Err(format!("does not open barriers of {}", communicator.0))
        };
        world.check(self.rank, is_open);
    }

    /// Forgets a group; its barriers in progress are cancelled.
    pub(crate) fn close_barriers(&mut self, world: &mut World, communicator: CommunicatorId) {
        self.barriers.groups.remove(&communicator);
        self.barriers.nic.close(communicator);
        self.endpoint.collective_mut().close(communicator);
        let note = format!("closes barriers of {}", communicator.0);
        world.network.trace.note(world.now, self.rank, note);
        let is_here = |(of, _): &(CommunicatorId, u32)| *of == communicator;
        let here: Vec<_> = self.barriers.pending.keys().copied().filter(is_here).collect();
        for key in here {
            if let Some(operation) = self.barriers.pending.remove(&key) {
                world.ledger.settle(operation, State::Cancelled);
            }
        }
    }

    /// Enters the next barrier of a group; the operation has failed if the machine refuses.
    ///
    /// # Panics
    /// If this rank has not opened the group: an error in the test.
    pub(crate) fn enter(&mut self, world: &mut World, communicator: CommunicatorId) -> Operation {
        let Some(group) = self.barriers.groups.get(&communicator).cloned() else {
            panic!("barriers of {} are not open at {}", communicator.0, self.rank)
        };
        let (rank, now) = (self.rank, world.now);
        let own =
            words::brings(&group, rank, world.ledger.progress(communicator, rank).entered + 1);
        match self.endpoint.collective_mut().enter_with(now, communicator, own) {
            Ok(epoch) => {
                let (operation, numbered) = world.ledger.add_barrier(rank, group, epoch);
                world.check(rank, numbered);
                self.barriers.pending.insert((communicator, epoch), operation);
                operation
            }
            Err(error) => {
                world.network.trace.note(now, rank, format!("refused: {error}"));
                let culprit = match error {
                    CollectiveError::PeerFailed { rank } => Some(rank),
                    _ => None,
                };
                world.ledger.add_refused_barrier(now, rank, group, culprit)
            }
        }
    }

    pub(super) fn take_barrier_event(
        &mut self,
        world: &mut World,
        event: Event,
    ) -> Result<(), String> {
        let (Event::Done { communicator, epoch, .. } | Event::Failed { communicator, epoch, .. }) =
            event;
        let Some(operation) = self.barriers.pending.remove(&(communicator, epoch)) else {
            return Err(format!("{event:?} of what is not under way"));
        };
        match event {
            Event::Done { words, .. } => {
                world.ledger.on_barrier_done(world.now, operation, words)?;
                self.program.on_done(operation, None);
            }
            Event::Failed { rank, .. } => {
                world.ledger.on_barrier_failed(world.now, operation, rank);
                self.program.on_failed(operation);
            }
        }
        Ok(())
    }

    // ---- the NIC --------------------------------------------------------------------------

    /// A packet from the wire passes the NIC; true if it goes on to the host.
    pub(crate) fn pass_nic(&mut self, world: &mut World, packet: &InFlight) -> bool {
        let is_asleep =
            self.barriers.looking == Looking::WhenWoken && self.attentive_at <= world.now;
        let host = if is_asleep { Host::Asleep } else { Host::Awake };
        let passage = self.barriers.nic.ingress(packet.way, &packet.bytes, host);
        let Passage { goes_on, is_taken, leaving } = passage;
        if is_taken && (packet.is_corrupt || packet.from.is_none()) {
            let text = "its NIC takes a packet that no rank has sent so".to_owned();
            world.check(self.rank, Err(text));
        }
        if !goes_on {
            let sender = packet.from.unwrap_or(self.rank);
            let what = What::Nic;
            world.network.trace.packet(world.now, what, sender, self.rank, &packet.bytes);
        }
        self.let_leave(world, leaving);
        goes_on
    }

    /// True if the rank must check the network because its NIC has news.
    pub(crate) fn is_called_by_nic(&self, world: &World) -> bool {
        let is_looking = self.barriers.looking == Looking::Always || self.attentive_at > world.now;
        is_looking && self.has_nic_news()
    }

    pub(super) fn has_nic_news(&self) -> bool {
        let mut waits = self.endpoint.collective().nic_waits();
        waits.any(|communicator| self.barriers.nic.has_news(communicator))
    }

    /// The rank hands out a packet through the socket that the NIC watches.
    pub(super) fn send_through_nic(&mut self, world: &mut World, sent: &Sent) {
        for _ in 0..world.network.pass_doorstep(world.now, sent) {
            self.pass_nic_outwards(world, sent);
        }
    }

    /// A packet of the host has reached the NIC.
    pub(crate) fn pass_nic_outwards(&mut self, world: &mut World, sent: &Sent) {
        let leaving = self.barriers.nic.egress(sent.to, &sent.bytes);
        self.let_leave(world, leaving);
    }

    fn let_leave(&mut self, world: &mut World, leaving: Vec<Leaving>) {
        for Leaving { to, bytes } in leaving {
            let head_bytes = bytes.len();
            self.put_on_wire(world, Sent { from: self.rank, to, bytes, head_bytes });
        }
    }

    pub(super) fn put_on_wire(&mut self, world: &mut World, sent: Sent) {
        let is_true = world.ledger.check_claim(self.rank, &sent.bytes);
        world.check(self.rank, is_true);
        world.network.send(world.now, sent);
    }

    /// Shows the machine the progress of the NIC; true if any of it was new.
    pub(super) fn poll_pages(&mut self, world: &mut World) -> bool {
        if self.attentive_at > world.now {
            return false;
        }
        let waits: Vec<CommunicatorId> = self.endpoint.collective().nic_waits().collect();
        let mut is_news = false;
        for communicator in waits {
            if let Some(view) = self.barriers.nic.look(communicator) {
                is_news = true;
                self.endpoint.collective_mut().handle_nic(world.now, communicator, &view);
            }
        }
        is_news
    }

    // ---- the script -----------------------------------------------------------------------

    /// Does a script's step.
    ///
    /// # Panics
    /// If the group of the step has not been opened: an error in the rig.
    pub(super) fn begin_barrier(&mut self, world: &mut World, group: &BarrierGroup) -> Operation {
        let is_it = |config: &&Rc<BarrierGroupConfig>| {
            config.communicator.0 >= SCRIPT_BARRIERS && group.is_of(config)
        };
        let config = self.barriers.groups.values().find(is_it);
        let Some(communicator) = config.map(|config| config.communicator) else {
            panic!("no group for {group:?}")
        };
        self.enter(world, communicator)
    }
}
