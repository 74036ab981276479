//! Part of a nonblocking operation that is hidden behind computation, as in the OSU benchmarks.
//!
//! Three times of the slowest rank: *pure*, of an operation that is waited for immediately;
//! *compute*, of work for the processor alone, without communication; *overall*, of the operation
//! with that work between its start and the wait. The hidden part is the part of the pure time that
//! the overall time does not show.
//!
//! The work is the same on all ranks, as much as fills the pure time according to a calibration
//! with all of them working. Its time is measured in turns with overlapped calls, so that processor
//! time that an operation takes meanwhile counts as not hidden.

use super::clock;
use super::rank;
use super::summary::Summary;
use super::transfer::Transfer;
use anyhow::Result;
use omnes::Communicator;
use std::hint::black_box;

/// Number of tries of a calibration, and the assumed duration of a step until then.
const TRIES: usize = 9;
const STEP_NS: u64 = 4;

/// Overlap at one point; valid at rank 0 only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// Median time of the work alone.
    pub compute_us: f64,
    /// Median time of an operation with the work after its start.
    pub overall_us: f64,
    /// Share of the pure time that is hidden.
    pub percent: f64,
}

impl Overlap {
    fn of(pure_us: f64, compute_us: f64, overall_us: f64) -> Self {
        let shown = (overall_us - compute_us) / pure_us;
        Self { compute_us, overall_us, percent: (100.0 * (1.0 - shown)).max(0.0) }
    }
}

/// Measures how much of `transfer`, whose pure time is `pure_us` at rank 0, is hidden. Collective.
pub fn measure(
    comm: &Communicator,
    transfer: &mut Transfer<'_>,
    pure_us: f64,
    iters: u64,
) -> Result<Overlap> {
    let pure_ns = rank::share_number(comm, (pure_us * 1e3) as u64)?;
    let steps = calibrated(comm, pure_ns)?;
    let (mut compute, mut overall) = (Vec::new(), Vec::new());
    for _ in 0..iters {
        compute.push(time_of_work(comm, steps)?);
        overall.push(timed(comm, || transfer.call_beside(|| work(steps)))?);
    }
    Ok(Overlap::of(pure_us, median_us(comm, &compute)?, median_us(comm, &overall)?))
}

/// Number of steps of work that take this long. Collective.
fn calibrated(comm: &Communicator, wanted_ns: u64) -> Result<u64> {
    let tried = wanted_ns / STEP_NS + 1;
    let times: Result<Vec<_>> = (0..TRIES).map(|_| time_of_work(comm, tried)).collect();
    let taken_ns = rank::share_number(comm, (median_us(comm, &times?)? * 1e3) as u64)?;
    Ok((u128::from(tried) * u128::from(wanted_ns) / u128::from(taken_ns.max(1))) as u64)
}

/// Median of the slowest rank's times; valid at rank 0. Collective.
fn median_us(comm: &Communicator, samples: &[u64]) -> Result<f64> {
    let slowest = rank::combine(comm, samples, u64::max)?;
    Ok(Summary::of(&slowest, 1).expect("there is an iteration").median_us)
}

/// This rank's time of `call` after a barrier, in nanoseconds.
fn timed(comm: &Communicator, call: impl FnOnce() -> Result<()>) -> Result<u64> {
    comm.barrier()?;
    let start = clock::now_ns();
    call()?;
    Ok(clock::now_ns() - start)
}

/// This rank's time of work alone, while all ranks work.
fn time_of_work(comm: &Communicator, steps: u64) -> Result<u64> {
    timed(comm, || {
        work(steps);
        Ok(())
    })
}

/// Keeps the processor busy.
fn work(steps: u64) {
    // Each step depends on the previous one.
    (0..steps).fold(1u64, |state, step| black_box(state.wrapping_mul(step | 1)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_share_of_the_operation_hidden_by_computation() {
        let percent = |compute, overall| Overlap::of(100.0, compute, overall).percent;
        assert_eq!(percent(100.0, 200.0), 0.0);
        assert_eq!(percent(100.0, 100.0), 100.0);
        assert_eq!(percent(120.0, 145.0), 75.0);
        // The overall time may exceed the sum of both.
        assert_eq!(percent(100.0, 250.0), 0.0);
    }
}
