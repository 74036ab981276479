//! Cost of the machines alone: two endpoints that hand packets to each other in memory.
#![allow(clippy::unwrap_used, missing_docs)]

use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::{BroadcastConfig, CastGroupConfig, CastMessage, GroupId, Policy};
use omnes_proto::channel::{ChannelConfig, Message, Pattern, Reply};
use omnes_proto::collective::{self, CollectiveConfig, Runner};
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_proto::group::Nodes;
use omnes_proto::packet::Head;
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Instant, JobId, JobKey, Rank};

fn endpoint(me: u32) -> Endpoint {
    Endpoint::new(
        Instant::ZERO,
        EndpointConfig {
            me: Rank(me),
            size: 2,
            job: JobId(1),
            key: JobKey::new([7; 16]),
            channels: vec![ChannelConfig::default().build().unwrap()],
            broadcast: Some(BroadcastConfig::default().build().unwrap()),
            collective: CollectiveConfig::default(),
            liveness: LivenessConfig::default(),
        },
    )
}

fn run(bytes: u64, rounds: u32) -> f64 {
    let mut ends = [endpoint(0), endpoint(1)];
    let clock = std::time::Instant::now();
    let mut head = Head::default();
    let mut packets = 0u64;
    let mut ns = 0;
    for round in 0..rounds {
        let (from, to) = ((round % 2) as usize, 1 - (round % 2) as usize);
        ns += 5000;
        let now = Instant::from_ns(ns);
        let pattern = Pattern {
            communicator: CommunicatorId(0),
            source: Some(Rank(from as u32)),
            tag: Some(1),
        };
        ends[to].channel_mut(0).receive(now, pattern, bytes).unwrap();
        let message = Message {
            to: Rank(to as u32),
            communicator: CommunicatorId(0),
            tag: 1,
            bytes,
            available: bytes,
            reply: if bytes > 1400 { Reply::Soon } else { Reply::Lazy },
        };
        ends[from].channel_mut(0).send(message).unwrap();
        loop {
            let mut idle = true;
            for side in [from, to] {
                while let Some(transmit) = ends[side].poll_transmit(now, &mut head) {
                    idle = false;
                    packets += 1;
                    let data = transmit.segment.map_or(0, |segment| segment.bytes as usize);
                    let packet_bytes = head.as_bytes().len() + data;
                    ends[1 - side].handle_packet(now, head.as_bytes(), packet_bytes);
                }
            }
            if idle {
                break;
            }
        }
        for end in &mut ends {
            while end.poll_event(now).is_some() {}
        }
    }
    let _ = packets;
    clock.elapsed().as_nanos() as f64
        / if bytes > 1400 { packets as f64 } else { f64::from(rounds) }
}

/// Nanoseconds per packet of a broadcast to one receiver, both sides.
fn run_broadcast(bytes: u64, rounds: u32) -> f64 {
    let mut ends = [endpoint(0), endpoint(1)];
    let group = GroupId { communicator: CommunicatorId(0), number: 0 };
    for end in &mut ends {
        let nodes = Nodes::one_each(2);
        end.broadcast_mut().unwrap().open(CastGroupConfig {
            id: group,
            nodes,
            policy: Policy::COMBINED,
        });
    }
    let clock = std::time::Instant::now();
    let mut head = Head::default();
    let mut packets = 0u64;
    for round in 0..rounds {
        let now = Instant::from_ns(u64::from(round) * 5000);
        ends[1].broadcast_mut().unwrap().receive(now, group, Rank(0), bytes).unwrap();
        let message = CastMessage { group, bytes, reply: Reply::Soon };
        ends[0].broadcast_mut().unwrap().send(message).unwrap();
        loop {
            let before = packets;
            for side in [0, 1] {
                while let Some(transmit) = ends[side].poll_transmit(now, &mut head) {
                    packets += 1;
                    let data = transmit.segment.map_or(0, |segment| segment.bytes as usize);
                    let packet_bytes = head.as_bytes().len() + data;
                    ends[1 - side].handle_packet(now, head.as_bytes(), packet_bytes);
                }
            }
            if packets == before {
                break;
            }
        }
        for end in &mut ends {
            while end.poll_event(now).is_some() {}
        }
    }
    clock.elapsed().as_nanos() as f64 / packets as f64
}

/// Nanoseconds per barrier of two ranks, both sides; two packets.
fn run_barrier(rounds: u32) -> f64 {
    let mut ends = [endpoint(0), endpoint(1)];
    let communicator = CommunicatorId(0);
    for end in &mut ends {
        end.collective_mut().open(collective::BarrierGroupConfig {
            communicator,
            nodes: Nodes::one_each(2),
            algorithm: BarrierAlgorithm::Dissemination,
            runner: Runner::Host,
            is_multicast: false,
        });
    }
    let clock = std::time::Instant::now();
    let mut head = Head::default();
    for round in 0..rounds {
        let now = Instant::from_ns(u64::from(round) * 5000);
        for end in &mut ends {
            end.collective_mut().enter(now, communicator).unwrap();
        }
        for side in [0, 1] {
            while ends[side].poll_transmit(now, &mut head).is_some() {
                let bytes = head.as_bytes();
                ends[1 - side].handle_packet(now, bytes, bytes.len());
            }
        }
        for end in &mut ends {
            assert!(end.poll_event(now).is_some());
        }
    }
    clock.elapsed().as_nanos() as f64 / f64::from(rounds)
}

fn main() {
    println!("nanoseconds, both sides together");
    for _ in 0..3 {
        println!(
            "8 B: {:.0} per message; 4 MiB: {:.1} per packet; broadcast of 4 MiB: {:.1} per \
             packet; barrier: {:.0}",
            run(8, 1_000_000),
            run(4 << 20, 200),
            run_broadcast(4 << 20, 200),
            run_barrier(1_000_000)
        );
    }
}
