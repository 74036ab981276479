//! Networks of switches: their links, the paths of packets, and how switches copy.
//!
//! What it is: hosts on ports of switches, switches on ports of switches, as flat tables, and the
//! answers that forwarding needs: the next link of a packet, and the links onto which a switch
//! copies a multicast. Every cable is two directed links, `2 n` and `2 n + 1`; those of host `h`
//! are `2 h` (up to its switch) and `2 h + 1` (down). So ids are dense and [`LinkId::reverse`] is
//! one operation.
//!
//! ```text
//!   host 3 ──6─▶ switch 1 ──20─▶ switch 4        Network::next_link(switch, host, flow)
//!          ◀─7──          ◀─21──                  Network::multicast_links(switch, came_by, cast)
//! ```
//!
//! | constructor | shape | way of a packet |
//! |---|---|---|
//! | [`Network::single_switch`] | one switch | down |
//! | [`Network::fat_tree`] | 1, 2 or 3 levels | up by hash of the flow, then down |
//! | [`Network::dragonfly`] | groups, all linked | local, global, local |
//! | [`Network::irregular`], [`Network::of_cables`] | any graph | a shortest path by hash |
//!
//! Source routes on irregular networks, which do not deadlock under back-pressure, are in
//! [`up_down`], [`in_transit`], [`dependence`] and [`header`] [IT-R1–R8]; how evenly they load
//! links, in [`balance`].
//!
//! Guarantees: the same arguments give the same answers everywhere; every path ends at its host and
//! every multicast reaches each other host once, over each link at most once. What a packet does at
//! a switch depends on that switch, the flow and the destination; for a multicast, on its source.
//! Assumes: ids passed to a network are its own; others panic, as an index does.
//! Cost: below 64 bytes per host at 65,536 hosts, except for graphs, which keep a distance for each
//! pair of switches; `next_link` is O(1) (graphs: O(ports) of the switch and of its neighbours),
//! `multicast_links` O(ports of the switch), a path O(hops). None of them allocates.
//! Not done: adaptive and non-minimal routes on a dragonfly; failed links.

use alloc::vec::Vec;

pub mod balance;
mod build;
pub mod dependence;
mod dragonfly;
mod draw;
mod error;
mod fat_tree;
mod graph;
pub mod header;
pub mod in_transit;
mod multicast;
pub mod up_down;

pub use dragonfly::DragonflyOptions;
pub use draw::Draw;
pub use error::NetworkError;
pub use fat_tree::FatTreeOptions;
pub use graph::{IrregularOptions, RING_NUMBERS, SWITCHES_MAX};
pub use multicast::Cast;

use dragonfly::Dragonfly;
use fat_tree::FatTree;
use graph::Graph;

/// A host, `0..hosts`; hosts are attached to switches in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

/// A switch, `0..switches`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(pub u32);

/// One direction of a cable, `0..links`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The other direction of the same cable.
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The id as an index into a table of all links.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The node at an end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// A host, which has one cable.
    Host(HostId),
    /// A switch.
    Switch(SwitchId),
}

/// How a network forwards; the tables are the same for all.
#[derive(Clone, Debug)]
enum Shape {
    FatTree(FatTree),
    Dragonfly(Dragonfly),
    Graph(Graph),
}

/// Hosts, switches and links; see the module header.
///
/// ```
/// use omnes_topo::network::{Cast, HostId, Network, Node};
///
/// let network = Network::fat_tree(16, 4)?; // three levels: 16 hosts, 20 switches
/// assert_eq!((network.hosts(), network.switches()), (16, 20));
/// let path: Vec<_> = network.path(HostId(0), HostId(15), 7).collect();
/// assert_eq!(path.len(), 6); // host, edge, aggregation, core and down again
/// assert_eq!(network.link(path[5]).1, Node::Host(HostId(15)));
///
/// // The first switch copies a multicast to its other host and upwards.
/// let cast = Cast { from: HostId(0), flow: 7 };
/// let came_by = network.uplink(HostId(0));
/// assert_eq!(network.multicast_links(network.seat(HostId(0)), came_by, cast).count(), 2);
/// # Ok::<(), omnes_topo::network::NetworkError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    shape: Shape,
    /// The switch that each host is attached to.
    seats: Vec<SwitchId>,
    /// Start of each switch's ports in `ports`, and the end of all.
    first: Vec<u32>,
    /// The link out of each port; a switch's links down to hosts come first, all ascending.
    ports: Vec<LinkId>,
    /// The switch at the end of each link between switches, from link `2 * hosts` on.
    ends: Vec<SwitchId>,
}

