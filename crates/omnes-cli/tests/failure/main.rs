//! Ranks that die, fall silent, are cut off or just leave: who is told what, and how soon.
//!
//! Ranks are processes: this test program itself, started again to play a role ([`roles`]).
//! Nothing sleeps for luck: a rank says `ready`, the test does the damage, and the ends of the
//! others are waited for within the limit that the library promises. Without root the labs print
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
/// What the library promises by default, and what these tests mostly ask for.
const BY_DEFAULT: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(3);
/// How long jobs are suspended that fail after [`SOON`].
const SUSPENSION: Duration = Duration::from_secs(4);
/// A limit for what happens within milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);
