//! What a rank has done so far: exact counts, for comparing designs where times are noisy.

use omnes_net::EngineCounters;

/// Counts since the start; the difference of two is what happened in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// UDP packets sent, each segment of a train counted.
    pub packets_sent: u64,
    /// UDP payload bytes sent: headers of Omnes and data.
    pub bytes_sent: u64,
    /// UDP packets received.
    pub packets_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// Data packets sent again.
    pub retransmits: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Acknowledgements sent on their own.
    pub acks_sent: u64,
    /// Reports of gaps sent.
    pub nacks_sent: u64,
    /// Reports sent of packets that found no buffer.
    pub rejects_sent: u64,
    /// Packets received that had come before.
    pub duplicates: u64,
    /// Messages that came before anybody asked for them.
    pub unexpected: u64,
    /// Bytes copied inside the process; the kernel's two copies of each byte are not in it.
    pub copied_bytes: u64,
    /// System calls that send.
    pub send_calls: u64,
    /// System calls that receive.
    pub receive_calls: u64,
    /// System calls that give the processor away.
    pub yields: u64,
    /// System calls that block until something happens.
    pub wait_calls: u64,
    /// The same as `wait_calls`: each block ends with one wake-up.
    pub wakeups: u64,
    /// Packets refused because they are not of Omnes, or make no sense.
    pub packets_malformed: u64,
    /// Packets refused for their version.
    pub packets_unknown_version: u64,
    /// Packets refused because they belong to another job.
    pub packets_foreign_job: u64,
    /// Packets refused because their tag is wrong.
    pub packets_bad_tag: u64,
    /// Sends that the kernel refused for good.
    pub send_errors: u64,
    /// 1 if trains are cut into packets by the kernel.
    pub gso: u64,
    /// 1 if the kernel puts packets together to trains.
    pub gro: u64,
}

impl Stats {
    pub(crate) fn of(counters: &EngineCounters) -> Self {
        let EngineCounters { socket, gate, channel, .. } = counters;
        Self {
            packets_sent: socket.packets_sent,
            bytes_sent: socket.bytes_sent,
            packets_received: socket.packets_received,
            bytes_received: socket.bytes_received,
            retransmits: channel.retransmits,
            timeouts: channel.timeouts,
            acks_sent: channel.acks_sent,
            nacks_sent: channel.nacks_sent,
            rejects_sent: channel.rejects_sent,
            duplicates: channel.duplicates,
            unexpected: channel.unexpected,
            copied_bytes: counters.copied_bytes,
            send_calls: socket.send_calls,
            receive_calls: socket.receive_calls,
            yields: counters.yields,
            wait_calls: counters.sleeps,
            wakeups: counters.sleeps,
            packets_malformed: gate.malformed + channel.malformed,
            packets_unknown_version: gate.unknown_version,
            packets_foreign_job: gate.foreign_job,
            packets_bad_tag: gate.bad_tag,
            send_errors: socket.send_errors,
            gso: u64::from(counters.offloads.is_some_and(|offloads| offloads.gso)),
            gro: u64::from(counters.offloads.is_some_and(|offloads| offloads.gro)),
        }
    }

    /// System calls of all kinds.
    pub fn system_calls(&self) -> u64 {
        self.send_calls + self.receive_calls + self.yields + self.wait_calls
    }
}
