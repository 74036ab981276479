//! Ranks of one node through shared memory, with real engines: threads of this process.
#![allow(clippy::unwrap_used)]

use omnes_net::{
    ChannelConfig, Engine, EngineCounters, JobConfig, Message, MulticastConfig, Offloads,
    Operation, Pattern, Reply, free_port,
};
use omnes_wire::{CommunicatorId, Rank};
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::time::Duration;

/// A limit for what happens within milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOPBACK: &str = "127.0.0.1";
/// Lengths around what changes the way: envelope, packet, train, the part that needs no grant.
const LENGTHS: [usize; 10] = [0, 1, 8, 1000, 8892, 8893, 65_536, 131_072, 131_073, (3 << 20) + 1];

fn config(rank: u32, size: u32, rendezvous: &str) -> JobConfig {
    JobConfig {
        rank,
        size,
        rendezvous: rendezvous.to_owned(),
        key: None,
        join_timeout: PATIENCE,
        peer_timeout: Duration::from_secs(5),
        local_ranks: None,
        spin: None,
        give_way: None,
        while_waiting: None,
        channels: vec![ChannelConfig::default(), ChannelConfig::default()],
        offloads: Offloads { gso: true, gro: true },
        multicast: MulticastConfig { wanted: false, ..MulticastConfig::default() },
        shared_memory: true,
        receive_queue: None,
    }
}

/// One rank, and what it needs of the others.
struct Member<'a> {
    engine: Engine,
    meet: &'a Barrier,
}

impl Member<'_> {
    fn start_send(&self, to: u32, data: &[u8]) -> Option<Operation> {
        let bytes = data.len() as u64;
        let message = Message {
            to: Rank(to),
            communicator: CommunicatorId(0),
            tag: 1,
            bytes,
            available: bytes,
            reply: Reply::Soon,
        };
        // SAFETY: callers wait for the operation while they hold the data.
        unsafe { self.engine.send(0, message, NonNull::from(data).cast()).unwrap() }
    }

    fn start_receive(&self, from: u32, buffer: &mut [u8]) -> Operation {
        let pattern =
            Pattern { source: Some(Rank(from)), communicator: CommunicatorId(0), tag: Some(1) };
        let capacity = buffer.len() as u64;
        // SAFETY: callers wait for the operation while they hold the buffer.
        unsafe { self.engine.receive(0, pattern, NonNull::from(buffer).cast(), capacity).unwrap() }
    }

    fn wait(&self, operation: Option<Operation>) -> u64 {
        operation.map_or(0, |operation| self.engine.wait(operation, |_| true).unwrap().bytes)
    }

    /// Sends to every other rank and receives from each; then all wait for each other.
    fn exchange(&self, bytes: usize) {
        let (me, size) = (self.engine.rank(), self.engine.size());
        let data = pattern(bytes, me);
        let others: Vec<u32> = (0..size).filter(|rank| *rank != me).collect();
        let mut buffers = vec![vec![0; bytes]; others.len()];
        let receives: Vec<_> = others
            .iter()
            .zip(&mut buffers)
            .map(|(from, buffer)| self.start_receive(*from, buffer))
            .collect();
        let sends: Vec<_> = others.iter().map(|to| self.start_send(*to, &data)).collect();
        for receive in receives {
            assert_eq!(self.wait(Some(receive)), bytes as u64);
        }
        sends.into_iter().for_each(|send| {
            self.wait(send);
        });
        for (from, buffer) in others.iter().zip(&buffers) {
            assert!(*buffer == pattern(bytes, *from), "{bytes} bytes from rank {from} to {me}");
        }
    }
}

fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed as u8)
        .collect()
}

