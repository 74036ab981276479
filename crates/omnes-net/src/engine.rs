//! One rank's access to the network: starting operations and waiting for them.
//!
//! [`driver`](crate::driver) describes which thread drives the core meanwhile. [`join`] describes
//! how a rank joins its job, and [`settings`] the settings that follow from the network and the
//! cores; [`broadcast`] contains the operations of multicast, [`multisend`] of multi-send, and
//! [`barrier`] of barriers.

mod barrier;
mod broadcast;
mod join;
mod multisend;
mod settings;

pub use barrier::SlotRequest;

use crate::core::Core;
use crate::driver::{Shared, WaitError};
use crate::job::EngineCounters;
use crate::live::{LiveConfig, LiveState, Publisher, Who};
use crate::operations::{Disruption, Operation, OperationError, Outcome, Spot};
use crate::relay::{Relay, Relayed};
use crate::schedule::Schedule;
use crate::time_slice;
use crate::waiting::WaitPolicy;
use omnes_proto::channel::{Message, Pattern};
use omnes_wire::JobKey;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// One rank's access to the network; see the module header.
pub struct Engine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    job: u32,
    key: JobKey,
    rank: u32,
    size: u32,
    payload_bytes: u16,
    mtu_warning: Option<String>,
    ranks_per_core: u32,
    peers: Vec<SocketAddr>,
    nodes: Vec<Vec<u32>>,
    has_notices: Arc<AtomicBool>,
}

impl Engine {
    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Data bytes per packet on this job's network.
    pub fn payload_bytes(&self) -> u16 {
        self.payload_bytes
    }

    /// Why the job's packets are shorter than the links of all hosts allow, if a trial at the start
    /// has found that longer ones do not get from host to host. On rank 0 the text names the hosts.
    pub fn mtu_warning(&self) -> Option<&str> {
        self.mtu_warning.as_deref()
    }

    /// True if any machine of the job has more ranks than cores; the same on all ranks.
    pub fn is_oversubscribed(&self) -> bool {
        self.ranks_per_core > 1
    }

    /// Ranks per core, rounded up, on the most crowded machine of the job; the same on all ranks.
    pub fn ranks_per_core(&self) -> u32 {
        self.ranks_per_core
    }

    /// Address to which each rank's packets are sent, in order of ranks.
    pub fn peers(&self) -> &[SocketAddr] {
        &self.peers
    }

    /// The ranks by node, each node's lowest first; the same on all ranks. The ranks of a node run
    /// on one kernel, in one network namespace, as one user, and may share memory
    /// ([`shared_memory`](crate::JobConfig::shared_memory)); any other rank counts as a node of its
    /// own.
    pub fn nodes(&self) -> Vec<Vec<u32>> {
        self.nodes.clone()
    }

    /// Ranks of this rank's node that its packets reach through shared memory: all others of the
    /// node, except those that did not join in time or could not share their memory.
    pub fn neighbours(&self) -> Vec<u32> {
        self.enter(|core| core.rings.reached().map(|rank| rank.0).collect())
    }

    /// Runs `quiet` without opening a receive queue; calls made meanwhile do not count towards
    /// opening one. If ranks share cores, loading firmware would slow down what `quiet` measures.
    pub fn without_queue<T>(&self, quiet: impl FnOnce() -> T) -> T {
        let _quiet = Quiet::begin(&self.shared);
        quiet()
    }

    // ---- operations -----------------------------------------------------------------------

