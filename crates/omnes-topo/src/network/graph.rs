//! Any connected network, by a table of distances; random ones, and the ring of the paper.
//!
//! What it is: cables as given or drawn, and for each pair of switches their distance in links. A
//! packet goes to any switch that is nearer, chosen by a hash of the flow and the switch. Irregular
//! networks are drawn as regular graphs: ends of cables are paired at random, never two cables
//! between the same switches; the drawing starts again if it gets stuck or the graph is not
//! connected, which is rare with few links per switch and frequent with many.
//! Cost: two bytes per pair of switches, O(switches * links) to build.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::build::{Wiring, seats};
use super::draw::{Draw, hashed};
use super::{LinkId, Network, NetworkError, Shape, SwitchId};

/// Maximum number of switches of a network without a regular shape.
pub const SWITCHES_MAX: u32 = 2048;
/// Maximum number of tries to draw a network.
const TRIES: u32 = 1000;
const UNREACHED: u16 = u16::MAX;

/// Parameters of an irregular network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IrregularOptions {
    /// Switches, more than `links_per_switch`.
    pub switches: u32,
    /// Cables of each switch to other switches.
    pub links_per_switch: u32,
    /// Hosts on each switch.
    pub hosts_per_switch: u32,
}

impl IrregularOptions {
    /// Eight-port switches with four hosts each, as in the studies of in-transit buffers.
    pub const fn eight_ports(switches: u32) -> Self {
        Self { switches, links_per_switch: 4, hosts_per_switch: 4 }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Graph {
    switches: usize,
    distances: Vec<u16>,
}

impl Graph {
    fn distance(&self, from: SwitchId, to: SwitchId) -> u16 {
        self.distances[from.0 as usize * self.switches + to.0 as usize]
    }

    /// The links out of `switch` that lead nearer to `to`, another switch.
    fn nearer<'a>(
        &'a self,
        network: &'a Network,
        switch: SwitchId,
        to: SwitchId,
    ) -> impl Iterator<Item = LinkId> + Clone + 'a {
        let here = self.distance(to, switch);
        let links = network.neighbours(switch);
        links.filter(move |(_, next)| self.distance(to, *next) < here).map(|(link, _)| link)
    }

    /// The link to take at `switch` towards another switch.
    pub fn next(&self, network: &Network, switch: SwitchId, to: SwitchId, flow: u32) -> LinkId {
        let mut nearer = self.nearer(network, switch, to);
        let choices = nearer.clone().count() as u32;
        let choice = hashed(flow, switch.0, choices) as usize;
        nearer.nth(choice).expect("in a connected graph some neighbour is nearer")
    }

    /// True if a multicast from a host on `source` leaves `switch` over `link`: if the switch at
    /// the end of `link` would send a packet to `source` over the same cable.
    pub fn copies(&self, network: &Network, source: SwitchId, link: LinkId, flow: u32) -> bool {
        let (from, to) = network.link(link);
        let (super::Node::Switch(from), super::Node::Switch(to)) = (from, to) else {
            return true;
        };
        self.distance(source, to) > self.distance(source, from)
            && self.next(network, to, source, flow) == link.reverse()
    }
}

/// Distances from `from` to all switches, by breadth-first search over `links` of each switch.
fn distances(from: usize, links: &[Vec<u32>]) -> Vec<u16> {
    let mut distances = vec![UNREACHED; links.len()];
    distances[from] = 0;
    let mut queue = VecDeque::from([from]);
    while let Some(switch) = queue.pop_front() {
        for next in links[switch].iter().map(|next| *next as usize) {
            if distances[next] == UNREACHED {
                distances[next] = distances[switch] + 1;
                queue.push_back(next);
            }
        }
    }
    distances
}

/// Random pairs of switches, each switch as often as the options say; `None` if the drawing gets
/// stuck.
fn paired(options: IrregularOptions, draw: &mut Draw) -> Option<Vec<(SwitchId, SwitchId)>> {
    let ends =
        (0..options.switches).flat_map(|switch| (0..options.links_per_switch).map(move |_| switch));
    let mut free: Vec<u32> = ends.collect();
    let mut joined = vec![Vec::new(); options.switches as usize];
    let mut cables = Vec::with_capacity(free.len() / 2);
    let mut misses = 0;
    while !free.is_empty() {
        let first = draw.below(free.len() as u32) as usize;
        let second = draw.below(free.len() as u32) as usize;
        let (from, to) = (free[first], free[second]);
        if from == to || joined[from as usize].contains(&to) {
            misses += 1;
            if misses > TRIES {
                return None;
            }
            continue;
        }
        joined[from as usize].push(to);
        joined[to as usize].push(from);
        cables.push((SwitchId(from), SwitchId(to)));
        free.swap_remove(first.max(second));
        free.swap_remove(first.min(second));
    }
    Some(cables)
}

