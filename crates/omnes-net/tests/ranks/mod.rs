//! Ranks of a job as threads of this process, each on a host, and messages between them.
#![allow(dead_code)] // Each test needs another part.

use crate::hosts::Host;
use omnes_net::{
    ChannelConfig, Engine, EngineCounters, JobConfig, Message, MulticastConfig, Offloads,
    Operation, Pattern, Reply, free_port,
};
use omnes_wire::{CommunicatorId, Rank};
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::time::Duration;

/// A limit for events that take milliseconds; reached only by a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);
pub fn config(rank: u32, size: u32, rendezvous: &str) -> JobConfig {
    JobConfig {
        rank,
        size,
        rendezvous: rendezvous.to_owned(),
        key: None,
        join_timeout: PATIENCE,
        peer_timeout: Duration::from_secs(5),
        local_size: None,
        spin: None,
        yield_time: None,
        time_slice: None,
        while_waiting: None,
        channels: vec![ChannelConfig::default(), ChannelConfig::default()],
        keeping_place: Vec::new(),
        mtu_bytes: None,
        offloads: Offloads { gso: true, gro: true },
        multicast: MulticastConfig { wanted: false, ..MulticastConfig::default() },
        shared_memory: true,
        encryption: false,
        addresses: Vec::new(),
        alike: Vec::new(),
        receive_queue: None,
        queue_after: Duration::ZERO,
    }
}

/// One rank, and its means to meet the others.
pub struct Member<'a> {
    pub engine: Engine,
    pub meet: &'a Barrier,
}

impl Member<'_> {
    pub fn start_send(&self, to: u32, data: &[u8]) -> Option<Operation> {
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

    pub fn start_receive(&self, from: u32, buffer: &mut [u8]) -> Operation {
        let pattern =
            Pattern { source: Some(Rank(from)), communicator: CommunicatorId(0), tag: Some(1) };
        let capacity = buffer.len() as u64;
        // SAFETY: callers wait for the operation while they hold the buffer.
        unsafe { self.engine.receive(0, pattern, NonNull::from(buffer).cast(), capacity).unwrap() }
    }

    pub fn wait(&self, operation: Option<Operation>) -> u64 {
        operation.map_or(0, |operation| self.engine.wait(operation, |_| true).unwrap().bytes)
    }

    /// Sends to every other rank and receives from each; then all wait for each other.
    pub fn exchange(&self, bytes: usize) {
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

pub fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed as u8)
        .collect()
}

/// Runs `body` as every rank of a job; returns each rank's counters at the end, in order of ranks.
pub fn with_ranks(
    hosts: &[Host],
    adjust: impl Fn(&mut JobConfig) + Sync,
    body: impl Fn(&Member<'_>) + Sync,
) -> Vec<EngineCounters> {
    let size = hosts.len() as u32;
    let port = hosts[0].inside(|| free_port(hosts[0].address).unwrap());
    let rendezvous = SocketAddr::new(hosts[0].address, port).to_string();
    let meet = Barrier::new(hosts.len());
    std::thread::scope(|scope| {
        let start = |rank: u32| {
            let (adjust, body, meet, rendezvous) = (&adjust, &body, &meet, &rendezvous);
            let run = move || {
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
            };
            scope.spawn(move || hosts[rank as usize].inside(run))
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
