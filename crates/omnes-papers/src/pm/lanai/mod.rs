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
//! sends, answers and rejects [PM-R13–R18]; its packets are what goes over the wire, and its
//! processor pays instructions for each. What is charged on the link is PM's length of a packet,
//! not ours.
//!
//! Guarantees: the wire never sends a byte that the DMA has not brought [PM-R7]; SRAM holds no
//! more packets than it has buffers; bus, DMA engine, processor and links do one thing at a time;
//! equal runs are equal to the picosecond. Assumes: links lose nothing [PM-R3]; the host looks at
//! a word in its own memory, which a DMA sets with the message, so waiting costs no bus time.
//!
//! Deviations: a rejected packet is repeated as our channel does (D-01, D-02). Not done:
//! interrupts, several channels, the reset of a link that is blocked for 50 ms.
//!
//! Cost: about 12 events for a message and one for each 64 bytes of it.

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

/// How a message gets through the sender's SRAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    /// One buffer; the wire begins when the DMA is done.
    Plain,
    /// Two buffers of that sort [PM-R8].
    Double,
    /// One buffer; the wire follows the DMA [PM-R7].
    Immediate,
}

/// How a message gets through the receiver's SRAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiving {
    /// One buffer.
    Single,
    /// Two: one is filled while the other is emptied [PM-R9].
    Double,
}

/// How multicast treats a message that goes to several receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copies {
    /// Each time it is brought into SRAM anew.
    Fetched,
    /// What lies in SRAM is sent again [PM-R25].
    Resident,
}

/// What is compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Design {
    /// At the sender.
    pub(super) sending: Sending,
    /// At the receiver.
    pub(super) receiving: Receiving,
}

impl Design {
    /// As PM is, with all it has.
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

/// What happens, at a node.
enum What {
    /// The host's processor has done its work; the bus comes next.
    HostWorked,
    /// The host is done with it.
    HostDone,
    /// The host looks whether there is something to do.
    HostLooks,
    /// The NIC's processor has done its work.
    NicDone,
    /// A burst of the DMA has crossed the bus.
    Burst,
    /// Bytes have left on the link.
    Left,
    /// A packet is in SRAM, with its checksum.
    Arrived(Box<Packet>),
    /// A deadline of the endpoint.
    Deadline,
}

struct Event {
    node: usize,
    what: What,
}

/// One machine.
struct Node {
    endpoint: Endpoint,
    host: Host,
    bus: Server,
    dma: Dma,
    nic: Nic,
    output: Output,
    input: Input,
}

/// All machines; see the module header.
pub(super) struct World {
    constants: Constants,
    design: Design,
    queue: Queue<Event>,
    now: Time,
    nodes: Vec<Node>,
}

const JOB: JobId = JobId(2);
const KEY: JobKey = JobKey::new(*b"simulated secret");

/// Messages of `bytes` fill the receive buffer when there are so many [PM-C08].
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

    /// Runs until all programs have what they wait for.
    ///
    /// # Panics
    /// If nothing happens any more before that.
    pub(super) fn run(&mut self) {
        for node in 0..self.nodes.len() {
            self.kick_host(node);
        }
        while self.nodes.iter().any(|node| !node.host.is_done()) {
            // Only what a host has done can end a program.
            while !self.step() {}
        }
    }

    /// Lets the next thing happen; whether a host has done something.
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

    /// When a node's host took each message.
    pub(super) fn received(&self, node: usize) -> &[Time] {
        &self.nodes[node].host.received
    }

    /// What a node's channel has counted.
    #[cfg(test)]
    fn counters(&self, node: usize) -> omnes_proto::channel::ChannelCounters {
        *self.nodes[node].endpoint.channels()[0].counters()
    }
}
