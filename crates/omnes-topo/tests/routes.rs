//! Source routes: labels, legal and minimal paths, in-transit hosts, headers, and link loads.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_topo::network::balance::{Load, load};
use omnes_topo::network::dependence::Dependences;
use omnes_topo::network::header::{Arrival, IN_TRANSIT_BYTES, TYPE_BYTES, arrival, encode, strip};
use omnes_topo::network::in_transit::{Ends, Route};
use omnes_topo::network::up_down::{Rule, Toward, UpDown};
use omnes_topo::network::{
    Draw, HostId, IrregularOptions, LinkId, Network, NetworkError, Node, RING_NUMBERS, SwitchId,
};

/// The switch that the paper calls `number`.
fn numbered(number: u32) -> SwitchId {
    SwitchId(RING_NUMBERS.iter().position(|known| *known == number).unwrap() as u32)
}

/// The links from switch to switch, by the paper's numbers.
fn walk(network: &Network, numbers: &[u32]) -> Vec<LinkId> {
    let step = |pair: &[u32]| {
        let mut neighbours = network.neighbours(numbered(pair[0]));
        neighbours.find(|(_, to)| *to == numbered(pair[1])).unwrap().0
    };
    numbers.windows(2).map(step).collect()
}

fn eight_ports(switches: u32, seed: u64) -> Network {
    Network::irregular(IrregularOptions::eight_ports(switches), seed).unwrap()
}

fn hosts(network: &Network) -> impl Iterator<Item = HostId> {
    (0..network.hosts()).map(HostId)
}

#[test]
fn ring_minimal_path_is_illegal_and_the_path_via_the_root_is_legal() {
    // [IT-R1, R2, R4], IT-S01.
    let ring = Network::ring();
    let labels = UpDown::new(&ring, numbered(0));
    let ups = |numbers| {
        let path = walk(&ring, numbers);
        path.iter().map(|link| labels.is_up(&ring, *link)).collect::<Vec<_>>()
    };
    assert_eq!(ups(&[4, 6, 1]), [false, true]);
    assert!(!labels.is_legal(&ring, &walk(&ring, &[4, 6, 1])));
    assert_eq!(ups(&[4, 0, 2, 1]), [true, false, false]);
    assert!(labels.is_legal(&ring, &walk(&ring, &[4, 0, 2, 1])));
    // Root 2 gives the same result.
    let labels = UpDown::new(&ring, numbered(2));
    assert!(!labels.is_legal(&ring, &walk(&ring, &[4, 6, 1])));
    assert!(labels.is_legal(&ring, &walk(&ring, &[4, 0, 2, 1])));
}

#[test]
fn ring_minimal_path_needs_one_in_transit_host_at_switch_six() {
    // [IT-R3, R4], IT-S02.
    let ring = Network::ring();
    let labels = UpDown::new(&ring, numbered(0));
    let host = |number| ring.hosts_of(numbered(number)).next().unwrap();
    let ends = Ends { from: host(4), to: host(1), flow: 0 };
    let route = Route::split(&ring, &labels, ends, &walk(&ring, &[4, 6, 1])).unwrap();
    assert_eq!((route.in_transit(), route.hops()), (1, 2));
    assert_eq!(route.pieces[0].last(), Some(&ring.downlink(host(6))));
    assert_eq!(route.pieces[1].first(), Some(&ring.uplink(host(6))));
    let legal = walk(&ring, &[4, 0, 2, 1]);
    let whole = Route::split(&ring, &labels, ends, &legal).unwrap();
    assert_eq!(whole, Route::direct(&ring, ends, &legal));
}

#[test]
fn ring_legal_path_has_three_links_and_the_minimal_one_two() {
    // IT-S03.
    let ring = Network::ring();
    let labels = UpDown::new(&ring, numbered(0));
    let legal = Toward::new(&ring, Rule::Legal(&labels), numbered(1));
    let minimal = Toward::new(&ring, Rule::Minimal, numbered(1));
    assert_eq!((legal.hops(numbered(4)), minimal.hops(numbered(4))), (3, 2));
    assert_eq!(legal.path(numbered(4), &mut Draw::new(0)), walk(&ring, &[4, 0, 2, 1]));
    assert_eq!(minimal.path(numbered(4), &mut Draw::new(0)), walk(&ring, &[4, 6, 1]));
}

