//! Broadcasts in the rig: groups, commands and counters.
//!
//! ```
//! use omnes_proto::broadcast::{BroadcastConfig, Policy};
//! use omnes_sim::{Cluster, delivered_once_in_order, drop};
//! use omnes_wire::Kind;
//!
//! let mut cluster = Cluster::builder().ranks(4).broadcast(BroadcastConfig::default()).build();
//! let group = cluster.open_group_of_all(Policy::COMBINED);
//! let _loss = cluster.rule(drop().kind(Kind::Cast).seq(3).to(2).times(1));
//! cluster.broadcast_to_all(group, 0, 10_000);
//! cluster.run_until_quiescent();
//! cluster.check(delivered_once_in_order);
//! ```

use crate::rig::cluster::Cluster;
use crate::rig::ledger::{CastStream, Operation};
use crate::rig::network::receiver;
use crate::rig::node::script_group;
use crate::rig::payload::content;
use crate::rig::script::{Script, Step};
use omnes_proto::broadcast::{Broadcast, BroadcastCounters, CastGroupConfig, GroupId, Policy};
use omnes_proto::channel::Reply;
use omnes_proto::group::Nodes;
use omnes_proto::packet::Destination;
use omnes_wire::{CommunicatorId, Kind, Rank};
use std::rc::Rc;

impl Cluster {
    // ---- commands -------------------------------------------------------------------------

    /// Opens a group at all its living members.
    pub fn open_group(&mut self, group: &CastGroupConfig) {
        let members: Vec<u32> = group.nodes.ranks().map(|rank| rank.0).collect();
        for rank in members {
            self.open_group_at(rank, group);
        }
    }

    /// Opens a group at one rank.
    pub fn open_group_at(&mut self, rank: u32, group: &CastGroupConfig) {
        let group = Rc::new(group.clone());
        self.act(rank, |node, world| node.open_group(world, &group));
    }

    /// A rank closes the groups of a communicator: its own part in them ends.
    pub fn close_groups(&mut self, rank: u32, communicator: CommunicatorId) {
        self.act(rank, |node, world| node.close_groups(world, communicator));
    }

    /// As [`Self::close_groups`]; packets that still arrive there are discarded.
    pub fn abandon_groups(&mut self, rank: u32, communicator: CommunicatorId) {
        self.act(rank, |node, world| node.abandon_groups(world, communicator));
    }

    /// True if a rank waits for a broadcast in a group of a communicator.
    pub(crate) fn awaits_broadcast(&self, rank: u32, communicator: CommunicatorId) -> bool {
        self.ledger().awaits_broadcast(Rank(rank), communicator)
    }

    /// Opens a group of all ranks, each rank on its own node.
    pub fn open_group_of_all(&mut self, policy: Policy) -> GroupId {
        let nodes = Nodes::one_each(self.size());
        let number = self.groups;
        self.groups += 1;
        let id = GroupId { communicator: CommunicatorId(1), number };
        self.open_group(&CastGroupConfig { id, nodes, policy });
        id
    }

    /// Begins to broadcast a new message of `bytes` from `root`, which waits for its
    /// acknowledgement.
    pub fn broadcast(&mut self, group: GroupId, root: u32, bytes: usize) -> Operation {
        self.broadcast_with(group, root, bytes, Reply::Soon)
    }

    /// As [`Self::broadcast`]; with a lazy `reply` the root has copied the message and does not
    /// wait.
    pub fn broadcast_with(
        &mut self,
        group: GroupId,
        root: u32,
        bytes: usize,
        reply: Reply,
    ) -> Operation {
        let content = content(self.next_identity(), bytes);
        self.network.trace.note(self.now(), Rank(root), format!("broadcast {group:?} {bytes} B"));
        self.act(root, |node, world| node.broadcast(world, group, content, reply))
    }

    /// Posts a receive for the next broadcast of `root` that has no receive yet.
    pub fn receive_broadcast(
        &mut self,
        rank: u32,
        group: GroupId,
        root: u32,
        capacity: u64,
    ) -> Operation {
        let note = format!("receive broadcast {group:?} of {root} capacity {capacity}");
        self.network.trace.note(self.now(), Rank(rank), note);
        self.act(rank, |node, world| node.receive_broadcast(world, group, Rank(root), capacity))
    }

