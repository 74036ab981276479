//! Programs as they are seen from outside: what they say, and what comes of them in time.

use std::time::{Duration, Instant};

/// A limit for what happens within milliseconds; reached only by a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a program has said.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until something is so; fails if it does not come about.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
