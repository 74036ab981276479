//! Roles in the broadcasts of one root: which rank reports to which, and which rank repairs what.
//!
//! Takers are the root and the leader of every other node; their positions are counted from the
//! root's. All roles follow from position and policy, so all ranks agree without communication.
//!
//! Cost: proportional to the rank's own part. A leaf's part takes a few steps however large the
//! group is; a rank that others report to has an entry for each rank that they speak for.

use super::interface::CastGroupConfig;
use super::policy::{Collection, Policy};
use crate::group::Nodes;
use omnes_topo::{CoRoots, Tree};
use omnes_wire::Rank;

/// Rank whose reports are collected, with all ranks that it speaks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reporter {
    pub(super) rank: Rank,
    /// Ranks that it speaks for, other than itself.
    pub(super) below: Vec<Rank>,
}

/// Roles of a rank in the broadcasts of one root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Roles {
    /// Position of the rank, counted from the root's, which is 0.
    pub(super) position: u32,
    /// Number of takers.
    pub(super) takers: u32,
    /// Rank that gets this rank's acknowledgements; `None` at the root.
    pub(super) collector: Option<Rank>,
    /// Number of ranks whose acknowledgements go there, including this one.
    pub(super) peers: u32,
    /// Rank that gets this rank's gap reports and repairs its losses.
    pub(super) repairer: Option<Rank>,
    /// Ranks whose acknowledgements are collected here.
    pub(super) reporters: Vec<Reporter>,
    /// This rank repairs the losses of the ranks that report to it.
    pub(super) is_repairer: bool,
    /// This rank acknowledges only packets that the ranks reporting to it have too [BC-R14].
    pub(super) speaks_for_others: bool,
    /// Co-roots that get their copy from this rank [BC-R10].
    pub(super) copies_to: Vec<Rank>,
}

impl Roles {
    /// Returns the roles of `me` in the broadcasts of `root`; `None` if it has none.
    pub(super) fn of(group: &CastGroupConfig, root: Rank, me: Rank) -> Option<Self> {
        let takers = Takers::of(&group.nodes, root)?;
        let (position, count) = (takers.position(me)?, takers.count());
        let rank = |position: u32| takers.rank(position);
        let roles = Self { position, takers: count, ..Self::default() };
        Some(match group.policy.collection {
            Collection::Root => roles.with_root(&rank),
            Collection::Tree { radix } => roles.with_tree(Tree::Knomial { radix }, &rank),
            Collection::CoRoots { count: wanted } => {
                roles.with_co_roots(CoRoots::new(count, wanted), &rank)
            }
        })
    }

    /// True if this rank waits for acknowledgements of other ranks.
    pub(super) fn collects(&self) -> bool {
        self.is_repairer || self.speaks_for_others
    }

    fn with_root(self, rank: &impl Fn(u32) -> Rank) -> Self {
        if self.position > 0 {
            let peers = self.takers - 1;
            return Self { collector: Some(rank(0)), repairer: Some(rank(0)), peers, ..self };
        }
        Self {
            reporters: (1..self.takers).map(|at| alone(rank(at))).collect(),
            is_repairer: true,
            ..self
        }
    }

    fn with_tree(self, tree: Tree, rank: &impl Fn(u32) -> Rank) -> Self {
        let (position, takers) = (Rank(self.position), self.takers);
        let checked = "positions are below the number of takers, and radices are checked";
        let parent = tree.parent(position, Rank(0), takers).expect(checked);
        let children = tree.children(position, Rank(0), takers).expect(checked);
        let siblings = parent.map(|at| tree.children(at, Rank(0), takers).expect(checked));
        let reporters = children.into_iter().map(|child| {
            let mut below = tree.children(child, Rank(0), takers).expect(checked);
            let mut next = 0;
            while next < below.len() {
                below.extend(tree.children(below[next], Rank(0), takers).expect(checked));
                next += 1;
            }
            below.iter_mut().for_each(|at| *at = rank(at.0));
            below.shrink_to_fit();
            Reporter { rank: rank(child.0), below }
        });
        let reporters: Vec<Reporter> = reporters.collect();
        let is_root = self.position == 0;
        Self {
            collector: parent.map(|at| rank(at.0)),
            peers: siblings.map_or(0, |siblings| siblings.len() as u32),
            repairer: (!is_root).then(|| rank(0)),
            is_repairer: is_root,
            speaks_for_others: !is_root && !reporters.is_empty(),
            reporters,
            ..self
        }
    }

    /// Co-roots report to the rank they get their copy from, as over reliable connections: a rank
    /// that has forwarded a message is responsible for it until it is acknowledged.
    fn with_co_roots(self, co_roots: CoRoots, rank: &impl Fn(u32) -> Rank) -> Self {
        let subgroup = co_roots.subgroup_of(self.position);
        let checked = "subgroups are below their number";
        let count = co_roots.count();
        let parent = Tree::Binomial.parent(Rank(subgroup), Rank(0), count).expect(checked);
        let below =
            |subgroup: u32| Tree::Binomial.children(Rank(subgroup), Rank(0), count).expect(checked);
        let is_leaf = co_roots.collector(subgroup) != self.position;
        let above = if is_leaf { Some(Rank(subgroup)) } else { parent };
        let collector_of = |subgroup: Rank| rank(co_roots.collector(subgroup.0));
        let peers = |Rank(at)| co_roots.subgroup(at).len() - 1 + below(at).len();
        let mut roles = Self {
            collector: above.map(collector_of),
            repairer: above.map(collector_of),
            peers: above.map_or(0, peers) as u32,
            ..self
        };
        if !is_leaf {
            roles.copies_to = below(subgroup).into_iter().map(collector_of).collect();
            let leaves = co_roots.subgroup(subgroup).skip(1).map(rank);
            let reporters = leaves.chain(roles.copies_to.iter().copied());
            roles.reporters = reporters.map(alone).collect();
            roles.is_repairer = !roles.reporters.is_empty();
        }
        roles
    }
}

