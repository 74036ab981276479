//! Multi-send: the way of packets to all where there is no multicast group.

use super::Engine;
use crate::spread::{Spread, SpreadPlan};
use omnes_nic::OpenSlot;
use omnes_wire::CommunicatorId;

impl Engine {
    /// Packets to all go by multi-send from now on, for the communicators that open one. Call it
    /// before any group is opened, on all ranks, after [`Self::disable_multicast`].
    pub fn use_spread(&self) {
        self.enter(|core| core.links.use_spread());
    }

    /// Opens the multi-send of a communicator; false if the addresses of its ranks are not known.
    /// All of its ranks open it with the same tree; they need not wait for each other.
    pub fn open_spread(&self, plan: SpreadPlan) -> bool {
        self.enter(|core| {
            let nics = core.links.nics().to_vec();
            let spread = Spread::new(plan, |rank| Some(nics.get(rank.index())?.spread));
            let is_known = spread.is_some();
            if let Some(spread) = spread {
                core.close_spread(spread.communicator());
                core.links.add_spread(spread);
            }
            is_known
        })
    }

    /// Gives a communicator's multi-send a slot of the kernel's NIC, with the same tree, which also
    /// passes on what comes in if `forwards`. Ranks do it when they like, without each other.
    pub fn give_spread_slot(&self, communicator: CommunicatorId, slot: OpenSlot, forwards: bool) {
        self.enter(|core| core.give_spread_slot(communicator, slot, forwards));
    }

    /// Forgets the multi-send of a communicator, and gives its slot back.
    pub fn close_spread(&self, communicator: CommunicatorId) {
        self.enter(|core| core.close_spread(communicator));
    }
}
