//! What the ranks of a model do: operations that all of them come to in the same order.

use crate::engine::Span;
use omnes_proto::algorithm::BcastAlgorithm;
use omnes_proto::collective::Runner;
use omnes_topo::BarrierAlgorithm;

/// What a rank's part in an operation counts for beside its data: about what a packet costs.
pub(super) const OPERATION_BYTES: u64 = 4096;

/// Who makes the steps of a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steps {
    /// The collective machine, in the NIC or in the host.
    Machine(Runner),
    /// Messages over channels.
    Channel,
}

/// A sort of barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierKind {
    /// Which steps.
    pub algorithm: BarrierAlgorithm,
    /// Who makes them.
    pub steps: Steps,
    /// Whether a release goes to all as one multicast packet.
    pub is_multicast: bool,
}

/// One operation; ranks that have no part in it go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A broadcast of `bytes` bytes from `root`.
    Bcast {
        /// How.
        algorithm: BcastAlgorithm,
        /// From whom.
        root: u32,
        /// Length of the message.
        bytes: u64,
    },
    /// A barrier of all.
    Barrier(BarrierKind),
    /// A message over a channel; the sender goes on when it may.
    Message {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// Its length.
        bytes: u64,
    },
    /// Messages over a channel, begun at once and waited for together.
    Stream {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// The length of each.
        bytes: u64,
        /// How many.
        messages: u32,
    },
    /// All ranks begin what follows at the same time, once all have come and nothing is under way
    /// any more, late acknowledgements included: no message is sent for it.
    Meet,
    /// Every rank but `root` computes, without a call into the library, for a random time of at
    /// most `most`.
    Compute {
        /// The longest.
        most: Span,
        /// Who does not.
        root: u32,
    },
}

impl Default for Op {
    /// Nothing: all meet and go on.
    fn default() -> Self {
        Self::Meet
    }
}

/// What all ranks do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// In this order.
    pub ops: Vec<Op>,
    /// So many times.
    pub repeat: u32,
}

impl Plan {
    /// `ops`, `repeat` times.
    pub fn new(ops: impl Into<Vec<Op>>, repeat: u32) -> Self {
        Self { ops: ops.into(), repeat }
    }

    /// What `ranks` ranks have to do, in bytes: the data that come in, and a fixed number for each
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

    /// The operation of a number, counted over all repetitions.
    pub(super) fn op(&self, number: u32) -> Option<Op> {
        let ops = self.ops.len() as u32;
        (ops > 0 && number / ops < self.repeat).then(|| self.ops[(number % ops) as usize])
    }
}
