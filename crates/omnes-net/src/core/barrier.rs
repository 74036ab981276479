//! Barriers: how they start and end, and the pages by which the kernel NIC reports on them.

use super::Core;
use super::blame::Blame;
use crate::multicast::HeardFor;
use crate::multisend::MultiSend;
use crate::operations::{Completion, Operation, OperationError, OperationId, OperationKind, Spot};
use omnes_nic::{Counters, OpenSlot, Page};
use omnes_proto::collective::{
    BarrierGroupConfig, CollectiveError, Contribution, Event, NicView, Runner,
};
use omnes_wire::{CommunicatorId, Instant};
use std::collections::VecDeque;
use std::time::Duration;

/// Interval between checks for unusable multi-send slots: each check is a system call.
const LOST_INTERVAL: Duration = Duration::from_millis(50);

/// Barriers that callers wait for, and slots of the NIC.
#[derive(Default)]
pub(super) struct Barriers {
    /// In the order in which they were entered: those of a group end in this order, so the one that
    /// is searched for is near the front.
    awaited: VecDeque<Awaited>,
    slots: Vec<Slot>,
    /// Counters of slots that were given back.
    given_back: Counters,
    /// Time of the last check for unusable multi-send slots.
    looked_at: Instant,
}

struct Awaited {
    communicator: CommunicatorId,
    epoch: u32,
    /// The operation that waits, if any.
    operation: Option<OperationId>,
}

impl Barriers {
    /// Records that no caller waits for a barrier any more.
    pub(super) fn forget(&mut self, id: OperationId) {
        let of = self.awaited.iter_mut().find(|it| it.operation == Some(id));
        if let Some(awaited) = of {
            awaited.operation = None;
        }
    }
}

/// A slot of the kernel NIC that runs a group's barriers.
struct Slot {
    communicator: CommunicatorId,
    slot: OpenSlot,
    /// State of the page when it was last shown to the machine.
    shown: Shown,
    blame: Blame,
}

/// Progress of a page when it was shown to the machine.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Shown {
    entered: u32,
    done: u32,
    at: u32,
}

impl Core {
    /// Opens a group; with `slot`, the kernel NIC runs its barriers.
    pub(crate) fn open_barrier_group(&mut self, group: BarrierGroupConfig, slot: Option<OpenSlot>) {
        let communicator = group.communicator;
        // If the kernel NIC runs a barrier, its page shows the end.
        let goes_to_all = group.is_multicast && group.runner == Runner::Host;
        if goes_to_all && self.leads_in(&group.nodes) {
            self.links.hear_group_for(HeardFor::Barriers(communicator));
        }
        self.endpoint.collective_mut().open(group);
        let slot = slot.map(|slot| Slot {
            communicator,
            slot,
            shown: Shown::default(),
            blame: Blame::default(),
        });
        self.barriers.slots.extend(slot);
    }

    /// Closes a group, and gives its slot back.
    pub(crate) fn close_barrier_group(&mut self, communicator: CommunicatorId) {
        self.endpoint.collective_mut().close(communicator);
        self.barriers.awaited.retain(|it| it.communicator != communicator);
        self.links.forget_in_group(HeardFor::Barriers(communicator));
        let Barriers { slots, given_back, .. } = &mut self.barriers;
        for closed in slots.extract_if(.., |slot| slot.communicator == communicator) {
            given_back.add(&closed.slot.page().counters());
        }
    }

    /// Closes a communicator's multi-send, and gives its slot back.
    pub(crate) fn close_multisend(&mut self, communicator: CommunicatorId) {
        let closed = self.links.remove_multisend(communicator);
        if let Some(slot) = closed.as_ref().and_then(MultiSend::slot) {
            self.barriers.given_back.add(&slot.page().counters());
        }
    }

    /// Gives a communicator's multi-send a slot, if it has not been closed meanwhile.
    pub(crate) fn give_multisend_slot(
        &mut self,
        communicator: CommunicatorId,
        slot: OpenSlot,
        forwards: bool,
    ) {
        let multisend = self.links.multisend_mut(communicator);
        if let Some(before) = multisend.and_then(|multisend| multisend.give_slot(slot, forwards)) {
            self.barriers.given_back.add(&before.page().counters());
        }
    }

    /// Enters a group's next barrier with a contribution, and sends the first packets.
    pub(crate) fn start_barrier(
        &mut self,
        communicator: CommunicatorId,
        own: Contribution,
    ) -> Result<Operation, OperationError> {
        self.check_standing()?;
        let now = self.now();
        let entered = self.endpoint.collective_mut().enter_with(now, communicator, own);
        let epoch = entered.map_err(|error| match error {
            CollectiveError::PeerFailed { rank } => self.gone(rank),
            error => OperationError::Collective(error),
        })?;
        let id = self.operations.start();
        self.barriers.awaited.push_back(Awaited { communicator, epoch, operation: Some(id) });
        let has_slot = self.barriers.slots.iter().any(|slot| slot.communicator == communicator);
        let spot = if has_slot { Spot::Page } else { Spot::Anywhere };
        self.send_at(now);
        Ok(Operation { id, channel: 0, kind: OperationKind::Barrier, spot, is_long: false })
    }

