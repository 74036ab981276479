//! Limits of all machines, with assertions on the relations between them.

use omnes_wire::GAP_MAP_BITS;
use std::time::Duration;

/// Packets of one lane that may be unacknowledged at the same time.
pub const WINDOW_PACKETS_MAX: u32 = 1024;
// One gap map must be able to report on a whole window, so that a NACK carries all gaps.
const _: () = assert!(WINDOW_PACKETS_MAX <= GAP_MAP_BITS);
// Sequence order is valid for distances under 2^31.
const _: () = assert!(WINDOW_PACKETS_MAX < 1 << 31);

/// Broadcasts of one root that may be unacknowledged at the same time.
pub const WINDOW_MESSAGES_MAX: u32 = 1 << 16;

/// Most packets of one message.
pub const MESSAGE_PACKETS_MAX: u32 = 1 << 30;
// The end of a message must be comparable with any number in the window before it.
const _: () = assert!(MESSAGE_PACKETS_MAX + WINDOW_PACKETS_MAX < 1 << 31);

/// Packets handed out to one peer before the next peer's turn: the number of 1,500-byte packets in
/// one GSO train, so that a turn fills one train.
pub const BURST_PACKETS: u32 = 44;

/// Smallest and largest payload that may be configured for the packets of a path, in bytes.
pub const PAYLOAD_BYTES_MIN: u16 = 256;
/// See [`PAYLOAD_BYTES_MIN`]; a jumbo frame minus the headers.
pub const PAYLOAD_BYTES_MAX: u16 = 8908;

/// Unit of the header's credits field, in bytes of truesize.
pub const CREDIT_UNIT_BYTES: u32 = 4096;

/// Data bytes of a packet that every network forwards: with all headers, less than the 1,280 bytes
/// that IPv6 requires.
pub(crate) const SHORT_BYTES_MAX: u32 = 1024;
/// Failed retransmissions of the oldest packet after which it is considered undeliverable: at a
/// loss of three packets in ten, this happens by chance in one case of ten thousand.
pub(crate) const FRUITLESS_MIN: u32 = 8;
/// Divisor of the time after which a silent rank counts as failed: after that part of it the rank
/// is asked for a sign of life, if long packets to it may be lost.
pub(crate) const QUIET_SHARE: u32 = 2;

/// Later packets after which a gap is certain enough for an immediate NACK.
pub const REORDER_PACKETS: u32 = 3;

/// Multiple of [`ChannelConfig::pool_slots`](crate::channel::ChannelConfig::pool_slots) that a
/// channel buffers of messages for which no receive is posted, while a receive waits for a message
/// that may follow them.
pub const POOL_GROWTH: usize = 16;

/// Longest retransmission timeout.
pub const RETRANSMIT_TIMEOUT_MAX: Duration = Duration::from_millis(500);
/// Most doublings of the retransmission timeout while no answer arrives.
pub const BACKOFF_DOUBLINGS_MAX: u32 = 8;

/// Longest interval between two probes of a rejected packet.
pub const PROBE_WAIT_MAX: Duration = Duration::from_millis(50);

/// Socket-buffer space that the kernel charges for one datagram with `wire_bytes` of UDP payload: a
/// 64-byte one is charged about 830 bytes, a full Ethernet frame 2,304.
pub const fn truesize(wire_bytes: u32) -> u32 {
    if wire_bytes <= 128 {
        832
    } else if wire_bytes <= 1500 {
        // One power-of-two buffer of 2 KiB plus the socket buffer structure.
        2304
    } else {
        // Paged: the data in whole pages, plus the linear buffer and the structure.
        wire_bytes.div_ceil(4096) * 4096 + 1280
    }
}

/// Ranks that may ask, or report to, the same rank at the same time; if there are more, their times
/// are staggered [RFC 5401].
pub(crate) const RANKS_AT_ONCE: u32 = 32;
/// Interval between two of these times: the time to send a packet and to receive it.
pub(crate) const STAGGER: Duration = Duration::from_micros(2);

/// Most channels of an endpoint.
pub const CHANNELS_MAX: usize = 16;

/// Most answers to pings and notices that may be queued for sending; further ones are dropped, and
/// asked for again.
pub const CONTROL_QUEUE_MAX: usize = 1024;

/// Most nodes of a group that has barriers: the limit of the firmware's native form.
pub const GROUP_NODES_MAX: usize = omnes_firmware::GROUP_MAX;
/// Most nodes of a group whose barriers the kernel NIC runs.
pub const NIC_NODES_MAX: usize = omnes_firmware::KERNEL_GROUP_MAX;
/// Most ranks of a group on one node.
pub const NODE_RANKS_MAX: usize = 1 << 12;

/// Barriers of one group that may be entered before the first of them is complete. Far more than
/// programs use, as MPI sets no limit on nonblocking barriers; one that has been entered but not
/// begun costs its words, 48 bytes.
pub const BARRIERS_OUTSTANDING_MAX: u32 = 1 << 20;
// The order of barriers must be valid among all barriers that a member can know of.
const _: () = assert!(BARRIERS_OUTSTANDING_MAX < 1 << 30);

/// Members that are asked in one round for the messages they owe a barrier; the others are asked
/// when the timer has expired again.
pub const NACKS_PER_ROUND: usize = 64;

/// Consecutive doorbells unseen by the kernel NIC, which sees doorbells as they are sent, after
/// which it is assumed to see none any more: at the longest intervals, a second.
pub const DOORBELLS_MAX: u32 = 100;

/// Members that are asked in one round whether they have completed a barrier, after a member has
/// left.
pub const HEARSAY_ASKS: usize = 4;

/// Most answers of the collective machine that may be queued for sending; further ones are dropped,
/// and asked for again.
pub const ANSWERS_MAX: usize = 1 << 17;
// Every leader of the largest group may lack a step and ask who has entered.
const _: () = assert!(ANSWERS_MAX >= 2 * GROUP_NODES_MAX);
