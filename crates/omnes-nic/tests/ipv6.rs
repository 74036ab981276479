//! The tests of barriers, receive queues, multi-send, senders and the agent again, over IPv6.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::duplicate_mod)] // Each of them brings what it needs along.

#[path = "agent.rs"]
mod agent;
#[path = "barriers.rs"]
mod barriers;
#[path = "for_all.rs"]
mod for_all;
#[path = "multi_send.rs"]
mod multi_send;
#[path = "queue.rs"]
mod queue;
#[path = "senders.rs"]
mod senders;
#[path = "verdicts.rs"]
mod verdicts;
