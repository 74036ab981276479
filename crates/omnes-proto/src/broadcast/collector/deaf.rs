//! Ranks that packets to all do not reach, though packets to them alone do: for example, behind a
//! switch that filters multicast. They get a copy of everything for some time; then multicast is
//! tried again.

use omnes_wire::{Instant, Rank, Seq};
use std::collections::BTreeMap;
use std::time::Duration;

/// Consecutive reports of a rank that has received no packet to all, each after more such packets
/// were sent, after which that cannot be chance.
const FAILURES_MAX: u32 = 4;
/// Time after which a deaf rank is tried again, initially; it doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(16);

/// Reports of a rank that receives no packets sent to all.
#[derive(Clone, Copy, Debug)]
struct Hearing {
    /// Number of its reports after more packets had been sent to all.
    failures: u32,
    /// One past the last packet that had been sent to all when the latest of them was counted.
    counted: Seq,
    /// Time for which it counts as deaf the next time.
    retry: Duration,
    /// Time until which it counts as deaf, if it does.
    deaf_until: Option<Instant>,
}

/// See the module header. State: 40 bytes for each rank that has recently received no packet to
/// all.
#[derive(Debug, Default)]
pub(super) struct Deaf {
    by_rank: BTreeMap<Rank, Hearing>,
    /// Number of deaf ranks.
    count: u32,
}

impl Deaf {
    /// True if `rank` counts as deaf.
    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.count > 0 && self.by_rank.get(&rank).is_some_and(|it| it.deaf_until.is_some())
    }

    /// Evaluates a report of `rank`: `hears` says whether a packet to all has arrived there since
    /// its last report; `end` is one past the last packet that was sent to all, and `is_long_sent`
    /// returns true for a packet that must have arrived or be lost.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        (rank, hears): (Rank, bool),
        end: Seq,
        is_long_sent: impl FnOnce(Seq) -> bool,
    ) {
        if hears {
            return self.forget(rank);
        }
        let new = Hearing { failures: 0, counted: end, retry: RETRY_MIN, deaf_until: None };
        let hearing = self.by_rank.entry(rank).or_insert(new);
        if !hearing.counted.precedes(end) || !is_long_sent(hearing.counted) {
            return;
        }
        hearing.counted = end;
        hearing.failures += 1;
        if hearing.failures >= FAILURES_MAX && hearing.deaf_until.is_none() {
            hearing.deaf_until = Some(now + hearing.retry);
            hearing.retry = (hearing.retry * 2).min(RETRY_MAX);
            self.count += 1;
        }
    }

    /// Returns a deaf rank that is to be tried again; it no longer counts as deaf.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Rank> {
        if self.count == 0 {
            return None;
        }
        let is_over = |it: &Hearing| it.deaf_until.is_some_and(|until| until <= now);
        let (rank, hearing) = self.by_rank.iter_mut().find(|(_, it)| is_over(it))?;
        (hearing.deaf_until, hearing.failures) = (None, 0);
        self.count -= 1;
        Some(*rank)
    }

    /// Discards all previous reports of `rank`.
    pub(super) fn forget(&mut self, rank: Rank) {
        let hearing = self.by_rank.remove(&rank);
        self.count -= u32::from(hearing.is_some_and(|it| it.deaf_until.is_some()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: Rank = Rank(3);

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// `RANK` reports until it is deaf, each time after one more packet was sent to all.
    fn reports_until_deaf(deaf: &mut Deaf, now: Instant, end: &mut u32) -> u32 {
        for reports in 0..10 {
            if deaf.contains(RANK) {
                return reports;
            }
            *end += 1;
            deaf.on_report(now, (RANK, false), Seq(*end), |_| true);
        }
        0
    }

    #[test]
    fn deaf_period_grows_each_time_a_rank_misses_multicast() {
        let (mut deaf, mut end) = (Deaf::default(), 0);
        assert_eq!(reports_until_deaf(&mut deaf, at(0), &mut end), FAILURES_MAX + 1);
        for (tried, next) in [(500, 499), (1500, 1499)] {
            assert_eq!(deaf.take_due(at(next)), None);
            assert_eq!(deaf.take_due(at(tried)), Some(RANK));
            assert!(!deaf.contains(RANK) && deaf.take_due(at(tried)).is_none());
            assert_eq!(reports_until_deaf(&mut deaf, at(tried), &mut end), FAILURES_MAX);
        }
        deaf.on_report(at(1600), (RANK, true), Seq(end), |_| true);
        assert!(!deaf.contains(RANK), "it hears");
        assert_eq!((deaf.count, deaf.by_rank.len()), (0, 0));
        assert_eq!(reports_until_deaf(&mut deaf, at(1600), &mut end), FAILURES_MAX + 1);
        assert_eq!(deaf.take_due(at(2100)), Some(RANK), "as the first time");
    }

    #[test]
    fn deaf_reports_count_once_per_multicast_that_must_have_arrived() {
        let mut deaf = Deaf::default();
        for end in [5, 5, 5, 5, 5, 5] {
            deaf.on_report(at(0), (RANK, false), Seq(end), |_| true);
        }
        for end in [6, 7, 8, 9, 10] {
            deaf.on_report(at(0), (RANK, false), Seq(end), |seq| seq != Seq(5));
        }
        for end in [11, 12, 13] {
            deaf.on_report(at(0), (RANK, false), Seq(end), |_| true);
        }
        assert!(!deaf.contains(RANK));
        deaf.on_report(at(0), (RANK, false), Seq(14), |_| true);
        assert!(deaf.contains(RANK));
    }
}
