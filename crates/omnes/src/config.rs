//! What a rank can be told; the environment fills in the rest.

use crate::bcast::Bcast;
use omnes_net::Offloads;
use omnes_topo::Barrier;
use omnes_wire::JobKey;
use std::time::Duration;

/// Settings of a rank; see [`crate::VARIABLES`] for the environment's names of them.
#[derive(Clone, Debug)]
pub struct Config {
    /// This rank, from 0.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// `host:port` at which rank 0 waits for the others; the port must be free there.
    pub rendezvous: String,
    /// The job's secret. Without one, rank 0 draws a key and hands it out in the clear.
    pub key: Option<JobKey>,
    /// Wait for all ranks at the start.
    pub join_timeout: Duration,
    /// Silence after which a rank has failed.
    pub peer_timeout: Duration,
    /// Ranks that share this machine's cores, where they are not those of this job.
    pub local_ranks: Option<u32>,
    /// Time for which waiting calls spin; what suits the ranks per core where there is none.
    pub spin: Option<Duration>,
    /// Time for which they then give their core away between looks, likewise.
    pub give_way: Option<Duration>,
    /// Broadcast algorithm; chosen by size where there is none.
    pub bcast: Option<Bcast>,
    /// Barrier algorithm; where there is none, dissemination, or gather-broadcast where ranks
    /// outnumber the cores.
    pub barrier: Option<Barrier>,
    /// Messages up to this size are sent without asking; the same on all ranks.
    pub eager_bytes: u32,
    /// Memory per channel for messages that nobody has asked for yet, in packets.
    pub pool_slots: u32,
    /// Offloads that may be used.
    pub offloads: Offloads,
}

impl Config {
    /// Settings for a rank of a job, all else as by default.
    pub fn new(rank: u32, size: u32, rendezvous: impl Into<String>) -> Self {
        Self {
            rank,
            size,
            rendezvous: rendezvous.into(),
            key: None,
            join_timeout: Duration::from_secs(60),
            peer_timeout: Duration::from_secs(5),
            local_ranks: None,
            spin: None,
            give_way: None,
            bcast: None,
            barrier: None,
            eager_bytes: 128 << 10,
            pool_slots: 8192,
            offloads: Offloads { gso: true, gro: true },
        }
    }
}
