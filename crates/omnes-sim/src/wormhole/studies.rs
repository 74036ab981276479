//! One function for each target of the paper on in-transit buffers: the result of a run.
//!
//! | targets IT- | function | from |
//! |---|---|---|
//! | M01, M02, M03 | [`check_ns`], [`check_ns_max`], [`check_percent`] | an idle row of switches |
//! | M04, M05 | [`stop_us`], [`stop_percent`] | the same with a stop in transit |
//! | M06, M07 | [`throughput`] | loads up to saturation on irregular networks |
//! | D01, D02 | [`bottleneck_ratios`], [`path_means`] | counting paths; no packet is sent |
//! | S01, S02, S03 | [`ring_legality`], [`ring_stops`], [`ring_hops`] | the ring |
//! | S04 | [`cycles`] | dependences of all routes of many networks |
//! | S05 | [`cut_through_ns`] | the marks of one message in transit |
//! | P01, P02, P03 | [`early_bytes`], [`overflows`], [`bytes_per_switch`] | a burst, a header |
//!
//! Two constants of [`latency`](super::latency) are calibrated, at the shortest message: with the
//! first values of IT-M03 (as 12.5 us of latency) and of IT-M05 (as 1.25 us). All else is
//! validation. Cost: [`throughput`] runs some 20 million events; [`cycles`] and the others take far
//! below a second.

use omnes_topo::network::balance::{Load, load};
use omnes_topo::network::dependence::Dependences;
use omnes_topo::network::header::{encode, strip};
use omnes_topo::network::in_transit::{Ends, Route};
use omnes_topo::network::up_down::{Rule, Toward, UpDown};
use omnes_topo::network::{
    Draw, HostId, IrregularOptions, LinkId, Network, NetworkError, RING_NUMBERS, SwitchId,
};

use super::config::{Interface, Wires};
use super::fabric::{Fabric, What};
use super::latency::{Firmware, Row, Sample, check_costs, transit_costs};
use super::routes::{Routes, Scheme};
use super::saturation::{Saturation, compare};
use crate::engine::Time;

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1);
    values.sum::<f64>() / count as f64
}

fn shortest_and_longest(samples: &[Sample]) -> [f64; 2] {
    let percent = |sample: Option<&Sample>| sample.map_or(0.0, Sample::percent);
    [percent(samples.first()), percent(samples.last())]
}

/// IT-M01: cost of the check on ordinary packets, mean over lengths, in nanoseconds.
///
/// Errors, as in all functions here, only by a mistake in this crate.
pub fn check_ns() -> Result<f64, NetworkError> {
    Ok(mean(check_costs()?.iter().map(|sample| sample.cost_ns)))
}

/// IT-M02: the largest cost of the check, in nanoseconds.
pub fn check_ns_max() -> Result<f64, NetworkError> {
    Ok(check_costs()?.iter().map(|sample| sample.cost_ns).fold(0.0, f64::max))
}

/// IT-M03: the cost of the check in percent of the latency, for the shortest and the longest
/// message.
pub fn check_percent() -> Result<[f64; 2], NetworkError> {
    Ok(shortest_and_longest(&check_costs()?))
}

/// IT-M04: latency that a stop in transit adds, mean over lengths, in microseconds.
pub fn stop_us() -> Result<f64, NetworkError> {
    Ok(mean(transit_costs()?.iter().map(|sample| sample.cost_ns)) / 1e3)
}

/// IT-M05: the same added latency in percent, for the shortest and the longest message.
pub fn stop_percent() -> Result<[f64; 2], NetworkError> {
    Ok(shortest_and_longest(&transit_costs()?))
}

/// Numbers of switches of the networks of IT-M06, IT-M07 and IT-D01.
pub const SIZES: [u32; 4] = [8, 16, 32, 64];
/// Networks of the throughput studies: each of [`SIZES`] with this many seeds.
const THROUGHPUT_SEEDS: u64 = 3;
/// Size from which in-transit buffers are expected to deliver at least half as much again.
const LARGE: u32 = 32;

/// Maximum throughput of all networks of a study.
#[derive(Clone, PartialEq, Debug)]
pub struct Throughput {
    /// One entry per network, small ones first.
    pub networks: Vec<Saturation>,
}

impl Throughput {
    /// Mean of the ratios of networks with `switches` switches; NaN if there are none.
    pub fn mean_ratio(&self, switches: u32) -> f64 {
        let of_size = self.networks.iter().filter(|one| one.switches == switches);
        mean(of_size.map(Saturation::ratio))
    }

    fn large(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.networks.iter().filter(|one| one.switches >= LARGE).map(Saturation::ratio)
    }

    /// IT-M06: mean ratio over all networks of 32 or more switches.
    pub fn large_ratio(&self) -> f64 {
        mean(self.large())
    }

    /// The least ratio among networks of 32 or more switches.
    pub fn large_ratio_min(&self) -> f64 {
        self.large().fold(f64::INFINITY, f64::min)
    }

    /// IT-M07: the best ratio of all networks.
    pub fn best_ratio(&self) -> f64 {
        self.networks.iter().map(Saturation::ratio).fold(0.0, f64::max)
    }
}

