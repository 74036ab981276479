//! PM's machines: SPARCstations with an SBus, a 16-bit LANai and its SRAM, and Myrinet's links.
//!
//! Source: PM, sections 1.1 and 3. A message goes through four steps [PM-R6]:
//!
//! ```text
//!  host ─descriptor─▶ NIC's processor        NIC's processor ─▶ host looks
//!  memory ═══ SBus: DMA ═══▶ SRAM ──link, switch──▶ SRAM ═══ SBus: DMA ═══▶ memory
//!              (the wire may follow the DMA)   (only when all of it is there)
//! ```
//!
//! Flow control and order are those of `omnes-proto`: each NIC holds an endpoint whose channel
//! sends, answers and rejects [PM-R13–R18]; its packets are sent over the wire, and the NIC's
//! processor spends instructions on each. The link is charged for the length of PM's packet, not
//! ours.
//!
//! Guarantees: the wire never sends a byte that the DMA has not brought [PM-R7]; SRAM never holds
//! more packets than it has buffers; bus, DMA engine, processor and links do one thing at a time;
//! equal runs are equal to the picosecond. Assumes: links lose nothing [PM-R3]; the host polls a
//! word in its own memory, which a DMA sets together with the message, so waiting costs no bus
//! time.
//!
//! Deviations: a rejected packet is retransmitted as in our channel (D-01, D-02). Not done:
//! interrupts, several channels, the reset of a link that is blocked for 50 ms.
//!
//! Cost: about 12 events per message and one per 64 bytes of it.

mod constants;
mod context;
mod dma;
mod host;
mod nic;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use constants::Constants;
pub(super) use context::{Context, restore, save};
pub(super) use host::Program;

use dma::Dma;
use host::Host;
use nic::Nic;
use omnes_proto::LivenessConfig;
use omnes_proto::channel::{ChannelConfig, Checked};
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_proto::packet::Head;
use omnes_sim::engine::{Queue, Server, Time};
use omnes_wire::{ENVELOPE_BYTES, Instant, JobId, JobKey, Rank};
use wire::{Input, Output};

/// How a message passes through the sender's SRAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    /// One buffer; the wire begins when the DMA is done.
    Plain,
    /// Two such buffers [PM-R8].
    Double,
    /// One buffer; the wire follows the DMA [PM-R7].
    Immediate,
}

/// How a message passes through the receiver's SRAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiving {
    /// One buffer.
    Single,
    /// Two: one is filled while the other is emptied [PM-R9].
    Double,
}

/// How multicast handles a message to several receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copies {
    /// The message is fetched into SRAM for each receiver.
    Fetched,
    /// The copy in SRAM is sent again [PM-R25].
    Resident,
}

/// A combination of designs to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Design {
    /// At the sender.
    pub(super) sending: Sending,
    /// At the receiver.
    pub(super) receiving: Receiving,
}

impl Design {
    /// PM as published, with all its features.
    pub(super) const PM: Self = Self { sending: Sending::Immediate, receiving: Receiving::Double };
}

impl Sending {
    fn buffers(self) -> u32 {
        match self {
            Self::Plain | Self::Immediate => 1,
            Self::Double => 2,
        }
    }
}

impl Receiving {
    fn buffers(self) -> u32 {
        match self {
            Self::Single => 1,
            Self::Double => 2,
        }
    }
}

/// A packet of the endpoint.
pub(super) struct Packet {
    to: usize,
    head: Head,
    /// Bytes after the head: none for an answer.
    data_bytes: u64,
}

/// An event at a node.
enum What {
    /// The host's processor has finished its work; the bus follows.
    HostWorked,
    /// The host has finished its action.
    HostDone,
    /// The host checks for work.
    HostLooks,
    /// The NIC's processor has finished its work.
    NicDone,
    /// A burst of the DMA has crossed the bus.
    Burst,
    /// Bytes have left on the link.
    Left,
    /// A packet is in SRAM, with its checksum.
    Arrived(Box<Packet>),
    /// A deadline of the endpoint has passed.
    Deadline,
}

