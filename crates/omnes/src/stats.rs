//! Exact counts of a rank's operations so far, for comparing designs when times are noisy.
//!
//! One list holds each counter's name, its meaning, and the place where it is counted. The fields
//! of [`Stats`], the names of live counters ([`crate::live`]) and their descriptions in `omnes stat
//! --help` all come from it.

use omnes_net::EngineCounters;

/// Defines [`Stats`] by a list of counters. The two names before the list are those that its
/// expressions use.
macro_rules! stats {
    ($counters:ident, $has_multicast:ident;
     $($(#[doc = $meaning:literal])+ $name:ident: $value:expr,)+) => {
        /// Counts since startup; the difference of two values counts what happened in between.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $meaning])+ pub $name: u64,)+
        }

        impl Stats {
            /// Name and meaning of each counter, in the order of [`Self::values`].
            pub const COUNTERS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($meaning),+))),+];
            pub(crate) const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            pub(crate) fn of($counters: &EngineCounters, $has_multicast: bool) -> Self {
                Self { $($name: $value),+ }
            }

            /// The values of all counters.
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name),+]
            }
        }
    };
}

stats! {
    counters, has_multicast;
    /// UDP packets sent, each segment of a GSO train counted.
    packets_sent: counters.socket.packets_sent,
    /// UDP payload bytes sent: Omnes headers and data.
    bytes_sent: counters.socket.bytes_sent,
    /// UDP packets received.
    packets_received: counters.socket.packets_received,
    /// Of the packets received, those that the kernel NIC has put into this process's memory.
    queue_packets_received: counters.queue.packets,
    /// UDP payload bytes received.
    bytes_received: counters.socket.bytes_received,
    /// Packets put into shared-memory rings, for ranks of the same node.
    shm_packets_sent: counters.ring.packets_sent,
    /// Bytes of the packets put into rings.
    shm_bytes_sent: counters.ring.bytes_sent,
    /// Packets taken out of rings.
    shm_packets_received: counters.ring.packets_received,
    /// Bytes of the packets taken out of rings.
    shm_bytes_received: counters.ring.bytes_received,
    /// Packets dropped because a ring was full: the rank at its other end does not poll it.
    shm_packets_dropped: counters.ring.full,
    /// System calls that wake a rank of the same node.
    shm_wake_calls: counters.ring.wakes,
    /// Rings closed because of inconsistent contents.
    shm_rings_broken: counters.ring.broken,
    /// Data packets sent to one rank for the first time.
    data_packets: counters.channel.data_packets,
    /// Data packets retransmitted over channels; repairs of broadcasts are counted separately.
    retransmits: counters.channel.retransmits,
    /// Retransmission timers that expired.
    timeouts: counters.channel.timeouts,
    /// Acknowledgements sent in packets of their own.
    acks_sent: counters.channel.acks_sent,
    /// Gap reports (NACKs) sent.
    nacks_sent: counters.channel.nacks_sent,
    /// NACKs sent because a packet found no buffer.
    rejects_sent: counters.channel.rejects_sent,
    /// Duplicate packets received.
    duplicates: counters.channel.duplicates,
    /// Messages that arrived before a matching receive was posted.
    unexpected: counters.channel.unexpected,
    /// Bytes copied within this process; the kernel's two copies of each byte are not counted.
    copied_bytes: counters.copied_bytes,
    /// Data packets of broadcasts multicast for the first time.
    bcast_packets_sent: counters.broadcast.casts_sent,
    /// Data packets of broadcasts multicast again, because several ranks lacked them.
    repairs_by_multicast: counters.broadcast.repairs_by_multicast,
    /// Of these, packets that combine several others, for ranks that lack one of them each.
    repairs_coded: counters.broadcast.repairs_coded,
    /// Data packets of broadcasts sent again to a single rank.
    repairs_by_unicast: counters.broadcast.repairs_by_unicast,
    /// Data packets of broadcasts sent by unicast, to co-roots and to ranks that multicast does not
    /// reach.
    unicast_copies: counters.broadcast.unicast_copies,
    /// Acknowledgements of broadcasts sent.
    bcast_acks_sent: counters.broadcast.acks_sent,
    /// Acknowledgements of broadcasts received.
    bcast_acks_received: counters.broadcast.acks_received,
    /// Acknowledgements of broadcasts received with messages.
    bcast_acks_carried: counters.broadcast.acks_carried,
    /// Gap reports (NACKs) of broadcasts sent.
    bcast_nacks_sent: counters.broadcast.nacks_sent,
    /// Gap reports (NACKs) of broadcasts received.
    bcast_nacks_received: counters.broadcast.nacks_received,
    /// Timers of broadcasts that expired.
    bcast_timeouts: counters.broadcast.timeouts,
    /// Duplicate packets of broadcasts received.
    bcast_duplicates: counters.broadcast.duplicates,
    /// Packets of broadcasts recovered from combined repairs.
    bcast_packets_decoded: counters.broadcast.decoded,
    /// Packets of broadcasts discarded because no buffer was free.
    bcast_packets_discarded: counters.broadcast.discarded,
    /// Packets to the multicast group that the kernel dropped: foreign ones, those of other jobs
    /// and of this rank, and those that arrived while the socket was full.
    multicast_drops: counters.multicast_drops,
    /// 1 if the job uses multicast, because the probe at startup found that it works.
    multicast: u64::from(has_multicast),
    /// Barriers completed, except those over channels.
    barriers: counters.collective.barriers,
    /// Barrier steps sent by this rank itself.
    steps_sent: counters.collective.steps_sent,
    /// Barrier steps sent again because another rank lacked them, by this rank or by its NIC.
    steps_repeated: counters.collective.repeated + counters.nic.repeated,
    /// Requests sent for missing barrier steps.
    step_nacks_sent: counters.collective.nacks_sent,
    /// Barriers entered through the kernel NIC.
    nic_barriers_entered: counters.collective.doorbells,
    /// Barrier steps that the kernel NIC has sent for this rank.
    nic_packets_sent: counters.nic.packets_out,
    /// Barrier steps that the kernel NIC has received for this rank.
    nic_packets_received: counters.nic.packets_in,
    /// Packets that the kernel NIC has forwarded to wake this rank.
    nic_wakes: counters.nic.wakes,
    /// Copies of packets that the kernel NIC has made for this rank in multi-sends.
    nic_clones: counters.nic.clones,
    /// Copies that the kernel NIC could not send.
    nic_clone_failures: counters.nic.clone_failures,
    /// Packets that the kernel NIC has rejected because of their authentication tag.
    nic_bad_tags: counters.nic.bad_tags,
    /// System calls that send.
    send_calls: counters.socket.send_calls,
    /// System calls that receive.
    receive_calls: counters.socket.receive_calls,
    /// System calls that yield the CPU.
    yields: counters.yields,
    /// System calls that block until something happens: each ends with one wake-up.
    wakeups: counters.sleeps,
    /// Packets dropped because they are not Omnes packets, or malformed.
    packets_malformed: counters.gate.malformed
        + counters.channel.malformed
        + counters.broadcast.malformed,
    /// Packets dropped because of their version.
    packets_unknown_version: counters.gate.unknown_version,
    /// Packets dropped because they belong to another job.
    packets_foreign_job: counters.gate.foreign_job,
    /// Packets dropped because their authentication tag is wrong.
    packets_bad_tag: counters.gate.bad_tag,
    /// Packets dropped because their encrypted data failed authentication.
    packets_bad_data: counters.gate.bad_data,
    /// Sends that the kernel refused permanently.
    send_errors: counters.socket.send_errors,
    /// 1 if the kernel cuts trains into packets (UDP GSO).
    gso: u64::from(counters.offloads.is_some_and(|offloads| offloads.gso)),
    /// 1 if the kernel joins packets into trains (UDP GRO).
    gro: u64::from(counters.offloads.is_some_and(|offloads| offloads.gro)),
}

impl Stats {
    /// Data packets sent again, over channels and for broadcasts.
    pub fn repairs(&self) -> u64 {
        self.retransmits + self.repairs_by_multicast + self.repairs_by_unicast
    }

    /// System calls of all kinds.
    pub fn system_calls(&self) -> u64 {
        self.send_calls + self.receive_calls + self.yields + self.wakeups + self.shm_wake_calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_name_a_description_and_a_value() {
        let mut counters = EngineCounters::default();
        counters.socket.bytes_sent = 7;
        let values = Stats::of(&counters, true).values();
        assert_eq!(values.len(), Stats::COUNTERS.len());
        let value =
            |name: &str| Stats::NAMES.iter().zip(&values).find(|(other, _)| **other == name);
        assert_eq!(value("bytes_sent").map(|(_, value)| *value), Some(7));
        assert_eq!(value("multicast").map(|(_, value)| *value), Some(1));
        let says_little = |meaning: &str| meaning.trim().len() < 10 || !meaning.ends_with('.');
        assert!(!Stats::COUNTERS.iter().any(|(_, meaning)| says_little(meaning)));
    }
}
