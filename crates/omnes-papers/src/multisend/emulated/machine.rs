//! Costs and capacities of host, NIC and layer, in the variants that are compared.

use omnes_sim::engine::{Cost, Span};
use omnes_sim::testbed::{self, Processors, Testbed};

const PARTED: &str = include_str!("../../../../../testbeds/fm-lanai4-parted.toml");

/// Packets that a sender may have in flight to a receiver [MS-R5]. The paper gives no number;
/// assumed, and enough for a whole message of 16 KB: a test uses more and finds no change.
const CREDITS: u32 = 32;
/// A receiver that owes this many credits returns them in a separate packet; assumed.
const CREDITS_OWED_MAX: u32 = CREDITS / 2;
/// Frames of the send queue in the NIC's memory [MS-R4]. The paper gives no number; assumed, as
/// the credits.
const FRAMES: usize = 16;
/// Below this size, in bytes, multi-send loses [MS-M02]: the only point that [`Machine::whole`] is
/// fitted to.
pub(super) const BREAK_EVEN_BYTES: u64 = 32;

/// Changing the header of a packet for its next destination [MS-R10].
#[derive(Clone, Copy, Debug)]
pub(super) enum Patch {
    /// Takes no time.
    None,
    /// Overlaps the transmission of a copy: the next copy leaves when both have ended.
    Beside(Span),
    /// Begins after a copy has been sent.
    After(Span),
}

/// Constants of one variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The host assembles a packet and writes it into a frame.
    pub(super) send: Cost,
    /// The NIC sends a copy of a frame.
    pub(super) transmit: Cost,
    /// The NIC looks for a further destination while it sends a copy.
    pub(super) look: Span,
    /// The NIC prepares the next copy.
    pub(super) patch: Patch,
    /// A NIC receives a packet, from the arrival of its head until it is in the host's memory.
    pub(super) nic_receive: Cost,
    /// The host copies the packet to the user's memory.
    pub(super) host_receive: Cost,
    /// Whether the NIC's two directions block each other.
    pub(super) processors: Processors,
    /// From the start of a transmission until the head reaches the receiver.
    pub(super) latency: Span,
    /// Data bytes of a full packet.
    pub(super) payload_bytes: u64,
    /// Initial credits for each receiver.
    pub(super) credits: u32,
    /// Most credits that a receiver owes before it returns them in a packet.
    pub(super) credits_owed_max: u32,
    /// Frames in the send queue.
    pub(super) frames: usize,
}

/// The testbed that divides receiving between NIC and host.
pub(super) fn parted() -> Testbed {
    Testbed::parse(PARTED).expect("a test reads it too")
}

impl Machine {
    /// The three fits and nothing else: receiving does not occupy the host, and a NIC's two
    /// directions do not block each other.
    pub(super) fn fits() -> Self {
        let testbed = testbed::named("fm-lanai4").expect("it is built in");
        Self { processors: Processors::Two, ..Self::of(&testbed) }.with_host_share(0)
    }

    /// A plausible machine: divided receiving, one processor, and a patch time for which multi-send
    /// and repeated unicast take equally long at [`BREAK_EVEN_BYTES`] [MS-F14].
    pub(super) fn whole() -> Self {
        let machine = Self::of(&parted());
        let patch = Patch::Beside(machine.send.of(BREAK_EVEN_BYTES));
        Self { patch, ..machine }
    }

    fn of(testbed: &Testbed) -> Self {
        let Testbed { host, nic, link, switch, .. } = testbed;
        Self {
            send: host.send,
            transmit: nic.transmit,
            look: Span::ZERO,
            patch: Patch::None,
            nic_receive: nic.receive,
            host_receive: host.receive,
            processors: nic.processors,
            latency: link.latency + switch.latency,
            payload_bytes: link.payload_bytes,
            credits: CREDITS,
            credits_owed_max: CREDITS_OWED_MAX,
            frames: FRAMES,
        }
    }

    /// With `percent` percent of t_recv done by the host [MS-F30].
    #[must_use]
    pub(super) fn with_host_share(self, percent: u64) -> Self {
        let (nic, host) = (self.nic_receive, self.host_receive);
        let part = |percent: u64| Cost {
            fixed: share(nic.fixed + host.fixed, percent),
            per_byte: share(nic.per_byte + host.per_byte, percent),
        };
        Self { nic_receive: part(100 - percent), host_receive: part(percent), ..self }
    }

    /// With a patch after each copy instead of one that overlaps it, of a length that gives the
    /// same time at [`BREAK_EVEN_BYTES`].
    #[must_use]
    pub(super) fn patching_after(self) -> Self {
        let [send, transmit] = [self.send, self.transmit].map(|cost| cost.of(BREAK_EVEN_BYTES));
        let patch = Patch::After(Span::from_ps(send.as_ps() - transmit.as_ps()));
        Self { patch, ..self }
    }

    /// Time from the start of a copy until the next copy can start.
    pub(super) fn copying(&self, bytes: u64) -> Span {
        let transmit = self.transmit.of(bytes);
        match self.patch {
            Patch::None => transmit,
            Patch::Beside(span) => transmit.max(span),
            Patch::After(span) => transmit + span,
        }
    }

    /// The sizes of a message's packets [MS-R2]; an empty message also takes a packet.
    pub(super) fn packets(&self, bytes: u64) -> Vec<u64> {
        let full = self.payload_bytes;
        let count = bytes.div_ceil(full).max(1);
        (0..count).map(|index| (bytes - index * full).min(full)).collect()
    }
}

fn share(span: Span, percent: u64) -> Span {
    Span::from_ps(span.as_ps() * percent / 100)
}
