//! Hardware costs of a cluster: hosts, NICs, links and switches, each constant with its source.
//!
//! A testbed is a TOML file; those in `testbeds/` are built in, and a user's own can be read from
//! any path. The life of a packet, in terms of the tables:
//!
//! ```text
//!  host.call ─▶ host.train + host.send ─▶ nic.transmit ─▶ link ─▶ switch ─▶ link ─▶ nic.receive
//!      (an operation begins)                (again: nic.again)                          │
//!                          host.batch + host.receive ◀─ host.notice (a waiting host) ◀──┘
//! ```
//!
//! If the hardware handles some packets at another cost, `host.report_send` and `report_receive`
//! apply to packets that only acknowledge, `host.granted_send` and `granted_receive` to data whose
//! place was asked for before; `nic.latency` is time in a NIC that does not block other packets,
//! and `nic.multicast` is additional latency of packets to all. `[protocol]` holds settings of the
//! machines.
//!
//! A NIC that handles messages and collectives itself has costs for each: `nic.record`, `answer`
//! and `settle` for messages of its host; `step_receive`, `step`, `trigger` and `step_send` for
//! steps of a collective; `bell` and `show` for communication between host and NIC.
//!
//! Every constant states its source and its origin: `given` is a parameter or a measurement of its
//! source, `calibrated` was fitted so that the points named in `points` are reproduced, and must
//! not be checked against them, `assumed` is a guess that no result may depend on.

mod built_in;
mod file;

pub use built_in::{built_in, named};
pub use file::{Constant, Origin, TestbedError};

use crate::engine::{Cost, Span};
use serde::Deserialize;

/// Treatment of a packet for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// The packet is dropped, as on Ethernet.
    Drop,
    /// The sender is stopped, as on Myrinet and InfiniBand.
    Stop,
}

/// When a switch forwards a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// As soon as its head has arrived.
    CutThrough,
    /// When all of it has arrived.
    StoreAndForward,
}

/// The processors that do the work of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processors {
    /// One processor for both directions.
    One,
    /// One for each direction.
    Two,
    /// The host's own processor: the NIC is software.
    Host,
}

/// When the library makes progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Also while its rank computes, in a thread.
    #[default]
    Always,
    /// Only while its rank is in a call.
    InCalls,
}

/// Costs of a host's processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// Cores that all hosts share, host `h` on core `h` modulo this; 0 if each has its own.
    pub cores: u32,
    /// Switching to another host, if cores are shared.
    pub switch: Cost,
    /// A poll by a waiting host that finds nothing. Hosts that share a core poll in turns, so on
    /// average half of them poll in vain before the one that has work.
    pub look: Cost,
    /// Starting an operation.
    pub call: Cost,
    /// Sending the first packet of a train, in addition to `send`.
    pub train: Cost,
    /// Most packets of one train.
    pub train_packets: u32,
    /// Passing a packet to the NIC.
    pub send: Cost,
    /// Delay from the NIC's delivery until a waiting host notices the packet; not work.
    pub notice: Cost,
    /// Receiving the first packet of a batch, in addition to `receive`.
    pub batch: Cost,
    /// Most packets of one batch.
    pub batch_packets: u32,
    /// Receiving a packet, including the move of its data to the user's memory.
    pub receive: Cost,
    /// Copying a message at its sender, if it is copied.
    pub copy: Cost,
    /// Sending a packet that only acknowledges, if that cost differs from `send`.
    pub report_send: Option<Cost>,
    /// Receiving such a packet.
    pub report_receive: Option<Cost>,
    /// Sending data whose place the receiver has announced, if that cost differs from `send`: the
    /// fixed part applies once, with the last packet.
    pub granted_send: Option<Cost>,
    /// Receiving such data, likewise.
    pub granted_receive: Option<Cost>,
    /// Most bytes queued for the host, in truesize as charged by the kernel.
    pub receive_queue_bytes: u64,
    /// When the library makes progress.
    pub progress: Progress,
}

/// Costs of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nic {
    /// The processors that do its work.
    pub processors: Processors,
    /// Sending a packet.
    pub transmit: Cost,
    /// Sending a packet once more, to another receiver.
    pub again: Cost,
    /// Receiving a packet, up to the host's memory.
    pub receive: Cost,
    /// Receiving a message of a collective, which stays in the NIC.
    pub step_receive: Cost,
    /// Receiving the first packet of a train, in addition to `receive`.
    pub receive_train: Cost,
    /// The firmware's work on a message of a collective.
    pub step: Cost,
    /// Sending a message of a collective.
    pub step_send: Cost,
    /// Receiving a command of the host.
    pub bell: Cost,
    /// Showing the host a result.
    pub show: Cost,
    /// Starting the work that an arrival enables, in addition to `step` and `step_send`; not for
    /// work that the host's own command starts.
    pub trigger: Cost,
    /// Bookkeeping for a packet of the host, after it has left.
    pub record: Cost,
    /// Acknowledging a packet for the host to the NIC that sent it; NICs do so if this is not 0.
    pub answer: Cost,
    /// Receiving such an acknowledgement.
    pub settle: Cost,
    /// Time of a packet in a NIC besides the work on it, in each direction; other packets pass
    /// meanwhile.
    pub latency: Span,
    /// Additional latency of an arriving packet to all.
    pub multicast: Span,
}

/// Settings of the machines, if the testbed's own library used such values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Protocol {
    /// Longest message sent without asking for its place; longer ones wait for it entirely.
    pub eager_bytes: Option<u32>,
    /// Broadcasts that a root may have copied without an acknowledgement.
    pub window_messages: Option<u32>,
}

/// Costs and sizes of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Time on the wire, excluding propagation.
    pub wire: Cost,
    /// Propagation delay of the wire.
    pub latency: Span,
    /// Bytes around each packet, such as headers, checksums and gaps.
    pub frame_bytes: u64,
    /// Data bytes that a packet may carry.
    pub payload_bytes: u64,
}

/// Costs and sizes of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// Delay from the arrival of a packet, or of its head, until it leaves an idle port.
    pub latency: Span,
    /// Making one copy of a multicast packet; each copy leaves later than the previous one by this
    /// time.
    pub copy: Span,
    /// When packets are forwarded.
    pub forwarding: Forwarding,
    /// Bytes that may be queued at a port.
    pub buffer_bytes: u64,
    /// Treatment of further packets.
    pub when_full: WhenFull,
}

/// See the module header.
#[derive(Clone, PartialEq, Debug)]
pub struct Testbed {
    /// Name on the command line.
    pub name: String,
    /// Description, in one line.
    pub title: String,
    /// See [`Host`].
    pub host: Host,
    /// See [`Nic`].
    pub nic: Nic,
    /// See [`Link`].
    pub link: Link,
    /// See [`Switch`].
    pub switch: Switch,
    /// See [`Protocol`].
    pub protocol: Protocol,
    /// All constants as given in the file, with sources.
    pub constants: Vec<Constant>,
}

impl Testbed {
    /// Reads a testbed from the text of a TOML file.
    ///
    /// # Errors
    /// [`TestbedError`] names the error and its place.
    pub fn parse(text: &str) -> Result<Self, TestbedError> {
        file::parse(text)
    }
}
