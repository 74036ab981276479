//! The engine: who moves the core on, and who waits how.
//!
//! A caller that waits drives the core itself: no thread hand-off in the latency path. Of several
//! waiting callers one drives and the others sleep until something of theirs has ended. When no
//! caller has been inside for a tick, a thread that sleeps in `poll` takes over, so that a rank
//! which computes still answers, repairs and gives signs of life; the next caller takes the core
//! back by a store, without a system call.
//!
//! ```text
//!   caller inside ──leaves──▶ nobody, thread looks every tick ──a whole tick──▶ thread in poll
//!        ▲                                │                                          │
//!        └──────────── enters ────────────┴──────────────── enters ──────────────────┘
//! ```

use crate::core::{Core, Look, Parts};
use crate::crowd::Crowd;
use crate::error::NetError;
use crate::job::{EngineCounters, JobConfig};
use crate::links::Links;
use crate::memory::Memory;
use crate::operations::{Gone, Operation, OperationError, Outcome, Part};
use crate::poller::Poller;
use crate::rendezvous::{Local, Met, Rendezvous};
use crate::socket::UdpSocket;
use crate::waiting::{Stage, WaitPolicy, Waiting};
use crate::watch::Watch;
use omnes_proto::LivenessConfig;
use omnes_proto::channel::{ChannelConfig, Message, Pattern};
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_proto::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN, WINDOW_PACKETS_MAX};
use omnes_wire::{ENVELOPE_BYTES, PACKET_OVERHEAD_BYTES, Rank};
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks of the progress thread at whether callers are active.
const TICK: Duration = Duration::from_millis(2);
/// Longest sleep, so that nothing depends on a single wake-up.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Time between two looks at the connections to other ranks while a caller spins.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that a lane may have in flight where ranks outnumber the cores.
const CROWDED_WINDOW_BYTES: u32 = 256 << 10;
const CROWDED_WINDOW_PACKETS_MIN: u32 = 16;
/// Looks at the rank that is waited for, after which all others get one.
const LOOKS_PER_SWEEP: u32 = 16;

struct Inside {
    core: Core,
    is_driven: bool,
    sleeps_until: Option<Instant>,
    watched_at: Instant,
}

struct Shared {
    inside: Mutex<Inside>,
    ended: Condvar,
    poller: Poller,
    wait: WaitPolicy,
    /// Callers that wait for the driver to end something of theirs.
    waiters: AtomicU32,
    /// Calls so far and callers inside: what the progress thread looks at.
    entries: AtomicU64,
    callers: AtomicU32,
    is_over: AtomicBool,
    sleeps: AtomicU64,
    yields: AtomicU64,
}

/// One rank's access to the network; see the module header.
pub struct Engine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    rank: u32,
    size: u32,
    payload_bytes: u16,
    is_crowded: bool,
    peers: Vec<SocketAddr>,
}

/// Payload of a packet that fits `mtu`.
fn payload_bytes(mtu: u32, address: IpAddr) -> u16 {
    let headers = if address.is_ipv4() { 28 } else { 48 };
    let payload = mtu.saturating_sub(headers + PACKET_OVERHEAD_BYTES as u32);
    payload.clamp(u32::from(PAYLOAD_BYTES_MIN), u32::from(PAYLOAD_BYTES_MAX)) as u16
}

impl Engine {
    /// Joins the job: meets all other ranks, and starts the progress thread.
    ///
    /// # Errors
    /// [`NetError`] says what is wrong and what to do.
    pub fn join(config: JobConfig) -> Result<Self, NetError> {
        let rendezvous = Rendezvous {
            rank: Rank(config.rank),
            size: config.size,
            address: config.rendezvous.clone(),
            key: config.key.clone(),
            deadline: config.join_timeout,
        };
        let mut opened = None;
        let open = |address, peer| {
            let (links, local) = open_links(&config, address, peer)?;
            opened = Some(links);
            Ok(local)
        };
        let met = rendezvous.meet(open)?;
        let links = opened.expect("whoever has met the others has opened its links");
        Self::start(config, met, links)
    }