/// IT-M06, IT-M07: throughput of in-transit buffers relative to that of up*/down*, with interfaces
/// of these costs; the paper's claim is for [`Interface::ESTIMATED`].
pub fn throughput(interface: Interface) -> Result<Throughput, NetworkError> {
    let all =
        SIZES.into_iter().flat_map(|size| (0..THROUGHPUT_SEEDS).map(move |seed| (size, seed)));
    let networks = all.map(|(switches, seed)| compare(switches, seed, interface));
    Ok(Throughput { networks: networks.collect::<Result<_, _>>()? })
}

/// Number of networks of each size of IT-D01 and IT-D02.
const SEEDS: u64 = 20;

fn loads(switches: u32) -> Result<Vec<(Load, Load)>, NetworkError> {
    let one = |seed| {
        let network = Network::irregular(IrregularOptions::eight_ports(switches), seed)?;
        let labels = UpDown::new(&network, SwitchId(0));
        let mut draw = Draw::new(seed);
        let legal = load(&network, &labels, Rule::Legal(&labels), &mut draw);
        Ok((legal, load(&network, &labels, Rule::Minimal, &mut draw)))
    };
    (0..SEEDS).map(one).collect()
}

/// IT-D01: paths on the busiest link under up*/down* relative to those of minimal routes, mean for
/// each of [`SIZES`].
pub fn bottleneck_ratios() -> Result<[f64; 4], NetworkError> {
    let mut ratios = [0.0; SIZES.len()];
    for (ratio, switches) in ratios.iter_mut().zip(SIZES) {
        let loads = loads(switches)?;
        let of_one =
            |(legal, minimal): &(Load, Load)| f64::from(legal.busiest) / f64::from(minimal.busiest);
        *ratio = mean(loads.iter().map(of_one));
    }
    Ok(ratios)
}

/// IT-D02: at 64 switches, mean length of legal paths, mean length of minimal paths, and mean
/// number of in-transit buffers on the latter.
pub fn path_means() -> Result<[f64; 3], NetworkError> {
    let loads = loads(64)?;
    let per_path = |sum: u32, load: Load| f64::from(sum) / f64::from(load.paths);
    Ok([
        mean(loads.iter().map(|(legal, _)| per_path(legal.hops, *legal))),
        mean(loads.iter().map(|(_, minimal)| per_path(minimal.hops, *minimal))),
        mean(loads.iter().map(|(_, minimal)| per_path(minimal.turns, *minimal))),
    ])
}

/// The ring of the paper with its labels, root 0.
struct Ring {
    network: Network,
    labels: UpDown,
}

impl Ring {
    fn new() -> Self {
        let network = Network::ring();
        let labels = UpDown::new(&network, SwitchId(0));
        Self { network, labels }
    }

    /// The links along switches given by the paper's numbers; shorter if two switches are not
    /// connected.
    fn walk(&self, numbers: &[u32]) -> Vec<LinkId> {
        let step = |pair: &[u32]| {
            let mut neighbours = self.network.neighbours(numbered(pair[0]));
            neighbours.find(|(_, to)| *to == numbered(pair[1])).map(|(link, _)| link)
        };
        numbers.windows(2).filter_map(step).collect()
    }
}

/// The switch of the ring that has this number in the paper.
fn numbered(number: u32) -> SwitchId {
    let place = RING_NUMBERS.iter().position(|known| *known == number);
    SwitchId(place.unwrap_or_default() as u32)
}

/// The links of a path that go up, and whether up*/down* permits the path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Legality {
    /// True for each link that goes up.
    pub ups: Vec<bool>,
    /// True if the path is legal.
    pub is_legal: bool,
}

/// IT-S01: the paths 4-6-1 and 4-0-2-1.
pub fn ring_legality() -> [Legality; 2] {
    let ring = Ring::new();
    let of = |numbers: &[u32]| {
        let path = ring.walk(numbers);
        let ups = path.iter().map(|link| ring.labels.is_up(&ring.network, *link)).collect();
        Legality { ups, is_legal: ring.labels.is_legal(&ring.network, &path) }
    };
    [of(&[4, 6, 1]), of(&[4, 0, 2, 1])]
}

/// IT-S02: the switches, by the paper's numbers, at which 4-6-1 stops in transit.
pub fn ring_stops() -> Result<Vec<u32>, NetworkError> {
    let ring = Ring::new();
    // One host is attached to each switch and has its number.
    let ends = Ends { from: HostId(numbered(4).0), to: HostId(numbered(1).0), flow: 0 };
    let route = Route::split(&ring.network, &ring.labels, ends, &ring.walk(&[4, 6, 1]))?;
    let stops = route.pieces.iter().skip(1).filter_map(|piece| piece.first());
    Ok(stops.map(|uplink| RING_NUMBERS[uplink.index() / 2]).collect())
}

/// IT-S03: links of the shortest legal and of the minimal path from 4 to 1.
pub fn ring_hops() -> [u16; 2] {
    let ring = Ring::new();
    let hops = |rule| Toward::new(&ring.network, rule, numbered(1)).hops(numbered(4));
    [hops(Rule::Legal(&ring.labels)), hops(Rule::Minimal)]
}

