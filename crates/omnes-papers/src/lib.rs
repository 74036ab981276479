//! Reproduces the published results of five systems with this library's own code.
//!
//! `papers/targets.json` holds 167 [`Target`]s: a published value or behaviour, its conditions, and
//! how far a result may differ. [`compute`] gives the [`Finding`] of each: the result of this code,
//! and whether it is close enough. The file's values are used only for comparison; nothing is
//! computed from them.
//!
//! | directory | paper | marker |
//! |---|---|---|
//! | `multisend` | NIC-assisted multidestination messages, Myrinet | MS |
//! | `broadcast` | broadcast over InfiniBand's multicast | BC |
//! | `pm` | PM, channels and their context switch, Myrinet | PM |
//! | `barrier` | barriers in the NIC, Myrinet and Quadrics | CB |
//! | `itb` | in-transit buffers, Myrinet | IT |
//!
//! Each has three files: `closed.rs` evaluates formulas with the constants of the paper,
//! `structure.rs` runs the machines, the firmware and the functions of `omnes-topo` and counts
//! packets and steps, `emulated.rs` simulates, with testbeds from `testbeds/`.
//!
//! Guarantees: the same findings on every machine and on any number of cores. Each target has a
//! finding; if it cannot be computed, the finding states the reason. Assumes that targets do not
//! change during a run. Cost: seconds, nearly all of it in simulations.

mod barrier;
mod broadcast;
mod figure;
mod finding;
mod itb;
mod met;
mod multisend;
mod pm;
mod registry;
mod report;
mod rig;
mod tally;
mod target;
mod tolerance;

pub use figure::{Figure, Line, Mark, Scale, Series};
pub use finding::{Finding, Verdict};
pub use met::MetList;
pub use registry::{Judged, compute, compute_all, figures};
pub use report::{html_page, svg};
pub use tally::Tally;
pub use target::{Mode, Paper, Target, Value, targets};
pub use tolerance::Tolerance;
