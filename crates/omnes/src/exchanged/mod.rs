//! Communicators of ranks that have an exchange of their own, such as the ranks of an MPI job.
//!
//! | module | what it does |
//! |---|---|
//! | `jobs` | the jobs that this process has joined this way |
//! | `meeting` | how ranks join a job of their own |
//! | `place` | where they meet |
//! | `rounds` | one round: each rank reports its state, all learn the same |
//!
//! Steps, each of which is a round that all ranks make, whatever has happened to them before:
//!
//! 1. The ranks report the names of their processes, which are random.
//! 2. Each reports which of its jobs contain all of them, none failed or gone, and which number it
//!    would assign next there. A rank without such a job reports whether it has once failed to
//!    communicate with one of their processes: its packets never arrived. If so, the ranks do not
//!    try to join again, because that would take as long as the silence of a failed rank.
//!
//! If there is a job that all are in, the communicator belongs to that job:
//!
//! 3. They agree on its number ([`crate::numbers`]), each creates it, and all report the outcome.
//!
//! Otherwise they join a new job, whose first communicator it is:
//!
//! 3. They report where they are, and that nothing prevents them from joining.
//! 4. Rank 0 reports where it listens, and the job's key.
//! 5. They join, and report the outcome.
//!
//! Guarantees: all ranks get a communicator, or all get the same error, which names the rank that
//! caused it. No rank hangs, as long as the exchange does not. The key is never sent over this
//! library's own connections.
//! Assumes: nobody eavesdrops on the exchange.
//! Cost: in an existing job four rounds, three of them with 1 KiB per rank, and one more for each
//! time that threads contend for a number; otherwise five, and the start of a job.
//! Not done: a rank whose exchange fails does not notify the others, which depend on theirs.

mod jobs;
mod meeting;
mod place;
mod rounds;

pub use place::Interface;

use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::exchange::Exchange;
use jobs::{Identity, JOBS_MAX, Joined, Shared, Table};
use rounds::gather;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};

/// Version of the rounds; ranks of different versions reject each other.
const PROTOCOL: u32 = 1;

/// The first report of a rank.
#[derive(Serialize, Deserialize)]
struct Introduction {
    omnes: u32,
    version: String,
    process: Identity,
}

/// A job that contains all ranks.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Known {
    job: Identity,
    next_communicator: u32,
}

/// The jobs that a process has joined by [`Exchange`], to be left together.
///
/// A process has one such value, [`Jobs::of_process`]; others are for programs whose threads are
/// ranks.
pub struct Jobs {
    process: Result<Identity, Error>,
    table: Table,
}

impl Default for Jobs {
    fn default() -> Self {
        Self { process: Identity::draw(), table: Table::default() }
    }
}

impl Communicator {
    /// Creates a communicator of the ranks of an exchange. Collective; may be called from any
    /// thread. The first such communicator is a job by itself, with sockets, threads and a key of
    /// its own; later ones whose ranks are all in one job share that job.
    ///
    /// Settings come from the environment ([`crate::VARIABLES`]), then from `adjust`. They are
    /// those of the job, so they only have an effect in the first call for a job. Rank and size are
    /// always those of the exchange.
    ///
    /// The job continues to exist when all its communicators have been dropped; [`Jobs::leave`]
    /// ends it.
    ///
    /// # Errors
    /// On all ranks: [`Error::Exchange`], which names the rank that could not join. On the ranks
    /// concerned: [`Error::ExchangeFailed`] if the exchange does not work,
    /// [`Error::RankOutOfRange`] for a rank not below the size.
    pub fn from_exchange(
        ranks: &dyn Exchange,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Self, Error> {
        Jobs::of_process().join(ranks, adjust)
    }
}

impl Jobs {
    /// The jobs of this process.
    pub fn of_process() -> &'static Self {
        static JOBS: OnceLock<Jobs> = OnceLock::new();
        JOBS.get_or_init(Self::default)
    }

