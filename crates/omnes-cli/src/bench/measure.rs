//! The measuring loop.
//!
//! Per iteration, the sample is the time of the slowest rank: a collective is over when its last
//! rank is out. A barrier before each iteration lets all ranks start together (barriers,
//! ping-pongs and windows of messages need none). Rank 0 decides how many iterations fit into the
//! budget, from the slowest rank's warm-up, so all ranks do the same number. A broadcast started
//! by the clock counts from that time; iterations in which a rank was late are left out.
//!
//! Cost outside the timed calls: one linear gathering of 8 bytes per iteration and rank.

use super::clock::{self, Start};
use super::counts::{Counts, PerOperation};
use super::group;
use super::options::{Check, Measure, Op};
use super::pattern::Pattern;
use super::summary::Summary;
use super::transfer::{Point, Transfer};
use anyhow::Result;
use omnes::Communicator;
use std::time::Duration;

/// Sample of a rank that was not ready in time; larger than any time, so it wins over the others.
const LATE_NS: u64 = u64::MAX;

/// What is known of a point after it was measured; whole at rank 0 only.
pub struct Measured {
    /// Which point.
    pub point: Point,
    /// Iterations that count.
    pub iters: u64,
    /// Times of one operation; `None` if every iteration was late.
    pub summary: Option<Summary>,
    /// Costs of one operation.
    pub costs: PerOperation,
    /// Wrong bytes found on all ranks.
    pub errors: u64,
    /// How it was started by the clock.
    pub window: Option<Window>,
}

/// A start by the clock.
#[derive(Clone, Copy)]
pub struct Window {
    /// Share of iterations that were left out.
    pub late: f64,
    /// Time from naming the start to the start.
    pub window_us: f64,
}

/// Measures points, one after the other, in a job.
pub struct Bench<'comm> {
    comm: &'comm Communicator,
    check: Check,
    budget: Duration,
    iters_min: u64,
    iters_max: u64,
    warmup: u64,
    seed: u64,
}

impl<'comm> Bench<'comm> {
    /// Prepares measuring with `options`.
    pub fn new(comm: &'comm Communicator, options: &Measure, seed: u64) -> Self {
        Self {
            comm,
            check: options.data_check(),
            budget: options.budget,
            iters_min: options.min_iters,
            iters_max: options.max_iters,
            warmup: options.warmup,
            seed,
        }
    }

    /// Measures one point. Collective.
    pub fn measure(&self, point: Point) -> Result<Measured> {
        let mut paced = Paced::new(self.comm, point);
        let mut errors = self.count_errors(&mut paced.transfer, 1)?;
        let window_ns = paced.find_window()?;
        let iters = self.agree_on_iterations(&mut paced)?;
        self.comm.barrier()?;
        paced.inside = Counts::default();
        let before = Counts::read(self.comm);
        let mut samples = Vec::with_capacity(usize::try_from(iters)?);
        for _ in 0..iters {
            samples.push(paced.iterate()?);
        }
        let whole = Counts::read(self.comm).since(before);
        errors += self.count_errors(&mut paced.transfer, 2)?;
        let errors = group::combine(self.comm, &[errors], |a, b| a + b)?[0];
        let operations = iters * point.operations();
        let costs = PerOperation::gather(self.comm, paced.counts(whole), operations)?;
        let mut longest = group::combine(self.comm, &samples, u64::max)?;
        longest.retain(|&sample| sample != LATE_NS);
        let counted = longest.len() as u64;
        let window = window_ns.map(|window_ns| Window {
            late: 1.0 - counted as f64 / iters as f64,
            window_us: window_ns as f64 / 1e3,
        });
        let summary = Summary::of(&longest, point.operations());
        Ok(Measured { point, iters: counted, summary, costs, errors, window })
    }

