//! Barriers: no rank leaves before all have entered.
//!
//! Source: the barrier paper [CB-R2–R11]. Three forms of the same algorithms:
//!
//! | form | who makes the steps | repair |
//! |---|---|---|
//! | [`BarrierForm::Nic`] | the kernel NIC, without waking ranks | NACK to the NIC that owes |
//! | [`BarrierForm::User`] | the same firmware, driven by the engine | NACK to the rank that owes |
//! | [`BarrierForm::Channel`] | messages over channels ([`channel`]) | the channel's |
//!
//! The first two are groups of the collective machine ([`group`]), which combine the ranks of a
//! node before they use the network. A communicator begins with the user-space form, which needs no
//! agreement; after a few barriers its members find out whether all of them can get a slot of the
//! kernel NIC ([`nic`]), and if so use it. The last barrier of a job goes over channels, because a
//! rank that has left does not answer NACKs.

mod channel;
mod form;
mod group;
mod nic;

pub use form::{BarrierForm, BarrierKind};
pub(crate) use group::BarrierGroups;
pub(crate) use nic::{NicAccess, OpeningThread};
pub use nic::{NicChoice, NicState};

use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::compare::Call;
use crate::error::Error;
use omnes_net::{Disruption, Operation};
use omnes_topo::BarrierAlgorithm;
use std::time::Duration;

/// Time to wait for the answers that tell which ranks are missing.
const ANSWER_TIME: Duration = Duration::from_millis(200);

impl Communicator {
    /// Waits until all ranks of the communicator have called it. If
    /// [`WhileWaiting`](crate::WhileWaiting) interrupts the wait, this rank has entered the barrier
    /// nevertheless, except over channels and while the nodes agree on the kernel NIC; its next
    /// call enters the next barrier.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a member has failed, [`Error::PeerLeft`] if one has left the job,
    /// [`Error::Interrupted`]. [`Error::Barrier`] if the kernel NIC has lost the barrier, for
    /// example because `omnesd` has ended; the other ranks then get [`Error::CollectivesBroken`],
    /// as do all later collectives.
    pub fn barrier(&self) -> Result<(), Error> {
        self.barrier_with(self.usual_barrier())
    }

    /// Runs a barrier on the library's own behalf. If this rank has given up waiting for a barrier,
    /// that one completes first, and the caller's next barrier call still returns its outcome.
    /// Collective.
    pub(crate) fn meet(&self) -> Result<(), Error> {
        let has_given_up = self.has_unfinished(self.usual_barrier());
        if !has_given_up {
            return self.barrier();
        }
        let met = self.barrier().and_then(|()| self.barrier());
        self.keep_over();
        met
    }

    /// As [`Self::barrier`], with the given algorithm, which must be the same on all ranks.
    ///
    /// # Errors
    /// As [`Self::barrier`]; [`Error::NoNic`] for a barrier through the kernel NIC if it is not
    /// available on all ranks.
    pub fn barrier_with(&self, kind: impl Into<BarrierKind>) -> Result<(), Error> {
        let kind = kind.into();
        // Only this rank knows that it waits for the same barrier again.
        if self.has_unfinished(kind) {
            self.check_whole()?;
        } else {
            self.begin(Call::of(Collective::Barrier))?;
        }
        self.job().engine.yield_core_if_due();
        match self.enter_barrier(kind)? {
            Some(operation) => self.notify_if_nic_lost(self.wait_for(operation).map(|_| ())),
            None => Ok(()),
        }
    }

