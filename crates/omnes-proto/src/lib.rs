//! The protocol machines of Omnes: no clock, no I/O.
//!
//! A machine takes packets, commands and the current time, and produces packets, events and the
//! time at which it wants to be called again; sockets and the simulator drive the same code. Start
//! at [`endpoint`], the gate of every packet; [`channel`] is PM's reliable message channel,
//! [`broadcast`] is reliable multicast, [`collective`] runs barriers.
//!
//! Contract, for every machine:
//! - After any input the caller first applies all moves, before anything else. Then it takes events
//!   and transmits, in either order; it may stop sending early, as long as it resumes later. Events
//!   caused by sending may be taken after the next input or timeout. It reads the timeout last.
//! - `now` never goes backwards; equal instants are legal; spurious timeouts change nothing.
//! - A packet counts as sent, and timers are armed, only when `poll_transmit` returns it. A driver
//!   that cannot send keeps the packet, retries it first, and polls for no others meanwhile.
//! - Packets from peers never cause a panic or an error: invalid ones are counted and dropped.
//!   Commands may be rejected, without effect.
//! - User data never pass through a machine: it reports where each byte is or goes
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
