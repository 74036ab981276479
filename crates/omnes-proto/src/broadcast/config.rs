//! Settings of the broadcast machine and their checks.

use crate::channel::ConfigError;
use crate::limits::{
    CREDIT_UNIT_BYTES, MESSAGE_PACKETS_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN,
    WINDOW_MESSAGES_MAX, WINDOW_PACKETS_MAX, truesize,
};
use omnes_wire::{ENVELOPE_BYTES, PACKET_OVERHEAD_BYTES};
use std::time::Duration;

/// Settings of the broadcast machine.
#[derive(Clone, Debug)]
pub struct BroadcastConfig {
    /// Data bytes per packet without header and tag,
    /// [`PAYLOAD_BYTES_MIN`]`..=`[`PAYLOAD_BYTES_MAX`]; the same on all ranks.
    pub payload_bytes: u16,
    /// Unacknowledged packets allowed per root, `1..=`[`WINDOW_PACKETS_MAX`]; the same on all
    /// ranks.
    pub window_packets: u32,
    /// Unacknowledged messages of a root that may be copies [BC-R5].
    pub window_messages: u32,
    /// Buffers of one packet each for data that no receive is posted for, and for data that a
    /// co-root holds for its subgroup; at least 16, and more than the number of roots that
    /// broadcast at a time.
    pub pool_slots: u32,
    /// Space in this rank's socket buffer for broadcasts, in bytes of truesize.
    pub receive_truesize_bytes: u32,
    /// Credits that a root assumes until a receiver has advertised its own, in bytes of truesize.
    pub initial_credit_bytes: u32,
    /// Longest time that an acknowledgement is delayed.
    pub ack_delay: Duration,
    /// Shortest wait for an answer before it is requested; not zero.
    pub timeout_min: Duration,
    /// Wait between seeing a gap and the first report, if few later packets have arrived.
    pub nack_delay: Duration,
    /// A rank that owes an answer and has been silent for this long has failed, as has a rank that
    /// a long packet has not reached for this long.
    pub peer_timeout: Duration,
    /// Number of ranks from which on a packet that they lack is sent again to all ranks; also the
    /// least number of ranks that a coded repair must serve.
    pub multicast_repair_ranks: u32,
}

impl Default for BroadcastConfig {
    fn default() -> Self {
        Self {
            payload_bytes: 1432,
            window_packets: WINDOW_PACKETS_MAX,
            window_messages: 64,
            pool_slots: 4096,
            receive_truesize_bytes: 3 << 20,
            initial_credit_bytes: 512 << 10,
            ack_delay: Duration::from_millis(1),
            timeout_min: Duration::from_micros(200),
            nack_delay: Duration::from_micros(50),
            peer_timeout: Duration::from_secs(4),
            multicast_repair_ranks: 2,
        }
    }
}

impl BroadcastConfig {
    /// Checks the settings; they are not checked again later.
    ///
    /// # Errors
    /// [`ConfigError`] names the first setting that is out of range.
    pub fn build(self) -> Result<CheckedBroadcast, ConfigError> {
        let payload = u64::from(self.payload_bytes);
        let (least, most) = (u64::from(PAYLOAD_BYTES_MIN), u64::from(PAYLOAD_BYTES_MAX));
        ConfigError::check("payload_bytes", payload, least, most)?;
        let window_max = u64::from(WINDOW_PACKETS_MAX);
        ConfigError::check("window_packets", u64::from(self.window_packets), 1, window_max)?;
        let messages_max = u64::from(WINDOW_MESSAGES_MAX);
        ConfigError::check("window_messages", u64::from(self.window_messages), 1, messages_max)?;
        ConfigError::check("pool_slots", u64::from(self.pool_slots), 16, 1 << 24)?;
        let unit = u64::from(CREDIT_UNIT_BYTES);
        let credit_max = unit * u64::from(u16::MAX);
        let receive = u64::from(self.receive_truesize_bytes);
        ConfigError::check("receive_truesize_bytes", receive, unit, credit_max)?;
        let initial = u64::from(self.initial_credit_bytes);
        ConfigError::check("initial_credit_bytes", initial, unit, credit_max)?;
        ConfigError::check_time("timeout_min in ns", self.timeout_min)?;
        Ok(CheckedBroadcast(self))
    }
}

/// Checked settings, with the arithmetic derived from them.
#[derive(Clone, Debug)]
pub struct CheckedBroadcast(BroadcastConfig);

impl std::ops::Deref for CheckedBroadcast {
    type Target = BroadcastConfig;

    fn deref(&self) -> &BroadcastConfig {
        &self.0
    }
}

impl CheckedBroadcast {
    /// Data bytes in the first packet of a message, which also carries the envelope.
    fn first_bytes(&self) -> u64 {
        u64::from(self.payload_bytes) - ENVELOPE_BYTES as u64
    }

    /// Number of packets of a message; an empty message is one packet.
    pub(super) fn packets(&self, bytes: u64) -> u64 {
        1 + bytes.saturating_sub(self.first_bytes()).div_ceil(u64::from(self.payload_bytes))
    }

    /// Offset of the first byte of packet `index` in the message.
    pub(super) fn offset(&self, index: u32) -> u64 {
        match index {
            0 => 0,
            _ => self.first_bytes() + u64::from(index - 1) * u64::from(self.payload_bytes),
        }
    }

    /// Data bytes of packet `index` of a message of `bytes` bytes.
    pub(super) fn packet_bytes(&self, bytes: u64, index: u32) -> u32 {
        let most = if index == 0 { self.first_bytes() } else { u64::from(self.payload_bytes) };
        bytes.saturating_sub(self.offset(index)).min(most) as u32
    }

    /// Truesize of a full packet at the receiver.
    pub(super) fn charge(&self) -> u32 {
        truesize(PACKET_OVERHEAD_BYTES as u32 + u32::from(self.payload_bytes))
    }

    /// Number of full packets that fit into `bytes` of truesize, at least one.
    pub(super) fn credit_packets(&self, bytes: u32) -> u32 {
        (bytes / self.charge()).max(1)
    }

    /// Encodes a space of `bytes` of truesize for the header: in units, at least one.
    pub(super) fn credits(&self, bytes: u32) -> u16 {
        (bytes / CREDIT_UNIT_BYTES).clamp(1, u32::from(u16::MAX)) as u16
    }

    /// Length of the largest message that packet numbers can count, in bytes.
    pub(super) fn message_bytes_max(&self) -> u64 {
        u64::from(MESSAGE_PACKETS_MAX) * u64::from(self.payload_bytes)
    }
}