    fn start(config: JobConfig, met: Met, mut links: Links) -> Result<Self, NetError> {
        let wait = wait_policy(&config, &met.crowd);
        let JobConfig { rank, size, peer_timeout, channels, .. } = config;
        let Met { job, key, addresses, payload_bytes, crowd, streams } = met;
        let watch = Watch::new(streams)
            .map_err(|source| NetError::System { what: "rendezvous connection", source })?;
        links.connect(addresses.clone())?;
        let descriptors = links.sockets().iter().map(UdpSocket::fd).collect();
        let poller = Poller::new(descriptors, watch.descriptors())?;
        let share = links.sockets()[0].receive_buffer_bytes() / 4 * 3 / channels.len().max(1);
        let share = u32::try_from(share).unwrap_or(u32::MAX).min(256 << 20);
        let mut checked = Vec::new();
        for channel in channels {
            let channel = ChannelConfig {
                payload_bytes,
                receive_truesize_bytes: share,
                initial_credit_bytes: (share / 2).min(channel.initial_credit_bytes),
                peer_timeout: peer_timeout.mul_f64(0.8),
                window_packets: window_packets(&crowd, payload_bytes).min(channel.window_packets),
                ..channel
            };
            checked.push(channel.build()?);
        }
        let slots: Vec<u32> = checked.iter().map(|channel| channel.pool_slots).collect();
        let liveness =
            LivenessConfig { interval: peer_timeout / 10, timeout: peer_timeout.mul_f64(0.8) };
        let me = Rank(rank);
        let endpoint = Endpoint::new(
            omnes_wire::Instant::ZERO,
            EndpointConfig { me, size, job, key, channels: checked, liveness },
        );
        let core = Core::new(Parts {
            endpoint,
            links,
            memory: Memory::new(&slots, usize::from(payload_bytes)),
            watch,
            me,
            small_bytes: usize::from(payload_bytes) - ENVELOPE_BYTES,
            origin: Instant::now(),
        });
        let shared = Arc::new(Shared {
            inside: Mutex::new(Inside {
                core,
                is_driven: false,
                sleeps_until: None,
                watched_at: Instant::now(),
            }),
            ended: Condvar::new(),
            poller,
            wait,
            waiters: AtomicU32::new(0),
            entries: AtomicU64::new(0),
            callers: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            yields: AtomicU64::new(0),
        });
        let thread = std::thread::Builder::new()
            .name("omnes-progress".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run_unattended()
            })
            .map_err(|source| NetError::System { what: "progress thread", source })?;
        let peers = addresses;
        let is_crowded = crowd.is_crowded;
        let thread = Some(thread);
        Ok(Self { shared, thread, rank, size, payload_bytes, is_crowded, peers })
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Data bytes per packet on this job's network.
    pub fn payload_bytes(&self) -> u16 {
        self.payload_bytes
    }

    /// True if some machine of the job has more ranks than cores; the same on all ranks.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Where each rank's packets go, in order of ranks.
    pub fn peers(&self) -> &[SocketAddr] {
        &self.peers
    }

    // ---- operations -----------------------------------------------------------------------

