//! Barriers: no member leaves a barrier before all have entered it.
//!
//! Source: the collective protocol of the barrier paper [CB-R2–R11], with all its algorithms and
//! the counter as tables of [`omnes_topo::BarrierAlgorithm`]; `omnes-firmware` executes the steps,
//! here or in the kernel NIC. Beyond the paper: several ranks per node, several barriers in
//! progress, a wait that adapts to the network, and reports of the missing ranks.
//!
//! ```text
//!   node A: ranks ─JOIN─▶ leader ◀──steps between leaders──▶ leader ◀─JOIN─ ranks :node B
//!                 ◀─RELEASE─                                        ─RELEASE─▶
//! ```
//!
//! All members know the group's nodes. The ranks of a node tell its leader that they have entered;
//! then the leader runs the network's part with the other leaders; then it releases its node. A
//! message is only a header, with barrier, step and sender [CB-R3, R5], and at most four words.
//!
//! Loss: nothing is acknowledged. A rank that lacks a message asks the rank that owes it, which
//! rebuilds the message from its record, also for the previous barrier [CB-R6, R8]. In the same way
//! a node's leader asks ranks that have not joined, and they ask the leader for the release.
//!
//! Guarantees: a barrier completes here only after every member has entered it, even if packets are
//! lost, duplicated or reordered; barriers of a group complete in the order of entering; without
//! loss, the packets are those of the algorithm, and two for each further rank of a node. If a
//! member fails, the barriers in progress end with an error that names it.
//!
//! Words: a barrier along a tree may reduce words of all members, the first with the first and so
//! on; all members get the results. The header carries the first word in fields that a step does
//! not need, so an allreduce of one word costs no more than a barrier; the other words follow the
//! tag. The order in which words are combined does not depend on time: on a node it is that of the
//! seats, between nodes that of the table.
//!
//! Assumes: members open a group with the same settings, and enter only after all have closed an
//! earlier group of the same communicator. The caller drains transmits and events after each input.
//!
//! Deviations: D-08 if a step waits for all members, a NACK is sent to each that owes it, up to
//! [`NACKS_PER_ROUND`](crate::limits::NACKS_PER_ROUND) at a time; D-09 a barrier that lacks a
//! message of a member that has left ends when another member reports it as complete.
//!
//! Cost: no allocation between [`Collective::open`] and a loss, except for the first word and for
//! the second of several barriers that are entered together. State per group: 2 KiB at a leader, 4
//! KiB more once words are combined, 8 B for each node that sends to it, 44 B for each rank that it
//! leads, and 5 B per node at a rank that waits for all; nothing that grows with the group at other
//! ranks. 56 B for each closed communicator.

mod arrive;
mod closed_groups;
mod emit;
mod group;
mod interface;
mod joins;
mod members;
mod network;
mod outbox;
mod pace;
mod question;
#[cfg(test)]
mod tests;
mod told;
mod waiting;

pub use interface::{
    BarrierGroupConfig, CollectiveConfig, CollectiveCounters, CollectiveError, Event, NicView,
    Outbound, Runner, STEP_JOIN, STEP_RELEASE,
};
pub use omnes_firmware::barrier::{Combine, Contribution, can_combine};

use crate::limits::BARRIERS_OUTSTANDING_MAX;
use closed_groups::Dormant;
use group::{Common, Group, Phase};
use omnes_wire::{CommunicatorId, Instant, Kind, Rank};
use slab::Slab;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One rank's end of all barriers; see the module header.
#[derive(Debug)]
pub struct Collective {
    me: Rank,
    size: u32,
    common: Common,
    groups: Slab<Group>,
    by_name: BTreeMap<CommunicatorId, usize>,
    latest: Cell<usize>,
    /// Groups that cannot be served, with the reason.
    refused: BTreeMap<CommunicatorId, CollectiveError>,
    /// State of groups that are closed and over.
    dormant: BTreeMap<CommunicatorId, Dormant>,
    failed: BTreeSet<Rank>,
    /// Queue of groups that may have something to send.
    ready: VecDeque<usize>,
    /// Number of groups with a deadline; without one the machine need not wake up.
    armed: usize,
    wake_at: Option<Instant>,
}

