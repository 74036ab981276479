//! Dragonflies: groups of routers, fully connected inside and between groups.
//!
//! What it is: [Kim, Dally, Scott, Abts 2008] with `routers` per group, `hosts_per_router` and at
//! most `globals_per_router` links to other groups each. Each pair of groups has the same number of
//! links, as many as fit. Of group `i`, the `copy`-th link to group `j` is global port
//! `copy * (groups - 1) + (place of j among the others)`, on the router of that number modulo
//! `routers`, which spreads the links of small systems over all routers.
//!
//! ```text
//!   cables   local:  group * routers (routers - 1) / 2 + place of the pair of routers
//!            global: behind those, (place of the pair of groups) * copies + copy
//! ```
//!
//! A packet crosses at most one local, one global and one local link. Which of several copies of
//! the global link it takes is a hash of the flow, even where another copy would save a local link:
//! so all copies carry the same load. Cost: forwarding is arithmetic.
//! Not done: routes over a third group, which spread adverse traffic.

use alloc::vec::Vec;

use super::build::{Wiring, seats};
use super::draw::hashed;
use super::{Network, NetworkError, Shape, SwitchId};

/// Parameters of a dragonfly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DragonflyOptions {
    /// Hosts, at least 1.
    pub hosts: u32,
    /// Hosts of each router, `p`.
    pub hosts_per_router: u32,
    /// Routers of each group, `a`.
    pub routers: u32,
    /// Links of each router to other groups, `h`.
    pub globals_per_router: u32,
}

impl DragonflyOptions {
    /// The smallest balanced dragonfly, `a = 2 p = 2 h`, with room for `hosts`.
    pub fn balanced(hosts: u32) -> Self {
        let of = |p| Self { hosts, hosts_per_router: p, routers: 2 * p, globals_per_router: p };
        // 300 hosts per router give room for more than 2^32 hosts.
        let fits = |options: &Self| options.hosts_max() >= u64::from(hosts);
        (1..300).map(of).find(fits).unwrap_or(of(300))
    }

    fn hosts_per_group(&self) -> u64 {
        u64::from(self.hosts_per_router) * u64::from(self.routers)
    }

    fn globals(&self) -> u64 {
        u64::from(self.globals_per_router) * u64::from(self.routers)
    }

    /// Maximum number of hosts.
    pub fn hosts_max(&self) -> u64 {
        self.hosts_per_group().saturating_mul(self.globals() + 1)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Dragonfly {
    groups: u32,
    routers: u32,
    /// Number of links between each pair of groups.
    copies: u32,
}

/// Position of the pair of `low < high` among all pairs of `0..count`, in ascending order.
fn pair(low: u32, high: u32, count: u32) -> u32 {
    low * (2 * count - low - 1) / 2 + high - low - 1
}

/// The link from `from` to `to`, if their pair has this cable.
fn directed(cable: u32, from: u32, to: u32) -> u32 {
    2 * cable + u32::from(from > to)
}

impl Dragonfly {
    fn local_cables(&self) -> u32 {
        self.groups * self.cables_per_group()
    }

    fn cables_per_group(&self) -> u32 {
        self.routers * (self.routers - 1) / 2
    }

    /// The router of group `from` that holds a link to group `to`.
    fn holder(&self, from: u32, to: u32, copy: u32) -> u32 {
        let place = to - u32::from(to > from);
        (copy * (self.groups - 1) + place) % self.routers
    }

    /// The link, of those from group `from` to group `to`, that the flow takes.
    fn copy(&self, from: u32, to: u32, flow: u32) -> u32 {
        hashed(flow, from * self.groups + to, self.copies)
    }

    fn local(&self, group: u32, from: u32, to: u32) -> u32 {
        let place = pair(from.min(to), from.max(to), self.routers);
        directed(group * self.cables_per_group() + place, from, to)
    }

    fn global(&self, from: u32, to: u32, copy: u32) -> u32 {
        let place = pair(from.min(to), from.max(to), self.groups);
        directed(self.local_cables() + place * self.copies + copy, from, to)
    }

    fn place(&self, switch: SwitchId) -> (u32, u32) {
        (switch.0 / self.routers, switch.0 % self.routers)
    }

    fn cables(&self) -> Vec<(SwitchId, SwitchId)> {
        let id = |group, router| SwitchId(group * self.routers + router);
        let pairs = |count: u32| (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)));
        let mut cables = Vec::new();
        for group in 0..self.groups {
            cables.extend(pairs(self.routers).map(|(a, b)| (id(group, a), id(group, b))));
        }
        for (from, to) in pairs(self.groups) {
            cables.extend((0..self.copies).map(|copy| {
                (id(from, self.holder(from, to, copy)), id(to, self.holder(to, from, copy)))
            }));
        }
        cables
    }

