//! Settings that follow from the network and from the number of ranks per core.

use crate::cipher::SEALED_BYTES;
use crate::core_sharing::CoreSharing;
use crate::job::JobConfig;
use crate::links::Links;
use crate::rendezvous::Met;
use crate::time_slice::SlicePolicy;
use crate::waiting::WaitPolicy;
use crate::while_waiting::WhileWaiting;
use omnes_proto::broadcast::{BroadcastConfig, CheckedBroadcast};
use omnes_proto::channel::{ChannelConfig, Checked, ConfigError};
use omnes_proto::limits::{
    CREDIT_UNIT_BYTES, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN, WINDOW_PACKETS_MAX,
};
use omnes_wire::PACKET_OVERHEAD_BYTES;
use std::net::IpAddr;

/// Bytes that a lane may have in flight if ranks outnumber the cores.
const OVERSUBSCRIBED_WINDOW_BYTES: u32 = 256 << 10;
/// The same for a broadcast, whose data all receivers find in one place.
const OVERSUBSCRIBED_CAST_WINDOW_BYTES: u32 = 1 << 20;
const OVERSUBSCRIBED_WINDOW_PACKETS_MIN: u32 = 16;

/// Bytes of an IP packet from or to `address` that are not payload.
pub(super) fn overhead_bytes(config: &JobConfig, address: IpAddr) -> u32 {
    let headers = if address.is_ipv4() { 28 } else { 48 };
    let sealed = if config.encryption { SEALED_BYTES } else { 0 };
    headers + (PACKET_OVERHEAD_BYTES + sealed) as u32
}

/// Payload of a packet that fits `mtu`, with headers and tags of `overhead_bytes`.
pub(super) fn payload_bytes(mtu: u32, overhead_bytes: u32) -> u16 {
    let payload = mtu.saturating_sub(overhead_bytes);
    payload.clamp(u32::from(PAYLOAD_BYTES_MIN), u32::from(PAYLOAD_BYTES_MAX)) as u16
}

/// Part of a socket buffer of `granted` bytes that may be offered to senders.
fn offered(granted: usize) -> u32 {
    let share = u32::try_from(granted / 4 * 3).unwrap_or(u32::MAX);
    // Offers are counted in these units, in a field of 16 bits.
    share.clamp(4 * CREDIT_UNIT_BYTES, CREDIT_UNIT_BYTES * u32::from(u16::MAX))
}

/// Settings of the channels, limited by the network.
pub(super) fn channel_configs(
    config: &JobConfig,
    met: &Met,
    links: &Links,
) -> Result<Vec<Checked>, ConfigError> {
    let share = offered(links.receive_buffer_bytes()) / config.channels.len().max(1) as u32;
    let window = window_packets(&met.core_sharing, met.payload_bytes, OVERSUBSCRIBED_WINDOW_BYTES);
    let ack_delay = met.core_sharing.ack_delay();
    let channels = config.channels.iter().map(|channel| ChannelConfig {
        payload_bytes: met.payload_bytes,
        receive_truesize_bytes: share,
        initial_credit_bytes: (share / 2).min(channel.initial_credit_bytes),
        peer_timeout: config.silence_max(),
        ack_delay: ack_delay.min(channel.ack_delay),
        timeout_min: (2 * ack_delay).min(channel.timeout_min),
        ask_min: met.core_sharing.ask_after().min(channel.ask_min),
        window_packets: window.min(channel.window_packets),
        ..channel.clone()
    });
    channels.map(ChannelConfig::build).collect()
}

/// Settings of the broadcast machine, if there is multicast or multi-send.
pub(super) fn broadcast_config(
    config: &JobConfig,
    met: &Met,
    links: &Links,
) -> Result<Option<CheckedBroadcast>, ConfigError> {
    let Some(granted) = links.group_buffer_bytes() else { return Ok(None) };
    let broadcast = &config.multicast.broadcast;
    let window =
        window_packets(&met.core_sharing, met.payload_bytes, OVERSUBSCRIBED_CAST_WINDOW_BYTES);
    let share = offered(granted);
    let checked = BroadcastConfig {
        payload_bytes: met.payload_bytes,
        window_packets: window.min(broadcast.window_packets),
        receive_truesize_bytes: share,
        initial_credit_bytes: share / 4,
        peer_timeout: config.silence_max(),
        ack_delay: if met.core_sharing.is_oversubscribed() {
            broadcast.ack_delay // All receivers owe an answer.
        } else {
            met.core_sharing.ack_delay().min(broadcast.ack_delay)
        },
        timeout_min: met.core_sharing.patience(),
        ..broadcast.clone()
    };
    checked.build().map(Some)
}

/// Packets that a lane may have in flight. Ranks that take turns on a core pass data through its
/// cache if they pass little enough at a time.
fn window_packets(
    core_sharing: &CoreSharing,
    payload_bytes: u16,
    oversubscribed_bytes: u32,
) -> u32 {
    if core_sharing.is_oversubscribed() {
        (oversubscribed_bytes / u32::from(payload_bytes)).max(OVERSUBSCRIBED_WINDOW_PACKETS_MIN)
    } else {
        WINDOW_PACKETS_MAX
    }
}

/// How callers wait: as suits the number of ranks per core, unless settings override it.
pub(super) fn wait_policy(config: &JobConfig, core_sharing: &CoreSharing) -> WaitPolicy {
    let ranks = config.local_size.unwrap_or(core_sharing.local_ranks);
    let usual = WaitPolicy::for_ranks(ranks, core_sharing.local_cores);
    let yield_time = config.yield_time.unwrap_or(usual.yield_time);
    // A callback that is called often needs a caller that is awake.
    let is_kept_awake = config.while_waiting.as_ref().is_some_and(WhileWaiting::is_frequent);
    let is_set = config.yield_time.is_some() || is_kept_awake;
    WaitPolicy {
        spin: config.spin.unwrap_or(usual.spin),
        yield_time,
        yield_time_long: if is_set { yield_time } else { usual.yield_time_long },
        slices: SlicePolicy {
            length: config.time_slice.unwrap_or(usual.slices.length),
            ..usual.slices
        },
        ..usual
    }
}
