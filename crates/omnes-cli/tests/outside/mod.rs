//! Programs as seen from outside: their output, and their eventual effects.

use std::time::{Duration, Instant};

/// A limit for events that take milliseconds; reached only by a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Output of a program.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until a condition holds; fails if it does not in time.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
