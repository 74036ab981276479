//! One JSON object per rank and line.

use super::earlier::Earlier;
use super::{job_name, table};
use omnes::live::Snapshot;
use serde::{Serialize, Serializer};
use std::time::SystemTime;

#[derive(Serialize)]
struct Row<'a> {
    job: String,
    rank: u32,
    size: u32,
    pid: u32,
    host: &'a str,
    command: &'a str,
    state: &'static str,
    started_unix_ns: u64,
    updated_unix_ns: u64,
    age_ns: u64,
    /// True if all counters are of the same instant.
    is_whole: bool,
    /// Interval of the rates; null, and the rates too, if the rank has not published since.
    interval_ns: Option<u64>,
    packets_sent_per_s: Option<f64>,
    bytes_sent_per_s: Option<f64>,
    packets_received_per_s: Option<f64>,
    bytes_received_per_s: Option<f64>,
    #[serde(serialize_with = "as_object")]
    counters: &'a [(String, u64)],
}

/// Serde passes a field by reference, so this takes a reference to a slice.
fn as_object<S: Serializer>(counters: &&[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counters.iter().map(|(name, value)| (name, value)))
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One line for each rank.
pub fn lines(ranks: &[Snapshot], earlier: &Earlier) -> serde_json::Result<String> {
    let (now, mut text) = (SystemTime::now(), String::new());
    for rank in ranks {
        let row = Row {
            job: job_name(rank.job),
            rank: rank.rank,
            size: rank.size,
            pid: rank.pid,
            host: &rank.host,
            command: &rank.command,
            state: table::state(rank.life),
            started_unix_ns: rank.started_ns,
            updated_unix_ns: rank.updated_ns,
            age_ns: nanoseconds(rank.age(now)),
            is_whole: rank.is_whole,
            interval_ns: earlier.interval(rank).map(nanoseconds),
            packets_sent_per_s: earlier.traffic_per_second(rank, "packets_sent"),
            bytes_sent_per_s: earlier.traffic_per_second(rank, "bytes_sent"),
            packets_received_per_s: earlier.traffic_per_second(rank, "packets_received"),
            bytes_received_per_s: earlier.traffic_per_second(rank, "bytes_received"),
            counters: &rank.counters,
        };
        text += &serde_json::to_string(&row)?;
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::earlier::tests::rank;
    use super::*;

    #[test]
    fn each_rank_has_one_json_line_with_its_named_counters() {
        let text = lines(&[rank(0, 3, 100), rank(1, 3, 7)], &Earlier::default()).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["job"], "00000001");
        assert_eq!(rows[0]["counters"]["packets_sent"], 100);
        assert_eq!(rows[0]["packets_sent_per_s"], 50.0);
        assert_eq!(rows[0]["bytes_sent_per_s"], serde_json::Value::Null);
        assert_eq!((&rows[1]["rank"], &rows[1]["state"]), (&1.into(), &"running".into()));
    }

    #[test]
    fn rates_include_traffic_through_shared_memory() {
        let mut rank = rank(0, 3, 100);
        rank.counters.push(("shm_packets_sent".to_owned(), 300));
        let row: serde_json::Value =
            serde_json::from_str(&lines(&[rank], &Earlier::default()).unwrap()).unwrap();
        assert_eq!(row["packets_sent_per_s"], 200.0);
    }
}
