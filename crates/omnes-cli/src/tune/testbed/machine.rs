//! Time of the protocol machines for a packet, in one process, without any network.

use super::median;
use omnes_proto::LivenessConfig;
use omnes_proto::channel::{ChannelConfig, Message, Pattern, Reply};
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_proto::packet::Head;
use omnes_wire::{CommunicatorId, Instant as MachineTime, JobId, JobKey, Rank};
use std::time::Instant;

const COMMUNICATOR: CommunicatorId = CommunicatorId(1);
const MESSAGES: u32 = 500;
const ROUNDS: usize = 21;

/// Times of both sides together, in nanoseconds.
#[derive(Default)]
pub struct Machine {
    /// A message of one packet.
    pub message_ns: f64,
    /// One more packet of a long message.
    pub packet_ns: f64,
}

/// Measures both.
pub fn measure() -> Machine {
    let short = median((0..ROUNDS).map(|_| time(8)).collect());
    let long = median((0..ROUNDS).map(|_| time(100_000)).collect());
    let packets = (100_000 / 1432) as f64;
    Machine { message_ns: short, packet_ns: ((long - short) / packets).max(0.0) }
}

fn endpoint(me: u32) -> Endpoint {
    let channel = ChannelConfig::default().build().expect("the defaults are right");
    Endpoint::new(
        MachineTime::ZERO,
        EndpointConfig {
            me: Rank(me),
            size: 2,
            job: JobId(1),
            key: JobKey::new([7; 16]),
            channels: vec![channel],
            broadcast: None,
            collective: CollectiveConfig::default(),
            liveness: LivenessConfig::default(),
        },
    )
}

/// Time per message of `bytes` bytes.
fn time(bytes: u64) -> f64 {
    let (mut from, mut to) = (endpoint(0), endpoint(1));
    let begin = Instant::now();
    for number in 0..MESSAGES {
        let now = MachineTime::from_ns(u64::from(number) * 100_000);
        let pattern = Pattern { communicator: COMMUNICATOR, source: None, tag: None };
        let message = Message {
            to: Rank(1),
            communicator: COMMUNICATOR,
            tag: 0,
            bytes,
            available: bytes,
            reply: Reply::Lazy,
        };
        let receive = to.channel_mut(0).receive(now, pattern, bytes).is_ok();
        let send = from.channel_mut(0).send(message).is_ok();
        assert!(receive && send, "the machines refuse a message");
        for _ in 0..4 {
            pass(now, &mut from, &mut to);
            pass(now, &mut to, &mut from);
        }
    }
    begin.elapsed().as_nanos() as f64 / f64::from(MESSAGES)
}

fn pass(now: MachineTime, from: &mut Endpoint, to: &mut Endpoint) {
    let mut head = Head::default();
    while let Some(transmit) = from.poll_transmit(now, &mut head) {
        let data = transmit.segment.map_or(0, |segment| segment.bytes as usize);
        let bytes = head.as_bytes().len() + data;
        to.handle_packet(now, head.as_bytes(), bytes);
        while to.poll_move().is_some() {}
        while to.poll_event(now).is_some() {}
    }
    while from.poll_event(now).is_some() {}
}
