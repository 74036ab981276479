//! Yielding after a broadcast if ranks share cores.
//!
//! A multicast broadcast arrives for all ranks at the same time, but those that share a core
//! process it in turn. A rank that has processed it, and next enters an operation that waits for
//! all others anyway, lets them run first: the slowest of them has the message as soon as all have
//! processed it, not after the packets that each of them sends next. The price is one more switch
//! before the next operation.

use crate::waiting::WaitPolicy;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Longest time that other ranks take to process a broadcast: if they take longer, they compute,
/// and a rank that lets them run first is late itself.
const TURNS_MAX: Duration = Duration::from_micros(500);
/// Broadcasts without yielding after the other ranks have taken longer.
const SKIPS_AFTER_LONG_TURNS: u32 = 1000;

/// See the module header.
pub(crate) struct BroadcastYield {
    /// Waiting callers yield their core immediately.
    shares_core: bool,
    /// The last wait was for a broadcast.
    has_taken: AtomicBool,
    /// Broadcasts until this rank yields again.
    skips_left: AtomicU32,
}

impl BroadcastYield {
    pub(crate) fn new(wait: &WaitPolicy) -> Self {
        let shares_core = wait.gives_way_at_once();
        Self { shares_core, has_taken: AtomicBool::new(false), skips_left: AtomicU32::new(0) }
    }

    /// Records the end of a wait; `for_all` if it ended with a broadcast.
    pub(crate) fn on_wait(&self, for_all: bool) {
        self.has_taken.store(for_all, Ordering::Relaxed);
    }

    /// True if other ranks are to have their turns now; once per message.
    pub(crate) fn is_due(&self) -> bool {
        if !self.shares_core || !self.has_taken.swap(false, Ordering::Relaxed) {
            return false;
        }
        let skips_left = self.skips_left.load(Ordering::Relaxed);
        self.skips_left.store(skips_left.saturating_sub(1), Ordering::Relaxed);
        skips_left == 0
    }

    /// Records the time that the turns of the other ranks took.
    pub(crate) fn on_turns(&self, took: Duration) {
        if took > TURNS_MAX {
            self.skips_left.store(SKIPS_AFTER_LONG_TURNS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broadcast_yield(ranks: u32, cores: u32) -> BroadcastYield {
        let broadcast_yield = BroadcastYield::new(&WaitPolicy::for_ranks(ranks, cores));
        broadcast_yield.on_wait(true);
        broadcast_yield
    }

    #[test]
    fn yield_is_due_once_per_broadcast_and_not_after_another_wait() {
        let broadcast_yield = broadcast_yield(8, 2);
        assert!(broadcast_yield.is_due());
        assert!(!broadcast_yield.is_due(), "they have had their turns");
        broadcast_yield.on_wait(true);
        broadcast_yield.on_wait(false);
        assert!(
            !broadcast_yield.is_due(),
            "who has waited for something else has given way meanwhile"
        );
    }

    #[test]
    fn rank_with_its_own_core_does_not_yield() {
        assert!(!broadcast_yield(2, 2).is_due());
    }

    #[test]
    fn yields_are_skipped_after_one_that_took_long() {
        let broadcast_yield = broadcast_yield(8, 2);
        assert!(broadcast_yield.is_due());
        broadcast_yield.on_turns(TURNS_MAX * 2);
        for _ in 0..SKIPS_AFTER_LONG_TURNS {
            broadcast_yield.on_wait(true);
            assert!(!broadcast_yield.is_due());
        }
        broadcast_yield.on_wait(true);
        assert!(broadcast_yield.is_due());
    }
}
