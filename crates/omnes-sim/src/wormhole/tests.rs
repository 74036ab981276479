//! Worms, back-pressure, interfaces, and the shapes of the paper's results.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_topo::network::in_transit::Route;
use omnes_topo::network::{HostId, IrregularOptions, LinkId, Network, RING_NUMBERS};

use super::fabric::Fabric;
use super::latency::{Firmware, Row, Sample, check_costs, transit_costs};
use super::saturation::compare;
use super::*;
use crate::engine::{Span, Time};

fn way(network: &Network, from: u32, to: u32) -> Vec<LinkId> {
    network.path(HostId(from), HostId(to), 0).collect()
}

/// Interfaces without costs.
const FREE: Interface =
    Interface { claim: Span::ZERO, dma_setup: Span::ZERO, ..Interface::ESTIMATED };

fn delivered(fabric: &Fabric<'_>) -> Vec<(u32, u64)> {
    let marks = fabric.marks.iter().flatten().filter(|mark| mark.what == What::Delivered);
    marks.map(|mark| (mark.host.0, mark.at.as_ps())).collect()
}

#[test]
fn lone_worm_takes_the_time_of_its_flits_cables_and_switches() {
    let row = Row::new().unwrap();
    let routes = Routes::given(&[row.direct(4)]);
    let mut fabric = Fabric::new(row.network(), &routes, Wires::MYRINET, FREE);
    fabric.marks = Some(Vec::new());
    let packet = fabric.packet(0, 506);
    fabric.post(0, packet);
    fabric.run_empty();
    // Four route bytes and two of type make 512: 64 flits of 50 ns; five cables, four switches.
    let expected_ns = 64 * 50 + 5 * 49 + 4 * 150;
    assert_eq!(delivered(&fabric), [(3, expected_ns * 1_000)]);
    assert_eq!(fabric.alive(), 0);
}

#[test]
fn worms_to_one_host_are_serialized_at_its_link_rate() {
    let network = Network::single_switch(3).unwrap();
    let routes = Routes::given(&[0, 1].map(|from| Route { pieces: vec![way(&network, from, 2)] }));
    let mut fabric = Fabric::new(&network, &routes, Wires::MYRINET, FREE);
    fabric.marks = Some(Vec::new());
    for (host, route) in [(0, 0), (1, 1)] {
        let packet = fabric.packet(route, 800 - 3);
        fabric.post(host, packet);
    }
    fabric.run_empty();
    let first = (100 * 50 + 2 * 49 + 150) * 1_000;
    assert_eq!(delivered(&fabric), [(2, first), (2, first + 100 * 50 * 1_000)]);
}

#[test]
fn blocked_worm_holds_its_links_and_delays_others_until_delivery() {
    // Host 0 sends to 4, which 3 keeps busy; a packet from 1 to 2 must wait behind that of 0,
    // although no other packet needs its path.
    let row = Row::new().unwrap();
    let network = row.network();
    let ends = [(3, 4), (0, 4), (1, 2)];
    let routes = ends.map(|(from, to)| Route { pieces: vec![way(network, from, to)] });
    let routes = Routes::given(&routes);
    let time_of = |blocks: bool| {
        let mut fabric = Fabric::new(network, &routes, Wires::MYRINET, FREE);
        fabric.marks = Some(Vec::new());
        let long = fabric.packet(0, 20_000);
        let through = fabric.packet(1, 2_000);
        if blocks {
            fabric.post(3, long);
        }
        fabric.post(0, through);
        while let Some(event) = fabric.step(Time::from_ps(2_000_000)) {
            fabric.handle(event);
        }
        let short = fabric.packet(2, 100);
        fabric.post(1, short);
        fabric.run_empty();
        assert_eq!(fabric.alive(), usize::from(!blocks), "the packet that was never posted");
        delivered(&fabric).iter().find(|(host, _)| *host == 2).unwrap().1
    };
    assert!(time_of(false) < 20_000_000);
    assert!(time_of(true) > 20_000 * 6_250);
}

#[test]
fn idle_in_transit_host_forwards_before_the_tail_has_arrived() {
    // [IT-R11, R12], IT-S05.
    let lead = studies::cut_through_ns().unwrap();
    // Everything except the bytes that arrive until the packet is recognised and the DMA is set up.
    assert!(lead > 4096.0 * 6.25 - 2_000.0 && lead < 4096.0 * 6.25, "{lead}");
}

