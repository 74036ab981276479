//! The measuring loop.
//!
//! Per iteration, the sample is the time of the slowest rank: a collective is complete when its
//! last rank has returned. A barrier before each iteration lets all ranks start together (barriers,
//! ping-pongs and windows of messages need none). Rank 0 decides how many iterations fit into the
//! budget, from the slowest rank's warm-up, so all ranks perform the same number. A broadcast
//! started by the clock counts from that time; iterations in which a rank was late are left out.
//!
//! A skewed broadcast is different [BC-R26]: after the barrier all ranks except the root sleep for
//! a random time, as if they computed, and its sample is the mean over the ranks of the time inside
//! the call, which does not include their own delay.
//!
//! For nonblocking operations the sample is the time of an operation that is waited for
//! immediately; how much of it computation hides is measured afterwards (`overlap`).
//!
//! A multi-send is timed at its root only, until the last destination's answer [MS-R23].
//!
//! Cost outside the timed calls: one linear gather of 8 bytes per iteration and rank.

use super::clock::{self, Start};
use super::counts::{AtRoot, Counts, PerOperation, RootCounts};
use super::options::{Check, Measure, Op};
use super::overlap::{self, Overlap};
use super::pattern::Pattern;
use super::rank;
use super::stage::Setting;
use super::summary::Summary;
use super::transfer::{Point, Transfer};
use anyhow::Result;
use omnes::{Communicator, NicState};
use std::time::Duration;

/// Sample of a rank that was not ready in time; larger than any time, so it is the maximum.
const LATE_NS: u64 = u64::MAX;

/// Maximum warm-up time of a job, and the number of barriers between two checks of the clock.
const JOB_WARM_UP: Duration = Duration::from_millis(300);
const WARM_UP_BARRIERS: u32 = 64;

/// An iteration of a nonblocking operation takes as long as this many calls: one waited for
/// immediately, the work, and both one after the other.
const OVERLAPPED_CALLS: u32 = 4;

/// Time after which delayed acknowledgements have arrived.
const SETTLE_TIME: Duration = Duration::from_millis(5);

/// Result of measuring a point; complete at rank 0 only.
pub struct Measured {
    /// The measured point.
    pub point: Point,
    /// Number of iterations that count.
    pub iters: u64,
    /// Times of one operation; `None` if every iteration was late.
    pub summary: Option<Summary>,
    /// Part of a nonblocking operation that computation hides.
    pub overlap: Option<Overlap>,
    /// Costs of one operation.
    pub costs: PerOperation,
    /// Costs of a broadcast at its root.
    pub at_root: Option<AtRoot>,
    /// Mean time of the root in its calls, if ranks are late, in microseconds.
    pub root_us: Option<f64>,
    /// How packets to all travelled, if forms are compared.
    pub form: Option<String>,
    /// Wrong bytes found on all ranks.
    pub errors: u64,
    /// Start by the clock, if used.
    pub window: Option<Window>,
}

/// A start by the clock.
#[derive(Clone, Copy)]
pub struct Window {
    /// Share of iterations that were left out.
    pub late: f64,
    /// Time from the announcement of the start to the start.
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
    /// Prepares measurements with `options`.
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

    /// Lets the job load firmware and queues, which it does in its first moments, lest the first
    /// point be measured partly without them: until the kernel NIC runs its barriers or is known
    /// not to, and for the queues at most as long as one point takes. Collective.
    pub fn warm_up(&self) -> Result<()> {
        let until = clock::now_ns() + JOB_WARM_UP.min(self.budget).as_nanos() as u64;
        loop {
            for _ in 0..WARM_UP_BARRIERS {
                self.comm.barrier()?;
            }
            let is_over = clock::now_ns() >= until && self.comm.nic() != NicState::Opening;
            if rank::share_number(self.comm, u64::from(is_over))? > 0 {
                return Ok(());
            }
        }
    }

    /// Measures one point. Collective.
    pub fn measure(&self, setting: &Setting) -> Result<Measured> {
        let point = setting.point;
        let mut paced = Paced::new(self.comm, setting, self.seed);
        let mut errors = self.count_errors(&mut paced.transfer, 1)?;
        let window_ns = paced.find_window()?;
        let iters = self.agree_on_iterations(point.op, &mut paced)?;
        self.settle(point)?;
        paced.inside = Counts::default();
        paced.inside_root = RootCounts::default();
        let (before, root_before) = (Counts::read(self.comm), RootCounts::read(self.comm));
        let mut samples = Vec::with_capacity(usize::try_from(iters)?);
        for _ in 0..iters {
            samples.push(paced.iterate()?);
        }
        let whole = Counts::read(self.comm).since(before);
        self.settle(point)?;
        let root_whole = RootCounts::read(self.comm).since(root_before);
        let mut combined = self.combine(point, &samples)?;
        combined.retain(|&sample| sample != LATE_NS);
        let summary = Summary::of(&combined, point.operations());
        let overlap = self.overlap(&mut paced.transfer, point, summary, iters)?;
        errors += self.count_errors(&mut paced.transfer, 2)?;
        let errors = rank::combine(self.comm, &[errors], |a, b| a + b)?[0];
        let operations = iters * point.operations();
        let costs = PerOperation::gather(self.comm, paced.counts(whole), operations)?;
        let calls = match paced.pace {
            Pace::BarrierBetween | Pace::Free => root_whole,
            _ => paced.inside_root,
        };
        let root = RootCounts::per_operation(calls, root_whole, operations);
        let counted = combined.len() as u64;
        let window = window_ns.map(|window_ns| Window {
            late: 1.0 - counted as f64 / iters as f64,
            window_us: window_ns as f64 / 1e3,
        });
        let is_skewed = point.op == Op::Skew;
        Ok(Measured {
            point,
            iters: counted,
            summary,
            overlap,
            costs,
            at_root: point.op.may_multisend().then_some(root),
            form: setting.form.clone(),
            root_us: is_skewed.then(|| samples.iter().sum::<u64>() as f64 / iters as f64 / 1e3),
            errors,
            window,
        })
    }

