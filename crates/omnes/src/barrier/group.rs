//! The groups of a communicator's barriers: one per algorithm and form used so far.
//!
//! All ranks call barriers in the same order, so all of them open the same groups at the same
//! calls. A group is named by a communicator number of its own, except the group of the usual
//! algorithm in user space, which uses the communicator's number and is opened without
//! communication.

use super::nic::{ONE_NODE, OpeningSlot};
use super::{BarrierForm, BarrierKind, NicChoice};
use crate::collective::Collective;
use crate::communicator::{Agreed, Communicator};
use crate::error::Error;
use crate::job::Job;
use omnes_net::{Operation, OperationError};
use omnes_proto::collective::{
    BarrierGroupConfig, CollectiveError, Contribution, Runner, can_combine,
};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Words};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Barriers of a communicator after which the kernel NIC is tried.
const CALLS_BEFORE_NIC: u32 = 16;
/// Time limit of the first barrier through the kernel NIC, which all ranks enter at about the same
/// time.
const NIC_TRIAL: Duration = Duration::from_secs(2);
const NIC_BLIND: &str = "a barrier through the kernel NIC did not end: packets of the job do not \
                         pass the interface of its address";
const NIC_LOST: &str = "a barrier through the kernel NIC did not end: its slot was withdrawn, or \
                        packets do not leave through the interface of the job's address";

/// Barrier groups of a communicator; see the module header.
pub(crate) struct BarrierGroups {
    job: Arc<Job>,
    groups: Mutex<Vec<Group>>,
    openings: Mutex<Vec<Opening>>,
    /// Why the members have agreed not to use the kernel NIC, if they have.
    refused: Mutex<Option<String>>,
}

/// A future group of the kernel NIC, with its slot; the same on all ranks.
struct Opening {
    id: CommunicatorId,
    algorithm: BarrierAlgorithm,
    slot: OpeningSlot,
}

#[derive(Clone, Copy)]
struct Group {
    id: CommunicatorId,
    algorithm: BarrierAlgorithm,
    runner: Runner,
    /// Barriers entered by calls that wait without a limit; the same on all ranks.
    calls: u32,
    /// Number of calls after which the kernel NIC is tried, or after which the ranks check whether
    /// all have opened their slots; the same on all ranks.
    nic_at: u32,
    /// A barrier that a caller has given up waiting for.
    unfinished: Option<Unfinished>,
}

/// A barrier that the next call of the usual kind continues.
#[derive(Clone, Copy)]
enum Unfinished {
    /// The barrier is still in progress.
    Pending(Operation),
    /// The barrier has completed meanwhile, because a later operation has.
    Over,
}

/// How far a communicator's switch to the kernel NIC has progressed.
enum Approach {
    /// Its barriers go through this group.
    Reached(Group),
    /// It is too early, or slots are being opened.
    OnTheWay,
    /// The communicator does not use the kernel NIC.
    Refused,
}

impl BarrierGroups {
    pub(crate) fn new(job: Arc<Job>) -> Self {
        let (groups, openings, refused) = <_>::default();
        Self { job, groups, openings, refused }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn openings(&self) -> MutexGuard<'_, Vec<Opening>> {
        self.openings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, Option<String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the members have agreed not to use the kernel NIC, if they have.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refused().clone()
    }

    fn take_opening(&self, algorithm: BarrierAlgorithm) -> Option<Opening> {
        let openings = &mut self.openings();
        let place = openings.iter().position(|opening| opening.algorithm == algorithm)?;
        Some(openings.swap_remove(place))
    }

    /// True if slots of the kernel NIC are being opened.
    pub(super) fn is_opening(&self) -> bool {
        !self.openings().is_empty()
    }

    /// The group that a barrier of this kind uses: the NIC's, if it is open and allowed.
    fn find(&self, form: Option<BarrierForm>, algorithm: BarrierAlgorithm) -> Option<Group> {
        let groups = self.lock();
        let fits = |group: &&Group, runner| group.algorithm == algorithm && group.runner == runner;
        let nic = groups.iter().find(|group| fits(group, Runner::Nic));
        let user = groups.iter().find(|group| fits(group, Runner::Host));
        match form {
            Some(BarrierForm::Nic) => nic.copied(),
            Some(_) => user.copied(),
            None => nic.or(user).copied(),
        }
    }

