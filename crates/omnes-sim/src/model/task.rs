//! Progress of a rank: its position in the plan, and the operation in progress.

use super::plan::Op;
use crate::engine::Time;
use omnes_proto::broadcast::GroupId;
use omnes_proto::packet::{ReceiveId, SendId};
use omnes_topo::Step;
use omnes_wire::{CommunicatorId, Rank};

/// A receive that a rank waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Awaited {
    pub(super) is_cast: bool,
    pub(super) id: ReceiveId,
}

/// A barrier by messages.
#[derive(Debug)]
pub(super) struct Stepping {
    pub(super) steps: Vec<Step>,
    pub(super) next: usize,
    pub(super) tag: u32,
}

/// An operation in progress.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) number: u32,
    pub(super) op: Op,
    pub(super) began: Time,
    pub(super) awaited: Vec<Awaited>,
    pub(super) sends: Vec<SendId>,
    pub(super) cast: Option<SendId>,
    /// A broadcast that waits for room in its window.
    pub(super) held: Option<(GroupId, u64)>,
    pub(super) barrier: Option<(CommunicatorId, u32)>,
    pub(super) stepping: Option<Stepping>,
    /// Children to which the message is forwarded; `passing` are the sends begun for them.
    pub(super) children: Vec<Rank>,
    pub(super) passing: Vec<SendId>,
    pub(super) is_whole: bool,
}

impl Running {
    /// Begins the operation with this number; `used` is a finished one whose memory is reused.
    pub(super) fn begin(used: Option<Box<Self>>, number: u32, op: Op, began: Time) -> Box<Self> {
        let Some(mut running) = used else {
            return Box::new(Self { number, op, began, is_whole: true, ..Self::default() });
        };
        (running.number, running.op, running.began) = (number, op, began);
        running.is_whole = true;
        running.passing.clear();
        running
    }

    pub(super) fn is_done(&self) -> bool {
        self.awaited.is_empty()
            && self.sends.is_empty()
            && self.cast.is_none()
            && self.held.is_none()
            && self.barrier.is_none()
            && self.stepping.is_none()
            && self.children.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) enum Stage {
    #[default]
    Ready,
    Meeting,
    Computing(Time),
    Running(Box<Running>),
    Over,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) next: u32,
    pub(super) stage: Stage,
    /// The last operation, whose memory the next one reuses.
    pub(super) used: Option<Box<Running>>,
}

impl Task {
    /// True if the plan is done.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// All ranks have met: this rank continues.
    pub(super) fn release(&mut self) {
        if matches!(self.stage, Stage::Meeting) {
            self.stage = Stage::Ready;
        }
    }

    /// Time at which the rank must continue by itself.
    pub(super) fn wakes_at(&self) -> Option<Time> {
        match self.stage {
            Stage::Computing(until) => Some(until),
            _ => None,
        }
    }

    /// True while the rank computes outside of any call.
    pub(super) fn computes(&self) -> bool {
        matches!(self.stage, Stage::Computing(_))
    }

    pub(super) fn on_received(&mut self, is_cast: bool, id: ReceiveId) {
        if let Stage::Running(running) = &mut self.stage {
            running.awaited.retain(|awaited| *awaited != Awaited { is_cast, id });
        }
    }

    pub(super) fn on_sent(&mut self, id: SendId) {
        if let Stage::Running(running) = &mut self.stage {
            running.sends.retain(|waited| *waited != id);
        }
    }
}
