//! Multicast by switches that know where members are: one copy per link that leads to a member.
//!
//! What it is: for each source and flow one tree over all hosts. A switch copies a packet that
//! arrives over one link of the tree onto the others. The tree follows unicast paths: up one way
//! and down all ways in a fat tree; across the group, over one link to each other group and across
//! those groups in a dragonfly; shortest paths in other networks.
//! Guarantees: each host but the source is reached once; each link carries at most one copy.
//! Cost: [`Network::multicast_links`] is O(ports of the switch) and allocates nothing;
//! [`Network::multicast`] is O(links of the tree).

use alloc::vec;
use alloc::vec::Vec;

use super::dragonfly::At;
use super::{HostId, LinkId, Network, Node, Shape, SwitchId};

/// A multicast: its sender, and which of several equal trees it takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cast {
    /// The sending host.
    pub from: HostId,
    /// Selects the tree.
    pub flow: u32,
}

impl Network {
    /// The links onto which `switch` copies a multicast to all hosts that arrived over `came_by`.
    pub fn multicast_links(
        &self,
        switch: SwitchId,
        came_by: LinkId,
        cast: Cast,
    ) -> impl Iterator<Item = LinkId> + '_ {
        let back = came_by.reverse();
        let came_by = self.number_between(came_by);
        let links = self.ports(switch).iter().copied();
        links.filter(move |link| *link != back && self.copies(switch, came_by, *link, cast))
    }

    fn copies(&self, switch: SwitchId, came_by: Option<u32>, link: LinkId, cast: Cast) -> bool {
        let Some(number) = self.number_between(link) else {
            return true;
        };
        match &self.shape {
            Shape::FatTree(tree) => tree.copies(switch, came_by, number, cast.flow),
            Shape::Dragonfly(dragonfly) => {
                let (source, to) = (self.seat(cast.from), self.ends[number as usize]);
                dragonfly.copies(At { source, switch, to }, came_by, number, cast.flow)
            }
            Shape::Graph(graph) => graph.copies(self, self.seat(cast.from), link, cast.flow),
        }
    }

    /// The number of `link` among those between switches.
    fn number_between(&self, link: LinkId) -> Option<u32> {
        link.0.checked_sub(2 * self.hosts())
    }

    /// The links of the tree that reaches the hosts for which `is_member` is true, except the
    /// source: the source's uplink first, each other link after the one that it copies from.
    ///
    /// A switch then copies onto those of its links that are in the result.
    pub fn multicast(&self, cast: Cast, is_member: impl Fn(HostId) -> bool) -> Vec<LinkId> {
        let mut tree = vec![(self.uplink(cast.from), 0)];
        let mut done = 0;
        while let Some((link, _)) = tree.get(done).copied() {
            if let Node::Switch(switch) = self.end(link) {
                tree.extend(self.multicast_links(switch, link, cast).map(|link| (link, done)));
            }
            done += 1;
        }
        let mut leads = vec![false; tree.len()];
        for (place, (link, before)) in tree.iter().enumerate().rev() {
            leads[place] |= matches!(self.end(*link), Node::Host(host) if is_member(host));
            leads[*before] |= leads[place];
        }
        let kept = tree.iter().zip(leads).filter(|(_, leads)| *leads);
        kept.map(|((link, _), _)| *link).collect()
    }
}
