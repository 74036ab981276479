//! `omnes nic stat`: the firmware's counters for each slot that the agent has lent.

use super::survey;
use crate::format::Format;
use crate::print::{self, Reader};
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use omnes_nic::agent::{Report, SlotReport};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Clears a terminal and moves to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Counters shown after the rates, with the names of their columns.
const COUNTERS: [(&str, &str); 8] = [
    ("repeated", "again"),
    ("duplicates", "twice"),
    ("ignored", "useless"),
    ("nonsense", "nonsense"),
    ("bad_tags", "bad tag"),
    ("wakes", "wakes"),
    ("clones", "clones"),
    ("clone_failures", "failed"),
];

/// Prints counters to standard output, once or repeatedly.
pub fn show(watch: Option<Duration>, format: Format) -> Result<()> {
    let mut earlier: BTreeMap<Key, SlotReport> = BTreeMap::new();
    loop {
        let report = survey::report()?;
        let text = match format {
            Format::Json => lines(&report)?,
            Format::Table => page(watch.is_some(), &report, &earlier),
        };
        let reader = print::text(&text)?;
        let Some(interval) = watch.filter(|_| reader == Reader::Listens) else { return Ok(()) };
        earlier = report.slots.into_iter().map(|slot| (key(&slot), slot)).collect();
        std::thread::sleep(interval);
    }
}

/// Identifies a slot of one owner, as opposed to a later one in its place.
type Key = (u32, i32, u32, u32);

fn key(slot: &SlotReport) -> Key {
    (slot.slot, slot.pid, slot.job, slot.communicator)
}

/// One JSON object per slot.
fn lines(report: &Report) -> Result<String> {
    let mut text = String::new();
    for slot in &report.slots {
        text += &serde_json::to_string(slot)?;
        text.push('\n');
    }
    Ok(text)
}

fn page(is_watching: bool, report: &Report, earlier: &BTreeMap<Key, SlotReport>) -> String {
    let text = if report.slots.is_empty() {
        nothing(report)
    } else {
        table(&report.slots, earlier).to_string()
    };
    let is_refreshed = is_watching && io::stdout().is_terminal();
    let start = if is_refreshed { CLEAR } else { "" };
    let end = if is_watching && !is_refreshed { "\n" } else { "" };
    format!("{start}{text}\n{end}")
}

fn nothing(report: &Report) -> String {
    match report.hidden {
        0 => "no slot is lent".to_owned(),
        hidden => format!("no slot of this user is lent, {hidden} to others"),
    }
}

fn table(slots: &[SlotReport], earlier: &BTreeMap<Key, SlotReport>) -> Table {
    let per = if earlier.is_empty() { "" } else { "/s" };
    let rates = ["barriers", "in", "out"].map(|name| format!("{name}{per}"));
    let names = ["slot", "pid", "job", "communicator", "rank", "for"].map(str::to_owned);
    let counters = COUNTERS.map(|(_, column)| column.to_owned());
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(names.into_iter().chain(rates).chain(counters).collect::<Vec<_>>());
    for slot in slots {
        let count = |slot: &SlotReport, name: &str| slot.counters.get(name).copied().unwrap_or(0);
        let before = earlier.get(&key(slot));
        let rate = |value: &dyn Fn(&SlotReport) -> u64| match before {
            _ if earlier.is_empty() => value(slot).to_string(),
            None => "-".to_owned(),
            Some(before) => per_second(
                value(slot).saturating_sub(value(before)),
                slot.age_ns.saturating_sub(before.age_ns),
            ),
        };
        let cells = [
            slot.slot.to_string(),
            slot.pid.to_string(),
            format!("{:08x}", slot.job),
            slot.communicator.to_string(),
            slot.rank.to_string(),
            super::list::form(&slot.form),
            rate(&|slot| u64::from(slot.done)),
            rate(&|slot| count(slot, "packets_in")),
            rate(&|slot| count(slot, "packets_out")),
        ];
        let counters = COUNTERS.map(|(name, _)| count(slot, name).to_string());
        table.add_row(cells.into_iter().chain(counters));
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn per_second(counted: u64, time_ns: u64) -> String {
    match time_ns {
        0 => "-".to_owned(),
        time_ns => format!("{:.0}", counted as f64 * 1e9 / time_ns as f64),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes_nic::agent::Form;

    fn slot(number: u32, done: u32, age_s: u64) -> SlotReport {
        let counters = [("packets_in", u64::from(done) * 3), ("bad_tags", 7)];
        SlotReport {
            slot: number,
            interface: "eth0".to_owned(),
            uid: 1000,
            pid: 100,
            job: 0xab,
            communicator: 2,
            channel: 0,
            rank: 5,
            size: 8,
            form: Form::Barrier("counter".to_owned()),
            socket: "10.0.0.1:5000".parse().unwrap(),
            age_ns: age_s * 1_000_000_000,
            entered: done,
            done,
            counters: counters.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }

    fn words(table: &Table, line: usize) -> Vec<String> {
        let text = table.to_string();
        text.lines().nth(line).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn first_sample_shows_counts_and_the_second_one_rates() {
        let first = table(&[slot(0, 40, 1)], &BTreeMap::new());
        let row = words(&first, 1);
        assert_eq!(row[..9], ["0", "100", "000000ab", "2", "5", "counter", "40", "120", "0"]);
        assert_eq!(row[9..], ["0", "0", "0", "0", "7", "0", "0", "0"]);

        let earlier = BTreeMap::from([(key(&slot(0, 40, 1)), slot(0, 40, 1))]);
        let second = table(&[slot(0, 140, 3), slot(1, 9, 1)], &earlier);
        assert!(words(&second, 0).contains(&"barriers/s".to_owned()));
        assert_eq!(words(&second, 1)[6..9], ["50", "150", "0"]);
        assert_eq!(words(&second, 2)[6..9], ["-", "-", "-"], "a slot that was not there");
    }
}
