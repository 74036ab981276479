//! Tables for people: one row per rank, or one column per rank with every counter.

use super::earlier::Earlier;
use super::job_name;
use crate::units::{format_age, format_bytes};
use comfy_table::{CellAlignment, Table, presets};
use omnes::live::{Life, Snapshot};
use std::time::{Duration, SystemTime};

/// Maximum number of ranks side by side in the table of all counters.
const COLUMNS: usize = 8;

/// Name of a state, the same in all formats.
pub fn state(life: Life) -> &'static str {
    match life {
        Life::Running => "running",
        Life::Silent => "silent",
        Life::Dead => "dead",
    }
}

/// One row per rank.
pub fn overview(ranks: &[Snapshot], earlier: &Earlier) -> String {
    let now = SystemTime::now();
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "job",
        "rank",
        "pid",
        "state",
        "age",
        "lasted",
        "packets/s out",
        "bytes/s out",
        "packets/s in",
        "bytes/s in",
        "retransmits",
        "timeouts",
        "wakeups",
        "program",
    ]);
    for rank in ranks {
        let rate = |name| earlier.traffic_per_second(rank, name);
        let packets = |name| shown(rate(name).map(|rate| format!("{rate:.0}")));
        let bytes = |name| shown(rate(name).map(|rate| format_bytes(rate.round() as u64)));
        let lasted = Duration::from_nanos(rank.updated_ns.saturating_sub(rank.started_ns));
        table.add_row([
            job_name(rank.job),
            format!("{}/{}", rank.rank, rank.size),
            rank.pid.to_string(),
            state(rank.life).to_owned(),
            format_age(rank.age(now)),
            format_age(lasted),
            packets("packets_sent"),
            bytes("bytes_sent"),
            packets("packets_received"),
            bytes("bytes_received"),
            sum(rank, &["retransmits", "repairs_by_unicast", "repairs_by_multicast"]),
            sum(rank, &["timeouts", "bcast_timeouts"]),
            sum(rank, &["wakeups"]),
            rank.command.clone(),
        ]);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    let rates = if earlier.is_empty() {
        "mean rates since the start of each"
    } else {
        "rates since the last look"
    };
    format!("{}; {rates}\n{table}", summary(ranks))
}

/// Every counter, one column per rank, grouped by job.
pub fn all_counters(ranks: &[Snapshot]) -> String {
    let mut text = summary(ranks);
    for of_job in ranks.chunk_by(|one, other| one.job == other.job) {
        text += &format!("\n\njob {}", job_name(of_job[0].job));
        for some in of_job.chunks(COLUMNS) {
            text += &format!("\n{}", grid(some));
        }
    }
    text
}

fn grid(ranks: &[Snapshot]) -> Table {
    let now = SystemTime::now();
    let mut table = Table::new();
    let row = |name: &str, cell: &dyn Fn(&Snapshot) -> String| {
        std::iter::once(name.to_owned()).chain(ranks.iter().map(cell)).collect::<Vec<_>>()
    };
    table.load_preset(presets::NOTHING);
    table.set_header(row("rank", &|rank| rank.rank.to_string()));
    table.add_row(row("pid", &|rank| rank.pid.to_string()));
    table.add_row(row("program", &|rank| rank.command.clone()));
    table.add_row(row("host", &|rank| rank.host.clone()));
    table.add_row(row("state", &|rank| state(rank.life).to_owned()));
    table.add_row(row("age", &|rank| format_age(rank.age(now))));
    for name in names(ranks) {
        let value = |rank: &Snapshot| shown(rank.counter(name).map(|value| value.to_string()));
        table.add_row(row(name, &value));
    }
    let values = table.column_iter_mut().skip(1);
    values.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// Names of all counters that any of the ranks has, in their order.
fn names(ranks: &[Snapshot]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in ranks.iter().flat_map(|rank| &rank.counters) {
        // Ranks of one version have the same names, so this mostly checks one name.
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn summary(ranks: &[Snapshot]) -> String {
    let jobs = ranks.chunk_by(|one, other| one.job == other.job).count();
    let dead = ranks.iter().filter(|rank| rank.life == Life::Dead).count();
    let count = |number: usize, name: &str| match number {
        1 => format!("1 {name}"),
        _ => format!("{number} {name}s"),
    };
    let dead = match dead {
        0 => String::new(),
        dead => format!(", {dead} dead (omnes stat --clean forgets them)"),
    };
    format!("{} of {}{dead}", count(ranks.len(), "rank"), count(jobs, "job"))
}

/// Sum of the given counters that the rank has, if it has any of them.
fn sum(rank: &Snapshot, counters: &[&str]) -> String {
    let values = counters.iter().filter_map(|counter| rank.counter(counter));
    shown(values.reduce(u64::saturating_add).map(|sum| sum.to_string()))
}

fn shown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::earlier::tests::rank;
    use super::*;

    #[test]
    fn row_shows_rates_and_counts_and_a_dash_for_missing_values() {
        let text = overview(&[rank(0, 3, 100)], &Earlier::default());
        let mut lines = text.lines();
        let start = "1 rank of 1 job; mean rates since the start of each";
        assert_eq!(lines.next(), Some(start));
        let row = lines.nth(1).unwrap_or_default();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words[..4], ["00000001", "0/4", "100", "running"]);
        assert_eq!(words[words.len() - 8..], ["50", "-", "-", "-", "-", "-", "-", "program"]);
    }

    #[test]
    fn packet_rates_add_network_and_shared_memory() {
        let mut rank = rank(0, 3, 100);
        rank.counters.push(("shm_packets_sent".to_owned(), 10));
        let text = overview(&[rank], &Earlier::default());
        let words: Vec<_> = text.lines().nth(2).unwrap_or_default().split_whitespace().collect();
        assert_eq!(words[words.len() - 8], "55", "{text}");
    }

    #[test]
    fn every_counter_has_a_row_and_every_rank_a_column() {
        let mut ranks: Vec<_> = (0..10).map(|number| rank(number, 3, u64::from(number))).collect();
        ranks[9].life = Life::Dead;
        ranks[9].counters.push(("new".to_owned(), 77));
        let text = all_counters(&ranks);
        assert!(text.starts_with("10 ranks of 1 job, 1 dead"), "{text}");
        let rows: Vec<Vec<_>> = text
            .lines()
            .filter(|line| line.trim_start().starts_with("packets_sent"))
            .map(|line| line.split_whitespace().skip(1).collect())
            .collect();
        let first = ["0", "1", "2", "3", "4", "5", "6", "7"];
        assert_eq!(rows, [&first[..], &["8", "9"]]);
        let new = text.lines().find(|line| line.trim_start().starts_with("new"));
        assert!(new.is_some_and(|line| line.split_whitespace().eq(["new", "-", "77"])), "{text}");
    }
}