#[test]
fn depth_is_the_number_of_links_to_whichever_root_is_chosen() {
    // [IT-R1]
    let network = eight_ports(16, 3);
    let switches = || (0..network.switches()).map(SwitchId);
    for root in switches() {
        let labels = UpDown::new(&network, root);
        for switch in switches() {
            let minimal = Toward::new(&network, Rule::Minimal, root);
            assert_eq!(labels.depth(switch), minimal.hops(switch));
            let is_up = |(link, _)| labels.is_up(&network, link);
            let has_way_up = network.neighbours(switch).any(is_up);
            assert_eq!(has_way_up, switch != root, "all but the root {root:?}: {switch:?}");
        }
    }
}

#[test]
fn a_turn_at_a_switch_without_hosts_is_refused() {
    // Two levels: 8 switches with hosts, 4 above them, of which the first is the root.
    let tree = Network::fat_tree(32, 8).unwrap();
    let (from, above, to) = (SwitchId(0), SwitchId(9), SwitchId(1));
    let labels = UpDown::new(&tree, SwitchId(8));
    let up = tree.neighbours(from).find(|(_, switch)| *switch == above).unwrap().0;
    let down = tree.neighbours(above).find(|(_, switch)| *switch == to).unwrap().0;
    let ends = Ends { from: HostId(0), to: HostId(4), flow: 0 };
    let refused = Route::split(&tree, &labels, ends, &[up, down]).unwrap_err();
    assert_eq!(refused, NetworkError::NoHostAt { switch: above });
}

/// Dependences of one route per pair of hosts: under up*/down*, minimal without in-transit
/// buffers, and minimal with them.
fn dependences(network: &Network, seed: u64) -> [Dependences; 3] {
    let labels = UpDown::new(network, SwitchId(0));
    let mut draw = Draw::new(seed);
    let mut graphs = [(); 3].map(|()| Dependences::new(network.links()));
    for to in hosts(network) {
        let legal = Toward::new(network, Rule::Legal(&labels), network.seat(to));
        let minimal = Toward::new(network, Rule::Minimal, network.seat(to));
        for from in hosts(network).filter(|from| *from != to) {
            let ends = Ends { from, to, flow: from.0 };
            let path = legal.path(network.seat(from), &mut draw);
            assert!(labels.is_legal(network, &path));
            graphs[0].add(&Route::direct(network, ends, &path).pieces[0]);
            let path = minimal.path(network.seat(from), &mut draw);
            graphs[1].add(&Route::direct(network, ends, &path).pieces[0]);
            let route = Route::split(network, &labels, ends, &path).unwrap();
            assert_eq!(route.hops(), usize::from(minimal.hops(network.seat(from))));
            route.pieces.iter().for_each(|piece| graphs[2].add(piece));
        }
    }
    graphs
}

#[test]
fn legal_paths_and_in_transit_pieces_have_no_cyclic_dependence() {
    // [IT-R2, R3], IT-S04.
    let ring = Network::ring();
    let [legal, minimal, pieces] = dependences(&ring, 1);
    assert!(!legal.has_cycle() && !pieces.has_cycle());
    assert!(minimal.has_cycle(), "without the rule the ring can deadlock");
    let mut circles = 0;
    for (switches, seed) in [(8, 1), (8, 2), (8, 3), (16, 4), (16, 5), (32, 6), (32, 7)] {
        let [legal, minimal, pieces] = dependences(&eight_ports(switches, seed), seed);
        assert!(!legal.has_cycle() && !pieces.has_cycle(), "{switches} switches, seed {seed}");
        circles += u32::from(minimal.has_cycle());
    }
    assert!(circles > 0);
}

/// Mean over the seeds of `measure` for a random network and its two loads.
fn mean(switches: u32, measure: impl Fn(Load, Load) -> f64) -> f64 {
    const NETWORKS: u64 = 20;
    let one = |seed| {
        let network = eight_ports(switches, seed);
        let labels = UpDown::new(&network, SwitchId(0));
        let mut draw = Draw::new(seed);
        let legal = load(&network, &labels, Rule::Legal(&labels), &mut draw);
        measure(legal, load(&network, &labels, Rule::Minimal, &mut draw))
    };
    (0..NETWORKS).map(one).sum::<f64>() / NETWORKS as f64
}

fn assert_near(ours: f64, theirs: f64, tolerance: f64) {
    assert!((ours / theirs - 1.0).abs() <= tolerance, "{ours} against {theirs}");
}

