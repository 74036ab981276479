//! Joining the job: meeting the other ranks, and opening the sockets that reach them.

use super::Engine;
use super::settings::{
    broadcast_config, channel_configs, overhead_bytes, payload_bytes, wait_policy,
};
use crate::cipher::Cipher;
use crate::clock::Clock;
use crate::core::{Core, CoreParts};
use crate::driver::Shared;
use crate::error::{NetError, RANKS_MAX, list_ways};
use crate::job::{JobConfig, TIMEOUT_MIN};
use crate::links::{Links, SOCKET_BUFFER_BYTES};
use crate::memory::Memory;
use crate::multicast::{MulticastState, Plan};
use crate::poller::Poller;
use crate::queue_request::QueueRequest;
use crate::rendezvous::{GO_TIME_MAX, Local, Met, Narrow, Rendezvous, random};
use crate::ring::{Neighbours, NodeConfig, NodeId};
use crate::socket::UdpSocket;
use crate::trial::{MTUS, Trial};
use crate::watch::Watch;
use omnes_nic::without_signals;
use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::CheckedBroadcast;
use omnes_proto::channel::Checked;
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_wire::{PACKET_OVERHEAD_BYTES, Rank};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Divisor of the peer timeout for the time in which a rank waits for the other ranks of its node
/// after the go, unless that is too short: no rank sends to other nodes meanwhile.
const NEIGHBOURS_SHARE: u32 = 2;
/// Longest silence that counts: ten years.
const PEER_TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Largest IP packet of any Ethernet; also used if the kernel does not know the path.
const MTU: u32 = 1500;
/// Fraction of a ring that data in flight may take, as numerator and denominator; the remainder is
/// for answers, which no window limits.
const RING_FLIGHT: (usize, usize) = (7, 8);

impl Engine {
    /// Joins the job: meets all other ranks, and starts the progress thread.
    ///
    /// # Errors
    /// [`NetError`], which says what is wrong and what to do.
    pub fn join(config: JobConfig) -> Result<Self, NetError> {
        Self::join_through(config, None)
    }

    /// As [`Self::join`]; at rank 0 through a `listener` that already listens at the rendezvous
    /// address, so that the address with its free port could be given to the other ranks before.
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
        // A longer timeout would exceed the range of clocks.
        config.peer_timeout = config.peer_timeout.min(PEER_TIMEOUT_MAX);
        if config.encryption && config.key.is_none() {
            return Err(NetError::KeyWanted);
        }
        let rendezvous = Rendezvous {
            rank: Rank(config.rank),
            size: config.size,
            address: config.rendezvous.clone(),
            own: config.addresses.clone(),
            listener,
            key: config.key.clone(),
            timeout: config.join_timeout,
            while_waiting: config.while_waiting.clone(),
            node: NodeId::this().filter(|_| config.shared_memory),
            encryption: config.encryption,
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
        let wait = wait_policy(&config, &met.core_sharing);
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
        let request = QueueRequest::new(&config, met.job.0, &links);
        let JobConfig { rank, size, peer_timeout, while_waiting, keeping_place, .. } = config;
        let Met {
            job, key, addresses, payload_bytes, narrow, core_sharing, nodes, streams, ..
        } = met;
        let warning = |narrow| mtu_warning(&narrow, packet_bytes, payload_bytes);
        let watch = Watch::new(streams)
            .map_err(|source| NetError::System { what: "rendezvous connection", source })?;
        let waker = rings.waker().map_err(|source| NetError::System { what: "eventfd", source })?;
        let poller = Poller::new(links.descriptors(), links.readable(), watch.descriptor(), waker);
        let core = Core::new(CoreParts {
            endpoint,
            links,
            rings,
            memory: Memory::new(&slots, usize::from(payload_bytes)),
            watch,
            multicast,
            cipher,
            me: Rank(rank),
            packet_bytes,
            keeping_place,
            patience: core_sharing.patience(),
            peer_timeout,
            clock: Clock::start(),
        });
        let has_notices = Arc::clone(&core.standing.has_notices);
        let shared = Arc::new(Shared::new(core, poller, wait, while_waiting));
        let thread = Some(start_progress(&shared, request)?);
        let peers = addresses;
        let ranks_per_core = core_sharing.ranks_per_core;
        Ok(Self {
            shared,
            thread,
            job: job.0,
            key,
            rank,
            size,
            payload_bytes,
            mtu_warning: narrow.map(warning),
            ranks_per_core,
            peers,
            nodes,
            has_notices,
        })
    }
}

