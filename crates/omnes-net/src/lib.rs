//! Real network under the machines: sockets, rendezvous and the progress engine.
//!
//! Start at [`Engine`]. Inside, `driver` tells who moves things on and `core` does it, one step at
//! a time; `links` are the sockets, each of which (`socket`) sends and receives trains that `line`
//! puts together; `scatter` reads them straight into user memory, and `memory` knows where the
//! bytes are. [`ring`] takes the sockets' place between ranks of one node. `multicast` joins the
//! job's group, `relay` passes on what comes in, `schedule`
//! lets messages follow one another, `cipher` encrypts user data. `rendezvous` lets the
//! ranks find each other, `watch` sees them end, `waiting` and `poller` are how callers wait.
//! [`live`] shows other processes what was counted.

mod boot;
mod cipher;
mod clock;
mod core;
mod courtesy;
mod crowd;
mod deadline;
pub mod descriptors;
mod doorbell;
mod driver;
pub mod duration;
mod engine;
mod error;
mod handout;
mod job;
mod line;
mod links;
pub mod live;
mod memory;
mod multicast;
mod nap;
mod operations;
mod poller;
mod port;
mod proof;
mod queue_request;
mod relay;
mod rendezvous;
mod report;
pub mod ring;
mod scatter;
mod schedule;
mod self_messages;
mod signals;
mod socket;
mod spread;
mod table;
mod trial;
mod user;
mod waiting;
mod watch;
mod while_waiting;

pub use crate::core::{Cast, QueueCounters, WhenFull};
#[doc(hidden)]
pub use boot::boot_id;
pub use engine::Engine;
pub use error::NetError;
pub use job::{EngineCounters, JobConfig, TIMEOUT_MIN};
pub use links::NicAddresses;
pub use memory::KEPT_BYTES_MAX;
pub use multicast::{MulticastConfig, MulticastState};
/// The kernel's network interface.
pub use omnes_nic as nic;
pub use omnes_proto::broadcast::{
    BroadcastConfig, BroadcastCounters, BroadcastError, GroupConfig, GroupId, Hold, Policy,
};
pub use omnes_proto::channel::{ChannelConfig, Message, Pattern, Reply};
pub use operations::{Completion, Disruption, Operation, OperationError, Outcome};
pub use port::free_port;
pub use relay::Relayed;
pub use rendezvous::random;
pub use schedule::{Combiner, Fold, Round, Schedule, Transfer};
pub use signals::without_signals;
pub use socket::{Offloads, SocketCounters};
pub use spread::SpreadPlan;
pub use while_waiting::WhileWaiting;