fn check_size(switches: u32, hosts_per_switch: u32) -> Result<(), NetworkError> {
    if switches == 0 || hosts_per_switch == 0 {
        return Err(NetworkError::Empty);
    }
    if switches > SWITCHES_MAX {
        return Err(NetworkError::TooManySwitches { switches, switches_max: SWITCHES_MAX });
    }
    Ok(())
}

impl Network {
    /// A network of `switches` switches with `hosts_per_switch` hosts each and these cables.
    ///
    /// Errors with [`NetworkError::Empty`] without switches or hosts,
    /// [`NetworkError::TooManySwitches`], [`NetworkError::BadCable`] or
    /// [`NetworkError::NotConnected`]. Cost: O(switches * cables).
    pub fn of_cables(
        switches: u32,
        hosts_per_switch: u32,
        cables: &[(SwitchId, SwitchId)],
    ) -> Result<Self, NetworkError> {
        check_size(switches, hosts_per_switch)?;
        let mut links = vec![Vec::new(); switches as usize];
        for (from, to) in cables.iter().copied() {
            if from == to || from.0 >= switches || to.0 >= switches {
                return Err(NetworkError::BadCable { from, to });
            }
            links[from.0 as usize].push(to.0);
            links[to.0 as usize].push(from.0);
        }
        let from_first = distances(0, &links);
        if let Some(lost) = from_first.iter().position(|distance| *distance == UNREACHED) {
            return Err(NetworkError::NotConnected { switch: SwitchId(lost as u32) });
        }
        let distances = (0..links.len()).flat_map(|from| distances(from, &links)).collect();
        let graph = Graph { switches: links.len(), distances };
        let seats = seats(switches.saturating_mul(hosts_per_switch), hosts_per_switch);
        let wiring = Wiring { seats, switches, cables: cables.to_vec() };
        Ok(wiring.into_network(Shape::Graph(graph)))
    }

    /// A random connected network; the same seed gives the same network.
    ///
    /// Errors with [`NetworkError::LinksImpossible`] if the number of cable ends is odd or a switch
    /// needs more cables than other switches exist, [`NetworkError::NotDrawn`] if a thousand tries
    /// have found no network, else as [`Network::of_cables`].
    pub fn irregular(options: IrregularOptions, seed: u64) -> Result<Self, NetworkError> {
        let IrregularOptions { switches, links_per_switch, hosts_per_switch } = options;
        check_size(switches, hosts_per_switch)?;
        let is_odd = links_per_switch % 2 == 1 && switches % 2 == 1;
        if links_per_switch >= switches || is_odd {
            return Err(NetworkError::LinksImpossible { switches, links_per_switch });
        }
        let mut draw = Draw::new(seed);
        for _ in 0..TRIES {
            let Some(cables) = paired(options, &mut draw) else { continue };
            match Self::of_cables(switches, hosts_per_switch, &cables) {
                Err(NetworkError::NotConnected { .. }) => {}
                done => return done,
            }
        }
        Err(NetworkError::NotDrawn { switches, links_per_switch })
    }

    /// The five-switch ring of the paper's example, one host per switch [IT-R4].
    ///
    /// The paper numbers the switches 0, 1, 2, 4 and 6; here they are 0 to 4 in the same order,
    /// which is all that the labels of links depend on: see [`RING_NUMBERS`].
    pub fn ring() -> Self {
        let cables = [(0, 2), (2, 1), (1, 4), (4, 3), (3, 0)];
        let cables = cables.map(|(from, to)| (SwitchId(from), SwitchId(to)));
        Self::of_cables(5, 1, &cables).expect("a ring is connected")
    }
}

/// The paper's numbers of the switches of [`Network::ring`].
pub const RING_NUMBERS: [u32; 5] = [0, 1, 2, 4, 6];
