//! Layout of a group: its ranks by node, the same for broadcasts and barriers.
//!
//! Members have *seats*, node after node, each node's leader first. The description is immutable
//! and reference-counted, so all groups of all ranks in one process may share one. Groups of one
//! rank per node, with the ranks from 0 on, need no memory at all.
//!
//! Guarantees: each query takes a few steps, whatever the size; methods that take a step per member
//! say so. Nodes without ranks are skipped. Invalid descriptions, with a duplicate rank or an empty
//! node, are recorded for callers that reject them; a duplicate rank has its first seat.
//!
//! Cost: 12 B per member, 4 B per node and 4 B per rank up to the highest, once per description;
//! nothing for one rank per node from 0 on.

use omnes_wire::Rank;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Ranks below this multiple of the number of members are found by index, higher ones by search.
const DENSE_RANKS_PER_MEMBER: usize = 8;
/// Marks the absence of a seat.
const NOWHERE: u32 = u32::MAX;

/// Position of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Seat of the member.
    pub seat: u32,
    /// Index of the member's node in the group.
    pub node: u32,
}

/// The members of a group by node, each node's leader first; see the module header.
///
/// ```
/// use omnes_proto::group::Nodes;
/// use omnes_wire::Rank;
///
/// let nodes = Nodes::from(vec![vec![Rank(5), Rank(1)], vec![Rank(2)]]);
/// assert_eq!((nodes.count(), nodes.seats()), (2, 3));
/// assert_eq!(nodes.leader(1), Rank(2));
/// assert_eq!(nodes.place(Rank(1)).map(|place| place.node), Some(0));
/// assert!(!Nodes::one_each(4).contains(Rank(4)));
/// ```
#[derive(Clone)]
pub struct Nodes(Form);

#[derive(Clone)]
enum Form {
    /// The ranks from 0 on, one per node.
    OneEach(u32),
    Listed(Arc<Listed>),
}

/// Defect of a description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A node has no ranks.
    EmptyNode,
    /// A rank occurs twice.
    Twice(Rank),
}

#[derive(Default)]
struct Listed {
    /// Members by seat.
    ranks: Vec<Rank>,
    /// Seat of each node's leader, by node, followed by the number of seats.
    first: Vec<u32>,
    /// Node of each member, by seat.
    node_of: Vec<u32>,
    /// Seats of the lower ranks, by rank; [`NOWHERE`] for ranks that are not members.
    seats: Vec<u32>,
    /// Seats of the higher ranks.
    far_seats: BTreeMap<Rank, u32>,
    flaw: Option<Flaw>,
    /// Number of ranks of the largest node.
    widest: usize,
}

impl Listed {
    fn new(nodes: &[Vec<Rank>]) -> Self {
        let members: usize = nodes.iter().map(Vec::len).sum();
        let highest = nodes.iter().flatten().map(|rank| rank.index()).max();
        let dense = highest.map_or(0, |rank| rank + 1).min(DENSE_RANKS_PER_MEMBER * members);
        let mut listed = Self {
            ranks: Vec::with_capacity(members),
            first: vec![0],
            node_of: Vec::with_capacity(members),
            seats: vec![NOWHERE; dense],
            ..Self::default()
        };
        for on_node in nodes {
            if on_node.is_empty() {
                listed.flaw.get_or_insert(Flaw::EmptyNode);
                continue;
            }
            on_node.iter().for_each(|rank| listed.add(*rank));
            listed.widest = listed.widest.max(on_node.len());
            listed.first.push(listed.ranks.len() as u32);
        }
        listed
    }

    fn add(&mut self, rank: Rank) {
        let (seat, node) = (self.ranks.len() as u32, self.first.len() as u32 - 1);
        self.ranks.push(rank);
        self.node_of.push(node);
        let known = match self.seats.get_mut(rank.index()) {
            Some(known) => known,
            None => self.far_seats.entry(rank).or_insert(NOWHERE),
        };
        if *known == NOWHERE {
            *known = seat;
        } else {
            self.flaw.get_or_insert(Flaw::Twice(rank));
        }
    }

    fn place(&self, rank: Rank) -> Option<Place> {
        let seat = match self.seats.get(rank.index()) {
            Some(seat) => *seat,
            None => *self.far_seats.get(&rank)?,
        };
        (seat != NOWHERE).then(|| Place { seat, node: self.node_of[seat as usize] })
    }
}

