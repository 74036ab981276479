//! What all communicators of a process share: the engine, and how it ends.

use crate::config::Config;
use crate::error::Error;
use omnes_net::{ChannelConfig, Engine, JobConfig};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Channel of the collective operations.
pub(crate) const COLLECTIVE: usize = 0;
/// Channel of `send` and `recv`: unexpected messages cannot stand in a collective's way.
pub(crate) const POINT_TO_POINT: usize = 1;

/// Wait for the last answers when a rank leaves.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// See the module header.
pub(crate) struct Job {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    /// Number of the next communicator, as far as this rank knows.
    pub(crate) next_communicator: AtomicU32,
    is_finalizing: AtomicBool,
    has_left: AtomicBool,
}

impl Job {
    pub(crate) fn join(config: Config) -> Result<Self, Error> {
        let channel = ChannelConfig {
            eager_bytes: config.eager_bytes,
            eager_head_bytes: config.eager_bytes,
            pool_slots: config.pool_slots,
            ..ChannelConfig::default()
        };
        let engine = Engine::join(JobConfig {
            rank: config.rank,
            size: config.size,
            rendezvous: config.rendezvous.clone(),
            key: config.key.clone(),
            join_timeout: config.join_timeout,
            peer_timeout: config.peer_timeout,
            local_ranks: config.local_ranks,
            spin: config.spin,
            give_way: config.give_way,
            channels: vec![channel.clone(), channel],
            offloads: config.offloads,
        })?;
        let next_communicator = AtomicU32::new(1);
        let (is_finalizing, has_left) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { engine, config, next_communicator, is_finalizing, has_left })
    }

    /// The last barrier begins.
    pub(crate) fn begin_finalizing(&self) {
        self.is_finalizing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_finalizing(&self) -> bool {
        self.is_finalizing.load(Ordering::SeqCst)
    }

    /// Waits for the last answers and says farewell.
    pub(crate) fn leave(&self) {
        if !self.has_left.swap(true, Ordering::SeqCst) {
            // After a failure there may be nobody left to answer.
            let limit = match self.engine.failed().is_empty() {
                true => DRAIN_TIMEOUT,
                false => DRAIN_TIMEOUT.min(self.config.peer_timeout / 10),
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
