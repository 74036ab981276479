//! Rings in shared memory, through which ranks of one node communicate instead of sockets.
//!
//! A ring is just another link: it carries whole packets, head and data, for the same machines, so
//! channels, barriers and trees become fast inside a node without protocol code of their own. It
//! replaces the kernel's path from socket to socket: two system calls and a walk through the
//! network stack per train.
//!
//! ```text
//!   sender's memory ──copy──▶ ring in the receiver's segment ──copy──▶ receiver's memory
//!                 push · publish · wake it if it sleeps            take · place · free
//! ```
//!
//! **One segment per rank**, with a ring for each neighbour that sends to it, created by the
//! receiver. So only one descriptor per neighbour is handed over, and one word says for all rings
//! whether the receiver sleeps. A sender maps the board and its own ring only, so a wild write of
//! one rank damages its own packets and no others.
//!
//! Guarantees:
//! - Packets of one neighbour arrive in the order in which they were pushed, or not at all: a full
//!   ring drops packets, as a full socket buffer does, and the protocols repair.
//! - Whatever a neighbour writes into shared memory, this rank neither panics nor leaves its own
//!   memory: positions and lengths are checked, and a ring that fails is counted and no longer
//!   used. Packets to that neighbour go by UDP, and a neighbour that is no longer heard has failed,
//!   which is reported to the other ranks. The content of a packet is checked by the endpoint, by
//!   the tag as for every packet.
//! - No wake-up is lost (`wake`).
//! - Nothing is left behind when a rank is killed: segments have no names, and sockets none that
//!   outlive them.
//!
//! Assumes processors that keep caches coherent, and ranks of the same user that mean no harm to
//! each other beyond their bugs: a process that may map the memory may also stop its owner.
//!
//! Cost per packet: one copy in and one out, 8 bytes and padding to 64 in the ring; per publish one
//! store, one fence and one load; per wake-up one system call. 512 KiB of memory per ring in use,
//! at most 16 MiB per rank on nodes of up to 256 ranks.
//!
//! Not done: large messages in one copy, from process to process (`process_vm_readv`).

mod card;
mod exchange;
mod layout;
mod map;
mod neighbours;
mod node;
mod reader;
mod segment;
mod wake;
mod writer;

#[cfg(test)]
mod exchange_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;

pub use neighbours::{Neighbours, NodeConfig, RingCounters};
pub use node::NodeId;
pub use reader::RingPacket;
pub use writer::Pushed;
