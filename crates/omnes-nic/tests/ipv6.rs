//! The tests of barriers once more, over IPv6.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::duplicate_mod)] // Each of them brings what it needs along.

#[path = "barriers.rs"]
mod barriers;
#[path = "verdicts.rs"]
mod verdicts;
