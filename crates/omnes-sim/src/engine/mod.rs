//! What both the rig and the model are made of: an event queue, time, serial servers, random
//! numbers.
//!
//! Nothing here knows of ranks or packets. Guarantees: what is pushed for the same time comes out
//! in the order of pushing; no clock, no thread, no floating point; after the first seconds of a
//! run no event allocates.

pub(crate) mod queue;
pub(crate) mod random;
mod server;
mod time;

pub use queue::Queue;
pub use random::Random;
pub use server::Server;
pub use time::{Cost, Span, Time};
