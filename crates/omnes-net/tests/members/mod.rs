//! Ranks of one process that broadcast by multicast.
#![allow(dead_code)] // Each test needs another part.

use crate::{hosts, ranks};
use omnes_net::{
    Cast, CastGroupConfig, Completion, Engine, GroupId, Hold, JobConfig, MulticastConfig,
    MulticastState, Operation, OperationError, Policy, WhenFull, free_port,
};
use omnes_wire::{CommunicatorId, Rank};
use ranks::PATIENCE;
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Barrier;
use std::time::Instant;

pub const LOOPBACK: &str = "127.0.0.1";
pub const GROUP: GroupId = GroupId { communicator: CommunicatorId(0), number: 0 };

pub fn config(rank: u32, size: u32, rendezvous: &str) -> JobConfig {
    JobConfig {
        channels: vec![omnes_net::ChannelConfig::default()],
        multicast: MulticastConfig::default(),
        // All ranks are in this process, and the test is about multicast.
        shared_memory: false,
        ..ranks::config(rank, size, rendezvous)
    }
}

/// One rank, and its means to meet the others.
pub struct Member<'a> {
    pub engine: Engine,
    pub meet: &'a Barrier,
}

impl Member<'_> {
    /// Opens the group of all ranks, each on a node of its own, when all have heard all.
    pub fn open(&self, policy: Policy) {
        self.open_on((0..self.engine.size()).map(|rank| vec![rank]).collect(), policy);
    }

    /// Opens the group of these nodes, whose first ranks lead them, when each of the leaders has
    /// heard all other ranks.
    pub fn open_on(&self, nodes: Vec<Vec<u32>>, policy: Policy) {
        let others = self.engine.size() as usize - 1;
        assert!(matches!(self.engine.multicast(), MulticastState::On { .. }), "{:?}", self.state());
        let leads = nodes.iter().any(|node| node[0] == self.engine.rank());
        let node = |node: Vec<u32>| node.into_iter().map(Rank).collect();
        let nodes: Vec<Vec<Rank>> = nodes.into_iter().map(node).collect();
        self.engine.open_group(CastGroupConfig { id: GROUP, nodes: nodes.into(), policy });
        let until = Instant::now() + PATIENCE;
        self.meet.wait();
        // A rank that has heard all may not have been heard.
        self.engine.announce();
        while leads && self.engine.heard() < others {
            assert!(Instant::now() < until, "heard {} of {others}", self.engine.heard());
            std::thread::yield_now();
        }
        self.meet.wait();
    }

    pub fn state(&self) -> MulticastState {
        self.engine.multicast()
    }

    pub fn start_broadcast(
        &self,
        data: &[u8],
        hold: Hold,
    ) -> Result<Option<Operation>, OperationError> {
        self.start(data, hold, WhenFull::Wait)
    }

    pub fn start(
        &self,
        data: &[u8],
        hold: Hold,
        when_full: WhenFull,
    ) -> Result<Option<Operation>, OperationError> {
        let (base, bytes) = (NonNull::from(data).cast(), data.len() as u64);
        let cast = Cast { group: GROUP, hold, base, bytes, when_full };
        // SAFETY: callers wait for the operation, or release it, while they hold the data.
        unsafe { self.engine.broadcast(cast, |_| true) }
    }

    pub fn broadcast(&self, data: &[u8], hold: Hold) {
        if let Some(operation) = self.start_broadcast(data, hold).unwrap() {
            let sent = self.engine.wait(operation, |_| true).unwrap();
            assert_eq!(sent.bytes, data.len() as u64);
        }
    }

    pub fn start_receive(&self, root: u32, buffer: &mut [u8]) -> Operation {
        let (capacity, base) = (buffer.len() as u64, NonNull::from(buffer).cast());
        // SAFETY: callers wait for the operation while they hold the buffer.
        unsafe { self.engine.receive_broadcast(GROUP, Rank(root), base, capacity).unwrap() }
    }

    pub fn receive(&self, root: u32, buffer: &mut [u8]) -> Result<Completion, OperationError> {
        let operation = self.start_receive(root, buffer);
        self.engine.wait(operation, |_| true)
    }
}

/// Runs `body` as every rank of a job; returns the results in order of ranks.
pub fn with_ranks<T: Send>(
    addresses: &[hosts::Host],
    adjust: impl Fn(&mut JobConfig) + Sync,
    body: impl Fn(&Member<'_>) -> T + Sync,
) -> Vec<T> {
    let size = addresses.len() as u32;
    let port = addresses[0].inside(|| free_port(addresses[0].address).unwrap());
    let rendezvous = SocketAddr::new(addresses[0].address, port).to_string();
    let meet = Barrier::new(addresses.len());
    std::thread::scope(|scope| {
        let start = |rank: u32| {
            let (adjust, body, meet, rendezvous) = (&adjust, &body, &meet, &rendezvous);
            scope.spawn(move || {
                addresses[rank as usize].inside(|| {
                    let mut config = config(rank, size, rendezvous);
                    adjust(&mut config);
                    let member = Member { engine: Engine::join(config).unwrap(), meet };
                    let result = body(&member);
                    meet.wait();
                    assert!(member.engine.drain(PATIENCE));
                    meet.wait();
                    member.engine.leave();
                    result
                })
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

pub fn loopback(size: usize) -> Vec<hosts::Host> {
    vec![hosts::Host::here(LOOPBACK.parse::<IpAddr>().unwrap()); size]
}
