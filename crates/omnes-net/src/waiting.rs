//! How to wait: spin, then give the processor away, then block.
//!
//! Spinning is fastest and only harmless while no other rank wants the core; giving the core away
//! lets the rank run that the wait is for; blocking costs a wake-up and frees the core for good.
//! Which of them, and how long, follows from the number of ranks per core.

use crate::while_waiting;
use std::time::{Duration, Instant};

/// Limits of a wait's stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitPolicy {
    /// Time spent looking again at once.
    pub(crate) spin: Duration,
    /// Time spent giving the processor away between looks, after spinning.
    pub(crate) give_way: Duration,
    /// Time after which what the program does beside has its first turn.
    pub(crate) first_turn: Duration,
}

impl WaitPolicy {
    /// What suits `ranks` ranks that share `cores` cores.
    pub(crate) fn for_ranks(ranks: u32, cores: u32) -> Self {
        if ranks <= cores {
            Self {
                spin: Duration::from_micros(15),
                give_way: Duration::from_millis(2),
                first_turn: while_waiting::FIRST_AFTER,
            }
        } else {
            // A turn would take the core from the very rank that is waited for.
            Self {
                spin: Duration::ZERO,
                give_way: Duration::from_millis(1),
                first_turn: while_waiting::INTERVAL,
            }
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Spin,
    GiveWay,
    Block,
}

/// One wait under way.
pub(crate) struct Waiting {
    policy: WaitPolicy,
    since: Option<Instant>,
    looks: u32,
    stage: Stage,
}

/// Looks between two readings of the clock.
const LOOKS_PER_READING: u32 = 8;

impl Waiting {
    pub(crate) fn new(policy: WaitPolicy) -> Self {
        let stage = if policy.spin.is_zero() { Stage::GiveWay } else { Stage::Spin };
        Self { policy, since: None, looks: 0, stage }
    }

    /// Something came, though not what is waited for: the wait begins anew.
    pub(crate) fn on_news(&mut self) {
        *self = Self::new(self.policy);
    }

    pub(crate) fn next(&mut self) -> Stage {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_READING) {
            let now = Instant::now();
            let waited = now - *self.since.get_or_insert(now);
            self.stage = self.policy.stage_after(waited);
        }
        self.stage
    }
}

impl WaitPolicy {
    fn stage_after(&self, waited: Duration) -> Stage {
        if waited < self.spin {
            Stage::Spin
        } else if waited < self.spin + self.give_way {
            Stage::GiveWay
        } else {
            Stage::Block
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_one_another() {
        let policy = WaitPolicy::for_ranks(2, 2);
        assert_eq!(policy.stage_after(Duration::ZERO), Stage::Spin);
        assert_eq!(policy.stage_after(policy.spin), Stage::GiveWay);
        assert_eq!(policy.stage_after(policy.spin + policy.give_way), Stage::Block);
    }

    #[test]
    fn nobody_spins_where_ranks_outnumber_cores() {
        let policy = WaitPolicy::for_ranks(16, 2);
        assert_eq!(Waiting::new(policy).next(), Stage::GiveWay);
    }
}
