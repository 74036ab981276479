//! Collective communication for clusters on plain Ethernet.
//!
//! A program is started once per rank, by `omnes run`, `mpirun`, `srun` or `torchrun`, and each
//! copy asks for its [`Communicator`]:
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
//! Guarantees: messages between two ranks of a communicator arrive once, unchanged and in order; a
//! rank that dies or is cut off is named as an error to all others within [`Config::peer_timeout`],
//! so nobody waits for it. A communicator with a failed member is broken: every operation on it
//! ends with [`Error::PeerFailed`], or [`Error::MtuBlackHole`] if only long packets do not get
//! there. When a rank gives up a collective operation half-way, all collective operations of that
//! communicator end with [`Error::CollectiveGivenUp`]. Calls that do not fit each other, such as a
//! receive of what nobody sends or collective operations in different orders, may wait until a rank
//! that they wait for leaves the job, and for ever if none does.

mod ancestors;
mod barrier;
mod bcast;
mod bottleneck;
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
mod job;
mod launcher;
mod nonblocking;
mod numbers;
mod owned;
mod pairwise;
mod parts;
mod point_to_point;
mod reduce;
mod request;
mod ring;
mod rows;
mod scope;
mod split;
mod stats;
#[cfg(test)]
mod two_nodes;
mod under_way;
mod variables;
mod way;
mod work;

pub use barrier::{BarrierForm, BarrierKind, NicUse, NicWanted};
pub use bcast::tune::{self, Tune};
pub use bcast::{Bcast, BcastError, Cloning, Forwarding, MultiSend, MultiSendUse};
pub use collective::Collective;
pub use communicator::Communicator;
pub use config::{Config, Multicast};
pub use error::Error;
pub use exchange::Exchange;
pub use exchanged::{Interface, Jobs};
pub use launcher::Launcher;
#[doc(hidden)]
pub use omnes_net::boot_id;
pub use omnes_net::ring::Node;
pub use omnes_net::{
    MulticastState, NetError, Offloads, WhileWaiting, descriptors, duration, free_port, live,
};
pub use omnes_proto::broadcast::{
    AckRule, Asking, Collection, GapReports, Hold, Policy, PolicyError,
};
pub use omnes_topo::{Barrier, Lambda, TopoError, Tree};
pub use omnes_wire::JobKey;
pub use owned::{OwnedBcast, OwnedBcastError};
pub use point_to_point::{Source, Status, Tag};
pub use reduce::{Element, ElementType, Reduce, ReduceError, ReduceOp};
pub use request::OwnedRequest;
pub use scope::{Request, Scope};
pub use stats::Stats;
pub use variables::VARIABLES;
