//! Results as lines for programs or as a table for people.
//!
//! Field names carry units and are stable. Times are rounded to nanoseconds, costs to hundredths.

use super::counts::{AtRoot, PerOperation};
use super::measure::Measured;
use super::options::{Direction, Op};
use crate::units::{format_bytes, short_time};
use crate::units::{rounded, significant};
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// Data common to all lines of a run.
pub struct Run {
    /// Name of the measured implementation.
    pub implementation: String,
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Fields that the user adds to every line.
    pub tags: Map<String, Value>,
}

/// One measured point, as printed.
#[derive(Serialize)]
pub struct Line<'run> {
    #[serde(rename = "impl")]
    implementation: &'run str,
    op: &'static str,
    n: u32,
    bytes: u64,
    iters: u64,
    median_us: Option<f64>,
    p99_us: Option<f64>,
    min_us: Option<f64>,
    mean_us: Option<f64>,
    errors: u64,
    algorithm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    destinations: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compute_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overall_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_percent: Option<f64>,
    #[serde(rename = "MBps", skip_serializing_if = "Option::is_none")]
    megabytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_s: Option<f64>,
    #[serde(flatten)]
    costs: PerOperation,
    #[serde(flatten)]
    at_root: Option<AtRoot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_us: Option<f64>,
    #[serde(flatten)]
    tags: &'run Map<String, Value>,
}

impl<'run> Line<'run> {
    /// Creates the line of one point.
    pub fn new(run: &'run Run, measured: &Measured) -> Self {
        let point = measured.point;
        let time = |value: fn(&super::summary::Summary) -> f64| {
            measured.summary.as_ref().map(|summary| rounded(value(summary), 1e3))
        };
        Self {
            implementation: &run.implementation,
            op: point.op.name(point.direction),
            n: run.ranks,
            bytes: point.bytes as u64,
            iters: measured.iters,
            median_us: time(|summary| summary.median_us),
            p99_us: time(|summary| summary.p99_us),
            min_us: time(|summary| summary.min_us),
            mean_us: time(|summary| summary.mean_us),
            errors: measured.errors,
            algorithm: match &measured.form {
                Some(form) => format!("{}@{form}", point.algorithm),
                None => point.algorithm.to_string(),
            },
            destinations: (point.op == Op::Multisend).then_some(point.destinations),
            compute_us: measured.overlap.map(|overlap| rounded(overlap.compute_us, 1e3)),
            overall_us: measured.overlap.map(|overlap| rounded(overlap.overall_us, 1e3)),
            overlap_percent: measured.overlap.map(|overlap| rounded(overlap.percent, 1e1)),
            megabytes_per_s: megabytes_per_s(measured),
            per_s: per_s(measured),
            costs: measured.costs.rounded(),
            at_root: measured.at_root.map(AtRoot::rounded),
            skew_us: (point.op == Op::Skew).then(|| point.skew.as_nanos() as f64 / 1e3),
            root_us: measured.root_us.map(|us| rounded(us, 1e3)),
            late: measured.window.map(|window| rounded(window.late, 1e3)),
            window_us: measured.window.map(|window| window.window_us),
            tags: &run.tags,
        }
    }