#[test]
fn busy_in_transit_host_forwards_before_sending_its_own_packets() {
    // [IT-R13, R14].
    let row = Row::new().unwrap();
    let routes = Routes::given(&[row.in_transit(), row.onward()]);
    let mut fabric = Fabric::new(row.network(), &routes, Wires::MYRINET, FREE);
    fabric.marks = Some(Vec::new());
    let own = [0; 3].map(|_| fabric.packet(1, 4_000));
    own.iter().for_each(|packet| fabric.post(Row::STOP, *packet));
    let through = fabric.packet(0, 100);
    fabric.post(0, through);
    fabric.run_empty();
    assert_eq!((fabric.counters.forwarded, fabric.counters.waited), (1, 1));
    let times = delivered(&fabric);
    // Second of four: after the one that kept the sender busy.
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert_eq!(times.len(), 4);
    assert!(gaps[0] < 1_000_000 && gaps[1] > 20_000_000 && gaps[2] > 20_000_000, "{gaps:?}");
}

#[test]
fn two_buffers_overflow_in_a_burst_and_a_pool_does_not() {
    // [IT-R15], IT-P02.
    assert_eq!(BUFFERS, 2);
    let found = studies::overflows().unwrap();
    assert!(found.with_two > 0 && found.with_two < found.packets, "{found:?}");
    assert_eq!(found.with_pool, 0);
}

#[test]
fn early_event_fires_after_four_bytes_and_each_switch_strips_one_byte() {
    // [IT-R7, R11], IT-P01, IT-P03.
    assert_eq!(studies::early_bytes().unwrap(), 4);
    assert_eq!(studies::bytes_per_switch().unwrap(), [1; 5]);
}

#[test]
fn the_mapper_gives_every_host_a_route_to_every_other() {
    // [IT-R5]: the header grows with the switches on the way, and with each stop in transit.
    let network = Network::irregular(IrregularOptions::eight_ports(16), 1).unwrap();
    let routes = Routes::drawn(&network, Scheme::InTransit, 1).unwrap();
    for from in 0..network.hosts() {
        for to in (0..network.hosts()).filter(|to| *to != from) {
            let pieces = &routes.pieces[routes.number(from, to) as usize];
            let (first, last) = (&pieces[0], &pieces[pieces.len() - 1]);
            assert_eq!(first.links[0], network.uplink(HostId(from)).0);
            assert_eq!(last.links.last(), Some(&network.downlink(HostId(to)).0));
            let switches: usize = pieces.iter().map(|piece| piece.links.len() - 1).sum();
            let stops = pieces.len() - 1;
            assert_eq!(first.head_bytes as usize, switches + 4 * stops + 2);
        }
    }
    assert!(routes.in_transit() > 0.0);
}

/// A load far above the network's capacity, then silence.
fn overload(network: &Network, scheme: Scheme) -> Outcome {
    let routes = Routes::drawn(network, scheme, 1).unwrap();
    let setting = Setting { network, routes: &routes, wires: Wires::MYRINET, interface: FREE };
    let traffic = Traffic {
        payload_bytes: 512,
        interval: Span::from_ns(5_000),
        warm_up: Span::from_ns(20_000),
        counted: Span::from_ns(60_000),
        seed: 5,
        afterwards: Afterwards::RunEmpty,
    };
    run(setting, traffic)
}

#[test]
fn overload_deadlocks_only_minimal_routes_without_in_transit_buffers() {
    // [IT-R2, R3, R6].
    let networks = [8, 16, 32]
        .map(|switches| Network::irregular(IrregularOptions::eight_ports(switches), 2).unwrap());
    for network in [&Network::ring()].into_iter().chain(&networks) {
        for scheme in [Scheme::UpDown, Scheme::InTransit] {
            let outcome = overload(network, scheme);
            assert_eq!((outcome.left, outcome.all.overflowed), (0, 0), "{scheme:?}");
            assert_eq!(outcome.all.delivered, outcome.all.born);
        }
    }
    let stuck = overload(&networks[1], Scheme::Minimal);
    assert!(stuck.left > 0 && stuck.all.delivered < stuck.all.born, "{stuck:?}");
}