    /// Posts the receives of all living receivers for a new message of `bytes`, then broadcasts it.
    /// Returns the root's operation, then the receivers'.
    pub fn broadcast_to_all(&mut self, group: GroupId, root: u32, bytes: usize) -> Vec<Operation> {
        let dead = self.dead();
        let receivers = self.receivers(group, root);
        let living = receivers.into_iter().filter(|rank| !dead.contains(&Rank(*rank)));
        let receives: Vec<Operation> =
            living.map(|rank| self.receive_broadcast(rank, group, root, bytes as u64)).collect();
        let mut operations = vec![self.broadcast(group, root, bytes)];
        operations.extend(receives);
        operations
    }

    /// A rank announces itself by multicast.
    pub fn announce(&mut self, rank: u32) {
        self.act(rank, |node, _| node.machine().announce());
    }

    /// Opens a group of all ranks for each policy that the scripts use and that has no group yet.
    pub(crate) fn open_script_groups(&mut self, scripts: &[Script]) {
        for step in scripts.iter().flat_map(|script| &script.steps) {
            let Step::Broadcast { policy, .. } = step else { continue };
            if self.script_policies.contains(policy) {
                continue;
            }
            let number = self.script_policies.len() as u8;
            self.script_policies.push(*policy);
            self.open_group(&script_group(self.size(), number, *policy));
        }
    }

    // ---- inspection -----------------------------------------------------------------------

    /// Ranks that receive the broadcasts of `root` to a group that it has opened.
    pub fn receivers(&self, group: GroupId, root: u32) -> Vec<u32> {
        let Some(group) = self.nodes[root as usize].groups.get(&group) else { return Vec::new() };
        let group = group.clone();
        let stream = CastStream { group, root: Rank(root) };
        stream.receivers().into_iter().map(|rank| rank.0).collect()
    }

    /// Counters of a rank's broadcast machine.
    ///
    /// # Panics
    /// If the cluster was built without broadcasts.
    pub fn broadcast_counters(&self, rank: u32) -> &BroadcastCounters {
        self.machine(rank).counters()
    }

    /// Number of ranks whose multicasts have reached this one.
    ///
    /// # Panics
    /// If the cluster was built without broadcasts.
    pub fn heard(&self, rank: u32) -> usize {
        self.machine(rank).heard()
    }

    fn machine(&self, rank: u32) -> &Broadcast {
        match self.endpoint(rank).broadcast() {
            Some(machine) => machine,
            None => panic!("the cluster was built without broadcasts"),
        }
    }

    /// Number of packets of a kind that a rank has handed out to another, or to all.
    pub fn packets(&self, kind: Kind, from: u32, to: Destination) -> u64 {
        self.network.casts.count(kind, Rank(from), receiver(to))
    }

    /// Number of packets of a kind that all ranks have handed out to one.
    pub fn packets_to(&self, kind: Kind, to: u32) -> u64 {
        let to = Destination::Rank(Rank(to));
        (0..self.size()).map(|from| self.packets(kind, from, to)).sum()
    }

    /// Number of unicast packets of a kind that all ranks have handed out.
    pub fn packets_by_unicast(&self, kind: Kind) -> u64 {
        (0..self.size()).map(|to| self.packets_to(kind, to)).sum()
    }

    /// Number of multicasts of a kind that all ranks have handed out.
    pub fn packets_by_multicast(&self, kind: Kind) -> u64 {
        (0..self.size()).map(|from| self.packets(kind, from, Destination::Group)).sum()
    }

    /// Number of packets that all messages broadcast so far take, each counted once.
    pub fn packets_of_broadcasts(&self) -> u64 {
        self.network.casts.packets_of_messages()
    }

    /// Most packets that any root has had unacknowledged.
    pub fn broadcast_window_seen(&self) -> u64 {
        self.network.casts.window_packets_seen
    }
}
