//! State of one group's barriers at this rank.
//!
//! ```text
//!                  leader, and all of its node have joined
//!        enter            ┌──────────▶ Network ──────┐ done
//!   Idle ─────▶ Joining ──┘ (one node: done at once) ├──▶ Idle, or the next one entered
//!     │                                              │
//!     └───────▶ Held ────────────────────────────────┘ released
//!        enter, not the leader
//! ```

use super::interface::{
    BarrierGroupConfig, CollectiveConfig, CollectiveCounters, CollectiveError, Event, NicView,
    Outbound, Runner, STEP_JOIN, STEP_RELEASE,
};
use super::joins::Joins;
use super::members::Members;
use super::network::Network;
use super::outbox::Outbox;
use super::question::Question;
use super::told::Told;
use super::waiting::Waiting;
use crate::lane::earliest;
use crate::limits::{
    BARRIERS_OUTSTANDING_MAX, DOORBELLS_MAX, GROUP_NODES_MAX, HEARSAY_ASKS, NACKS_PER_ROUND,
    NIC_NODES_MAX,
};
use omnes_firmware::barrier::{Action, Contribution, can_combine};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Instant, Rank, Words};
use std::collections::{BTreeSet, VecDeque};

/// State shared by all groups of a rank.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) me: Rank,
    pub(super) config: CollectiveConfig,
    pub(super) counters: CollectiveCounters,
    pub(super) events: VecDeque<Event>,
    pub(super) answers: VecDeque<Outbound>,
    /// Groups whose current barrier is run by the kernel NIC.
    pub(super) nic_waits: Vec<CommunicatorId>,
    /// Ranks that have left.
    pub(super) departed: BTreeSet<Rank>,
}

/// What a group is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing: all barriers entered are complete.
    Idle,
    /// At a leader: for the other ranks of its node.
    Joining,
    /// At a leader: for the network's part.
    Network,
    /// At other ranks: for the release by the leader.
    Held,
}

/// True if a member that is known to have entered `newest` has entered barrier `epoch`, which is in
/// progress. Old knowledge is no proof, as numbers wrap.
pub(super) fn has_reached(newest: u32, epoch: u32) -> bool {
    newest.wrapping_sub(epoch) <= BARRIERS_OUTSTANDING_MAX
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) communicator: CommunicatorId,
    pub(super) members: Members,
    /// At the leader of one of several nodes.
    pub(super) network: Option<Network>,
    pub(super) phase: Phase,
    /// Newest barrier that the caller has entered.
    pub(super) entered: u32,
    /// Newest completed barrier; unless idle, the next one is in progress.
    pub(super) done: u32,
    /// Results of the newest completed barrier.
    pub(super) results: Words,
    /// True if barriers may combine words.
    pub(super) can_combine: bool,
    /// This rank's contributions to barriers that have been entered but not begun.
    contributions: VecDeque<Contribution>,
    /// Its contributions to the two barriers that have begun last, by parity.
    brought: [Contribution; 2],
    pub(super) broken_by: Option<Rank>,
    /// The caller needs no more events of this group.
    pub(super) is_closed: bool,
    /// A member has left.
    pub(super) has_departed: bool,
    /// Joins of the barrier after the completed one.
    joins: Joins,
    told: Told,
    pub(super) question: Option<Question>,
    pub(super) outbox: Outbox,
    pub(super) waiting: Waiting,
    /// Number of consecutive doorbells that the kernel NIC has not seen.
    unheard: u32,
    /// The group is in the queue of groups that may have something to send.
    pub(super) is_ready: bool,
    /// The group is counted among those with a deadline.
    pub(super) is_armed: bool,
}

impl Group {
    /// Creates a group all of whose members have completed barrier `epoch`.
    pub(super) fn new(
        config: &BarrierGroupConfig,
        me: Rank,
        size: u32,
        epoch: u32,
    ) -> Result<Self, CollectiveError> {
        let nodes_max = match config.runner {
            // A page shows which nodes have arrived if one step waits for all.
            Runner::Nic if config.algorithm == BarrierAlgorithm::Counter => NIC_NODES_MAX,
            Runner::Nic | Runner::Host => GROUP_NODES_MAX,
        };
        let members = Members::new((me, size), &config.nodes, nodes_max)?;
        let (own, nodes) = (members.own(), members.nodes());
        let has_network = members.is_leader(own) && nodes > 1;
        let place = (own.node, nodes);
        let network = has_network.then(|| {
            Network::new(config.algorithm, config.runner, place, config.is_multicast, epoch)
        });
        let led = members.led().len() as u32;
        // With the counter all nodes report to one rank, which releases all; otherwise it releases
        // at most the ranks of its node.
        let askers = if config.algorithm == BarrierAlgorithm::Counter { nodes } else { 1 };
        let told = Told::new(members.led(), epoch);
        Ok(Self {
            results: Words::NONE,
            can_combine: nodes == 1 || can_combine(config.algorithm, nodes),
            contributions: VecDeque::with_capacity(1),
            brought: [Contribution::default(); 2],
            communicator: config.communicator,
            members,
            network,
            phase: Phase::Idle,
            entered: epoch,
            done: epoch,
            broken_by: None,
            is_closed: false,
            has_departed: false,
            joins: Joins::new(led),
            told,
            question: None,
            outbox: Outbox::default(),
            waiting: Waiting::new(me, askers),
            unheard: 0,
            is_ready: false,
            is_armed: false,
        })
    }