    /// Warms up, and says how many iterations fit into the budget; the same at every rank.
    fn agree_on_iterations(&self, paced: &mut Paced<'_>) -> Result<u64> {
        self.comm.barrier()?;
        let start = clock::now_ns();
        paced.iterate()?;
        let first_ns = self.agree_on_longest(clock::now_ns() - start)?;
        // A slow point does not need all of the warm-up, and must not spend the budget on it.
        let more = fitting(self.budget, first_ns, 0, self.warmup - 1);
        if more == 0 {
            return Ok(fitting(self.budget, first_ns, self.iters_min, self.iters_max));
        }
        let start = clock::now_ns();
        for _ in 0..more {
            paced.iterate()?;
        }
        let each_ns = self.agree_on_longest((clock::now_ns() - start) / more)?;
        Ok(fitting(self.budget, each_ns, self.iters_min, self.iters_max))
    }

    fn agree_on_longest(&self, mine_ns: u64) -> Result<u64> {
        let longest = group::combine(self.comm, &[mine_ns], u64::max)?;
        group::share_number(self.comm, longest[0])
    }

    fn count_errors(&self, transfer: &mut Transfer<'_>, round: u64) -> Result<u64> {
        match self.check {
            Check::Off => Ok(0),
            Check::BeforeAndAfter => transfer.checked(Pattern { seed: self.seed, round }),
        }
    }
}

/// What comes before each call.
#[derive(Clone, Copy)]
enum Pace {
    /// Nothing: the calls themselves keep the ranks together.
    Free,
    /// A barrier.
    Barrier,
    /// A point in time, named this long ahead.
    Clock { window_ns: u64 },
}

/// A transfer with what comes before each call, and what was counted inside the calls.
struct Paced<'comm> {
    comm: &'comm Communicator,
    transfer: Transfer<'comm>,
    pace: Pace,
    inside: Counts,
}

impl<'comm> Paced<'comm> {
    fn new(comm: &'comm Communicator, point: Point) -> Self {
        let pace = match point.op {
            Op::Barrier | Op::Latency | Op::Bandwidth => Pace::Free,
            Op::Bcast => Pace::Barrier,
            Op::Wbcast => Pace::Clock { window_ns: 0 },
        };
        let transfer = Transfer::new(comm, point);
        Self { comm, transfer, pace, inside: Counts::default() }
    }

    /// Finds the window, where one is needed. Collective.
    fn find_window(&mut self) -> Result<Option<u64>> {
        let Pace::Clock { window_ns } = &mut self.pace else { return Ok(None) };
        *window_ns = clock::fitting_window_ns(self.comm, || self.transfer.call())?;
        Ok(Some(*window_ns))
    }

    /// One iteration; gives this rank's time in nanoseconds.
    fn iterate(&mut self) -> Result<u64> {
        let announced = match self.pace {
            Pace::Free => {
                let start = clock::now_ns();
                self.transfer.call()?;
                return Ok(clock::now_ns() - start);
            }
            Pace::Barrier => self.comm.barrier().map(|()| None)?,
            Pace::Clock { window_ns } => Some(clock::announce(self.comm, window_ns)?),
        };
        let before = Counts::read(self.comm);
        let start = announced.map_or_else(|| Start::At(clock::now_ns()), clock::wait_until);
        self.transfer.call()?;
        let end = clock::now_ns();
        self.inside.add(Counts::read(self.comm).since(before));
        Ok(match start {
            Start::At(start) => end - start,
            Start::Late => LATE_NS,
        })
    }

    /// What the calls cost, `whole` being what the whole loop did.
    fn counts(&self, whole: Counts) -> Counts {
        match self.pace {
            Pace::Free => whole,
            Pace::Barrier | Pace::Clock { .. } => self.inside.with_retransmits_of(whole),
        }
    }
}

/// Iterations of `each_ns` that fit into `budget`, within the bounds.
fn fitting(budget: Duration, each_ns: u64, iters_min: u64, iters_max: u64) -> u64 {
    let fitting = budget.as_nanos() / u128::from(each_ns.max(1));
    u64::try_from(fitting).unwrap_or(u64::MAX).clamp(iters_min, iters_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_fill_the_budget_within_their_bounds() {
        let half = Duration::from_millis(500);
        assert_eq!(fitting(half, 1_000_000, 5, 1000), 500);
        assert_eq!(fitting(half, 1_000_000_000, 5, 1000), 5);
        assert_eq!(fitting(half, 10, 5, 1000), 1000);
        assert_eq!(fitting(half, 0, 5, 1000), 1000);
    }
}
