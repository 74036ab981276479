//! A group of ranks with a message context of its own.

use crate::barrier::BarrierGroups;
use crate::bcast::{LateSlot, LatestChoice, MultiSendUse, Nodes};
use crate::config::Config;
use crate::error::Error;
use crate::given_up::{GivenUp, is_about};
use crate::job::{COLLECTIVE, Job};
use crate::stats::Stats;
use omnes_net::{
    Completion, Disruption, Engine, Message, MulticastState, Operation, OperationError, Pattern,
    Reply,
};
use omnes_wire::{CommunicatorId, Rank};
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

/// A group of ranks that can communicate, with a message context of its own.
///
/// Cheap to clone; clones are the same communicator. Communicators do not interfere with each
/// other.
///
/// **Collectives.** All ranks must call the same collective operations in the same order, with the
/// same root, length and algorithm; otherwise ranks may block until another one leaves the job. In
/// the operations whose names end in `v`, each part has a length of its own, on which sender and
/// receiver must agree.
///
/// **Threads.** A communicator is `Send` and `Sync`. Any thread may send and receive messages.
/// Collective operations must be called in the same order on all ranks, so call them from one
/// thread at a time. After `fork()`, the child must not use its parent's communicators.
///
/// **Errors.** Besides the errors that it lists, an operation can return:
///
/// - [`Error::DeclaredFailed`]: the other ranks have declared this one failed;
/// - [`Error::AlreadyLeft`]: this rank has left the job;
/// - [`Error::Interrupted`]: [`Config::while_waiting`] ended the wait;
/// - [`Error::PeerGaveUp`], if it waits for data from another rank;
/// - [`Error::Barrier`], if it enters a barrier, as [`Self::finalize`] does;
/// - [`Error::TooLarge`], if it sends.
///
/// **After an error.** If a collective other than a broadcast or a barrier ends on a rank with one
/// of these errors, or with one about lengths that differ, it is *given up*: from then on all
/// collectives on this communicator return [`Error::CollectivesBroken`], on all ranks, including
/// earlier ones that other ranks have not completed. Point-to-point messages still work. To
/// recover, keep a spare communicator and create new ones from it with [`Self::split`] or
/// [`Self::dup`]. A barrier counts as such a collective if it is interrupted while the nodes of the
/// communicator agree on the kernel NIC, which some barriers from the seventeenth on do, but none
/// with a limit ([`Self::barrier_timeout`]).
#[derive(Clone)]
pub struct Communicator {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) job: Arc<Job>,
    pub(crate) id: CommunicatorId,
    /// Ranks in the job of all members, in order of their ranks in this communicator.
    members: Vec<u32>,
    rank: u32,
    nodes: Nodes,
    pub(crate) barriers: BarrierGroups,
    pub(crate) latest_choice: LatestChoice,
    pub(crate) late_slot: LateSlot,
    /// Unset while collectives work.
    pub(crate) given_up: OnceLock<GivenUp>,
    /// Number of nonblocking reductions and gathers started so far.
    pub(crate) nonblocking: AtomicU32,
}

/// Purpose of a collective's message, used as its tag.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Purpose {
    Barrier = 1,
    Bcast = 2,
    Gather = 3,
    Scatter = 4,
    AllToAll = 5,
    Ring = 6,
    Reduce = 7,
    /// The last barrier of the job, which works even after others have failed.
    LastBarrier = 8,
    /// First tag of nonblocking collectives: each kind adds its `Collective::number`.
    Nonblocking = 9,
}

/// What all members have agreed on, or why they have agreed to do without. The outer error is that
/// of the collective in which they agree.
pub(crate) type Agreed<T> = Result<Result<T, String>, Error>;

/// Memory that an operation uses while it is in progress.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    pub(crate) base: NonNull<u8>,
    pub(crate) length: usize,
}

impl Bytes {
    pub(crate) fn of(data: &[u8]) -> Self {
        Self { base: NonNull::from(data).cast(), length: data.len() }
    }

    pub(crate) fn of_mut(data: &mut [u8]) -> Self {
        Self { length: data.len(), base: NonNull::from(data).cast() }
    }

