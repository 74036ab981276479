//! Settings of a channel and their checks.

use crate::lane::Allowance;
use crate::limits::{
    CREDIT_UNIT_BYTES, MESSAGE_PACKETS_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN,
    WINDOW_PACKETS_MAX, truesize,
};
use omnes_wire::{ENVELOPE_BYTES, PACKET_OVERHEAD_BYTES};
use std::time::Duration;
use thiserror::Error;

/// Longest message that is copied, however many packets it takes: copying takes less time than
/// waiting for an answer, which the receiver can only give when it gets a turn.
const COPY_BYTES_MAX: u64 = 16 << 10;

/// Settings of a channel; the same on all ranks where a comment says so.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// Data bytes per packet without header and tag,
    /// [`PAYLOAD_BYTES_MIN`]`..=`[`PAYLOAD_BYTES_MAX`]; the same on all ranks.
    pub payload_bytes: u16,
    /// Longest message that is sent without a grant; the same on all ranks.
    pub eager_bytes: u32,
    /// Number of bytes of a larger message that are sent without a grant; the same on all ranks.
    pub eager_head_bytes: u32,
    /// Number of buffers of one packet each for data without a posted receive, and of messages with
    /// such data; [`POOL_GROWTH`](crate::limits::POOL_GROWTH) times as many while a receive waits
    /// for a message that may follow them.
    pub pool_slots: u32,
    /// Unacknowledged packets allowed per lane, `1..=`[`WINDOW_PACKETS_MAX`].
    pub window_packets: u32,
    /// Space in this rank's socket buffer for this channel, in bytes of truesize.
    pub receive_truesize_bytes: u32,
    /// Credits that a sender assumes until the receiver has advertised its own, in bytes of
    /// truesize.
    pub initial_credit_bytes: u32,
    /// Number of packets after which an acknowledgement is due.
    pub ack_packets: u32,
    /// Longest time that an acknowledgement is delayed so that it can travel with data.
    pub ack_delay: Duration,
    /// Shortest wait for an answer before a packet is retransmitted; not zero.
    pub timeout_min: Duration,
    /// Wait between seeing a gap and the first NACK, if few later packets have arrived.
    pub nack_delay: Duration,
    /// Shortest time after which an awaited message is asked for; not zero.
    pub ask_min: Duration,
    /// A peer that owes an answer and has been silent for this long has failed.
    pub peer_timeout: Duration,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            payload_bytes: 1432,
            eager_bytes: 128 << 10,
            eager_head_bytes: 128 << 10,
            pool_slots: 8192,
            window_packets: WINDOW_PACKETS_MAX,
            receive_truesize_bytes: 3 << 20,
            initial_credit_bytes: 512 << 10,
            ack_packets: 64,
            ack_delay: Duration::from_millis(1),
            timeout_min: Duration::from_millis(2),
            nack_delay: Duration::from_micros(50),
            ask_min: Duration::from_millis(1),
            peer_timeout: Duration::from_secs(4),
        }
    }
}

/// Error: a setting is out of range.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{name} is {value}, must be in {least}..={most}")]
pub struct ConfigError {
    /// Name of the setting.
    pub name: &'static str,
    /// Value of the setting.
    pub value: u64,
    /// Smallest allowed value.
    pub least: u64,
    /// Largest allowed value.
    pub most: u64,
}

impl ConfigError {
    /// Rejects a duration of zero.
    pub(crate) fn check_time(name: &'static str, time: Duration) -> Result<(), Self> {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self::check(name, ns, 1, u64::MAX)
    }

    /// Rejects a value out of range.
    pub(crate) fn check(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), Self> {
        if (least..=most).contains(&value) {
            Ok(())
        } else {
            Err(Self { name, value, least, most })
        }
    }
}

impl ChannelConfig {
    /// Checks the settings; they are not checked again later.
    ///
    /// # Errors
    /// [`ConfigError`] names the first setting that is out of range.
    pub fn build(self) -> Result<Checked, ConfigError> {
        let payload = u64::from(self.payload_bytes);
        let (least, most) = (u64::from(PAYLOAD_BYTES_MIN), u64::from(PAYLOAD_BYTES_MAX));
        ConfigError::check("payload_bytes", payload, least, most)?;
        let window_max = u64::from(WINDOW_PACKETS_MAX);
        ConfigError::check("window_packets", u64::from(self.window_packets), 1, window_max)?;
        ConfigError::check("ack_packets", u64::from(self.ack_packets), 1, window_max)?;
        ConfigError::check("pool_slots", u64::from(self.pool_slots), 1, 1 << 24)?;
        let eager = u64::from(self.eager_bytes);
        ConfigError::check("eager_head_bytes", u64::from(self.eager_head_bytes), 0, eager)?;
        let unit = u64::from(CREDIT_UNIT_BYTES);
        let credit_max = unit * u64::from(u16::MAX);
        let receive = u64::from(self.receive_truesize_bytes);
        ConfigError::check("receive_truesize_bytes", receive, unit, credit_max)?;
        let initial = u64::from(self.initial_credit_bytes);
        ConfigError::check("initial_credit_bytes", initial, unit, credit_max)?;
        ConfigError::check_time("timeout_min in ns", self.timeout_min)?;
        ConfigError::check_time("ask_min in ns", self.ask_min)?;
        Ok(Checked(self))
    }
}

