//! Many ranks in one process and in virtual time, with faults and checkers.
//!
//! The rig runs the machines of `omnes-proto` exactly as sockets do, in a [`Cluster`] with a
//! model of the network between them. Faults are [`Rule`]s that a test names or a seed draws;
//! checkers see commands, packets and events, never the fields of a machine.
//!
//! | module | what it holds |
//! |---|---|
//! | `cluster`, `builder` | the rig and its settings |
//! | `node`, `memory`, `program` | one rank: the driver of its endpoint, its memory, its script |
//! | `network`, `rule`, `stranger` | what happens between the ranks |
//! | `broadcasts`, `barriers` | the same of those: groups, commands, what can be counted |
//! | `nic` | the kernel's NIC at the edge of a node |
//! | `ledger`, `bounds`, `casts`, `checks` | checkers |
//! | [`conformance`], [`script`] | test bodies that sockets can run too |
//! | [`collective`] | barriers and broadcasts as scripts over channels; no machine |
//! | [`swarm`], [`fuzz`] | everything drawn from a seed, or from bytes |
//!
//! Guarantees: the same seed and calls give the same trace, byte for byte, in debug and release;
//! no clock, no thread, no hash map. Not done: switches, shared links, models of hosts beyond one
//! time per packet.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod barriers;
mod bounds;
mod broadcasts;
mod builder;
mod casts;
mod checks;
mod cluster;
pub mod collective;
pub mod conformance;
#[doc(hidden)]
pub mod fuzz;

mod ledger;
mod memory;
mod network;
mod nic;
mod node;
mod payload;
mod program;
mod queue;
mod random;
mod rule;
pub mod script;
mod stranger;
pub mod swarm;
mod trace;

pub use builder::{Builder, ClusterConfig, Printing};
pub use checks::{
    Checker, broken_groups_are_at_rest, dead_are_named_to_all, delivered_once_in_order,
    no_living_rank_is_named, no_message_is_in_flight, nobody_is_forgotten, nothing_is_missing,
    only_the_dead_fail,
};
pub use cluster::{COMMUNICATOR, Cluster, Send};
pub use ledger::{Operation, State, Stream};
pub use network::{NetworkConfig, NetworkCounters, Order};
pub use nic::NicCounters;
pub use node::{Looking, Previews};
pub use payload::content;
pub use random::Random;
pub use rule::{Guard, Rule, Ways, corrupt, delay, drop, duplicate, partition, reorder};
pub use stranger::Forgery;
