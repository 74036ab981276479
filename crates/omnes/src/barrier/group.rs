//! The groups of a communicator's barriers: one per algorithm and form that were used so far.
//!
//! Barriers are called in the same order on all ranks, so all of them open the same groups at the
//! same calls. A group has a communicator number of its own as its name; that of the usual
//! algorithm in user space has the communicator's, and is opened without a word.

use super::BarrierForm;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::job::Job;
use omnes_net::Operation;
use omnes_proto::collective::{GroupConfig, Runner};
use omnes_topo::Barrier;
use omnes_wire::CommunicatorId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Barriers of a communicator after which it is worth trying for a slot of the kernel's NIC.
const CALLS_BEFORE_NIC: u32 = 16;

/// See the module header.
pub(crate) struct BarrierGroups {
    job: Arc<Job>,
    groups: Mutex<Vec<Group>>,
}

#[derive(Clone, Copy)]
struct Group {
    id: CommunicatorId,
    algorithm: Barrier,
    runner: Runner,
    /// Barriers entered by calls that wait without a limit; the same on all ranks.
    calls: u32,
    has_tried_nic: bool,
    /// A barrier that somebody has given up waiting for.
    unfinished: Option<Operation>,
}

impl BarrierGroups {
    pub(crate) fn new(job: Arc<Job>) -> Self {
        Self { job, groups: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group that a barrier of this kind uses: the NIC's, if it is open and allowed.
    fn find(&self, form: Option<BarrierForm>, algorithm: Barrier) -> Option<Group> {
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
            self.job.engine.close_collective(group.id);
        }
    }
}

impl Communicator {
    /// Enters a barrier of a group, which is opened if need be.
    pub(super) fn enter_group(
        &self,
        form: Option<BarrierForm>,
        algorithm: Barrier,
    ) -> Result<Operation, Error> {
        let groups = &self.inner.barriers;
        let mut group = match groups.find(form, algorithm) {
            Some(group) => group,
            None => self.open_barrier_group(form, algorithm)?,
        };
        // Waiting for the same barrier once more counts on this rank only.
        if group.unfinished.is_some() {
            return self.enter_again(&group);
        }
        let may_move = form.is_none() && group.runner == Runner::Host && !group.has_tried_nic;
        if may_move && group.calls >= CALLS_BEFORE_NIC {
            groups.update(group.id, |group| group.has_tried_nic = true);
            // Without the NIC it goes on as before.
            if let Ok(better) = self.try_nic(algorithm)? {
                group = better;
            }
        }
        groups.update(group.id, |group| group.calls = group.calls.saturating_add(1));
        self.enter_again(&group)
    }

    /// Enters a barrier of the usual algorithm without agreeing on anything with the others.
    pub(super) fn enter_usual_group(&self) -> Result<Operation, Error> {
        let group = match self.inner.barriers.find(None, self.usual_algorithm()) {
            Some(group) => group,
            None => self.open_usual_group(),
        };
        self.enter_again(&group)
    }

    /// The same for a group that must be open; nothing if it is not.
    pub(super) fn enter_known_group(
        &self,
        form: Option<BarrierForm>,
        algorithm: Barrier,
    ) -> Option<Result<Operation, Error>> {
        let group = self.inner.barriers.find(form, algorithm)?;
        Some(self.enter_again(&group))
    }

    /// Goes on with a barrier that was given up, or enters the next one.
    fn enter_again(&self, group: &Group) -> Result<Operation, Error> {
        if let Some(unfinished) = group.unfinished {
            self.inner.barriers.update(group.id, |group| group.unfinished = None);
            return Ok(unfinished);
        }
        let started = self.job().engine.start_barrier(group.id);
        started.map_err(|error| self.error(error))
    }

    /// Remembers a barrier of the usual algorithm that is not over, and the group's name.
    pub(super) fn keep_unfinished(&self, operation: Operation) -> Option<CommunicatorId> {
        let group = self.inner.barriers.find(None, self.usual_algorithm())?;
        self.inner.barriers.update(group.id, |group| group.unfinished = Some(operation));
        Some(group.id)
    }

    fn open_barrier_group(
        &self,
        form: Option<BarrierForm>,
        algorithm: Barrier,
    ) -> Result<Group, Error> {
        if form == Some(BarrierForm::Nic) {
            let outcome = self.try_nic(algorithm)?;
            return outcome.map_err(|reason| Error::NoNic { reason });
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

    /// Opens a group on this rank.
    fn add_group(&self, id: CommunicatorId, algorithm: Barrier, runner: Runner) -> Group {
        if runner == Runner::Host {
            self.job().engine.open_collective(self.group_config(id, algorithm, runner), None);
        }
        let (calls, has_tried_nic, unfinished) = (0, false, None);
        let group = Group { id, algorithm, runner, calls, has_tried_nic, unfinished };
        self.inner.barriers.lock().push(group);
        group
    }

    fn group_config(
        &self,
        communicator: CommunicatorId,
        algorithm: Barrier,
        runner: Runner,
    ) -> GroupConfig {
        let nodes = self.nodes().by_node().to_vec().into();
        let is_multicast = self.job().has_multicast();
        GroupConfig { communicator, nodes, algorithm, runner, is_multicast }
    }

    /// Moves on to a group whose barriers the kernel's NIC runs, if all members get a slot. The
    /// reason otherwise. Collective.
    fn try_nic(&self, algorithm: Barrier) -> Result<Result<Group, String>, Error> {
        let id = self.take_number()?;
        let slot = self.open_own_slot(id, algorithm);
        let reason = slot.as_ref().err().map(String::as_str);
        if let Some(reason) = self.first_obstacle(reason)? {
            self.job().nic.refuse(&reason);
            return Ok(Err(reason));
        }
        let config = self.group_config(id, algorithm, Runner::Nic);
        self.job().engine.open_collective(config, slot.unwrap_or_default());
        Ok(Ok(self.add_group(id, algorithm, Runner::Nic)))
    }
}
