//! `omnesd` and `omnes nic` from outside: whole programs in network namespaces.
//!
//! Without root a test prints `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure. The hosts are those of `omnes lab hold`, each with one interface, `eth0`. Ranks are
//! this test program itself, started again as an ordinary user ([`ranks`]).
#![allow(clippy::unwrap_used)]

mod agents;
#[path = "../as_root/mod.rs"]
mod as_root;
mod hosts;
mod jobs;
#[path = "../outside/mod.rs"]
mod outside;
mod ranks;
mod traces;

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const OMNESD: &str = env!("CARGO_BIN_EXE_omnesd");
/// A user without any privileges.
const NOBODY: u32 = 65534;
/// Handle that identifies clsact filters of Omnes.
const CLSACT_HANDLE: u32 = 0x4f6d;
