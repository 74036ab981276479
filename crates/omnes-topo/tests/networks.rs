//! Paths and multicast trees of whole networks, checked for every host.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_topo::network::{
    Cast, DragonflyOptions, FatTreeOptions, HostId, IrregularOptions, LinkId, Network,
    NetworkError, Node, SWITCHES_MAX, SwitchId,
};
use std::collections::{BTreeMap, BTreeSet};

fn some_networks() -> Vec<(&'static str, Network, usize)> {
    let tapered = FatTreeOptions { hosts: 90, radix: 8, oversubscription: 3 };
    let dragonfly = |hosts, p, a, h| {
        Network::dragonfly_of(DragonflyOptions {
            hosts,
            hosts_per_router: p,
            routers: a,
            globals_per_router: h,
        })
        .unwrap()
    };
    let irregular = IrregularOptions::eight_ports(16);
    vec![
        ("one host", Network::single_switch(1).unwrap(), 0),
        ("one switch", Network::single_switch(9).unwrap(), 2),
        ("two levels", Network::fat_tree(32, 8).unwrap(), 4),
        ("two levels, part", Network::fat_tree(21, 8).unwrap(), 4),
        ("three levels", Network::fat_tree(128, 8).unwrap(), 6),
        ("three levels, part", Network::fat_tree(77, 8).unwrap(), 6),
        ("three levels, odd radix", Network::fat_tree(100, 9).unwrap(), 6),
        ("tapered", Network::fat_tree_of(tapered).unwrap(), 6),
        ("dragonfly", Network::dragonfly(72).unwrap(), 5),
        ("dragonfly, few groups", dragonfly(40, 2, 4, 2), 5),
        ("dragonfly, one group", dragonfly(7, 2, 4, 2), 3),
        ("dragonfly, one router per group", dragonfly(6, 2, 1, 2), 3),
        ("irregular", Network::irregular(irregular, 3).unwrap(), 5),
        ("ring", Network::ring(), 4),
    ]
}

fn hosts(network: &Network) -> impl Iterator<Item = HostId> {
    (0..network.hosts()).map(HostId)
}

#[test]
fn links_and_ports_are_consistent() {
    for (name, network, _) in some_networks() {
        let mut seen = BTreeSet::new();
        for switch in (0..network.switches()).map(SwitchId) {
            assert!(network.ports(switch).is_sorted(), "{name}");
            for link in network.ports(switch) {
                assert_eq!(network.link(*link).0, Node::Switch(switch), "{name}");
                assert!(seen.insert(*link), "{name}: {link:?} twice");
            }
            for host in network.hosts_of(switch) {
                assert_eq!(network.seat(host), switch);
            }
        }
        for host in hosts(&network) {
            assert_eq!(network.link(network.uplink(host)).0, Node::Host(host));
            assert_eq!(network.link(network.downlink(host)).1, Node::Host(host));
            assert!(seen.insert(network.uplink(host)));
        }
        let all: BTreeSet<LinkId> = (0..network.links()).map(LinkId).collect();
        assert_eq!(seen, all, "{name}");
        for link in all {
            let (from, to) = network.link(link);
            assert_eq!(network.link(link.reverse()), (to, from), "{name}");
        }
    }
}

#[test]
fn every_path_is_connected_and_as_short_as_its_topology_allows() {
    for (name, network, longest) in some_networks() {
        let mut most = 0;
        for from in hosts(&network) {
            for to in hosts(&network) {
                let path: Vec<LinkId> = network.path(from, to, from.0 * 131 + to.0).collect();
                most = most.max(path.len());
                if from == to {
                    assert!(path.is_empty());
                    continue;
                }
                let joined =
                    path.windows(2).all(|pair| network.link(pair[0]).1 == network.link(pair[1]).0);
                assert!(joined, "{name} {from:?} {to:?} {path:?}");
                assert_eq!(network.link(path[0]).0, Node::Host(from));
                assert_eq!(network.link(path[path.len() - 1]).1, Node::Host(to));
            }
        }
        assert_eq!(most, longest, "{name}");
    }
}