/// Runs `body` as every rank of a job; what each has counted at the end, in order of ranks.
fn with_ranks(
    size: u32,
    adjust: impl Fn(&mut JobConfig) + Sync,
    body: impl Fn(&Member<'_>) + Sync,
) -> Vec<EngineCounters> {
    let address: IpAddr = LOOPBACK.parse().unwrap();
    let rendezvous = format!("{LOOPBACK}:{}", free_port(address).unwrap());
    let meet = Barrier::new(size as usize);
    std::thread::scope(|scope| {
        let start = |rank: u32| {
            let (adjust, body, meet, rendezvous) = (&adjust, &body, &meet, &rendezvous);
            scope.spawn(move || {
                let mut config = config(rank, size, rendezvous);
                adjust(&mut config);
                let member = Member { engine: Engine::join(config).unwrap(), meet };
                body(&member);
                meet.wait();
                assert!(member.engine.drain(PATIENCE));
                meet.wait();
                let counters = member.engine.counters();
                member.engine.leave();
                counters
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn ranks_of_one_node_talk_through_rings_only() {
    let counters = with_ranks(
        3,
        |_| {},
        |member| {
            assert_eq!(member.engine.nodes(), [[0, 1, 2]]);
            let others: Vec<u32> = (0..3).filter(|rank| *rank != member.engine.rank()).collect();
            assert_eq!(member.engine.neighbours(), others);
            LENGTHS.into_iter().for_each(|bytes| member.exchange(bytes));
        },
    );
    for counters in counters {
        assert_eq!((counters.socket.packets_sent, counters.socket.packets_received), (0, 0));
        assert!(counters.ring.packets_sent > 100 && counters.ring.packets_received > 100);
        assert!(counters.ring.bytes_sent > 2 * (3 << 20));
        assert_eq!((counters.ring.full, counters.ring.broken), (0, 0));
        assert_eq!(counters.gate.malformed + counters.gate.bad_tag, 0);
    }
}

#[test]
fn rank_without_shared_memory_is_a_node_of_its_own() {
    let one_without = |config: &mut JobConfig| config.shared_memory = config.rank != 1;
    let counters = with_ranks(4, one_without, |member| {
        assert_eq!(member.engine.nodes(), [vec![0, 2, 3], vec![1]]);
        let neighbours = match member.engine.rank() {
            0 => vec![2, 3],
            1 => vec![],
            2 => vec![0, 3],
            _ => vec![0, 2],
        };
        assert_eq!(member.engine.neighbours(), neighbours);
        LENGTHS.into_iter().for_each(|bytes| member.exchange(bytes));
    });
    assert!(counters.iter().all(|counters| counters.socket.packets_sent > 0));
    let in_rings: Vec<bool> =
        counters.iter().map(|counters| counters.ring.packets_sent > 0).collect();
    assert_eq!(in_rings, [true, false, true, true]);
}

#[test]
fn rank_that_is_not_inside_is_woken_and_takes_what_comes() {
    // More than a ring holds, so that the receiver must have looked many times.
    const BYTES: usize = 16 << 20;
    let counters = with_ranks(
        2,
        |_| {},
        |member| {
            let mut buffer = vec![0; BYTES];
            if member.engine.rank() == 0 {
                member.meet.wait();
                let data = pattern(BYTES, 0);
                let send = member.start_send(1, &data);
                member.wait(send);
                member.meet.wait();
            } else {
                let receive = member.start_receive(0, &mut buffer);
                member.meet.wait();
                // Waits for the message without asking the engine anything.
                member.meet.wait();
                assert_eq!(member.wait(Some(receive)), BYTES as u64);
                assert!(buffer == pattern(BYTES, 0));
            }
        },
    );
    assert!(counters[0].ring.bells > 0 && counters[0].ring.full == 0, "{:?}", counters[0].ring);
}

#[test]
fn many_messages_that_nobody_asks_for_never_fill_a_ring() {
    const MESSAGES: usize = 20_000;
    let counters = with_ranks(
        2,
        |_| {},
        |member| {
            if member.engine.rank() == 0 {
                for number in 0..MESSAGES {
                    let send = member.start_send(1, &[number as u8; 100]);
                    member.wait(send);
                }
                member.meet.wait();
            } else {
                member.meet.wait();
                for number in 0..MESSAGES {
                    let mut buffer = [0; 100];
                    let receive = member.start_receive(0, &mut buffer);
                    member.wait(Some(receive));
                    assert_eq!(buffer, [number as u8; 100], "message {number}");
                }
            }
        },
    );
    assert_eq!(counters[0].ring.full, 0);
}

#[test]
fn more_ranks_than_cores_conform() {
    let counters = with_ranks(
        12,
        |_| {},
        |member| {
            for bytes in [0, 8, 9000, 200_000] {
                member.exchange(bytes);
            }
        },
    );
    assert!(counters.iter().all(|counters| counters.ring.full == 0));
}