impl Collective {
    /// Creates the end of rank `me` of `size` ranks.
    pub fn new(me: Rank, size: u32, config: CollectiveConfig) -> Self {
        let common = Common {
            me,
            config,
            counters: CollectiveCounters::default(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
            nic_waits: Vec::new(),
            departed: BTreeSet::new(),
        };
        Self {
            me,
            size,
            common,
            groups: Slab::new(),
            by_name: BTreeMap::new(),
            latest: Cell::new(0),
            refused: BTreeMap::new(),
            dormant: BTreeMap::new(),
            failed: BTreeSet::new(),
            ready: VecDeque::new(),
            armed: 0,
            wake_at: None,
        }
    }

    /// The settings.
    pub fn config(&self) -> &CollectiveConfig {
        &self.common.config
    }

    /// Counters of the machine.
    pub fn counters(&self) -> &CollectiveCounters {
        &self.common.counters
    }

    // ---- groups -----------------------------------------------------------------------------

    /// Opens a group, in the place of an earlier one of the same communicator, whose barriers are
    /// dropped without an event. The first barrier is number 1. Packets that arrive before this
    /// call are requested again later.
    ///
    /// A group that cannot be served is not open, and [`Self::enter`] returns the reason: it is too
    /// large, or its nodes violate the rules of [`BarrierGroupConfig::nodes`]. A group with a
    /// failed member is broken from the start.
    pub fn open(&mut self, group: BarrierGroupConfig) {
        self.open_after(&group, 0);
    }

    /// As [`Self::open`]; the first barrier is number `epoch + 1`.
    fn open_after(&mut self, config: &BarrierGroupConfig, epoch: u32) {
        let communicator = config.communicator;
        self.remove(communicator);
        let mut group = match Group::new(config, self.me, self.size, epoch) {
            Ok(group) => group,
            Err(error) => {
                self.refused.insert(communicator, error);
                return;
            }
        };
        for rank in &self.failed {
            group.break_off(&mut self.common, *rank);
        }
        // Reserves space so that a barrier allocates nothing.
        self.common.nic_waits.reserve(self.groups.len() + 1);
        self.ready.reserve(self.groups.len() + 1);
        let at = self.groups.insert(group);
        self.by_name.insert(communicator, at);
        self.latest.set(at);
    }

    /// Closes a group for the caller: no more of its barriers can be entered, and no more events
    /// arrive. Its final state is kept, as other members may lack a message of the last barrier;
    /// and barriers in progress on this machine continue, as other members may wait for them. No
    /// effect if the group is not open.
    pub fn close(&mut self, communicator: CommunicatorId) {
        self.refused.remove(&communicator);
        let Some(at) = self.find_open(communicator) else { return };
        self.groups[at].close(&mut self.common);
        self.settle(at);
    }

    /// True if the group has been opened and can be served.
    pub fn is_open(&self, communicator: CommunicatorId) -> bool {
        self.find_open(communicator).is_some()
    }

    /// True if the group is open and its barriers may combine words.
    pub fn can_combine(&self, communicator: CommunicatorId) -> bool {
        self.find_open(communicator).is_some_and(|at| self.groups[at].can_combine)
    }

    fn remove(&mut self, communicator: CommunicatorId) {
        self.refused.remove(&communicator);
        self.dormant.remove(&communicator);
        let Some(at) = self.by_name.remove(&communicator) else { return };
        let group = self.groups.remove(at);
        self.armed -= usize::from(group.is_armed);
        self.ready.retain(|ready| *ready != at);
        self.common.nic_waits.retain(|waits| *waits != communicator);
        if self.armed == 0 {
            self.wake_at = None;
        }
    }

    fn find(&self, communicator: CommunicatorId) -> Option<usize> {
        let latest = self.latest.get();
        if self.groups.get(latest).is_some_and(|group| group.communicator == communicator) {
            return Some(latest);
        }
        let at = *self.by_name.get(&communicator)?;
        self.latest.set(at);
        Some(at)
    }

    fn find_open(&self, communicator: CommunicatorId) -> Option<usize> {
        self.find(communicator).filter(|at| !self.groups[*at].is_closed)
    }

    /// Updates queue and timers after a change to a group, which may have something to do, now or
    /// later, or be over.
    fn settle(&mut self, at: usize) {
        let group = &mut self.groups[at];
        if !group.is_ready && group.has_output() {
            group.is_ready = true;
            self.ready.push_back(at);
        }
        let deadline = group.deadline();
        match (std::mem::replace(&mut group.is_armed, deadline.is_some()), deadline.is_some()) {
            (false, true) => self.armed += 1,
            (true, false) => self.armed -= 1,
            _ => {}
        }
        if self.armed == 0 {
            self.wake_at = None;
        } else if let Some(deadline) = deadline {
            self.wake_at = Some(self.wake_at.map_or(deadline, |wake_at| wake_at.min(deadline)));
        }
        self.make_dormant(at);
    }

    // ---- barriers ---------------------------------------------------------------------------

    /// Enters the next barrier of a group, and returns its number, which [`Event::Done`] repeats.
    /// Several may be entered before the first completes: they run one after the other.
    ///
    /// # Errors
    /// [`CollectiveError`] gives the reason; the call had no effect then.
    pub fn enter(
        &mut self,
        now: Instant,
        communicator: CommunicatorId,
    ) -> Result<u32, CollectiveError> {
        self.enter_with(now, communicator, Contribution::default())
    }

    /// As [`Self::enter`], with words to combine with those of all other members, which must
    /// contribute the same number of words and the same operation. The results are the same
    /// everywhere, bit for bit.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn enter_with(
        &mut self,
        now: Instant,
        communicator: CommunicatorId,
        own: Contribution,
    ) -> Result<u32, CollectiveError> {
        let Some(at) = self.find_open(communicator) else {
            let refused = self.refused.get(&communicator).copied();
            return Err(refused.unwrap_or(CollectiveError::UnknownGroup { communicator }));
        };
        let group = &mut self.groups[at];
        if let Some(rank) = group.broken_by {
            return Err(CollectiveError::PeerFailed { rank });
        }
        if group.outstanding() == BARRIERS_OUTSTANDING_MAX {
            return Err(CollectiveError::TooManyBarriers);
        }
        if own != Contribution::default() && !group.can_combine {
            return Err(CollectiveError::CannotCombine { communicator });
        }
        let epoch = group.enter(own);
        group.go_on(now, &mut self.common);
        self.settle(at);
        Ok(epoch)
    }

