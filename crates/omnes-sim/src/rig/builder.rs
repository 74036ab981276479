//! Settings of a cluster and its construction.

use crate::rig::bounds::Bounds;
use crate::rig::casts::{CastLimits, Casts};
use crate::rig::cluster::Cluster;
use crate::rig::network::{Network, NetworkConfig, NetworkParts, Order};
use crate::rig::node::{Draining, Looking, Node, Previews, Runs};
use crate::rig::trace::Trace;
use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::{BroadcastConfig, CheckedBroadcast};
use omnes_proto::channel::{ChannelConfig, Checked};
use omnes_proto::collective::CollectiveConfig;
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_wire::{Instant, JobId, JobKey, Rank};
use std::time::Duration;

/// The job id of every cluster.
pub(crate) const JOB: JobId = JobId(0x0a11_0001);
/// The key of every cluster.
pub(crate) const KEY: JobKey = JobKey::new(*b"simulated secret");
/// Number of channels of every rank.
const CHANNELS: usize = 2;

/// Settings of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Seed of all randomness.
    pub seed: u64,
    /// Ranks, at least 2.
    pub ranks: u32,
    /// Settings of both channels at every rank.
    pub channel: ChannelConfig,
    /// Settings of broadcasts at every rank; `None` if there is no multicast.
    pub broadcast: Option<BroadcastConfig>,
    /// Settings of barriers at every rank.
    pub collective: CollectiveConfig,
    /// How ranks learn about the progress of their node's NIC.
    pub looking: Looking,
    /// Settings of liveness monitoring at every rank.
    pub liveness: LivenessConfig,
    /// Settings of the network.
    pub network: NetworkConfig,
    /// Time that a rank needs to handle one incoming packet.
    pub packet_time: Duration,
    /// Whether ranks ask for previews, as socket drivers do.
    pub previews: Previews,
    /// Order in which ranks drain their machines.
    pub draining: Draining,
    /// Whether ranks handle consecutive packets as one run, as socket drivers do.
    pub runs: Runs,
    /// Time limit of a run.
    pub patience: Duration,
    /// Which events are printed.
    pub trace: Printing,
}

/// Which events are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Printing {
    /// All events as they happen, on standard output, one per line.
    All,
    /// Only the last events before a failure, with its report.
    Last,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            ranks: 2,
            channel: ChannelConfig::default(),
            broadcast: None,
            collective: CollectiveConfig::default(),
            looking: Looking::Always,
            liveness: LivenessConfig::default(),
            network: NetworkConfig::default(),
            packet_time: Duration::ZERO,
            previews: Previews::Unused,
            draining: Draining::PacketsFirst,
            runs: Runs::Off,
            patience: Duration::from_secs(300),
            trace: Printing::Last,
        }
    }
}

/// Builds a cluster step by step; settings that are not set have their defaults.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    config: ClusterConfig,
}

impl Builder {
    /// Starts from a complete configuration.
    pub fn from_config(config: ClusterConfig) -> Self {
        Self { config }
    }

    /// Number of ranks, at least 2.
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.config.ranks = ranks;
        self
    }

    /// Seed of all randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Time from one rank to another.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.config.network.latency = latency;
        self
    }

    /// Random part of the latency, and its effect on the order of packets.
    pub fn jitter(mut self, jitter: Duration, order: Order) -> Self {
        self.config.network.jitter = jitter;
        self.config.network.order = order;
        self
    }

    /// Rate of the link into each rank, in bits per second.
    pub fn receiver_bps(mut self, bps: u64) -> Self {
        self.config.network.receiver_bps = Some(bps);
        self
    }

    /// Socket buffer of each rank, in bytes of truesize.
    pub fn receive_queue_bytes(mut self, bytes: u32) -> Self {
        self.config.network.receive_queue_bytes = bytes;
        self
    }

    /// Time that a rank needs to handle one incoming packet.
    pub fn packet_time(mut self, time: Duration) -> Self {
        self.config.packet_time = time;
        self
    }

    /// Settings of both channels at every rank.
    pub fn channel(mut self, channel: ChannelConfig) -> Self {
        self.config.channel = channel;
        self
    }

    /// Settings of broadcasts at every rank; without them there is no multicast.
    pub fn broadcast(mut self, config: BroadcastConfig) -> Self {
        self.config.broadcast = Some(config);
        self
    }

    /// Settings of barriers at every rank.
    pub fn collective(mut self, config: CollectiveConfig) -> Self {
        self.config.collective = config;
        self
    }

    /// How ranks learn about the progress of their node's NIC.
    pub fn looking(mut self, looking: Looking) -> Self {
        self.config.looking = looking;
        self
    }

    /// Settings of liveness monitoring at every rank.
    pub fn liveness(mut self, liveness: LivenessConfig) -> Self {
        self.config.liveness = liveness;
        self
    }

    /// Ranks ask for previews and compare them with the actual placements.
    pub fn with_previews(mut self) -> Self {
        self.config.previews = Previews::Compared;
        self
    }

    /// Builds the cluster, at time 0.
    ///
    /// # Panics
    /// If a setting of the machines is out of range or there are fewer than 2 ranks.
    pub fn build(self) -> Cluster {
        let config = self.config;
        assert!(config.ranks >= 2, "a cluster of {} ranks", config.ranks);
        let checked = match config.channel.clone().build() {
            Ok(checked) => checked,
            Err(error) => panic!("{error}"),
        };
        let broadcast = match config.broadcast.clone().map(BroadcastConfig::build).transpose() {
            Ok(broadcast) => broadcast,
            Err(error) => panic!("{error}"),
        };
        let node = |rank: u32| {
            let endpoint_config = endpoint_config(&config, &checked, &broadcast, rank);
            let endpoint = Endpoint::new(Instant::ZERO, endpoint_config);
            Node::new(Rank(rank), endpoint, checked.pool_slots, config.looking)
        };
        let nodes = (0..config.ranks).map(node).collect();
        let bounds = Bounds::new(checked.window_packets, checked.initial_credit_bytes);
        let casts = Casts::new(broadcast.as_ref().map(cast_limits));
        let network = Network::new(NetworkParts {
            seed: config.seed,
            ranks: config.ranks,
            config: config.network.clone(),
            bounds,
            casts,
            trace: Trace::new(config.trace == Printing::All),
        });
        Cluster::new(config, nodes, network)
    }
}

fn cast_limits(checked: &CheckedBroadcast) -> CastLimits {
    CastLimits {
        payload_bytes: u64::from(checked.payload_bytes),
        window_packets: u64::from(checked.window_packets),
        initial_credit_bytes: checked.initial_credit_bytes,
    }
}

fn endpoint_config(
    config: &ClusterConfig,
    checked: &Checked,
    broadcast: &Option<CheckedBroadcast>,
    rank: u32,
) -> EndpointConfig {
    EndpointConfig {
        me: Rank(rank),
        size: config.ranks,
        job: JOB,
        key: KEY,
        channels: vec![checked.clone(); CHANNELS],
        broadcast: broadcast.clone(),
        collective: config.collective,
        liveness: config.liveness,
    }
}

impl Cluster {
    /// Creates a builder for a cluster of 2 ranks with seed 1 and default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}
