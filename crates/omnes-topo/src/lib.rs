//! Pure structure: trees and barrier partners as functions of rank and size.
//!
//! What it is: the answer to "whom do I talk to?", apart from when and with which packets. Every
//! member of a group computes its own part from (rank, size, parameters); no member ever learns
//! or stores the whole structure.
//!
//! | module | answers | source |
//! |---|---|---|
//! | [`tree`] | parent, children in sending order, depth, fan-out | [`Tree`] |
//! | `co_roots` | who answers for whom in a large broadcast | [`CoRoots`] |
//! | [`barrier`] | the step table of a rank, steps and messages in closed form | [`Barrier`] |
//!
//! Guarantees: the same arguments give the same answer on every machine; all members that agree
//! on size and parameters agree on the structure. Mistakes of the caller give a [`TopoError`];
//! nothing panics. Sizes up to `u32::MAX` are legal.
//!
//! Assumes: ranks are `0..size`, without holes. Who lives where is not known here.
//!
//! Cost: time grows with the answer and with `log(size)`; nothing is allocated but the returned
//! vector. No clock, no IO, no operating system: nothing of `std` is used, only `core` and `alloc`.
//!
//! Not done: postal-optimal trees, network graphs and routes.
#![no_std]
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

extern crate alloc;

pub mod barrier;
mod co_roots;
mod error;
pub mod tree;

pub use barrier::{Barrier, Step};
pub use co_roots::CoRoots;
pub use error::TopoError;
pub use tree::Tree;
