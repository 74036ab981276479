//! The model: hosts and network in virtual time.

use super::host::Host;
use super::net::{Event, Net, NetCounters};
use super::packet::To;
use super::plan::{Plan, Steps};
use super::record::{Bar, RankCounters, Record};
use super::sample::Sample;
use super::setup::Setup;
use super::shared::Shared;
use crate::engine::{Span, Time};
use crate::rig::builder::{JOB, KEY};
use crate::rig::nic::Nic;
use crate::testbed::Testbed;
use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::{BroadcastConfig, CastGroupConfig, CheckedBroadcast};
use omnes_proto::channel::{ChannelConfig, Checked, ConfigError};
use omnes_proto::collective::{BarrierGroupConfig, CollectiveConfig, Runner};
use omnes_proto::endpoint::{Endpoint, EndpointConfig};
use omnes_proto::group::Nodes;
use omnes_topo::TopoError;
use omnes_topo::network::{HostId, Node, SwitchId};
use omnes_wire::{Instant, Rank};
use std::time::Duration;
use thiserror::Error;

/// An invalid model, or a run that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ModelError {
    /// Fewer than two ranks.
    #[error("a model of {ranks} ranks; it takes 2 at least")]
    TooFewRanks {
        /// Number of ranks.
        ranks: u32,
    },
    /// More ranks than hosts.
    #[error("{ranks} ranks on a network of {hosts} hosts; it takes a host for each rank")]
    TooFewHosts {
        /// Number of ranks.
        ranks: u32,
        /// Number of hosts.
        hosts: u32,
    },
    /// An invalid tree.
    #[error("{0}")]
    Tree(#[from] TopoError),
    /// A setting of the machines derived from the testbed is out of range.
    #[error("testbed `{testbed}`: {error}")]
    Setting {
        /// Name of the testbed.
        testbed: String,
        /// The error of the setting.
        error: ConfigError,
    },
    /// The plan did not finish.
    #[error("stuck at {at_us} us: {finished} of {ranks} ranks are done; {first}")]
    Stuck {
        /// Time.
        at_us: String,
        /// Number of ranks that are done.
        finished: u32,
        /// Number of ranks.
        ranks: u32,
        /// What the first unfinished rank waits for.
        first: String,
    },
    /// A machine violated its contract.
    #[error("rank {rank}: {what}")]
    Broken {
        /// The rank.
        rank: u32,
        /// The violation.
        what: String,
    },
}

/// Result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// All operations in order, except meetings and computing.
    pub samples: Vec<Sample>,
    /// Virtual time at the end.
    pub end: Time,
    /// Counters of the network.
    pub counters: NetCounters,
    /// Counters of each rank's machines.
    pub ranks: Vec<RankCounters>,
    /// Hash of the run; equal runs have equal hashes.
    pub hash: u64,
    /// Activity of every resource, if requested.
    pub bars: Vec<Bar>,
}

/// See the module header.
pub struct Model {
    hosts: Vec<Host>,
    net: Net,
    shared: Shared,
}

/// Virtual time after which a run is aborted.
const PATIENCE: Time = Time::from_ps(10_000_000_000_000_000);

/// Silence after which a rank is probed and declared dead: slightly less than [`PATIENCE`], as no
/// rank dies here and probes would only add load.
const SILENCE: Duration = Duration::from_secs(9000);
/// Apart from heartbeats, no machine waits longer than this: after so long nothing is in progress
/// any more.
const QUIET: Span = Span::from_ns(60_000_000_000);

/// Events between two progress reports: some hundredths of a second.
const EVENTS_PER_REPORT: u64 = 1 << 14;

impl Model {
    /// Creates a model at time 0; with `has_bars` the activity of every resource is kept.
    ///
    /// # Errors
    /// [`ModelError`] if setup or plan is invalid.
    pub fn new(setup: Setup, plan: Plan, has_bars: bool) -> Result<Self, ModelError> {
        let (ranks, seed) = (setup.ranks, setup.seed);
        if ranks < 2 {
            return Err(ModelError::TooFewRanks { ranks });
        }
        let hosts = setup.network.hosts();
        if hosts < ranks {
            return Err(ModelError::TooFewHosts { ranks, hosts });
        }
        let shared = Shared::new(plan, ranks, seed)?;
        let name = setup.testbed.name.clone();
        let wrong = |error| ModelError::Setting { testbed: name.clone(), error };
        let channel = channel_config(&setup.testbed).build().map_err(wrong)?;
        let broadcast = broadcast_config(&setup.testbed).build().map_err(wrong)?;
        let host = |rank| new_host(rank, &shared, &channel, &broadcast);
        let hosts = (0..ranks).map(host).collect();
        let net = Net::new(setup, Record::new(has_bars))?;
        Ok(Self { hosts, net, shared })
    }

    /// Runs the ranks' plan until nothing is in progress any more.
    ///
    /// # Errors
    /// [`ModelError`] if the plan does not finish.
    pub fn run(self) -> Result<Report, ModelError> {
        self.run_with_progress(|_| ())
    }