    /// The bytes in `range`, which must lie within them.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.length, "a part is within the whole");
        // SAFETY: within the same memory, as just checked.
        Self { base: unsafe { self.base.add(range.start) }, length: range.len() }
    }

    /// The part of `rank`, if each part has `each` bytes.
    pub(crate) fn part_of(self, rank: u32, each: usize) -> Self {
        let start = rank as usize * each;
        self.part(start..start + each)
    }

    /// # Safety
    /// The memory is valid and initialized during `'a`, and no other code writes to it.
    pub(crate) unsafe fn as_slice<'a>(self) -> &'a [u8] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    /// # Safety
    /// The memory is valid and initialized during `'a`, and no other code uses it.
    pub(crate) unsafe fn as_mut_slice<'a>(self) -> &'a mut [u8] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }

    /// Copies from memory of the same length; the two may overlap.
    ///
    /// # Safety
    /// Both are valid and initialized, and no other code uses them meanwhile.
    pub(crate) unsafe fn copy_from(self, from: Self) {
        assert_eq!(self.length, from.length, "a copy is as long as what is copied");
        // SAFETY: promised by the caller.
        unsafe { self.base.copy_from(from.base, self.length) };
    }
}

impl From<NonNull<[u8]>> for Bytes {
    fn from(memory: NonNull<[u8]>) -> Self {
        Self { base: memory.cast(), length: memory.len() }
    }
}

/// Rejects a message of a collective if its length differs from the expected one.
pub(crate) fn check_length(bytes: u64, expected: usize) -> Result<(), Error> {
    if bytes == expected as u64 {
        Ok(())
    } else {
        Err(Error::LengthMismatch { received: bytes, expected: expected as u64 })
    }
}

/// Checks at compile time that threads may share a communicator.
const _: fn() = || {
    fn is_shared_by_threads<T: Send + Sync>() {}
    is_shared_by_threads::<Communicator>();
    is_shared_by_threads::<crate::OwnedRequest>();
};

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.size())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let engine = &self.job.engine;
        let is_told = engine.forget_notices(|tag| is_about(tag, self.id));
        if is_told || self.given_up.get().is_some() {
            engine.abandon_groups(self.id);
        } else {
            engine.close_groups(self.id);
        }
    }
}