#[test]
fn five_worms_around_the_ring_deadlock_only_on_minimal_routes() {
    // [IT-R2, R3]: each holds the link that the one before it needs.
    let network = Network::ring();
    let around = RING_NUMBERS.map(|number| [0, 2, 1, 6, 4].iter().position(|at| *at == number));
    let host_at = |place: usize| {
        let host = around.iter().position(|at| *at == Some(place % 5)).unwrap();
        HostId(host as u32)
    };
    for (scheme, left) in [(Scheme::Minimal, 5), (Scheme::InTransit, 0), (Scheme::UpDown, 0)] {
        let routes = Routes::drawn(&network, scheme, 1).unwrap();
        let mut fabric = Fabric::new(&network, &routes, Wires::MYRINET, FREE);
        for place in 0..5 {
            let (from, to) = (host_at(place), host_at(place + 2));
            let packet = fabric.packet(routes.number(from.0, to.0), 512);
            fabric.post(from.0, packet);
        }
        fabric.run_empty();
        assert_eq!(fabric.alive(), left, "{scheme:?}");
    }
}

#[test]
fn equal_seeds_give_equal_runs_in_every_build() {
    let network = Network::irregular(IrregularOptions::eight_ports(8), 2).unwrap();
    let outcome = overload(&network, Scheme::InTransit);
    assert_eq!(outcome, overload(&network, Scheme::InTransit));
    let Counters { born, latency, forwarded, waited, in_transit_max, .. } = outcome.all;
    let golden = (born, outcome.events, latency.as_ps(), forwarded, waited, in_transit_max);
    assert_eq!(golden, (509, 236_841, 26_309_946_149, 54, 50, 3));
}

#[test]
fn both_calibration_points_are_met() {
    // 12.5 us for the shortest message, of which 1 % are 125 ns; 10 % of that for a stop.
    let (check, stop) = (check_costs().unwrap()[0], transit_costs().unwrap()[0]);
    assert!((check.plain_ns / 12_500.0 - 1.0).abs() < 0.005, "{check:?}");
    assert!((stop.cost_ns / 1_250.0 - 1.0).abs() < 0.005, "{stop:?}");
}

#[test]
fn check_cost_is_small_and_its_share_falls_with_message_length() {
    // [IT-R17, R18], IT-M01, M02, M03: validation.
    let mean = studies::check_ns().unwrap();
    assert!(mean > 0.0 && mean <= 250.0, "{mean}");
    assert!(studies::check_ns_max().unwrap() <= 300.0);
    let falls = |samples: Vec<Sample>| samples.is_sorted_by(|a, b| a.percent() >= b.percent());
    assert!(falls(check_costs().unwrap()));
    assert!(falls(transit_costs().unwrap()));
}

#[test]
fn in_transit_stop_costs_the_same_for_all_message_lengths() {
    // [IT-R12, R18], IT-M04, M05: validation.
    let mean = studies::stop_us().unwrap();
    assert!((mean / 1.3 - 1.0).abs() <= 0.20, "{mean}");
    for sample in transit_costs().unwrap() {
        assert!((sample.cost_ns / 1_300.0 - 1.0).abs() <= 0.20, "{sample:?}");
    }
    let [short, long] = studies::stop_percent().unwrap();
    assert!(short > long && long > 0.0);
}

#[test]
fn stock_firmware_has_no_early_event_cost_and_both_deliver() {
    let row = Row::new().unwrap();
    let time = |firmware| row.one_way_ns(&row.direct(3), 64, firmware);
    assert!(time(Firmware::Stock) > 0.0 && time(Firmware::Modified) > time(Firmware::Stock));
}

#[test]
fn in_transit_buffers_raise_throughput_by_half_on_a_larger_network() {
    // [IT-R6], IT-M06 on one of its networks.
    let found = compare(32, 1, Interface::ESTIMATED).unwrap();
    assert!(found.ratio() >= 1.5, "{found:?}");
}

#[test]
fn structural_targets_hold_in_the_studies() {
    let [minimal, legal] = studies::ring_legality();
    assert_eq!((minimal.ups, minimal.is_legal), (vec![false, true], false));
    assert_eq!((legal.ups, legal.is_legal), (vec![true, false, false], true));
    assert_eq!(studies::ring_stops().unwrap(), [6]);
    assert_eq!(studies::ring_hops(), [3, 2]);
    let cycles = studies::cycles().unwrap();
    assert_eq!((cycles.networks, cycles.up_down, cycles.in_transit), (16, 0, 0));
    assert_eq!(cycles.minimal_on_ring, 1);
    assert!(cycles.minimal > 1);
    let [legal, minimal, stops] = studies::path_means().unwrap();
    assert!(legal > minimal && stops > 0.4);
    assert!(studies::bottleneck_ratios().unwrap().is_sorted());
}