    fn update(&self, id: CommunicatorId, change: impl FnOnce(&mut Group)) {
        if let Some(group) = self.lock().iter_mut().find(|group| group.id == id) {
            change(group);
        }
    }

    /// True if the NIC runs barriers.
    pub(super) fn has_nic(&self) -> bool {
        self.lock().iter().any(|group| group.runner == Runner::Nic)
    }
}

impl Drop for BarrierGroups {
    fn drop(&mut self) {
        for group in self.lock().iter() {
            self.job.engine.close_barrier_group(group.id);
            if let Some(Unfinished::Pending(operation)) = group.unfinished {
                self.job.engine.release(operation);
            }
        }
    }
}

impl Communicator {
    /// Enters a barrier of a group, which is opened if necessary. Returns `None` if the barrier
    /// that this rank had given up waiting for has completed.
    pub(super) fn enter_group(
        &self,
        form: Option<BarrierForm>,
        algorithm: BarrierAlgorithm,
    ) -> Result<Option<Operation>, Error> {
        let group = match self.inner.barriers.find(form, algorithm) {
            Some(group) => group,
            None => self.open_barrier_group(form, algorithm)?,
        };
        // Waiting again for the same barrier counts on this rank only.
        if group.unfinished.is_some() {
            return self.enter_again(&group);
        }
        let group = self.counted(group, form)?;
        self.enter_again(&group)
    }

    /// The group for a call that all ranks wait in: `group`, or after several such calls the NIC's.
    fn counted(&self, mut group: Group, form: Option<BarrierForm>) -> Result<Group, Error> {
        let groups = &self.inner.barriers;
        let may_move = form.is_none() && group.runner == Runner::Host;
        if may_move && group.calls >= group.nic_at {
            let id = group.id;
            let nic_at = match self.approach_nic(group.algorithm)? {
                Approach::Reached(better) => {
                    group = better;
                    u32::MAX
                }
                Approach::OnTheWay => group.calls.saturating_add(group.calls / 2),
                Approach::Refused => u32::MAX,
            };
            groups.update(id, |group| group.nic_at = nic_at);
        }
        groups.update(group.id, |group| group.calls = group.calls.saturating_add(1));
        Ok(group)
    }

    /// True if the usual barriers of this communicator can combine words; the words are readable by
    /// anybody on the network. The same on all ranks.
    pub(crate) fn combines_words(&self) -> bool {
        let nodes = self.nodes().count();
        let config = &self.job().config;
        let is_off = config.nic == NicChoice::Off || self.job().is_finalizing();
        // Checked within a node, too: its ranks may have no shared memory.
        let is_secret = config.encryption;
        let can = nodes == 1 || can_combine(self.usual_algorithm(), nodes);
        self.size() > 1 && can && !is_off && !is_secret
    }

    /// Combines words of every rank in a barrier of the usual algorithm and returns the result.
    /// Call only if [`Self::combines_words`].
    pub(crate) fn combine_in_barrier(&self, own: Contribution) -> Result<Words, Error> {
        self.job().engine.yield_core_if_due();
        let algorithm = self.usual_algorithm();
        let group = match self.inner.barriers.find(None, algorithm) {
            Some(group) => group,
            None => self.open_barrier_group(None, algorithm)?,
        };
        let given_up = group.unfinished;
        if given_up.is_some()
            && let Some(before) = self.enter_again(&group)?
        {
            // The other ranks have completed it, or will.
            self.wait_for(before)?;
        }
        let group = self.counted(group, None)?;
        if given_up.is_some() {
            self.keep_over();
        }
        let started = self.engine_to_start()?.start_reduction(group.id, own);
        let operation = started.map_err(|error| self.note_error(error))?;
        self.wait_for(operation).map(|completion| completion.words)
    }

    /// Enters a barrier of the usual algorithm without any agreement with other ranks. Returns
    /// `None` if the barrier that this rank had given up waiting for has completed.
    pub(super) fn enter_usual_group(&self) -> Result<Option<Operation>, Error> {
        let group = match self.inner.barriers.find(None, self.usual_algorithm()) {
            Some(group) => group,
            None => self.open_usual_group(),
        };
        self.enter_again(&group)
    }