    /// The line as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

impl PerOperation {
    fn rounded(self) -> Self {
        let round = |value| rounded(value, 1e2);
        Self {
            packets: round(self.packets),
            wire_bytes: round(self.wire_bytes),
            copied_bytes: round(self.copied_bytes),
            syscalls: round(self.syscalls),
            wakeups: round(self.wakeups),
            retransmits: round(self.retransmits),
        }
    }
}

impl AtRoot {
    fn rounded(self) -> Self {
        let round = |value| rounded(value, 1e2);
        Self {
            packets: round(self.packets),
            repairs: round(self.repairs),
            acks: round(self.acks),
            nacks: round(self.nacks),
        }
    }
}

/// Payload per time, in millions of bytes per second, for operations that send messages with data.
/// For a broadcast it is what each rank receives, not the sum; both directions are added up.
fn megabytes_per_s(measured: &Measured) -> Option<f64> {
    let point = measured.point;
    let has_rate = matches!(point.op, Op::Bandwidth | Op::Copy)
        || point.op.is_broadcast() && point.op != Op::Skew;
    let is_rate = has_rate && point.bytes > 0;
    let median_us = measured.summary.filter(|_| is_rate)?.median_us;
    Some(rounded(point.bytes as f64 / median_us, 1e3))
}

/// Broadcasts per second at the slowest rank, for back-to-back broadcasts.
fn per_s(measured: &Measured) -> Option<f64> {
    let is_stream = measured.point.op == Op::Throughput;
    let median_us = measured.summary.filter(|_| is_stream)?.median_us;
    Some(rounded(1e6 / median_us, 1e1))
}

/// Cells of a line in the table, each with the header of its column.
pub type Row = [(&'static str, String); 23];

/// The lines as a table; units are in the header, costs are per operation and summed over ranks. A
/// column that is empty in all lines is left out.
pub fn table(rows: &[Row]) -> comfy_table::Table {
    let columns = rows.first().map_or(0, |row| row.len());
    let is_shown = |at: &usize| rows.iter().any(|row| !row[*at].1.is_empty());
    let shown: Vec<usize> = (0..columns).filter(is_shown).collect();
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(shown.iter().map(|at| rows[0][*at].0));
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    for row in rows {
        table.add_row(shown.iter().map(|at| &row[*at].1));
    }
    table
}

/// A line as a row of the table.
pub fn row(line: &Line<'_>) -> Row {
    let time = |us: Option<f64>| us.map_or_else(|| "late".to_owned(), significant);
    let costs = &line.costs;
    let skew = line.skew_us.map(|us| Duration::from_nanos((us * 1e3) as u64));
    let at_root = |value: fn(&AtRoot) -> f64| {
        line.at_root.as_ref().map(|root| significant(value(root))).unwrap_or_default()
    };
    let op = match (skew, line.destinations) {
        (Some(skew), _) => format!("skew={}", short_time(skew)),
        (None, Some(destinations)) => format!("{}={destinations}", line.op),
        (None, None) => line.op.to_owned(),
    };
    let size = if line.op == Op::Barrier.name(Direction::Forth) {
        String::new()
    } else {
        format_bytes(line.bytes)
    };
    let optional = |value: Option<f64>| value.map(significant).unwrap_or_default();
    [
        ("op", op),
        ("algorithm", line.algorithm.clone()),
        ("size", size),
        ("iters", line.iters.to_string()),
        ("median us", time(line.median_us)),
        ("p99 us", time(line.p99_us)),
        ("min us", time(line.min_us)),
        ("mean us", time(line.mean_us)),
        ("compute us", optional(line.compute_us)),
        ("overall us", optional(line.overall_us)),
        ("overlap %", optional(line.overlap_percent)),
        ("MB/s", optional(line.megabytes_per_s)),
        ("per s", optional(line.per_s)),
        ("root us", optional(line.root_us)),
        ("root data", at_root(|root| root.packets)),
        ("root acks", at_root(|root| root.acks)),
        ("packets", significant(costs.packets)),
        ("wire", format_bytes(costs.wire_bytes.round() as u64)),
        ("copied", format_bytes(costs.copied_bytes.round() as u64)),
        ("syscalls", significant(costs.syscalls)),
        ("wakeups", significant(costs.wakeups)),
        ("retransmits", significant(costs.retransmits)),
        ("errors", line.errors.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::measure::Window;
    use super::super::options::Algorithm;
    use super::super::overlap::Overlap;
    use super::super::summary::Summary;
    use super::super::transfer::Point;
    use super::*;

    fn run() -> Run {
        let tags = Map::from_iter([("net".to_owned(), Value::from("lab"))]);
        Run { implementation: "omnes".to_owned(), ranks: 8, tags }
    }

    fn measured(op: Op, bytes: usize, window: Option<Window>) -> Measured {
        let (direction, algorithm) = (Direction::Forth, Algorithm::Default);
        let skew = Duration::from_micros(if op == Op::Skew { 400 } else { 0 });
        let (destinations, multisend) = (7, None);
        let point = Point { op, direction, bytes, algorithm, skew, destinations, multisend };
        let costs = PerOperation { packets: 14.0 / 3.0, ..PerOperation::default() };
        let summary = Summary::of(&[1_000_000], 1);
        let at_root = AtRoot { packets: 1.0, acks: 2.0 / 3.0, ..AtRoot::default() };
        let at_root = op.is_broadcast().then_some(at_root);
        let root_us = (op == Op::Skew).then_some(12.3456);
        let form = (op == Op::Multisend).then(|| "flat:nic".to_owned());
        let overlap = Overlap { compute_us: 900.0, overall_us: 1234.5678, percent: 66.5432 };
        let overlap = op.is_nonblocking().then_some(overlap);
        let (iters, errors) = (1, 0);
        Measured { point, iters, summary, overlap, costs, at_root, root_us, form, errors, window }
    }

    #[test]
    fn json_line_has_the_common_fields_own_fields_and_tags() {
        let run = run();
        let text = Line::new(&run, &measured(Op::Bcast, 1_000_000, None)).to_json().unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        for field in ["median_us", "p99_us", "min_us", "mean_us", "wire_bytes", "copied_bytes"] {
            assert!(line[field].is_number(), "{field} in {text}");
        }
        assert_eq!((&line["impl"], &line["op"]), (&Value::from("omnes"), &Value::from("bcast")));
        assert_eq!((&line["n"], &line["net"]), (&Value::from(8), &Value::from("lab")));
        assert_eq!(line["packets"], Value::from(4.67));
        assert!((line["MBps"].as_f64().unwrap() - 1000.0).abs() < 1.0, "{text}");
        assert!(line.get("late").is_none());
    }

    #[test]
    fn barriers_omit_the_rate_and_windowed_starts_report_the_late_share() {
        let run = run();
        let barrier = Line::new(&run, &measured(Op::Barrier, 0, None)).to_json().unwrap();
        assert!(!barrier.contains("MBps"), "{barrier}");
        let window = Window { late: 0.25, window_us: 200.0 };
        let started = Line::new(&run, &measured(Op::Wbcast, 8, Some(window))).to_json().unwrap();
        assert!(started.contains("\"op\":\"bcast_window\""), "{started}");
        assert!(started.contains("\"late\":0.25,\"window_us\":200.0"), "{started}");
    }

    #[test]
    fn broadcasts_report_root_counts_and_streams_their_rate() {
        let run = run();
        let text = Line::new(&run, &measured(Op::Throughput, 8, None)).to_json().unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        assert!((line["per_s"].as_f64().unwrap() - 1000.0).abs() < 1.0, "{text}");
        assert_eq!(line["root_packets"], Value::from(1.0));
        assert_eq!(line["root_acks"], Value::from(0.67));
        let barrier = Line::new(&run, &measured(Op::Barrier, 0, None)).to_json().unwrap();
        assert!(!barrier.contains("root_") && !barrier.contains("per_s"), "{barrier}");
    }

    #[test]
    fn skewed_broadcasts_report_their_skew_and_the_root_time() {
        let run = run();
        let line = Line::new(&run, &measured(Op::Skew, 8, None));
        let text = line.to_json().unwrap();
        assert!(text.contains("\"skew_us\":400.0,\"root_us\":12.346"), "{text}");
        assert!(!text.contains("MBps"), "{text}");
        let table = table(&[row(&line)]).to_string();
        assert!(table.contains("skew=400us") && table.contains("12.3"), "{table}");
    }

    #[test]
    fn multisends_report_their_form_and_number_of_destinations() {
        let run = run();
        let line = Line::new(&run, &measured(Op::Multisend, 8, None));
        let text = line.to_json().unwrap();
        assert!(text.contains("\"algorithm\":\"default@flat:nic\",\"destinations\":7"), "{text}");
        assert!(!text.contains("MBps"), "{text}");
        let table = table(&[row(&line)]).to_string();
        assert!(table.contains("multisend=7") && table.contains("@flat:nic"), "{table}");
        let barrier = Line::new(&run, &measured(Op::Barrier, 0, None)).to_json().unwrap();
        assert!(!barrier.contains("destinations") && !barrier.contains('@'), "{barrier}");
    }

    #[test]
    fn nonblocking_report_lines_include_the_overlap() {
        let run = run();
        let line = Line::new(&run, &measured(Op::Ibcast, 8, None));
        let text = line.to_json().unwrap();
        let fields = "\"compute_us\":900.0,\"overall_us\":1234.568,\"overlap_percent\":66.5";
        assert!(text.contains(fields) && text.contains("\"op\":\"ibcast\""), "{text}");
        let text = table(&[row(&line)]).to_string();
        assert!(text.contains("overlap %") && text.contains("66.5"), "{text}");
        let bcast = Line::new(&run, &measured(Op::Bcast, 8, None)).to_json().unwrap();
        assert!(!bcast.contains("overlap") && !bcast.contains("compute"), "{bcast}");
    }

    #[test]
    fn table_shows_human_readable_sizes() {
        let run = run();
        let lines = [
            row(&Line::new(&run, &measured(Op::Bcast, 64 << 10, None))),
            row(&Line::new(&run, &measured(Op::Barrier, 0, None))),
        ];
        let text = table(&lines).to_string();
        assert!(text.contains("median us") && text.contains("64 KiB"), "{text}");
        assert_eq!(text.lines().count(), 3);
        assert!(!text.contains("per s") && text.contains("root acks"), "{text}");
        let barrier = table(&lines[1..]).to_string();
        assert!(!barrier.contains("size") && !barrier.contains("root"), "{barrier}");
    }
}
