//! Barriers: groups, the slots of the kernel NIC that run them, and the operations.

use super::Engine;
use crate::links::NicAddresses;
use crate::operations::{Operation, OperationError, Outcome, Spot};
use crate::socket::UdpSocket;
use omnes_nic::{Nic, NicError, OpenSlot, SlotPlan};
use omnes_proto::collective::{BarrierGroupConfig, Contribution};
use omnes_wire::{CommunicatorId, Rank};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A request to open a slot of the kernel NIC.
pub struct SlotRequest {
    plan: SlotPlan,
    /// Descriptors of the sockets, which need to be open only while the slot is opened.
    own: OwnedFd,
    group: Option<OwnedFd>,
}

impl SlotRequest {
    /// Opens the slot, which may take tens of milliseconds.
    ///
    /// # Errors
    /// [`NicError`].
    pub fn open(&self, nic: &mut Nic) -> Result<OpenSlot, NicError> {
        nic.open(&self.plan, self.own.as_fd(), self.group.as_ref().map(AsFd::as_fd))
    }
}

impl Engine {
    /// UDP ports of this rank's NIC sockets, for steps and for multi-send; 0 if the job has only
    /// one node.
    pub fn nic_ports(&self) -> (u16, u16) {
        self.enter(|core| core.links.nic_ports())
    }

    /// The key under which a rank tags its packets.
    pub fn sender_key(&self, rank: Rank) -> [u8; 16] {
        self.key.sender(rank).to_bytes()
    }

    /// The job's number.
    pub fn job(&self) -> u32 {
        self.job
    }

    /// Sets the ports of all ranks' NIC sockets, in order of ranks.
    pub fn set_nic_ports(&self, ports: &[(u16, u16)]) {
        self.enter(|core| core.links.set_nic_ports(ports));
    }

    /// Addresses of each rank's NIC, in order of ranks; empty before [`Self::set_nic_ports`].
    pub fn nics(&self) -> Vec<NicAddresses> {
        self.enter(|core| core.links.nics().to_vec())
    }

    /// Returns a request with which any thread can open a slot of the kernel NIC. The slot takes
    /// packets of this rank's NIC socket and, if the plan says so, those to the job's multicast
    /// group; the plan's doorbell is filled in here. The slot must be closed before the engine is
    /// dropped.
    ///
    /// # Errors
    /// [`NicError::Plan`] for an invalid plan, or if there is no such socket; [`NicError::System`]
    /// if the process may open no more files.
    pub fn slot_request(&self, mut plan: SlotPlan) -> Result<SlotRequest, NicError> {
        let failed = |source| NicError::System { what: "a slot's socket", source };
        // Loading firmware for an invalid plan would waste time.
        plan.check()?;
        let (own, doorbell, group) = self.enter(|core| {
            let links = &core.links;
            let (own, doorbell) = match plan.tree {
                Some(_) => (links.multisend_socket(), None),
                None => (links.steps_socket(), links.doorbell_socket()),
            };
            let fd = |socket: Option<&UdpSocket>| socket.map(UdpSocket::fd);
            (fd(own), doorbell.map(UdpSocket::cookie), fd(links.group_socket()))
        });
        plan.doorbell = doorbell.transpose().map_err(failed)?;
        let own = own.ok_or(NicError::Plan { what: "a job on one node needs no slot" })?;
        let double = |fd| {
            // SAFETY: the sockets live as long as the engine does.
            unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().map_err(failed)
        };
        let group = group.filter(|_| plan.group.is_some()).map(double).transpose()?;
        Ok(SlotRequest { own: double(own)?, group, plan })
    }

    /// Opens a group; with `slot`, the kernel NIC runs its barriers. The group is the same on all
    /// of its ranks, but they need not wait for each other, unless the NIC runs the barriers.
    pub fn open_barrier_group(&self, group: BarrierGroupConfig, slot: Option<OpenSlot>) {
        self.enter(|core| core.open_barrier_group(group, slot));
    }

    /// Closes a group, and gives its slot back.
    pub fn close_barrier_group(&self, communicator: CommunicatorId) {
        self.enter(|core| core.close_barrier_group(communicator));
    }

    /// Lets other ranks of this rank's core process the broadcast that this rank has just waited
    /// for, before it waits for them; does nothing if that is not due.
    pub fn yield_core_if_due(&self) {
        self.shared.yield_core_if_due();
    }

    /// Enters a group's next barrier. Several may be in progress.
    ///
    /// # Errors
    /// [`OperationError`] if the group is not open, or if a rank has failed or left.
    pub fn start_barrier(&self, communicator: CommunicatorId) -> Result<Operation, OperationError> {
        self.start_reduction(communicator, Contribution::default())
    }

    /// As [`Self::start_barrier`], with words that all members combine on the way; the operation
    /// ends with the combined words, [`Completion::words`](crate::Completion::words). Only for
    /// groups whose algorithm is a tree, and whose members all contribute the same number of words.
    ///
    /// # Errors
    /// As [`Self::start_barrier`], and if the group cannot combine words.
    pub fn start_reduction(
        &self,
        communicator: CommunicatorId,
        own: Contribution,
    ) -> Result<Operation, OperationError> {
        self.enter(|core| core.start_barrier(communicator, own))
    }

    /// Waits for an operation as [`Self::wait`] does, but at most `limit`; `None` if it has not
    /// ended by then, in which case it continues.
    pub fn wait_at_most(
        &self,
        operation: Operation,
        limit: Duration,
        concerns: impl Fn(crate::operations::Disruption<'_>) -> bool,
    ) -> Option<Outcome> {
        self.wait_for(operation, Some(limit), concerns)
    }

    /// Asks the members of a group which ranks have entered its barrier, and waits for answers for
    /// at most `limit`. Returns the ranks that, as far as is known then, have not.
    pub fn missing(&self, communicator: CommunicatorId, limit: Duration) -> Vec<Rank> {
        self.enter(|core| {
            core.endpoint.collective_mut().ask(communicator);
            core.send_now();
        });
        // Also if the wait was interrupted or timed out, the answers received so far count.
        let _ = self.wait_until(Some(limit), Spot::Anywhere, |core| {
            core.endpoint.collective_mut().has_asked_all(communicator).then_some(())
        });
        self.enter(|core| core.endpoint.collective_mut().missing(communicator))
    }
}