impl Network {
    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.seats.len() as u32
    }

    /// Number of switches.
    pub fn switches(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// Number of directed links; ids are below it.
    pub fn links(&self) -> u32 {
        (2 * self.seats.len() + self.ends.len()) as u32
    }

    /// The switch that `host` is attached to.
    ///
    /// # Panics
    /// If the host does not exist; the same holds for all ids below.
    pub fn seat(&self, host: HostId) -> SwitchId {
        self.seats[host.0 as usize]
    }

    /// The link from `host` to its switch.
    pub fn uplink(&self, host: HostId) -> LinkId {
        LinkId(2 * host.0)
    }

    /// The link to `host` from its switch.
    pub fn downlink(&self, host: HostId) -> LinkId {
        LinkId(2 * host.0 + 1)
    }

    /// True if both ends of `link` are switches.
    pub fn is_between_switches(&self, link: LinkId) -> bool {
        link.index() >= 2 * self.seats.len()
    }

    /// The nodes where `link` begins and where it ends.
    pub fn link(&self, link: LinkId) -> (Node, Node) {
        (self.end(link.reverse()), self.end(link))
    }

    /// The node where `link` ends.
    pub fn end(&self, link: LinkId) -> Node {
        let host = HostId(link.0 / 2);
        match link.index().checked_sub(2 * self.seats.len()) {
            Some(between) => Node::Switch(self.ends[between]),
            None if link.0.is_multiple_of(2) => Node::Switch(self.seat(host)),
            None => Node::Host(host),
        }
    }

    /// The links out of the ports of `switch`, port 0 first: down to its hosts, then to switches.
    pub fn ports(&self, switch: SwitchId) -> &[LinkId] {
        let switch = switch.0 as usize;
        &self.ports[self.first[switch] as usize..self.first[switch + 1] as usize]
    }

    /// The hosts on `switch`, ascending.
    pub fn hosts_of(&self, switch: SwitchId) -> impl Iterator<Item = HostId> + '_ {
        let down = self.ports(switch).iter().take_while(|link| !self.is_between_switches(**link));
        down.map(|link| HostId(link.0 / 2))
    }

    /// The links from `switch` to other switches, with the switches, in the order of ports.
    pub fn neighbours(
        &self,
        switch: SwitchId,
    ) -> impl Iterator<Item = (LinkId, SwitchId)> + Clone + '_ {
        let links = self.ports(switch).iter();
        let between = links.filter(|link| self.is_between_switches(**link));
        between.map(|link| (*link, self.ends[link.index() - 2 * self.seats.len()]))
    }

    /// The link over which `switch` forwards a packet of `flow` to `host`.
    ///
    /// Packets of one flow to one host take one path. A good flow differs between pairs of hosts.
    pub fn next_link(&self, switch: SwitchId, host: HostId, flow: u32) -> LinkId {
        let seat = self.seat(host);
        if seat == switch {
            return self.downlink(host);
        }
        match &self.shape {
            Shape::FatTree(tree) => self.between(tree.next(switch, seat, flow)),
            Shape::Dragonfly(dragonfly) => self.between(dragonfly.next(switch, seat, flow)),
            Shape::Graph(graph) => graph.next(self, switch, seat, flow),
        }
    }

    /// The link with this number among those between switches.
    fn between(&self, number: u32) -> LinkId {
        LinkId(2 * self.hosts() + number)
    }

    /// The links from host `from` to host `to` that packets of `flow` take, in order.
    ///
    /// Empty if they are the same.
    pub fn path(&self, from: HostId, to: HostId, flow: u32) -> impl Iterator<Item = LinkId> + '_ {
        let first = (from != to).then(|| self.uplink(from));
        core::iter::successors(first, move |link| match self.end(*link) {
            Node::Switch(switch) => Some(self.next_link(switch, to, flow)),
            Node::Host(_) => None,
        })
    }
}