#[test]
fn multicast_reaches_each_other_host_once_and_uses_no_link_twice() {
    for (name, network, _) in some_networks() {
        for from in hosts(&network) {
            for flow in 0..3 {
                let links = network.multicast(Cast { from, flow }, |_| true);
                let unique: BTreeSet<LinkId> = links.iter().copied().collect();
                assert_eq!(unique.len(), links.len(), "{name} {from:?}");
                let reached: Vec<Node> = links.iter().map(|link| network.link(*link).1).collect();
                for host in hosts(&network) {
                    let copies = reached.iter().filter(|node| **node == Node::Host(host)).count();
                    assert_eq!(copies, usize::from(host != from), "{name} {from:?} {host:?}");
                }
                for switch in (0..network.switches()).map(SwitchId) {
                    let copies = reached.iter().filter(|node| **node == Node::Switch(switch));
                    assert!(copies.count() <= 1, "{name} {from:?} {switch:?}");
                }
            }
        }
    }
}

#[test]
fn multicast_to_a_subset_uses_only_links_that_lead_to_members() {
    let network = Network::fat_tree(128, 8).unwrap();
    let cast = Cast { from: HostId(5), flow: 1 };
    let path: Vec<LinkId> = network.path(HostId(5), HostId(127), 1).collect();
    assert_eq!(network.multicast(cast, |host| host == HostId(127)), path);
    assert_eq!(network.multicast(cast, |_| false), []);
    let all = network.multicast(cast, |_| true);
    let some = network.multicast(cast, |host| host.0 % 4 == 0);
    assert!(some.len() < all.len() && some.iter().all(|link| all.contains(link)));
}

#[test]
fn flows_spread_over_all_upward_paths() {
    let network = Network::fat_tree(128, 8).unwrap();
    let ways = |from, to| {
        let paths = (0..200).map(|flow| network.path(HostId(from), HostId(to), flow).collect());
        paths.collect::<BTreeSet<Vec<LinkId>>>().len()
    };
    assert_eq!((ways(0, 1), ways(0, 5), ways(0, 127)), (1, 4, 16));
    // A full bisection: no link between switches is needed by more flows than another could carry.
    let ups = |switch| network.uplinks(SwitchId(switch)).count();
    assert_eq!((ups(0), ups(32), ups(64)), (4, 4, 0));
}

/// A dragonfly of this many groups, with four routers each, which have two links to other groups.
fn groups_of_four(groups: u32) -> Network {
    let options = DragonflyOptions {
        hosts: 8 * groups,
        hosts_per_router: 2,
        routers: 4,
        globals_per_router: 2,
    };
    Network::dragonfly_of(options).unwrap()
}

/// The group of a switch in such a dragonfly; `None` for a host.
fn group_of_four(node: Node) -> Option<u32> {
    match node {
        Node::Switch(switch) => Some(switch.0 / 4),
        Node::Host(_) => None,
    }
}

/// Links from group to group, each with the two groups.
fn globals(network: &Network) -> impl Iterator<Item = (LinkId, (u32, u32))> {
    let between = |link| {
        let (from, to) = network.link(link);
        Some((link, (group_of_four(from)?, group_of_four(to)?)))
    };
    let links = (0..network.links()).map(LinkId).filter_map(between);
    links.filter(|(_, (from, to))| from != to)
}

#[test]
fn dragonfly_groups_spread_their_global_links_evenly() {
    for groups in 2..=9 {
        let network = groups_of_four(groups);
        let (mut pairs, mut routers) = (BTreeMap::new(), BTreeMap::new());
        for (link, pair) in globals(&network) {
            *pairs.entry(pair).or_insert(0) += 1;
            *routers.entry(network.link(link).0).or_insert(0) += 1;
        }
        assert_eq!(pairs.len() as u32, groups * (groups - 1));
        assert!(pairs.values().all(|links| *links == 8 / (groups - 1)), "{groups}: {pairs:?}");
        assert!(routers.values().all(|links| *links <= 2), "{groups} groups: {routers:?}");
    }
}

