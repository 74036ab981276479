//! Entry points for the fuzzer: bytes are a list of operations. Plain tests replay the corpus.

mod broadcast;
mod bytes;
mod channel;
mod collective;
mod wire;

pub use broadcast::broadcast;
pub use channel::channel;
pub use collective::collective;

use crate::rig::builder::{JOB, KEY};
use crate::rig::memory::Memory;
use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::BroadcastConfig;
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_proto::packet::{Placement, Preview, Target};
use omnes_wire::{Instant, Rank};
use std::fmt::Debug;

/// Ranks of the job; the last one is not honest.
const RANKS: u32 = 3;
const HONEST: u32 = 2;
/// Most operations of one input.
const OPERATIONS_MAX: usize = 400;
/// Most packets that one operation may cause.
const PACKETS_MAX: usize = 2000;
/// Bound on the length of the machines' debug output, a measure of their state.
const STATE_CHARACTERS_MAX: usize = 400_000;

/// The endpoint of one rank, with one channel.
fn endpoint(rank: u32, channel: ChannelConfig, broadcast: Option<BroadcastConfig>) -> Endpoint {
    let broadcast = broadcast.map(BroadcastConfig::build).transpose();
    let (Ok(channel), Ok(broadcast)) = (channel.build(), broadcast) else {
        panic!("settings are in range")
    };
    let config = EndpointConfig {
        me: Rank(rank),
        size: RANKS,
        job: JOB,
        key: KEY,
        channels: vec![channel],
        broadcast,
        collective: CollectiveConfig::default(),
        liveness: LivenessConfig::default(),
    };
    Endpoint::new(Instant::ZERO, config)
}

/// Places the data of a packet, which must match the preview.
fn place(memory: &mut Memory, packet: &[u8], placement: &Placement, preview: Option<Preview>) {
    let Placement { target, offset, packet_offset, bytes, .. } = *placement;
    let data = &packet[packet_offset..packet_offset + bytes];
    must(match target {
        Target::Receive(id) => memory.place(id, offset, data),
        Target::Slot(slot) => memory.fill_slot(slot, data),
    });
    if let (Some(preview), Target::Receive(id)) = (preview, target) {
        assert_eq!((preview.receive, preview.offset), (id, offset));
    }
}

fn check_bounded(machine: &impl Debug) {
    let text = format!("{machine:?}");
    assert!(text.len() < STATE_CHARACTERS_MAX, "state of {} characters", text.len());
}

fn must<T>(result: Result<T, String>) -> T {
    match result {
        Ok(value) => value,
        Err(text) => panic!("{text}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::random::Random;

    type Target = fn(&[u8]);
    const TARGETS: [(&str, Target); 3] =
        [("channel", channel), ("broadcast", broadcast), ("collective", collective)];

    #[test]
    fn corpus_is_replayed() {
        for (name, target) in TARGETS {
            let folder = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
            let entries = std::fs::read_dir(folder).unwrap();
            let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            files.sort();
            assert!(!files.is_empty(), "{name}");
            for file in files {
                println!("{}", file.display());
                target(&std::fs::read(file).unwrap());
            }
        }
    }

    fn throw_random_bytes(target: Target) {
        for seed in 0..1500 {
            // Shown only if the test fails.
            println!("seed {seed}");
            let mut random = Random::named(seed, "fuzz", 0);
            let mut bytes = vec![0; random.within(10, 1500) as usize];
            random.fill(&mut bytes);
            // Large numbers are rare among random bytes.
            for byte in &mut bytes {
                if random.chance(50_000) {
                    *byte = 255 - (*byte & 1);
                }
            }
            target(&bytes);
        }
    }

    #[test]
    fn random_operations_on_channels_violate_no_invariant() {
        throw_random_bytes(channel);
    }

    #[test]
    fn random_operations_on_broadcasts_violate_no_invariant() {
        throw_random_bytes(broadcast);
    }

    #[test]
    fn random_operations_on_barriers_violate_no_invariant() {
        throw_random_bytes(collective);
    }
}
