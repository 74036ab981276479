//! Collective communication for clusters on plain Ethernet.
//!
//! A program is started once per rank, by `omnes run`, `mpirun`, `srun` or `torchrun`, and each
//! process asks for its [`Communicator`]:
//!
//! ```no_run
//! // Needs a launcher: omnes run -n 8 -- ./program
//! # fn main() -> Result<(), omnes::Error> {
//! let world = omnes::Communicator::from_env()?;
//! let mut weights = vec![0u8; 1 << 20];
//! if world.rank() == 0 {
//!     weights.fill(7);
//! }
//! world.bcast(0, &mut weights)?;
//! world.barrier()?;
//! world.finalize()
//! # }
//! ```
//!
//! Where to find what:
//!
//! - joining and leaving a job: [`Communicator::from_env`], [`Communicator::finalize`], and
//!   [`Communicator::from_exchange`] without a launcher;
//! - messages: [`Communicator::send`], [`Communicator::recv`], [`Communicator::sendrecv`],
//!   [`Communicator::probe`];
//! - broadcast and barrier: [`Communicator::bcast`], [`Communicator::barrier`], and
//!   [`Communicator::barrier_timeout`] with a time limit;
//! - reductions: [`Communicator::allreduce`], [`Communicator::reduce`],
//!   [`Communicator::reduce_scatter`], [`Communicator::scan`];
//! - gathers: [`Communicator::gather`], [`Communicator::allgather`], [`Communicator::scatter`],
//!   [`Communicator::alltoall`], and forms with parts of different lengths
//!   ([`Communicator::gatherv`] etc.);
//! - nonblocking forms: [`Communicator::scope`], with the operations of [`Scope`];
//! - groups of ranks: [`Communicator::split`], [`Communicator::dup`];
//! - settings: the environment ([`VARIABLES`]), or [`Config`] with [`Communicator::from_config`].
//!
//! Nonblocking operations on borrowed memory belong to a [`Scope`], which waits for them.
//! Operations that end in `_owned` hold their communicator and need no scope; those that end in
//! `_raw` take pointers, for bindings of other languages. Of reductions, `_by` takes a function,
//! `_as` an element type that is only known at run time, and `_with` an algorithm.
//!
//! Guarantees: messages between two ranks of a communicator arrive once, unchanged and in order. If
//! a rank dies or becomes unreachable, all others get an error that names it within
//! [`Config::peer_timeout`], or 1.5 s after the start of the job, so no rank waits longer for it.
//!
//! A communicator with a failed member is broken: every operation on it ends with
//! [`Error::PeerFailed`], or [`Error::MtuBlackHole`] if only long packets are lost. If a rank
//! cannot complete a collective operation, all collective operations of that communicator end with
//! [`Error::CollectivesBroken`]. Mismatched calls, such as a receive that no send matches or
//! collective operations in different orders, may block until a rank that they wait for leaves the
//! job, and forever if none does.

// Map of the modules:
//
//   communicator, job          a rank's handle; state that all communicators of a process share
//   config, variables,         settings, and the environment they come from; launchers
//     environment, launcher,
//     ancestors
//   point_to_point, request,   messages; operations that outlive a call, with borrowed memory
//     scope, pending, in_flight  (scope) or without
//   bcast, owned_bcast         broadcasts, and how an algorithm is chosen (bcast::tune)
//   barrier                    barriers, in the kernel NIC too
//   reduce, gather, pairwise,  the other collectives over channels, and the building blocks that
//     nonblocking, parts, ring,  they share: layout of parts, rings, trees, short parts in large
//     tree_gather,             jobs
//     two_level_tree, bottleneck
//   collective, compare,       names of collectives; comparing calls; giving up a collective that
//     given_up                 cannot complete
//   split, numbers, exchange,  new communicators and their numbers; agreement; ranks that already
//     exchanged                have an exchange
//   stats, error               counters and errors
//   bytes, fnv                 memory as bytes; a hash
mod ancestors;
mod barrier;
mod bcast;
mod bottleneck;
#[doc(hidden)]
pub mod bytes;
mod collective;
mod communicator;
mod compare;
mod config;
mod environment;
mod error;
mod exchange;
mod exchanged;
mod fnv;
mod gather;
mod given_up;
mod in_flight;
mod job;
mod launcher;
mod nonblocking;
mod numbers;
mod owned_bcast;
mod pairwise;
mod parts;
mod pending;
mod point_to_point;
mod reduce;
mod request;
mod ring;
mod scope;
mod split;
mod stats;
mod tree_gather;
mod two_level_tree;
#[cfg(test)]
mod two_nodes;
mod variables;

pub use barrier::{BarrierForm, BarrierKind, NicChoice, NicState};
pub use bcast::tune::{self, Tune};
pub use bcast::{
    BcastAlgorithm, BcastAlgorithmError, Cloning, Forwarding, MultiSend, MultiSendUse,
};
pub use collective::Collective;
pub use communicator::Communicator;
pub use config::{Config, Multicast};
pub use error::Error;
pub use exchange::Exchange;
pub use exchanged::{Interface, Jobs};
pub use launcher::Launcher;
#[doc(hidden)]
pub use omnes_net::boot_id;
pub use omnes_net::ring::NodeId;
pub use omnes_net::{MulticastState, NetError, Offloads, WhileWaiting, live};
#[doc(hidden)]
pub use omnes_net::{descriptors, duration, free_port};
pub use omnes_topo::{BarrierAlgorithm, Lambda, TopoError, Tree};
pub use omnes_wire::JobKey;
pub use owned_bcast::{OwnedBcast, OwnedBcastError};
pub use point_to_point::{Source, Status, Tag};
pub use reduce::{Element, ElementType, ReduceAlgorithm, ReduceAlgorithmError, ReduceOp};
pub use request::OwnedRequest;
pub use scope::{Request, Scope};
pub use stats::Stats;
pub use variables::VARIABLES;

/// Policy of a multicast broadcast ([`BcastAlgorithm::Multicast`]): which ranks collect
/// acknowledgements and when, and which ranks request lost packets.
pub mod policy {
    pub use omnes_proto::broadcast::{
        AckRule, Asking, Collection, GapReports, Hold, Policy, PolicyError,
    };
}