/// Checked settings, with the arithmetic derived from them.
#[derive(Clone, Debug)]
pub struct Checked(ChannelConfig);

impl std::ops::Deref for Checked {
    type Target = ChannelConfig;

    fn deref(&self) -> &ChannelConfig {
        &self.0
    }
}

impl Checked {
    /// See [`Channel::copies`](super::Channel::copies).
    pub(super) fn copies(&self, bytes: u64) -> bool {
        bytes <= self.first_bytes().max(COPY_BYTES_MAX.min(u64::from(self.eager_bytes)))
    }

    /// Number of bytes of a message of `bytes` bytes that are sent on the ordered lane, without a
    /// grant.
    pub(super) fn ordered_bytes(&self, bytes: u64) -> u64 {
        if bytes <= u64::from(self.eager_bytes) { bytes } else { u64::from(self.eager_head_bytes) }
    }

    /// Data bytes in the first packet of a message, which also carries the envelope.
    pub(super) fn first_bytes(&self) -> u64 {
        u64::from(self.payload_bytes) - ENVELOPE_BYTES as u64
    }

    /// Number of packets on the ordered lane for `ordered` bytes; an empty message is one packet.
    pub(super) fn ordered_packets(&self, ordered: u64) -> u64 {
        let rest = ordered.saturating_sub(self.first_bytes());
        1 + rest.div_ceil(u64::from(self.payload_bytes))
    }

    /// Offset in the message of the first byte of packet `index` of the ordered part.
    pub(super) fn ordered_offset(&self, index: u32) -> u64 {
        if index == 0 {
            return 0;
        }
        self.first_bytes() + u64::from(index - 1) * u64::from(self.payload_bytes)
    }

    /// Number of packets on the bulk lane for `bytes` bytes.
    pub(super) fn bulk_packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.payload_bytes))
    }

    /// Allowance of a retransmission timeout.
    pub(super) fn allowance(&self) -> Allowance {
        Allowance { least: self.timeout_min, held_back: self.ack_delay }
    }

    /// Truesize charged at the receiver for a packet with `body_bytes` after the tag.
    pub(super) fn charge(body_bytes: u32) -> u32 {
        truesize(PACKET_OVERHEAD_BYTES as u32 + body_bytes)
    }

    /// Length of the largest message that packet numbers can count, in bytes.
    pub(super) fn message_bytes_max(&self) -> u64 {
        u64::from(MESSAGE_PACKETS_MAX) * u64::from(self.payload_bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn packets_cover_a_message_without_gap_or_overlap() {
        let config = ChannelConfig::default().build().unwrap();
        for bytes in [0u64, 1, 1415, 1416, 1417, 2848, 2849, 100_000] {
            let packets = config.ordered_packets(bytes) as u32;
            assert!(config.ordered_offset(packets) >= bytes, "{bytes}");
            assert!(packets == 1 || config.ordered_offset(packets - 1) < bytes, "{bytes}");
        }
    }

    #[test]
    fn out_of_range_settings_are_named_in_the_error() {
        let config = ChannelConfig { window_packets: 0, ..ChannelConfig::default() };
        let error = config.build().unwrap_err();
        assert_eq!(error.to_string(), "window_packets is 0, must be in 1..=1024");
        let config = ChannelConfig { timeout_min: Duration::ZERO, ..ChannelConfig::default() };
        assert_eq!(config.build().unwrap_err().name, "timeout_min in ns");
    }

    #[test]
    fn short_and_single_packet_messages_are_copied() {
        let checked = |eager_bytes| {
            let eager_head_bytes = eager_bytes;
            ChannelConfig { eager_bytes, eager_head_bytes, ..ChannelConfig::default() }
                .build()
                .unwrap()
        };
        let longest = |eager_bytes| {
            let checked = checked(eager_bytes);
            (0..1 << 17).rfind(|bytes| checked.copies(*bytes)).unwrap()
        };
        assert_eq!([longest(128 << 10), longest(4096), longest(0)], [16 << 10, 4096, 1416]);
    }
}