    /// Groups whose current barrier is run by the kernel NIC: what its pages show of them must be
    /// passed to [`Self::handle_nic`].
    pub fn nic_waits(&self) -> impl Iterator<Item = CommunicatorId> {
        self.common.nic_waits.iter().copied()
    }

    /// Handles what the NIC's page shows of a group's barrier; no effect if the NIC runs none.
    pub fn handle_nic(&mut self, now: Instant, communicator: CommunicatorId, view: &NicView) {
        let Some(at) = self.find_open(communicator) else { return };
        let group = &mut self.groups[at];
        group.on_view(now, &mut self.common, view);
        group.go_on(now, &mut self.common);
        self.settle(at);
    }

    /// True if the kernel NIC has missed so many consecutive doorbells of a group that it is
    /// assumed to see none any more: barriers of the group will not end.
    pub fn has_lost_doorbells(&self, communicator: CommunicatorId) -> bool {
        self.find_open(communicator).is_some_and(|at| self.groups[at].has_lost_doorbells())
    }

    /// Resets the count of missed doorbells of a group: they may not have left this host, so that
    /// no NIC could see them.
    pub fn reset_doorbell_count(&mut self, communicator: CommunicatorId) {
        if let Some(at) = self.find_open(communicator) {
            self.groups[at].reset_doorbell_count();
        }
    }