    /// Number of the barrier in progress.
    pub(super) fn under_way(&self) -> Option<u32> {
        (self.phase != Phase::Idle).then(|| self.done.wrapping_add(1))
    }

    /// Number of barriers that have been entered but not completed.
    pub(super) fn outstanding(&self) -> u32 {
        self.entered.wrapping_sub(self.done)
    }

    /// True if this rank leads its node.
    pub(super) fn leads(&self) -> bool {
        self.members.is_leader(self.members.own())
    }

    /// True if the kernel NIC, which sees a doorbell the moment it is sent, is assumed to see none
    /// of this group any more.
    pub(super) fn has_lost_doorbells(&self) -> bool {
        self.unheard >= DOORBELLS_MAX
    }

    pub(super) fn reset_doorbell_count(&mut self) {
        self.unheard = 0;
    }

    /// True if the kernel NIC runs the barriers of this group.
    pub(super) fn is_nic(&self) -> bool {
        self.network.as_ref().is_some_and(Network::is_nic)
    }

    // ---- how a barrier goes on --------------------------------------------------------------

    /// Enters the next barrier for this rank, and returns its number. The caller then calls
    /// [`Self::go_on`].
    pub(super) fn enter(&mut self, own: Contribution) -> u32 {
        self.entered = self.entered.wrapping_add(1);
        self.contributions.push_back(own);
        self.entered
    }

    /// Contribution of this rank to barrier `epoch`, one of the two that have begun last.
    pub(super) fn brought(&self, epoch: u32) -> Words {
        self.brought[(epoch & 1) as usize].words()
    }

    /// Begins the barriers that have been entered, one after the other, as far as possible.
    pub(super) fn go_on(&mut self, now: Instant, common: &mut Common) {
        while self.phase == Phase::Idle && self.outstanding() != 0 && self.broken_by.is_none() {
            let epoch = self.done.wrapping_add(1);
            let own = self.contributions.pop_front().unwrap_or_default();
            self.brought[(epoch & 1) as usize] = own;
            self.begin_wait(now, common);
            if self.leads() {
                self.phase = Phase::Joining;
                self.try_network(now, common);
            } else {
                self.phase = Phase::Held;
                self.outbox.join = Some(epoch);
            }
        }
    }

    fn begin_wait(&mut self, now: Instant, common: &Common) {
        let steps = self.network.as_ref().map_or(1, |network| network.table.steps());
        self.waiting.begin(now, &common.config, steps);
    }

    /// Begins the network's part if all ranks of this node have joined.
    fn try_network(&mut self, now: Instant, common: &mut Common) {
        if self.phase != Phase::Joining || !self.joins.is_full() {
            return;
        }
        let epoch = self.done.wrapping_add(1);
        let own = self.of_node();
        let Some(network) = &mut self.network else {
            self.finish(now, common, own.words());
            return;
        };
        self.phase = Phase::Network;
        let action = network.enter(epoch, own);
        if network.is_nic() {
            self.outbox.doorbell = Some((epoch, network.first_send()));
            common.nic_waits.push(self.communicator);
        }
        // The wait for this node's ranks says nothing about the network.
        self.begin_wait(now, common);
        self.apply(now, common, action);
    }

    /// Contribution of this node to the barrier in progress, all of whose ranks have joined:
    /// combined in the order of their seats.
    pub(super) fn of_node(&self) -> Contribution {
        let epoch = self.done.wrapping_add(1);
        self.brought[(epoch & 1) as usize].with(self.joins.words())
    }

    /// Executes an action of the firmware.
    pub(super) fn apply(&mut self, now: Instant, common: &mut Common, action: Action) {
        self.outbox.add_steps(action.epoch, action.sends);
        if action.is_done() {
            let results = self.network.as_ref().map_or(Words::NONE, Network::results);
            self.finish(now, common, results);
        }
    }

