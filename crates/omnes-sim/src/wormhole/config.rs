//! Costs of wires, switches and interfaces of a wormhole network.

use crate::engine::{Cost, Span};

/// Wires and switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wires {
    /// Time per byte on a link.
    pub byte: Span,
    /// Propagation time of a cable.
    pub cable: Span,
    /// From the arrival of a packet's first byte at a switch until that byte leaves on a free
    /// output.
    pub routing: Span,
    /// Bytes that move as a unit; sharing of a link is decided per flit.
    pub flit_bytes: u32,
    /// Capacity of the slack buffer at a switch's input, in bytes.
    pub slack_bytes: u32,
    /// Upper mark: at this fill level the buffer stops the sender.
    pub stop_bytes: u32,
    /// Lower mark: at or below this fill level the buffer lets a stopped sender continue.
    pub go_bytes: u32,
}

impl Wires {
    /// Myrinet as in the studies of in-transit buffers: 160 MB/s [IT §2], ten metres of cable at
    /// 4.9 ns each, 150 ns per switch, slack buffers of 80 bytes with marks at 56 and 40.
    pub const MYRINET: Self = Self {
        byte: Span::from_ps(6_250),
        cable: Span::from_ns(49),
        routing: Span::from_ns(150),
        flit_bytes: 8,
        slack_bytes: 80,
        stop_bytes: 56,
        go_bytes: 40,
    };

    /// Flits needed for `bytes`.
    pub(super) fn flits(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.flit_bytes)
    }

    /// Time per flit on a link.
    pub(super) fn flit(&self) -> Span {
        self.byte * u64::from(self.flit_bytes)
    }
}

/// Costs of an interface and its host per packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// For every arriving packet: the processor checks its type [IT-R11].
    pub early: Span,
    /// For a packet in transit: the processor claims it and programs the sending DMA [IT-R12].
    pub claim: Span,
    /// For a packet in transit that found the sender busy: the processor resumes it [IT-R13].
    pub resume: Span,
    /// From programming a DMA to the first byte on the link.
    pub dma_setup: Span,
    /// For a packet of this host: the processor, before the DMA.
    pub send: Span,
    /// For a packet to this host: the processor, after its last byte.
    pub receive: Span,
    /// For a packet between host and interface, on the host's bus, in either direction.
    pub bus: Cost,
    /// Buffers for arriving packets, and as many for the host's outgoing packets [IT-R15].
    pub buffers: u32,
    /// Additional buffers, for packets in transit only; 0 is the firmware as built [IT-R15].
    pub pool: u32,
}

/// Bytes that must have arrived before the early-receive event fires [IT-R11].
pub const EARLY_BYTES: u32 = 4;
/// Buffers of an interface for each direction, as in stock firmware [IT-R15].
pub const BUFFERS: u32 = 2;

impl Interface {
    /// The estimates of the earlier studies: 275 ns to detect, of which 25 are four bytes on the
    /// wire, and 200 ns of DMA set-up [IT §2]; hosts that send and receive packets in no time; a
    /// pool of 128 buffers, 64 KiB for packets of 512 bytes.
    pub const ESTIMATED: Self = Self {
        early: Span::ZERO,
        claim: Span::from_ns(250),
        resume: Span::ZERO,
        dma_setup: Span::from_ns(200),
        send: Span::ZERO,
        receive: Span::ZERO,
        bus: Cost { fixed: Span::ZERO, per_byte: Span::ZERO },
        buffers: BUFFERS,
        pool: 128,
    };

    /// The same with the measured cost of in-transit packets, 1.3 us [IT §5].
    pub const MEASURED: Self = Self { claim: Span::from_ns(1_075), ..Self::ESTIMATED };
}
