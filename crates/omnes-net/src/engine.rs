//! One rank's access to the network: joining the job, starting operations, waiting for them.
//!
//! [`driver`](crate::driver) tells who moves the core on meanwhile; [`broadcast`] has what concerns
//! multicast, [`spread`] multi-send, and [`barrier`] barriers; [`settings`] has what follows from
//! the network and the cores.

mod barrier;
mod broadcast;
mod settings;
mod spread;

use crate::cipher::Cipher;
use crate::clock::Clock;
use crate::core::{Core, Parts};
use crate::driver::{Shared, Unended};
use crate::engine::settings::{
    broadcast_config, channel_configs, overhead_bytes, payload_bytes, wait_policy,
};
use crate::error::{NetError, RANKS_MAX};
use crate::job::{EngineCounters, JobConfig, TIMEOUT_MIN};
use crate::links::{Links, SOCKET_BUFFER_BYTES};
use crate::live::{LiveConfig, LiveState, Publisher, Who};
use crate::memory::Memory;
use crate::multicast::{MulticastState, Plan};
use crate::operations::{Gone, Operation, OperationError, Outcome, Spot};
use crate::poller::Poller;
use crate::queue_request::QueueRequest;
use crate::relay::{Relay, Relayed};
use crate::rendezvous::{Local, Met, Narrow, Rendezvous, random};
use crate::ring::{Neighbours, Node, NodeConfig};
use crate::signals::without_signals;
use crate::socket::UdpSocket;
use crate::trial::Trial;
use crate::waiting::WaitPolicy;
use crate::watch::Watch;
use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::CheckedBroadcast;
use omnes_proto::channel::{Checked, Message, Pattern};
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_wire::{ENVELOPE_BYTES, JobKey, PACKET_OVERHEAD_BYTES, Rank};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Part of the time in which a silent rank counts as failed for which the other ranks of the node
/// are waited for, once all of the job have come: nobody speaks to other nodes meanwhile.
const NEIGHBOURS_SHARE: u32 = 2;
/// The longest silence that counts: ten years.
const PEER_TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Largest IP packet of any Ethernet; also what is taken where the kernel does not know the way.
const MTU: u32 = 1500;
/// Part of a ring that data in flight may take, as numerator and denominator; the rest is for
/// answers, which no window limits.
const RING_FLIGHT: (usize, usize) = (7, 8);

/// One rank's access to the network; see the module header.
pub struct Engine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    job: u32,
    key: JobKey,
    rank: u32,
    size: u32,
    payload_bytes: u16,
    narrow: Option<String>,
    ranks_per_core: u32,
    peers: Vec<SocketAddr>,
    nodes: Vec<Vec<u32>>,
    has_notices: Arc<AtomicBool>,
}

impl Engine {
    /// Joins the job: meets all other ranks, and starts the progress thread.
    ///
    /// # Errors
    /// [`NetError`] says what is wrong and what to do.
    pub fn join(config: JobConfig) -> Result<Self, NetError> {
        Self::join_through(config, None)
    }

