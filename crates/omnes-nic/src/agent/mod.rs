//! The node agent `omnesd`: lends slots and queues of the kernel NIC to processes that may not
//! load programs.
//!
//! One agent per network namespace; it is root, loads the firmware once and attaches it. A process
//! connects to an abstract Unix socket, which belongs to the network namespace and vanishes with
//! its owner, hands over what a slot is to do and the UDP socket that the slot is for, and gets the
//! slot's page back.
//!
//! ```text
//!   process                                      omnesd
//!   Client ── {"op":"lend","plan":…} + socket ──▶ Session: a line, its descriptors
//!      ▲                                            │ proof: is the port the process's own?
//!      └─ {"answer":"lent",…} + page ◀── Kernel::open ◀─ limits per user
//! ```
//!
//! Guarantees. A process gets slots only at ports where it alone takes packets in, connected
//! sockets of the same user aside, and none with the name of another's ([`Event::Refused`] says
//! why). It writes to its own slot's page and to nothing else.
//! The slots of a process go when its connection closes or it ends, however it ends; while a slot
//! is lent, the agent holds its socket, so the port does not pass to somebody else; a process that
//! gives its port up on purpose loses the slot within a second. A slot that is taken back says so
//! in its page. Whatever a process sends, the agent neither ends nor keeps others waiting: nothing
//! it does for one process waits for that process, each has limits ([`limits`]), and descriptors
//! that could make `close` wait are closed by other threads.
//!
//! Assumes that root is trusted, and that the processes of one user trust each other.
//!
//! A receive queue is lent as a slot is, for all sockets of a process at once.
//!
//! Cost: a connection and a slot, about 70 KiB of kernel memory, per group, and 132 KiB per queue;
//! nothing per packet.
//! The agent sleeps while nobody asks; while anything is lent it looks once a second whether the
//! ports are still their tenants'.
//!
//! Not done: handing slots to a successor when the agent is started again; they go with it.

mod channel;
mod client;
mod conversation;
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
mod undertaker;

pub use client::{Client, Lent, LentQueue, borrow};
pub use error::AgentError;
pub use protocol::{Attached, Form, Report, SlotReport, printable};
pub use server::{Agent, AgentConfig, Event};

/// Name of the agent's socket: abstract, thus one in each network namespace.
pub const SOCKET_NAME: &str = "omnes-nic";
