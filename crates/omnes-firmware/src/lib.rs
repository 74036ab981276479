//! The firmware of the kernel NIC, compiled natively.
//!
//! `firmware/*.h` holds pure step functions in C: state in, action out. The kernel runs them at its
//! tc hook (`firmware/nic.bpf.c`, loaded by `omnes-nic`); this crate compiles the same files for
//! the CPU, so that the user-space NIC, the simulator and the fuzzer run exactly the code that the
//! kernel runs. It defines their data with the shared layout, and safe calls of the functions.
//!
//! [`barrier`] is the collective protocol's barrier, [`multisend`] says to which ranks a packet to
//! all ranks is forwarded, [`slot`] is what user space and the kernel NIC share. [`sum_f64`] adds
//! doubles with integer arithmetic, because eBPF has no floating point.
//!
//! Only [`barrier`], [`multisend`], `sum` and `tag` have `unsafe` code: calls of C functions that
//! read and write nothing but their arguments.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod barrier;
#[cfg(test)]
mod layout_tests;
pub mod multisend;
pub mod slot;
mod sum;
mod tag;

pub use sum::sum_f64;
pub use tag::{Key, tag};

/// Maximum number of members of a group that the native form serves.
pub const GROUP_MAX: usize = 1 << 16;
/// Maximum number of members of a group that the kernel NIC serves, whose maps have this size.
pub const KERNEL_GROUP_MAX: usize = 1024;
const _: () = assert!(KERNEL_GROUP_MAX <= GROUP_MAX);
/// Maximum number of members of a group whose barriers combine words in a step that waits for
/// everybody.
pub const COMBINING_MEMBERS_MAX: usize = 64;
/// Maximum number of steps of a barrier that the firmware serves.
pub const STEPS_MAX: usize = 64;
