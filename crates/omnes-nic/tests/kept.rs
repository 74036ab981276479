//! Slots and queues that a user has returned but keeps open take the agent's memory, and count
//! against the user's limits.
//!
//! Without root the test prints `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod agent_rig;
mod common;

use agent_rig::actor::{Actor, play};
use agent_rig::{Served, wait_until};
use common::hosts::network;
use omnes_nic::agent::AgentConfig;
use omnes_nic::agent::limits::QUEUES_PER_USER_MAX;

#[test]
fn plays_an_actor() {
    play();
}

#[test]
fn returned_slots_and_queues_count_until_closed_by_all_holders() {
    let Some(hosts) = network(1) else { return };
    let config = AgentConfig { slots_per_user: 1, ..AgentConfig::default() };
    let agent = Served::start(&hosts[0], config);
    let queues = vec!["borrow-queue"; QUEUES_PER_USER_MAX];
    for (borrow, all, refusal) in [
        ("borrow 0 2", &["borrow 0 2"][..], "keeps 1 pages of slots open that were taken back"),
        ("borrow-queue", &queues, "keeps 128 queues open that were taken back"),
    ] {
        let mut actor = Actor::start(&hosts[0]);
        // Closed ones are not counted.
        all.iter().for_each(|order| assert_eq!(actor.tell(order), "lent"));
        assert_eq!(actor.tell("return"), "returned");
        all.iter().for_each(|order| assert_eq!(actor.tell(order), "lent"));
        // The child has mapped them, too.
        let child: i32 = actor.tell("fork").parse().unwrap();
        assert_eq!(actor.tell("return"), "returned");
        let client = agent.client();
        wait_until("all are back", || client.report().unwrap().slots.is_empty());
        let refused = actor.tell(borrow);
        assert!(refused.contains(refusal), "{refused}");
        // SAFETY: the child of the actor, which waits for this.
        unsafe { libc::kill(child, libc::SIGKILL) };
        wait_until("what was kept is gone", || actor.tell(borrow) == "lent");
    }
}
