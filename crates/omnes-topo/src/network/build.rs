//! From cables to flat tables: numbers of links, and the ports of every switch.

use alloc::vec;
use alloc::vec::Vec;

use super::{LinkId, Network, Shape, SwitchId};

/// Hosts and cables, in the order of their numbers.
pub(super) struct Wiring {
    /// The switch of each host, ascending.
    pub seats: Vec<SwitchId>,
    /// Total number of switches.
    pub switches: u32,
    /// Both ends of each cable between switches; the link from the first to the second is even.
    pub cables: Vec<(SwitchId, SwitchId)>,
}

/// Switches of hosts that fill one switch after the other.
pub(super) fn seats(hosts: u32, hosts_per_switch: u32) -> Vec<SwitchId> {
    (0..hosts).map(|host| SwitchId(host / hosts_per_switch)).collect()
}

impl Wiring {
    /// Returns the network, which forwards as `shape` says. Cost: O(hosts + cables).
    pub fn into_network(self, shape: Shape) -> Network {
        let between = 2 * self.seats.len() as u32;
        let begins = || self.cables.iter().flat_map(|(first, second)| [*first, *second]);
        let mut first = vec![0_u32; self.switches as usize + 1];
        for switch in self.seats.iter().copied().chain(begins()) {
            first[switch.0 as usize + 1] += 1;
        }
        for switch in 0..self.switches as usize {
            first[switch + 1] += first[switch];
        }
        let mut next = first.clone();
        let mut ports = vec![LinkId(0); *first.last().unwrap_or(&0) as usize];
        let mut plug = |switch: SwitchId, link: u32| {
            let port = &mut next[switch.0 as usize];
            ports[*port as usize] = LinkId(link);
            *port += 1;
        };
        for (host, seat) in (0..).zip(&self.seats) {
            plug(*seat, 2 * host + 1);
        }
        for (number, switch) in (0..).zip(begins()) {
            plug(switch, between + number);
        }
        let ends = self.cables.iter().flat_map(|(first, second)| [*second, *first]).collect();
        Network { shape, seats: self.seats, first, ports, ends }
    }
}
