//! The state that all communicators of a process share: the engine, and how it ends.

use crate::barrier::NicAccess;
use crate::bcast::MultiSendUse;
use crate::bcast::tune::Figures;
use crate::config::Config;
use crate::config::Multicast;
use crate::error::Error;
use crate::exchanged::Interface;
use crate::numbers::Numbers;
use crate::stats::Stats;
use omnes_net::live::LiveConfig;
use omnes_net::{ChannelConfig, Engine, JobConfig, MulticastConfig};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Channel of the collective operations.
pub(crate) const COLLECTIVE: usize = 0;
/// Channel of `send` and `recv`: on a channel of their own, unexpected messages cannot block a
/// collective.
pub(crate) const POINT_TO_POINT: usize = 1;

/// Maximum time to wait for the last acknowledgements when a rank leaves.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A job on this rank; see the module header.
pub(crate) struct Job {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    pub(crate) joined_at: Instant,
    /// Ranks by node, each node's leader first; the same on all ranks.
    pub(crate) nodes: Vec<Vec<u32>>,
    /// Numbers of its communicators.
    pub(crate) numbers: Numbers,
    /// True if the probe has found that multicast reaches all nodes.
    has_multicast: AtomicBool,
    /// True if multi-send has replaced multicast.
    has_multisend: AtomicBool,
    /// How the first communicator multi-sends on this rank.
    multisend: RwLock<Option<MultiSendUse>>,
    /// The figures by which broadcasts are chosen, the same on all ranks.
    figures: RwLock<Option<Figures>>,
    /// Access to the kernel NIC.
    pub(crate) nic: Arc<NicAccess>,
    is_finalizing: AtomicBool,
    has_left: AtomicBool,
}

impl Job {
    /// Meets the other ranks; at rank 0 through `listener`, if that is already listening.
    pub(crate) fn join(config: Config, listener: Option<TcpListener>) -> Result<Self, Error> {
        let channel = ChannelConfig {
            eager_bytes: config.eager_bytes,
            eager_head_bytes: config.eager_bytes,
            pool_slots: config.pool_packets,
            ..ChannelConfig::default()
        };
        let job = JobConfig {
            rank: config.rank,
            size: config.size,
            rendezvous: config.rendezvous.clone(),
            addresses: config.interface.as_ref().map_or(Ok(Vec::new()), Interface::addresses)?,
            key: config.job_key.clone(),
            join_timeout: config.join_timeout,
            peer_timeout: config.peer_timeout,
            local_size: config.local_size,
            spin: config.spin,
            yield_time: config.yield_time,
            time_slice: config.time_slice,
            while_waiting: config.while_waiting.clone(),
            channels: vec![channel.clone(), channel],
            keeping_place: vec![COLLECTIVE],
            mtu_bytes: config.mtu_bytes,
            offloads: config.offloads,
            multicast: MulticastConfig {
                wanted: config.multicast != Multicast::Off,
                group: config.multicast_group,
                port: config.multicast_port,
                ttl: u32::from(config.multicast_ttl),
                ..MulticastConfig::default()
            },
            shared_memory: config.shared_memory,
            encryption: config.encryption,
            alike: config.alike(),
            receive_queue: config.nic.preference(),
            queue_after: config.nic_after,
        };
        let engine = Engine::join_through(job, listener)?;
        let nodes = engine.nodes();
        let no = || AtomicBool::new(false);
        let (has_multicast, is_finalizing, has_left) = (no(), no(), no());
        let (has_multisend, multisend) = (no(), RwLock::default());
        Ok(Self {
            engine,
            config,
            joined_at: Instant::now(),
            nodes,
            numbers: Numbers::default(),
            has_multicast,
            has_multisend,
            multisend,
            figures: RwLock::default(),
            nic: Arc::default(),
            is_finalizing,
            has_left,
        })
    }

    /// Publishes this rank's counters; call when the probe is over.
    pub(crate) fn publish(&self) {
        let has_multicast = self.has_multicast();
        // A rank that cannot publish continues without: `omnes stat` does not show it.
        self.engine.publish(LiveConfig {
            place: self.config.stats.clone(),
            names: Stats::NAMES,
            values: Box::new(move |counters| Stats::of(counters, has_multicast).values()),
        });
    }

    /// Records that the probe has found that multicast reaches all nodes.
    pub(crate) fn allow_multicast(&self) {
        self.has_multicast.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_multicast(&self) -> bool {
        self.has_multicast.load(Ordering::SeqCst)
    }

    /// Records that multi-send replaces multicast.
    pub(crate) fn allow_multisend(&self) {
        self.has_multisend.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_multisend(&self) -> bool {
        self.has_multisend.load(Ordering::SeqCst)
    }

    /// Records how the first communicator multi-sends.
    pub(crate) fn describe_multisend(&self, usage: Option<MultiSendUse>) {
        *self.multisend.write().unwrap_or_else(PoisonError::into_inner) = usage;
    }

    pub(crate) fn multisend(&self) -> Option<MultiSendUse> {
        self.multisend.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adopts figures on which all ranks have agreed.
    pub(crate) fn choose_by(&self, figures: Option<Figures>) {
        *self.figures.write().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    pub(crate) fn figures(&self) -> Option<Figures> {
        *self.figures.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the last barrier begins.
    pub(crate) fn begin_finalizing(&self) {
        self.is_finalizing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_finalizing(&self) -> bool {
        self.is_finalizing.load(Ordering::SeqCst)
    }

    /// True as soon as this rank begins to say farewell.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::SeqCst)
    }

    /// Waits for the last acknowledgements and says farewell.
    pub(crate) fn leave(&self) {
        if !self.has_left.swap(true, Ordering::SeqCst) {
            // After a failure there may be no peer left to answer.
            let limit = if self.engine.failed().is_empty() {
                DRAIN_TIMEOUT
            } else {
                DRAIN_TIMEOUT.min(self.config.peer_timeout / 10)
            };
            self.engine.drain(limit);
            self.engine.leave();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // A panicking rank must look failed to the others, not finished.
        if !std::thread::panicking() {
            self.leave();
        }
    }
}