impl Nodes {
    /// The ranks from 0 to `ranks`, exclusive, one per node.
    pub fn one_each(ranks: u32) -> Self {
        Self(Form::OneEach(ranks))
    }

    /// Number of nodes.
    pub fn count(&self) -> u32 {
        match &self.0 {
            Form::OneEach(ranks) => *ranks,
            Form::Listed(listed) => listed.first.len() as u32 - 1,
        }
    }

    /// Number of members.
    pub fn seats(&self) -> u32 {
        match &self.0 {
            Form::OneEach(ranks) => *ranks,
            Form::Listed(listed) => listed.ranks.len() as u32,
        }
    }

    /// Returns the rank at a seat.
    ///
    /// # Panics
    /// If `seat` is not below [`Self::seats`].
    pub fn rank(&self, seat: u32) -> Rank {
        match &self.0 {
            Form::OneEach(ranks) => {
                assert!(seat < *ranks, "seat {seat} of {ranks}");
                Rank(seat)
            }
            Form::Listed(listed) => listed.ranks[seat as usize],
        }
    }

    /// Seats of a node, the leader's first.
    ///
    /// # Panics
    /// If `node` is not below [`Self::count`].
    pub fn seats_of(&self, node: u32) -> Range<u32> {
        match &self.0 {
            Form::OneEach(ranks) => {
                assert!(node < *ranks, "node {node} of {ranks}");
                node..node + 1
            }
            Form::Listed(listed) => listed.first[node as usize]..listed.first[node as usize + 1],
        }
    }

    /// Leader of a node.
    ///
    /// # Panics
    /// If `node` is not below [`Self::count`].
    pub fn leader(&self, node: u32) -> Rank {
        self.rank(self.seats_of(node).start)
    }

    /// Position of `rank`, if it is a member.
    pub fn place(&self, rank: Rank) -> Option<Place> {
        match &self.0 {
            Form::OneEach(ranks) => {
                (rank.0 < *ranks).then_some(Place { seat: rank.0, node: rank.0 })
            }
            Form::Listed(listed) => listed.place(rank),
        }
    }

    /// True if `rank` is a member.
    pub fn contains(&self, rank: Rank) -> bool {
        self.place(rank).is_some()
    }

    /// True if the member at `place` leads its node.
    pub fn is_leader(&self, place: Place) -> bool {
        self.seats_of(place.node).start == place.seat
    }

    /// All members, in order of their seats.
    pub fn ranks(&self) -> impl DoubleEndedIterator<Item = Rank> + ExactSizeIterator + '_ {
        (0..self.seats()).map(|seat| self.rank(seat))
    }

    /// Leaders of all nodes, by node.
    pub fn leaders(&self) -> impl DoubleEndedIterator<Item = Rank> + ExactSizeIterator + '_ {
        (0..self.count()).map(|node| self.leader(node))
    }

    /// Members of a node, the leader first.
    ///
    /// # Panics
    /// If `node` is not below [`Self::count`].
    pub fn members(&self, node: u32) -> impl DoubleEndedIterator<Item = Rank> + '_ {
        self.seats_of(node).map(|seat| self.rank(seat))
    }

    /// Members of all nodes, as one list per node; takes a step per member.
    pub fn to_lists(&self) -> Vec<Vec<Rank>> {
        (0..self.count()).map(|node| self.members(node).collect()).collect()
    }

    /// First defect of the description, if it has any.
    pub(crate) fn flaw(&self) -> Option<Flaw> {
        match &self.0 {
            Form::OneEach(_) => None,
            Form::Listed(listed) => listed.flaw,
        }
    }

    /// Number of ranks of the largest node; `None` if there are no members.
    pub(crate) fn widest(&self) -> Option<usize> {
        match &self.0 {
            Form::OneEach(ranks) => (*ranks > 0).then_some(1),
            Form::Listed(listed) => (listed.widest > 0).then_some(listed.widest),
        }
    }

    /// Highest rank among the members; `None` if there are no members.
    pub(crate) fn highest(&self) -> Option<Rank> {
        match &self.0 {
            Form::OneEach(ranks) => ranks.checked_sub(1).map(Rank),
            Form::Listed(listed) => match listed.far_seats.last_key_value() {
                Some((rank, _)) => Some(*rank),
                None => listed.seats.len().checked_sub(1).map(|rank| Rank(rank as u32)),
            },
        }
    }
}