    /// As [`Self::enter_usual_group`], for a group that must already be open; `None` if it is not.
    pub(super) fn enter_known_group(
        &self,
        form: Option<BarrierForm>,
        algorithm: BarrierAlgorithm,
    ) -> Option<Result<Option<Operation>, Error>> {
        let group = self.inner.barriers.find(form, algorithm)?;
        Some(self.enter_again(&group))
    }

    /// Continues a barrier that was given up, or enters the next one.
    fn enter_again(&self, group: &Group) -> Result<Option<Operation>, Error> {
        if let Some(unfinished) = group.unfinished {
            self.inner.barriers.update(group.id, |group| group.unfinished = None);
            return Ok(match unfinished {
                Unfinished::Pending(operation) => Some(operation),
                Unfinished::Over => None,
            });
        }
        let started = self.engine_to_start()?.start_barrier(group.id);
        started.map(Some).map_err(|error| self.not_entered(error))
    }

    /// Explains why a barrier of an open group cannot be entered. The engine closes a group whose
    /// NIC is lost; if no call was waiting for its barriers at that time, this call is the first to
    /// find out.
    fn not_entered(&self, error: OperationError) -> Error {
        match error {
            OperationError::Collective(CollectiveError::UnknownGroup { .. }) => {
                self.give_up(self.rank(), Collective::Barrier);
                self.note_error(OperationError::NicLost)
            }
            error => self.note_error(error),
        }
    }

    /// True if a barrier of this kind continues one that was entered with a limit.
    pub(super) fn has_unfinished(&self, kind: BarrierKind) -> bool {
        let algorithm = kind.algorithm.unwrap_or_else(|| self.usual_algorithm());
        let group = self.inner.barriers.find(kind.form, algorithm);
        let is_in_group = kind.form != Some(BarrierForm::Channel);
        is_in_group && group.is_some_and(|group| group.unfinished.is_some())
    }

    /// Keeps an incomplete barrier of the usual algorithm for the next call; returns the group's
    /// name.
    pub(super) fn keep_unfinished(&self, operation: Operation) -> Option<CommunicatorId> {
        self.keep(Unfinished::Pending(operation))
    }

    /// Records that the barrier given up has completed; the next barrier call returns its outcome.
    pub(super) fn keep_over(&self) {
        self.keep(Unfinished::Over);
    }

    /// Makes the next barrier of the usual algorithm continue this one; returns the group's name.
    fn keep(&self, unfinished: Unfinished) -> Option<CommunicatorId> {
        let group = self.inner.barriers.find(None, self.usual_algorithm())?;
        self.inner.barriers.update(group.id, |group| group.unfinished = Some(unfinished));
        Some(group.id)
    }

    fn open_barrier_group(
        &self,
        form: Option<BarrierForm>,
        algorithm: BarrierAlgorithm,
    ) -> Result<Group, Error> {
        if form == Some(BarrierForm::Nic) {
            let opening = match self.inner.barriers.take_opening(algorithm) {
                Some(opening) => Ok(opening),
                None => self.begin_nic(algorithm)?,
            };
            let group = match opening {
                Ok(opening) => self.finish_nic(opening)?,
                Err(reason) => Err(reason),
            };
            return group.map_err(|reason| Error::NoNic { reason });
        }
        if algorithm == self.usual_algorithm() {
            return Ok(self.open_usual_group());
        }
        let id = self.take_number()?;
        Ok(self.add_group(id, algorithm, Runner::Host))
    }

    fn open_usual_group(&self) -> Group {
        self.add_group(self.inner.id, self.usual_algorithm(), Runner::Host)
    }

    /// Adds a group on this rank, and opens it unless the NIC runs it.
    fn add_group(&self, id: CommunicatorId, algorithm: BarrierAlgorithm, runner: Runner) -> Group {
        if runner == Runner::Host {
            self.job().engine.open_barrier_group(self.group_config(id, algorithm, runner), None);
        }
        let (calls, nic_at, unfinished) = (0, CALLS_BEFORE_NIC, None);
        let group = Group { id, algorithm, runner, calls, nic_at, unfinished };
        self.inner.barriers.lock().push(group);
        group
    }

    fn group_config(
        &self,
        communicator: CommunicatorId,
        algorithm: BarrierAlgorithm,
        runner: Runner,
    ) -> BarrierGroupConfig {
        let nodes = self.nodes().by_node().to_vec().into();
        let is_multicast = self.is_worth_multicast();
        BarrierGroupConfig { communicator, nodes, algorithm, runner, is_multicast }
    }

