//! Two ranks that exchange packets by hand.

use omnes_proto::LivenessConfig;
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::EndpointConfig;
use omnes_wire::{JobId, JobKey, Rank};

/// Settings of rank `me`: one channel, no broadcasts.
pub fn config(me: u32) -> EndpointConfig {
    EndpointConfig {
        me: Rank(me),
        size: 2,
        job: JobId(1),
        key: JobKey::new([7; 16]),
        channels: vec![ChannelConfig::default().build().unwrap()],
        broadcast: None,
        collective: CollectiveConfig::default(),
        liveness: LivenessConfig::default(),
    }
}