struct Event {
    node: usize,
    what: What,
}

/// One host with its NIC and links.
struct Node {
    endpoint: Endpoint,
    host: Host,
    bus: Server,
    dma: Dma,
    nic: Nic,
    output: Output,
    input: Input,
}

/// All nodes; see the module header.
pub(super) struct World {
    constants: Constants,
    design: Design,
    queue: Queue<Event>,
    now: Time,
    nodes: Vec<Node>,
}

const JOB: JobId = JobId(2);
const KEY: JobKey = JobKey::new(*b"simulated secret");

/// Number of messages of `bytes` that fill the receive buffer [PM-C08].
fn receive_slots(constants: &Constants, bytes: u64) -> u32 {
    let buffers = &constants.buffers;
    let framing = buffers.receive_record_bytes - 8;
    let all = buffers.receive_records * buffers.receive_record_bytes;
    (all / (bytes + framing)) as u32
}

fn channel(constants: &Constants, bytes: u64) -> Checked {
    let config = ChannelConfig {
        payload_bytes: constants.buffers.message_bytes as u16 + ENVELOPE_BYTES as u16,
        pool_slots: receive_slots(constants, bytes),
        window_packets: constants.buffers.send_records as u32,
        ..ChannelConfig::default()
    };
    config.build().expect("the settings are in range")
}

impl World {
    /// Nodes that run `programs` with messages of at most `bytes`.
    pub(super) fn new(
        constants: &Constants,
        design: Design,
        bytes: u64,
        programs: Vec<Program>,
    ) -> Self {
        let checked = channel(constants, bytes);
        let size = programs.len() as u32;
        let node = |(rank, program): (usize, Program)| {
            let config = EndpointConfig {
                me: Rank(rank as u32),
                size,
                job: JOB,
                key: KEY,
                channels: vec![checked.clone()],
                broadcast: None,
                collective: CollectiveConfig::default(),
                liveness: LivenessConfig::default(),
            };
            Node {
                endpoint: Endpoint::new(Instant::ZERO, config),
                host: Host::new(program),
                bus: Server::default(),
                dma: Dma::default(),
                nic: Nic::new(constants, design),
                output: Output::default(),
                input: Input::default(),
            }
        };
        let nodes = programs.into_iter().enumerate().map(node).collect();
        let constants = constants.clone();
        Self { constants, design, queue: Queue::new(), now: Time::ZERO, nodes }
    }

    /// Runs until all programs have finished.
    ///
    /// # Panics
    /// If no event is left before that.
    pub(super) fn run(&mut self) {
        for node in 0..self.nodes.len() {
            self.kick_host(node);
        }
        while self.nodes.iter().any(|node| !node.host.is_done()) {
            // Only an action of a host can end a program.
            while !self.step() {}
        }
    }

    /// Handles the next event; returns whether a host has finished an action.
    fn step(&mut self) -> bool {
        let (at, Event { node, what }) = self.queue.pop().expect("programs end");
        self.now = Time::from_ps(at);
        let is_deed = matches!(what, What::HostDone);
        match what {
            What::HostWorked => self.on_host_worked(node),
            What::HostDone => self.on_host_done(node),
            What::HostLooks => self.kick_host(node),
            What::NicDone => self.on_nic_done(node),
            What::Burst => self.on_burst(node),
            What::Left => self.on_left(node),
            What::Arrived(packet) => self.on_arrived(node, packet),
            What::Deadline => self.on_deadline(node),
        }
        is_deed
    }

    fn at(&mut self, at: Time, node: usize, what: What) {
        self.queue.push(at.as_ps(), Event { node, what });
    }

    /// Times at which a node's host received each message.
    pub(super) fn received(&self, node: usize) -> &[Time] {
        &self.nodes[node].host.received
    }

    /// Counters of a node's channel.
    #[cfg(test)]
    fn counters(&self, node: usize) -> omnes_proto::channel::ChannelCounters {
        *self.nodes[node].endpoint.channels()[0].counters()
    }
}