/// Creates the machines of this rank, which watch ranks of other nodes.
fn endpoint(
    config: &JobConfig,
    met: &Met,
    channels: Vec<Checked>,
    broadcast: Option<CheckedBroadcast>,
) -> Endpoint {
    let start = omnes_wire::Instant::ZERO;
    let (me, size, key) = (Rank(config.rank), config.size, met.key.clone());
    let nack_after_min = met.core_sharing.patience();
    let collective = CollectiveConfig { nack_after_min, ..CollectiveConfig::default() };
    let liveness = LivenessConfig {
        interval: (config.peer_timeout / 10).max(TIMEOUT_MIN / 10),
        timeout: config.silence_max(),
        grace: config.grace(),
    };
    let job = met.job;
    let config = EndpointConfig { me, size, job, key, channels, broadcast, collective, liveness };
    let mut endpoint = Endpoint::new(start, config);
    let on_node = |node: &Vec<u32>| node.iter().copied().map(Rank).collect();
    endpoint.watch_across(start, met.nodes.iter().map(on_node).collect());
    endpoint
}

/// Starts the thread that makes progress while no caller is inside.
fn start_progress(
    shared: &Arc<Shared>,
    request: Option<QueueRequest>,
) -> Result<JoinHandle<()>, NetError> {
    let shared = Arc::clone(shared);
    let progress = move || shared.run_unattended(request);
    let builder = std::thread::Builder::new().name("omnes-progress".to_owned());
    without_signals(|| builder.spawn(progress)).map_err(|source| NetError::System {
        what: "progress thread (`ulimit -u` too low?)",
        source,
    })
}

/// Joins the job's group, if this rank can and may; returns the resulting state.
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

/// Meets the ranks of this rank's node. Without shared memory they are reached by UDP, as all
/// others.
fn meet_neighbours(config: &JobConfig, met: &Met) -> Neighbours {
    let own = met.nodes.iter().find(|node| node.contains(&config.rank));
    let ranks: Vec<Rank> = own.into_iter().flatten().copied().map(Rank).collect();
    // The other ranks of this node may have received the go later, or earlier.
    let patience = (config.peer_timeout / NEIGHBOURS_SHARE).max(2 * GO_TIME_MAX);
    let node = NodeConfig {
        job: met.job,
        key: &met.key,
        me: Rank(config.rank),
        ranks: &ranks,
        packet_bytes_max: PACKET_OVERHEAD_BYTES + usize::from(met.payload_bytes),
        timeout: config.join_timeout.min(patience).saturating_sub(met.went_at.elapsed()),
    };
    Neighbours::meet(node).unwrap_or_default()
}

/// Keeps less in flight to a rank of this node than its ring holds, so that the ring is never full
/// while that rank polls it now and then.
fn limit_flight(endpoint: &mut Endpoint, rings: &Neighbours) {
    let channels = endpoint.channels().len();
    for rank in rings.reached() {
        let bytes = rings.capacity_bytes(rank) / RING_FLIGHT.1 * RING_FLIGHT.0 / channels.max(1);
        for channel in 0..channels {
            endpoint.channel_mut(channel).limit_flight(rank, bytes as u32);
        }
    }
}

/// Opens the sockets on the address under which rank 0 sees this rank, and determines the packet
/// length that fits the paths to all of `peers`.
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
    // A user who sets a length that any Ethernet carries knows the paths better.
    let is_known = config.mtu_bytes.is_some_and(|mtu| mtu <= MTU);
    let trial = (!is_known).then(|| Trial::open(address)).transpose();
    let trial = trial.map_err(|source| NetError::Socket { address, source })?;
    let lesser_payloads = MTUS.map(payload_of).to_vec();
    Ok((links, Local { ports, payload_bytes: payload_of(mtu), lesser_payloads, trial }))
}

/// Text of [`Engine::mtu_warning`], for a job whose IP packets have `packet_bytes`, of which
/// `payload_bytes` are payload.
fn mtu_warning(narrow: &Narrow, packet_bytes: u32, payload_bytes: u16) -> String {
    let tried = packet_bytes + u32::from(narrow.payload_bytes - payload_bytes);
    format!(
        "packets of {tried} bytes do not get {}, though shorter ones do: this job uses \
         {packet_bytes}; some link or switch on the way has a smaller MTU than the hosts' links; \
         set the same MTU everywhere, or OMNES_MTU={packet_bytes}, which saves the next start this \
         trial",
        list_ways(&narrow.ways)
    )
}

/// The cipher for this rank's data, if the job encrypts.
fn cipher(config: &JobConfig, met: &Met) -> Result<Option<Cipher>, NetError> {
    if !config.encryption {
        return Ok(None);
    }
    Ok(Some(Cipher::new(met.job, &met.key, Rank(config.rank), random()?)))
}
