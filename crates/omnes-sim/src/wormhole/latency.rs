//! Latency on an idle network: costs of the check for in-transit packets and of a stop in transit.
//!
//! The test-bed of [IT §5] in modelled resources: the host's bus, the interface's processor, its
//! DMA engines, and the wire. A message is one packet; both ends store it before they forward it,
//! the wire and an in-transit interface do not.
//!
//! ```text
//!   bus ─▶ processor: 2 events ─▶ DMA ─▶ links and switches ─▶ processor: 2 events ─▶ bus
//!                                              │  ▲
//!          processor: early event, claim ──────┘  └── DMA      in transit
//! ```
//!
//! | constant | source |
//! |---|---|
//! | 160 MB/s, DMA set-up 200 ns | [IT §2] |
//! | bus of 64 bits at 66 MHz | the hosts' interfaces, [IT §5] |
//! | 150 ns per switch, 49 ns per cable | as [`Wires::MYRINET`] |
//! | instructions per event | ours, by reading [IT §4]; the figures with the code are lost |
//! | [`INSTRUCTION`], [`HOST`] | **calibrated**, see below |
//!
//! Calibration: two points for two constants. The shortest message takes 12.5 us, the latency of
//! which 125 ns are 1 %; this determines [`HOST`]. A stop in transit costs it 10 %, 1.25 us; this
//! determines [`INSTRUCTION`]. Validation: the cost of the check in nanoseconds, mean and largest
//! (IT-M01, M02), both costs for the longest message (second values of IT-M03, M05), and that the
//! cost of a stop does not grow with length (IT-M04, a mean over lengths). IT-M04 and the first
//! value of IT-M05 are two readings of one measurement, so IT-M04 is not independent of the
//! calibration.
//!
//! Uncertain: the early-receive event has a high priority, so its dispatch is assumed to be short.
//! If it took a whole dispatch, the check would cost the shortest message some 90 ns more with a
//! new calibration, and IT-M02 would not hold. Longer messages hide the check behind their own
//! arrival, and pay for the longer dispatch alone.
//!
//! Deviation: the test-bed's two switches were crossed several times by loops; here each path
//! crosses as many different switches in a row, which is the same on an idle network.

use omnes_topo::network::in_transit::Route;
use omnes_topo::network::{HostId, LinkId, Network, NetworkError, SwitchId};

use super::config::{BUFFERS, EARLY_BYTES, Interface, Wires};
use super::fabric::{Fabric, Mark};
use super::routes::Routes;
use crate::engine::{Cost, Span};

/// Time per instruction of the interface's processor; calibrated.
pub const INSTRUCTION: Span = Span::from_ps(32_500);
/// Time of a host and its bus for an empty message, at each end; calibrated.
pub const HOST: Span = Span::from_ps(3_780_000);
/// Bus of 64 bits at 66 MHz: 528 MB/s.
const BUS_BYTE: Span = Span::from_ps(1_894);

/// Instructions to find the next event among the status bits [IT §3].
const DISPATCH: u64 = 10;
/// Instructions to find an event of high priority, which is checked first [IT-R11].
const DISPATCH_EARLY: u64 = 4;
/// Additional instructions in every dispatch for one more kind of event.
const DISPATCH_ADDED: u64 = 1;
/// Instructions of a start or finish event.
const HANDLE: u64 = 20;
/// Instructions to compare the type of a packet and return to the dispatcher.
const CHECK: u64 = 5;
/// Instructions to check the sender, move pointers past tag and length, and program the DMA
/// [IT-R12].
const CLAIM: u64 = 20;
/// Events at each end of a message: a DMA over the bus, and a DMA of the network.
const EVENTS: u64 = 2;

/// Bytes of a packet in addition to message and route; not in the paper.
const PACKET_BYTES: u32 = 24;
/// Longest message that fits in one packet.
pub const MESSAGE_BYTES_MAX: u32 = 4096;

/// The control program of the interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Firmware {
    /// As shipped: does not handle packets in transit.
    Stock,
    /// With the early-receive event and its check.
    Modified,
}

impl Firmware {
    fn interface(self) -> Interface {
        let (added, early) = match self {
            Self::Stock => (0, 0),
            Self::Modified => (DISPATCH_ADDED, DISPATCH_EARLY + DISPATCH_ADDED + CHECK),
        };
        let events = INSTRUCTION * (EVENTS * (DISPATCH + added + HANDLE));
        Interface {
            early: INSTRUCTION * early,
            claim: INSTRUCTION * CLAIM,
            resume: INSTRUCTION * (DISPATCH + added + CLAIM),
            dma_setup: Interface::ESTIMATED.dma_setup,
            send: events,
            receive: events,
            bus: Cost { fixed: HOST, per_byte: BUS_BYTE },
            buffers: BUFFERS,
            pool: 0,
        }
    }
}

/// A flit is as long as the early-receive event waits for.
const WIRES: Wires = Wires { flit_bytes: EARLY_BYTES, ..Wires::MYRINET };

