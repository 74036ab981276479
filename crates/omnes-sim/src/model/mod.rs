//! Models of clusters: the same machines, on hosts, NICs, links and switches that take time.
//!
//! ```text
//!   Plan ─▶ Task ─▶ Endpoint ─▶ host's processor ─▶ NIC ─▶ link ─▶ switch ─▶ link ─▶ NIC ─▶ ...
//!          (operations)  (the machines of omnes-proto)   (servers with the costs of a testbed)
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `setup`, `plan` | parts of a model, operations of its ranks |
//! | `world` | the event loop that drives everything |
//! | `host` | the driver of an endpoint on a processor |
//! | `task`, `operations` | progress of a rank: trees, multicast, barriers |
//! | `sample` | times of each operation |
//! | `net`, `packet` | NICs, links, switches and the packets on them |
//! | `record` | the hash of a run, and bars that show the activity of each resource |
//!
//! Guarantees: the same setup and plan give the same hash, in debug and release builds; the
//! machines and the firmware, including tags, are the ones that sockets and the kernel run. Data
//! have a length and no content. Time is in picoseconds; the machines' clocks show whole
//! nanoseconds.
//!
//! Not done: several ranks on a host; failures (see the rig); back-pressure beyond one switch.

mod host;
mod net;
mod operations;
mod packet;
mod plan;
mod record;
mod sample;
mod setup;
mod shared;
mod task;
mod world;

pub use net::NetCounters;
pub use plan::{BarrierKind, Op, Plan, Steps};
pub use record::{BARS_MAX, Bar, Doing, RankCounters};
pub use sample::Sample;
pub use setup::{Carrier, Cloning, Setup};
pub use world::{Model, ModelError, Report};
