//! Figures, the choices that follow from them, and the measurements: for people or for programs.

use crate::format::Format;
use crate::print;
use crate::units::{format_bytes, format_us};
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use omnes::tune::{Candidate, Cost, Effort, Entry, Figures, Hop, Measured, Network};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Choices are reported for messages up to this size.
const BYTES_MAX: u64 = 1 << 40;

/// Results for one network.
#[derive(Serialize)]
pub struct Report<'entry> {
    omnes_version: &'static str,
    network: &'entry Network,
    effort: Effort,
    measured_unix_s: u64,
    /// Reason why no job uses the entry here, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused: Option<&'static str>,
    /// Number of measurements that `figures` are the medians of.
    measurements: usize,
    figures: &'entry Figures,
    /// Algorithm by message size.
    ranges: Vec<Range>,
    /// Measured times, if measured now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<Size>,
    /// Hops of multi-sends, if they were measured now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hops: Vec<HopLine>,
}

/// A hop of a multi-send, for one size of message.
#[derive(Serialize)]
struct HopLine {
    bytes: u64,
    send_ns: u64,
    transmit_ns: u64,
    receive_ns: u64,
    half_trip_ns: u64,
    /// The hop in units of `transmit_ns`.
    lambda: f64,
    /// Tree with which all nodes receive the message first.
    tree: String,
}

#[derive(Serialize)]
struct Range {
    from_bytes: u64,
    algorithm: Candidate,
}

/// One size, all algorithms.
#[derive(Serialize)]
struct Size {
    bytes: u64,
    chosen: Candidate,
    times: Vec<Time>,
}

#[derive(Serialize)]
struct Time {
    algorithm: Candidate,
    /// Lower quartile of the samples.
    measured_ns: u64,
    /// Prediction of the model.
    model_ns: u64,
    samples: usize,
}

