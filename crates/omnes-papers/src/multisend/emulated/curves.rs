//! Figures: gains and times over the size of a message.

use super::machine::{BREAK_EVEN_BYTES, Machine};
use super::study::{Multicast, ToEach};
use super::{GROUPS, LONG, MANY, SHARES, SHORT, SHORTER, gains_by_share, piped};
use crate::{Figure, Mark, Scale, Series};

pub(super) fn all() -> Vec<Figure> {
    vec![to_each(), pipelined(), not_pipelined(), over_host_best(), times(), by_share()]
}

fn sizes() -> impl Iterator<Item = u64> {
    SHORT.into_iter().chain(MANY)
}

/// A value for each size.
fn curve(value: impl Fn(u64) -> f64) -> Vec<(f64, f64)> {
    sizes().map(|bytes| (bytes as f64, value(bytes))).collect()
}

fn over_size(title: &str, y: (&str, Scale), series: Vec<Series>, stated: Vec<Mark>) -> Figure {
    Figure {
        title: title.to_owned(),
        x: ("message, bytes".to_owned(), Scale::Logarithmic),
        y: (y.0.to_owned(), y.1),
        series,
        stated,
    }
}

/// The size at which two times are equal according to the paper, which states only the size.
fn equal_at(id: &str, bytes: u64) -> Mark {
    Mark { id: id.to_owned(), x: bytes as f64, y: 1.0, bar: (1.0, 1.0) }
}

fn to_each() -> Figure {
    let series = [15, 7, 3].map(|destinations| {
        let gain = |bytes| ToEach::new(Machine::whole(), destinations, bytes).gain();
        Series::solid(&format!("{destinations} destinations"), curve(gain))
    });
    let stated = vec![Mark::of("MS-M01", LONG as f64), equal_at("MS-M02", BREAK_EVEN_BYTES)];
    let title = "Multi-send over repeated unicast (figure 5)";
    over_size(title, ("speed-up", Scale::Linear), series.into(), stated)
}

/// One curve per group.
fn groups(value: impl Fn(Multicast) -> f64) -> Vec<Series> {
    let series =
        |nodes| Series::solid(&format!("{nodes} nodes"), curve(|bytes| value(piped(nodes, bytes))));
    GROUPS.into_iter().rev().map(series).collect()
}

fn pipelined() -> Figure {
    let stated = vec![
        Mark::of("MS-M03", LONG as f64),
        Mark::of("MS-M04", LONG as f64),
        Mark::of("MS-M05", SHORTER as f64),
    ];
    let title = "Multicast by multi-send, pipelined, over the host's binomial tree (figure 7)";
    over_size(title, ("speed-up", Scale::Linear), groups(Multicast::gain), stated)
}

fn not_pipelined() -> Figure {
    let stated = ["MS-M06", "MS-M07"].map(|id| Mark::of(id, LONG as f64)).into();
    let title = "Multicast by multi-send, not pipelined, over the host's binomial tree (figure 9)";
    let series = groups(|multicast| multicast.not_pipelined().gain());
    over_size(title, ("speed-up", Scale::Linear), series, stated)
}

fn over_host_best() -> Figure {
    let stated = vec![equal_at("MS-M11", BREAK_EVEN_BYTES)];
    let title = "Multicast by multi-send, pipelined, over the host's best tree (figure 11)";
    over_size(title, ("speed-up", Scale::Linear), groups(Multicast::gain_over_best), stated)
}

fn times() -> Figure {
    let best = |bytes| piped(16, bytes).best().time.as_us();
    let stored = |bytes| piped(16, bytes).not_pipelined().best().time.as_us();
    let binomial = |bytes| piped(16, bytes).by_host().not_pipelined().binomial().as_us();
    let host = |bytes| piped(16, bytes).by_host().best().time.as_us();
    let series = vec![
        Series::solid("multi-send, pipelined", curve(best)),
        Series::solid("multi-send, not pipelined", curve(stored)),
        Series::dashed("host, best tree, pipelined", curve(host)),
        Series::dashed("host, binomial tree", curve(binomial)),
    ];
    let title = "Multicast to 16 nodes (figures 6, 8 and 10)";
    over_size(title, ("time, us", Scale::Logarithmic), series, Vec::new())
}

fn by_share() -> Figure {
    let points = |bytes| SHARES.map(|share| share as f64).into_iter().zip(gains_by_share(bytes));
    let series = [(LONG, "16 KB"), (SHORTER, "8 KB")];
    Figure {
        title: "Multicast to 16 nodes, pipelined, by who does the work of receiving".to_owned(),
        x: ("part of t_recv done by the host, percent".to_owned(), Scale::Linear),
        y: ("speed-up".to_owned(), Scale::Linear),
        series: series.map(|(bytes, name)| Series::solid(name, points(bytes).collect())).into(),
        stated: Vec::new(),
    }
}
