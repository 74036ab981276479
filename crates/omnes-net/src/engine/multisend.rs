//! Multi-send: how packets reach all ranks if there is no multicast group.

use super::Engine;
use crate::multisend::{MultiSend, MultiSendPlan};
use omnes_nic::OpenSlot;
use omnes_wire::CommunicatorId;
use std::sync::Arc;

impl Engine {
    /// Sends packets to all ranks by multi-send from now on, for the communicators that open one.
    /// To be called before any group is opened, on all ranks, after [`Self::disable_multicast`].
    pub fn use_multisend(&self) {
        self.enter(|core| core.links.use_multisend());
    }

    /// Opens the multi-send of a communicator; false if the addresses of its ranks are not known.
    /// All of its ranks open it with the same tree; they need not wait for each other.
    pub fn open_multisend(&self, plan: MultiSendPlan) -> bool {
        self.enter(|core| {
            let nics = core.links.nics().to_vec();
            let multisend = MultiSend::new(plan, |rank| Some(nics.get(rank.index())?.multisend));
            let is_known = multisend.is_some();
            if let Some(multisend) = multisend {
                core.close_multisend(multisend.communicator());
                core.links.add_multisend(multisend);
            }
            is_known
        })
    }

    /// Returns a function that gives a communicator's multi-send a slot of the kernel NIC, with the
    /// same tree; if `forwards`, the slot also forwards incoming packets. It may be called from any
    /// thread while the engine exists; ranks need not coordinate. A slot acts on packets from the
    /// moment it is opened, in addition to this rank itself until it is given, so it should be
    /// given immediately.
    pub fn multisend_slot_giver(
        &self,
        communicator: CommunicatorId,
        forwards: bool,
    ) -> impl FnOnce(OpenSlot) + Send + use<> {
        let shared = Arc::downgrade(&self.shared);
        move |slot| {
            if let Some(shared) = shared.upgrade() {
                shared.enter(|core| core.give_multisend_slot(communicator, slot, forwards));
            }
        }
    }

    /// Closes the multi-send of a communicator, and gives its slot back.
    pub fn close_multisend(&self, communicator: CommunicatorId) {
        self.enter(|core| core.close_multisend(communicator));
    }
}
