//! In-transit buffers: routes on the ring of the paper's example and on random networks, by the
//! functions of `omnes_topo::network`.

use crate::rig::{Seen, require};
use crate::{Finding, Target};
use omnes_topo::network::balance::{Load, load};
use omnes_topo::network::dependence::Dependences;
use omnes_topo::network::header::{Arrival, IN_TRANSIT_TAG, arrival, encode, strip};
use omnes_topo::network::in_transit::{Ends, Route};
use omnes_topo::network::up_down::{Rule, Toward, UpDown};
use omnes_topo::network::{
    Draw, HostId, IrregularOptions, LinkId, Network, NetworkError, Node, RING_NUMBERS, SwitchId,
};

/// Random networks per size (IT-D01).
const NETWORKS: u64 = 20;

/// The finding of a target that this file computes.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "IT-S01" => Finding::seen(target, only_the_way_over_the_root_is_legal()),
        "IT-S02" => judged(target, in_transit_hosts()).noting("a host of switch 6"),
        "IT-S03" => judged(target, hops_on_the_ring()),
        "IT-S04" => judged(target, cycles()),
        "IT-P01" => judged(target, bytes_until_known()),
        "IT-P03" => judged(target, bytes_per_switch()),
        "IT-D01" => judged(target, busiest_ratios()),
        "IT-D02" => judged(target, lengths_of_paths(64)),
        _ => return None,
    })
}

fn judged<V: Into<crate::Value>>(target: &Target, ours: Result<V, Failure>) -> Finding {
    match ours {
        Ok(ours) => Finding::judged(target, ours),
        Err(Failure(instead)) => Finding::seen(target, Err(instead)),
    }
}

/// What went wrong, in words.
struct Failure(String);