fn alone(rank: Rank) -> Reporter {
    Reporter { rank, below: Vec::new() }
}

/// The root, then the leaders of the other nodes, in the order of nodes from the root's node on.
struct Takers<'a> {
    nodes: &'a Nodes,
    root: Rank,
    /// Index of the root's node.
    first: u32,
}

impl<'a> Takers<'a> {
    /// Returns `None` if the root is not a member.
    fn of(nodes: &'a Nodes, root: Rank) -> Option<Self> {
        Some(Self { nodes, root, first: nodes.place(root)?.node })
    }

    fn count(&self) -> u32 {
        self.nodes.count()
    }

    /// Position of `rank`, if it is a taker.
    fn position(&self, rank: Rank) -> Option<u32> {
        if rank == self.root {
            return Some(0);
        }
        let place = self.nodes.place(rank).filter(|place| self.nodes.is_leader(*place))?;
        let ahead = if place.node >= self.first {
            place.node - self.first
        } else {
            place.node + (self.count() - self.first)
        };
        (ahead > 0).then_some(ahead)
    }

    /// Rank at `position`, which is less than the count.
    fn rank(&self, position: u32) -> Rank {
        match position {
            0 => self.root,
            _ => self.nodes.leader((self.first + position) % self.count()),
        }
    }
}

/// Least number of messages that may be unacknowledged, so that the acknowledgements of the rule
/// arrive before the window is full [BC-R18].
pub(super) fn window_messages(policy: &Policy, wanted: u32) -> u32 {
    use super::policy::AckRule;
    match policy.acks {
        AckRule::Every => wanted,
        AckRule::EveryNth(messages) | AckRule::Skewed(messages) => wanted.max(2 * messages),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::interface::GroupId;
    use super::*;
    use omnes_wire::CommunicatorId;
    use std::collections::BTreeSet;

    fn group(policy: &str, nodes: &[&[u32]]) -> CastGroupConfig {
        let nodes = nodes.iter().map(|node| node.iter().copied().map(Rank).collect());
        CastGroupConfig {
            id: GroupId { communicator: CommunicatorId(0), number: 0 },
            nodes: nodes.collect(),
            policy: policy.parse().unwrap(),
        }
    }

    fn singles(size: u32) -> Vec<Vec<u32>> {
        (0..size).map(|rank| vec![rank]).collect()
    }

    #[test]
    fn every_receiver_is_reported_for_once_and_has_a_repairer() {
        for policy in ["window", "tree-ack=2", "tree-ack=4", "co-root=2", "co-root=3", "co-root=9"]
        {
            for size in 1..20 {
                let nodes = singles(size);
                let nodes: Vec<&[u32]> = nodes.iter().map(Vec::as_slice).collect();
                let group = group(policy, &nodes);
                for root in 0..size {
                    let of = |rank: Rank| Roles::of(&group, Rank(root), rank).unwrap();
                    for rank in (0..size).filter(|rank| *rank != root) {
                        let roles = of(Rank(rank));
                        let above = of(roles.collector.unwrap());
                        assert!(above.reporters.iter().any(|reporter| reporter.rank == Rank(rank)));
                        assert!(of(roles.repairer.unwrap()).is_repairer, "{policy} {size}");
                    }
                    let roles = of(Rank(root));
                    assert!(roles.collector.is_none());
                    let with_those_below =
                        |reporter: &Reporter| [&[reporter.rank], &*reporter.below].concat();
                    let reached: Vec<Rank> =
                        roles.reporters.iter().flat_map(with_those_below).collect();
                    let unique: BTreeSet<Rank> = reached.iter().copied().collect();
                    assert_eq!(unique.len(), reached.len());
                    if !policy.starts_with("co-root") {
                        assert_eq!(reached.len() as u32, size - 1);
                    }
                }
            }
        }
    }

    #[test]
    fn only_node_leaders_and_the_root_take_part() {
        let group = group("window", &[&[0, 1], &[2, 3], &[4]]);
        let root = Roles::of(&group, Rank(3), Rank(3)).unwrap();
        let ranks: Vec<u32> = root.reporters.iter().map(|one| one.rank.0).collect();
        assert_eq!(ranks, [4, 0]);
        assert_eq!(Roles::of(&group, Rank(3), Rank(2)), None);
        assert_eq!(Roles::of(&group, Rank(3), Rank(1)), None);
        assert_eq!(Roles::of(&group, Rank(9), Rank(0)), None);
    }

    #[test]
    fn co_roots_get_copies_and_report_along_one_binomial_tree() {
        let nodes = singles(8);
        let nodes: Vec<&[u32]> = nodes.iter().map(Vec::as_slice).collect();
        let group = group("co-root=4", &nodes);
        let copies = |rank| Roles::of(&group, Rank(0), Rank(rank)).unwrap().copies_to;
        assert_eq!(copies(0), [Rank(4), Rank(2)]);
        assert_eq!(copies(4), [Rank(6)]);
        assert_eq!(copies(2), []);
        assert_eq!(copies(1), []);
        let collector = |rank| Roles::of(&group, Rank(0), Rank(rank)).unwrap().collector;
        assert_eq!([2, 4, 6].map(collector), [0, 0, 4].map(|rank| Some(Rank(rank))));
    }
}