/// Networks whose channels have cyclic dependences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cycles {
    /// Networks examined, the ring first.
    pub networks: u32,
    /// Under up*/down*.
    pub up_down: u32,
    /// On minimal routes with in-transit buffers.
    pub in_transit: u32,
    /// On minimal routes without in-transit buffers.
    pub minimal: u32,
    /// On minimal routes without in-transit buffers, on the ring alone.
    pub minimal_on_ring: u32,
}

/// IT-S04: cycles in the dependences of one route per pair of hosts, on the ring and on five random
/// networks each of 8, 16 and 32 switches.
pub fn cycles() -> Result<Cycles, NetworkError> {
    let mut found = Cycles::default();
    let sizes = [8, 16, 32].into_iter().flat_map(|size| (0..5).map(move |seed| (size, seed)));
    let drawn =
        sizes.map(|(size, seed)| Network::irregular(IrregularOptions::eight_ports(size), seed));
    for network in [Ok(Network::ring())].into_iter().chain(drawn) {
        let network = network?;
        let has_cycle = |scheme| Ok(u32::from(circle(&network, scheme)?));
        found.up_down += has_cycle(Scheme::UpDown)?;
        found.in_transit += has_cycle(Scheme::InTransit)?;
        found.minimal += has_cycle(Scheme::Minimal)?;
        if found.networks == 0 {
            found.minimal_on_ring = found.minimal;
        }
        found.networks += 1;
    }
    Ok(found)
}

fn circle(network: &Network, scheme: Scheme) -> Result<bool, NetworkError> {
    let routes = Routes::drawn(network, scheme, 1)?;
    let mut dependences = Dependences::new(network.links());
    for piece in routes.pieces.iter().flatten() {
        let links: Vec<LinkId> = piece.links.iter().map(|link| LinkId(*link)).collect();
        dependences.add(&links);
    }
    Ok(dependences.has_cycle())
}

/// IT-S05: time from the departure of a packet's first byte at an idle in-transit host to the
/// arrival of its last byte there, for 4,096 bytes, in nanoseconds; negative if the first byte left
/// later.
pub fn cut_through_ns() -> Result<f64, NetworkError> {
    let row = Row::new()?;
    let route = row.in_transit();
    let marks = row.send(&route, super::latency::MESSAGE_BYTES_MAX, Firmware::Modified);
    let stop = route.pieces.get(1).map(|piece| HostId(piece[0].0 / 2));
    let when = |what| {
        let mark = marks.iter().find(|mark| Some(mark.host) == stop && mark.what == what);
        mark.map_or(f64::NAN, |mark| mark.at.as_ps() as f64 / 1e3)
    };
    Ok(when(What::Tail) - when(What::Head))
}

/// IT-P01: bytes of a packet that had arrived when the early-receive event fired, derived from the
/// time from the event to the last byte.
pub fn early_bytes() -> Result<u64, NetworkError> {
    let row = Row::new()?;
    let route = row.direct(2);
    let marks = row.send(&route, 100, Firmware::Modified);
    let when = |what| marks.iter().find(|mark| mark.what == what).map_or(Time::ZERO, |at| at.at);
    let rest = when(What::Tail).since(when(What::Early)).as_ps() / Wires::MYRINET.byte.as_ps();
    Ok(Row::flit_bytes(&route, 100) - rest)
}

/// A burst of packets through one in-transit host, and its losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflows {
    /// Packets of the burst.
    pub packets: u64,
    /// Packets lost with two buffers per direction.
    pub with_two: u64,
    /// Packets lost with an additional pool.
    pub with_pool: u64,
}

/// IT-P02: sixteen packets arrive together for a host whose sender is busy.
pub fn overflows() -> Result<Overflows, NetworkError> {
    const PACKETS: u32 = 16;
    let row = Row::new()?;
    let (through, own) = (row.in_transit(), row.onward());
    let routes = Routes::given(&[through, own]);
    let lost = |pool| {
        let interface = Interface { pool, ..Interface::ESTIMATED };
        let mut fabric = Fabric::new(row.network(), &routes, Wires::MYRINET, interface);
        for _ in 0..PACKETS {
            let (through, own) = (fabric.packet(0, 512), fabric.packet(1, 4096));
            fabric.post(0, through);
            fabric.post(Row::STOP, own);
        }
        fabric.run_empty();
        fabric.counters.overflowed
    };
    let packets = u64::from(PACKETS);
    Ok(Overflows { packets, with_two: lost(0), with_pool: lost(PACKETS) })
}

/// IT-P03: bytes that a header loses at each switch of a route, which must be equal.
pub fn bytes_per_switch() -> Result<Vec<usize>, NetworkError> {
    let row = Row::new()?;
    let head = encode(row.network(), &row.direct(5), 8)?;
    let mut left = head.as_slice();
    let switches = 0..5;
    let lost = switches.filter_map(|_| {
        let (_, rest) = strip(left)?;
        let before = std::mem::replace(&mut left, rest);
        Some(before.len() - rest.len())
    });
    Ok(lost.collect())
}