    /// Passes the outcome of a barrier on. Only the leader of one node sees that the kernel NIC no
    /// longer runs the barrier, so it notifies the others, for whom the barrier never completes.
    pub(crate) fn notify_if_nic_lost<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Barrier { .. }) = &outcome {
            self.give_up(self.rank(), Collective::Barrier);
        }
        outcome
    }

    /// As [`Self::barrier`], with a time limit. If one rank enters with a limit, all must; limits
    /// may differ. On timeout, the error names the ranks that have not arrived. The caller has
    /// still entered the barrier, and its next barrier of the default kind continues to wait for it
    /// (with `OMNES_NIC=off` only one with a limit does); barriers within other calls do not. Such
    /// barriers use the kernel NIC if the communicator already does, but never switch to it,
    /// because ranks wait for each other to switch.
    ///
    /// # Errors
    /// [`Error::BarrierTimeout`]; else as [`Self::barrier`].
    pub fn barrier_timeout(&self, limit: Duration) -> Result<(), Error> {
        if self.size() == 1 {
            return Ok(());
        }
        self.check_whole()?;
        self.job().engine.yield_core_if_due();
        // Not over channels, whose messages do not identify missing ranks.
        let Some(operation) = self.enter_usual_group()? else { return Ok(()) };
        let breaks = |gone: Disruption<'_>| self.breaks_collective(gone);
        if let Some(outcome) = self.job().engine.wait_at_most(operation, limit, breaks) {
            let outcome = outcome.map(|_| ()).map_err(|error| self.note_error(error));
            return self.notify_if_nic_lost(outcome);
        }
        let missing = self.missing_of(operation);
        Err(Error::BarrierTimeout { ms: limit.as_millis() as u64, missing })
    }

    /// Enters a barrier. Returns the operation to wait for, if the form uses a group.
    fn enter_barrier(&self, kind: BarrierKind) -> Result<Option<Operation>, Error> {
        let algorithm = kind.algorithm.unwrap_or_else(|| self.usual_algorithm());
        if self.size() == 1 {
            return Ok(None);
        }
        let meet = || self.barrier_over_channels(algorithm).map(|()| None);
        if self.job().is_finalizing() {
            // No notice is sent: this rank leaves whatever the outcome, and the others learn of it
            // that way.
            return meet();
        }
        if kind.form == Some(BarrierForm::Channel) {
            return self.run_collective(Collective::Barrier, meet);
        }
        self.enter_group(kind.form, algorithm)
    }

    /// Enters a barrier without waiting; it must not require any agreement.
    pub(crate) fn start_barrier(&self) -> Result<Option<Operation>, Error> {
        if self.size() == 1 {
            return Ok(None);
        }
        self.check_whole()?;
        self.enter_usual_group()
    }

    /// As [`Self::start_barrier`], for a kind whose group is open.
    pub(crate) fn start_barrier_of(&self, kind: BarrierKind) -> Result<Option<Operation>, Error> {
        self.check_whole()?;
        if kind.form == Some(BarrierForm::Channel) {
            let reason = "barriers over channels cannot be entered without waiting".to_owned();
            return Err(Error::Barrier { reason });
        }
        if self.size() == 1 {
            return Ok(None);
        }
        let algorithm = kind.algorithm.unwrap_or_else(|| self.usual_algorithm());
        let started = self.enter_known_group(kind.form, algorithm);
        started.unwrap_or_else(|| {
            let reason = format!("no blocking barrier of the kind {kind} has been entered before");
            Err(Error::Barrier { reason })
        })
    }

    fn usual_barrier(&self) -> BarrierKind {
        let config = &self.job().config;
        let form = (config.nic == NicChoice::Off).then_some(BarrierForm::Channel);
        BarrierKind { form, algorithm: None }
    }

    /// One packet from each rank and one multicast in return is the minimum; where many ranks send
    /// to one, or without multicast, parallel steps are faster.
    pub(super) fn usual_algorithm(&self) -> BarrierAlgorithm {
        if let Some(algorithm) = self.job().config.barrier {
            return algorithm;
        }
        match (
            self.nodes().count() <= BarrierAlgorithm::COUNTER_NODES_MAX,
            self.job().engine.is_oversubscribed(),
        ) {
            (true, true) => BarrierAlgorithm::Counter,
            (true, false) if self.is_worth_multicast() => BarrierAlgorithm::Counter,
            _ => BarrierAlgorithm::Dissemination,
        }
    }

    /// How the barriers of this communicator are run at present; if not by the kernel NIC, also
    /// why.
    pub fn nic(&self) -> NicState {
        self.nic_use()
    }

    /// Ranks of this communicator that have not entered a barrier that takes long.
    fn missing_of(&self, operation: Operation) -> Vec<u32> {
        let Some(id) = self.keep_unfinished(operation) else { return Vec::new() };
        let missing = self.job().engine.missing(id, ANSWER_TIME);
        missing.into_iter().map(|rank| self.comm_rank(rank.0)).collect()
    }
}