    /// As [`Communicator::from_exchange`], which uses [`Self::of_process`].
    ///
    /// # Errors
    /// As [`Communicator::from_exchange`].
    pub fn join(
        &self,
        ranks: &dyn Exchange,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Communicator, Error> {
        let (rank, size) = (ranks.rank(), ranks.size());
        if rank >= size {
            return Err(Error::RankOutOfRange { rank, size });
        }
        let processes = self.introduce(ranks)?;
        let shared = self.table.with_all(&processes);
        let known: Vec<Known> = shared.iter().map(Shared::known).collect();
        let silent = self.table.first_silent(&processes).filter(|_| known.is_empty());
        let silent = silent.map(|rank| Error::PeerFailed { rank });
        let known = gather(ranks, silent.as_ref().map_or(Ok(&known), Err))?;
        if let Some((job, highest)) = common(&known) {
            let shared = shared.into_iter().find(|shared| shared.id == job);
            return shared.expect("a common job is this rank's too").open(ranks, highest);
        }
        let place = self.table.reserve(ranks.size() as usize).ok_or_else(|| {
            let reason = format!("it is in {JOBS_MAX} jobs already, and none of them is smaller");
            Error::Exchange { rank, reason }
        });
        let (place, settings) = match place {
            Ok(place) => (Some(place), settings(ranks, adjust)),
            Err(error) => (None, Err(error)),
        };
        let (id, world) = meeting::meet(ranks, settings, |silent| {
            self.table.note_silent(processes[silent as usize]);
        })?;
        let place = place.expect("without a place nobody meets");
        place.fill(Joined { id, members: processes, world: world.clone() });
        Ok(world)
    }

    /// Leaves all jobs. Collective: all ranks of the jobs must call it, as their last operation.
    /// Waits for all ranks, then until everything sent has been acknowledged, and says goodbye.
    /// Their communicators can then only be dropped; new communicators belong to new jobs.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a rank has failed, [`Error::AlreadyLeft`] if this rank has left one
    /// of the jobs by a communicator of it; this rank leaves all jobs nevertheless.
    pub fn leave(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for Joined { world, .. } in self.table.take_all() {
            let together = world.meet_last();
            world.job().leave();
            result = result.and(together);
        }
        result
    }

    /// Leaves all jobs without waiting for their ranks: ranks that wait for this one get
    /// [`Error::PeerLeft`]. Waits at most one second per job for outstanding acknowledgements.
    /// Their communicators can then only be dropped; new communicators belong to new jobs.
    pub fn abandon(&self) {
        for Joined { world, .. } in self.table.take_all() {
            world.abandon();
        }
    }

    /// The processes of all ranks.
    fn introduce(&self, ranks: &dyn Exchange) -> Result<Vec<Identity>, Error> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let own = self.process.as_ref();
        let own = own.map(|process| Introduction { omnes: PROTOCOL, version, process: *process });
        let all = gather(ranks, own.as_ref().map_err(|error| &**error))?;
        check(&all)?;
        Ok(all.into_iter().map(|one| one.process).collect())
    }
}

/// The settings of a new job.
fn settings(ranks: &dyn Exchange, adjust: impl FnOnce(&mut Config)) -> Result<Config, Error> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut config = Config::for_exchange(rank, size)?;
    adjust(&mut config);
    config.check_network()?;
    Ok(Config { rank, size, ..config })
}

/// Rejects ranks that cannot form a job; the same on all of them.
fn check(all: &[Introduction]) -> Result<(), Error> {
    let Some(first) = all.first() else { return Ok(()) };
    for (rank, one) in (0..).zip(all) {
        let differs = |what: &str, theirs: &dyn std::fmt::Display, ours: &dyn std::fmt::Display| {
            let reason = format!(
                "versions differ: it has {what} {theirs}, rank 0 has {ours}; use one version for \
                 all ranks"
            );
            Err(Error::Exchange { rank, reason })
        };
        if one.omnes != first.omnes {
            return differs("protocol", &one.omnes, &first.omnes);
        }
        if one.version != first.version {
            return differs("Omnes", &one.version, &first.version);
        }
        let twin = all[..rank as usize].iter().position(|other| other.process == one.process);
        if let Some(twin) = twin {
            let reason = format!("it is of the same process as rank {twin}");
            return Err(Error::Exchange { rank, reason });
        }
    }
    Ok(())
}

/// The first of rank 0's jobs that all ranks know, and the highest number that any of them would
/// assign next there.
fn common(known: &[Vec<Known>]) -> Option<(Identity, u32)> {
    known.first()?.iter().find_map(|Known { job, .. }| {
        let next = |all: &Vec<Known>| {
            all.iter().find(|other| other.job == *job).map(|other| other.next_communicator)
        };
        let all: Option<Vec<u32>> = known.iter().map(next).collect();
        Some((*job, all?.into_iter().max()?))
    })
}

impl Shared {
    fn known(&self) -> Known {
        Known { job: self.id, next_communicator: self.world.job().numbers.next() }
    }

    /// Creates a communicator of these ranks in the job. Collective.
    fn open(self, ranks: &dyn Exchange, highest: u32) -> Result<Communicator, Error> {
        let job = Arc::clone(&self.world.inner.job);
        let id = job.numbers.agree(ranks, highest)?;
        let communicator = Communicator::new(job, id, self.ranks, ranks.rank());
        let opened = communicator.open_here();
        gather(ranks, opened.as_ref())?;
        Ok(communicator)
    }
}
