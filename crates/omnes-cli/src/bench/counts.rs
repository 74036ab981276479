//! Costs of an operation in packets, bytes, copies and system calls, summed over ranks.
//!
//! If iterations are synchronised, only costs inside the calls count, and not those of
//! synchronising; replies sent after a call has returned are then not counted. If they are not, or
//! many calls share a barrier, the whole loop counts. Retransmits always count over the whole loop,
//! because they are late by nature; so do multicast broadcasts at the root ([`AtRoot`]).

use super::rank;
use anyhow::Result;
use omnes::Communicator;

/// Index of the retransmits among the counters.
const RETRANSMITS: usize = COUNTERS - 1;

/// Number of counters.
const COUNTERS: usize = 6;

/// One rank's counters since its start, or a difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; COUNTERS]);

impl Counts {
    /// This rank's counters now.
    pub fn read(comm: &Communicator) -> Self {
        let stats = comm.stats();
        Self([
            stats.packets_sent,
            stats.bytes_sent,
            stats.copied_bytes,
            stats.system_calls(),
            stats.wakeups,
            stats.repairs() + stats.steps_repeated,
        ])
    }

    /// Counts from `earlier` to `self`.
    pub fn since(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at])))
    }

    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// These counts with the retransmits of `whole`.
    pub fn with_retransmits_of(mut self, whole: Self) -> Self {
        self.0[RETRANSMITS] = whole.0[RETRANSMITS];
        self
    }
}

/// Costs of one broadcast at rank 0, its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct AtRoot {
    /// Data packets multicast, or sent down a tree, for the first time; includes copies for
    /// co-roots.
    #[serde(rename = "root_packets")]
    pub packets: f64,
    /// Data packets retransmitted.
    #[serde(rename = "root_repairs")]
    pub repairs: f64,
    /// Acknowledgements of multicasts received.
    #[serde(rename = "root_acks")]
    pub acks: f64,
    /// Gap reports of multicasts received.
    #[serde(rename = "root_nacks")]
    pub nacks: f64,
}

/// Counters of one rank for [`AtRoot`], or a difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootCounts {
    /// Packets over channels, over which synchronising sends messages too.
    channel_packets: u64,
    casts: u64,
    repairs: u64,
    acks: u64,
    nacks: u64,
}

impl RootCounts {
    /// This rank's counters now.
    pub fn read(comm: &Communicator) -> Self {
        let stats = comm.stats();
        Self {
            channel_packets: stats.data_packets,
            casts: stats.bcast_packets_sent + stats.unicast_copies,
            repairs: stats.repairs(),
            acks: stats.bcast_acks_received,
            nacks: stats.bcast_nacks_received,
        }
    }

    /// Counts from `earlier` to `self`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            channel_packets: self.channel_packets.saturating_sub(earlier.channel_packets),
            casts: self.casts.saturating_sub(earlier.casts),
            repairs: self.repairs.saturating_sub(earlier.repairs),
            acks: self.acks.saturating_sub(earlier.acks),
            nacks: self.nacks.saturating_sub(earlier.nacks),
        }
    }

    /// Adds the packets sent over channels in one call.
    pub fn add_call(&mut self, call: Self) {
        self.channel_packets += call.channel_packets;
    }

    /// Costs per operation: packets over channels from `calls`, everything else from the `whole`
    /// loop.
    pub fn per_operation(calls: Self, whole: Self, operations: u64) -> AtRoot {
        let each = |count: u64| count as f64 / operations.max(1) as f64;
        AtRoot {
            packets: each(calls.channel_packets + whole.casts),
            repairs: each(whole.repairs),
            acks: each(whole.acks),
            nacks: each(whole.nacks),
        }
    }
}

/// Costs of one operation, summed over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct PerOperation {
    /// Packets sent, retransmits and acknowledgements included.
    pub packets: f64,
    /// UDP payload of these packets: Omnes headers and data.
    pub wire_bytes: f64,
    /// Payload bytes copied between memory of the application and of Omnes.
    pub copied_bytes: f64,
    /// System calls that send, receive, wait or yield.
    pub syscalls: f64,
    /// Times a rank slept and was woken.
    pub wakeups: f64,
    /// Packets retransmitted.
    pub retransmits: f64,
}

impl PerOperation {
    /// Sums `counts` over ranks and divides by `operations`; valid at rank 0. Collective.
    pub fn gather(comm: &Communicator, counts: Counts, operations: u64) -> Result<Self> {
        let sums = rank::combine(comm, &counts.0, |a, b| a.saturating_add(b))?;
        Ok(Self::from_sums(&sums, operations))
    }

    fn from_sums(sums: &[u64], operations: u64) -> Self {
        let each = |at: usize| sums[at] as f64 / operations.max(1) as f64;
        Self {
            packets: each(0),
            wire_bytes: each(1),
            copied_bytes: each(2),
            syscalls: each(3),
            wakeups: each(4),
            retransmits: each(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_differences_saturate_at_zero() {
        let (earlier, later) = (Counts([5, 0, 0, 0, 0, 7]), Counts([9, 1, 0, 0, 0, 6]));
        assert_eq!(later.since(earlier), Counts([4, 1, 0, 0, 0, 0]));
    }

    #[test]
    fn root_counts_messages_per_call_and_multicast_over_the_whole_loop() {
        let before = RootCounts { casts: 5, acks: 9, ..RootCounts::default() };
        let after = RootCounts { channel_packets: 40, casts: 15, repairs: 2, acks: 79, nacks: 1 };
        let mut calls = RootCounts::default();
        calls.add_call(RootCounts { channel_packets: 20, ..after });
        let each = RootCounts::per_operation(calls, after.since(before), 10);
        assert_eq!(each, AtRoot { packets: 3.0, repairs: 0.2, acks: 7.0, nacks: 0.1 });
    }

    #[test]
    fn only_retransmits_are_counted_over_the_whole_loop() {
        let mut calls = Counts([1, 2, 3, 4, 5, 0]);
        calls.add(Counts([1, 1, 1, 1, 1, 0]));
        let counts = calls.with_retransmits_of(Counts([90, 90, 90, 90, 90, 7]));
        assert_eq!(counts, Counts([2, 3, 4, 5, 6, 7]));
        let costs = PerOperation::from_sums(&counts.0, 2);
        assert_eq!((costs.packets, costs.retransmits), (1.0, 3.5));
    }
}
