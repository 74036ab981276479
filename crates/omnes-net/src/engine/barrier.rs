//! Barriers: groups, who runs their network part, and the operations.

use super::Engine;
use crate::links::NicAddresses;
use crate::operations::{Operation, OperationError, Outcome, Spot};
use crate::socket::UdpSocket;
use omnes_nic::{Nic, NicError, OpenSlot, SlotPlan};
use omnes_proto::collective::{BarrierGroupConfig, Contribution};
use omnes_wire::{CommunicatorId, Rank};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A slot of the kernel NIC that is to be opened.
pub struct SlotRequest {
    plan: SlotPlan,
    /// Descriptors of the sockets, which need to be open only while it is opened.
    own: OwnedFd,
    group: Option<OwnedFd>,
}

impl SlotRequest {
    /// Opens the slot, which may wait for tens of milliseconds.
    ///
    /// # Errors
    /// [`NicError`].
    pub fn open(&self, nic: &mut Nic) -> Result<OpenSlot, NicError> {
        nic.open(&self.plan, self.own.as_fd(), self.group.as_ref().map(AsFd::as_fd))
    }
}

impl Engine {
    /// The UDP ports of this rank's NIC sockets, for steps and for multi-send; 0 where the job has
    /// one node only.
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

    /// Makes the ports of all ranks' NIC sockets known, in order of ranks.
    pub fn know_nics(&self, ports: &[(u16, u16)]) {
        self.enter(|core| core.links.know_nics(ports));
    }

    /// Where packets for each rank's NIC go, in order of ranks; empty before
    /// [`Self::know_nics`].
    pub fn nics(&self) -> Vec<NicAddresses> {
        self.enter(|core| core.links.nics().to_vec())
    }

    /// What is needed to open a slot of the kernel NIC, by any thread: packets of this rank's NIC
    /// socket find it, and, if the plan says so, those to the job's multicast group; of the plan,
    /// the doorbell is filled in here. The slot must go before the engine does.
    ///
    /// # Errors
    /// [`NicError::Plan`] for a plan that makes no sense, or where there is no such socket;
    /// [`NicError::System`] if the process may open no more files.
    pub fn slot_request(&self, mut plan: SlotPlan) -> Result<SlotRequest, NicError> {
        let failed = |source| NicError::System { what: "a slot's socket", source };
        // Loading firmware for nothing would take its time.
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

    /// Makes a group known; with `slot`, the kernel NIC runs its barriers. The same on all of its
    /// ranks, but they need not wait for each other, unless the NIC runs them.
    pub fn open_barrier_group(&self, group: BarrierGroupConfig, slot: Option<OpenSlot>) {
        self.enter(|core| core.open_barrier_group(group, slot));
    }

    /// Forgets a group, and gives its slot back.
    pub fn close_barrier_group(&self, communicator: CommunicatorId) {
        self.enter(|core| core.close_barrier_group(communicator));
    }

    /// Lets others of this rank's core take the message to all that it has just waited for, before
    /// it waits for them; nothing happens where that is not due.
    pub fn let_others_go_first(&self) {
        self.shared.let_others_go_first();
    }

    /// Enters a group's next barrier. Several may be under way.
    ///
    /// # Errors
    /// [`OperationError`] for a group that is not known, or if a rank has failed or left.
    pub fn start_barrier(&self, communicator: CommunicatorId) -> Result<Operation, OperationError> {
        self.start_reduction(communicator, Contribution::default())
    }

    /// As [`Self::start_barrier`], with words that all members combine on the way; the operation
    /// ends with what they make, [`Completion::words`](crate::Completion::words). Only for groups
    /// whose algorithm is a tree, and whose members all bring as many words.
    ///
    /// # Errors
    /// As [`Self::start_barrier`], also for a group that cannot combine words.
    pub fn start_reduction(
        &self,
        communicator: CommunicatorId,
        own: Contribution,
    ) -> Result<Operation, OperationError> {
        self.enter(|core| core.start_barrier(communicator, own))
    }

    /// Waits for an operation as [`Self::wait`] does, but at most `limit`; `None` if it has not
    /// ended by then, and goes on.
    pub fn wait_at_most(
        &self,
        operation: Operation,
        limit: Duration,
        concerns: impl Fn(crate::operations::Disruption<'_>) -> bool,
    ) -> Option<Outcome> {
        self.wait_for(operation, Some(limit), concerns)
    }

    /// Asks the members of a group who has entered its barrier, and waits for answers for at most
    /// `limit`: the ranks that, as far as is known then, have not.
    pub fn missing(&self, communicator: CommunicatorId, limit: Duration) -> Vec<Rank> {
        self.enter(|core| {
            core.endpoint.collective_mut().ask(communicator);
            core.push();
        });
        // Interrupted or late: what is known then counts.
        let _ = self.wait_until(Some(limit), Spot::Anywhere, |core| {
            core.endpoint.collective_mut().has_asked_all(communicator).then_some(())
        });
        self.enter(|core| core.endpoint.collective_mut().missing(communicator))
    }
}