impl Communicator {
    /// All ranks of the job that this process belongs to, according to the launcher's environment.
    ///
    /// # Errors
    /// [`Error::NoLauncher`] without a launcher, [`Error::InvalidVariable`] for an invalid value,
    /// [`Error::Join`] if the ranks do not find each other, [`Error::NoMulticast`] or
    /// [`Error::NoNic`] if the settings require that feature and it is not available,
    /// [`Error::MultiSend`] if they name a tree that is not possible, [`Error::PeerFailed`] if a
    /// rank fails meanwhile.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_config(Config::from_env()?)
    }

    /// All ranks of the job that `config` describes.
    ///
    /// # Errors
    /// Those of [`Config::check`]; otherwise as [`Self::from_env`].
    pub fn from_config(config: Config) -> Result<Self, Error> {
        config.check()?;
        let world = Self::of_all(Job::join(config, None)?)?;
        if let (0, Some(why)) = (world.rank(), world.mtu_warning()) {
            // If stderr is closed, there is nowhere to report it.
            let _ = std::io::stderr().write_all(format!("omnes: rank 0: {why}\n").as_bytes());
        }
        Ok(world)
    }

    /// Communicator of all ranks of a job that this process has just joined. Collective.
    pub(crate) fn of_all(job: Job) -> Result<Self, Error> {
        let (rank, size) = (job.config.rank, job.config.size);
        let world = Self::new(Arc::new(job), CommunicatorId(0), (0..size).collect(), rank);
        world.probe_multicast()?;
        world.tune_at_start()?;
        world.job().publish();
        Ok(world)
    }

    pub(crate) fn new(job: Arc<Job>, id: CommunicatorId, members: Vec<u32>, rank: u32) -> Self {
        let nodes = Nodes::new(&job, &members, rank);
        let barriers = BarrierGroups::new(Arc::clone(&job));
        let inner = Inner {
            job,
            id,
            members,
            rank,
            nodes,
            barriers,
            latest_choice: LatestChoice::default(),
            late_slot: LateSlot::default(),
            given_up: OnceLock::new(),
            nonblocking: AtomicU32::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// This process's rank in this communicator, from 0.
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// Number of ranks of this communicator.
    pub fn size(&self) -> u32 {
        self.inner.members.len() as u32
    }

    /// Counters of what this rank has sent, received, copied and waited for since it joined the
    /// job, over all communicators of the job.
    pub fn stats(&self) -> Stats {
        let job = self.job();
        Stats::of(&job.engine.counters(), job.has_multicast())
    }

    /// Whether the job uses multicast, and why, as found by the probe at startup. The decision is
    /// the same on all ranks; only interface and wording differ.
    pub fn multicast(&self) -> MulticastState {
        self.job().engine.multicast()
    }

    /// Why the job sends shorter packets than the links of all hosts allow, if longer ones are lost
    /// between hosts. Rank 0, whose text names the hosts, has also written it to standard error at
    /// startup, unless the job was created through an [`Exchange`](crate::Exchange).
    pub fn mtu_warning(&self) -> Option<&str> {
        self.job().engine.mtu_warning()
    }

    /// The multi-send that the job uses in place of multicast, if any.
    pub fn multisend(&self) -> Option<MultiSendUse> {
        self.job().multisend()
    }

    /// Leaves the job. Collective: every rank must call it, on the communicator of all ranks, as
    /// its last operation. Waits for all ranks, then until everything sent has been acknowledged,
    /// and says goodbye. A rank that only drops its last communicator says goodbye without waiting
    /// for the others; a rank that exits without either counts as failed.
    ///
    /// # Errors
    /// [`Error::NotAllRanks`], without effect, if this is not a communicator of all ranks;
    /// [`Error::PeerFailed`] if a rank has failed: this rank leaves the job nevertheless.
    pub fn finalize(self) -> Result<(), Error> {
        let (size, job) = (self.size(), self.job().config.size);
        if size != job {
            return Err(Error::NotAllRanks { size, job });
        }
        let together = self.meet_last();
        self.inner.job.leave();
        together
    }

    /// Leaves the job without waiting for the other ranks, for a rank that cannot continue. This
    /// also ends the job's other communicators on this rank; ranks that wait for it get
    /// [`Error::PeerLeft`]. Waits at most one second for outstanding acknowledgements.
    pub fn abandon(self) {
        self.inner.job.leave();
    }

    /// Enters the last barrier of the job; call on the communicator of all its ranks.
    pub(crate) fn meet_last(&self) -> Result<(), Error> {
        self.inner.job.begin_finalizing();
        self.barrier()
    }

    /// Number of nodes that the ranks of this communicator are on. Without shared memory every rank
    /// counts as a node.
    pub fn node_count(&self) -> u32 {
        self.nodes().count()
    }

    // ---- for the operations ---------------------------------------------------------------

    pub(crate) fn job(&self) -> &Job {
        &self.inner.job
    }

    /// The engine for a new operation; an error once this rank has left the job, because no peer
    /// would answer.
    pub(crate) fn engine_to_start(&self) -> Result<&Engine, Error> {
        if self.job().has_left() { Err(Error::AlreadyLeft) } else { Ok(&self.job().engine) }
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.inner.nodes
    }

    pub(crate) fn check_rank(&self, rank: u32) -> Result<(), Error> {
        let size = self.size();
        if rank < size { Ok(()) } else { Err(Error::RankOutOfRange { rank, size }) }
    }

    /// Rank in the job of rank `rank` of this communicator.
    pub(crate) fn job_rank(&self, rank: u32) -> Rank {
        Rank(self.inner.members[rank as usize])
    }

    /// Rank in this communicator of rank `in_job` of the job; `in_job` itself if that is not a
    /// member.
    pub(crate) fn comm_rank(&self, in_job: u32) -> u32 {
        let members = &self.inner.members;
        if members.get(in_job as usize) == Some(&in_job) {
            return in_job;
        }
        let position = members.iter().position(|member| *member == in_job);
        position.map_or(in_job, |rank| rank as u32)
    }

    pub(crate) fn has_member(&self, in_job: u32) -> bool {
        let members = &self.inner.members;
        members.get(in_job as usize) == Some(&in_job) || members.contains(&in_job)
    }

    /// The error of an operation, as callers of this communicator see it. If it reports that a
    /// collective was given up, no collective works on this communicator from now on.
    pub(crate) fn note_error(&self, error: OperationError) -> Error {
        let me = self.job_rank(self.rank());
        if matches!(error, OperationError::PeerLeft { rank } if rank == me) {
            return Error::AlreadyLeft;
        }
        if matches!(error, OperationError::PeerLeft { .. } | OperationError::GivenUp { .. }) {
            // Ranks leave and give up because of a failure; in that case the error must name the
            // failure.
            let is_member = |gone: Disruption<'_>| match gone {
                Disruption::Failed(rank) => self.has_member(rank),
                _ => false,
            };
            if let Some(
                failure @ (OperationError::PeerFailed { .. } | OperationError::MtuBlackHole { .. }),
            ) = self.job().engine.failure(is_member)
            {
                return Error::from_operation(failure, |rank| self.comm_rank(rank));
            }
        }
        let error = Error::from_operation(error, |rank| self.comm_rank(rank));
        match error {
            Error::CollectivesBroken { rank, collective } => {
                self.remember(GivenUp { rank, collective }).into()
            }
            error => error,
        }
    }

    /// Starts a message of a collective, of which `available` bytes may already be sent.
    ///
    /// # Safety
    /// `data` must stay valid until the operation has ended or was released, and its available
    /// bytes must not change.
    pub(crate) unsafe fn start_send(
        &self,
        to: u32,
        purpose: Purpose,
        data: Bytes,
        available: usize,
    ) -> Result<Option<Operation>, Error> {
        let message = Message {
            to: self.job_rank(to),
            communicator: self.inner.id,
            tag: purpose as u32,
            bytes: data.length as u64,
            available: available as u64,
            reply: Reply::Soon,
        };
        // SAFETY: promised by the caller.
        let started = unsafe { self.engine_to_start()?.send(COLLECTIVE, message, data.base) };
        started.map_err(|error| self.note_error(error))
    }

    /// Tells `to` that a broadcast's message of `length` bytes will not arrive: a wait for it ends
    /// with [`Error::PeerGaveUp`]. A message of zero bytes arrives nevertheless.
    pub(crate) fn withhold(&self, to: u32, length: usize) {
        let data = Bytes { base: NonNull::dangling(), length };
        // SAFETY: none of the memory is available, and it is given back immediately.
        let started = unsafe { self.start_send(to, Purpose::Bcast, data, 0) };
        if let Ok(Some(send)) = started {
            self.job().engine.abandon(send);
        }
    }

    /// Starts the receive of a collective.
    ///
    /// # Safety
    /// `data` must stay valid and not be accessed otherwise until the operation has ended or was
    /// released.
    pub(crate) unsafe fn start_receive(
        &self,
        from: u32,
        purpose: Purpose,
        data: Bytes,
    ) -> Result<Operation, Error> {
        let pattern = Pattern {
            communicator: self.inner.id,
            source: Some(self.job_rank(from)),
            tag: Some(purpose as u32),
        };
        let (base, length) = (data.base, data.length as u64);
        // SAFETY: promised by the caller.
        let started = unsafe { self.engine_to_start()?.receive(COLLECTIVE, pattern, base, length) };
        started.map_err(|error| self.note_error(error))
    }

    /// Waits for a message; ends with an error if any member has failed.
    pub(crate) fn wait_for_message(&self, operation: Operation) -> Result<Completion, Error> {
        let outcome = self.job().engine.wait(operation, |gone| self.breaks_message(gone));
        outcome.map_err(|error| self.note_error(error))
    }

    /// Waits for a part of a collective; ends with an error if any member has failed or left.
    pub(crate) fn wait_for(&self, operation: Operation) -> Result<Completion, Error> {
        let outcome = self.job().engine.wait(operation, |gone| self.breaks_collective(gone));
        outcome.map_err(|error| self.note_error(error))
    }

    /// True if a wait for a message from any rank must end: a member has failed, or all others have
    /// left.
    pub(crate) fn breaks_message(&self, gone: Disruption<'_>) -> bool {
        let members = &self.inner.members;
        let me = members[self.inner.rank as usize];
        match gone {
            Disruption::Failed(rank) => self.has_member(rank),
            Disruption::Notice { .. } => false,
            Disruption::Left { rank, among } => {
                let has_left = |member: &u32| among.contains(&Rank(*member));
                among.len() + 1 >= members.len()
                    && self.has_member(rank)
                    && members.iter().all(|member| *member == me || has_left(member))
            }
        }
    }

    /// True if collectives can no longer complete. The last barrier still can: a rank that has left
    /// by then has passed it, and all ranks take part in it, whatever was given up before.
    pub(crate) fn breaks_collective(&self, gone: Disruption<'_>) -> bool {
        match gone {
            Disruption::Failed(rank) => self.has_member(rank),
            Disruption::Left { rank, .. } => self.has_member(rank) && !self.job().is_finalizing(),
            Disruption::Notice { .. } => self.is_notice(gone) && !self.job().is_finalizing(),
        }
    }

    /// Waits for all operations, so that no memory is in use afterwards; returns the first error.
    pub(crate) fn wait_for_all(&self, operations: &[Operation]) -> Result<(), Error> {
        Unwaited { communicator: self, operations }.wait()
    }
}

/// Operations that have not been waited for yet. When dropped, they are abandoned, even if a wait
/// for another one panics.
pub(crate) struct Unwaited<'a> {
    pub(crate) communicator: &'a Communicator,
    pub(crate) operations: &'a [Operation],
}

impl Unwaited<'_> {
    /// As [`Communicator::wait_for_all`].
    pub(crate) fn wait(mut self) -> Result<(), Error> {
        let mut result = Ok(());
        while let Some((operation, rest)) = self.operations.split_first() {
            self.operations = rest;
            let outcome = self.communicator.wait_for(*operation).map(|_| ());
            result = result.and(outcome);
        }
        result
    }
}

impl Drop for Unwaited<'_> {
    fn drop(&mut self) {
        let engine = &self.communicator.job().engine;
        self.operations.iter().for_each(|operation| engine.abandon(*operation));
    }
}
