//! What a program does beside while it waits in a call: such as letting another library move on,
//! which gets no turn otherwise, or looking whether the wait is to go on.
//!
//! Guarantees: the hook runs on the thread that waits, never on the progress thread, and without
//! the engine's lock, so it may enter the engine again. Waits that are over sooner than the wait
//! policy's `first_turn` never call it, and read no clock for it: the core's last reading serves.

use omnes_wire::Instant;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Time that a wait has lasted when the hook is called first, where ranks have their cores.
pub(crate) const FIRST_AFTER: Duration = Duration::from_micros(50);
/// Time between the end of a call and the next one, unless the hook has another; no caller sleeps
/// for longer.
pub(crate) const INTERVAL: Duration = Duration::from_micros(500);

/// What waiting calls do now and then; clones are the same hook.
#[derive(Clone)]
pub struct WhileWaiting {
    hook: Arc<dyn Fn() -> ControlFlow<()> + Send + Sync>,
    interval: Option<Duration>,
}

impl WhileWaiting {
    /// Calls `hook` now and then while a call waits, on its thread. It must not wait itself, nor
    /// panic; it may test operations, also those of the same engine.
    pub fn new(hook: impl Fn() + Send + Sync + 'static) -> Self {
        let hook = move || {
            hook();
            ControlFlow::Continue(())
        };
        Self { hook: Arc::new(hook), interval: None }
    }

    /// As [`Self::new`], but only after each `interval` of a wait; at [`ControlFlow::Break`] the
    /// wait ends with an error, and what was waited for is given up.
    pub fn every(
        interval: Duration,
        hook: impl Fn() -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self { hook: Arc::new(hook), interval: Some(interval) }
    }

    pub(crate) fn call(&self) -> ControlFlow<()> {
        (self.hook)()
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL)
    }
}

impl fmt::Debug for WhileWaiting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WhileWaiting(..)")
    }
}

/// The hook's turns in one wait.
pub(crate) struct Turns<'a> {
    hook: Option<&'a WhileWaiting>,
    /// What the clock was read as before the wait: how long ago that was, it does not say.
    before: Instant,
    first_turn: Duration,
    due: Option<Instant>,
}

impl<'a> Turns<'a> {
    /// Those of a wait that begins; `clock` is its latest reading so far.
    pub(crate) fn new(
        hook: Option<&'a WhileWaiting>,
        clock: Instant,
        first_turn: Duration,
    ) -> Self {
        let first_turn = hook.and_then(|hook| hook.interval).unwrap_or(first_turn);
        Self { hook, before: clock, first_turn, due: None }
    }

    /// The hook, if it is its turn, given the latest reading of the clock.
    pub(crate) fn take(&mut self, clock: Instant) -> Option<&'a WhileWaiting> {
        let hook = self.hook?;
        if clock == self.before {
            return None;
        }
        let due = *self.due.get_or_insert(clock + self.first_turn);
        (clock >= due).then_some(hook)
    }

    /// The hook has been called.
    pub(crate) fn on_called(&mut self, now: Instant) {
        self.due = self.hook.map(|hook| now + hook.interval());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOSECOND: Duration = Duration::from_nanos(1);

    #[test]
    fn first_turn_comes_after_a_while_from_the_first_reading_on() {
        let hook = WhileWaiting::new(|| {});
        let old = Instant::from_ns(7);
        let mut turns = Turns::new(Some(&hook), old, FIRST_AFTER);
        let start = old + Duration::from_secs(1);
        assert!(turns.take(old).is_none());
        assert!(turns.take(start).is_none());
        assert!(turns.take(start + (FIRST_AFTER - NANOSECOND)).is_none());
        assert!(turns.take(start + FIRST_AFTER).is_some());
    }

    #[test]
    fn next_turn_comes_an_interval_after_the_end_of_a_call() {
        let hook = WhileWaiting::new(|| {});
        let mut turns = Turns::new(Some(&hook), Instant::ZERO, FIRST_AFTER);
        let end = Instant::from_ns(1_000_000);
        turns.on_called(end);
        assert!(turns.take(end + (INTERVAL - NANOSECOND)).is_none());
        assert!(turns.take(end + INTERVAL).is_some());
    }

    #[test]
    fn a_hook_of_another_interval_has_its_first_turn_after_one() {
        let interval = Duration::from_millis(50);
        let hook = WhileWaiting::every(interval, || ControlFlow::Break(()));
        let mut turns = Turns::new(Some(&hook), Instant::ZERO, FIRST_AFTER);
        let start = Instant::from_ns(1_000_000);
        assert!(turns.take(start).is_none());
        assert!(turns.take(start + (interval - NANOSECOND)).is_none());
        assert!(turns.take(start + interval).is_some_and(|hook| hook.call().is_break()));
        turns.on_called(start + interval);
        assert!(turns.take(start + (2 * interval - NANOSECOND)).is_none());
        assert!(turns.take(start + 2 * interval).is_some());
    }

    #[test]
    fn without_a_hook_there_are_no_turns() {
        let mut turns = Turns::new(None, Instant::ZERO, FIRST_AFTER);
        assert!(turns.take(Instant::from_ns(1_000_000_000)).is_none());
        assert!(turns.take(Instant::from_ns(2_000_000_000)).is_none());
    }
}
