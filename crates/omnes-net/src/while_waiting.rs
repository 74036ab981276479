//! The callback that a program may have run while it waits in a call: for instance to let another
//! library make progress, which otherwise could not, or to check whether the wait is to continue.
//!
//! Guarantees: the callback runs on the thread that waits, never on the progress thread, and
//! without the engine's lock, so it may enter the engine again. Waits that end before the wait
//! policy's first call never call it, and read no clock for it, but use the core's last reading. A
//! callback with an interval of its own is also called in a shorter wait, if this thread has waited
//! for that long in total since the last call; so it is also called if there are many short waits.

use omnes_wire::Instant;
use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep of a caller whose callback has no interval of its own.
const INTERVAL: Duration = Duration::from_micros(500);

/// When a callback without an interval of its own is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// Duration of a wait at the first call.
    pub(crate) first: Duration,
    /// Time between the end of a call and the next one; a sleeping caller is late for it.
    pub(crate) next: Duration,
}

impl Pace {
    /// If ranks have their own cores. A waiting caller has nothing better to do, and other ranks
    /// may wait for the progress that the callback makes.
    pub(crate) const OF_OWN_CORE: Self =
        Self { first: Duration::from_micros(50), next: Duration::from_micros(20) };
    /// If a call would take the core from the very rank that is waited for.
    pub(crate) const OF_SHARED_CORE: Self = Self { first: INTERVAL, next: INTERVAL };
}

/// Callback that waiting calls run periodically; clones are the same callback.
#[derive(Clone)]
pub struct WhileWaiting {
    callback: Arc<dyn Fn() -> ControlFlow<()> + Send + Sync>,
    interval: Option<Duration>,
}

impl WhileWaiting {
    /// Runs `callback` periodically while a call waits, on its thread. The callback must not wait
    /// itself; it may test operations, including those of the same engine. If it panics, the
    /// awaited operation is given up.
    pub fn new(callback: impl Fn() + Send + Sync + 'static) -> Self {
        let callback = move || {
            callback();
            ControlFlow::Continue(())
        };
        Self { callback: Arc::new(callback), interval: None }
    }

    /// As [`Self::new`], but only after each `interval` of a wait; at [`ControlFlow::Break`] the
    /// wait ends with an error, and the awaited operation is given up, unless it has ended
    /// meanwhile. If a call waits for several operations, its next wait runs the callback again.
    pub fn every(
        interval: Duration,
        callback: impl Fn() -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self { callback: Arc::new(callback), interval: Some(interval) }
    }

    pub(crate) fn call(&self) -> ControlFlow<()> {
        (self.callback)()
    }