    /// Completes the barrier in progress with these results. The caller then calls [`Self::go_on`].
    pub(super) fn finish(&mut self, now: Instant, common: &mut Common, results: Words) {
        let epoch = self.done.wrapping_add(1);
        self.waiting.end(now);
        self.done = epoch;
        self.results = results;
        let question = self.question.take().and_then(Question::next);
        self.rest(common);
        // The barrier that the question is about begins immediately.
        self.question = question;
        self.joins.clear();
        if self.leads() {
            self.outbox.released = epoch;
            self.outbox.release = self.members.led();
        }
        common.counters.barriers += 1;
        if !self.is_closed {
            let (communicator, words) = (self.communicator, results);
            common.events.push_back(Event::Done { communicator, epoch, words });
        }
    }

    /// Returns to idle.
    fn rest(&mut self, common: &mut Common) {
        if self.phase == Phase::Network && self.is_nic() {
            common.nic_waits.retain(|waits| *waits != self.communicator);
        }
        self.phase = Phase::Idle;
        self.outbox.withdraw();
        self.question = None;
        self.waiting.stop();
    }

    /// A member has failed: barriers in progress end with an error.
    pub(super) fn break_off(&mut self, common: &mut Common, rank: Rank) {
        if self.broken_by.is_some() || self.members.place(rank).is_none() {
            return;
        }
        self.broken_by = Some(rank);
        self.rest(common);
        let communicator = self.communicator;
        let failed = (1..=self.outstanding()).filter(|_| !self.is_closed);
        let failed = failed.map(|ahead| self.done.wrapping_add(ahead));
        common.events.extend(failed.map(|epoch| Event::Failed { communicator, epoch, rank }));
    }

    /// The caller has closed the group. A barrier run by this machine continues, as other members
    /// may wait for it; one run by the kernel NIC does not, as its slot is given back.
    pub(super) fn close(&mut self, common: &mut Common) {
        self.is_closed = true;
        self.question = None;
        self.waiting.close();
        if self.is_nic() {
            self.rest(common);
            self.entered = self.done;
            self.contributions.clear();
        }
    }

    /// A rank of this node has joined the next barrier with its words; returns false if it had
    /// before.
    pub(super) fn on_joined(
        &mut self,
        now: Instant,
        common: &mut Common,
        seat: u32,
        words: Words,
    ) -> bool {
        if !self.joins.add(seat - self.members.led().start, words) {
            return false;
        }
        self.told.set(seat, self.done.wrapping_add(1));
        self.try_network(now, common);
        true
    }

    fn has_joined(&self, seat: u32) -> bool {
        self.joins.has(seat - self.members.led().start)
    }

    // ---- what is missing ----------------------------------------------------------------------

