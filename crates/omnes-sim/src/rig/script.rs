//! Program of one rank: a list of steps over channels, the same for every driver.
//!
//! A script owns numbered buffers; sends read from them, receives write into them. It is plain
//! data, so the conformance bodies can hand it to the rig as well as to sockets.

use omnes_proto::broadcast::Policy;
use omnes_proto::collective::{BarrierGroupConfig, Runner};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{Instant, Rank};
use std::time::Duration;

/// Ranks that share barriers, and how the barriers run; scripts that use an equal value mean the
/// same group. The driver assigns the communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BarrierGroup {
    /// Its ranks by node, each node's leader first; no rank twice.
    pub nodes: Vec<Vec<Rank>>,
    /// The algorithm between the leaders.
    pub algorithm: BarrierAlgorithm,
    /// Where the algorithm runs.
    pub runner: Runner,
    /// Whether a message to all leaders is sent as one multicast packet.
    pub is_multicast: bool,
}

impl BarrierGroup {
    /// True if a machine's group is equal to this one.
    pub(crate) fn is_of(&self, config: &BarrierGroupConfig) -> bool {
        let BarrierGroupConfig { communicator: _, nodes, algorithm, runner, is_multicast } = config;
        self.nodes == nodes.to_lists()
            && self.algorithm == *algorithm
            && self.runner == *runner
            && self.is_multicast == *is_multicast
    }
}

/// One step of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Begins to send a buffer.
    Send {
        /// The receiver.
        to: Rank,
        /// The tag.
        tag: u32,
        /// Index of the buffer.
        buffer: usize,
    },
    /// Begins to receive into a buffer, which is as long as the longest valid message.
    Receive {
        /// The sender, or any.
        from: Option<Rank>,
        /// The tag, or any.
        tag: Option<u32>,
        /// Index of the buffer.
        buffer: usize,
    },
    /// Begins a broadcast to all ranks, at each of them with the same policy and root: the root
    /// sends the buffer, all others receive into it. A driver that copies the root's buffer need
    /// not wait for it later; if its window is full, it waits here.
    Broadcast {
        /// How the broadcast is made reliable; broadcasts of one policy and root stay in order.
        policy: Policy,
        /// The root.
        root: Rank,
        /// Index of the buffer, as long as the message.
        buffer: usize,
    },
    /// Enters the next barrier of a group, whose members all have this step, and continues
    /// immediately; the barrier is complete when all of them have entered it.
    Barrier {
        /// The group.
        group: BarrierGroup,
    },
    /// Waits until the operation begun with this buffer is complete.
    WaitFor {
        /// Index of the buffer.
        buffer: usize,
    },
    /// Waits until all operations begun so far are complete.
    Wait,
    /// Computes for a while, ignoring the network.
    Compute(Duration),
    /// Records the time under a number of the script's choice.
    Mark(u32),
}

/// The steps of one rank with its buffers; communicator and channel are the driver's choice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Contents before the first step.
    pub buffers: Vec<Vec<u8>>,
}

impl Script {
    /// Adds a buffer and returns its index.
    pub fn buffer(&mut self, content: impl Into<Vec<u8>>) -> usize {
        self.buffers.push(content.into());
        self.buffers.len() - 1
    }

    /// Adds a step that begins to send a buffer.
    pub fn send(&mut self, to: Rank, tag: u32, buffer: usize) -> &mut Self {
        self.step(Step::Send { to, tag, buffer })
    }

    /// Adds a step that begins to receive from one rank.
    pub fn receive(&mut self, from: Rank, tag: u32, buffer: usize) -> &mut Self {
        self.step(Step::Receive { from: Some(from), tag: Some(tag), buffer })
    }

    /// Adds a step that begins to receive from any rank.
    pub fn receive_any(&mut self, tag: Option<u32>, buffer: usize) -> &mut Self {
        self.step(Step::Receive { from: None, tag, buffer })
    }

    /// Adds a step that begins a broadcast.
    pub fn broadcast(&mut self, policy: Policy, root: Rank, buffer: usize) -> &mut Self {
        self.step(Step::Broadcast { policy, root, buffer })
    }

    /// Adds a step that enters a barrier.
    pub fn barrier(&mut self, group: &BarrierGroup) -> &mut Self {
        self.step(Step::Barrier { group: group.clone() })
    }

    /// Adds a step that waits for all pending operations.
    pub fn wait(&mut self) -> &mut Self {
        self.step(Step::Wait)
    }

    /// Adds a step.
    pub fn step(&mut self, step: Step) -> &mut Self {
        self.steps.push(step);
        self
    }
}

/// A completed receive of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The sender.
    pub from: Rank,
    /// The tag.
    pub tag: u32,
    /// Length of the message.
    pub bytes: u64,
    /// Index of the buffer that holds it.
    pub buffer: usize,
}

/// Result of a script.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Contents after the last step.
    pub buffers: Vec<Vec<u8>>,
    /// Receives in order of completion.
    pub receipts: Vec<Receipt>,
    /// Numbers of [`Step::Mark`] with the time, on a clock that all ranks share.
    pub marks: Vec<(u32, Instant)>,
    /// Operations that ended with an error.
    pub failures: u32,
    /// True if the last step was done.
    pub is_complete: bool,
}