/// Message lengths measured: powers of two from 1 byte to [`MESSAGE_BYTES_MAX`].
pub fn lengths() -> impl Iterator<Item = u32> {
    (0..=MESSAGE_BYTES_MAX.ilog2()).map(|bit| 1 << bit)
}

/// A row of switches, each with one host.
#[derive(Clone, Debug)]
pub struct Row {
    network: Network,
}

/// Number of switches of the row: as many as the longest path of the test-bed crosses [IT-R18].
const SWITCHES: u32 = 5;
/// Position of the in-transit host, if there is one.
const MIDDLE: u32 = 2;

impl Row {
    /// Creates a row of five switches.
    ///
    /// Errors if such a network cannot be built, which would be a mistake in this crate.
    pub fn new() -> Result<Self, NetworkError> {
        let cables: Vec<_> =
            (1..SWITCHES).map(|next| (SwitchId(next - 1), SwitchId(next))).collect();
        Ok(Self { network: Network::of_cables(SWITCHES, 1, &cables)? })
    }

    /// The host that can be in transit.
    pub const STOP: u32 = MIDDLE;

    /// The network of the row.
    pub fn network(&self) -> &Network {
        &self.network
    }

    fn path(&self, from: u32, to: u32) -> Vec<LinkId> {
        self.network.path(HostId(from), HostId(to), 0).collect()
    }

    /// A route that crosses `switches` switches.
    pub fn direct(&self, switches: u32) -> Route {
        Route { pieces: vec![self.path(0, switches - 1)] }
    }

    /// A route with one in-transit host that crosses five switches, one of them twice.
    pub fn in_transit(&self) -> Route {
        Route { pieces: vec![self.path(0, MIDDLE), self.path(MIDDLE, SWITCHES - 2)] }
    }

    /// The path from the in-transit host to the end of [`Row::in_transit`].
    pub fn onward(&self) -> Route {
        Route { pieces: vec![self.path(MIDDLE, SWITCHES - 2)] }
    }

    /// Bytes on the wire of a message of `bytes`, in whole flits.
    pub fn flit_bytes(route: &Route, bytes: u32) -> u64 {
        let head = Routes::given(std::slice::from_ref(route)).pieces[0][0].head_bytes;
        let flits = WIRES.flits(head + bytes + PACKET_BYTES);
        u64::from(flits * WIRES.flit_bytes)
    }

    /// Events of the interfaces for one message on an idle network, until it is delivered.
    pub fn send(&self, route: &Route, bytes: u32, firmware: Firmware) -> Vec<Mark> {
        let routes = Routes::given(std::slice::from_ref(route));
        let mut fabric = Fabric::new(&self.network, &routes, WIRES, firmware.interface());
        fabric.marks = Some(Vec::new());
        let packet = fabric.packet(0, bytes + PACKET_BYTES);
        fabric.post(0, packet);
        fabric.run_empty();
        fabric.marks.take().unwrap_or_default()
    }

    /// Time of one message from host to host, in nanoseconds.
    pub fn one_way_ns(&self, route: &Route, bytes: u32, firmware: Firmware) -> f64 {
        let marks = self.send(route, bytes, firmware);
        marks.last().map_or(0.0, |mark| mark.at.as_ps() as f64 / 1e3)
    }
}

/// Two costs for one length of message, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Bytes of the message.
    pub bytes: u32,
    /// Half a round trip without the measured cost.
    pub plain_ns: f64,
    /// The measured cost.
    pub cost_ns: f64,
}

impl Sample {
    /// The cost as a percentage of the half round trip.
    pub fn percent(&self) -> f64 {
        100.0 * self.cost_ns / self.plain_ns
    }
}

/// Test 1: stock against modified firmware over 2 switches and 3 back [IT-R18].
///
/// Errors as [`Row::new`].
pub fn check_costs() -> Result<Vec<Sample>, NetworkError> {
    let row = Row::new()?;
    let half = |bytes, firmware| {
        let way = |switches| row.one_way_ns(&row.direct(switches), bytes, firmware);
        (way(2) + way(3)) / 2.0
    };
    let sample = |bytes| {
        let plain_ns = half(bytes, Firmware::Stock);
        let cost_ns = half(bytes, Firmware::Modified) - plain_ns;
        Sample { bytes, plain_ns, cost_ns }
    };
    Ok(lengths().map(sample).collect())
}

/// Test 2: one stop in transit, one way only, against five switches both ways; the difference of
/// half round trips is doubled [IT-R18].
///
/// Errors as [`Row::new`].
pub fn transit_costs() -> Result<Vec<Sample>, NetworkError> {
    let row = Row::new()?;
    let way = |route: &Route, bytes| row.one_way_ns(route, bytes, Firmware::Modified);
    let sample = |bytes| {
        let direct = way(&row.direct(SWITCHES), bytes);
        let with_stop = (way(&row.in_transit(), bytes) + direct) / 2.0;
        Sample { bytes, plain_ns: direct, cost_ns: 2.0 * (with_stop - direct) }
    };
    Ok(lengths().map(sample).collect())
}
