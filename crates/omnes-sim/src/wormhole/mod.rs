//! stub
mod config;
mod fabric;
mod nic;
mod routes;
mod traffic;

pub use config::{BUFFERS, EARLY_BYTES, Interface, Wires};
pub use fabric::{Counters, Mark, What};
pub use routes::{Routes, Scheme};
pub use traffic::{Outcome, Setting, Traffic, run};