#[test]
fn busiest_link_load_under_up_down_grows_with_network_size() {
    // [IT-R6], IT-D01.
    for (switches, theirs) in [(8, 1.13), (16, 1.67), (32, 2.44), (64, 3.79)] {
        let ratio =
            |legal: Load, minimal: Load| f64::from(legal.busiest) / f64::from(minimal.busiest);
        assert_near(mean(switches, ratio), theirs, 0.20);
    }
}

#[test]
fn mean_hops_and_in_transit_hosts_per_path_match_the_paper() {
    // [IT-R6], IT-D02.
    let per_path = |sum: u32, load: Load| f64::from(sum) / f64::from(load.paths);
    assert_near(mean(64, |legal, _| per_path(legal.hops, legal)), 3.91, 0.10);
    assert_near(mean(64, |_, minimal| per_path(minimal.hops, minimal)), 3.15, 0.10);
    assert_near(mean(64, |_, minimal| per_path(minimal.turns, minimal)), 0.53, 0.10);
    assert_eq!(mean(64, |legal, _| f64::from(legal.turns)), 0.0);
}

/// The remainder of `head` at the interface to which its first piece leads, and that host.
fn carried<'a>(network: &Network, from: HostId, head: &'a [u8]) -> (HostId, &'a [u8]) {
    let (mut at, mut bytes) = (network.end(network.uplink(from)), head);
    while let Node::Switch(switch) = at {
        let (port, rest) = strip(bytes).unwrap();
        assert_eq!(rest.len() + 1, bytes.len());
        bytes = rest;
        at = network.end(network.ports(switch)[usize::from(port)]);
    }
    let Node::Host(host) = at else { unreachable!() };
    (host, bytes)
}

#[test]
fn each_switch_strips_one_byte_and_in_transit_hosts_forward_the_rest() {
    // [IT-R7–R9], IT-P03.
    const KIND: u16 = 0x0008;
    let network = eight_ports(32, 5);
    let labels = UpDown::new(&network, SwitchId(0));
    let mut most = 0;
    for to in hosts(&network) {
        let toward = Toward::new(&network, Rule::Minimal, network.seat(to));
        for from in hosts(&network).filter(|from| *from != to) {
            let path = toward.path(network.seat(from), &mut Draw::new(u64::from(from.0)));
            let ends = Ends { from, to, flow: to.0 };
            let route = Route::split(&network, &labels, ends, &path).unwrap();
            let head = encode(&network, &route, KIND).unwrap();
            let switches = route.hops() + route.pieces.len();
            let expected = switches + IN_TRANSIT_BYTES * route.in_transit() + TYPE_BYTES;
            assert_eq!(head.len(), expected);
            let (mut host, mut bytes) = carried(&network, from, &head);
            for _ in 0..route.in_transit() {
                let Some(Arrival::InTransit(length)) = arrival(bytes) else { panic!("{bytes:?}") };
                assert_eq!(usize::from(length), bytes.len() - IN_TRANSIT_BYTES - TYPE_BYTES);
                (host, bytes) = carried(&network, host, &bytes[IN_TRANSIT_BYTES..]);
            }
            assert_eq!((host, arrival(bytes)), (to, Some(Arrival::Ordinary(KIND))));
            most = most.max(route.in_transit());
        }
    }
    assert!(most >= 2, "some route has more than one in-transit host");
}

#[test]
fn in_transit_packet_is_recognised_by_its_first_four_bytes() {
    // [IT-R9, R11], IT-P01.
    assert_eq!(arrival(&[0x49]), None);
    assert_eq!(arrival(&[0x49, 0x54, 0x00]), None);
    assert_eq!(arrival(&[0x49, 0x54, 0x01, 0x02]), Some(Arrival::InTransit(0x0102)));
    assert_eq!(arrival(&[0x00, 0x08]), Some(Arrival::Ordinary(8)));
    assert_eq!(strip(&[]), None);
}

#[test]
fn ports_that_do_not_fit_into_one_byte_are_rejected() {
    let star: Vec<_> = (1..300).map(|leaf| (SwitchId(0), SwitchId(leaf))).collect();
    let network = Network::of_cables(300, 1, &star).unwrap();
    let toward = Toward::new(&network, Rule::Minimal, SwitchId(299));
    let ends = Ends { from: HostId(1), to: HostId(299), flow: 0 };
    let path = toward.path(SwitchId(1), &mut Draw::new(0));
    let route = Route::direct(&network, ends, &path);
    let error = encode(&network, &route, 8).unwrap_err();
    assert_eq!(error.to_string(), "299 does not fit into a route: the maximum is 255");
}