    /// Asks the members which of them have entered the oldest barrier in progress of a group.
    /// Members not known to have entered are asked repeatedly until it completes, and then about
    /// the next one, as far as this rank has entered some by now. No effect if none is in progress,
    /// or if the members are already being asked.
    pub fn ask(&mut self, communicator: CommunicatorId) {
        let Some(at) = self.find_open(communicator) else { return };
        self.groups[at].ask();
        self.settle(at);
    }

    /// Members that are not known to have entered the barrier in progress, by node; empty if all
    /// have entered it or none is in progress.
    pub fn missing(&self, communicator: CommunicatorId) -> Vec<Rank> {
        let Some(at) = self.find_open(communicator) else { return Vec::new() };
        self.groups[at].missing(0).map(|(_, rank)| rank).collect()
    }

    /// True if every member has answered the question of [`Self::ask`] about the barrier in
    /// progress, is known to have entered it, or has left; also if none is in progress.
    pub fn has_asked_all(&self, communicator: CommunicatorId) -> bool {
        let at = self.find_open(communicator);
        at.is_none_or(|at| self.groups[at].has_asked_all(&self.common))
    }

    /// True if no barrier is in progress and nothing is to be sent. Closed groups do not count.
    pub fn is_idle(&self) -> bool {
        let is_idle =
            |group: &Group| group.is_closed || group.phase == Phase::Idle && !group.has_output();
        self.common.answers.is_empty() && self.groups.iter().all(|(_, group)| is_idle(group))
    }

    // ---- what the driver drains --------------------------------------------------------------

    /// Hands out the next packet, which counts as sent from now on. `None` means that there is
    /// nothing to send before the next input or timeout.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Outbound> {
        while let Some(at) = self.ready.front().copied() {
            if let Some(outbound) = self.groups[at].poll_transmit(now, &mut self.common) {
                return Some(outbound);
            }
            self.ready.pop_front();
            self.groups[at].is_ready = false;
            // The last question of a round sets the time of the next round.
            self.settle(at);
        }
        let answer = self.common.answers.pop_front()?;
        self.common.counters.repeated += u64::from(answer.header.kind == Kind::Step);
        Some(answer)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.common.events.pop_front()
    }

    /// Time at which [`Self::handle_timeout`] is to be called next, if any.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Fires all timers that are due at `now`; harmless if none is.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.wake_at.is_none_or(|at| at > now) {
            return;
        }
        self.wake_at = None;
        for at in 0..self.groups.capacity() {
            let Some(group) = self.groups.get_mut(at) else { continue };
            if group.is_armed {
                group.on_deadline(now, &mut self.common);
                self.settle(at);
            }
        }
    }

    // ---- ranks that go -----------------------------------------------------------------------

    /// Handles the failure of a rank: all groups that contain it are broken, and barriers in
    /// progress in them end with an error.
    pub fn fail_peer(&mut self, rank: Rank) {
        self.failed.insert(rank);
        self.for_each(|group, common| group.break_off(common, rank));
    }

    /// Handles the departure of a rank in good order. A barrier that it has entered may still
    /// complete, so nothing is abandoned: a rank that lacks a message asks others, a few at a time,
    /// whether they have completed the barrier.
    pub fn depart_peer(&mut self, rank: Rank) {
        self.common.departed.insert(rank);
        let is_member = |group: &Group| group.members.place(rank).is_some();
        self.for_each(|group, _| group.has_departed |= is_member(group));
    }

    fn for_each(&mut self, change: impl Fn(&mut Group, &mut Common)) {
        for at in 0..self.groups.capacity() {
            if let Some(group) = self.groups.get_mut(at) {
                change(group, &mut self.common);
                self.settle(at);
            }
        }
    }
}
