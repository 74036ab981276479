//! Fat trees of one, two or three levels.
//!
//! What it is: edge switches with hosts; `ups` aggregation switches per pod, each linked to every
//! edge switch of the pod; cores, each linked to one aggregation switch of every pod. Two levels
//! are one pod without cores, and one level is one edge switch.
//!
//! ```text
//!   switch numbers   edges: 0..E   aggregation: E + pod * ups + j   cores: behind, j * cores + i
//!   cables           edge e, up j:          e * ups + j             to aggregation (pod of e, j)
//!                    aggregation a, up i:   E * ups + a * cores + i to core (j of a, i)
//! ```
//!
//! Source: the folded Clos network as [Al-Fares 2008] draws it. With three levels the bisection is
//! full unless oversubscription takes uplinks away from the edge switches, or the number of ports
//! is odd.
//! Cost: forwarding is arithmetic; only five numbers are stored.

use alloc::vec::Vec;

use super::build::{Wiring, seats};
use super::draw::hashed;
use super::{LinkId, Network, NetworkError, Shape, SwitchId};

/// Parameters of a fat tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatTreeOptions {
    /// Hosts, at least 1.
    pub hosts: u32,
    /// Ports of each switch.
    pub radix: u32,
    /// Hosts of an edge switch per uplink; 1 gives a full bisection.
    pub oversubscription: u32,
}

#[derive(Clone, Debug)]
pub(super) struct FatTree {
    edges: u32,
    edges_per_pod: u32,
    pods: u32,
    /// Uplinks of an edge switch, and aggregation switches of a pod.
    ups: u32,
    /// Uplinks of an aggregation switch.
    cores: u32,
}

/// Salts, so that the choices of the two levels are independent.
const AT_EDGE: u32 = 1;
const AT_AGGREGATION: u32 = 2;

impl FatTree {
    fn plan(options: FatTreeOptions) -> Result<(Self, u32), NetworkError> {
        let FatTreeOptions { hosts, radix, oversubscription } = options;
        let ups = radix / oversubscription.saturating_add(1).max(2);
        if ups == 0 {
            let radix_min = oversubscription.saturating_add(1).max(2);
            return Err(NetworkError::RadixTooSmall { radix, radix_min });
        }
        let hosts_per_edge = radix - ups;
        let edges = hosts.div_ceil(hosts_per_edge);
        if hosts <= radix {
            return Ok((Self { edges: 1, edges_per_pod: 1, pods: 1, ups: 0, cores: 0 }, hosts));
        }
        if edges <= radix {
            let tree = Self { edges, edges_per_pod: edges, pods: 1, ups, cores: 0 };
            return Ok((tree, hosts_per_edge));
        }
        let edges_per_pod = radix / 2;
        let pods = edges.div_ceil(edges_per_pod);
        if pods > radix {
            let hosts_max = hosts_per_edge.saturating_mul(edges_per_pod).saturating_mul(radix);
            return Err(NetworkError::TooManyHosts { hosts, hosts_max });
        }
        Ok((Self { edges, edges_per_pod, pods, ups, cores: radix - edges_per_pod }, hosts_per_edge))
    }

    fn aggregations(&self) -> u32 {
        self.pods * self.ups
    }

    fn switches(&self) -> u32 {
        self.edges + self.aggregations() + self.ups * self.cores
    }

    fn cables(&self) -> Vec<(SwitchId, SwitchId)> {
        let edges = (0..self.edges).flat_map(|edge| {
            let pod = edge / self.edges_per_pod;
            (0..self.ups).map(move |up| (edge, self.edges + pod * self.ups + up))
        });
        let first_core = self.edges + self.aggregations();
        let aggregations = (0..self.aggregations()).flat_map(|aggregation| {
            let plane = first_core + aggregation % self.ups * self.cores;
            (0..self.cores).map(move |core| (self.edges + aggregation, plane + core))
        });
        edges.chain(aggregations).map(|(low, high)| (SwitchId(low), SwitchId(high))).collect()
    }

    /// The link between switches to take at `switch` towards another edge switch.
    pub fn next(&self, switch: SwitchId, seat: SwitchId, flow: u32) -> u32 {
        let (up, pod) = (self.up(switch, flow), seat.0 / self.edges_per_pod);
        match switch.0.checked_sub(self.edges) {
            None => up,
            Some(above) if above < self.aggregations() => {
                let down = 2 * (seat.0 * self.ups + above % self.ups) + 1;
                if above / self.ups == pod { down } else { up }
            }
            Some(above) => {
                let core = above - self.aggregations();
                let aggregation = pod * self.ups + core / self.cores;
                let cable = aggregation * self.cores + core % self.cores;
                2 * (self.edges * self.ups + cable) + 1
            }
        }
    }

    /// The uplink that `flow` takes at a switch; for a core, a link that does not exist.
    fn up(&self, switch: SwitchId, flow: u32) -> u32 {
        match switch.0.checked_sub(self.edges) {
            None => 2 * (switch.0 * self.ups + hashed(flow, AT_EDGE, self.ups)),
            Some(above) => {
                let choice = hashed(flow, AT_AGGREGATION, self.cores);
                2 * (self.edges * self.ups + above * self.cores + choice)
            }
        }
    }

    /// True if a multicast of `flow` that arrived at `switch` over the link `came_by` leaves it
    /// over `link`; both are numbers of links between switches, `None` stands for a host's link.
    pub fn copies(&self, switch: SwitchId, came_by: Option<u32>, link: u32, flow: u32) -> bool {
        let goes_down = link % 2 == 1;
        let came_from_below = came_by.is_none_or(|came_by| came_by % 2 == 0);
        goes_down || came_from_below && link == self.up(switch, flow)
    }
}

impl Network {
    /// `hosts` hosts on one switch.
    ///
    /// Errors with [`NetworkError::Empty`] without hosts.
    pub fn single_switch(hosts: u32) -> Result<Self, NetworkError> {
        Self::fat_tree(hosts, hosts.max(2))
    }

    /// The smallest fat tree of full bisection for `hosts` hosts, of switches with `radix` ports,
    /// an even number of them.
    ///
    /// Errors as [`Network::fat_tree_of`].
    pub fn fat_tree(hosts: u32, radix: u32) -> Result<Self, NetworkError> {
        Self::fat_tree_of(FatTreeOptions { hosts, radix, oversubscription: 1 })
    }

    /// A fat tree of at most three levels.
    ///
    /// Errors with [`NetworkError::Empty`] without hosts, [`NetworkError::RadixTooSmall`] if an
    /// edge switch would have no uplink, [`NetworkError::TooManyHosts`] if three levels are too
    /// few. Cost: O(hosts + links).
    pub fn fat_tree_of(options: FatTreeOptions) -> Result<Self, NetworkError> {
        if options.hosts == 0 {
            return Err(NetworkError::Empty);
        }
        let (tree, hosts_per_edge) = FatTree::plan(options)?;
        let wiring = Wiring {
            seats: seats(options.hosts, hosts_per_edge),
            switches: tree.switches(),
            cables: tree.cables(),
        };
        Ok(wiring.into_network(Shape::FatTree(tree)))
    }

    /// The links up from `switch` in a fat tree; none in other shapes.
    pub fn uplinks(&self, switch: SwitchId) -> impl Iterator<Item = LinkId> + '_ {
        let is_tree = matches!(self.shape, Shape::FatTree(_));
        let links = self.neighbours(switch).map(|(link, _)| link);
        links.filter(move |link| is_tree && link.0 % 2 == 0)
    }
}
