//! Operations of the ranks of a model, in the same order at all ranks.

use crate::engine::Span;
use omnes_proto::algorithm::BcastAlgorithm;
use omnes_proto::collective::Runner;
use omnes_topo::BarrierAlgorithm;

/// Work counted for a rank's part in an operation besides its data: about the cost of a packet.
pub(super) const OPERATION_BYTES: u64 = 4096;

/// What runs the steps of a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steps {
    /// The collective machine, in the NIC or in the host.
    Machine(Runner),
    /// Messages over channels.
    Channel,
}

/// A kind of barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierKind {
    /// Algorithm that determines the steps.
    pub algorithm: BarrierAlgorithm,
    /// What runs the steps.
    pub steps: Steps,
    /// Whether a release to all is one multicast packet.
    pub is_multicast: bool,
}

/// One operation; ranks without a part in it proceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A broadcast of `bytes` bytes from `root`.
    Bcast {
        /// Algorithm of the broadcast.
        algorithm: BcastAlgorithm,
        /// The root.
        root: u32,
        /// Length of the message.
        bytes: u64,
    },
    /// A barrier of all ranks.
    Barrier(BarrierKind),
    /// A message over a channel; the sender proceeds once the message is copied or sent.
    Message {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// Length of the message.
        bytes: u64,
    },
    /// Messages over a channel, all begun immediately and awaited together.
    Stream {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// Length of each message.
        bytes: u64,
        /// Number of messages.
        messages: u32,
    },
    /// All ranks start the next operation at the same time, once all have arrived and nothing is in
    /// progress any more, late acknowledgements included. No message is sent for it.
    Meet,
    /// Every rank but `root` computes, without a call into the library, for a random time of at
    /// most `most`.
    Compute {
        /// Longest time.
        most: Span,
        /// The rank that does not compute.
        root: u32,
    },
}

impl Default for Op {
    /// A no-op: all ranks meet and continue.
    fn default() -> Self {
        Self::Meet
    }
}

/// Plan of all ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Operations, in order.
    pub ops: Vec<Op>,
    /// Number of repetitions.
    pub repeat: u32,
}

impl Plan {
    /// Creates a plan of `ops`, repeated `repeat` times.
    pub fn new(ops: impl Into<Vec<Op>>, repeat: u32) -> Self {
        Self { ops: ops.into(), repeat }
    }

    /// Total work of `ranks` ranks in bytes: the received data, and a fixed number for each
    /// operation of each rank.
    pub(super) fn work_bytes(&self, ranks: u32) -> f64 {
        let (all, each) = (f64::from(ranks), OPERATION_BYTES as f64);
        let of = |op: &Op| match *op {
            Op::Bcast { bytes, .. } => all * each + (all - 1.0) * bytes as f64,
            Op::Barrier(_) => all * each,
            Op::Message { bytes, .. } => 2.0 * each + bytes as f64,
            Op::Stream { bytes, messages, .. } => 2.0 * each + bytes as f64 * f64::from(messages),
            Op::Meet | Op::Compute { .. } => 0.0,
        };
        self.ops.iter().map(of).sum::<f64>() * f64::from(self.repeat)
    }

    /// The operation with this number, counted over all repetitions.
    pub(super) fn op(&self, number: u32) -> Option<Op> {
        let ops = self.ops.len() as u32;
        (ops > 0 && number / ops < self.repeat).then(|| self.ops[(number % ops) as usize])
    }
}
