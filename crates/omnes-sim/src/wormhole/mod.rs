//! Wormhole networks with source routes: up*/down* against minimal routes with in-transit buffers.
//!
//! What it is: a model of Myrinet at the level of flits. A packet holds the links behind its head;
//! where its head must wait, it fills small slack buffers that stop their senders, so waiting
//! spreads backwards and routes may deadlock. Interfaces send, receive and pass on what is in
//! transit while it still arrives. No protocol machine runs here: packets are lengths and routes.
//!
//! | module | what it holds |
//! |---|---|
//! | `config`, `routes` | costs; a route for each pair of hosts, and its header's length |
//! | `fabric` | links, slack buffers with stop and go, outputs of switches |
//! | `nic` | interfaces: early-receive event, claim, pending packets, buffers and pool |
//! | `traffic` | random load, what is delivered, what is stuck |
//! | [`latency`] | what check and stop cost on an idle network; calibration |
//! | [`saturation`] | the most that a network delivers |
//! | [`studies`] | one function per target of the paper |
//!
//! Source: [IT-R5–R9, R11–R15, R17–R18]; structure and headers in `omnes_topo::network` [IT-R1–R8].
//! Guarantees: the same seed gives the same run, in debug and release; a slack buffer never
//! overflows; packets between two hosts of one route stay in order.
//! Assumes: links lose and corrupt nothing. Header bytes that switches take off are counted up to
//! the first switch, then carried on: a difference of some 6 ns per switch in a packet's length.
//! Deviations: an in-transit packet without a buffer is lost and counted, where the paper says that
//! it may overflow; stop-and-go marks and delays are general knowledge about Myrinet; an interface
//! takes buffers per packet, not per byte.
//! Cost: about two events for each flit and link; two to five million events per second.
//! Not done: virtual channels, adaptive routes, resending of lost packets, messages of several
//! packets, the four state machines of the control program one by one, memory arbitration inside
//! the interface.

mod config;
mod fabric;
pub mod latency;
mod nic;
mod routes;
pub mod saturation;
pub mod studies;
#[cfg(test)]
mod tests;
mod traffic;

pub use config::{BUFFERS, EARLY_BYTES, Interface, Wires};
pub use fabric::{Counters, Mark, What};
pub use routes::{Routes, Scheme};
pub use traffic::{Afterwards, Outcome, Setting, Traffic, run};
