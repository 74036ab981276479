//! Length of a job's packets: as its links allow, including all headers.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::Family;
use omnes_net::JobConfig;
use omnes_wire::{JobKey, PACKET_OVERHEAD_BYTES};
use ranks::with_ranks;

#[test]
fn longest_packet_exactly_fills_the_link_mtu() {
    for (family, headers) in [(Family::V4, 20 + 8), (Family::V6, 40 + 8)] {
        for (encrypts, sealed) in [(false, 0), (true, 16 + 12)] {
            let Some(hosts) = hosts::network(2, family) else { return };
            let adjust = |config: &mut JobConfig| {
                (config.encryption, config.key) = (encrypts, Some(JobKey::new([5; 16])));
            };
            with_ranks(&hosts, adjust, |member| {
                let payload = usize::from(member.engine.payload_bytes());
                assert_eq!(headers + PACKET_OVERHEAD_BYTES + sealed + payload, 1500);
                member.exchange(200_000);
            });
        }
    }
}
