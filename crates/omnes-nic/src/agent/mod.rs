//! The node agent `omnesd`: lends slots and queues of the kernel NIC to processes that may not
//! load programs.
//!
//! One agent runs per network namespace; it is root, loads the firmware once and attaches it. A
//! process connects to an abstract Unix socket, which belongs to the network namespace and vanishes
//! with its owner, sends the slot's plan and the UDP socket that the slot is for, and receives the
//! slot's page.
//!
//! ```text
//!   process                                      omnesd
//!   Client ── {"op":"lend","plan":…} + socket ──▶ Session: a line, its descriptors
//!      ▲                                            │ proof: is the port the process's own?
//!      └─ {"answer":"lent",…} + page ◀── Kernel::open ◀─ limits per user
//! ```
//!
//! Guarantees. A process gets slots only at ports where it alone receives packets, except for
//! connected sockets of the same user, and none with the name of another's slot ([`Event::Refused`]
//! says why). It can write to its own slot's page and to nothing else.
//! The slots of a process are taken back when its connection closes or the process ends, however it
//! ends; while a slot is lent, the agent holds its socket, so the port does not pass to another
//! process; a process that gives up its port on purpose loses the slot within a second. A slot that
//! is taken back says so in its page. Whatever a process sends, the agent neither ends nor delays
//! others: nothing that it does for one process waits for that process, each has limits
//! ([`limits`]), and descriptors that could block `close` are closed by other threads.
//!
//! Assumes that root is trusted, and that the processes of one user trust each other.
//!
//! A receive queue is lent in the same way, for all sockets of a process together.
//!
//! Cost: a connection and a slot, about 70 KiB of kernel memory, per group, and 132 KiB per queue;
//! nothing per packet.
//! The agent sleeps while nobody asks; while anything is lent, it checks once a second whether the
//! ports still belong to their tenants.
//!
//! Not done: handing slots to a successor when the agent is restarted; they are lost.

mod channel;
mod client;
mod conversation;
mod descriptor_closer;
mod error;
pub mod hooks;
pub mod interfaces;
mod kept;
pub mod limits;
mod proof;
mod protocol;
mod requests;
mod server;
mod session;
mod sockets;

pub use client::{Client, Lent, LentQueue, borrow};
pub use error::AgentError;
pub use protocol::{Attached, Form, Report, SlotReport, printable};
pub use server::{Agent, AgentConfig, Event};

/// Name of the agent's socket: abstract, so each network namespace has its own.
pub const SOCKET_NAME: &str = "omnes-nic";
