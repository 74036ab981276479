//! Assignment of results to lines or bars.

use super::super::config::{Config, Point};
use super::super::measure::Measured;
use super::super::network::NetworkKind;
use super::super::values::{Algorithm, Op};
use crate::units::format_bytes;
use crate::units::short_time;
use omnes_proto::algorithm::BcastAlgorithm;
use omnes_sim::model::Carrier;
use std::time::Duration;

/// The axis over which results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// None: each result is a bar.
    None,
    Sizes,
    Ranks,
    Loss,
    Skew,
}

/// A point of a line, or a bar; times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spot {
    /// Position on the axis.
    pub x: f64,
    pub median_us: f64,
    /// The fastest sample, and the 99th percentile of the slowest seed.
    pub low_us: f64,
    pub high_us: f64,
}

/// A line, or a single spot for bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub label: String,
    pub spots: Vec<Spot>,
}

/// Contents of a plot.
#[derive(Clone, Debug)]
pub struct Figure {
    pub title: String,
    pub subtitle: String,
    pub axis: Axis,
    pub series: Vec<Series>,
    /// Time of the link alone, if it bounds a result.
    pub link: Option<Series>,
}

impl Axis {
    /// The first axis with several values.
    fn of(config: &Config) -> Self {
        let is_many = |count: usize| count > 1;
        match () {
            () if is_many(config.sizes.len()) => Self::Sizes,
            () if is_many(config.ranks.len()) => Self::Ranks,
            () if is_many(config.losses.len()) => Self::Loss,
            () if is_many(config.skews.len()) => Self::Skew,
            () => Self::None,
        }
    }

    /// Title of the axis.
    pub fn title(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Sizes => "message size",
            Self::Ranks => "ranks",
            Self::Loss => "packets lost on a host's link",
            Self::Skew => "longest delay of the ranks that come late",
        }
    }

    /// True if the scale is logarithmic.
    pub fn is_log(self) -> bool {
        matches!(self, Self::Sizes | Self::Ranks | Self::Loss)
    }

    fn place(self, point: &Point) -> f64 {
        match self {
            Self::None => 0.0,
            // An empty message is drawn where one of half a byte would be.
            Self::Sizes => (point.bytes as f64).max(0.5),
            Self::Ranks => f64::from(point.ranks),
            // No loss is drawn where a loss of one in a million would be.
            Self::Loss => f64::from(point.loss.0) + 1.0,
            Self::Skew => point.skew.as_nanos() as f64,
        }
    }

    /// Formats a position for people.
    pub fn label(self, x: f64) -> String {
        match self {
            Self::None => String::new(),
            Self::Sizes => format_bytes(x as u64),
            Self::Ranks => format!("{x:.0}"),
            Self::Loss => crate::units::format_share((x - 1.0) / 1e6),
            Self::Skew => short_time(Duration::from_nanos(x as u64)),
        }
    }
}

impl Figure {
    /// Groups results into lines.
    pub fn new(config: &Config, results: &[Measured]) -> Self {
        let axis = Axis::of(config);
        let mut series: Vec<Series> = Vec::new();
        let mut groups: Vec<(String, f64, Vec<&Measured>)> = Vec::new();
        for measured in results {
            let label = label(config, axis, measured);
            let x = axis.place(&measured.point);
            match groups.iter_mut().find(|group| group.0 == label && group.1 == x) {
                Some(group) => group.2.push(measured),
                None => groups.push((label, x, vec![measured])),
            }
        }
        for (label, x, seeds) in groups {
            let spot = spot(x, &seeds);
            match series.iter_mut().find(|line| line.label == label) {
                Some(line) => line.spots.push(spot),
                None => series.push(Series { label, spots: vec![spot] }),
            }
        }
        for line in &mut series {
            line.spots.sort_by(|one, other| one.x.total_cmp(&other.x));
        }
        let link = link_alone(config, axis, results);
        Self { title: title(config, axis), subtitle: subtitle(config, axis), axis, series, link }
    }
}

fn spot(x: f64, seeds: &[&Measured]) -> Spot {
    let mut medians: Vec<f64> = seeds.iter().map(|seed| seed.summary.median_us).collect();
    medians.sort_by(f64::total_cmp);
    let lows = seeds.iter().map(|seed| seed.summary.min_us);
    let highs = seeds.iter().map(|seed| seed.summary.p99_us);
    Spot {
        x,
        median_us: medians[(medians.len() - 1) / 2],
        low_us: lows.fold(f64::INFINITY, f64::min),
        high_us: highs.fold(0.0, f64::max),
    }
}

