//! All limits of the machines, with the relations that they must keep.

use omnes_wire::GAP_MAP_BITS;
use std::time::Duration;

/// Packets of one lane that may be unanswered at once.
pub const WINDOW_PACKETS_MAX: u32 = 1024;
// One gap map must be able to report on a whole window, so that a NACK carries all gaps.
const _: () = assert!(WINDOW_PACKETS_MAX <= GAP_MAP_BITS);
// Sequence order is valid under 2^31 apart.
const _: () = assert!(WINDOW_PACKETS_MAX < 1 << 31);

/// Broadcasts of one root that may be unanswered at once.
pub const WINDOW_MESSAGES_MAX: u32 = 1 << 16;

/// Packets that one message may take.
pub const MESSAGE_PACKETS_MAX: u32 = 1 << 30;
// The end of a message must be comparable with any number in the window before it.
const _: () = assert!(MESSAGE_PACKETS_MAX + WINDOW_PACKETS_MAX < 1 << 31);

/// Packets handed out to one peer before the next peer's turn: what one GSO train of 1,500-byte
/// packets holds, so that a turn fills one train.
pub const BURST_PACKETS: u32 = 44;

/// Smallest and largest payload of a packet that a path may be configured for, in bytes.
pub const PAYLOAD_BYTES_MIN: u16 = 256;
/// See [`PAYLOAD_BYTES_MIN`]; a jumbo frame less the headers.
pub const PAYLOAD_BYTES_MAX: u16 = 8908;

/// Unit of the credits field of the header, in bytes of truesize.
pub const CREDIT_UNIT_BYTES: u32 = 4096;

/// Data bytes of a packet that any network passes on: less than the 1,280 bytes that IPv6 asks for,
/// with all that stands before them.
pub(crate) const SHORT_BYTES_MAX: u32 = 1024;
/// Times that the oldest packet must have gone again in vain to be one that never arrives: with
/// three packets in ten lost, chance does that to one of ten thousand.
pub(crate) const FRUITLESS_MIN: u32 = 8;
/// Part of the time in which a silent rank counts as failed after which it is asked whether it
/// lives, if long packets to it may be lost.
pub(crate) const QUIET_SHARE: u32 = 2;

/// Later packets that make a gap certain enough for a NACK without waiting.
pub const REORDER_PACKETS: u32 = 3;

/// Times [`ChannelConfig::pool_slots`](crate::channel::ChannelConfig::pool_slots) that a channel
/// keeps of messages that nobody has asked for, while a receive waits for a message that may be
/// behind them.
pub const POOL_GROWTH: usize = 16;

/// Longest retransmission timeout.
pub const RETRANSMIT_TIMEOUT_MAX: Duration = Duration::from_millis(500);
/// Doublings of the retransmission timeout without an answer.
pub const BACKOFF_DOUBLINGS_MAX: u32 = 8;

/// Longest wait between two probes of a rejected packet.
pub const PROBE_WAIT_MAX: Duration = Duration::from_millis(50);

/// The socket-buffer space that the kernel charges for one datagram with `wire_bytes` of UDP
/// payload: a 64-byte one is charged about 830 bytes, a full Ethernet frame 2,304.
pub const fn truesize(wire_bytes: u32) -> u32 {
    if wire_bytes <= 128 {
        832
    } else if wire_bytes <= 1500 {
        // One power-of-two head of 2 KiB plus the socket buffer structure.
        2304
    } else {
        // Paged: the data in whole pages, plus head and structure.
        wire_bytes.div_ceil(4096) * 4096 + 1280
    }
}

/// Ranks that may ask, or report to, the same one at once; where there are more, each does so at a
/// time of its own [RFC 5401].
pub(crate) const RANKS_AT_ONCE: u32 = 32;
/// Between two of these times: what it takes to send a packet, and to take it in.
pub(crate) const STAGGER: Duration = Duration::from_micros(2);

/// Channels of an endpoint.
pub const CHANNELS_MAX: usize = 16;

/// Answers to pings and notices that may wait to be sent; more are dropped, and asked for again.
pub const CONTROL_QUEUE_MAX: usize = 1024;

/// Nodes of a group that has barriers: what the firmware's native form serves.
pub const GROUP_NODES_MAX: usize = omnes_firmware::GROUP_MAX;
/// Nodes of a group whose barriers the kernel NIC runs.
pub const NIC_NODES_MAX: usize = omnes_firmware::KERNEL_GROUP_MAX;
/// Ranks of a group on one node.
pub const NODE_RANKS_MAX: usize = 1 << 12;

/// Barriers of one group that may be entered before the first of them is done. Far more than
/// programs have, as those of an MPI know no limit; what is entered and not begun costs the words
/// that it brings, 48 bytes.
pub const BARRIERS_OUTSTANDING_MAX: u32 = 1 << 20;
// Order of barriers must be valid among all that a member can know of.
const _: () = assert!(BARRIERS_OUTSTANDING_MAX < 1 << 30);

/// Members that are asked in one go for the messages they owe a barrier; the others are asked when
/// the wait has run out again.
pub const NACKS_PER_ROUND: usize = 64;

/// Doorbells in a row that the kernel NIC has not seen, though it sees them as they are sent,
/// after which it is taken to see none any more: with the longest waits between them, a second.
pub const DOORBELLS_MAX: u32 = 100;

/// Members that are asked in one go whether they are done with a barrier, where one has left.
pub const HEARSAY_ASKS: usize = 4;

/// Answers of the collective machine that may wait to be sent; more are dropped, and asked for
/// again.
pub const ANSWERS_MAX: usize = 1 << 17;
// Each leader of the largest group may miss a step and want to know who has entered.
const _: () = assert!(ANSWERS_MAX >= 2 * GROUP_NODES_MAX);