#[test]
fn flows_spread_over_all_links_between_two_groups() {
    for groups in 2..=5 {
        let network = groups_of_four(groups);
        let wanted: BTreeSet<LinkId> =
            globals(&network).filter(|(_, pair)| *pair == (0, 1)).map(|(link, _)| link).collect();
        let (from, to) = (HostId(1), HostId(15));
        let paths = (0..100).flat_map(|flow| network.path(from, to, flow));
        let casts = (0..100).flat_map(|flow| network.multicast(Cast { from, flow }, |_| true));
        let used: BTreeSet<LinkId> = paths.filter(|link| wanted.contains(link)).collect();
        assert_eq!(used, wanted, "{groups} groups");
        let used: BTreeSet<LinkId> = casts.filter(|link| wanted.contains(link)).collect();
        assert_eq!(used, wanted, "{groups} groups, by multicast");
    }
}

#[test]
fn flows_spread_over_both_ways_around_a_square() {
    let sides = [(0, 1), (1, 2), (2, 3), (3, 0)].map(|(a, b)| (SwitchId(a), SwitchId(b)));
    let square = Network::of_cables(4, 1, &sides).unwrap();
    let over = |flow| square.path(HostId(0), HostId(2), flow).nth(1).map(|link| square.end(link));
    let ways: BTreeSet<Option<Node>> = (0..50).map(over).collect();
    let both = [1, 3].map(|switch| Some(Node::Switch(SwitchId(switch))));
    assert_eq!(ways, BTreeSet::from(both));
    // All bits of a flow matter.
    let high: BTreeSet<Option<Node>> = (0..50).map(|flow| over(flow << 24)).collect();
    assert_eq!(high, ways);
    assert_eq!(square.uplinks(SwitchId(0)).count(), 0, "there is no up");
}

#[test]
fn equal_seeds_draw_equal_networks_and_different_seeds_different_ones() {
    let ends = |seed| {
        let network = Network::irregular(IrregularOptions::eight_ports(32), seed).unwrap();
        (0..network.links()).map(|link| network.link(LinkId(link))).collect::<Vec<_>>()
    };
    assert_eq!(ends(1), ends(1));
    assert_ne!(ends(1), ends(2));
    let network = Network::irregular(IrregularOptions::eight_ports(32), 1).unwrap();
    for switch in (0..32).map(SwitchId) {
        let others: BTreeSet<SwitchId> =
            network.neighbours(switch).map(|(_, switch)| switch).collect();
        assert_eq!((others.len(), network.hosts_of(switch).count()), (4, 4));
    }
}

#[test]
fn networks_of_65536_hosts_fit_in_memory_and_have_short_paths() {
    let tree = Network::fat_tree(65_536, 64).unwrap();
    assert_eq!((tree.switches(), tree.links()), (5120, 6 * 65_536));
    let dragonfly = Network::dragonfly(65_536).unwrap();
    // With p hosts per router there is room for 2 p^2 (2 p^2 + 1).
    for (hosts, p) in [(6, 1), (7, 2), (72, 2), (73, 3), (65_536, 12)] {
        assert_eq!(DragonflyOptions::balanced(hosts).hosts_per_router, p);
    }
    for (network, longest) in [(&tree, 6), (&dragonfly, 5)] {
        // Entries of four bytes: seats, first ports, ports, ends.
        let (hosts, links) = (network.hosts(), network.links());
        let entries = hosts + network.switches() + 1 + (links - hosts) + (links - 2 * hosts);
        assert!(4 * entries < 64 * hosts);
        for number in 0..2000_u32 {
            let from = HostId(number * 7919 % 65_536);
            let to = HostId(number * 104_729 % 65_536);
            assert!(network.path(from, to, number).count() <= longest);
        }
        let cast = Cast { from: HostId(4711), flow: 0 };
        let down = network.multicast(cast, |_| true);
        let reached = down.iter().filter(|link| matches!(network.end(**link), Node::Host(_)));
        assert_eq!(reached.count(), 65_535);
    }
}

