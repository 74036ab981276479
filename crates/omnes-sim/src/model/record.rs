//! Record of a run: a hash and, if requested, bars for a chart.

use crate::engine::Time;
use crate::rig::nic::Nic;
use omnes_proto::endpoint::Endpoint;
use serde::Serialize;

/// Activity of a resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// A host begins an operation, or copies a message.
    HostCalls,
    /// A host hands out a packet.
    HostSends,
    /// A host receives a packet.
    HostReceives,
    /// A NIC sends a packet.
    NicSends,
    /// A NIC receives a packet.
    NicReceives,
    /// A NIC's firmware works on a collective.
    NicSteps,
    /// A link carries a packet.
    Wire,
}

impl Doing {
    /// Name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostCalls => "host-calls",
            Self::HostSends => "host-sends",
            Self::HostReceives => "host-receives",
            Self::NicSends => "nic-sends",
            Self::NicReceives => "nic-receives",
            Self::NicSteps => "nic-steps",
            Self::Wire => "wire",
        }
    }
}

/// A period of activity of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// The activity.
    pub doing: Doing,
    /// The host, or for [`Doing::Wire`] the link.
    pub at: u32,
    /// Start of the period.
    pub start: Time,
    /// End of the period.
    pub end: Time,
}

/// Counters of one rank's machines; acknowledgements sent are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RankCounters {
    /// Data packets sent to one rank for the first time, including copies for co-roots.
    pub data_packets: u64,
    /// Data packets sent to all for the first time.
    pub casts: u64,
    /// Data packets and steps of barriers sent again, by any path.
    pub repairs: u64,
    /// Acknowledgements of broadcasts received.
    pub acks: u64,
    /// Reports of gaps in broadcasts received.
    pub nacks: u64,
}

impl RankCounters {
    pub(super) fn of(endpoint: &Endpoint, firmware: &Nic) -> Self {
        let steps = endpoint.collective().counters().repeated + firmware.repeated();
        let mut counters = Self { repairs: steps, ..Self::default() };
        for channel in endpoint.channels() {
            counters.data_packets += channel.counters().data_packets;
            counters.repairs += channel.counters().retransmits;
        }
        if let Some(broadcasts) = endpoint.broadcast() {
            let casts = broadcasts.counters();
            counters.data_packets += casts.unicast_copies;
            counters.casts = casts.casts_sent;
            counters.repairs += casts.repairs_by_multicast + casts.repairs_by_unicast;
            (counters.acks, counters.nacks) = (casts.acks_received, casts.nacks_received);
        }
        counters
    }
}

/// Most bars kept; a run that has more keeps the first ones.
pub const BARS_MAX: usize = 4_000_000;

/// See the module header.
#[derive(Debug)]
pub(super) struct Record {
    hash: u64,
    bars: Option<Vec<Bar>>,
}

impl Record {
    pub(super) fn new(has_bars: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, bars: has_bars.then(Vec::new) }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn take_bars(&mut self) -> Vec<Bar> {
        self.bars.take().unwrap_or_default()
    }

    /// Adds an event to the hash: equal runs have equal hashes.
    pub(super) fn mix(&mut self, at: u64, what: u64) {
        // FNV-1a over 64-bit words, folded so that high bits reach low ones.
        for number in [at, what] {
            let mixed = (self.hash ^ number).wrapping_mul(0x0100_0000_01b3);
            self.hash = mixed ^ (mixed >> 29);
        }
    }

    pub(super) fn did(&mut self, doing: Doing, at: u32, start: Time, end: Time) {
        if let Some(bars) = &mut self.bars
            && start < end
            && bars.len() < BARS_MAX
        {
            bars.push(Bar { doing, at, start, end });
        }
    }
}
