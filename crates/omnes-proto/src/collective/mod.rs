//! Barriers: nobody leaves before all have entered.
//!
//! Source: the collective protocol of the barrier paper [CB-R2–R11], with all its algorithms and
//! the counter as tables of [`omnes_topo::BarrierAlgorithm`]; the steps are made by
//! `omnes-firmware`, here or in the kernel NIC. Beyond it: several ranks per node, several
//! barriers under way, a wait that follows the network, and who is missing.
//!
//! ```text
//!   node A: ranks ─JOIN─▶ leader ◀──steps between leaders──▶ leader ◀─JOIN─ ranks :node B
//!                 ◀─RELEASE─                                        ─RELEASE─▶
//! ```
//!
//! A group's nodes are known to all. The ranks of a node tell its leader that they have entered;
//! then the leader runs the network's part with the other leaders; then it releases its node. A
//! message is a header: barrier, step and sender are all that there is to say [CB-R3, R5], and
//! what words there are, at most four.
//!
//! Loss: nothing is acknowledged. A rank that misses a message asks the one that owes it, which
//! makes it again from its record, also for the barrier before [CB-R6, R8]. In the same way a
//! node's leader asks ranks that have not joined, and they ask the leader for the release.
//!
//! Guarantees: a barrier is done here only after every member has entered it, whatever packets are
//! lost, doubled or overtaken; barriers of a group are done in the order of entering; without loss
//! the packets are those of the algorithm, and two for each further rank of a node. If a member
//! fails, what is under way ends with an error that names it.
//!
//! Words: a barrier down a tree may combine words of each member, the first with the first and so
//! on, of which all get the results. Headers carry the first in what a step does not need, so an
//! allreduce of a word costs what a barrier does; others follow the tag. Words are combined in an
//! order that does not depend on time: on a node in the order of seats, between nodes in that of
//! the table.
//!
//! Assumes: members open a group alike, and enter only after all have let go of an earlier group of
//! the same communicator. The caller drains transmits and events after each input.
//!
//! Deviations: D-08 a NACK is sent for a step that waits for all to each that owes it, up to
//! [`NACKS_PER_ROUND`](crate::limits::NACKS_PER_ROUND) at a time; D-09 a barrier that misses a
//! message of a member that has left ends when another member says that it is done.
//!
//! Cost: no allocation between [`Collective::open`] and loss, except for the first word and for the
//! second of several barriers that are entered at once. State per group: 2 KiB at a leader, 4 KiB
//! more once words are combined, 8 B for each node that sends to it, 44 B for each rank that it
//! leads, and 5 B per node at one that waits for all; nothing that grows with the group elsewhere.
//! 56 B for each communicator that was closed.

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
use closed_groups::Rested;
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
    /// Groups that cannot be served, and why.
    refused: BTreeMap<CommunicatorId, CollectiveError>,
    /// Groups that are closed and over.
    rested: BTreeMap<CommunicatorId, Rested>,
    failed: BTreeSet<Rank>,
    /// Groups that may have something to send.
    ready: VecDeque<usize>,
    /// Groups with a deadline; without one there is nothing to wake up for.
    armed: usize,
    wake_at: Option<Instant>,
}

impl Collective {
    /// The end of rank `me` of `size` ranks.
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
            rested: BTreeMap::new(),
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

    /// What was counted so far.
    pub fn counters(&self) -> &CollectiveCounters {
        &self.common.counters
    }

    // ---- groups -----------------------------------------------------------------------------

    /// Makes a group known, in place of one of the same communicator, whose barriers are
    /// forgotten without an event. Its first barrier is number 1. Packets that come before are
    /// asked for again later.
    ///
    /// A group that cannot be served is not open, and [`Self::enter`] says why: it is too large,
    /// or the nodes are not made as [`BarrierGroupConfig::nodes`] demands. One with a member that
    /// has failed is broken from the start.
    pub fn open(&mut self, group: BarrierGroupConfig) {
        self.open_after(&group, 0);
    }