#[test]
fn impossible_networks_are_rejected_with_the_limit() {
    assert_eq!(Network::single_switch(0).unwrap_err(), NetworkError::Empty);
    let error = Network::fat_tree(129, 8).unwrap_err();
    assert_eq!(error, NetworkError::TooManyHosts { hosts: 129, hosts_max: 128 });
    let radix = FatTreeOptions { hosts: 9, radix: 3, oversubscription: 3 };
    let error = Network::fat_tree_of(radix).unwrap_err();
    assert_eq!(error, NetworkError::RadixTooSmall { radix: 3, radix_min: 4 });
    let options =
        DragonflyOptions { hosts: 73, hosts_per_router: 2, routers: 4, globals_per_router: 2 };
    let error = Network::dragonfly_of(options).unwrap_err();
    assert_eq!(error, NetworkError::TooManyHosts { hosts: 73, hosts_max: 72 });
    let draw = |switches, links_per_switch| {
        let options = IrregularOptions { switches, links_per_switch, hosts_per_switch: 1 };
        Network::irregular(options, 1).unwrap_err()
    };
    assert!(matches!(draw(65_537, 65_536), NetworkError::TooManySwitches { .. }));
    assert!(matches!(draw(5, 3), NetworkError::LinksImpossible { .. }));
    assert!(matches!(draw(4, 4), NetworkError::LinksImpossible { .. }));
    for (from, to) in [(0, 0), (0, 2), (2, 0), (u32::MAX, 1)] {
        let (from, to) = (SwitchId(from), SwitchId(to));
        let refused = Network::of_cables(2, 1, &[(SwitchId(0), SwitchId(1)), (from, to)]);
        assert_eq!(refused.unwrap_err(), NetworkError::BadCable { from, to });
    }
    let error = Network::of_cables(2, 1, &[]).unwrap_err();
    assert_eq!(error.to_string(), "switch 1 cannot be reached from switch 0");
    let chain: Vec<_> = (1..SWITCHES_MAX).map(|at| (SwitchId(at - 1), SwitchId(at))).collect();
    let (switches, switches_max) = (SWITCHES_MAX + 1, SWITCHES_MAX);
    let refused = Network::of_cables(switches, 1, &chain).unwrap_err();
    assert_eq!(refused, NetworkError::TooManySwitches { switches, switches_max });
    assert_eq!(Network::of_cables(switches_max, 1, &chain).unwrap().switches(), switches_max);
    let none = [[0, 2, 4, 2], [8, 0, 4, 2], [8, 2, 0, 2], [8, 2, 4, 0]];
    for [hosts, hosts_per_router, routers, globals_per_router] in none {
        let options = DragonflyOptions { hosts, hosts_per_router, routers, globals_per_router };
        assert_eq!(Network::dragonfly_of(options).unwrap_err(), NetworkError::Empty);
    }
    let cable = [(SwitchId(0), SwitchId(1))];
    assert_eq!(Network::of_cables(2, 0, &cable).unwrap_err(), NetworkError::Empty);
    assert_eq!(Network::of_cables(0, 1, &[]).unwrap_err(), NetworkError::Empty);
    let without = FatTreeOptions { hosts: 32, radix: 8, oversubscription: 0 };
    let (without, full) = (Network::fat_tree_of(without), Network::fat_tree(32, 8));
    assert_eq!(without.unwrap().links(), full.unwrap().links());
}
