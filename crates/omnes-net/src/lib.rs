//! Real networking for the protocol machines: sockets, bootstrap and the progress engine.
//!
//! Start at [`Engine`].
//!
//! | module | what it does |
//! |---|---|
//! | `engine`, `job`, `error` | the interface to callers: operations, settings, counters |
//! | `driver`, `core`, `operations`, `clock` | which thread makes progress, and one step of it |
//! | `links`, `socket`, `line` | sockets, and the batching of packets into trains |
//! | `memory`, `scatter`, `self_messages` | storage of message bytes; receiving into user memory |
//! | [`ring`] | shared memory between ranks of one node, in place of sockets |
//! | `multicast`, `multisend`, `relay` | broadcasts by multicast group or by a tree; forwarding |
//! | `doorbell`, `queue_request` | requests to the kernel NIC: barriers, receive queues |
//! | `schedule` | sequences of messages, for nonblocking collectives |
//! | `cipher` | encryption of user data |
//! | `rendezvous`, `table`, `trial`, `port`, `deadline` | joining: ranks, what the paths carry |
//! | `watch`, `peer_user`, `boot` | ranks that end; user of a process, identity of a machine |
//! | `waiting`, `poller`, `idle_sleep`, `while_waiting` | how threads wait |
//! | `core_sharing`, `broadcast_yield`, `time_slice` | ranks that share cores with others |
//! | [`live`] | counters published to other processes |
//! | [`descriptors`], `file_size`, [`duration`] | limits of this process; times as text |

mod boot;
mod broadcast_yield;
mod cipher;
mod clock;
mod core;
mod core_sharing;
mod deadline;
pub mod descriptors;
mod doorbell;
mod driver;
pub mod duration;
mod engine;
mod error;
mod file_size;
mod idle_sleep;
mod job;
mod line;
mod links;
pub mod live;
mod memory;
mod multicast;
mod multisend;
mod operations;
mod peer_user;
mod poller;
mod port;
mod queue_request;
mod relay;
mod rendezvous;
pub mod ring;
mod scatter;
mod schedule;
mod self_messages;
mod socket;
mod table;
mod time_slice;
mod trial;
mod waiting;
mod watch;
mod while_waiting;

pub use crate::core::{Cast, QueueCounters, WhenFull};
#[doc(hidden)]
pub use boot::boot_id;
pub use engine::{Engine, SlotRequest};
pub use error::NetError;
pub use job::{EngineCounters, JobConfig, TIMEOUT_MIN};
pub use links::NicAddresses;
pub use memory::KEPT_BYTES_MAX;
pub use multicast::{MulticastConfig, MulticastState};
pub use multisend::MultiSendPlan;
/// The kernel NIC.
pub use omnes_nic as nic;
pub use omnes_nic::without_signals;
pub use omnes_proto::broadcast::{
    BroadcastConfig, BroadcastCounters, BroadcastError, CastGroupConfig, GroupId, Hold, Policy,
};
pub use omnes_proto::channel::{ChannelConfig, Message, Pattern, Reply};
pub use operations::{Completion, Disruption, Operation, OperationError, Outcome};
pub use port::free_port;
pub use relay::Relayed;
pub use rendezvous::random;
pub use schedule::{Combiner, Fold, Round, Schedule, Transfer};
pub use socket::{Offloads, SocketCounters};
pub use while_waiting::WhileWaiting;