    /// Takes one step towards a group whose barriers the kernel NIC runs: begins to open slots, or
    /// switches to the group once all members have their slots. Collective.
    fn approach_nic(&self, algorithm: BarrierAlgorithm) -> Result<Approach, Error> {
        let barriers = &self.inner.barriers;
        if let Some(opening) = barriers.take_opening(algorithm) {
            if self.is_opened(&opening.slot)? {
                let group = self.finish_nic(opening)?;
                // Without the NIC, barriers continue as before.
                return Ok(group.map_or(Approach::Refused, Approach::Reached));
            }
            barriers.openings().push(opening);
            return Ok(Approach::OnTheWay);
        }
        if self.nodes().count() < 2 {
            return Ok(Approach::Refused);
        }
        if !self.is_time_for_nic()? {
            return Ok(Approach::OnTheWay);
        }
        Ok(match self.begin_nic(algorithm)? {
            Ok(opening) => {
                barriers.openings().push(opening);
                Approach::OnTheWay
            }
            Err(_) => Approach::Refused,
        })
    }

    /// Begins to open slots for a group whose barriers the kernel NIC runs, if all members may have
    /// one; otherwise returns the reason. Collective.
    fn begin_nic(&self, algorithm: BarrierAlgorithm) -> Agreed<Opening> {
        // Numbers are limited, so none is taken if some member cannot have a slot.
        if self.nodes().count() < 2 {
            return Ok(Err(ONE_NODE.to_owned()));
        }
        if let Some(reason) = self.kept_from_nic(self.nic_obstacle().as_deref())? {
            return Ok(Err(reason));
        }
        let id = match self.take_number() {
            Ok(id) => id,
            Err(none @ Error::TooManyCommunicators { .. }) => return Ok(Err(none.to_string())),
            Err(error) => return Err(error),
        };
        Ok(Ok(Opening { id, algorithm, slot: self.begin_own_slot(id, algorithm) }))
    }

    /// Switches to a group whose barriers the kernel NIC runs, if all members get a slot; waits for
    /// the slots. Otherwise returns the reason. Collective.
    fn finish_nic(&self, opening: Opening) -> Agreed<Group> {
        let Opening { id, algorithm, slot } = opening;
        let slot = slot.wait();
        let reason = slot.as_ref().err().map(String::as_str);
        if let Some(reason) = self.kept_from_nic(reason)? {
            return Ok(Err(reason));
        }
        let config = self.group_config(id, algorithm, Runner::Nic);
        self.job().engine.open_barrier_group(config, slot.unwrap_or_default());
        let fault = self.run_collective(Collective::Agreement, || self.nic_fault(id));
        let kept = fault.and_then(|own| self.kept_from_nic(own));
        if !matches!(kept, Ok(None)) {
            self.job().engine.close_barrier_group(id);
        }
        Ok(match kept? {
            Some(reason) => {
                // Another communicator's first barrier would fail as late as this one.
                self.job().nic.refuse(&reason);
                Err(reason)
            }
            None => Ok(self.add_group(id, algorithm, Runner::Nic)),
        })
    }

    /// Runs a first barrier through the kernel NIC and returns what is wrong with it, if anything:
    /// packets do not always pass the interface that has their source address. Collective.
    fn nic_fault(&self, id: CommunicatorId) -> Result<Option<&'static str>, Error> {
        let engine = self.engine_to_start()?;
        let operation = engine.start_barrier(id).map_err(|error| self.note_error(error))?;
        match engine.wait_at_most(operation, NIC_TRIAL, |gone| self.breaks_collective(gone)) {
            // The other ranks, whose barrier does not complete, learn of it in the exchange that
            // follows.
            Some(Err(OperationError::NicLost)) => Ok(Some(NIC_LOST)),
            Some(outcome) => outcome.map(|_| None).map_err(|error| self.note_error(error)),
            None => {
                engine.release(operation);
                Ok(Some(NIC_BLIND))
            }
        }
    }

    /// The first obstacle of any member, which applies to all of them. Collective.
    fn kept_from_nic(&self, own: Option<&str>) -> Result<Option<String>, Error> {
        let reason = self.first_obstacle(own)?;
        self.inner.barriers.refused().clone_from(&reason);
        Ok(reason)
    }
}