    /// Earliest time at which something is to be done.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ask_at = self.question.as_ref().and_then(|question| question.again_at);
        earliest([self.waiting.deadline(), ask_at])
    }

    /// Fires the timers that are due.
    pub(super) fn on_deadline(&mut self, now: Instant, common: &mut Common) {
        if let Some(question) = &mut self.question
            && question.again_at.is_some_and(|at| at <= now)
        {
            question.restart();
        }
        if self.waiting.take_due(now, &common.config) {
            self.on_missed(common);
            if self.has_departed {
                self.line_up_hearsay(common);
            }
        }
    }

    /// A message has been awaited for too long.
    fn on_missed(&mut self, common: &mut Common) {
        let Some(epoch) = self.under_way() else { return };
        let members = &self.members;
        let (step, seats): (u32, Vec<u32>) = match (self.phase, &self.network) {
            (Phase::Idle, _) => return,
            (Phase::Joining, _) => {
                (STEP_JOIN, members.led().filter(|seat| !self.has_joined(*seat)).collect())
            }
            (Phase::Held, _) => (STEP_RELEASE, vec![members.leader_seat(members.own().node)]),
            (Phase::Network, Some(network)) => match network.missing(epoch) {
                Some((step, nodes)) => {
                    (step, nodes.into_iter().map(|node| members.leader_seat(node)).collect())
                }
                None => {
                    // The NIC has not seen the doorbell.
                    self.unheard += 1;
                    common.counters.doorbells_again += 1;
                    self.outbox.doorbell = Some((epoch, network.first_send()));
                    return;
                }
            },
            (Phase::Network, None) => unreachable!("only a leader of several nodes is there"),
        };
        self.line_up_nacks(common, step, seats);
    }

    /// Queues questions whether the barrier is complete to some of the present members, in turn.
    fn line_up_hearsay(&mut self, common: &Common) {
        let seats = self.members.seats();
        let next = (1..=seats).map(|ahead| (self.outbox.hearsay_latest + ahead) % seats);
        let is_there = |seat: &u32| {
            let rank = self.members.rank(*seat);
            rank != common.me && !common.departed.contains(&rank)
        };
        self.outbox.hearsay.clear();
        self.outbox.hearsay.extend(next.filter(is_there).take(HEARSAY_ASKS));
        self.outbox.hearsay_latest =
            self.outbox.hearsay.last().copied().unwrap_or(self.outbox.hearsay_latest);
        // Entries are taken from the end.
        self.outbox.hearsay.reverse();
    }

    /// Queues questions for the message of `step` to the members at `seats`, ascending: to all, or
    /// to those after the one that was asked last.
    fn line_up_nacks(&mut self, common: &Common, step: u32, mut seats: Vec<u32>) {
        seats.retain(|seat| !common.departed.contains(&self.members.rank(*seat)));
        let nacks = &mut self.outbox.nacks;
        if seats.len() > NACKS_PER_ROUND {
            let next = seats.partition_point(|seat| *seat <= nacks.latest);
            let next = next % seats.len();
            seats.rotate_left(next);
            seats.truncate(NACKS_PER_ROUND);
            nacks.latest = seats[NACKS_PER_ROUND - 1];
        }
        // Entries are taken from the end.
        seats.reverse();
        (nacks.step, nacks.seats) = (step, seats);
    }

    /// True if a member to be asked for `step` still owes it.
    pub(super) fn is_missing(&self, step: u32, seat: u32) -> bool {
        match (self.phase, &self.network) {
            (Phase::Joining, _) => step == STEP_JOIN && !self.has_joined(seat),
            (Phase::Network, Some(network)) => {
                let place = self.members.place(self.members.rank(seat));
                let epoch = self.done.wrapping_add(1);
                place.is_some_and(|place| network.is_missing(epoch, step, place.node))
            }
            (Phase::Held, _) => step == STEP_RELEASE,
            _ => false,
        }
    }

    // ---- who has entered ----------------------------------------------------------------------

    /// The member at `seat` has reported that it has entered `epoch`, which is close to the one in
    /// progress.
    pub(super) fn on_told(&mut self, seat: u32, epoch: u32) {
        if !self.told.of(seat).is_some_and(|told| has_reached(told, epoch)) {
            self.told.set(seat, epoch);
        }
    }

    /// True if the member at `seat` of `node` is known to have entered barrier `epoch`.
    pub(super) fn has_entered(&self, epoch: u32, seat: u32, node: u32) -> bool {
        let own = self.members.own();
        // A leader begins the network's part after all ranks of its node have joined.
        seat == own.seat
            || self.told.of(seat).is_some_and(|told| has_reached(told, epoch))
            || node != own.node
                && self.network.as_ref().is_some_and(|it| it.has_heard_of(epoch, node))
    }

    /// Members, from a seat on, that are not known to have entered the barrier in progress: seat
    /// and rank.
    pub(super) fn missing(&self, first: u32) -> impl Iterator<Item = (u32, Rank)> {
        let epoch = self.under_way();
        let seats = first..self.members.seats();
        let members = seats.map(|seat| (seat, self.members.rank(seat)));
        members.filter(move |(seat, rank)| {
            let place = self.members.place(*rank).expect("a member has a place");
            epoch.is_some_and(|epoch| !self.has_entered(epoch, *seat, place.node))
        })
    }

    /// Asks all members that are not known to have entered the barrier in progress, unless they are
    /// already being asked.
    pub(super) fn ask(&mut self) {
        let Some(epoch) = self.under_way() else { return };
        match &mut self.question {
            Some(question) => question.last = self.entered,
            None => {
                self.question = Some(Question::new(epoch, self.entered, self.members.seats()));
            }
        }
    }

    /// True if every member that has not entered the barrier in progress has said so, or has left.
    pub(super) fn has_asked_all(&self, common: &Common) -> bool {
        let has_answer = |seat| self.question.as_ref().is_some_and(|it| it.has_answer(seat));
        self.missing(0).all(|(seat, rank)| has_answer(seat) || common.departed.contains(&rank))
    }

    /// True if there is something to send.
    pub(super) fn has_output(&self) -> bool {
        let asks = |question: &Question| question.next_seat < self.members.seats();
        !self.outbox.is_empty() || self.question.as_ref().is_some_and(asks)
    }

    /// Handles what the kernel NIC shows of the barrier.
    pub(super) fn on_view(&mut self, now: Instant, common: &mut Common, view: &NicView) {
        let epoch = self.done.wrapping_add(1);
        let brought = self.brought(epoch);
        let Some(network) = &mut self.network else { return };
        if self.phase != Phase::Network || !network.is_nic() {
            return;
        }
        if view.entered == epoch {
            self.unheard = 0;
        }
        if view.done == epoch {
            let count = brought.as_slice().len();
            self.finish(now, common, Words::new(&view.results[..count]));
        } else if network.on_view(epoch, view) {
            self.waiting.on_step(now);
        }
    }
}

// Checks the module header's size of a leader's state; most of it is the firmware's.
const _: () = assert!(size_of::<Group>() <= 2048);
