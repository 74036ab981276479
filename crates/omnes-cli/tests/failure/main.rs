//! Ranks that die, fall silent, are cut off or leave: which ranks are notified, of what, and how
//! soon.
//!
//! Ranks are processes: this test program itself, started again to play a role ([`roles`]). No test
//! relies on sleeping: a rank says `ready`, the test does the damage, and the ends of the others
//! are awaited within the limit that the library promises. Without root the labs print
//! `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a failure.
#![allow(clippy::unwrap_used)]

#[path = "../as_root/mod.rs"]
mod as_root;
mod networks;
mod one_host;
mod play;
mod roles;
mod suspension;
mod test_lab;

use std::time::Duration;

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const RANKS: u32 = 4;
/// The library's default limit, and the one that these tests mostly set.
const BY_DEFAULT: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(3);
/// Suspension time of jobs that fail after [`SOON`].
const SUSPENSION: Duration = Duration::from_secs(4);
/// A limit for events that take milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);