    /// Starts to send `message` from `base`. Returns `None` if the caller may reuse the memory
    /// immediately. Data of the message that are not `available` yet are sent by [`Self::relay`].
    ///
    /// # Safety
    /// `base` must be valid for reading `message.bytes` until the operation has ended or been
    /// released, and bytes that are available must not change.
    ///
    /// # Errors
    /// [`OperationError`] if the receiver has failed or left.
    pub unsafe fn send(
        &self,
        channel: usize,
        message: Message,
        base: NonNull<u8>,
    ) -> Result<Option<Operation>, OperationError> {
        self.enter(|core| {
            // SAFETY: the caller's promise is passed on.
            let started = unsafe { core.send(channel, message, base) };
            core.progress_if_stale(&self.shared.poller);
            started
        })
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// `base` must be valid for writing `capacity` bytes, and not be used otherwise, until the
    /// operation has ended or been released.
    ///
    /// # Errors
    /// [`OperationError`] if this rank has been excluded.
    pub unsafe fn receive(
        &self,
        channel: usize,
        pattern: Pattern,
        base: NonNull<u8>,
        capacity: u64,
    ) -> Result<Operation, OperationError> {
        // SAFETY: the caller's promise is passed on.
        self.enter(|core| unsafe { core.receive(channel, pattern, base, capacity) })
    }

    /// Waits for a matching message that no receive has taken yet, as a receive would, but leaves
    /// it in place; returns its sender, tag and length. A rank that has failed or left ends the
    /// wait as in [`Self::wait`].
    ///
    /// # Errors
    /// [`OperationError`] if no such message can arrive any more.
    pub fn probe(
        &self,
        channel: usize,
        pattern: &Pattern,
        concerns: impl Fn(Disruption<'_>) -> bool,
    ) -> Outcome {
        let spot = pattern.source.map_or(Spot::Anywhere, Spot::At);
        let found = self.wait_until(None, spot, |core| core.try_probe(channel, pattern, &concerns));
        found.unwrap_or(Err(OperationError::Interrupted))
    }

    /// As [`Self::probe`], but without waiting: `None` if no such message has arrived yet. Makes
    /// progress on all operations as [`Self::test`] does.
    pub fn iprobe(
        &self,
        channel: usize,
        pattern: &Pattern,
        concerns: impl Fn(Disruption<'_>) -> bool,
    ) -> Option<Outcome> {
        self.enter(|core| {
            core.progress_for_test(&self.shared.poller);
            core.try_probe(channel, pattern, &concerns)
        })
    }

    /// Releases an operation: when this returns, its memory belongs to the caller again. A message
    /// that is completely available still arrives, from a copy. Returns the outcome if the
    /// operation has ended.
    pub fn release(&self, operation: Operation) -> Option<Outcome> {
        self.enter(|core| core.release(operation))
    }

    /// As [`Self::release`], after an error: if more than 4 MiB of a message have not been sent,
    /// they never are, and its receiver is notified.
    pub fn abandon(&self, operation: Operation) {
        self.enter(|core| core.abandon(operation));
    }

    /// Returns the outcome of an operation if it has ended, and forgets the operation then.
    /// Otherwise makes progress on all operations, unless another test has just done so. A rank
    /// that has failed or left ends the operation as in [`Self::wait`].
    pub fn test(
        &self,
        operation: Operation,
        concerns: impl Fn(Disruption<'_>) -> bool,
    ) -> Option<Outcome> {
        self.enter(|core| {
            if let Some(outcome) = core.operations.take(operation.id) {
                return Some(outcome);
            }
            core.progress_for_test(&self.shared.poller);
            core.try_end(operation, &concerns, &mut None)
        })
    }

    /// Waits until an operation has ended. If a rank for which `concerns` is true has failed, left
    /// or given notice, the operation is released and ends with that error, whichever rank it
    /// communicates with.
    pub fn wait(&self, operation: Operation, concerns: impl Fn(Disruption<'_>) -> bool) -> Outcome {
        let ended = self.wait_for(operation, None, concerns);
        ended.unwrap_or(Err(OperationError::Released))
    }

    /// Waits as [`Self::wait`] does, for at most `limit`; `None` if the operation has not ended by
    /// then.
    fn wait_for(
        &self,
        operation: Operation,
        limit: Option<Duration>,
        concerns: impl Fn(Disruption<'_>) -> bool,
    ) -> Option<Outcome> {
        let lent = AbandonOnDrop { engine: self, operation };
        let usual = self.shared.wait;
        let policy = if operation.is_long { usual.for_long() } else { usual };
        let mut seen = None;
        let ended = self.wait_as(policy, limit, operation.spot, |core| {
            core.try_end(operation, &concerns, &mut seen)
        });
        let ended = match ended {
            Ok(outcome) => Some(outcome),
            Err(WaitError::Late) => None,
            Err(WaitError::Interrupted) => return Some(Err(OperationError::Interrupted)),
        };
        std::mem::forget(lent);
        ended
    }

    /// Forwards the data of `receive` to `sends` as they arrive; the sends start with nothing
    /// available. The relay ends with the receive; if that fails, `sends` never end and must be
    /// released.
    pub fn relay(&self, receive: Operation, sends: &[Operation], relayed: Relayed) {
        self.enter(|core| {
            core.relays.push(Relay { receive, sends: sends.to_vec(), relayed, passed: 0 });
            core.send_now();
        });
    }

    /// Starts a sequence of messages as one operation, which makes progress by itself.
    ///
    /// # Safety
    /// The memory of its transfers and folds must be valid, and not be used otherwise, until the
    /// operation has ended or been released; data to send are only read.
    ///
    /// # Errors
    /// [`OperationError`] if this rank has been excluded.
    pub unsafe fn start_schedule(&self, schedule: Schedule) -> Result<Operation, OperationError> {
        self.enter(|core| {
            // SAFETY: the caller's promise is passed on.
            let started = unsafe { core.start_schedule(schedule) };
            core.progress_if_stale(&self.shared.poller);
            started
        })
    }

    /// Starts a sequence of messages that no caller waits for; its outcome is discarded.
    ///
    /// # Errors
    /// As [`Self::start_schedule`].
    ///
    /// # Safety
    /// The memory of its transfers and folds must be valid, and not be used otherwise, until this
    /// engine is dropped.
    pub unsafe fn run_schedule(&self, schedule: Schedule) -> Result<(), OperationError> {
        self.enter(|core| {
            // SAFETY: the caller's promise is passed on.
            let started = unsafe { core.run_schedule(schedule) };
            core.progress_if_stale(&self.shared.poller);
            started
        })
    }

    /// True if any rank has given notice, as [`Self::failure`] reports; costs next to nothing.
    pub fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Relaxed)
    }

    /// Forgets the notices for whose tags `is_over` is true, because no caller needs them any more.
    /// Returns true if there were any.
    pub fn forget_notices(&self, is_over: impl Fn(u32) -> bool) -> bool {
        self.has_notices() && self.enter(|core| core.standing.forget_notices(is_over))
    }

    /// The first rank for which `concerns` is true among those that have failed, left or given
    /// notice, as an error.
    pub fn failure(&self, concerns: impl Fn(Disruption<'_>) -> bool) -> Option<OperationError> {
        self.enter(|core| core.failure(&concerns))
    }

    /// Waits as [`Self::wait`] does, for at most `limit`, until [`Self::failure`] has an error to
    /// report; `None` if it has none by then, or if the wait was interrupted.
    pub fn wait_for_failure(
        &self,
        limit: Duration,
        concerns: impl Fn(Disruption<'_>) -> bool,
    ) -> Option<OperationError> {
        self.wait_until(Some(limit), Spot::Anywhere, |core| core.failure(&concerns)).ok()
    }

    /// Ranks that have failed so far.
    pub fn failed(&self) -> Vec<u32> {
        self.enter(|core| core.standing.failed.iter().map(|rank| rank.0).collect())
    }

    /// Everything counted so far.
    pub fn counters(&self) -> EngineCounters {
        self.enter(|core| self.shared.counters(core))
    }

    /// Publishes counters of this rank for other processes from now on, ten times per second, until
    /// it leaves; see [`live`](crate::live). Only the first call has an effect.
    pub fn publish(&self, config: LiveConfig) -> &LiveState {
        let who = Who { job: self.job, rank: self.rank, size: self.size };
        let publisher = self.shared.live.get_or_init(|| Publisher::start(config, &who));
        publisher.state()
    }

    /// Waits, for at most `timeout`, until all data sent have arrived and all ranks have received
    /// this rank's reports of failures; true if so. If this process has not run for a while
    /// meanwhile, for instance because the job was suspended, the time starts once more.
    pub fn drain(&self, timeout: Duration) -> bool {
        let is_idle = |core: &mut Core| {
            let is_idle = core.endpoint.channels().iter().all(|channel| channel.is_idle());
            (is_idle && core.has_cast_all() && !core.endpoint.is_telling()).then_some(())
        };
        let pauses = self.enter(|core| core.pauses());
        if self.wait_until(Some(timeout), Spot::Anywhere, is_idle).is_ok() {
            return true;
        }
        // The end of the wait need not have coincided with a step.
        let has_paused = self.enter(|core| {
            core.step();
            core.pauses() != pauses
        });
        has_paused && self.wait_until(Some(timeout), Spot::Anywhere, is_idle).is_ok()
    }

    /// Leaves the job in good order: says farewell and stops the progress thread. Without it, the
    /// other ranks take the end of this rank for a failure. Pending waits end with
    /// [`OperationError::PeerLeft`], which names this rank.
    pub fn leave(&self) {
        self.enter(Core::leave);
        self.shared.stop();
        if let Some(live) = self.shared.live.get() {
            live.leave();
        }
    }

    // ---- inside ---------------------------------------------------------------------------

    /// Runs `step` with the core.
    fn enter<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        self.shared.enter(step)
    }

    fn wait_until<T>(
        &self,
        limit: Option<Duration>,
        spot: Spot,
        done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, WaitError> {
        self.wait_as(self.shared.wait, limit, spot, done)
    }

    fn wait_as<T>(
        &self,
        policy: WaitPolicy,
        limit: Option<Duration>,
        spot: Spot,
        done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, WaitError> {
        let _caller = self.shared.enter_caller();
        self.shared.drive(policy, limit, spot, done)
    }
}

/// An operation that is released when this is dropped: after an interrupted wait, or when a
/// callback of the program panics during the wait.
struct AbandonOnDrop<'a> {
    engine: &'a Engine,
    operation: Operation,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.engine.abandon(self.operation);
    }
}

/// Prevents receive queues from being opened while it lives.
struct Quiet<'a> {
    shared: &'a Shared,
    /// Number of calls before it was created.
    entries: u64,
}

impl<'a> Quiet<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.quiet_callers.fetch_add(1, Ordering::Relaxed);
        Self { shared, entries: shared.entries.load(Ordering::Relaxed) }
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let entries = self.shared.entries.load(Ordering::Relaxed);
        self.shared.uncounted.fetch_add(entries - self.entries, Ordering::Relaxed);
        self.shared.quiet_callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
        time_slice::restore();
    }
}
