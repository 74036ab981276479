//! How to wait: spin, then yield the processor, then block.
//!
//! Spinning is fastest and only harmless while no other rank wants the core; yielding lets the rank
//! run that the wait is for; blocking costs a wake-up and frees the core for good. Which of them,
//! and how long, follows from the number of ranks per core, and from whether the wait is for a long
//! message: its data arrive in trains, and if these are far apart the link is the bottleneck, which
//! a wake-up does not delay.

use crate::time_slice::SlicePolicy;
use crate::while_waiting::Pace;
use omnes_wire::Instant;
use std::time::Duration;

/// Limits of a wait's stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitPolicy {
    /// Time spent polling without a pause.
    pub(crate) spin: Duration,
    /// Time spent yielding the processor between polls, after spinning.
    pub(crate) yield_time: Duration,
    /// The same between the trains of a long message.
    pub(crate) yield_time_long: Duration,
    /// When the program's callback is called.
    pub(crate) callbacks: Pace,
    /// Time slices of threads that other programs keep from their core.
    pub(crate) slices: SlicePolicy,
}

/// Messages of at least this many bytes are long.
pub(crate) const LONG_BYTES: u64 = 128 << 10;

/// Yielding the core costs two switches each time, and trains of 64 KiB are 5 µs apart at 100
/// Gbit/s, 50 µs at 10 and 500 µs at 1.
const YIELD_TIME_LONG: Duration = Duration::from_micros(50);

impl WaitPolicy {
    /// The policy for `ranks` ranks that share `cores` cores.
    pub(crate) fn for_ranks(ranks: u32, cores: u32) -> Self {
        if ranks <= cores {
            Self {
                spin: Duration::from_micros(15),
                yield_time: Duration::from_millis(2),
                yield_time_long: YIELD_TIME_LONG,
                callbacks: Pace::OF_OWN_CORE,
                slices: SlicePolicy::OF_OWN_CORE,
            }
        } else {
            Self {
                spin: Duration::ZERO,
                yield_time: Duration::from_millis(1),
                yield_time_long: YIELD_TIME_LONG,
                callbacks: Pace::OF_SHARED_CORE,
                slices: SlicePolicy::OF_SHARED_CORE,
            }
        }
    }
}

/// The next action of a waiting caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Spin,
    GiveWay,
    Block,
}

/// A wait in progress. It reads no clock, but uses the core's last reading.
pub(crate) struct Waiting {
    policy: WaitPolicy,
    /// The reading from before the wait, taken at an unknown time before.
    before: Instant,
    /// The first reading since.
    since: Option<Instant>,
    /// The last reading before the core was yielded, if that was the last stage.
    gave_way: Option<Instant>,
}

impl Waiting {
    /// A wait that begins; `clock` is the latest reading so far.
    pub(crate) fn new(policy: WaitPolicy, clock: Instant) -> Self {
        Self { policy, before: clock, since: None, gave_way: None }
    }

    /// Restarts the wait after packets that do not end it.
    pub(crate) fn on_news(&mut self, clock: Instant) {
        self.end_turn(clock);
        *self = Self::new(self.policy, clock);
    }

    /// The next action, given the latest reading of the clock.
    pub(crate) fn next(&mut self, clock: Instant) -> Stage {
        self.end_turn(clock);
        let stage = self.stage(clock);
        self.gave_way = (stage == Stage::GiveWay).then_some(clock);
        stage
    }

    /// Ends the turn of the other ranks, if they were given one.
    fn end_turn(&self, clock: Instant) {
        if let Some(gave_way) = self.gave_way {
            self.policy.slices.on_turn(clock.since(gave_way), clock);
        }
    }

    fn stage(&mut self, clock: Instant) -> Stage {
        if clock == self.before {
            // No caller blocks before the core has made a step, and sent the packets that are due.
            let spins = !self.policy.spin.is_zero();
            return if spins { Stage::Spin } else { Stage::GiveWay };
        }
        self.policy.stage_after(clock.since(*self.since.get_or_insert(clock)))
    }
}

impl WaitPolicy {
    /// The policy for a wait for a long message.
    pub(crate) fn for_long(self) -> Self {
        Self { yield_time: self.yield_time_long, ..self }
    }

    /// True if a waiting caller yields its core before anything else.
    pub(crate) fn gives_way_at_once(&self) -> bool {
        self.stage_after(Duration::ZERO) == Stage::GiveWay
    }

    fn stage_after(&self, waited: Duration) -> Stage {
        if waited < self.spin {
            Stage::Spin
        } else if waited < self.spin.saturating_add(self.yield_time) {
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
    fn wait_stages_are_spin_then_yield_then_block() {
        let policy = WaitPolicy::for_ranks(2, 2);
        assert_eq!(policy.stage_after(Duration::ZERO), Stage::Spin);
        assert_eq!(policy.stage_after(policy.spin), Stage::GiveWay);
        assert_eq!(policy.stage_after(policy.spin + policy.yield_time), Stage::Block);
    }

    #[test]
    fn wait_for_a_long_message_blocks_early() {
        for policy in [WaitPolicy::for_ranks(2, 2), WaitPolicy::for_ranks(16, 2)] {
            let soon = policy.spin + Duration::from_micros(50);
            assert_eq!(policy.stage_after(soon), Stage::GiveWay);
            assert_eq!(policy.for_long().stage_after(soon), Stage::Block);
        }
    }

    #[test]
    fn wait_can_spin_without_a_time_limit() {
        let spin = WaitPolicy { spin: Duration::MAX, ..WaitPolicy::for_ranks(2, 2) };
        assert_eq!(spin.stage_after(Duration::from_secs(1)), Stage::Spin);
        assert_eq!(spin.stage_after(Duration::MAX), Stage::Block);
    }

    #[test]
    fn ranks_do_not_spin_when_they_outnumber_cores() {
        let policy = WaitPolicy::for_ranks(16, 2);
        assert_eq!(Waiting::new(policy, Instant::ZERO).next(Instant::ZERO), Stage::GiveWay);
    }

    #[test]
    fn callback_has_many_turns_before_blocking_only_on_unshared_cores() {
        let own = WaitPolicy::for_ranks(2, 2);
        let before_blocking = own.spin + own.yield_time;
        assert!(own.callbacks.first + 50 * own.callbacks.next < before_blocking, "{own:?}");
        let shared = WaitPolicy::for_ranks(3, 2);
        assert_eq!(shared.callbacks.first, shared.callbacks.next);
        assert!(
            shared.callbacks.first + 2 * shared.callbacks.next > shared.yield_time,
            "{shared:?}"
        );
    }

    #[test]
    fn wait_is_timed_from_the_first_clock_reading_and_restarts_on_news() {
        let policy = WaitPolicy::for_ranks(2, 2);
        let (old, start) = (Instant::from_ns(7), Instant::from_ns(1_000_000_000));
        let mut waiting = Waiting::new(policy, old);
        assert_eq!(waiting.next(old), Stage::Spin);
        assert_eq!(waiting.next(start), Stage::Spin);
        assert_eq!(waiting.next(start + policy.spin), Stage::GiveWay);
        let at_once = WaitPolicy { spin: Duration::ZERO, yield_time: Duration::ZERO, ..policy };
        let mut blocking = Waiting::new(at_once, old);
        assert_eq!((blocking.next(old), blocking.next(start)), (Stage::GiveWay, Stage::Block));
        waiting.on_news(start + policy.spin);
        assert_eq!(waiting.next(start + policy.spin + policy.yield_time), Stage::Spin);
    }
}
