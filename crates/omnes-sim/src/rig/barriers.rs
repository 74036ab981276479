//! Barriers in the rig: groups, commands and counters.
//!
//! ```
//! use omnes_proto::collective::Runner;
//! use omnes_sim::{Cluster, drop, nothing_is_missing};
//! use omnes_topo::BarrierAlgorithm;
//! use omnes_wire::Kind;
//!
//! let mut cluster = Cluster::builder().ranks(4).build();
//! let group = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, Runner::Nic);
//! let _loss = cluster.rule(drop().kind(Kind::Step).seq(1).step(0).to(2).times(1));
//! cluster.enter_all(group);
//! cluster.run_until_quiescent();
//! cluster.check(nothing_is_missing);
//! // One step is lost, requested, and retransmitted by the NIC that owes it.
//! assert_eq!(cluster.step_packets(group), 8 + 1);
//! assert_eq!(cluster.collective_counters(2).nacks_sent, 1);
//! ```

use crate::rig::cluster::Cluster;
use crate::rig::ledger::Operation;
use crate::rig::nic::NicCounters;
use crate::rig::node::script_barriers;
use crate::rig::script::{Script, Step};
use omnes_proto::collective::{BarrierGroupConfig, CollectiveCounters, Runner};
use omnes_proto::group::Nodes;
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Kind, Rank};
use std::rc::Rc;

/// First communicator of [`Cluster::open_barriers_of_all`].
const BARRIERS_OF_ALL: u32 = 0x100;

impl Cluster {
    // ---- commands -------------------------------------------------------------------------

    /// Opens a group for barriers at all its living members. A communicator has one such group in
    /// a run.
    pub fn open_barriers(&mut self, group: &BarrierGroupConfig) {
        let dead = self.dead();
        let members = group.nodes.ranks().filter(|rank| !dead.contains(rank));
        for rank in members.map(|rank| rank.0).collect::<Vec<u32>>() {
            self.open_barriers_at(rank, group);
        }
    }

    /// Opens a group for barriers at one rank.
    pub fn open_barriers_at(&mut self, rank: u32, group: &BarrierGroupConfig) {
        let group = Rc::new(group.clone());
        self.act(rank, |node, world| node.open_barriers(world, &group));
    }

    /// Opens a group of all ranks for barriers, each rank on its own node, without multicast.
    pub fn open_barriers_of_all(
        &mut self,
        algorithm: BarrierAlgorithm,
        runner: Runner,
    ) -> CommunicatorId {
        let nodes = Nodes::one_each(self.size());
        let communicator = CommunicatorId(BARRIERS_OF_ALL + u32::from(self.groups));
        self.groups += 1;
        let is_multicast = false;
        self.open_barriers(&BarrierGroupConfig {
            communicator,
            nodes,
            algorithm,
            runner,
            is_multicast,
        });
        communicator
    }

    /// A rank forgets a group for barriers; its pending barriers there are cancelled.
    pub fn close_barriers(&mut self, rank: u32, communicator: CommunicatorId) {
        self.act(rank, |node, world| node.close_barriers(world, communicator));
    }

    /// A rank enters the next barrier of a group.
    pub fn enter(&mut self, rank: u32, communicator: CommunicatorId) -> Operation {
        let note = format!("enters a barrier of {}", communicator.0);
        self.network.trace.note(self.now(), Rank(rank), note);
        self.act(rank, |node, world| node.enter(world, communicator))
    }

    /// All living members of a group enter its next barrier, in rank order at the same instant.
    pub fn enter_all(&mut self, communicator: CommunicatorId) -> Vec<Operation> {
        let is_here = |rank: &u32| {
            let node = &self.nodes[*rank as usize];
            node.is_member() && node.barriers.groups.contains_key(&communicator)
        };
        let ranks: Vec<u32> = (0..self.size()).filter(is_here).collect();
        ranks.into_iter().map(|rank| self.enter(rank, communicator)).collect()
    }

    /// A rank asks which members have entered the current barrier of a group.
    pub fn ask(&mut self, rank: u32, communicator: CommunicatorId) {
        let note = format!("asks who has entered the barrier of {}", communicator.0);
        self.network.trace.note(self.now(), Rank(rank), note);
        self.act(rank, |node, _| node.endpoint.collective_mut().ask(communicator));
    }

    /// Opens each group that the scripts use and that is not open yet.
    pub(crate) fn open_script_barriers(&mut self, scripts: &[Script]) {
        for step in scripts.iter().flat_map(|script| &script.steps) {
            let Step::Barrier { group } = step else { continue };
            if !self.script_barriers.contains(group) {
                let config = script_barriers(self.script_barriers.len(), group);
                self.script_barriers.push(group.clone());
                self.open_barriers(&config);
            }
        }
    }

    // ---- inspection -----------------------------------------------------------------------

    /// Counters of a rank's collective machine.
    pub fn collective_counters(&self, rank: u32) -> &CollectiveCounters {
        self.endpoint(rank).collective().counters()
    }

    /// Counters of the NIC of a rank's node for a group; `None` if the NIC has no slot for it.
    pub fn nic_counters(&self, rank: u32, communicator: CommunicatorId) -> Option<&NicCounters> {
        self.nodes[rank as usize].barriers.nic_counters(communicator)
    }

    /// Number of steps of a group's barriers between nodes; a multicast counts once.
    pub fn step_packets(&self, communicator: CommunicatorId) -> u64 {
        self.network.steps.of(communicator, Kind::Step, false)
    }

    /// Number of steps of a group's barriers between the ranks of one node.
    pub fn step_packets_inside(&self, communicator: CommunicatorId) -> u64 {
        self.network.steps.of(communicator, Kind::Step, true)
    }

    /// Number of packets of a kind about a group's barriers, between nodes and within them.
    pub fn packets_about(&self, kind: Kind, communicator: CommunicatorId) -> u64 {
        let of = |is_inside| self.network.steps.of(communicator, kind, is_inside);
        of(false) + of(true)
    }

    /// Number of barriers of a group that a rank has entered, and number that it has left.
    pub fn progress(&self, rank: u32, communicator: CommunicatorId) -> (u32, u32) {
        let progress = self.ledger().progress(communicator, Rank(rank));
        (progress.entered, progress.done)
    }
}
