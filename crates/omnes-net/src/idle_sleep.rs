//! The progress thread's sleep between two checks for callers inside.
//!
//! It lasts a tick, unless one call stays inside: that call makes progress by itself, so each sleep
//! is twice as long as the previous one, and a rank that is blocked in a call costs next to
//! nothing. The last caller that leaves ends a long sleep.
//!
//! No leaving caller is missed: the thread announces its sleep before it checks once more for
//! callers inside, and a caller is outside before it checks whether the thread sleeps.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Time between two checks of the progress thread for active callers.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// See the module header.
#[derive(Default)]
pub(crate) struct IdleSleep {
    thread: OnceLock<Thread>,
    is_long: AtomicBool,
}

impl IdleSleep {
    /// Sleeps on this thread, which is always the same one. A sleep longer than a tick only begins
    /// if `may_last` still holds; the thread that changes that calls [`Self::end`] afterwards.
    pub(crate) fn sleep(&self, duration: Duration, may_last: impl Fn() -> bool) {
        if duration <= TICK {
            return std::thread::sleep(duration);
        }
        self.thread.get_or_init(std::thread::current);
        self.is_long.store(true, Ordering::SeqCst);
        if may_last() {
            std::thread::park_timeout(duration);
        }
        self.is_long.store(false, Ordering::SeqCst);
    }

    /// Ends a long sleep, if one is in progress.
    pub(crate) fn end(&self) {
        if self.is_long.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn long_sleep_does_not_begin_after_the_last_caller_has_left() {
        let since = Instant::now();
        IdleSleep::default().sleep(LONG, || false);
        assert!(since.elapsed() < LONG);
    }

    #[test]
    fn leaving_caller_ends_a_long_sleep_at_any_point() {
        let (sleep, since) = (IdleSleep::default(), Instant::now());
        // Miri takes long, and runs this with many seeds.
        for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
            let is_inside = AtomicBool::new(true);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    is_inside.store(false, Ordering::SeqCst);
                    sleep.end();
                });
                sleep.sleep(LONG, || is_inside.load(Ordering::SeqCst));
            });
        }
        assert!(since.elapsed() < LONG);
    }
}
