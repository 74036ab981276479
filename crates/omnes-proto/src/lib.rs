//! The protocol machines of Omnes: no clock, no IO.
//!
//! A machine takes packets, commands and the time, and gives packets, events and the time when it
//! wants to be called again; sockets and the simulator drive the same code. Start at
//! [`endpoint`], the gate of every packet; [`channel`] is PM's reliable message channel,
//! [`broadcast`] is multicast made reliable, [`collective`] runs barriers.
//!
//! Contract, for every machine:
//! - After any input the caller applies all moves, before anything else. Then it takes events and
//!   transmits, in either order; it may stop sending early, as long as it goes on later. Events
//!   that sending makes may be taken after the next input or timeout. It reads the timeout last.
//! - `now` never goes back; equal instants are legal; spurious timeouts change nothing.
//! - A packet counts as sent, and timers are armed, only when `poll_transmit` returns it. A driver
//!   that cannot send keeps what it was given, retries that first, and polls no further.
//! - Packets from peers can never panic or return an error: they are counted and dropped. Commands
//!   may be refused, without effect.
//! - User data never pass through a machine: it says where each byte lies or goes
//!   ([`packet::Segment`], [`packet::Placement`]).

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod algorithm;
pub mod broadcast;
pub mod channel;
pub mod collective;
pub mod endpoint;
pub mod group;
mod lane;
pub mod limits;
mod liveness;
mod mixing;
pub mod packet;

pub use liveness::LivenessConfig;
