//! What wires, switches and interfaces of a wormhole network cost.

use crate::engine::{Cost, Span};

/// Wires and switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wires {
    /// Time of one byte on a link.
    pub byte: Span,
    /// From one end of a cable to the other.
    pub cable: Span,
    /// From the first byte of a packet at a switch to its first byte on a free output.
    pub routing: Span,
    /// Bytes that move as one; what shares a link is decided for each of these.
    pub flit_bytes: u32,
    /// Bytes of the slack buffer of a switch's input.
    pub slack_bytes: u32,
    /// With so many bytes in it, the buffer tells the sender to stop.
    pub stop_bytes: u32,
    /// With no more than these, it tells a stopped sender to go on.
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

    /// Flits that `bytes` fill.
    pub(super) fn flits(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.flit_bytes)
    }

    /// Time of one flit on a link.
    pub(super) fn flit(&self) -> Span {
        self.byte * u64::from(self.flit_bytes)
    }
}

/// What an interface and its host need for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Of every packet that begins to arrive: the processor looks at its type [IT-R11].
    pub early: Span,
    /// Of a packet in transit: the processor claims it and programs the sending DMA [IT-R12].
    pub claim: Span,
    /// Of a packet in transit that found the sender busy: the processor takes it up [IT-R13].
    pub resume: Span,
    /// From a programmed DMA to the first byte on the link.
    pub dma_setup: Span,
    /// Of a packet of this host: the processor, before the DMA.
    pub send: Span,
    /// Of a packet for this host: the processor, after its last byte.
    pub receive: Span,
    /// Of a packet between host and interface, on the host's bus, either way.
    pub bus: Cost,
    /// Buffers for packets that arrive, and as many for those of the host that leave [IT-R15].
    pub buffers: u32,
    /// Further buffers, for packets in transit alone; 0 is the firmware as built [IT-R15].
    pub pool: u32,
}

/// Bytes that must have arrived before the early-receive event fires [IT-R11].
pub const EARLY_BYTES: u32 = 4;
/// Buffers of an interface for each direction, as in stock firmware [IT-R15].
pub const BUFFERS: u32 = 2;

impl Interface {
    /// The estimates of the earlier studies: 275 ns to detect, of which 25 are four bytes on the
    /// wire, and 200 ns of DMA set-up [IT §2]; hosts that take and give packets in no time; a
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

    /// The same with in-transit packets at the cost that was measured, 1.3 us [IT §5].
    pub const MEASURED: Self = Self { claim: Span::from_ns(1_075), ..Self::ESTIMATED };
}
