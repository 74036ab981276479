//! Which members of a communicator share a node, and the groups in which it multicasts: one per
//! policy used so far.
//!
//! Collectives are called in the same order on all ranks, so the groups get the same numbers on all
//! ranks without communication.

use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::job::Job;
use omnes_proto::broadcast::{CastGroupConfig, GroupId, Policy};
use omnes_wire::Rank;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The members by node; see the module header.
pub(crate) struct Nodes {
    /// As ranks in the job, each node's leader first.
    by_node: Vec<Vec<Rank>>,
    /// `by_node` as ranks of the communicator.
    by_node_here: Vec<Vec<u32>>,
    /// Number of the node of each member, in order of ranks.
    node_of: Vec<Rank>,
    /// Number of this rank's node.
    own: Rank,
    /// Policies of the groups opened so far, in the order of their numbers.
    policies: Mutex<Vec<Policy>>,
}

impl Nodes {
    /// Nodes of the communicator with these members, in which this process is `rank`.
    pub(crate) fn new(job: &Job, members: &[u32], rank: u32) -> Self {
        let by_node = restricted(&job.nodes, members);
        let places: BTreeMap<u32, u32> = members.iter().copied().zip(0..).collect();
        let here = |node: &Vec<Rank>| node.iter().map(|in_job| places[&in_job.0]).collect();
        let by_node_here: Vec<Vec<u32>> = by_node.iter().map(here).collect();
        let mut node_of = vec![Rank(0); members.len()];
        for (number, node) in (0..).zip(&by_node_here) {
            node.iter().for_each(|member| node_of[*member as usize] = Rank(number));
        }
        let own = node_of[rank as usize];
        Self { by_node, by_node_here, node_of, own, policies: Mutex::default() }
    }

    /// The members by node, as ranks in the job, each node's leader first.
    pub(crate) fn by_node(&self) -> &[Vec<Rank>] {
        &self.by_node
    }

    /// Number of nodes.
    pub(crate) fn count(&self) -> u32 {
        self.by_node.len() as u32
    }

    /// Ranks of the communicator on this rank's node, the leader first.
    pub(crate) fn local(&self) -> &[u32] {
        self.members(self.own)
    }

    /// Ranks of the communicator on a node, the leader first.
    pub(crate) fn members(&self, node: Rank) -> &[u32] {
        &self.by_node_here[node.index()]
    }

    /// Number of the node of a rank of the communicator.
    pub(crate) fn node_of(&self, rank: u32) -> Rank {
        self.node_of[rank as usize]
    }

    /// The leader of a node, as a rank of the communicator.
    pub(crate) fn leader(&self, node: Rank) -> u32 {
        self.members(node)[0]
    }

    /// Number of the group of `policy`, if it is open.
    fn number(&self, policy: Policy) -> Option<u8> {
        let policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        policies.iter().position(|other| *other == policy).map(|number| number as u8)
    }

    /// Assigns a number to the group of `policy`, which must not be open yet.
    fn take_number(&self, policy: Policy) -> Result<u8, Error> {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = u32::from(u8::MAX) + 1;
        let number = u8::try_from(policies.len()).map_err(|_| Error::TooManySchemes { limit })?;
        policies.push(policy);
        Ok(number)
    }
}

/// The nodes restricted to `members`, without nodes that have none.
fn restricted(nodes: &[Vec<u32>], members: &[u32]) -> Vec<Vec<Rank>> {
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    let is_member = |rank: &u32| sorted.binary_search(rank).is_ok();
    let nodes = nodes.iter().map(|node| node.iter().copied().filter(is_member).map(Rank));
    nodes.map(Iterator::collect::<Vec<Rank>>).filter(|node| !node.is_empty()).collect()
}

/// Maximum number of nodes that receive a multicast per node that it is meant for, beyond which
/// multicast is not worth its cost. A job has one group: if all rows of a grid of 32 x 32 broadcast
/// at once, each node would get 32 messages for one of its own, whereas a tree sends it only that
/// one.
const NODES_PER_MEMBER_MAX: u32 = 2;

/// True if `nodes` are a good part of the nodes that are reached.
pub(super) fn is_for_many(nodes: u32, nodes_reached: u32) -> bool {
    nodes_reached <= nodes.saturating_mul(NODES_PER_MEMBER_MAX)
}

impl Communicator {
    /// True if a message can be sent to all ranks at once, and there is another node to reach: the
    /// probe has found that multicast works, or multi-send replaces it.
    pub(crate) fn has_multicast(&self) -> bool {
        self.nodes().count() > 1 && (self.job().has_multicast() || self.job().has_multisend())
    }

    /// Number of nodes that receive what this communicator multicasts: all nodes of the job's
    /// group, or by multi-send only its own.
    pub(crate) fn nodes_reached(&self) -> u32 {
        let job = self.job();
        if job.has_multicast() { job.nodes.len() as u32 } else { self.nodes().count() }
    }

    /// True if multicast works and this communicator has a good part of the nodes that receive it:
    /// otherwise the cost to the other nodes exceeds the saving.
    pub(crate) fn is_worth_multicast(&self) -> bool {
        self.job().has_multicast() && is_for_many(self.nodes().count(), self.nodes_reached())
    }

    /// Returns the group of `policy`, which is opened on this rank if necessary. Ranks that have
    /// not opened it yet discard its packets and get them again later.
    pub(crate) fn group(&self, policy: Policy) -> Result<GroupId, Error> {
        let communicator = self.inner.id;
        if let Some(number) = self.nodes().number(policy) {
            return Ok(GroupId { communicator, number });
        }
        // The text form enforces the limits of a policy's counts.
        if let Err(error) = policy.to_string().parse::<Policy>() {
            return Err(Error::Algorithm { reason: error.to_string() });
        }
        let id = GroupId { communicator, number: self.nodes().take_number(policy)? };
        let nodes = self.nodes().by_node.clone().into();
        self.job().engine.open_group(CastGroupConfig { id, nodes, policy });
        Ok(id)
    }

    /// Opens on this rank what the usual broadcasts need; no rank may use it before all have opened
    /// it.
    pub(crate) fn open_here(&self) -> Result<(), Error> {
        self.open_multisend_late()?;
        if self.has_multicast() {
            self.group(self.usual_policy())?;
        }
        Ok(())
    }

    /// Opens the group of `policy` on all ranks before any rank uses it. Collective.
    pub(crate) fn open_together(&self, policy: Policy) -> Result<(), Error> {
        if self.has_multicast() && self.nodes().number(policy).is_none() {
            self.group(policy)?;
            self.run_collective(Collective::Agreement, || self.meet())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_members_are_omitted_and_leaders_listed_first() {
        let nodes = [vec![0, 3], vec![1, 4, 5], vec![2]];
        let ranks = |node: &[u32]| node.iter().copied().map(Rank).collect::<Vec<_>>();
        assert_eq!(restricted(&nodes, &[5, 4, 3]), [ranks(&[3]), ranks(&[4, 5])]);
        assert_eq!(restricted(&nodes, &[2]), [ranks(&[2])]);
        let all = [0, 1, 2, 3, 4, 5];
        assert_eq!(restricted(&nodes, &all).concat(), ranks(&[0, 3, 1, 4, 5, 2]));
    }
}