    /// True if it is called as often as [`Pace`] says, and not at an interval of its own.
    pub(crate) fn is_frequent(&self) -> bool {
        self.interval.is_none()
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

thread_local! {
    /// Total time that this thread has waited since the last run of a callback with an interval.
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Decides when the callback is due in one wait.
pub(crate) struct CallbackTimer<'a> {
    callback: Option<&'a WhileWaiting>,
    /// The clock's reading from before the wait, taken at an unknown time before.
    before: Instant,
    pace: Pace,
    /// Start of the wait, or end of the callback's last run in it; and the latest reading since.
    span: Option<(Instant, Instant)>,
    has_called: bool,
}

impl<'a> CallbackTimer<'a> {
    /// The timer of a wait that begins; `clock` is the latest reading so far.
    pub(crate) fn new(callback: Option<&'a WhileWaiting>, clock: Instant, pace: Pace) -> Self {
        Self { callback, before: clock, pace, span: None, has_called: false }
    }

    /// The callback, if it is due, given the latest reading of the clock.
    pub(crate) fn due(&mut self, clock: Instant) -> Option<&'a WhileWaiting> {
        let callback = self.callback?;
        if clock == self.before {
            return None;
        }
        let (since, _) = *self.span.get_or_insert((clock, clock));
        self.span = Some((since, clock));
        let wait = match callback.interval {
            Some(interval) => interval.saturating_sub(WAITED.get()),
            None if self.has_called => self.pace.next,
            None => self.pace.first,
        };
        (clock.since(since) >= wait).then_some(callback)
    }

    /// Records that the callback has been called.
    pub(crate) fn on_called(&mut self, now: Instant) {
        (self.span, self.has_called) = (Some((now, now)), true);
        WAITED.set(Duration::ZERO);
    }
}

impl Drop for CallbackTimer<'_> {
    fn drop(&mut self) {
        let counts = self.callback.is_some_and(|callback| callback.interval.is_some());
        if let Some((since, latest)) = self.span.filter(|_| counts) {
            WAITED.set(WAITED.get().saturating_add(latest.since(since)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOSECOND: Duration = Duration::from_nanos(1);
    const PACE: Pace = Pace::OF_OWN_CORE;

    #[test]
    fn first_callback_is_due_a_delay_after_the_first_clock_reading() {
        let callback = WhileWaiting::new(|| {});
        let old = Instant::from_ns(7);
        let mut timer = CallbackTimer::new(Some(&callback), old, PACE);
        let start = old + Duration::from_secs(1);
        assert!(timer.due(old).is_none());
        assert!(timer.due(start).is_none());
        assert!(timer.due(start + (PACE.first - NANOSECOND)).is_none());
        assert!(timer.due(start + PACE.first).is_some());
    }

    #[test]
    fn next_callback_is_due_one_interval_after_the_previous_one_ends() {
        let callback = WhileWaiting::new(|| {});
        let mut timer = CallbackTimer::new(Some(&callback), Instant::ZERO, PACE);
        let end = Instant::from_ns(1_000_000);
        timer.on_called(end);
        assert!(timer.due(end + (PACE.next - NANOSECOND)).is_none());
        assert!(timer.due(end + PACE.next).is_some());
    }

    #[test]
    fn callback_with_an_interval_is_first_due_after_one_interval() {
        let interval = Duration::from_millis(50);
        let callback = WhileWaiting::every(interval, || ControlFlow::Break(()));
        let mut timer = CallbackTimer::new(Some(&callback), Instant::ZERO, PACE);
        let start = Instant::from_ns(1_000_000);
        assert!(timer.due(start).is_none());
        assert!(timer.due(start + (interval - NANOSECOND)).is_none());
        assert!(timer.due(start + interval).is_some_and(|callback| callback.call().is_break()));
        timer.on_called(start + interval);
        assert!(timer.due(start + (2 * interval - NANOSECOND)).is_none());
        assert!(timer.due(start + 2 * interval).is_some());
    }

    #[test]
    fn short_waits_add_up_for_a_callback_with_an_interval() {
        let (interval, millisecond) = (Duration::from_millis(50), Duration::from_millis(1));
        const LONG: Pace = Pace { first: Duration::from_millis(2), ..PACE };
        let (often, plain) = (WhileWaiting::every(interval, || ControlFlow::Continue(())), None);
        let turns_of = |callback: Option<&WhileWaiting>| {
            let mut clock = Instant::from_ns(1_000_000);
            let mut timer = 0;
            for _ in 0..100 {
                let mut wait = CallbackTimer::new(callback, clock, LONG);
                // Time that the program spends between waits does not count.
                clock = clock + 1000 * millisecond;
                for _ in 0..=1 {
                    if wait.due(clock).is_some() {
                        timer += 1;
                        wait.on_called(clock);
                    }
                    clock = clock + millisecond;
                }
            }
            timer
        };
        // A wait lasts for a millisecond, so the interval is over in the 51st.
        assert_eq!(turns_of(Some(&often)), 2);
        assert_eq!(turns_of(Some(&WhileWaiting::new(|| {}))), 0);
        assert_eq!(turns_of(plain), 0);
    }

    #[test]
    fn no_callback_is_ever_due_without_a_hook() {
        let mut timer = CallbackTimer::new(None, Instant::ZERO, PACE);
        assert!(timer.due(Instant::from_ns(1_000_000_000)).is_none());
        assert!(timer.due(Instant::from_ns(2_000_000_000)).is_none());
    }
}
