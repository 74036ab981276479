//! The engine's clock, read several times in each operation.

use omnes_wire::Instant;

/// The kernel's monotonic clock, counted from its start.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    origin_ns: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin_ns: monotonic_ns() }
    }

    #[inline]
    pub(crate) fn now(self) -> Instant {
        // It never goes back.
        Instant::from_ns(monotonic_ns().wrapping_sub(self.origin_ns))
    }
}

/// Reads the clock as [`std::time::Instant`] does, without separate seconds and nanoseconds.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing. The clock exists on every Linux, so it does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn clock_starts_near_zero_and_advances() {
        let clock = Clock::start();
        let first = clock.now();
        assert!(first.since(Instant::ZERO) < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now().since(first) >= Duration::from_millis(2));
    }
}
