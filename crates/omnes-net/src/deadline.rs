//! How long others are waited for at the start, in time in which this process ran: while it was
//! stopped, such as in a job that is suspended, they may have been too.

use crate::driver::SLEEP_MAX;
use std::time::{Duration, Instant};

/// The least time that a sleep may be late if it counts as one in which the process was stopped.
const STOPPED_MIN: Duration = SLEEP_MAX.saturating_mul(5);

/// See the module header.
pub(crate) struct Deadline {
    at: Instant,
}

impl Deadline {
    /// `limit` from now.
    pub(crate) fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit }
    }

    /// What is left until then.
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Sleeps for `time`; what the end of the sleep is late by does not count, if it is much.
    pub(crate) fn sleep(&mut self, time: Duration) {
        let since = Instant::now();
        std::thread::sleep(time);
        self.on_slept(time, since.elapsed());
    }

    fn on_slept(&mut self, time: Duration, took: Duration) {
        let late = took.saturating_sub(time);
        if late >= STOPPED_MIN {
            self.at += late;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let (second, sleep) = (Duration::from_secs(1), Duration::from_millis(1));
        let mut deadline = Deadline::after(60 * second);
        deadline.on_slept(sleep, second / 3);
        assert!(deadline.left() <= 60 * second);
        deadline.on_slept(sleep, 3600 * second);
        let left = deadline.left();
        assert!(left > 3600 * second && left < 3660 * second, "{left:?}");
    }
}