impl From<Vec<Vec<Rank>>> for Nodes {
    fn from(nodes: Vec<Vec<Rank>>) -> Self {
        let is_one_each = (0..).zip(&nodes).all(|(node, ranks)| **ranks == [Rank(node)]);
        if is_one_each {
            Self::one_each(nodes.len() as u32)
        } else {
            Self(Form::Listed(Arc::new(Listed::new(&nodes))))
        }
    }
}

impl FromIterator<Vec<Rank>> for Nodes {
    fn from_iter<I: IntoIterator<Item = Vec<Rank>>>(nodes: I) -> Self {
        Self::from(Vec::from_iter(nodes))
    }
}

impl PartialEq for Nodes {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::OneEach(ranks), Form::OneEach(others)) => ranks == others,
            (Form::Listed(mine), Form::Listed(others)) => {
                Arc::ptr_eq(mine, others)
                    || mine.ranks == others.ranks && mine.first == others.first
            }
            // `Listed` is used only for groups that are not `OneEach`.
            _ => false,
        }
    }
}

impl Eq for Nodes {}

/// Prints lists of ranks, so that traces and replay lines name the members.
impl fmt::Debug for Nodes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.to_lists()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lists(nodes: &[&[u32]]) -> Vec<Vec<Rank>> {
        nodes.iter().map(|node| node.iter().copied().map(Rank).collect()).collect()
    }

    #[test]
    fn seats_are_ordered_by_node_with_leaders_first() {
        let nodes = Nodes::from(lists(&[&[5, 1], &[2], &[0, 4, 3]]));
        assert_eq!((nodes.seats(), nodes.count()), (6, 3));
        assert!(nodes.ranks().eq([5, 1, 2, 0, 4, 3].map(Rank)));
        assert!(nodes.leaders().eq([5, 2, 0].map(Rank)));
        assert!(nodes.members(2).eq([0, 4, 3].map(Rank)));
        assert_eq!(nodes.place(Rank(4)), Some(Place { seat: 4, node: 2 }));
        assert!(!nodes.is_leader(nodes.place(Rank(4)).unwrap()));
        assert!(nodes.is_leader(nodes.place(Rank(2)).unwrap()));
        assert_eq!(nodes.place(Rank(6)), None);
        assert_eq!((nodes.flaw(), nodes.highest()), (None, Some(Rank(5))));
    }

    #[test]
    fn one_rank_per_node_equals_its_explicit_lists() {
        let listed = lists(&[&[0], &[1], &[2]]);
        let nodes = Nodes::one_each(3);
        assert_eq!(Nodes::from(listed.clone()), nodes);
        assert_eq!(nodes.to_lists(), listed);
        assert_eq!(format!("{nodes:?}"), format!("{listed:?}"));
        assert_eq!(nodes.place(Rank(2)), Some(Place { seat: 2, node: 2 }));
        assert_eq!(nodes.place(Rank(3)), None);
        assert!(nodes.leaders().eq([0, 1, 2].map(Rank)));
        assert_ne!(nodes, Nodes::from(lists(&[&[0], &[2], &[1]])));
    }

    #[test]
    fn sparse_ranks_are_found() {
        let all = lists(&[&[3, u32::MAX], &[1_000_000, 7]]);
        let nodes = Nodes::from(all.clone());
        assert_eq!(nodes.to_lists(), all);
        let seats = nodes.ranks().map(|rank| nodes.place(rank).unwrap().seat);
        assert!(seats.eq(0..4));
        assert_eq!(nodes.place(Rank(u32::MAX)), Some(Place { seat: 1, node: 0 }));
        assert_eq!((nodes.place(Rank(8)), nodes.place(Rank(999_999))), (None, None));
        assert_eq!(nodes.highest(), Some(Rank(u32::MAX)));
    }

    #[test]
    fn invalid_node_lists_are_recorded_as_flaws() {
        let flaw = |nodes: &[&[u32]]| Nodes::from(lists(nodes)).flaw();
        assert_eq!(flaw(&[&[0, 1], &[1]]), Some(Flaw::Twice(Rank(1))));
        assert_eq!(flaw(&[&[0], &[]]), Some(Flaw::EmptyNode));
        assert_eq!(flaw(&[&[2, 1], &[0]]), None);
        let nodes = Nodes::from(lists(&[&[1], &[], &[0, 1]]));
        assert_eq!((nodes.count(), nodes.leader(1)), (2, Rank(0)));
        assert_eq!(nodes.place(Rank(1)), Some(Place { seat: 0, node: 0 }));
        assert_eq!((Nodes::from(Vec::new()).seats(), Nodes::one_each(0).highest()), (0, None));
    }
}