    /// Starts to send `message` from `base`. `None` if the caller may use the memory again at
    /// once. Of a message that is not `available` yet the rest follows by [`Self::extend`].
    ///
    /// # Safety
    /// `base` must be valid for reading `message.bytes` until the operation has ended or was
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
            core.push();
            started
        })
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// `base` must be valid for writing `capacity` bytes, and used by nobody else, until the
    /// operation has ended or was released.
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

    /// Gives an operation up: when this returns, its memory belongs to the caller again. What was
    /// under way may or may not arrive.
    pub fn release(&self, operation: Operation) {
        self.enter(|core| core.release(operation));
    }

    /// The outcome of an operation, if it has ended; it is gone then.
    pub fn test(&self, operation: Operation) -> Option<Outcome> {
        self.enter(|core| {
            core.progress(Look::Everywhere(&self.shared.poller));
            core.step();
            core.operations.take(operation.id)
        })
    }

    /// Waits until an operation has ended. If a rank for which `concerns` is true is no more, the
    /// operation is released and ends with that error, whoever it is with.
    pub fn wait(&self, operation: Operation, concerns: impl Fn(Gone) -> bool) -> Outcome {
        let ended = self.wait_until(None, operation.peer, |core| {
            match core.operations.take(operation.id) {
                Some(outcome) => Some(outcome),
                None => core.failure(&concerns).map(|failure| {
                    core.release(operation);
                    Err(failure)
                }),
            }
        });
        ended.unwrap_or(Err(OperationError::Timeout { ms: 0 }))
    }

    /// Waits until a receive of `total` bytes has at least `wanted` of them in place, or has
    /// ended; how many there are.
    ///
    /// # Errors
    /// As for [`Self::wait`], but the operation is not released.
    pub fn wait_for_bytes(
        &self,
        operation: Operation,
        wanted: u64,
        total: u64,
        concerns: impl Fn(Gone) -> bool,
    ) -> Result<u64, OperationError> {
        let more = self.wait_until(None, operation.peer, |core| {
            if core.operations.is_ended(operation.id) {
                return Some(Ok(total));
            }
            if let Some(failure) = core.failure(&concerns) {
                return Some(Err(failure));
            }
            let Part::Receive(Some(id)) = operation.part else { return None };
            let bytes = core.endpoint.channel(operation.channel).received_bytes(id);
            (bytes >= wanted).then_some(Ok(bytes))
        });
        more.unwrap_or(Ok(total))
    }

    /// More of some messages is available.
    pub fn extend(&self, operations: &[Operation], available: u64) {
        self.enter(|core| {
            for operation in operations {
                core.extend(*operation, available);
            }
            core.push();
        });
    }

    /// Ranks that have failed so far.
    pub fn failed(&self) -> Vec<u32> {
        self.enter(|core| core.failed.iter().map(|rank| rank.0).collect())
    }

    /// What was counted so far.
    pub fn counters(&self) -> EngineCounters {
        let (mut counters, sums) = self.enter(|core| {
            let counters = EngineCounters {
                socket: core.links.counters(),
                gate: *core.endpoint.counters(),
                copied_bytes: core.memory.copied_bytes,
                offloads: Some(core.links.offloads()),
                ..EngineCounters::default()
            };
            let each = core.endpoint.channels().iter().map(|channel| *channel.counters());
            (counters, each.collect::<Vec<_>>())
        });
        for each in sums {
            counters.channel.add(&each);
        }
        counters.sleeps = self.shared.sleeps.load(Ordering::Relaxed);
        counters.yields = self.shared.yields.load(Ordering::Relaxed);
        counters
    }

    /// Waits until all that was sent has arrived, and all have heard what this rank has to tell of
    /// a failure, at most `deadline`; true if so.
    pub fn drain(&self, deadline: Duration) -> bool {
        let is_idle = |core: &mut Core| {
            let is_idle = core.endpoint.channels().iter().all(|channel| channel.is_idle());
            (is_idle && !core.endpoint.is_telling()).then_some(())
        };
        self.wait_until(Some(deadline), None, is_idle).is_some()
    }

    /// Leaves the job in good order: says farewell and stops the progress thread. Without it the
    /// others take the end of this rank for a failure.
    pub fn leave(&self) {
        self.enter(|core| {
            for _ in 0..2 {
                core.endpoint.leave();
                core.push();
            }
            let cause = core.endpoint.first_failed();
            core.watch.leave(cause);
        });
        self.stop();
    }

    fn stop(&self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.poller.wake();
    }

    // ---- inside ---------------------------------------------------------------------------

    /// Runs `step` with the core.
    fn enter<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        self.shared.entries.fetch_add(1, Ordering::Relaxed);
        let mut inside = self.shared.lock();
        let ended = inside.core.operations.ended;
        let result = step(&mut inside.core);
        self.shared.tell_others(&mut inside, ended);
        result
    }

    fn wait_until<T>(
        &self,
        limit: Option<Duration>,
        peer: Option<Rank>,
        done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        self.shared.callers.fetch_add(1, Ordering::Relaxed);
        self.shared.entries.fetch_add(1, Ordering::Relaxed);
        let result = self.shared.drive(limit, peer, done);
        self.shared.callers.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic inside is a bug of ours; the others still end with an error of their own.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits for what has just happened.
    fn tell_others(&self, inside: &mut Inside, ended_before: u64) {
        if inside.core.operations.ended != ended_before && self.waiters.load(Ordering::Relaxed) > 0
        {
            self.ended.notify_all();
        }
        if let Some(until) = inside.sleeps_until {
            let timeout = inside.core.next_timeout();
            let is_sooner = timeout.is_some_and(|timeout| Instant::now() + timeout < until);
            if is_sooner || inside.core.operations.ended != ended_before || inside.core.is_blocked()
            {
                self.poller.wake();
            }
        }
    }

    /// Waits for `done`, driving the core unless another caller does.
    fn drive<T>(
        &self,
        limit: Option<Duration>,
        peer: Option<Rank>,
        mut done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut waiting = Waiting::new(self.wait);
        let mut looks = 0;
        let mut inside = self.lock();
        loop {
            let ended = inside.core.operations.ended;
            looks += 1;
            let look = match peer {
                Some(rank) if looks % LOOKS_PER_SWEEP != 0 => Look::At(rank),
                _ => Look::Everywhere(&self.poller),
            };
            if !inside.is_driven && inside.core.progress(look) {
                waiting.on_news();
            }
            if let Some(result) = done(&mut inside.core) {
                self.tell_others(&mut inside, ended);
                self.ended_driving(&inside);
                return Some(result);
            }
            self.tell_others(&mut inside, ended);
            if until.is_some_and(|until| Instant::now() >= until) {
                self.ended_driving(&inside);
                return None;
            }
            inside = if inside.is_driven {
                self.wait_for_driver(inside)
            } else {
                self.step_aside(inside, &mut waiting)
            };
        }
    }

    /// One of those that wait must drive now.
    fn ended_driving(&self, inside: &Inside) {
        if !inside.is_driven && self.waiters.load(Ordering::Relaxed) > 0 {
            self.ended.notify_all();
        }
    }

    fn wait_for_driver<'a>(&'a self, inside: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let result = self.ended.wait_timeout(inside, TICK);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        result.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Lets go of the core for a moment: how, follows from how long the wait has lasted.
    fn step_aside<'a>(
        &'a self,
        mut inside: MutexGuard<'a, Inside>,
        waiting: &mut Waiting,
    ) -> MutexGuard<'a, Inside> {
        match waiting.next() {
            Stage::Spin => {
                self.watch_sometimes(&mut inside);
                drop(inside);
                std::hint::spin_loop();
                self.lock()
            }
            Stage::GiveWay => {
                self.watch_sometimes(&mut inside);
                drop(inside);
                self.yields.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
                self.lock()
            }
            Stage::Block => {
                inside.is_driven = true;
                let mut inside = self.sleep(inside);
                inside.is_driven = false;
                inside
            }
        }
    }

    /// Blocks until there is news for the core.
    fn sleep<'a>(&'a self, mut inside: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        let timeout = inside.core.next_timeout().unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
        let wants_room = inside.core.is_blocked();
        inside.sleeps_until = Some(Instant::now() + timeout);
        drop(inside);
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let woken = self.poller.sleep(timeout, wants_room);
        let mut inside = self.lock();
        inside.sleeps_until = None;
        inside.core.step();
        if woken.by_connection {
            inside.core.check_watch();
        }
        inside
    }

    fn watch_sometimes(&self, inside: &mut Inside) {
        let now = inside.core.clock();
        if now.saturating_duration_since(inside.watched_at) >= WATCH_INTERVAL {
            inside.watched_at = now;
            inside.core.check_watch();
        }
    }

    // ---- nobody inside --------------------------------------------------------------------

    /// The progress thread.
    fn run_unattended(&self) {
        let mut seen = self.entries.load(Ordering::Relaxed);
        while !self.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(TICK);
            let entries = self.entries.load(Ordering::Relaxed);
            let is_attended = self.callers.load(Ordering::Relaxed) > 0;
            if entries == seen && !is_attended {
                self.take_over(entries);
            }
            seen = self.entries.load(Ordering::Relaxed);
        }
    }

    /// Moves the core on until a caller comes.
    fn take_over(&self, entries: u64) {
        let is_alone = || {
            self.entries.load(Ordering::Relaxed) == entries
                && self.callers.load(Ordering::Relaxed) == 0
                && !self.is_over.load(Ordering::SeqCst)
        };
        while is_alone() {
            let mut inside = self.lock();
            let ended = inside.core.operations.ended;
            inside.core.progress(Look::Everywhere(&self.poller));
            inside.core.step();
            self.tell_others(&mut inside, ended);
            if is_alone() {
                drop(self.sleep(inside));
            }
        }
    }
}