    /// As [`Model::run`]; `tell` is called from time to time with the completed share of the plan,
    /// from 0 to 1, which never decreases.
    ///
    /// # Errors
    /// [`ModelError`] if the plan does not finish.
    pub fn run_with_progress(mut self, mut tell: impl FnMut(f64)) -> Result<Report, ModelError> {
        let work_bytes = self.shared.plan.work_bytes(self.net.ranks).max(1.0);
        let mut now = Time::ZERO;
        self.net.release(now);
        loop {
            if self.net.queue.next_at().is_none_or(|at| at > (now + QUIET).as_ps()) {
                match self.net.ranks {
                    ranks if ranks == self.net.finished => break,
                    ranks if ranks == self.net.met => self.net.release(now),
                    _ => {}
                }
            }
            let Some((at, event)) = self.net.queue.pop() else { return Err(self.stuck(now)) };
            now = Time::from_ps(at);
            if now > PATIENCE {
                return Err(self.stuck(now));
            }
            self.net.counters.events += 1;
            if self.net.counters.events.is_multiple_of(EVENTS_PER_REPORT) {
                tell(self.net.done_bytes as f64 / work_bytes);
            }
            self.handle(now, event);
            if let Some((rank, what)) = self.net.complaint.take() {
                return Err(ModelError::Broken { rank, what });
            }
        }
        tell(self.net.done_bytes as f64 / work_bytes);
        let end = self.net.samples.iter().map(|sample| sample.ended).max().unwrap_or_default();
        Ok(Report {
            samples: std::mem::take(&mut self.net.samples),
            end,
            counters: self.net.counters,
            ranks: self.hosts.iter().map(Host::counters).collect(),
            hash: self.net.record.hash(),
            bars: self.net.record.take_bars(),
        })
    }

    fn stuck(&self, at: Time) -> ModelError {
        let first = self.hosts.iter().find(|host| !host.task.is_over());
        ModelError::Stuck {
            at_us: format!("{:.3}", at.since(Time::ZERO).as_us()),
            finished: self.net.finished,
            ranks: self.net.ranks,
            first: first
                .map_or(String::new(), |host| format!("rank {}: {:?}", host.rank, host.task)),
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        let Self { hosts, net, shared } = self;
        let (kind, number) = event.word();
        net.record.mix(now.as_ps(), kind << 56 | number);
        match event {
            Event::HandedOut { packet, host } => match net.packets.of(packet).to {
                To::Bell(to) => hosts[host as usize].ring(net, now, (packet, to)),
                _ => net.transmit(now, host, packet),
            },
            Event::Arrived { packet, link } => match net.end_of(link) {
                Node::Switch(SwitchId(switch)) => net.pass_switch(now, switch, link, packet),
                Node::Host(HostId(host)) => {
                    net.counters.arrived += 1;
                    if hosts[host as usize].pass_firmware(net, now, packet) {
                        net.take_in(now, host, packet)
                    } else {
                        net.packets.end(packet)
                    }
                }
            },
            Event::Delivered { packet, host } => hosts[host as usize].deliver(net, now, packet),
            Event::Work { host } => hosts[host as usize].work(net, shared, now),
            Event::Shown { host } => hosts[host as usize].wake(net, now),
            Event::Go { host } => {
                let host = &mut hosts[host as usize];
                host.task.release();
                host.begin(net, shared, now);
            }
        }
    }
}

fn channel_config(testbed: &Testbed) -> ChannelConfig {
    let usual = ChannelConfig::default();
    let (eager_bytes, eager_head_bytes) = match testbed.protocol.eager_bytes {
        Some(bytes) => (bytes, 0),
        None => (usual.eager_bytes, usual.eager_head_bytes),
    };
    ChannelConfig {
        payload_bytes: testbed.link.payload_bytes as u16,
        eager_bytes,
        eager_head_bytes,
        peer_timeout: SILENCE,
        ..usual
    }
}

fn broadcast_config(testbed: &Testbed) -> BroadcastConfig {
    let usual = BroadcastConfig::default();
    BroadcastConfig {
        payload_bytes: testbed.link.payload_bytes as u16,
        window_messages: testbed.protocol.window_messages.unwrap_or(usual.window_messages),
        peer_timeout: SILENCE,
        ..usual
    }
}

fn new_host(rank: u32, shared: &Shared, channel: &Checked, broadcast: &CheckedBroadcast) -> Host {
    let me = Rank(rank);
    let liveness = LivenessConfig { interval: SILENCE, timeout: SILENCE, grace: Duration::ZERO };
    let config = EndpointConfig {
        me,
        size: shared.ranks,
        job: JOB,
        key: KEY,
        channels: vec![channel.clone()],
        broadcast: (!shared.policies.is_empty()).then(|| broadcast.clone()),
        collective: CollectiveConfig::default(),
        liveness,
    };
    let mut endpoint = Endpoint::new(Instant::ZERO, config);
    let nodes = Nodes::one_each(shared.ranks);
    let mut firmware = Nic::default();
    for policy in &shared.policies {
        let group =
            CastGroupConfig { id: shared.group(*policy), nodes: nodes.clone(), policy: *policy };
        if let Some(machine) = endpoint.broadcast_mut() {
            machine.open(group);
        }
    }
    for kind in &shared.barriers {
        let Steps::Machine(runner) = kind.steps else { continue };
        let group = BarrierGroupConfig {
            communicator: shared.communicator(*kind),
            nodes: nodes.clone(),
            algorithm: kind.algorithm,
            runner,
            is_multicast: kind.is_multicast,
        };
        if runner == Runner::Nic {
            firmware.open((JOB, &KEY), me, &group);
        }
        endpoint.collective_mut().open(group);
    }
    Host::new(rank, endpoint, firmware)
}
