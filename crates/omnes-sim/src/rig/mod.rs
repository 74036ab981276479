//! Cluster with faults and checkers: does the protocol hold, whatever the network does?
//!
//! | module | contents |
//! |---|---|
//! | `cluster`, `builder` | the rig and its settings |
//! | `node`, `memory`, `program` | one rank: the driver of its endpoint, its memory, its script |
//! | `network`, `rule`, `stranger` | what happens to packets between the ranks |
//! | `broadcasts`, `barriers` | groups, commands and counters of broadcasts and barriers |
//! | `nic` | the kernel NIC at the edge of a node |
//! | `ledger`, `bounds`, `casts`, `checks` | checkers |
//! | `trace` | the record of a run, as a hash and as its last lines |

pub(crate) mod barriers;
pub(crate) mod bounds;
pub(crate) mod broadcasts;
pub(crate) mod builder;
pub(crate) mod casts;
pub(crate) mod checks;
pub(crate) mod cluster;
pub(crate) mod ledger;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod nic;
pub(crate) mod node;
pub(crate) mod payload;
pub(crate) mod program;
pub(crate) mod rule;
pub mod script;
pub(crate) mod stranger;
pub(crate) mod trace;
pub(crate) mod words;

pub use builder::{Builder, ClusterConfig, Printing};
pub use checks::{
    Checker, broken_groups_are_at_rest, dead_are_named_to_all, delivered_once_in_order,
    missing_ranks_are_reported, no_living_rank_is_named, no_message_is_in_flight,
    nothing_is_missing, only_the_dead_fail,
};
pub use cluster::{COMMUNICATOR, Cluster, Send};
pub use ledger::{Operation, State, Stream};
pub use network::{NetworkConfig, NetworkCounters, Order};
pub use nic::NicCounters;
pub use node::{Draining, Looking, Previews, Runs};
pub use payload::content;
pub use rule::{Guard, Rule, Ways, corrupt, delay, drop, duplicate, partition, reorder};
pub use stranger::Forgery;