    /// Measures how much of a nonblocking operation is hidden; `summary` has its pure times at rank
    /// 0.
    fn overlap(
        &self,
        transfer: &mut Transfer<'_>,
        point: Point,
        summary: Option<Summary>,
        iters: u64,
    ) -> Result<Option<Overlap>> {
        if !point.op.is_nonblocking() {
            return Ok(None);
        }
        let pure_us = summary.map_or(0.0, |summary| summary.median_us);
        overlap::measure(self.comm, transfer, pure_us, iters).map(Some)
    }

    /// Waits until packets in flight have arrived, so that they are counted where they belong.
    /// Collective.
    fn settle(&self, point: Point) -> Result<()> {
        self.comm.barrier()?;
        if point.op.may_multisend() {
            std::thread::sleep(SETTLE_TIME);
            self.comm.barrier()?;
        }
        Ok(())
    }

    /// Combines all ranks' samples into one number per iteration; valid at rank 0.
    fn combine(&self, point: Point, samples: &[u64]) -> Result<Vec<u64>> {
        if point.op == Op::Multisend {
            // The time of a multi-send is the root's [MS-R23]; the others only wait for the next
            // one.
            return Ok(samples.to_vec());
        }
        if point.op != Op::Skew {
            return rank::combine(self.comm, samples, u64::max);
        }
        let sums = rank::combine(self.comm, samples, |a, b| a + b)?;
        Ok(sums.into_iter().map(|sum| sum / u64::from(self.comm.size())).collect())
    }

    /// Warms up, and returns how many iterations fit into the budget; the same at every rank.
    fn agree_on_iterations(&self, op: Op, paced: &mut Paced<'_>) -> Result<u64> {
        let budget = if op.is_nonblocking() { self.budget / OVERLAPPED_CALLS } else { self.budget };
        self.comm.barrier()?;
        let start = clock::now_ns();
        paced.iterate()?;
        let first_ns = self.agree_on_longest(clock::now_ns() - start)?;
        // A slow point does not need the whole warm-up, and must not spend the budget on it.
        let more = fitting(budget, first_ns, 0, self.warmup - 1);
        if more == 0 {
            return Ok(fitting(budget, first_ns, self.iters_min, self.iters_max));
        }
        let mut each = Vec::with_capacity(usize::try_from(more)?);
        for _ in 0..more {
            let start = clock::now_ns();
            paced.iterate()?;
            each.push(clock::now_ns() - start);
        }
        let each_ns = self.agree_on_longest(expected(&mut each))?;
        Ok(fitting(budget, each_ns, self.iters_min, self.iters_max))
    }

    fn agree_on_longest(&self, mine_ns: u64) -> Result<u64> {
        let longest = rank::combine(self.comm, &[mine_ns], u64::max)?;
        rank::share_number(self.comm, longest[0])
    }

    fn count_errors(&self, transfer: &mut Transfer<'_>, round: u64) -> Result<u64> {
        match self.check {
            Check::Off => Ok(0),
            Check::BeforeAndAfter => transfer.checked(Pattern { seed: self.seed, round }),
        }
    }
}

/// Limit of the ratio of mean to median: a few iterations that met a rare event must not reduce a
/// point to a handful of samples.
const MEAN_PER_MEDIAN_MAX: u64 = 4;

/// Expected time of an iteration, after `each`; sorts them.
fn expected(each: &mut [u64]) -> u64 {
    each.sort_unstable();
    let mean = each.iter().sum::<u64>() / each.len() as u64;
    mean.min(each[each.len() / 2] * MEAN_PER_MEDIAN_MAX)
}

/// What precedes each call.
#[derive(Clone, Copy)]
enum Pace {
    /// Nothing: the calls themselves keep the ranks synchronised.
    Free,
    /// A barrier.
    Barrier,
    /// A barrier, which counts too: it is one for many calls, whose packets leave in part while it
    /// is in progress.
    BarrierBetween,
    /// A barrier, then for all ranks except the root a random delay of at most this.
    Skewed { skew: Duration },
    /// A point in time, announced this long ahead.
    Clock { window_ns: u64 },
}

