//! Wormhole networks with source routes: up*/down* against minimal routes with in-transit buffers.
//!
//! A model of Myrinet at the level of flits. A packet holds the links behind its head; where its
//! head must wait, it fills small slack buffers that stop their senders, so waiting spreads
//! backwards and routes may deadlock. Interfaces send, receive, and forward packets in transit
//! while these still arrive. No protocol machine runs here: packets are lengths and routes.
//!
//! | module | contents |
//! |---|---|
//! | `config`, `routes` | costs; a route for each pair of hosts, and its header's length |
//! | `fabric` | links, slack buffers with stop and go, outputs of switches |
//! | `nic` | interfaces: early-receive event, claim, pending packets, buffers and pool |
//! | `traffic` | random load, delivered packets, stuck packets |
//! | [`latency`] | costs of the check and of a stop on an idle network; calibration |
//! | [`saturation`] | the maximum throughput of a network |
//! | [`studies`] | one function per target of the paper |
//!
//! Source: [IT-R5–R9, R11–R15, R17–R18]; structure and headers in `omnes_topo::network` [IT-R1–R8].
//! Guarantees: the same seed gives the same run, in debug and release builds; a slack buffer never
//! overflows; packets between two hosts on one route stay in order.
//! Assumes: links neither lose nor corrupt anything. Header bytes that switches remove are counted
//! up to the first switch, then carried along: a difference of some 6 ns per switch in a packet's
//! length.
//! Deviations: an in-transit packet without a buffer is lost and counted, where the paper says that
//! it may overflow; stop-and-go marks and delays are general knowledge about Myrinet; an interface
//! allocates buffers per packet, not per byte.
//! Cost: about two events per flit and link; two to five million events per second.
//! Not done: virtual channels, adaptive routes, retransmission of lost packets, messages of several
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
