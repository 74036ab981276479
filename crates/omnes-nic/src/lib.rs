//! The kernel NIC: the firmware as an eBPF program at the tc hook of a network interface.
//!
//! It runs on the host CPU, in the role of the programmable NICs of the papers.
//!
//! [`Kernel`] loads `firmware/nic.bpf.c`, attaches it to interfaces, and opens *slots*: one for
//! each member of a group. A slot's [`Page`] is mapped by the member's process, which polls it
//! without system calls.
//!
//! ```text
//!   process  ──first step, a UDP packet──▶ tc egress ─▶ wire
//!      ▲                                      │
//!      └── page: newest barrier done ◀── state of the slot ◀── tc ingress ◀─ wire
//! ```
//!
//! Loading needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. A process without them borrows slots from
//! the node agent `omnesd` ([`agent`]), or runs the same steps itself: the user-space form is in
//! `omnes-proto`, which drives the native firmware.
//!
//! Programs are attached by tcx links if the kernel supports them (from 6.6): these vanish with the
//! process. On older kernels they are clsact filters, which stay if the process is killed;
//! [`attach::sweep`] removes them.

pub mod agent;
pub mod attach;
mod error;
mod frame;
mod inspect;
mod kernel;
mod lock;
mod log;
mod mapping;
mod nic;
mod page;
mod plan;
mod queue;
#[cfg(test)]
mod root;
mod signals;

pub use error::NicError;
pub use inspect::{ProgramInfo, Statistics, TestPacket, TestRun};
pub use kernel::Kernel;
pub use nic::{Nic, NicForm, OpenQueue, OpenSlot, Preference, Unavailable};
pub use omnes_firmware::slot::{Counters, SLOTS_MAX};
pub use page::Page;
pub use plan::{MemberPlan, QueuePlan, SlotPlan};
pub use queue::Queue;
pub use signals::without_signals;
