//! The jobs that a process has joined by exchange.

use crate::communicator::Communicator;
use crate::error::Error;
use omnes_net::Disruption;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of jobs of one process, except for jobs that are larger than all before: each has
/// threads, sockets and memory of its own.
pub(super) const JOBS_MAX: usize = 8;

/// Maximum number of jobs that a rank reports: as many as fit a row of a round.
pub(super) const JOBS_TOLD_MAX: usize = 10;

/// The random name of a process or a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Identity([u64; 2]);

impl Identity {
    /// The identity whose report takes the most space.
    #[cfg(test)]
    pub(super) const LONGEST: Self = Self([u64::MAX; 2]);

    pub(super) fn draw() -> Result<Self, Error> {
        let [first, second] = [omnes_net::random()?, omnes_net::random()?];
        Ok(Self([u64::from_be_bytes(first), u64::from_be_bytes(second)]))
    }
}

/// A job that this process has joined.
pub(super) struct Joined {
    pub(super) id: Identity,
    /// The processes of its ranks, in order of ranks.
    pub(super) members: Vec<Identity>,
    /// Communicator of all its ranks. Kept here, so that the job continues when a program has freed
    /// its own communicators.
    pub(super) world: Communicator,
}

/// A job that contains all ranks of a communicator to be created.
pub(super) struct Shared {
    pub(super) id: Identity,
    pub(super) world: Communicator,
    /// Ranks in the job, in order of the communicator's ranks.
    pub(super) ranks: Vec<u32>,
}

impl Shared {
    /// False if the job has given up on one of the ranks, or one has left.
    fn is_whole(&self) -> bool {
        let concerns = |gone: Disruption<'_>| match gone {
            Disruption::Failed(rank) | Disruption::Left { rank, .. } => self.ranks.contains(&rank),
            Disruption::Notice { .. } => false,
        };
        self.world.job().engine.failure(concerns).is_none()
    }
}

/// The jobs of a process; see the module header.
#[derive(Default)]
pub(super) struct Table {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// In order of joining.
    joined: Vec<Joined>,
    /// Number of places reserved for jobs that are being joined.
    reserved: usize,
    /// Processes that met this one at the rendezvous, but whose packets never arrived, or that
    /// never received any, as this process has found or another one has reported.
    silent: BTreeSet<Identity>,
}

/// A place for a job that is being joined; released when dropped.
pub(super) struct Place<'a> {
    table: &'a Table,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The jobs in which all these processes still are, as far as this one knows, in order of
    /// joining, at most [`JOBS_TOLD_MAX`].
    pub(super) fn with_all(&self, processes: &[Identity]) -> Vec<Shared> {
        let share = |job: &Joined| {
            let rank = |process| job.members.iter().position(|member| member == process);
            let ranks: Option<Vec<u32>> =
                processes.iter().map(|process| rank(process).map(|rank| rank as u32)).collect();
            ranks.map(|ranks| Shared { id: job.id, world: job.world.clone(), ranks })
        };
        let mut all: Vec<Shared> = self.lock().joined.iter().filter_map(share).collect();
        all.retain(Shared::is_whole);
        // Of the jobs that all ranks know, only one is needed.
        all.truncate(JOBS_TOLD_MAX);
        all
    }

    /// Reserves a place for another job of `size` ranks, if one is available: always for a job that
    /// is larger than all so far, because later communicators may share it.
    pub(super) fn reserve(&self, size: usize) -> Option<Place<'_>> {
        let mut inside = self.lock();
        let largest = inside.joined.iter().map(|job| job.members.len()).max();
        if inside.joined.len() + inside.reserved >= JOBS_MAX && largest >= Some(size) {
            return None;
        }
        inside.reserved += 1;
        Some(Place { table: self })
    }

    /// Notes that this process need not try to meet `process` again.
    pub(super) fn note_silent(&self, process: Identity) {
        self.lock().silent.insert(process);
    }

    /// Rank of the first of these processes that is noted as silent.
    pub(super) fn first_silent(&self, processes: &[Identity]) -> Option<u32> {
        let inside = self.lock();
        let rank = processes.iter().position(|process| inside.silent.contains(process));
        rank.map(|rank| rank as u32)
    }

    /// Removes and returns all jobs, in the order in which all processes leave them: each waits for
    /// the same job first.
    pub(super) fn take_all(&self) -> Vec<Joined> {
        let mut jobs = std::mem::take(&mut self.lock().joined);
        jobs.sort_by_key(|job| job.id);
        jobs
    }
}

impl Place<'_> {
    pub(super) fn fill(self, job: Joined) {
        self.table.lock().joined.push(job);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.table.lock().reserved -= 1;
    }
}
