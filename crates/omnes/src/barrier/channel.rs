//! Barrier by messages over channels, which answer and repair each one.
//!
//! Source: the three algorithms of the barrier paper [CB-R9–R11] over channels, and the counter;
//! the steps come from [`omnes_topo::BarrierAlgorithm`]. Cost: one empty message per step and rank,
//! 56 bytes each; the counter's rank 0 exchanges two with each other rank.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use omnes_net::Operation;
use omnes_topo::{BarrierAlgorithm, Step};
use omnes_wire::Rank;

impl Communicator {
    /// A barrier over channels, whose messages are answered: the last one of a job is.
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

    /// Sends and receives all of a step, then waits; the first error, if there is one. `in_flight`
    /// is empty at first and holds what was waited for afterwards.
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
