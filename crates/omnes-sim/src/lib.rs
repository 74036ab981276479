//! Simulation of many ranks in one process and in virtual time, with faults and checkers.
//!
//! The rig runs the machines of `omnes-proto` exactly as socket drivers do, in a [`Cluster`] that
//! models the network between them. Faults are [`Rule`]s, named by a test or drawn from a seed;
//! checkers see commands, packets and events, never the fields of a machine.
//!
//! | module | contents |
//! |---|---|
//! | [`engine`] | event queue, time, serial servers, random numbers |
//! | [`model`] | hosts, NICs, links and switches that take time: how fast will it be? |
//! | `rig` | the cluster with faults and checkers: does the protocol hold? |
//! | [`testbed`] | costs of hosts, NICs, links and switches, from `testbeds/*.toml` |
//! | [`wormhole`] | flits in networks with back-pressure and source routes; no machine |
//! | [`conformance`], [`script`] | test bodies that sockets can run too |
//! | [`collective`] | barriers and broadcasts as scripts over channels; no machine |
//! | [`swarm`], [`fuzz`] | everything drawn from a seed, or from bytes |
//!
//! Guarantees: the same seed and calls give the same trace, byte for byte, in debug and release
//! builds; no clock, no thread, no hash map. Not modelled by the rig: switches and shared links
//! (see [`model`]). Not modelled by [`model`]: several ranks per host, failures.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod collective;
pub mod conformance;
pub mod engine;
#[doc(hidden)]
pub mod fuzz;

pub mod model;
mod rig;
pub mod swarm;
pub mod testbed;
pub mod wormhole;

pub use engine::Random;
pub use rig::*;
