//! What all ranks of a model know: the plan, and how its groups are called.

use super::plan::{BarrierKind, Plan};
use omnes_proto::broadcast::{GroupId, Policy};
use omnes_wire::CommunicatorId;

/// The communicator of messages.
pub(super) const MESSAGES: CommunicatorId = CommunicatorId(1);
/// The communicator of broadcasts' groups.
const CASTS: CommunicatorId = CommunicatorId(2);
/// The communicators of barriers' groups, from this one on.
const BARRIERS: u16 = 0x100;

/// What all ranks of a model know.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    /// Policies of the plan's broadcasts; a group for each.
    pub(super) policies: Vec<Policy>,
    /// Sorts of the plan's barriers by machine; a group for each.
    pub(super) barriers: Vec<BarrierKind>,
    pub(super) ranks: u32,
    pub(super) seed: u64,
    pub(super) payload_bytes: u64,
}

impl Shared {
    pub(super) fn group(&self, policy: Policy) -> GroupId {
        let at = self.policies.iter().position(|other| *other == policy).unwrap_or(0);
        GroupId { communicator: CASTS, number: at as u8 }
    }

    pub(super) fn communicator(&self, kind: BarrierKind) -> CommunicatorId {
        let at = self.barriers.iter().position(|other| *other == kind).unwrap_or(0);
        CommunicatorId(BARRIERS + at as u16)
    }
}
