//! `omnes lab list`: labs that are up, their links and the counters of their hosts.

use super::Lab;
use super::named;
use super::namespace::require_privilege;
use super::options::Link;
use super::stats::HostStats;
use crate::format::Format;
use crate::print;
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::net::IpAddr;

/// One lab.
#[derive(Serialize)]
struct Row {
    name: String,
    /// Why the other fields are missing, for a damaged lab.
    error: Option<String>,
    link: Option<Link>,
    hosts: Vec<HostRow>,
}

#[derive(Serialize)]
struct HostRow {
    host: usize,
    ipv4: IpAddr,
    ipv6: IpAddr,
    #[serde(flatten)]
    stats: HostStats,
}

/// Prints all labs to standard output.
pub fn show(format: Format) -> Result<()> {
    require_privilege()?;
    let rows: Vec<_> = named::names().into_iter().map(row).collect();
    match format {
        Format::Json => print::line(serde_json::to_string_pretty(&rows)?),
        Format::Table if rows.is_empty() => print::line("no lab is up"),
        Format::Table => print::text(&rows.iter().map(text_of).collect::<String>()),
    }
    .map(drop)
}

fn row(name: String) -> Row {
    let read = || -> Result<(Link, Vec<HostRow>)> {
        let lab = Lab::open(&name)?;
        let hosts = lab.stats()?.into_iter().enumerate().map(|(host, stats)| HostRow {
            host,
            ipv4: lab.address(host, false),
            ipv6: lab.address(host, true),
            stats,
        });
        Ok((lab.link(), hosts.collect()))
    };
    match read() {
        Ok((link, hosts)) => Row { name, error: None, link: Some(link), hosts },
        Err(error) => {
            Row { name, error: Some(format!("{error:#}")), link: None, hosts: Vec::new() }
        }
    }
}

/// One line, and a table of the hosts unless the lab is damaged.
fn text_of(row: &Row) -> String {
    let Some(link) = &row.link else {
        return format!("lab {}: {}\n", row.name, row.error.as_deref().unwrap_or("unknown"));
    };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "host",
        "address",
        "tx packets",
        "tx bytes",
        "rx packets",
        "rx bytes",
        "dropped",
        "duplicated",
        "delayed",
        "reordered",
        "receive dropped",
        "queue drops",
    ]);
    for HostRow { host, ipv4, stats, .. } in &row.hosts {
        let numbers = [
            stats.tx_packets,
            stats.tx_bytes,
            stats.rx_packets,
            stats.rx_bytes,
            stats.dropped,
            stats.duplicated,
            stats.delayed,
            stats.reordered,
            stats.receive_dropped,
            stats.hold_dropped + stats.queue_dropped,
        ];
        let cells = [host.to_string(), ipv4.to_string()];
        table.add_row(cells.into_iter().chain(numbers.map(|number| number.to_string())));
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("lab {}: {} hosts, links: {link}\n{table}\n", row.name, row.hosts.len())
}