    /// As [`Self::open`]; the first barrier is the one after `epoch`.
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
        // So that a barrier allocates nothing.
        self.common.nic_waits.reserve(self.groups.len() + 1);
        self.ready.reserve(self.groups.len() + 1);
        let at = self.groups.insert(group);
        self.by_name.insert(communicator, at);
        self.latest.set(at);
    }

    /// Forgets a group as far as the caller is concerned: no more of its barriers can be entered,
    /// and no more events come. How it has ended is kept, as others may miss a message of the last
    /// barrier; and what this machine runs goes on, as others may wait for it. Nothing happens if
    /// it is not open.
    pub fn close(&mut self, communicator: CommunicatorId) {
        self.refused.remove(&communicator);
        let Some(at) = self.find_open(communicator) else { return };
        self.groups[at].close(&mut self.common);
        self.settle(at);
    }

    /// True if the group is known and can be served.
    pub fn is_open(&self, communicator: CommunicatorId) -> bool {
        self.find_open(communicator).is_some()
    }

    /// True if the group is open and its barriers may combine words.
    pub fn can_combine(&self, communicator: CommunicatorId) -> bool {
        self.find_open(communicator).is_some_and(|at| self.groups[at].can_combine)
    }

    fn remove(&mut self, communicator: CommunicatorId) {
        self.refused.remove(&communicator);
        self.rested.remove(&communicator);
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

    /// What has been done to a group may have given it something to do, now or later, or have ended
    /// it.
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
        self.put_to_rest(at);
    }

    // ---- barriers ---------------------------------------------------------------------------

    /// Enters the next barrier of a group; its number, which [`Event::Done`] repeats. Several may
    /// be entered before the first is done: they run one after the other.
    ///
    /// # Errors
    /// [`CollectiveError`] says why there is none; nothing has changed then.
    pub fn enter(
        &mut self,
        now: Instant,
        communicator: CommunicatorId,
    ) -> Result<u32, CollectiveError> {
        self.enter_with(now, communicator, Contribution::default())
    }

    /// As [`Self::enter`], with words to combine with those of all other members, who bring as many
    /// and combine them in the same way. What they make together is the same everywhere, bit for
    /// bit.
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

    /// Groups whose barrier the kernel NIC runs at present: what its pages say of them is to be
    /// shown to [`Self::handle_nic`].
    pub fn nic_waits(&self) -> impl Iterator<Item = CommunicatorId> {
        self.common.nic_waits.iter().copied()
    }

    /// Takes in what the NIC's page shows of a group's barrier; nothing happens if it runs none.
    pub fn handle_nic(&mut self, now: Instant, communicator: CommunicatorId, view: &NicView) {
        let Some(at) = self.find_open(communicator) else { return };
        let group = &mut self.groups[at];
        group.on_view(now, &mut self.common, view);
        group.go_on(now, &mut self.common);
        self.settle(at);
    }

    /// True if the kernel NIC has not seen the doorbells of a group for so many times that it
    /// will see none: its barriers do not end.
    pub fn is_unheard(&self, communicator: CommunicatorId) -> bool {
        self.find_open(communicator).is_some_and(|at| self.groups[at].is_unheard())
    }

    /// Doorbells of a group may not have left this host, so that no NIC could see them: they are
    /// counted anew.
    pub fn excuse_doorbells(&mut self, communicator: CommunicatorId) {
        if let Some(at) = self.find_open(communicator) {
            self.groups[at].excuse_doorbells();
        }
    }

    /// Asks the members who has entered the barrier of a group that is under way, the oldest that
    /// is not done; those who are not known to have are asked again and again until it is done, and
    /// then for the next one, as far as this rank has entered some by now. Nothing happens if none
    /// is under way or they are being asked.
    pub fn ask(&mut self, communicator: CommunicatorId) {
        let Some(at) = self.find_open(communicator) else { return };
        self.groups[at].ask();
        self.settle(at);
    }

    /// Members that, as far as is known, have not entered the barrier under way, by node; empty if
    /// all have or none is under way.
    pub fn missing(&self, communicator: CommunicatorId) -> Vec<Rank> {
        let Some(at) = self.find_open(communicator) else { return Vec::new() };
        self.groups[at].missing(0).map(|(_, rank)| rank).collect()
    }

    /// True if every member has answered the question of [`Self::ask`] about the barrier under way,
    /// is known to have entered, or has left; also if none is under way.
    pub fn has_asked_all(&self, communicator: CommunicatorId) -> bool {
        let at = self.find_open(communicator);
        at.is_none_or(|at| self.groups[at].has_asked_all(&self.common))
    }

    /// True if no barrier is under way and nothing is to be sent. Groups that are closed do not
    /// count.
    pub fn is_idle(&self) -> bool {
        let is_idle =
            |group: &Group| group.is_closed || group.phase == Phase::Idle && !group.has_output();
        self.common.answers.is_empty() && self.groups.iter().all(|(_, group)| is_idle(group))
    }

    // ---- what the driver drains --------------------------------------------------------------

    /// Hands out the next packet, which counts as sent from now on. `None` means that nothing is to
    /// be sent before the next input or timeout.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Outbound> {
        while let Some(at) = self.ready.front().copied() {
            if let Some(outbound) = self.groups[at].poll_transmit(now, &mut self.common) {
                return Some(outbound);
            }
            self.ready.pop_front();
            self.groups[at].is_ready = false;
            // The last question of a round sets the time of the next.
            self.settle(at);
        }
        let answer = self.common.answers.pop_front()?;
        self.common.counters.repeated += u64::from(answer.header.kind == Kind::Step);
        Some(answer)
    }

    /// Next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.common.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is wanted next, if ever.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Lets timers run out that are due at `now`; harmless if none is.
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

    /// A rank has failed: all groups with it are broken, and what is under way in them ends with
    /// an error.
    pub fn fail_peer(&mut self, rank: Rank) {
        self.failed.insert(rank);
        self.for_each(|group, common| group.break_off(common, rank));
    }

    /// A rank has left in good order. A barrier that it has entered may still end, so nothing is
    /// given up: a rank that misses something asks others, a few at a time, whether they are done.
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
