//! What both the rig and the model are made of: an event queue, time, serial servers, random
//! numbers.
//!
//! Nothing here knows of ranks or packets. Guarantees: what is pushed for the same time comes out
//! in the order of pushing; no clock, no thread; arithmetic on integers, floating point only where
//! constants are read and results shown. Queues keep their memory, so that a run of steady load
//! stops allocating.

pub(crate) mod queue;
pub(crate) mod random;
mod server;
mod time;

pub use queue::Queue;
pub use random::Random;
pub use server::Server;
pub use time::{Cost, Span, Time};