    /// As [`Self::join`]; at rank 0 through a `listener` that listens at the rendezvous address
    /// already, so that the address could be told to the others with the port that was free.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_through(
        mut config: JobConfig,
        listener: Option<TcpListener>,
    ) -> Result<Self, NetError> {
        if config.size > RANKS_MAX {
            return Err(NetError::TooManyRanks { size: config.size });
        }
        // More ends no wait before clocks do.
        config.peer_timeout = config.peer_timeout.min(PEER_TIMEOUT_MAX);
        if config.encrypts && config.key.is_none() {
            return Err(NetError::KeyWanted);
        }
        let rendezvous = Rendezvous {
            rank: Rank(config.rank),
            size: config.size,
            address: config.rendezvous.clone(),
            listener,
            key: config.key.clone(),
            timeout: config.join_timeout,
            while_waiting: config.while_waiting.clone(),
            node: Node::this().filter(|_| config.shared_memory),
            encrypts: config.encrypts,
            alike: config.alike.clone(),
        };
        let mut opened = None;
        let open = |address, peers: &[SocketAddr]| {
            let (links, local) = open_links(&config, address, peers)?;
            opened = Some(links);
            Ok(local)
        };
        let met = rendezvous.meet(open)?;
        let links = opened.expect("whoever has met the others has opened its links");
        Self::start(config, met, links)
    }

    fn start(config: JobConfig, met: Met, mut links: Links) -> Result<Self, NetError> {
        let wait = wait_policy(&config, &met.crowd);
        links.connect(met.addresses.clone())?;
        let rings = meet_neighbours(&config, &met);
        if met.nodes.len() > 1 {
            links.open_nic(config.offloads)?;
        }
        let multicast = join_group(&config, &met, &mut links)?;
        links.open_doorbell();
        let channels = channel_configs(&config, &met, &links)?;
        let broadcast = broadcast_config(&config, &met, &links)?;
        let mut slots: Vec<u32> = channels.iter().map(|channel| channel.pool_slots).collect();
        slots.extend(broadcast.iter().map(|broadcast| broadcast.pool_slots));
        let mut endpoint = endpoint(&config, &met, channels, broadcast);
        limit_flight(&mut endpoint, &rings);
        let cipher = cipher(&config, &met)?;
        let own = links.own_address();
        let own = own.map_err(|source| NetError::System { what: "local address", source })?;
        let packet_bytes = u32::from(met.payload_bytes) + overhead_bytes(&config, own);
        let JobConfig { rank, size, peer_timeout, while_waiting, receive_queue, swallows, .. } =
            config;
        let Met { job, key, addresses, payload_bytes, narrow, crowd, nodes, streams } = met;
        let narrow = narrow.map(|narrow| narrow_text(&narrow, packet_bytes, payload_bytes));
        let watch = Watch::new(streams)
            .map_err(|source| NetError::System { what: "rendezvous connection", source })?;
        let waker = rings.waker().map_err(|source| NetError::System { what: "eventfd", source })?;
        let poller = Poller::new(links.descriptors(), links.readable(), watch.descriptor(), waker);
        let request = QueueRequest::new(receive_queue, job.0, &links);
        let core = Core::new(Parts {
            endpoint,
            links,
            rings,
            memory: Memory::new(&slots, usize::from(payload_bytes)),
            watch,
            multicast,
            cipher,
            me: Rank(rank),
            packet_bytes,
            small_bytes: usize::from(payload_bytes) - ENVELOPE_BYTES,
            swallows,
            patience: crowd.patience(),
            peer_timeout,
            clock: Clock::start(),
        });
        let has_notices = Arc::clone(&core.has_notices);
        let shared = Arc::new(Shared::new(core, poller, wait, while_waiting));
        let thread = Some(start_progress(&shared, request)?);
        let peers = addresses;
        let ranks_per_core = crowd.ranks_per_core;
        Ok(Self {
            shared,
            thread,
            job: job.0,
            key,
            rank,
            size,
            payload_bytes,
            narrow,
            ranks_per_core,
            peers,
            nodes,
            has_notices,
        })
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

    /// Why the job's packets are shorter than the links of all hosts take, if a trial at the start
    /// has found that longer ones do not get from host to host. Rank 0 names the hosts.
    pub fn narrow(&self) -> Option<&str> {
        self.narrow.as_deref()
    }

    /// True if some machine of the job has more ranks than cores; the same on all ranks.
    pub fn is_crowded(&self) -> bool {
        self.ranks_per_core > 1
    }

    /// Ranks per core, rounded up, on the machine of the job where they are most; the same on all
    /// ranks.
    pub fn ranks_per_core(&self) -> u32 {
        self.ranks_per_core
    }

    /// Where each rank's packets go, in order of ranks.
    pub fn peers(&self) -> &[SocketAddr] {
        &self.peers
    }

    /// The ranks by node, each node's lowest first; the same on all ranks. The ranks of a node run
    /// on one kernel, in one network namespace, as one user, and may share memory
    /// ([`JobConfig::shared_memory`]); any other rank counts as a node of its own.
    pub fn nodes(&self) -> Vec<Vec<u32>> {
        self.nodes.clone()
    }

    /// Ranks of this rank's node that its packets reach through shared memory: all others of the
    /// node, but for those that did not come in time or could not hand their memory over.
    pub fn neighbours(&self) -> Vec<u32> {
        self.enter(|core| core.rings.reached().map(|rank| rank.0).collect())
    }

    /// Begins to open no receive queue while `quiet` runs, nor for the calls made meanwhile: where
    /// ranks share cores, loading firmware would slow down what it measures.
    pub fn without_queue<T>(&self, quiet: impl FnOnce() -> T) -> T {
        let _quiet = Quiet::begin(&self.shared);
        quiet()
    }

    // ---- operations -----------------------------------------------------------------------

    /// Starts to send `message` from `base`. `None` if the caller may use the memory again at
    /// once. Of a message that is not `available` yet the rest follows by [`Self::relay`].
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
        // SAFETY: the caller's promise is passed on.
        self.enter(|core| unsafe { core.send(channel, message, base) })
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

    /// Waits for a message that fits and has no receive yet, as a receive would, but leaves it
    /// where it is: its sender, tag and length. A rank that has failed or left ends the wait as in
    /// [`Self::wait`].
    ///
    /// # Errors
    /// [`OperationError`] if no such message comes any more.
    pub fn probe(
        &self,
        channel: usize,
        pattern: &Pattern,
        concerns: impl Fn(Gone<'_>) -> bool,
    ) -> Outcome {
        let spot = pattern.source.map_or(Spot::Anywhere, Spot::At);
        let found = self.wait_until(None, spot, |core| core.try_probe(channel, pattern, &concerns));
        found.unwrap_or(Err(OperationError::Interrupted))
    }

    /// As [`Self::probe`], but without waiting: `None` if no such message is here yet. Moves all
    /// operations on as [`Self::test`] does.
    pub fn iprobe(
        &self,
        channel: usize,
        pattern: &Pattern,
        concerns: impl Fn(Gone<'_>) -> bool,
    ) -> Option<Outcome> {
        self.enter(|core| {
            core.look_for_test(&self.shared.poller);
            core.try_probe(channel, pattern, &concerns)
        })
    }

    /// Gives an operation up: when this returns, its memory belongs to the caller again. What was
    /// under way may or may not arrive.
    pub fn release(&self, operation: Operation) {
        self.enter(|core| core.release(operation));
    }

    /// The outcome of an operation, if it has ended; it is gone then. Moves all operations on if it
    /// has not, unless another test has done so just now. A rank that has failed or left ends it as
    /// in [`Self::wait`].
    pub fn test(
        &self,
        operation: Operation,
        concerns: impl Fn(Gone<'_>) -> bool,
    ) -> Option<Outcome> {
        self.enter(|core| {
            if let Some(outcome) = core.operations.take(operation.id) {
                return Some(outcome);
            }
            core.look_for_test(&self.shared.poller);
            core.try_end(operation, &concerns)
        })
    }

    /// Waits until an operation has ended. If a rank for which `concerns` is true has failed, left
    /// or given notice, the operation is released and ends with that error, whoever it is with.
    pub fn wait(&self, operation: Operation, concerns: impl Fn(Gone<'_>) -> bool) -> Outcome {
        let ended = self.wait_for(operation, None, concerns);
        ended.unwrap_or(Err(OperationError::Released))
    }

    /// Waits as [`Self::wait`] does, for at most `limit`; `None` if it has not ended by then.
    fn wait_for(
        &self,
        operation: Operation,
        limit: Option<Duration>,
        concerns: impl Fn(Gone<'_>) -> bool,
    ) -> Option<Outcome> {
        let lent = Lent { engine: self, operation };
        let usual = self.shared.wait;
        let policy = if operation.is_long { usual.for_long() } else { usual };
        let ended =
            self.wait_as(policy, limit, operation.spot, |core| core.try_end(operation, &concerns));
        let ended = match ended {
            Ok(outcome) => Some(outcome),
            Err(Unended::Late) => None,
            Err(Unended::Interrupted) => return Some(Err(OperationError::Interrupted)),
        };
        std::mem::forget(lent);
        ended
    }

    /// Lets `sends` have what `receive` gets, as it comes in: they start with nothing available.
    /// The relay ends with the receive; if that fails, `sends` never end and must be released.
    pub fn relay(&self, receive: Operation, sends: &[Operation], relayed: Relayed) {
        self.enter(|core| {
            core.relays.push(Relay { receive, sends: sends.to_vec(), relayed, passed: 0 });
            core.push();
        });
    }

    /// True if some rank has given notice, as [`Self::failure`] tells; costs next to nothing.
    pub fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Relaxed)
    }

    /// The first rank that has failed or left or given notice for which `concerns` is true, as an
    /// error.
    pub fn failure(&self, concerns: impl Fn(Gone<'_>) -> bool) -> Option<OperationError> {
        self.enter(|core| core.failure(&concerns))
    }

    /// Waits as [`Self::wait`] does until there is what [`Self::failure`] tells, for at most
    /// `limit`; nothing if there is none by then, or the wait was interrupted.
    pub fn wait_for_failure(
        &self,
        limit: Duration,
        concerns: impl Fn(Gone<'_>) -> bool,
    ) -> Option<OperationError> {
        self.wait_until(Some(limit), Spot::Anywhere, |core| core.failure(&concerns)).ok()
    }

    /// Ranks that have failed so far.
    pub fn failed(&self) -> Vec<u32> {
        self.enter(|core| core.failed.iter().map(|rank| rank.0).collect())
    }

    /// What was counted so far.
    pub fn counters(&self) -> EngineCounters {
        self.enter(|core| self.shared.counters(core))
    }

    /// Publishes counters of this rank for other processes from now on, ten times per second,
    /// until it leaves; see [`live`](crate::live). Only the first call does something.
    pub fn publish(&self, config: LiveConfig) -> &LiveState {
        let who = Who { job: self.job, rank: self.rank, size: self.size };
        let publisher = self.shared.live.get_or_init(|| Publisher::start(config, &who));
        publisher.state()
    }

    /// Waits until all that was sent has arrived, and all have heard what this rank has to tell of
    /// a failure, at most `timeout`; true if so. Where this process has not run for a while
    /// meanwhile, such as in a job that is suspended, the time starts once more.
    pub fn drain(&self, timeout: Duration) -> bool {
        let is_idle = |core: &mut Core| {
            let is_idle = core.endpoint.channels().iter().all(|channel| channel.is_idle());
            (is_idle && core.has_cast_all() && !core.endpoint.is_telling()).then_some(())
        };
        let pauses = self.enter(|core| core.pauses());
        if self.wait_until(Some(timeout), Spot::Anywhere, is_idle).is_ok() {
            return true;
        }
        // The end of the wait need not have been a step.
        let has_paused = self.enter(|core| {
            core.step();
            core.pauses() != pauses
        });
        has_paused && self.wait_until(Some(timeout), Spot::Anywhere, is_idle).is_ok()
    }

    /// Leaves the job in good order: says farewell and stops the progress thread. Without it the
    /// others take the end of this rank for a failure. Waits for what is under way end with
    /// [`OperationError::PeerLeft`], of this rank.
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
        spot: Spot,
        done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, Unended> {
        self.wait_as(self.shared.wait, limit, spot, done)
    }

    fn wait_as<T>(
        &self,
        policy: WaitPolicy,
        limit: Option<Duration>,
        spot: Spot,
        done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, Unended> {
        let _caller = self.shared.enter_caller();
        self.shared.drive(policy, limit, spot, done)
    }
}

/// An operation that is given up when this is dropped: after an interrupted wait, or when what the
/// program does beside panics.
struct Lent<'a> {
    engine: &'a Engine,
    operation: Operation,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.engine.release(self.operation);
    }
}

/// While it lives, no receive queue is opened.
struct Quiet<'a> {
    shared: &'a Shared,
    /// Calls before it.
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
    }
}

/// The machines of this rank, which watch ranks of other nodes.
fn endpoint(
    config: &JobConfig,
    met: &Met,
    channels: Vec<Checked>,
    broadcast: Option<CheckedBroadcast>,
) -> Endpoint {
    let start = omnes_wire::Instant::ZERO;
    let (me, size, key) = (Rank(config.rank), config.size, met.key.clone());
    let nack_after_min = met.crowd.patience();
    let collective = CollectiveConfig { nack_after_min, ..CollectiveConfig::default() };
    let liveness = LivenessConfig {
        interval: (config.peer_timeout / 10).max(TIMEOUT_MIN / 10),
        timeout: config.silence_max(),
    };
    let job = met.job;
    let config = EndpointConfig { me, size, job, key, channels, broadcast, collective, liveness };
    let mut endpoint = Endpoint::new(start, config);
    let on_node = |node: &Vec<u32>| node.iter().copied().map(Rank).collect();
    endpoint.watch_across(start, met.nodes.iter().map(on_node).collect());
    endpoint
}

/// Starts the thread that moves things on while no caller is inside.
fn start_progress(
    shared: &Arc<Shared>,
    request: Option<QueueRequest>,
) -> Result<JoinHandle<()>, NetError> {
    let shared = Arc::clone(shared);
    let progress = move || shared.run_unattended(request);
    let builder = std::thread::Builder::new().name("omnes-progress".to_owned());
    without_signals(|| builder.spawn(progress))
        .map_err(|source| NetError::System { what: "progress thread", source })
}

/// Joins the job's group, if this rank can and may; what it could.
fn join_group(
    config: &JobConfig,
    met: &Met,
    links: &mut Links,
) -> Result<MulticastState, NetError> {
    let own = links.own_address();
    let plan = Plan {
        config: &config.multicast,
        job: met.job,
        me: Rank(config.rank),
        own: own.map_err(|source| NetError::System { what: "local address", source })?,
        peers: &met.addresses,
        offloads: config.offloads,
        buffer_bytes: SOCKET_BUFFER_BYTES,
    };
    Ok(match plan.join() {
        Ok(group) => {
            let state = group.membership.state();
            links.add_group(group);
            state
        }
        Err(why) => MulticastState::Off { reason: why.to_string() },
    })
}

/// Meets the ranks of this rank's node. Without shared memory they are reached by UDP, as others.
fn meet_neighbours(config: &JobConfig, met: &Met) -> Neighbours {
    let own = met.nodes.iter().find(|node| node.contains(&config.rank));
    let ranks: Vec<Rank> = own.into_iter().flatten().copied().map(Rank).collect();
    let node = NodeConfig {
        job: met.job,
        key: &met.key,
        me: Rank(config.rank),
        ranks: &ranks,
        packet_bytes_max: PACKET_OVERHEAD_BYTES + usize::from(met.payload_bytes),
        timeout: config.join_timeout.min(config.peer_timeout / NEIGHBOURS_SHARE),
    };
    Neighbours::meet(node).unwrap_or_default()
}

/// Keeps less in flight to a rank of this node than its ring holds, so that it is never full while
/// that rank looks at it now and then.
fn limit_flight(endpoint: &mut Endpoint, rings: &Neighbours) {
    let channels = endpoint.channels().len();
    for rank in rings.reached() {
        let bytes = rings.capacity_bytes(rank) / RING_FLIGHT.1 * RING_FLIGHT.0 / channels.max(1);
        for channel in 0..channels {
            endpoint.channel_mut(channel).limit_flight(rank, bytes as u32);
        }
    }
}

/// The sockets on the address under which rank 0 sees this rank, and what fits the way to each of
/// `peers`.
fn open_links(
    config: &JobConfig,
    address: IpAddr,
    peers: &[SocketAddr],
) -> Result<(Links, Local), NetError> {
    let links = Links::open(address, Rank(config.rank), config.size, config.offloads)?;
    let ports = links.ports(config.size)?;
    let mtus = peers.iter().map(|peer| UdpSocket::path_mtu(address, *peer).unwrap_or(MTU));
    let mtu = mtus.chain(config.mtu_bytes).min().unwrap_or(MTU);
    let payload_of = |mtu| payload_bytes(mtu, overhead_bytes(config, address));
    let trial = (mtu > MTU).then(|| Trial::open(address)).transpose();
    let trial = trial.map_err(|source| NetError::Socket { address, source })?;
    let (payload_bytes, ethernet_payload_bytes) = (payload_of(mtu), payload_of(mtu.min(MTU)));
    Ok((links, Local { ports, payload_bytes, ethernet_payload_bytes, trial }))
}

/// The words of [`Engine::narrow`], in a job whose IP packets have `packet_bytes`, and
/// `payload_bytes` of payload in them.
fn narrow_text(narrow: &Narrow, packet_bytes: u32, payload_bytes: u16) -> String {
    const SHOWN: usize = 4;
    let tried = packet_bytes + u32::from(narrow.payload_bytes - payload_bytes);
    let ways = narrow.ways.iter().take(SHOWN).map(|(from, to)| format!("from {from} to {to}"));
    let mut ways: Vec<String> = ways.collect();
    if narrow.ways.is_empty() {
        ways.push("from host to host".to_owned());
    } else if narrow.ways.len() > SHOWN {
        ways.push("on other ways".to_owned());
    }
    format!(
        "packets of {tried} bytes do not get {}, though shorter ones do: this job's have \
         {packet_bytes}; some link or switch on the way passes on shorter packets than the hosts' \
         links are set to; set the MTU of all alike, or OMNES_MTU={packet_bytes}",
        ways.join(", ")
    )
}

/// What encrypts this rank's data, if the job does.
fn cipher(config: &JobConfig, met: &Met) -> Result<Option<Cipher>, NetError> {
    if !config.encrypts {
        return Ok(None);
    }
    Ok(Some(Cipher::new(met.job, &met.key, Rank(config.rank), random()?)))
}
