//! Results as lines for programs or as a table for people, with the names of `omnes bench`.
//!
//! Lines have the fields of `omnes bench` in the same order; fields that a model cannot provide
//! (copies, system calls, wake-ups) are null. The simulator's own fields follow. The table omits
//! columns that would be empty, and shows only axes with several values: the others are in the head
//! lines.

use super::config::Config;
use super::measure::Measured;
use super::values::Op;
use crate::bench::AtRoot;
use crate::units::format_bytes;
use crate::units::short_time;
use crate::units::{rounded, significant};
use serde::Serialize;

/// One result, as printed.
#[derive(Serialize)]
pub struct Line<'run> {
    #[serde(rename = "impl")]
    implementation: &'static str,
    op: &'static str,
    n: u32,
    bytes: u64,
    iters: u32,
    median_us: f64,
    p99_us: f64,
    min_us: f64,
    mean_us: f64,
    errors: u64,
    algorithm: &'run str,
    #[serde(rename = "MBps", skip_serializing_if = "Option::is_none")]
    megabytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_s: Option<f64>,
    packets: f64,
    wire_bytes: f64,
    copied_bytes: Option<f64>,
    syscalls: Option<f64>,
    wakeups: Option<f64>,
    retransmits: f64,
    #[serde(flatten)]
    at_root: Option<AtRoot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_us: Option<f64>,
    testbed: &'run str,
    network: String,
    carrier: String,
    loss: f64,
    root: u32,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lambda: Option<f64>,
    lost: u64,
    dropped_by_switches: u64,
    dropped_by_hosts: u64,
    events: u64,
    hash: String,
}

impl<'run> Line<'run> {
    /// Creates the line of one result.
    pub fn new(config: &'run Config, measured: &'run Measured) -> Self {
        let (point, summary) = (&measured.point, measured.summary);
        let us = |value| rounded(value, 1e3);
        let count = |value| rounded(value, 1e2);
        let lambda = |postal: super::postal::Postal| f64::from(postal.lambda.thousandths()) / 1e3;
        Self {
            implementation: "omnes-sim",
            op: point.op.result_name(),
            n: point.ranks,
            bytes: point.bytes,
            iters: point.repeat,
            median_us: us(summary.median_us),
            p99_us: us(summary.p99_us),
            min_us: us(summary.min_us),
            mean_us: us(summary.mean_us),
            errors: 0,
            algorithm: &measured.algorithm,
            megabytes_per_s: megabytes_per_s(measured),
            per_s: (point.op == Op::Throughput).then(|| rounded(1e6 / summary.median_us, 1e1)),
            packets: count(measured.packets),
            wire_bytes: count(measured.wire_bytes),
            copied_bytes: None,
            syscalls: None,
            wakeups: None,
            retransmits: count(measured.retransmits),
            at_root: measured.at_root.map(|root| AtRoot {
                packets: count(root.packets),
                repairs: count(root.repairs),
                acks: count(root.acks),
                nacks: count(root.nacks),
            }),
            skew_us: (point.op == Op::Skew).then(|| point.skew.as_nanos() as f64 / 1e3),
            root_us: measured.root_us.map(us),
            testbed: &config.testbed.name,
            network: point.network.to_string(),
            carrier: point.carrier.to_string(),
            loss: f64::from(point.loss.0) / 1e6,
            root: point.root,
            seed: point.seed,
            lambda: measured.postal.map(lambda),
            lost: measured.lost,
            dropped_by_switches: measured.dropped_by_switches,
            dropped_by_hosts: measured.dropped_by_hosts,
            events: measured.events,
            hash: format!("{:016x}", measured.hash),
        }
    }

    /// The line as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// As in `omnes bench`: payload per time, in millions of bytes per second.
fn megabytes_per_s(measured: &Measured) -> Option<f64> {
    let point = &measured.point;
    let has_rate = point.op == Op::Bandwidth || point.op.is_broadcast() && point.op != Op::Skew;
    let is_rate = has_rate && point.bytes > 0;
    is_rate.then(|| rounded(point.bytes as f64 / measured.summary.median_us, 1e3))
}

/// Whether a column may be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    /// A value of an axis, shown only if there are several.
    Axis,
    /// A figure, or the measured operation.
    Figure,
}

/// The lines as a table.
pub fn table(lines: &[Line<'_>]) -> comfy_table::Table {
    let rows: Vec<_> = lines.iter().map(row).collect();
    let shown = |at: usize| {
        let cells = || rows.iter().map(|row| row[at].2.as_str());
        let first = cells().next().unwrap_or_default();
        match rows[0][at].1 {
            Column::Axis => cells().any(|cell| cell != first),
            Column::Figure => cells().any(|cell| !cell.is_empty()),
        }
    };
    let columns = rows.first().map_or(0, |row| row.len());
    let kept: Vec<usize> = (0..columns).filter(|at| shown(*at)).collect();
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(kept.iter().map(|at| rows[0][*at].0));
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    for row in &rows {
        table.add_row(kept.iter().map(|at| row[*at].2.as_str()));
    }
    table
}

fn row(line: &Line<'_>) -> [(&'static str, Column, String); 22] {
    use Column::{Axis, Figure};
    let optional = |value: Option<f64>| value.map(significant).unwrap_or_default();
    let at_root = |value: fn(&AtRoot) -> f64| optional(line.at_root.as_ref().map(value));
    let is_barrier = line.op == Op::Barrier.name();
    let lost = line.lost + line.dropped_by_switches + line.dropped_by_hosts;
    let skew = |us: f64| short_time(std::time::Duration::from_nanos((us * 1e3).round() as u64));
    [
        ("op", Figure, line.op.to_owned()),
        ("algorithm", Figure, line.algorithm.to_owned()),
        ("ranks", Figure, line.n.to_string()),
        ("network", Axis, line.network.clone()),
        ("carrier", Axis, line.carrier.clone()),
        ("loss", Axis, crate::units::format_share(line.loss)),
        ("root", Axis, line.root.to_string()),
        ("skew", Figure, line.skew_us.map(skew).unwrap_or_default()),
        ("size", Figure, if is_barrier { String::new() } else { format_bytes(line.bytes) }),
        ("seed", Axis, line.seed.to_string()),
        ("iters", Figure, line.iters.to_string()),
        ("median us", Figure, significant(line.median_us)),
        ("p99 us", Figure, significant(line.p99_us)),
        ("min us", Figure, significant(line.min_us)),
        ("mean us", Figure, significant(line.mean_us)),
        ("MB/s", Figure, optional(line.megabytes_per_s)),
        ("per s", Figure, optional(line.per_s)),
        ("root us", Figure, optional(line.root_us)),
        ("root data", Figure, at_root(|root| root.packets)),
        ("root acks", Figure, at_root(|root| root.acks)),
        ("packets", Figure, significant(line.packets)),
        ("resent, lost", Figure, format!("{}, {lost}", significant(line.retransmits))),
    ]
}
