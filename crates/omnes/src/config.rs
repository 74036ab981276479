//! Settings of a rank; the environment fills in those that a program leaves open.

use crate::barrier::NicChoice;
use crate::bcast::tune::Tune;
use crate::bcast::{BcastAlgorithm, MultiSend};
use crate::error::Error;
use crate::exchanged::Interface;
use omnes_net::duration::shortest;
use omnes_net::live::StatsPlace;
use omnes_net::{Offloads, TIMEOUT_MIN, WhileWaiting};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::JobKey;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Whether a job uses multicast. Text form: `auto`, `on`, `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multicast {
    /// If the probe at the start of the job reaches every rank.
    Auto,
    /// Required: the job does not start without it.
    On,
    /// Never.
    Off,
}

impl FromStr for Multicast {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err("must be auto, on or off"),
        }
    }
}

/// Packets that a channel may buffer for unexpected messages.
pub(crate) const POOL_PACKETS: RangeInclusive<u32> = 1..=1 << 24;

/// [`POOL_PACKETS`] as text.
pub(crate) fn pool_packets_allowed() -> String {
    format!("from {} to {}", POOL_PACKETS.start(), POOL_PACKETS.end())
}

/// Longest IP packets that a rank may be configured to send; the lower bound is what any IPv4
/// network carries.
pub(crate) const MTU_BYTES: RangeInclusive<u32> = 576..=65_535;

/// [`MTU_BYTES`] as text.
pub(crate) fn mtu_allowed() -> String {
    format!("from {} to {}", MTU_BYTES.start(), MTU_BYTES.end())
}

/// Settings of a rank. [`crate::VARIABLES`] lists the environment variables that set them.
#[derive(Clone, Debug)]
pub struct Config {
    /// This rank, from 0.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// `host:port` at which rank 0 listens for the other ranks; the port must be free there. For
    /// ranks of an exchange ([`crate::Communicator::from_exchange`]) it may be empty or lack a
    /// port: the library then chooses the missing part.
    pub rendezvous: String,
    /// Which of its host's addresses this rank uses for its packets and, with an exchange, as the
    /// address at which the ranks meet. `None`: the one through which it reaches rank 0.
    pub interface: Option<Interface>,
    /// The job's secret. `None`: rank 0 generates a key and sends it to the others unencrypted.
    pub job_key: Option<JobKey>,
    /// How long to wait for all ranks at startup; at least 10 ms.
    pub join_timeout: Duration,
    /// Time within which all ranks learn of a failed rank. A rank that is silent for four fifths of
    /// this time has failed, except in the first 1.5 s of the job, because the start signal may
    /// arrive late. At least 10 ms.
    pub peer_timeout: Duration,
    /// Number of ranks that share this machine's cores. `None`: this job's ranks on it.
    pub local_size: Option<u32>,
    /// How long waiting calls spin. `None`: chosen by the number of ranks per core.
    pub spin: Option<Duration>,
    /// How long waiting calls then yield the CPU between polls, before they block. `None`: as for
    /// `spin`.
    pub yield_time: Option<Duration>,
    /// The scheduler's time slice (Linux 6.12 and later) for threads that other programs have kept
    /// from their core for a millisecond, so that a packet wakes them immediately; also for the
    /// progress thread, unless ranks outnumber cores. If they do, threads get their usual slices
    /// back once nothing keeps them from their core. Zero leaves all slices unchanged. `None`: 100
    /// µs.
    pub time_slice: Option<Duration>,
    /// Callback that runs periodically while a call waits.
    pub while_waiting: Option<WhileWaiting>,
    /// Broadcast algorithm, the same on all ranks. `None`: the fastest for the size by rank 0's
    /// measurements; without measurements multicast if it works, else a tree chosen by size.
    pub bcast: Option<BcastAlgorithm>,
    /// Where rank 0 keeps its measurements of this network, by which it chooses algorithms.
    pub tune: Tune,
    /// Name of this network among the measurements, if its address does not identify it.
    pub network_name: Option<String>,
    /// Whether to use multicast; the same on all ranks, as are
    /// [`multicast_group`](Self::multicast_group) and [`multicast_port`](Self::multicast_port).
    pub multicast: Multicast,
    /// Replacement for multicast if it does not work; the same tree on all ranks.
    pub multisend: MultiSend,
    /// The multicast group's address. `None`: derived from the job's number.
    pub multicast_group: Option<IpAddr>,
    /// The group's UDP port. `None`: derived from the job's number.
    pub multicast_port: Option<u16>,
    /// TTL of multicast packets: 1 keeps them on this network, 0 on this host.
    pub multicast_ttl: u8,
    /// Whether ranks of one node use shared memory; without it each rank counts as a node.
    pub shared_memory: bool,
    /// Whether user data are encrypted on the network; the same on all ranks, which need a
    /// [`job_key`](Self::job_key).
    pub encryption: bool,
    /// Whether ranks compare their calls before each blocking collective operation, except barriers
    /// with a time limit: name, root, length, type and operation ([`Error::CallMismatch`]). The
    /// same on all ranks. For debugging: each comparison takes as long as an allgather of 20 bytes.
    pub compare_calls: bool,
    /// Barrier algorithm, the same on all ranks. `None`: the counter in small groups with multicast
    /// or where ranks outnumber the cores, else dissemination.
    pub barrier: Option<BarrierAlgorithm>,
    /// Whether barriers run through the kernel NIC; [`NicChoice::Off`] on all ranks or on none.
    pub nic: NicChoice,
    /// Messages up to this size are sent before their receive is posted; the same on all ranks.
    pub eager_bytes: u32,
    /// Receive buffers per channel for unexpected messages, in packets, shared by all senders; from
    /// 1 to 16,777,216. When they are used up, senders wait. Up to 16 times as many are used while
    /// a receive waits for a message that may be queued behind them.
    pub pool_packets: u32,
    /// Largest IP packet that this rank may send and receive, from 576 to 65,535 bytes, if that is
    /// less than its link allows; all ranks use the smallest value of all. `None`, or more than
    /// 1,500: a trial at startup finds out whether the paths between the hosts pass only shorter
    /// packets.
    pub mtu_bytes: Option<u32>,
    /// UDP offloads that may be used.
    pub offloads: Offloads,
    /// Where this rank publishes its counters, for `omnes stat`.
    pub stats: StatsPlace,
    /// How long the job must have run before ranks load the firmware of the kernel NIC, which takes
    /// 30 ms of a core and some 60 ms of waiting for the kernel. The longest of all ranks counts.
    pub nic_after: Duration,
}

impl Config {
    /// Settings of rank `rank` in a job of `size` ranks; all others have their defaults.
    pub fn new(rank: u32, size: u32, rendezvous: impl Into<String>) -> Self {
        Self {
            rank,
            size,
            rendezvous: rendezvous.into(),
            interface: None,
            job_key: None,
            join_timeout: Duration::from_secs(60),
            peer_timeout: Duration::from_secs(5),
            local_size: None,
            spin: None,
            yield_time: None,
            time_slice: None,
            while_waiting: None,
            bcast: None,
            tune: Tune::Auto,
            network_name: None,
            multicast: Multicast::Auto,
            multisend: MultiSend::Auto,
            multicast_group: None,
            multicast_port: None,
            multicast_ttl: 1,
            shared_memory: true,
            encryption: false,
            compare_calls: false,
            barrier: None,
            nic: NicChoice::Auto,
            eager_bytes: 128 << 10,
            pool_packets: 8192,
            mtu_bytes: None,
            offloads: Offloads { gso: true, gro: true },
            stats: StatsPlace::Usual,
            nic_after: Duration::ZERO,
        }
    }

    /// Rejects invalid settings, as [`crate::Communicator::from_config`] does before it joins.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`] if the rank is not below the size, else
    /// [`Error::InvalidConfig`] with the first field that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let Self { rank, size, .. } = *self;
        if rank >= size {
            return Err(Error::RankOutOfRange { rank, size });
        }
        for (name, time) in
            [("join_timeout", self.join_timeout), ("peer_timeout", self.peer_timeout)]
        {
            if time < TIMEOUT_MIN {
                return wrong(name, shortest(time), format!("at least {}", shortest(TIMEOUT_MIN)));
            }
        }
        self.check_network()
    }

    /// The part of [`Self::check`] about packets and multicast. Ranks of an exchange may set
    /// timeouts that cannot be met; they then get an error about silent ranks.
    pub(crate) fn check_network(&self) -> Result<(), Error> {
        let pool_packets = self.pool_packets;
        if !POOL_PACKETS.contains(&pool_packets) {
            return wrong("pool_packets", pool_packets.to_string(), pool_packets_allowed());
        }
        if let Some(bytes) = self.mtu_bytes.filter(|bytes| !MTU_BYTES.contains(bytes)) {
            return wrong("mtu_bytes", bytes.to_string(), mtu_allowed());
        }
        match self.multicast_group {
            Some(group) if !group.is_multicast() => {
                wrong("multicast_group", group.to_string(), "a multicast address".to_owned())
            }
            _ if self.multicast_port == Some(0) => {
                wrong("multicast_port", "0".to_owned(), "a port from 1 to 65535".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Settings that must be the same on all ranks for their collective operations to match, by
    /// environment variable. The NIC that a rank uses, and the place where its copies are made, may
    /// differ.
    pub(crate) fn alike(&self) -> Vec<(&'static str, String)> {
        fn text<T: ToString>(setting: &Option<T>) -> String {
            setting.as_ref().map_or_else(|| "unset".to_owned(), T::to_string)
        }
        let nic = if self.nic == NicChoice::Off { "off" } else { "not off" };
        let multisend = match self.multisend {
            MultiSend::Tree(tree, _) => tree.to_string(),
            other => other.to_string(),
        };
        vec![
            ("OMNES_BCAST", text(&self.bcast)),
            ("OMNES_BARRIER", text(&self.barrier)),
            ("OMNES_NIC", nic.to_owned()),
            ("OMNES_MULTISEND", multisend),
            ("OMNES_COMPARE", (if self.compare_calls { "on" } else { "off" }).to_owned()),
            ("OMNES_EAGER_BYTES", self.eager_bytes.to_string()),
        ]
    }
}

fn wrong(name: &'static str, value: String, allowed: String) -> Result<(), Error> {
    Err(Error::InvalidConfig { name, value, allowed })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn invalid_settings_are_rejected_by_name() {
        let check = |adjust: fn(&mut Config)| {
            let mut config = Config::new(0, 2, "127.0.0.1:1");
            adjust(&mut config);
            config.check().map_err(|error| error.to_string())
        };
        check(|_| {}).unwrap();
        check(|config| config.peer_timeout = TIMEOUT_MIN).unwrap();
        check(|config| config.pool_packets = *POOL_PACKETS.end()).unwrap();
        check(|config| config.mtu_bytes = Some(*MTU_BYTES.start())).unwrap();
        check(|config| config.multicast_group = Some([239, 1, 1, 1].into())).unwrap();
        let refused = |adjust, text: &str| assert_eq!(check(adjust).unwrap_err(), text);
        refused(
            |config| config.peer_timeout = TIMEOUT_MIN - Duration::from_millis(1),
            "peer_timeout is 9ms, must be at least 10ms",
        );
        refused(
            |config| config.join_timeout = Duration::ZERO,
            "join_timeout is 0s, must be at least 10ms",
        );
        refused(|config| config.pool_packets = 0, "pool_packets is 0, must be from 1 to 16777216");
        refused(
            |config| config.pool_packets = POOL_PACKETS.end() + 1,
            "pool_packets is 16777217, must be from 1 to 16777216",
        );
        refused(
            |config| config.mtu_bytes = Some(575),
            "mtu_bytes is 575, must be from 576 to 65535",
        );
        refused(
            |config| config.multicast_group = Some([10, 0, 0, 1].into()),
            "multicast_group is 10.0.0.1, must be a multicast address",
        );
        refused(
            |config| config.multicast_port = Some(0),
            "multicast_port is 0, must be a port from 1 to 65535",
        );
        refused(|config| config.rank = 2, "rank 2 is not in a communicator of 2 ranks");
    }
}