    /// The link between switches to take at `switch` towards the router `seat`, which is another.
    pub fn next(&self, switch: SwitchId, seat: SwitchId, flow: u32) -> u32 {
        let ((group, router), (to, last)) = (self.place(switch), self.place(seat));
        if group == to {
            return self.local(group, router, last);
        }
        let copy = self.copy(group, to, flow);
        let holder = self.holder(group, to, copy);
        if holder == router {
            self.global(group, to, copy)
        } else {
            self.local(group, router, holder)
        }
    }

    /// True if a multicast of `flow` from a host on `source`, which arrived at `switch` over the
    /// link `came_by`, leaves it over `link` to the switch `to`; `None` is a host's link.
    ///
    /// The source's router copies to its group; each router of that group copies to the groups to
    /// which it holds the chosen link; the router that receives the packet there copies to its
    /// group.
    pub fn copies(&self, at: At, came_by: Option<u32>, link: u32, flow: u32) -> bool {
        let (group, to) = (self.place(at.switch).0, self.place(at.to).0);
        let is_local = |link: u32| link < 2 * self.local_cables();
        if is_local(link) {
            return !came_by.is_some_and(is_local);
        }
        let chosen = self.copy(group, to, flow);
        group == self.place(at.source).0 && link == self.global(group, to, chosen)
    }
}

/// The source of a multicast, the switch where it is, and the switch where it might go.
pub(super) struct At {
    pub source: SwitchId,
    pub switch: SwitchId,
    pub to: SwitchId,
}

impl Network {
    /// The smallest balanced dragonfly with room for `hosts`, of as many groups as they fill.
    ///
    /// Errors as [`Network::dragonfly_of`].
    pub fn dragonfly(hosts: u32) -> Result<Self, NetworkError> {
        Self::dragonfly_of(DragonflyOptions::balanced(hosts))
    }

    /// A dragonfly of as many groups as the hosts fill.
    ///
    /// Errors with [`NetworkError::Empty`] if one of the options is 0,
    /// [`NetworkError::TooManyHosts`] if two groups would have no link. Cost: O(hosts + links).
    pub fn dragonfly_of(options: DragonflyOptions) -> Result<Self, NetworkError> {
        let DragonflyOptions { hosts, hosts_per_router, routers, globals_per_router } = options;
        if [hosts, hosts_per_router, routers, globals_per_router].contains(&0) {
            return Err(NetworkError::Empty);
        }
        if u64::from(hosts) > options.hosts_max() {
            let hosts_max = u32::try_from(options.hosts_max()).unwrap_or(u32::MAX);
            return Err(NetworkError::TooManyHosts { hosts, hosts_max });
        }
        let groups = u64::from(hosts).div_ceil(options.hosts_per_group()) as u32;
        let copies = options.globals().checked_div(u64::from(groups) - 1).unwrap_or(0) as u32;
        let dragonfly = Dragonfly { groups, routers, copies };
        let wiring = Wiring {
            seats: seats(hosts, hosts_per_router),
            switches: groups * routers,
            cables: dragonfly.cables(),
        };
        Ok(wiring.into_network(Shape::Dragonfly(dragonfly)))
    }
}