/// The algorithm, and the values of all further axes with several values.
fn label(config: &Config, axis: Axis, measured: &Measured) -> String {
    let point = &measured.point;
    let mut parts = Vec::new();
    // A postal tree differs between positions on an axis.
    let is_tree_of_many = point.algorithm == Algorithm::Postal && axis != Axis::None;
    let is_choice_of_many = point.algorithm == Algorithm::Default && axis == Axis::Ranks;
    if is_tree_of_many || is_choice_of_many {
        parts.push(point.algorithm.to_string());
    } else {
        parts.push(full_name(measured));
    }
    let mut add = |count: usize, is_shown: bool, text: String| {
        if count > 1 && !is_shown {
            parts.push(text);
        }
    };
    let is_named = point.op.is_broadcast() && !is_choice_of_many;
    add(config.carriers.len(), is_named || !point.has_carrier(), point.carrier.to_string());
    add(config.networks.len(), false, point.network.to_string());
    add(config.ranks.len(), axis == Axis::Ranks, format!("{} ranks", point.ranks));
    add(config.losses.len(), axis == Axis::Loss, format!("{} lost", point.loss));
    add(config.roots.len(), false, format!("root {}", point.root));
    add(config.skews.len(), axis == Axis::Skew, format!("skew {}", short_time(point.skew)));
    parts.join(", ")
}

/// Name of the algorithm, marked if it uses multicast.
fn full_name(measured: &Measured) -> String {
    let point = &measured.point;
    let is_policy = match point.algorithm {
        Algorithm::Bcast(BcastAlgorithm::Multicast(_)) => true,
        algorithm => algorithm == Algorithm::Default && point.op.is_broadcast(),
    };
    if is_policy && point.carrier.0 == Carrier::Multicast {
        format!("multicast ({})", measured.algorithm)
    } else {
        measured.algorithm.clone()
    }
}

fn title(config: &Config, axis: Axis) -> String {
    let what = match config.op {
        Op::Bcast => "Broadcast",
        Op::Barrier => "Barrier",
        Op::Pingpong => "Half a round trip",
        Op::Bandwidth => "Message of a stream",
        Op::Throughput | Op::Skew => "Broadcast",
    };
    let mut title = what.to_owned();
    if config.has_sizes() && axis != Axis::Sizes {
        title += &format!(" of {}", format_bytes(config.sizes[0]));
    }
    if !config.op.is_between_two() && axis != Axis::Ranks && config.ranks.len() == 1 {
        title += &format!(" among {} ranks", config.ranks[0]);
    }
    match config.op {
        Op::Throughput => title += ", back to back",
        Op::Skew => title += ", mean time in the call",
        _ => {}
    }
    title
}

fn subtitle(config: &Config, axis: Axis) -> String {
    let mut parts = vec![config.testbed.name.clone()];
    if let [network] = config.networks[..] {
        parts.push(match network {
            NetworkKind::Single => "one switch".to_owned(),
            _ => network.to_string(),
        });
    }
    if let ([loss], false) = (&config.losses[..], axis == Axis::Loss) {
        parts.push(format!("{loss} loss"));
    }
    if config.seeds > 1 {
        parts.push(format!("{} seeds", config.seeds));
    }
    parts.push(format!("simulated by omnes {}", env!("CARGO_PKG_VERSION")));
    parts.join(", ")
}

/// Time of the bytes with headers and frames at the rate of a link, through which every rank
/// receives.
fn link_alone(config: &Config, axis: Axis, results: &[Measured]) -> Option<Series> {
    let is_bound = config.has_sizes() && matches!(axis, Axis::None | Axis::Sizes | Axis::Ranks);
    if !is_bound || config.op == Op::Skew {
        return None;
    }
    let link = config.testbed.link;
    let mut spots: Vec<Spot> = Vec::new();
    for Measured { point, .. } in results {
        let packets = point.bytes.div_ceil(link.payload_bytes).max(1);
        let us = link.wire.of(point.bytes + packets * link.frame_bytes).as_us();
        let x = axis.place(point);
        if !spots.iter().any(|spot| spot.x == x) {
            spots.push(Spot { x, median_us: us, low_us: us, high_us: us });
        }
    }
    spots.sort_by(|one, other| one.x.total_cmp(&other.x));
    Some(Series { label: "the link alone".to_owned(), spots })
}
