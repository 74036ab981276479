//! Tests of barriers: machines of a few ranks with a network in between, and one machine alone.

#![allow(clippy::unwrap_used)]

mod alone;
mod faults;
mod gone;
mod lossless;
mod net;
mod nonsense;
mod repair;
mod who;