impl<'entry> Report<'entry> {
    /// Report on `entry`, with the times that it is based on, if they are known.
    pub fn new(entry: &'entry Entry, measured: &[Measured]) -> Self {
        let Entry { network, figures, effort, measured_unix_s, .. } = entry;
        let candidates =
            if network.has_multicast { &Candidate::ALL[..] } else { &Candidate::TREES };
        let ranges = figures.ranges(candidates, network.ranks, BYTES_MAX).into_iter();
        let mut sizes: Vec<u64> = measured.iter().map(|it| it.point.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let time = |it: &Measured| Time {
            algorithm: it.candidate,
            measured_ns: it.point.time_ns,
            model_ns: figures
                .time_ns(it.candidate, network.ranks, it.point.bytes)
                .unwrap_or_default(),
            samples: it.times,
        };
        let size = |bytes| Size {
            bytes,
            chosen: figures.best(candidates, network.ranks, bytes),
            times: measured.iter().filter(|it| it.point.bytes == bytes).map(time).collect(),
        };
        Self {
            omnes_version: env!("CARGO_PKG_VERSION"),
            network,
            effort: *effort,
            measured_unix_s: *measured_unix_s,
            unused: entry.unused(),
            measurements: entry.measurements(),
            figures,
            ranges: ranges.map(|(from_bytes, algorithm)| Range { from_bytes, algorithm }).collect(),
            sizes: sizes.into_iter().map(size).collect(),
            hops: Vec::new(),
        }
    }

    /// Adds hops, and the trees that follow from them for the network's nodes.
    pub fn with_hops(mut self, hops: &[Hop]) -> Self {
        let line = |hop: &Hop| HopLine {
            bytes: hop.bytes,
            send_ns: hop.send_ns,
            transmit_ns: hop.transmit_ns,
            receive_ns: hop.receive_ns,
            half_trip_ns: hop.half_trip_ns,
            lambda: f64::from(hop.lambda().thousandths()) / 1e3,
            tree: hop.tree(self.network.nodes).map(|tree| tree.to_string()).unwrap_or_default(),
        };
        self.hops = hops.iter().map(line).collect();
        self
    }

    /// Prints to standard output.
    pub fn print(&self, format: Format) -> Result<()> {
        let text = match format {
            Format::Table => self.text(),
            Format::Json => serde_json::to_string(self)? + "\n",
        };
        print::text(&text).map(drop)
    }

    fn text(&self) -> String {
        let effort = match (self.effort, self.measurements) {
            (Effort::Quick, 1) => "quickly, at the start of a job,".to_owned(),
            (Effort::Quick, jobs) => format!("quickly, at the start of {jobs} jobs, the last"),
            (Effort::Thorough, _) => "by omnes tune,".to_owned(),
        };
        let age = age(self.measured_unix_s);
        let mut text = format!("# {}\n# measured {effort} {age}\n", self.network);
        if let Some(reason) = self.unused {
            text += &format!("# not used: {reason}\n");
        }
        text += &format!("{}\n\n", self.costs());
        if !self.sizes.is_empty() {
            text += &format!("{}\n\n", self.times());
        }
        if !self.hops.is_empty() {
            text += &format!("{}\n\n", self.hop_table());
        }
        if let Some(thousandths) = self.figures.lambda_thousandths {
            text += &format!("multi-send: lambda {:.3}\n", f64::from(thousandths) / 1e3);
        }
        for Range { from_bytes, algorithm } in &self.ranges {
            text += &format!("from {:>9}: {algorithm}\n", format_bytes(*from_bytes));
        }
        text + "\n"
    }

    fn costs(&self) -> Table {
        let mut table = table(&["algorithm", "us/level", "ns/byte/level", "ns/byte pipelined"]);
        for candidate in Candidate::ALL {
            let Some(cost) = self.figures.cost(candidate) else { continue };
            let Cost { level_ns, level_byte_ps, stream_byte_ps } = cost;
            let thousandth = |value: u64| format!("{:.3}", value as f64 / 1e3);
            let figures = [level_ns, level_byte_ps, stream_byte_ps].map(thousandth);
            table.add_row([candidate.name().to_owned()].into_iter().chain(figures));
        }
        table
    }

    fn hop_table(&self) -> Table {
        let header = [
            "multi-send",
            "send us",
            "transmit us",
            "receive us",
            "half trip us",
            "lambda",
            "tree",
        ];
        let mut table = table(&header);
        let us = |ns| format_us(Duration::from_nanos(ns));
        for hop in &self.hops {
            let times = [hop.send_ns, hop.transmit_ns, hop.receive_ns, hop.half_trip_ns].map(us);
            let row = [format_bytes(hop.bytes)].into_iter().chain(times);
            table.add_row(row.chain([format!("{:.3}", hop.lambda), hop.tree.clone()]));
        }
        table
    }

    fn times(&self) -> Table {
        let candidates: Vec<Candidate> =
            self.sizes[0].times.iter().map(|time| time.algorithm).collect();
        let columns = candidates.iter().map(|candidate| format!("{candidate} us"));
        let header: Vec<_> =
            ["size".to_owned()].into_iter().chain(columns).chain(["chosen".to_owned()]).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut table = table(&header);
        let us = |ns| format_us(Duration::from_nanos(ns));
        for size in &self.sizes {
            let times = size.times.iter();
            let times = times.map(|it| format!("{} ({})", us(it.measured_ns), us(it.model_ns)));
            let row = [format_bytes(size.bytes)].into_iter().chain(times);
            table.add_row(row.chain([size.chosen.to_string()]));
        }
        table
    }
}

/// A table whose first column is aligned to the left, all others to the right.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Formats the time since `unix_s`.
fn age(unix_s: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match now.saturating_sub(unix_s) {
        0..60 => "just now".to_owned(),
        s @ 60..7200 => format!("{} minutes ago", s / 60),
        s @ 7200..172_800 => format!("{} hours ago", s / 3600),
        s => format!("{} days ago", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes::tune::Point;

    fn entry() -> Entry {
        let network = Network {
            version: "0.1.0".to_owned(),
            machine: "0123456789abcdef".to_owned(),
            name: Some("lab".to_owned()),
            prefix: "10.77.0.0/16".to_owned(),
            payload_bytes: 1416,
            ranks: 8,
            nodes: 8,
            is_oversubscribed: false,
            has_multicast: false,
            multisend: None,
        };
        let cost = Cost { level_ns: 25_000, level_byte_ps: 850, stream_byte_ps: 800 };
        let (binomial, chain, lambda_thousandths) = (cost, cost, None);
        let figures = Figures { multicast: None, binomial, chain, lambda_thousandths };
        Entry { measured_unix_s: 0, ..Entry::new(network, figures, Effort::Thorough) }
    }

    fn measured() -> Vec<Measured> {
        let point = |candidate, bytes, time_ns| Measured {
            candidate,
            point: Point { bytes, time_ns },
            times: 9,
        };
        vec![
            point(Candidate::Binomial, 8, 76_540),
            point(Candidate::Binomial, 4 << 20, 10_000_000),
            point(Candidate::Chain, 8, 180_000),
            point(Candidate::Chain, 4 << 20, 4_000_000),
        ]
    }

    #[test]
    fn text_report_shows_figures_times_and_choices() {
        let text = Report::new(&entry(), &measured()).text();
        let network = "# lab 10.77.0.0/16, 8 ranks on 8 nodes, 1416 bytes per packet, no multicast";
        assert!(text.starts_with(network), "{text}");
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let has = |row: &[&str]| words.iter().any(|words| words == row);
        assert!(has(&["binomial", "25.000", "0.850", "0.800"]), "{text}");
        assert!(has(&["size", "binomial", "us", "chain", "us", "chosen"]), "{text}");
        assert!(has(&["8", "B", "76.5", "(75.0)", "180", "(175)", "binomial"]), "{text}");
        assert!(has(&["from", "0", "B:", "binomial"]), "{text}");
        assert!(words.iter().any(|words| words.last() == Some(&"chain")), "{text}");
        let kept = Report::new(&entry(), &[]).text();
        assert!(!kept.contains("chosen") && kept.contains("from       0 B: binomial"), "{kept}");
        let quick = Entry { effort: Effort::Quick, ..entry() };
        assert!(Report::new(&quick, &[]).text().contains("at the start of a job, "));
        let several = Entry { rounds: vec![quick.figures; 3], ..quick };
        let text = Report::new(&several, &[]).text();
        assert!(text.contains("measured quickly, at the start of 3 jobs, the last "), "{text}");
    }

    #[test]
    fn hops_are_reported_with_lambda_and_tree() {
        let mut entry = entry();
        entry.network.has_multicast = true;
        entry.network.multisend = Some("auto:nic".to_owned());
        entry.figures.lambda_thousandths = Some(5_000);
        let hop = Hop {
            bytes: 1416,
            packets: 1,
            send_ns: 5_000,
            transmit_ns: 4_000,
            receive_ns: 11_000,
            half_trip_ns: 20_000,
        };
        let report = Report::new(&entry, &measured()).with_hops(&[hop]);
        let text = report.text();
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let tree = hop.tree(8).unwrap().to_string();
        let row = ["1.4", "KiB", "5.00", "4.00", "11.0", "20.0", "5.000", &tree];
        assert!(words.iter().any(|words| words == &row), "{text}");
        assert!(text.contains("\nmulti-send: lambda 5.000\n"), "{text}");
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(value["hops"][0]["lambda"], 5.0);
        assert_eq!(value["hops"][0]["transmit_ns"], 4_000);
        assert_eq!(value["figures"]["lambda_thousandths"], 5_000);
        let without = serde_json::to_value(Report::new(&entry, &[])).unwrap();
        assert!(without.get("hops").is_none(), "{without}");
    }

    #[test]
    fn json_report_has_the_same_data_with_units_in_field_names() {
        let report = serde_json::to_value(Report::new(&entry(), &measured())).unwrap();
        assert_eq!(report["figures"]["multicast"], serde_json::Value::Null);
        assert_eq!(report["figures"]["chain"]["level_ns"], 25_000);
        assert_eq!(report["ranges"][0]["algorithm"], "binomial");
        assert_eq!(report["ranges"][1]["algorithm"], "chain");
        assert_eq!(report["sizes"][0]["chosen"], "binomial");
        assert_eq!(report["sizes"][1]["times"][1]["measured_ns"], 4_000_000);
        assert_eq!((&report["effort"], &report["measurements"]), (&"thorough".into(), &1.into()));
    }
}
