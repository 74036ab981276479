//! The engine's settings at the start, and its counters.

use crate::core::{Core, QueueCounters};
use crate::multicast::MulticastConfig;
use crate::rendezvous::GO_TIME_MAX;
use crate::ring::RingCounters;
use crate::socket::{Offloads, SocketCounters};
use crate::while_waiting::WhileWaiting;
use omnes_nic::{Counters as NicCounters, Preference};
use omnes_proto::broadcast::BroadcastCounters;
use omnes_proto::channel::{ChannelConfig, ChannelCounters};
use omnes_proto::collective::CollectiveCounters;
use omnes_proto::endpoint::GateCounters;
use omnes_wire::JobKey;
use std::net::IpAddr;
use std::time::Duration;

/// Shortest time for other ranks to answer in; a shorter one ends a job immediately.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(10);

/// Ranks start no farther apart than this: the time in which the go reaches all ranks, the same
/// time again for ranks of a node to wait for each other, and the work before and after.
const START_GRACE: Duration = Duration::from_millis(1500);
const _: () = assert!(START_GRACE.as_millis() > 2 * GO_TIME_MAX.as_millis() + 200);

/// Everything that a rank must know to join its job.
#[derive(Clone, Debug)]
pub struct JobConfig {
    /// This rank, from 0.
    pub rank: u32,
    /// Number of ranks of the job.
    pub size: u32,
    /// `host:port` at which rank 0 listens for the other ranks.
    pub rendezvous: String,
    /// Addresses of this host, of which this rank uses one for its packets: the one by which it
    /// reaches rank 0, if it is among them. If empty, that one.
    pub addresses: Vec<IpAddr>,
    /// The job's secret. `None`: rank 0 generates one and sends it to the others.
    pub key: Option<JobKey>,
    /// How long to wait for all ranks at the start, counting time in which this process runs.
    pub join_timeout: Duration,
    /// Time within which all ranks learn of a failure. A rank counts as failed after four fifths of
    /// it in silence, but not within the first 1.5 s of the job, unless this is below
    /// [`TIMEOUT_MIN`]. Silence is counted anew after this process has not run for a quarter of it,
    /// and at least 500 ms.
    pub peer_timeout: Duration,
    /// Number of ranks that share this machine's cores. `None`: this job's ranks on it.
    pub local_size: Option<u32>,
    /// How long waiting calls spin. `None`: chosen by the number of ranks per core.
    pub spin: Option<Duration>,
    /// How long they then poll and yield the CPU in turn, before they block. `None`: as for `spin`.
    pub yield_time: Option<Duration>,
    /// The scheduler's time slice for threads that other programs have kept from their core. Zero
    /// leaves all time slices unchanged. `None`: the default.
    pub time_slice: Option<Duration>,
    /// Callback that runs periodically while a call waits.
    pub while_waiting: Option<WhileWaiting>,
    /// Settings of each channel; the payload and the credits are set to what the network allows.
    pub channels: Vec<ChannelConfig>,
    /// Channels, by index, on which a receive that is given up still takes its message, without
    /// memory, and so keeps its place. On other channels the next receive takes the message.
    pub keeping_place: Vec<usize>,
    /// Longest IP packet that this rank may send and receive, if its links allow longer ones. If it
    /// is at most 1,500 bytes at any rank, the paths between the hosts are not tested for longer
    /// packets.
    pub mtu_bytes: Option<u32>,
    /// Offloads that may be used.
    pub offloads: Offloads,
    /// How multicast is used.
    pub multicast: MulticastConfig,
    /// Whether ranks of one node use shared memory; a rank without it counts as a node of its own.
    pub shared_memory: bool,
    /// Whether user data are encrypted on the network; the same on all ranks, which need a
    /// [`key`](Self::key).
    pub encryption: bool,
    /// Settings that must be the same on all ranks, and are compared as text: each with the name by
    /// which users know it, in the same order on all ranks.
    pub alike: Vec<(&'static str, String)>,
    /// Which form of the kernel NIC may put small packets into this process's memory.
    pub receive_queue: Option<Preference>,
    /// How long the job must have run before the queue may be opened.
    pub queue_after: Duration,
}

impl JobConfig {
    /// Silence after which a failure is declared, so that all ranks learn of it within the peer
    /// timeout.
    pub(crate) fn silence_max(&self) -> Duration {
        self.peer_timeout.mul_f64(0.8)
    }

    /// Time from the start during which no rank fails by silence.
    pub(crate) fn grace(&self) -> Duration {
        if self.peer_timeout < TIMEOUT_MIN { Duration::ZERO } else { START_GRACE }
    }
}

/// Counters of this rank so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineCounters {
    /// All sockets.
    pub socket: SocketCounters,
    /// Of these, the sockets of the job's multicast group; data sent to all ranks count once.
    pub multicast: SocketCounters,
    /// Packets or trains to the group that the kernel dropped before they were read: packets of
    /// strangers, of other jobs and of this rank, and packets that found the socket full.
    pub multicast_drops: u64,
    /// Rings to and from the ranks of this node.
    pub ring: RingCounters,
    /// Packets received, by outcome.
    pub gate: GateCounters,
    /// Sum over the channels.
    pub channel: ChannelCounters,
    /// Broadcasts over multicast.
    pub broadcast: BroadcastCounters,
    /// Barriers that this rank runs itself.
    pub collective: CollectiveCounters,
    /// Packets that the kernel NIC has put into this process's memory; the socket counters include
    /// them, though no socket has seen them.
    pub queue: QueueCounters,
    /// Counters of the kernel NIC for this rank's slots.
    pub nic: NicCounters,
    /// Bytes copied inside this process, without the kernel's two copies per byte.
    pub copied_bytes: u64,
    /// Bytes that are kept at present of messages of one channel to one rank, at the maximum of all
    /// channels and ranks: their data and 128 bytes for each. At most
    /// [`KEPT_BYTES_MAX`](crate::KEPT_BYTES_MAX), except for messages that were given up.
    pub kept_bytes: u64,
    /// Number of times that a caller or the progress thread blocked.
    pub sleeps: u64,
    /// Number of times that a waiting caller yielded its processor.
    pub yields: u64,
    /// Offloads in use.
    pub offloads: Option<Offloads>,
}

impl EngineCounters {
    /// The counters of `core`; `sleeps` and `yields`, which it does not know, remain 0.
    pub(crate) fn of(core: &mut Core) -> Self {
        let mut counters = Self {
            socket: core.links.counters(),
            multicast: core.links.group_counters(),
            multicast_drops: core.links.group_drops(),
            ring: *core.rings.counters(),
            gate: *core.endpoint.counters(),
            broadcast: core.broadcast_counters(),
            collective: *core.endpoint.collective().counters(),
            nic: core.nic_counters(),
            queue: core.queue_counters(),
            copied_bytes: core.memory.copied_bytes,
            kept_bytes: core.memory.kept_bytes(),
            offloads: Some(core.links.offloads()),
            ..Self::default()
        };
        counters.socket.packets_received += counters.queue.packets;
        counters.socket.bytes_received += counters.queue.bytes;
        for channel in core.endpoint.channels() {
            counters.channel.add(channel.counters());
        }
        counters
    }
}
