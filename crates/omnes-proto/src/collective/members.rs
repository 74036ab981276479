//! Members of a group, and this rank's seat.
//!
//! Leaders run the network's part of a barrier, in which they are identified by the index of their
//! node.

use super::interface::CollectiveError;
use crate::group::{Flaw, Nodes, Place};
use crate::limits::NODE_RANKS_MAX;
use omnes_wire::Rank;
use std::ops::Range;

/// Members of one group, including this rank.
#[derive(Debug)]
pub(super) struct Members {
    nodes: Nodes,
    own: Place,
}

impl Members {
    /// Checks the members `nodes`, at most `nodes_max`, of a job of `size` ranks; this rank, `me`,
    /// must be one of them.
    pub(super) fn new(
        (me, size): (Rank, u32),
        nodes: &Nodes,
        nodes_max: usize,
    ) -> Result<Self, CollectiveError> {
        let count = nodes.count() as usize;
        if count > nodes_max {
            return Err(CollectiveError::GroupTooLarge { nodes: count, nodes_max });
        }
        if let Some(rank) = misplaced(nodes, me, size) {
            return Err(CollectiveError::Misplaced { rank });
        }
        if let Some(ranks) = nodes.widest().filter(|ranks| *ranks > NODE_RANKS_MAX) {
            return Err(CollectiveError::NodeTooLarge { ranks });
        }
        let own = nodes.place(me).ok_or(CollectiveError::Misplaced { rank: me })?;
        Ok(Self { nodes: nodes.clone(), own })
    }

    /// Position of `rank`, if it is a member.
    pub(super) fn place(&self, rank: Rank) -> Option<Place> {
        self.nodes.place(rank)
    }

    /// Position of this rank.
    pub(super) fn own(&self) -> Place {
        self.own
    }

    /// Returns the rank at a seat.
    pub(super) fn rank(&self, seat: u32) -> Rank {
        self.nodes.rank(seat)
    }

    /// Number of seats.
    pub(super) fn seats(&self) -> u32 {
        self.nodes.seats()
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> u32 {
        self.nodes.count()
    }

    /// Seat of a node's leader.
    pub(super) fn leader_seat(&self, node: u32) -> u32 {
        self.nodes.seats_of(node).start
    }

    /// Leader of a node.
    pub(super) fn leader(&self, node: u32) -> Rank {
        self.nodes.leader(node)
    }

    /// True if the member at `place` leads its node.
    pub(super) fn is_leader(&self, place: Place) -> bool {
        self.nodes.is_leader(place)
    }

    /// Seats of this rank's node except the leader's.
    pub(super) fn led(&self) -> Range<u32> {
        let seats = self.nodes.seats_of(self.own.node);
        seats.start + 1..seats.end
    }
}

/// Finds an invalid rank in `nodes` for a job of `size` ranks; for a node without ranks it is this
/// one, `me`.
fn misplaced(nodes: &Nodes, me: Rank, size: u32) -> Option<Rank> {
    match nodes.flaw() {
        Some(Flaw::EmptyNode) => Some(me),
        Some(Flaw::Twice(rank)) => Some(rank),
        // The ranks are searched only if the group is rejected.
        None if nodes.highest().is_some_and(|rank| rank.0 >= size) => {
            nodes.ranks().find(|rank| rank.0 >= size)
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::limits::GROUP_NODES_MAX;

    fn nodes(nodes: &[&[u32]]) -> Nodes {
        nodes.iter().map(|node| node.iter().copied().map(Rank).collect()).collect()
    }

    fn members(me: u32, size: u32, nodes: &Nodes) -> Result<Members, CollectiveError> {
        Members::new((Rank(me), size), nodes, GROUP_NODES_MAX)
    }

    #[test]
    fn rank_knows_its_seat_and_its_node_members() {
        let members = members(4, 6, &nodes(&[&[5, 1], &[2], &[0, 4, 3]])).unwrap();
        assert_eq!((members.seats(), members.nodes()), (6, 3));
        assert_eq!(members.own(), Place { seat: 4, node: 2 });
        assert!(!members.is_leader(members.own()));
        assert_eq!(members.led(), 4..6);
        assert_eq!((members.leader(2), members.leader_seat(2)), (Rank(0), 3));
    }

    #[test]
    fn impossible_groups_are_rejected_with_the_reason() {
        let refused = |me, groups: &[&[u32]]| members(me, 4, &nodes(groups)).err();
        let misplaced = |rank| Some(CollectiveError::Misplaced { rank: Rank(rank) });
        assert_eq!(refused(0, &[&[0, 1], &[1]]), misplaced(1));
        assert_eq!(refused(0, &[&[0], &[4]]), misplaced(4));
        assert_eq!(refused(0, &[&[0], &[]]), misplaced(0));
        assert_eq!(refused(3, &[&[0], &[1]]), misplaced(3));
        assert_eq!(refused(0, &[]), misplaced(0));
        let most = GROUP_NODES_MAX as u32;
        assert!(members(0, most + 9, &Nodes::one_each(most)).is_ok());
        let error = members(0, most + 9, &Nodes::one_each(most + 1)).err();
        let (nodes, nodes_max) = (GROUP_NODES_MAX + 1, GROUP_NODES_MAX);
        assert_eq!(error, Some(CollectiveError::GroupTooLarge { nodes, nodes_max }));
        let node = |ranks: u32| Nodes::from(vec![(0..ranks).map(Rank).collect::<Vec<_>>()]);
        assert!(members(0, 5000, &node(4096)).is_ok());
        let error = members(0, 5000, &node(4097)).err();
        assert_eq!(error, Some(CollectiveError::NodeTooLarge { ranks: 4097 }));
    }
}