impl From<NetworkError> for Failure {
    fn from(error: NetworkError) -> Self {
        Self(error.to_string())
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The ring of the example, with switches by the paper's numbers and root 0.
struct Ring {
    network: Network,
    labels: UpDown,
}

impl Ring {
    fn new() -> Self {
        let network = Network::ring();
        let labels = UpDown::new(&network, Self::numbered(0));
        Self { network, labels }
    }

    fn numbered(number: u32) -> SwitchId {
        let place = (0..).zip(RING_NUMBERS).find(|(_, known)| *known == number);
        SwitchId(place.expect("the ring has this switch").0)
    }

    /// The links from switch to switch.
    fn walk(&self, numbers: &[u32]) -> Vec<LinkId> {
        let step = |pair: &[u32]| {
            let mut neighbours = self.network.neighbours(Self::numbered(pair[0]));
            neighbours.find(|(_, to)| *to == Self::numbered(pair[1])).map(|(link, _)| link)
        };
        numbers.windows(2).filter_map(step).collect()
    }

    /// For each link of a path whether it goes up.
    fn ups(&self, numbers: &[u32]) -> Vec<bool> {
        let path = self.walk(numbers);
        path.iter().map(|link| self.labels.is_up(&self.network, *link)).collect()
    }
}

fn only_the_way_over_the_root_is_legal() -> Seen {
    let ring = Ring::new();
    let is_legal = |numbers: &[u32]| ring.labels.is_legal(&ring.network, &ring.walk(numbers));
    let short = (ring.ups(&[4, 6, 1]), is_legal(&[4, 6, 1]));
    require(short == (vec![false, true], false), || format!("4-6-1 is up, legal: {short:?}"))?;
    let long = (ring.ups(&[4, 0, 2, 1]), is_legal(&[4, 0, 2, 1]));
    let expected = (vec![true, false, false], true);
    require(long == expected, || format!("4-0-2-1 is up, legal: {long:?}"))
}

/// In-transit hosts on 4-6-1, which are all on switch 6.
fn in_transit_hosts() -> Result<f64, Failure> {
    let ring = Ring::new();
    let host = |number| {
        let first = ring.network.hosts_of(Ring::numbered(number)).next();
        first.ok_or(Failure::from("a switch of the ring has no host"))
    };
    let ends = Ends { from: host(4)?, to: host(1)?, flow: 0 };
    let path = ring.walk(&[4, 6, 1]);
    let route = Route::split(&ring.network, &ring.labels, ends, &path)?;
    for piece in &route.pieces[..route.in_transit()] {
        let end = piece.last().map(|link| ring.network.end(*link));
        let Some(Node::Host(host)) = end else { return Err("a piece ends at no host".into()) };
        if ring.network.seat(host) != Ring::numbered(6) {
            return Err("the in-transit host is not at switch 6".into());
        }
    }
    Ok(route.in_transit() as f64)
}

/// Links of the shortest path from 4 to 1, legal and minimal.
fn hops_on_the_ring() -> Result<[f64; 2], Failure> {
    let ring = Ring::new();
    let hops = |rule| {
        let toward = Toward::new(&ring.network, rule, Ring::numbered(1));
        f64::from(toward.hops(Ring::numbered(4)))
    };
    Ok([hops(Rule::Legal(&ring.labels)), hops(Rule::Minimal)])
}

/// Networks in which channels wait for each other in a circle: on legal paths, on minimal ones, on
/// the pieces between in-transit hosts.
#[derive(Default)]
struct Circles {
    legal: u32,
    minimal: u32,
    pieces: u32,
}

impl Circles {
    fn count(&mut self, network: &Network, seed: u64) -> Result<(), Failure> {
        let labels = UpDown::new(network, SwitchId(0));
        let mut draw = Draw::new(seed);
        let mut graphs = [(); 3].map(|()| Dependences::new(network.links()));
        for to in (0..network.hosts()).map(HostId) {
            let legal = Toward::new(network, Rule::Legal(&labels), network.seat(to));
            let minimal = Toward::new(network, Rule::Minimal, network.seat(to));
            for from in (0..network.hosts()).map(HostId).filter(|from| *from != to) {
                let ends = Ends { from, to, flow: from.0 };
                let path = legal.path(network.seat(from), &mut draw);
                graphs[0].add(&Route::direct(network, ends, &path).pieces[0]);
                let path = minimal.path(network.seat(from), &mut draw);
                graphs[1].add(&Route::direct(network, ends, &path).pieces[0]);
                let route = Route::split(network, &labels, ends, &path)?;
                route.pieces.iter().for_each(|piece| graphs[2].add(piece));
            }
        }
        let [legal, minimal, pieces] = graphs.map(|graph| u32::from(graph.has_cycle()));
        self.legal += legal;
        self.minimal += minimal;
        self.pieces += pieces;
        Ok(())
    }
}

fn eight_ports(switches: u32, seed: u64) -> Result<Network, NetworkError> {
    Network::irregular(IrregularOptions::eight_ports(switches), seed)
}

/// Cycles of legal paths and of pieces, where minimal paths have some.
fn cycles() -> Result<f64, Failure> {
    let mut circles = Circles::default();
    circles.count(&Network::ring(), 1)?;
    if circles.minimal == 0 {
        return Err("minimal routes on the ring have no cycle either".into());
    }
    for switches in [8, 16, 32] {
        for seed in 0..5 {
            circles.count(&eight_ports(switches, seed)?, seed)?;
        }
    }
    Ok(f64::from(circles.legal + circles.pieces))
}

/// Bytes after which an interface knows all it must of a packet in transit.
fn bytes_until_known() -> Result<f64, Failure> {
    let [high, low] = IN_TRANSIT_TAG.to_be_bytes();
    let head = [high, low, 1, 2, 3, 4, 5, 6];
    let is_known = |bytes: &usize| arrival(&head[..*bytes]) == Some(Arrival::InTransit(0x0102));
    let first = (0..=head.len()).find(is_known);
    first.map(|bytes| bytes as f64).ok_or("it is never known".into())
}

/// Bytes that each switch takes off the head of a packet, which must lead to its host.
fn bytes_per_switch() -> Result<f64, Failure> {
    let network = eight_ports(32, 5)?;
    let labels = UpDown::new(&network, SwitchId(0));
    let (mut taken, mut crossed) = (0, 0);
    for to in (1..network.hosts()).map(HostId) {
        let from = HostId(0);
        let toward = Toward::new(&network, Rule::Legal(&labels), network.seat(to));
        let path = toward.path(network.seat(from), &mut Draw::new(u64::from(to.0)));
        let route = Route::direct(&network, Ends { from, to, flow: 0 }, &path);
        let head = encode(&network, &route, 8)?;
        let (mut at, mut rest) = (network.end(network.uplink(from)), head.as_slice());
        while let Node::Switch(switch) = at {
            let Some((port, left)) = strip(rest) else { return Err("a route is too short".into()) };
            at = network.end(network.ports(switch)[usize::from(port)]);
            taken += rest.len() - left.len();
            crossed += 1;
            rest = left;
        }
        if at != Node::Host(to) {
            return Err("a route leads elsewhere".into());
        }
    }
    Ok(taken as f64 / f64::from(crossed))
}

fn busiest_ratios() -> Result<Vec<f64>, Failure> {
    [8, 16, 32, 64].into_iter().map(busiest_ratio).collect()
}

/// Paths over the busiest link under up*/down*, over those with in-transit buffers; the mean.
fn busiest_ratio(switches: u32) -> Result<f64, Failure> {
    mean(switches, |legal, minimal| f64::from(legal.busiest) / f64::from(minimal.busiest))
}

/// Mean hops of legal and of minimal paths, and in-transit buffers per minimal one.
fn lengths_of_paths(switches: u32) -> Result<Vec<f64>, Failure> {
    let per_path = |sum: u32, load: Load| f64::from(sum) / f64::from(load.paths);
    Ok(vec![
        mean(switches, |legal, _| per_path(legal.hops, legal))?,
        mean(switches, |_, minimal| per_path(minimal.hops, minimal))?,
        mean(switches, |_, minimal| per_path(minimal.turns, minimal))?,
    ])
}

/// Mean over random networks of what `measure` says of the loads of both rules.
fn mean(switches: u32, measure: impl Fn(Load, Load) -> f64) -> Result<f64, Failure> {
    let mut sum = 0.0;
    for seed in 0..NETWORKS {
        let network = eight_ports(switches, seed)?;
        let labels = UpDown::new(&network, SwitchId(0));
        let mut draw = Draw::new(seed);
        let legal = load(&network, &labels, Rule::Legal(&labels), &mut draw);
        sum += measure(legal, load(&network, &labels, Rule::Minimal, &mut draw));
    }
    Ok(sum / NETWORKS as f64)
}
