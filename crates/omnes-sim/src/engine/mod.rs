//! Building blocks of the rig and the model: an event queue, time, serial servers, random numbers.
//!
//! Nothing here knows of ranks or packets. Guarantees: entries pushed for the same time are popped
//! in insertion order; no clock, no thread; integer arithmetic, with floating point only where
//! constants are read and results shown. Queues keep their memory, so that a run under steady load
//! stops allocating.

pub(crate) mod queue;
pub(crate) mod random;
mod server;
mod time;

pub use queue::Queue;
pub use random::Random;
pub use server::Server;
pub use time::{Cost, Span, Time};
