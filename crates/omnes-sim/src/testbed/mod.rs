//! What the hardware of a cluster costs: hosts, NICs, links and switches, each constant with its
//! source.
//!
//! A testbed is a TOML file; those of `testbeds/` are built in, and a user's own is read from
//! anywhere. A packet's life in the order of the tables:
//!
//! ```text
//!  host.call ─▶ host.train + host.send ─▶ nic.transmit ─▶ link ─▶ switch ─▶ link ─▶ nic.receive
//!      (an operation begins)                (again: nic.again)                          │
//!                          host.batch + host.receive ◀─ host.notice (a waiting host) ◀──┘
//! ```
//!
//! Where the hardware does some packets at another cost, `host.report_send` and `report_receive`
//! stand for packets that only acknowledge, `host.granted_send` and `granted_receive` for data
//! whose place was asked for before; `nic.latency` is time in a NIC that keeps nobody waiting, and
//! `nic.multicast` more of it for what came to all. `[protocol]` sets what the machines are told.
//!
//! A NIC that does messages and collectives itself has costs for each: `nic.record`, `answer` and
//! `settle` for messages of its host, `step_receive`, `step`, `trigger` and `step_send` for steps
//! of a collective, `bell` and `show` for what passes between the two.
//!
//! Every constant says where it comes from and what it was used for: `given` is a parameter or a
//! measurement of its source, `calibrated` was fitted so that the points named in `points` come
//! out, and may not be checked against them, `assumed` is a guess that no result may hang on.

mod built_in;
mod file;

pub use built_in::{built_in, named};
pub use file::{Constant, Origin, TestbedError};

use crate::engine::{Cost, Span};
use serde::Deserialize;

/// What is done with a packet for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// It is dropped, as Ethernet does.
    Drop,
    /// The sender is stopped, as Myrinet and InfiniBand do.
    Stop,
}

/// When a switch passes a packet on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// As soon as its head is there.
    CutThrough,
    /// When all of it is there.
    StoreAndForward,
}

/// Who does the work of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processors {
    /// One processor for what goes out and what comes in.
    One,
    /// One for each way.
    Two,
    /// The host's own processor: the NIC is software.
    Host,
}

/// When the library works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Also while its rank computes, by a thread.
    #[default]
    Always,
    /// Only while its rank is in a call.
    InCalls,
}

/// What a host's processor does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// Cores that all hosts share, host `h` on core `h` modulo this; 0 if each has its own.
    pub cores: u32,
    /// Beginning to work for another host than before, where cores are shared.
    pub switch: Cost,
    /// A look of a waiting host that finds nothing. Hosts that share a core look in turns, so on
    /// the average half of them look in vain before the one that has work.
    pub look: Cost,
    /// Beginning an operation.
    pub call: Cost,
    /// Handing out the first packet of a train, beside `send`.
    pub train: Cost,
    /// Packets of one train at most.
    pub train_packets: u32,
    /// Handing a packet to the NIC.
    pub send: Cost,
    /// From the NIC's delivery until a waiting host takes it up; no work.
    pub notice: Cost,
    /// Taking in the first packet of a batch, beside `receive`.
    pub batch: Cost,
    /// Packets of one batch at most.
    pub batch_packets: u32,
    /// Taking a packet in, with its way to the user's memory.
    pub receive: Cost,
    /// Copying a message at its sender, where it is copied.
    pub copy: Cost,
    /// Handing out a packet that only acknowledges, where that costs something else.
    pub report_send: Option<Cost>,
    /// Taking it in.
    pub report_receive: Option<Cost>,
    /// Handing out data whose place the receiver has told, where that costs something else: the
    /// fixed part once, with the last packet.
    pub granted_send: Option<Cost>,
    /// Taking them in, as above.
    pub granted_receive: Option<Cost>,
    /// Bytes that may wait for the host, counted as the kernel does.
    pub receive_queue_bytes: u64,
    /// When the library works.
    pub progress: Progress,
}

/// What a NIC does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Who does it.
    pub processors: Processors,
    /// Sending a packet.
    pub transmit: Cost,
    /// Sending it once more, to another receiver.
    pub again: Cost,
    /// Taking a packet in, up to the host's memory.
    pub receive: Cost,
    /// Taking in a message of a collective, which stays in the NIC.
    pub step_receive: Cost,
    /// Taking in the first packet of a train, beside `receive`.
    pub receive_train: Cost,
    /// The firmware's work on a message of a collective.
    pub step: Cost,
    /// Sending such a message.
    pub step_send: Cost,
    /// Taking a command of the host.
    pub bell: Cost,
    /// Showing the host a result.
    pub show: Cost,
    /// Beginning what an arrival lets go on, beside `step` and `step_send`; not what the host's
    /// own command begins.
    pub trigger: Cost,
    /// Keeping account of a packet of the host, after it has left.
    pub record: Cost,
    /// Acknowledging a packet for the host to the NIC that sent it; NICs do so where this is not 0.
    pub answer: Cost,
    /// Taking such an acknowledgement in.
    pub settle: Cost,
    /// Time of a packet in a NIC beside its work on it, each way; others pass meanwhile.
    pub latency: Span,
    /// More of it where a packet to all comes in.
    pub multicast: Span,
}

/// What the machines are told, where the testbed's own library was set like that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Protocol {
    /// Larger messages wait until their place is known, all of them.
    pub eager_bytes: Option<u32>,
    /// Broadcasts that a root may have copied and not heard of.
    pub window_messages: Option<u32>,
}

/// What a link does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Time on the wire, without the length of the wire.
    pub wire: Cost,
    /// Length of the wire.
    pub latency: Span,
    /// Bytes around each packet, as headers, checksums and gaps.
    pub frame_bytes: u64,
    /// Data bytes that a packet may carry.
    pub payload_bytes: u64,
}

/// What a switch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// From the arrival of a packet, or of its head, until it leaves an idle port.
    pub latency: Span,
    /// Making one copy of a multicast packet, by which each copy leaves later than the last.
    pub copy: Span,
    /// When packets go on.
    pub forwarding: Forwarding,
    /// Bytes that may wait at a port.
    pub buffer_bytes: u64,
    /// What is done with more.
    pub when_full: WhenFull,
}

/// See the module header.
#[derive(Clone, PartialEq, Debug)]
pub struct Testbed {
    /// How it is called on a command line.
    pub name: String,
    /// What it is, in one line.
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
    /// All constants as they stand in the file, with sources.
    pub constants: Vec<Constant>,
}

impl Testbed {
    /// Reads a testbed from the text of a TOML file.
    ///
    /// # Errors
    /// [`TestbedError`] names what is wrong and where.
    pub fn parse(text: &str) -> Result<Self, TestbedError> {
        file::parse(text)
    }
}
