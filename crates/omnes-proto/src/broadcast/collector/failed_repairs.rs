//! Ranks that keep reporting the first packet they lack as missing, though it is sent again each
//! time: evidence that it never arrives.

use crate::limits::FRUITLESS_MIN;
use omnes_wire::{Instant, Rank, Seq};
use std::collections::BTreeMap;
use std::time::Duration;

/// Latest report of a rank.
#[derive(Clone, Copy, Debug)]
struct Lacking {
    first: Seq,
    /// Number of repairs of that packet after which it was still missing.
    times: u32,
    /// Number of the latest of those repairs.
    repair: u16,
    /// Time at which the packet was first reported as missing.
    since: Instant,
}

/// See the module header. State: 24 bytes for each rank that has lacked something.
#[derive(Debug, Default)]
pub(super) struct FailedRepairs {
    by_rank: BTreeMap<Rank, Lacking>,
}

impl FailedRepairs {
    /// `rank` reports that `first` is the first packet it lacks; the latest repair of that packet
    /// was `repair`.
    pub(super) fn on_lacking(&mut self, now: Instant, rank: Rank, first: Seq, repair: u16) {
        let new = Lacking { first, times: 0, repair, since: now };
        let lacking = self.by_rank.entry(rank).or_insert(new);
        if lacking.first != first {
            *lacking = new;
        }
        if lacking.repair != repair {
            lacking.repair = repair;
            lacking.times += 1;
        }
    }

    /// First packet that `rank` lacks, if repairs of it have failed for `limit`.
    pub(super) fn first_of(&self, now: Instant, rank: Rank, limit: Duration) -> Option<Seq> {
        let lacking = self.by_rank.get(&rank)?;
        let is_over = lacking.times >= FRUITLESS_MIN && now.since(lacking.since) >= limit;
        is_over.then_some(lacking.first)
    }

    /// Discards the previous reports of `rank`.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.by_rank.remove(&rank);
    }

    /// Discards the previous reports of all ranks.
    pub(super) fn clear(&mut self) {
        self.by_rank.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_that_advances_between_repairs_has_no_failed_repairs() {
        let mut repairs = FailedRepairs::default();
        let limit = Duration::from_secs(4);
        for repair in 0..200u16 {
            // Of three repairs of each packet, the last arrives.
            let now = Instant::from_ns(u64::from(repair) * 100_000_000);
            repairs.on_lacking(now, Rank(1), Seq(u32::from(repair / 3)), repair);
            assert_eq!(repairs.first_of(now, Rank(1), limit), None, "{repair}");
        }
    }
}
