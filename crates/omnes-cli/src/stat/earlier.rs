//! Rates: counts of a rank since it was last seen.

use omnes::live::Snapshot;
use std::collections::BTreeMap;
use std::time::Duration;

/// Job, rank and process: identifies a rank, as opposed to a later one in its place.
type Key = (u32, u32, u32);

/// The ranks as last seen.
#[derive(Default)]
pub struct Earlier {
    seen: BTreeMap<Key, Snapshot>,
}

fn key(rank: &Snapshot) -> Key {
    (rank.job, rank.rank, rank.pid)
}

impl Earlier {
    /// Stores `ranks` as the start of the next interval; ranks that are gone are forgotten.
    pub fn note(&mut self, ranks: &[Snapshot]) {
        self.seen = ranks.iter().map(|rank| (key(rank), rank.clone())).collect();
    }

    /// Interval of the rates of `rank`: since it was last seen, or since its start. `None` if it
    /// has not published since.
    pub fn interval(&self, rank: &Snapshot) -> Option<Duration> {
        let from_ns = self.seen.get(&key(rank)).map_or(rank.started_ns, |seen| seen.updated_ns);
        let interval = rank.updated_ns.checked_sub(from_ns).filter(|interval| *interval > 0);
        interval.map(Duration::from_nanos)
    }

    /// Counts per second of `rank` through the network and through the node's memory: of `counter`
    /// and of `shm_` followed by its name.
    pub fn traffic_per_second(&self, rank: &Snapshot, counter: &str) -> Option<f64> {
        let names = [counter, &format!("shm_{counter}")];
        names.into_iter().filter_map(|name| self.per_second(rank, name)).reduce(|a, b| a + b)
    }

    /// Counts per second of `rank` during [`Self::interval`], if it has this counter.
    fn per_second(&self, rank: &Snapshot, counter: &str) -> Option<f64> {
        let seen = self.seen.get(&key(rank)).and_then(|seen| seen.counter(counter)).unwrap_or(0);
        let counted = rank.counter(counter)?.saturating_sub(seen);
        Some(counted as f64 / self.interval(rank)?.as_secs_f64())
    }

    /// True if nothing was seen before, so that all rates are means since the start.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes::live::Life;

    /// A rank that has published `packets_sent` at a time in seconds, having started at 1.
    pub fn rank(number: u32, at_s: u64, packets_sent: u64) -> Snapshot {
        Snapshot {
            file: "file".into(),
            job: 1,
            rank: number,
            size: 4,
            pid: 100 + number,
            host: "here".to_owned(),
            command: "program".to_owned(),
            started_ns: 1_000_000_000,
            updated_ns: at_s * 1_000_000_000,
            is_whole: true,
            counters: vec![("packets_sent".to_owned(), packets_sent)],
            life: Life::Running,
        }
    }

    #[test]
    fn first_sample_of_a_rank_shows_its_mean_rate_since_start() {
        let earlier = Earlier::default();
        let rank = rank(0, 3, 100);
        assert_eq!(earlier.interval(&rank), Some(Duration::from_secs(2)));
        assert_eq!(earlier.per_second(&rank, "packets_sent"), Some(50.0));
        assert_eq!(earlier.per_second(&rank, "bytes_sent"), None);
    }

    #[test]
    fn rates_are_computed_between_two_updates() {
        let mut earlier = Earlier::default();
        earlier.note(&[rank(0, 3, 100)]);
        assert_eq!(earlier.per_second(&rank(0, 7, 140), "packets_sent"), Some(10.0));
        assert_eq!(earlier.per_second(&rank(1, 2, 7), "packets_sent"), Some(7.0));
        // Not published since, and clocks or numbers that went backwards.
        for later in [rank(0, 3, 100), rank(0, 2, 140)] {
            assert_eq!(earlier.per_second(&later, "packets_sent"), None);
        }
        assert_eq!(earlier.per_second(&rank(0, 4, 90), "packets_sent"), Some(0.0));
    }
}
