//! What a rank can be told; the environment fills in the rest.

use crate::barrier::NicWanted;
use crate::bcast::tune::Tune;
use crate::bcast::{Bcast, MultiSend};
use crate::error::Error;
use crate::exchanged::Interface;
use omnes_net::duration::shortest;
use omnes_net::live::LivePlace;
use omnes_net::{Offloads, TIMEOUT_MIN, WhileWaiting};
use omnes_topo::Barrier;
use omnes_wire::JobKey;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Whether a job multicasts. Text form: `auto`, `on`, `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multicast {
    /// Use it if the probe at the start of the job reaches every rank.
    Auto,
    /// Require it: otherwise the job does not start.
    On,
    /// Never use it.
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

/// Packets that a channel may keep for messages that nobody has asked for yet.
pub(crate) const POOL_SLOTS: RangeInclusive<u32> = 1..=1 << 24;

/// The same in words.
pub(crate) fn pool_slots_allowed() -> String {
    format!("from {} to {}", POOL_SLOTS.start(), POOL_SLOTS.end())
}

/// Longest IP packets that a rank may be told to send: from what any IPv4 network passes on.
pub(crate) const MTU_BYTES: RangeInclusive<u32> = 576..=65_535;

/// The same in words.
pub(crate) fn mtu_allowed() -> String {
    format!("from {} to {}", MTU_BYTES.start(), MTU_BYTES.end())
}

/// Settings of a rank; see [`crate::VARIABLES`] for the environment's names of them.
#[derive(Clone, Debug)]
pub struct Config {
    /// This rank, from 0.
    pub rank: u32,
    /// Ranks of the job.
    pub size: u32,
    /// `host:port` at which rank 0 waits for the others; the port must be free there. Of ranks that
    /// exchange already ([`crate::Communicator::from_exchange`]) it may be empty, or without a
    /// port: then it is drawn.
    pub rendezvous: String,
    /// Which of its host's addresses this rank may use for its packets, and ranks that exchange
    /// already for their meeting; where there is none, that by which it reaches rank 0.
    pub interface: Option<Interface>,
    /// The job's secret. Without one, rank 0 draws a key and hands it out in the clear.
    pub key: Option<JobKey>,
    /// Longest wait for all ranks at the start; at least 10 ms.
    pub join_timeout: Duration,
    /// Time within which all know of a rank that has failed: one that is silent for four fifths of
    /// it; at least 10 ms.
    pub peer_timeout: Duration,
    /// Ranks that share this machine's cores, where they are not those of this job.
    pub local_ranks: Option<u32>,
    /// Time for which waiting calls spin; chosen by the ranks per core where there is none.
    pub spin: Option<Duration>,
    /// Time for which they then yield their core between looks, likewise.
    pub give_way: Option<Duration>,
    /// Called now and then while a call waits.
    pub while_waiting: Option<WhileWaiting>,
    /// Broadcast algorithm, the same on all ranks; where there is none, what is fastest for the
    /// size by rank 0's figures, else multicast if it works, else a tree chosen by size.
    pub bcast: Option<Bcast>,
    /// Where rank 0 keeps what it has measured of this network, to choose by.
    pub tune: Tune,
    /// What the network is called there, where its address does not tell it from others.
    pub network: Option<String>,
    /// Whether to multicast; the same on all ranks, as are
    /// [`multicast_group`](Self::multicast_group) and [`multicast_port`](Self::multicast_port).
    pub multicast: Multicast,
    /// What takes the place of multicast where there is none; the same tree on all ranks.
    pub multisend: MultiSend,
    /// The multicast group's address; derived from the job's number where there is none.
    pub multicast_group: Option<IpAddr>,
    /// The group's UDP port, likewise.
    pub multicast_port: Option<u16>,
    /// Routers that multicast may cross, plus one; 0 keeps it on this host.
    pub multicast_ttl: u8,
    /// Whether ranks of one node talk through shared memory; without it each counts as a node.
    pub shared_memory: bool,
    /// Whether user data are encrypted on the network; the same on all ranks, which need a
    /// [`key`](Self::key).
    pub encrypts: bool,
    /// Whether ranks compare what they call before each blocking collective operation but barriers
    /// with a limit: which one, its root, length, type and operation
    /// ([`Error::CallsDiffer`]); the same on all ranks. For finding mistakes: it takes as long as
    /// an allgather of 20 bytes.
    pub compares: bool,
    /// Barrier algorithm, the same on all ranks; where there is none, the counter in small groups
    /// with multicast or where ranks outnumber the cores, else dissemination.
    pub barrier: Option<Barrier>,
    /// Which network interface runs barriers; [`NicWanted::Off`] on all ranks or on none.
    pub nic: NicWanted,
    /// Messages up to this size are sent without asking; the same on all ranks.
    pub eager_bytes: u32,
    /// Memory per channel for messages that nobody has asked for yet, in packets, of all senders
    /// together; from 1 to 16,777,216. Senders of more wait. While a receive waits for a message
    /// that may be behind these, up to 16 times as many are kept.
    pub pool_slots: u32,
    /// Longest IP packet that this rank may send and be sent, from 576 to 65,535 bytes, where that
    /// is less than its link takes; all ranks send what suits the one with the least.
    pub mtu_bytes: Option<u32>,
    /// Offloads that may be used.
    pub offloads: Offloads,
    /// Where this rank publishes what it counts, for `omnes stat`.
    pub live: LivePlace,
}

impl Config {
    /// Settings for a rank of a job, all else as by default.
    pub fn new(rank: u32, size: u32, rendezvous: impl Into<String>) -> Self {
        Self {
            rank,
            size,
            rendezvous: rendezvous.into(),
            interface: None,
            key: None,
            join_timeout: Duration::from_secs(60),
            peer_timeout: Duration::from_secs(5),
            local_ranks: None,
            spin: None,
            give_way: None,
            while_waiting: None,
            bcast: None,
            tune: Tune::Auto,
            network: None,
            multicast: Multicast::Auto,
            multisend: MultiSend::Auto,
            multicast_group: None,
            multicast_port: None,
            multicast_ttl: 1,
            shared_memory: true,
            encrypts: false,
            compares: false,
            barrier: None,
            nic: NicWanted::Auto,
            eager_bytes: 128 << 10,
            pool_slots: 8192,
            mtu_bytes: None,
            offloads: Offloads { gso: true, gro: true },
            live: LivePlace::Usual,
        }
    }

    /// Refuses settings that cannot be, as [`crate::Communicator::from_config`] does before it
    /// joins.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`] if the rank is not below the size, else [`Error::Setting`] with
    /// the first field that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let Self { rank, size, pool_slots, .. } = *self;
        if rank >= size {
            return Err(Error::RankOutOfRange { rank, size });
        }
        let wrong =
            |name, value: String, allowed: String| Err(Error::Setting { name, value, allowed });
        for (name, time) in
            [("join_timeout", self.join_timeout), ("peer_timeout", self.peer_timeout)]
        {
            if time < TIMEOUT_MIN {
                return wrong(name, shortest(time), format!("at least {}", shortest(TIMEOUT_MIN)));
            }
        }
        if !POOL_SLOTS.contains(&pool_slots) {
            return wrong("pool_slots", pool_slots.to_string(), pool_slots_allowed());
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

    /// What must be the same on all ranks for their collective operations to meet, by the names of
    /// the environment. Who makes a rank's copies, and which NIC it uses, is its own affair.
    pub(crate) fn alike(&self) -> Vec<(&'static str, String)> {
        fn text<T: ToString>(setting: &Option<T>) -> String {
            setting.as_ref().map_or_else(|| "unset".to_owned(), T::to_string)
        }
        let nic = if self.nic == NicWanted::Off { "off" } else { "not off" };
        let multisend = match self.multisend {
            MultiSend::Tree(tree, _) => tree.to_string(),
            other => other.to_string(),
        };
        vec![
            ("OMNES_BCAST", text(&self.bcast)),
            ("OMNES_BARRIER", text(&self.barrier)),
            ("OMNES_NIC", nic.to_owned()),
            ("OMNES_MULTISEND", multisend),
            ("OMNES_COMPARE", (if self.compares { "on" } else { "off" }).to_owned()),
            ("OMNES_EAGER_BYTES", self.eager_bytes.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_refused_by_name() {
        let check = |adjust: fn(&mut Config)| {
            let mut config = Config::new(0, 2, "127.0.0.1:1");
            adjust(&mut config);
            config.check().map_err(|error| error.to_string())
        };
        check(|_| {}).unwrap();
        check(|config| config.peer_timeout = TIMEOUT_MIN).unwrap();
        check(|config| config.pool_slots = *POOL_SLOTS.end()).unwrap();
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
        refused(|config| config.pool_slots = 0, "pool_slots is 0, must be from 1 to 16777216");
        refused(
            |config| config.pool_slots = POOL_SLOTS.end() + 1,
            "pool_slots is 16777217, must be from 1 to 16777216",
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