    pub(super) fn on_collective_event(&mut self, event: Event) {
        let (communicator, epoch, ended) = match event {
            Event::Done { communicator, epoch, words } => (communicator, epoch, Ok(words)),
            Event::Failed { communicator, epoch, rank } => (communicator, epoch, Err(rank)),
        };
        let is_this = |it: &Awaited| it.communicator == communicator && it.epoch == epoch;
        let place = self.barriers.awaited.iter().position(is_this);
        let Some(it) = place.and_then(|place| self.barriers.awaited.remove(place)) else { return };
        let outcome = match ended {
            Ok(words) => Ok(Completion { words, ..self.own_completion() }),
            Err(rank) => Err(self.gone(rank)),
        };
        if let Some(operation) = it.operation {
            self.operations.end(operation, outcome);
        }
    }

    /// Shows the machine the pages of the NIC in which barriers have made progress; true if any is
    /// done. The consequences are handled by the next step; a step of the NIC alone has none.
    pub(super) fn poll_pages(&mut self) -> bool {
        if self.barriers.slots.is_empty() {
            return false;
        }
        let mut has_news = false;
        for Slot { communicator, slot, shown, blame } in &mut self.barriers.slots {
            let page = slot.page();
            let seen = Shown { entered: page.entered(), done: page.done(), at: page.at() };
            if seen != *shown {
                has_news |= seen.done != shown.done;
                *blame = Blame::default(); // The NIC has seen packets.
                *shown = seen;
                let now = self.clock.now();
                self.endpoint.collective_mut().handle_nic(now, *communicator, &view(page));
            }
        }
        has_news
    }

    /// Shows the machine all pages before it asks for missing packets: a report to a rank that
    /// waits for all ranks does not count as news. Slots that are gone are detected here.
    pub(super) fn show_pages(&mut self) {
        let (mut lost, mut unheard) = (Vec::new(), Vec::new());
        let now = self.clock.now();
        for Slot { communicator, slot, .. } in &self.barriers.slots {
            self.endpoint.collective_mut().handle_nic(now, *communicator, &view(slot.page()));
            let is_awaited =
                self.barriers.awaited.iter().any(|it| it.communicator == *communicator);
            if is_awaited && slot.is_lost() {
                lost.push(*communicator);
            } else if is_awaited && self.endpoint.collective().has_lost_doorbells(*communicator) {
                unheard.push(*communicator);
            }
        }
        lost.extend(unheard.into_iter().filter(|communicator| self.blames_nic(*communicator)));
        for communicator in lost {
            self.end_barriers_of(communicator);
        }
        let Barriers { given_back, looked_at, .. } = &mut self.barriers;
        if now.since(*looked_at) >= LOST_INTERVAL {
            *looked_at = now;
            self.links
                .take_useless_slots()
                .for_each(|slot| given_back.add(&slot.page().counters()));
        }
    }

    /// Called when the NIC has not seen the doorbells of a group: true if the NIC is to blame.
    /// Otherwise the count starts anew.
    fn blames_nic(&mut self, communicator: CommunicatorId) -> bool {
        let answers = self.endpoint.signs_of_life();
        let slot = self.barriers.slots.iter_mut().find(|slot| slot.communicator == communicator);
        if slot.is_none_or(|slot| slot.blame.is_for_nic(answers)) {
            return true;
        }
        self.endpoint.collective_mut().reset_doorbell_count(communicator);
        if let Some(rank) = self.links.doorbells_lead_to() {
            self.endpoint.ask_for_sign_of_life(rank);
        }
        false
    }

    /// Ends the barriers of a group whose slot is gone: they cannot complete any more.
    fn end_barriers_of(&mut self, communicator: CommunicatorId) {
        let is_of = |it: &Awaited| it.communicator == communicator;
        let ended = self.barriers.awaited.iter().filter(|it| is_of(it));
        for operation in ended.filter_map(|it| it.operation) {
            self.operations.end(operation, Err(OperationError::NicLost));
        }
        self.barriers.awaited.retain(|it| !is_of(it));
        self.close_barrier_group(communicator);
    }

    /// Requests a packet from the NIC when a barrier ends, or cancels the request.
    pub(super) fn set_pages_sleeping(&mut self, sleeps: bool) {
        for slot in &self.barriers.slots {
            slot.slot.page().set_sleeping(sleeps);
        }
    }

    /// Sum of the NIC's counters for all slots so far.
    pub(crate) fn nic_counters(&self) -> Counters {
        let mut sum = self.barriers.given_back;
        let barriers = self.barriers.slots.iter().map(|slot| &slot.slot);
        for slot in barriers.chain(self.links.multisend_slots()) {
            sum.add(&slot.page().counters());
        }
        sum
    }
}

/// The complete state of a page.
fn view(page: &Page) -> NicView {
    let (entered, done, at) = (page.entered(), page.done(), page.at());
    NicView { entered, done, at, results: page.results(), arrived: page.arrived() }
}
