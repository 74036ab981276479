//! Barrier by messages: nobody leaves before all have entered.
//!
//! Source: the three algorithms of seed 003 [CB-R9–R11] over channels; the steps come from
//! [`omnes_topo::Barrier`]. Cost: one empty message per step and rank, 56 bytes each.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use omnes_topo::Barrier;
use omnes_wire::Rank;

impl Communicator {
    /// Waits until all ranks of the communicator have called it.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a member has failed.
    pub fn barrier(&self) -> Result<(), Error> {
        self.barrier_with(self.job().config.barrier.unwrap_or_else(|| self.usual_barrier()))
    }

    /// Steps cost most where each rank has a core, messages where they share.
    fn usual_barrier(&self) -> Barrier {
        match self.job().engine.is_crowded() {
            true => Barrier::GatherBroadcast,
            false => Barrier::Dissemination,
        }
    }

    /// As [`Self::barrier`], by an algorithm of choice, the same on all ranks.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn barrier_with(&self, algorithm: Barrier) -> Result<(), Error> {
        let schedule = algorithm
            .schedule(Rank(self.rank()), self.size())
            .expect("a rank below the size has a schedule");
        for step in schedule {
            self.barrier_step(step.send_to, step.receive_from)?;
        }
        Ok(())
    }

    fn barrier_step(&self, to: Option<Rank>, from: Option<Rank>) -> Result<(), Error> {
        let nothing = Bytes::of(&[]);
        // SAFETY: no byte is read or written.
        let receive = from
            .map(|from| unsafe { self.start_receive(from.0, Purpose::Barrier, nothing) })
            .transpose()?;
        // SAFETY: as above.
        let sent =
            to.map(|to| unsafe { self.start_send(to.0, Purpose::Barrier, nothing, 0) }).transpose();
        let outcome = receive.map(|receive| self.wait_for(receive)).transpose();
        sent?;
        outcome.map(|_| ())
    }
}