/// A transfer with what precedes each call, and the counts inside the calls.
struct Paced<'comm> {
    comm: &'comm Communicator,
    transfer: Transfer<'comm>,
    pace: Pace,
    /// Generator of the delays.
    draw: Draw,
    inside: Counts,
    inside_root: RootCounts,
}

impl<'comm> Paced<'comm> {
    fn new(comm: &'comm Communicator, setting: &'comm Setting, seed: u64) -> Self {
        let point = setting.point;
        let pace = match point.op {
            Op::Barrier | Op::Latency | Op::Bandwidth | Op::Multisend => Pace::Free,
            Op::Throughput => Pace::BarrierBetween,
            Op::Skew => Pace::Skewed { skew: point.skew },
            Op::Wbcast | Op::Copy => Pace::Clock { window_ns: 0 },
            _ => Pace::Barrier,
        };
        let transfer = Transfer::new(&setting.comm, point);
        let draw = Draw(seed ^ u64::from(comm.rank()) << 32);
        let (inside, inside_root) = (Counts::default(), RootCounts::default());
        Self { comm, transfer, pace, draw, inside, inside_root }
    }

    /// Finds the window, if one is needed. Collective.
    fn find_window(&mut self) -> Result<Option<u64>> {
        let Pace::Clock { window_ns } = &mut self.pace else { return Ok(None) };
        *window_ns = clock::fitting_window_ns(self.comm, || self.transfer.call())?;
        Ok(Some(*window_ns))
    }

    /// Performs one iteration; returns this rank's time in nanoseconds.
    fn iterate(&mut self) -> Result<u64> {
        let announced = match self.pace {
            Pace::Free => {
                let start = clock::now_ns();
                self.transfer.call()?;
                return Ok(clock::now_ns() - start);
            }
            Pace::Barrier | Pace::BarrierBetween => self.comm.barrier().map(|()| None)?,
            Pace::Skewed { skew } => {
                self.comm.barrier()?;
                if self.comm.rank() != 0 && !skew.is_zero() {
                    // Sleeps, because ranks that share a core must not take it from each other.
                    std::thread::sleep(self.draw.up_to(skew));
                }
                None
            }
            Pace::Clock { window_ns } => Some(clock::announce(self.comm, window_ns)?),
        };
        let (before, root_before) = (Counts::read(self.comm), RootCounts::read(self.comm));
        let start = announced.map_or_else(|| Start::At(clock::now_ns()), clock::wait_until);
        self.transfer.call()?;
        let end = clock::now_ns();
        self.inside.add(Counts::read(self.comm).since(before));
        self.inside_root.add_call(RootCounts::read(self.comm).since(root_before));
        Ok(match start {
            Start::At(start) => end - start,
            Start::Late => LATE_NS,
        })
    }

    /// Costs of the calls; `whole` has those of the whole loop.
    fn counts(&self, whole: Counts) -> Counts {
        match self.pace {
            Pace::Free | Pace::BarrierBetween => whole,
            Pace::Barrier | Pace::Skewed { .. } | Pace::Clock { .. } => {
                self.inside.with_retransmits_of(whole)
            }
        }
    }
}

/// Draws delays; the same seed gives the same delays.
struct Draw(u64);

impl Draw {
    fn up_to(&mut self, most: Duration) -> Duration {
        // Knuth's multiplier; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        most.mul_f64((self.0 >> 32) as f64 / f64::from(u32::MAX))
    }
}

/// Number of iterations of `each_ns` that fit into `budget`, within the bounds.
fn fitting(budget: Duration, each_ns: u64, iters_min: u64, iters_max: u64) -> u64 {
    let fitting = budget.as_nanos() / u128::from(each_ns.max(1));
    u64::try_from(fitting).unwrap_or(u64::MAX).clamp(iters_min, iters_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_dominate_the_expected_iteration_time() {
        assert_eq!(expected(&mut [50]), 50);
        assert_eq!(expected(&mut [60, 40, 50, 40_000]), 240);
        assert_eq!(expected(&mut [50, 50, 2000, 2000]), 1025);
        assert_eq!(expected(&mut [60, 90, 50, 100]), 75);
    }

    #[test]
    fn random_delays_span_their_range_and_differ_by_rank() {
        let (mut one, mut other) = (Draw(7 ^ 1 << 32), Draw(7 ^ 2 << 32));
        let most = Duration::from_micros(400);
        let delays: Vec<_> = (0..1000).map(|_| one.up_to(most)).collect();
        assert!(delays.iter().all(|delay| *delay <= most));
        let mean = delays.iter().sum::<Duration>() / 1000;
        assert!((180..220).contains(&mean.as_micros()), "{mean:?}");
        assert_ne!(delays[0], other.up_to(most));
    }

    #[test]
    fn iteration_count_fills_the_budget_within_its_bounds() {
        let half = Duration::from_millis(500);
        assert_eq!(fitting(half, 1_000_000, 5, 1000), 500);
        assert_eq!(fitting(half, 1_000_000_000, 5, 1000), 5);
        assert_eq!(fitting(half, 10, 5, 1000), 1000);
        assert_eq!(fitting(half, 0, 5, 1000), 1000);
    }
}