/// Packets that a lane may have in flight. Ranks that take turns on a core pass data on through
/// its cache, if they pass on little enough at a time.
fn window_packets(crowd: &Crowd, payload_bytes: u16) -> u32 {
    match crowd.is_crowded {
        true => (CROWDED_WINDOW_BYTES / u32::from(payload_bytes)).max(CROWDED_WINDOW_PACKETS_MIN),
        false => WINDOW_PACKETS_MAX,
    }
}

/// How callers wait: as suits the ranks per core, but for what was asked for.
fn wait_policy(config: &JobConfig, crowd: &Crowd) -> WaitPolicy {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let ranks = config.local_ranks.unwrap_or(crowd.local_ranks);
    let usual = WaitPolicy::for_ranks(ranks, cores);
    WaitPolicy {
        spin: config.spin.unwrap_or(usual.spin),
        give_way: config.give_way.unwrap_or(usual.give_way),
    }
}

/// The sockets on the address under which rank 0 sees this rank, and what fits its link.
fn open_links(
    config: &JobConfig,
    address: IpAddr,
    peer: Option<SocketAddr>,
) -> Result<(Links, Local), NetError> {
    let links = Links::open(address, Rank(config.rank), config.size, config.offloads)?;
    let ports = links.ports(config.size)?;
    let mtu = peer.map_or(Ok(1500), |peer| UdpSocket::path_mtu(address, peer)).unwrap_or(1500);
    Ok((links, Local { ports, payload_bytes: payload_bytes(mtu, address) }))
}
