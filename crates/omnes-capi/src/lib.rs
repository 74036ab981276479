//! The C interface of Omnes: `include/omnes.h` and `libomnes.so`.
//!
//! Every exported function does three things: check its arguments, call the crate `omnes`, and
//! turn the result into a number. No protocol logic is here.
//!
//! | module | what it does |
//! |---|---|
//! | `failure` | error codes and texts, and the guard that catches panics |
//! | `arguments` | conversion of C pointers and numbers to references and types |
//! | `communicator` | init, finalize, rank, size, split, dup, free |
//! | `exchange` | communicators of ranks that exchange data by other means; leaving their jobs |
//! | `transfer` | send, recv, bcast, barrier |
//! | `collective` | reductions, gathers, scatters and all-to-all |
//! | `scan` | scan and exscan |
//! | `request` | isend, irecv, ibcast, ibarrier, test, wait |
//! | `started` | nonblocking variants of `collective` |
//! | `about` | error texts, version |
//!
//! Guarantees: a panic never crosses the boundary (it becomes `OMNES_ERROR_INTERNAL`); a call
//! rejected because of an argument has no effect; output pointers are written on every path on
//! which the header says so.
//! Assumes, as this cannot be checked: non-NULL pointers point to memory of the type and length
//! that the header requires, and handles were created by this library and are not yet freed.
//! The header is written by hand; `tests/header.rs` compares its functions with the library's
//! symbols and its codes with [`failure::Code`].
//! Not done: selection of an algorithm per call, statistics.

pub mod about;
mod arguments;
pub mod collective;
pub mod communicator;
pub mod exchange;
pub mod failure;
pub mod request;
pub mod scan;
pub mod started;
pub mod transfer;
