//! Barrier by messages over channels, which acknowledge and repair every message.
//!
//! Source: the three algorithms of the barrier paper [CB-R9–R11] over channels, and the counter;
//! the steps come from [`omnes_topo::BarrierAlgorithm`]. Cost: one empty message per step and rank,
//! 56 bytes each; with the counter, rank 0 exchanges two with each other rank.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use omnes_net::Operation;
use omnes_topo::{BarrierAlgorithm, Step};
use omnes_wire::Rank;

impl Communicator {
    /// Runs a barrier over channels, whose messages are acknowledged; the last barrier of a job is
    /// one.
    pub(super) fn barrier_over_channels(&self, algorithm: BarrierAlgorithm) -> Result<(), Error> {
        let schedule = algorithm
            .schedule(Rank(self.rank()), self.size())
            .expect("a rank below the size has a schedule");
        let mut in_flight = Vec::new();
        for step in schedule {
            self.barrier_step(step, &mut in_flight)?;
            in_flight.clear();
        }
        Ok(())
    }

    /// Starts all sends and receives of a step, then waits for them; returns the first error, if
    /// any. `in_flight` is empty on entry and holds the operations of the step on return.
    fn barrier_step(&self, step: Step, in_flight: &mut Vec<Operation>) -> Result<(), Error> {
        let nothing = Bytes::of(&[]);
        let (own, size) = (Rank(self.rank()), self.size());
        let purpose =
            if self.job().is_finalizing() { Purpose::LastBarrier } else { Purpose::Barrier };
        let mut started = Ok(());
        for from in step.receive_from.ranks(own, size) {
            // SAFETY: no byte is read or written.
            match unsafe { self.start_receive(from.0, purpose, nothing) } {
                Ok(receive) => in_flight.push(receive),
                Err(error) => started = started.and(Err(error)),
            }
        }
        for to in step.send_to.ranks(own, size) {
            // SAFETY: as above.
            match unsafe { self.start_send(to.0, purpose, nothing, 0) } {
                Ok(sent) => in_flight.extend(sent),
                Err(error) => started = started.and(Err(error)),
            }
        }
        let waited = self.wait_for_all(in_flight);
        started.and(waited)
    }
}
