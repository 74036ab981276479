//! Who the members of a group are, and where they sit.
//!
//! Members have *seats*, node after node, each node's leader first. Leaders run the network's part
//! of a barrier; there they are known by the index of their node.

use super::interface::CollectiveError;
use crate::limits::{GROUP_NODES_MAX, NODE_RANKS_MAX};
use omnes_wire::Rank;
use std::ops::Range;

/// Where a member sits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Its seat.
    pub(super) seat: u32,
    /// Its node's index in the group.
    pub(super) node: u32,
}

/// The members of one group.
#[derive(Debug)]
pub(super) struct Members {
    /// By seat.
    ranks: Vec<Rank>,
    /// The leader's seat by node, and the number of seats at the end.
    first: Vec<u32>,
    /// By rank of the job.
    places: Vec<Option<Place>>,
    own: Place,
}

impl Members {
    /// The members `nodes` of a job of `size` ranks, of which this rank, `me`, is one.
    pub(super) fn new(me: Rank, size: u32, nodes: &[Vec<Rank>]) -> Result<Self, CollectiveError> {
        if nodes.len() > GROUP_NODES_MAX {
            return Err(CollectiveError::GroupTooLarge { nodes: nodes.len() });
        }
        let mut places = vec![None; size as usize];
        let (mut ranks, mut first) = (Vec::new(), vec![0]);
        for (node, on_node) in (0..).zip(nodes) {
            if on_node.len() > NODE_RANKS_MAX {
                return Err(CollectiveError::NodeTooLarge { ranks: on_node.len() });
            }
            if on_node.is_empty() {
                return Err(CollectiveError::Misplaced { rank: me });
            }
            for rank in on_node {
                match places.get_mut(rank.index()) {
                    Some(place @ None) => *place = Some(Place { seat: ranks.len() as u32, node }),
                    _ => return Err(CollectiveError::Misplaced { rank: *rank }),
                }
                ranks.push(*rank);
            }
            first.push(ranks.len() as u32);
        }
        let own = places.get(me.index()).copied().flatten();
        let own = own.ok_or(CollectiveError::Misplaced { rank: me })?;
        Ok(Self { ranks, first, places, own })
    }

    /// Where `rank` sits, if it is a member.
    pub(super) fn place(&self, rank: Rank) -> Option<Place> {
        self.places.get(rank.index()).copied().flatten()
    }

    /// Where this rank sits.
    pub(super) fn own(&self) -> Place {
        self.own
    }

    /// The rank on a seat.
    pub(super) fn rank(&self, seat: u32) -> Rank {
        self.ranks[seat as usize]
    }

    /// Number of seats.
    pub(super) fn seats(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// The seat of a node's leader.
    pub(super) fn leader_seat(&self, node: u32) -> u32 {
        self.first[node as usize]
    }

    /// The leader of a node.
    pub(super) fn leader(&self, node: u32) -> Rank {
        self.rank(self.leader_seat(node))
    }

    /// True if the member at `place` leads its node.
    pub(super) fn is_leader(&self, place: Place) -> bool {
        self.leader_seat(place.node) == place.seat
    }

    /// Seats of this rank's node but the leader's.
    pub(super) fn led(&self) -> Range<u32> {
        self.leader_seat(self.own.node) + 1..self.first[self.own.node as usize + 1]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nodes(nodes: &[&[u32]]) -> Vec<Vec<Rank>> {
        nodes.iter().map(|node| node.iter().copied().map(Rank).collect()).collect()
    }

    #[test]
    fn seats_go_node_by_node_leaders_first() {
        let members = Members::new(Rank(4), 6, &nodes(&[&[5, 1], &[2], &[0, 4, 3]])).unwrap();
        assert_eq!((members.seats(), members.nodes()), (6, 3));
        let ranks: Vec<u32> = (0..6).map(|seat| members.rank(seat).0).collect();
        assert_eq!(ranks, [5, 1, 2, 0, 4, 3]);
        let leaders: Vec<u32> = (0..3).map(|node| members.leader(node).0).collect();
        assert_eq!(leaders, [5, 2, 0]);
        assert_eq!(members.own(), Place { seat: 4, node: 2 });
        assert!(!members.is_leader(members.own()));
        assert!(members.is_leader(members.place(Rank(2)).unwrap()));
        assert_eq!(members.led(), 4..6);
        assert_eq!(members.place(Rank(6)), None);
    }

    #[test]
    fn impossible_groups_are_refused_by_name() {
        let refused = |me, groups: &[&[u32]]| Members::new(Rank(me), 4, &nodes(groups)).err();
        let misplaced = |rank| Some(CollectiveError::Misplaced { rank: Rank(rank) });
        assert_eq!(refused(0, &[&[0, 1], &[1]]), misplaced(1));
        assert_eq!(refused(0, &[&[0], &[4]]), misplaced(4));
        assert_eq!(refused(0, &[&[0], &[]]), misplaced(0));
        assert_eq!(refused(3, &[&[0], &[1]]), misplaced(3));
        assert_eq!(refused(0, &[]), misplaced(0));
        let one_each = |nodes: u32| (0..nodes).map(|rank| vec![Rank(rank)]).collect::<Vec<_>>();
        assert!(Members::new(Rank(0), 2000, &one_each(1024)).is_ok());
        let error = Members::new(Rank(0), 2000, &one_each(1025)).err();
        assert_eq!(error, Some(CollectiveError::GroupTooLarge { nodes: 1025 }));
        let node = |ranks: u32| vec![(0..ranks).map(Rank).collect::<Vec<_>>()];
        assert!(Members::new(Rank(0), 5000, &node(4096)).is_ok());
        let error = Members::new(Rank(0), 5000, &node(4097)).err();
        assert_eq!(error, Some(CollectiveError::NodeTooLarge { ranks: 4097 }));
    }
}
