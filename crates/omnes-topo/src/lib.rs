//! Pure structure: trees and barrier partners as functions of rank and size.
//!
//! Which ranks a rank communicates with; not when, or with which packets. Every member of a group
//! computes its own part from (rank, size, parameters), without an exchange of information. Only
//! [`TreeTable`] holds a whole structure, for firmware that cannot compute it, and [`network`] a
//! network.
//!
//! | module | answers | source |
//! |---|---|---|
//! | [`tree`] | parent, children in sending order, depth, fan-out | [`Tree`] |
//! | [`postal`] | the tree that is earliest for a ratio of latency to sending time | [`Lambda`] |
//! | [`pipeline`] | the tree that is fastest for many packets | [`pipeline::choose`] |
//! | `tree_table` | the children of all ranks, for any source, in one table | [`TreeTable`] |
//! | `co_roots` | which co-root serves which ranks in a large broadcast | [`CoRoots`] |
//! | [`network`] | the way of packets through switches, and copies there | [`network::Network`] |
//! | [`barrier`] | steps of a rank, and their number in closed form | [`BarrierAlgorithm`] |
//!
//! Guarantees: the same arguments give the same answer on every machine; all members that agree on
//! size and parameters agree on the structure. Mistakes of the caller return a [`TopoError`], in
//! networks a [`network::NetworkError`]; only ids of another network panic. Sizes up to `u32::MAX`
//! are valid, except for postal trees ([`postal::POSTAL_SIZE_MAX`]) and tables
//! ([`TreeTable::SIZE_MAX`]).
//!
//! Assumes: ranks are `0..size`, without gaps. Where ranks run is not known here.
//!
//! Cost: time grows with the length of the result and with `log(size)`; only the returned vector is
//! allocated. Postal trees have no closed form and are rebuilt for each call, in O(size). No
//! clock, no IO, no operating system: nothing of `std` is used, only `core` and `alloc`.
#![no_std]
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

extern crate alloc;

pub mod barrier;
mod co_roots;
mod error;
pub mod network;
pub mod pipeline;
pub mod postal;
pub mod tree;
mod tree_table;

pub use barrier::{BarrierAlgorithm, Party, Step};
pub use co_roots::CoRoots;
pub use error::TopoError;
pub use postal::{Lambda, PostalTimes};
pub use tree::Tree;
pub use tree_table::TreeTable;
