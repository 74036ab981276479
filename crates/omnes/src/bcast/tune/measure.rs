//! Measures the figures of the model: rank 0 leads, the others follow.
//!
//! For each broadcast:
//!
//! 1. Rank 0 announces it by a small broadcast, and waits until all others wait for it.
//! 2. The broadcast.
//! 3. Every rank reports, up a binomial tree, only that it is done.
//!
//! A sample is the time of steps 2 and 3 at rank 0. A point is the lower quartile of its samples,
//! because other activity of the machines makes them longer and never shorter, less the time of
//! step 3, which is half of the time that an empty message takes down the same tree and up again.
//! The last rank of a tree or chain is also the deepest in the tree of reports, so a report is
//! subtracted as it was spent. An error in this time is common to all algorithms and does not
//! change the choice. The algorithms take turns, so that other activity slows all of them alike.
//!
//! Guarantees: all ranks end with equal figures. Cost: three messages per rank and sample in
//! addition to the broadcast itself.

use super::super::BcastAlgorithm;
use super::super::PIPELINE_BYTES;
use super::cost::{Candidate, Cost, Figures, Point};
use super::step::{STEP_BYTES, Step};
use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use omnes_topo::Tree;
use omnes_wire::Rank;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Tree of the announcements and reports between broadcasts.
const TREE: Tree = Tree::Binomial;
/// Number of measurements of a report.
const REPORTS: usize = 8;
/// Algorithm by which an empty message goes down the tree that reports go up.
const REPORT_ALGORITHM: Candidate = Candidate::Binomial;
/// Maximum length of a chain that is measured at the start of a job: through more ranks, a message
/// soon takes longer than the choice can save.
const QUICK_CHAIN_RANKS_MAX: u32 = 64;
/// Longest message that is measured: every rank holds it in memory.
pub const BYTES_MAX: u64 = 1 << 30;

/// A point to be measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// Length of the message; points above [`BYTES_MAX`] are left out.
    pub bytes: u64,
    /// Minimum and maximum number of samples.
    pub times: RangeInclusive<usize>,
}

/// What is measured for each algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The points, in order.
    pub points: Vec<Planned>,
    /// Time per algorithm after which no further sample of a point is taken, if there are enough.
    pub budget: Duration,
    /// An algorithm gets no further sample of a point after one that took longer than this.
    pub sample_max: Duration,
    /// Chains of more ranks are not measured: their figures are those of a binomial tree, which
    /// consists of the same hops.
    pub chain_ranks_max: u32,
}

impl Plan {
    /// The minimum that the figures need.
    pub fn quick() -> Self {
        let piece = PIPELINE_BYTES;
        let planned = |bytes, times| Planned { bytes, times };
        let points = vec![planned(8, 24..=24), planned(piece, 3..=5), planned(4 * piece, 3..=5)];
        let budget = Duration::from_millis(5);
        Self { points, budget, sample_max: budget, chain_ranks_max: QUICK_CHAIN_RANKS_MAX }
    }

    /// These sizes in bytes, each for about `budget`, and further ones if they leave a figure
    /// undetermined: a short message, about one piece of the pipeline, and several pieces.
    pub fn thorough(sizes: &[u64], budget: Duration) -> Self {
        let piece = PIPELINE_BYTES;
        let near_and_usual =
            [(0..=1024, 8), (piece / 2..=piece, piece), (2 * piece..=BYTES_MAX, 4 * piece)];
        let mut sizes = sizes.to_vec();
        for (near, usual) in near_and_usual {
            if !sizes.iter().any(|bytes| near.contains(bytes)) {
                sizes.push(usual);
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        let points = sizes.into_iter().map(|bytes| Planned { bytes, times: 5..=1000 }).collect();
        Self { points, budget, sample_max: Duration::MAX, chain_ranks_max: u32::MAX }
    }

    /// The algorithms to measure, of those that work among `ranks` ranks.
    fn candidates(&self, ranks: u32, has_multicast: bool) -> Vec<Candidate> {
        let work = if has_multicast { &Candidate::ALL[..] } else { &Candidate::TREES };
        let is_measured =
            |candidate: &Candidate| *candidate != Candidate::Chain || ranks <= self.chain_ranks_max;
        work.iter().copied().filter(is_measured).collect()
    }
}

/// A point that was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// The algorithm.
    pub candidate: Candidate,
    /// Length of the message, and the lower quartile of the samples.
    pub point: Point,
    /// Number of samples.
    pub times: usize,
}

/// The figures that fit the times; `None` if an algorithm other than a chain was not measured.
pub(super) fn figures(measured: &[Measured], ranks: u32, has_multicast: bool) -> Option<Figures> {
    let cost = |candidate| {
        let points = measured.iter().filter(|it| it.candidate == candidate).map(|it| it.point);
        Cost::fit(candidate, ranks, &points.collect::<Vec<_>>())
    };
    let multicast = if has_multicast { Some(cost(Candidate::Multicast)?) } else { None };
    let binomial = cost(Candidate::Binomial)?;
    let chain = cost(Candidate::Chain).unwrap_or(binomial);
    Some(Figures { multicast, binomial, chain, lambda_thousandths: None })
}

impl Communicator {
    /// Measures all points, at rank 0; the others follow until [`Self::end_measuring`]. `observe`
    /// is called after each size.
    pub(super) fn lead(
        &self,
        plan: &Plan,
        mut observe: impl FnMut(u64),
    ) -> Result<Vec<Measured>, Error> {
        let points = plan.points.iter().filter(|it| it.bytes <= BYTES_MAX);
        let longest = points.clone().map(|it| it.bytes).max();
        let candidates = plan.candidates(self.size(), self.has_multicast());
        let mut leader = Leader::new(self, candidates, longest.unwrap_or(0));
        leader.get_ready()?;
        let mut measured = Vec::new();
        for planned in points {
            measured.extend(leader.measure(planned, plan)?);
            observe(planned.bytes);
        }
        Ok(measured)
    }

    /// Distributes the figures, at rank 0; the others stop following.
    pub(super) fn end_measuring(&self, figures: Option<Figures>) -> Result<(), Error> {
        self.tell(Step::Done(figures))?;
        self.job().choose_by(figures);
        Ok(())
    }

    /// Follows rank 0's steps until it sends figures, and adopts them.
    pub(super) fn follow(&self) -> Result<(), Error> {
        let nonsense = || Error::Mismatch { what: "the format of a measurement" };
        let mut memory = Vec::new();
        loop {
            let mut bytes = [0; STEP_BYTES];
            self.broadcast(0, &mut bytes, BcastAlgorithm::tree(TREE))?;
            match Step::parse(&bytes).ok_or_else(nonsense)? {
                Step::Broadcast { bytes, .. } if bytes > BYTES_MAX => return Err(nonsense()),
                Step::Broadcast { candidate, bytes } => {
                    let bytes = bytes as usize;
                    if memory.len() < bytes {
                        // Not zeros: the kernel would allocate their pages only on first use.
                        memory.resize(bytes, 1);
                    }
                    self.broadcast(0, &mut memory[..bytes], candidate.bcast(self.nodes().count()))?;
                }
                Step::Done(figures) => {
                    self.job().choose_by(figures);
                    return Ok(());
                }
            }
            self.report()?;
        }
    }

    fn tell(&self, step: Step) -> Result<(), Error> {
        self.broadcast(0, &mut step.emit(), BcastAlgorithm::tree(TREE))
    }

    /// Reports to rank 0 that this rank, and all below it in the tree, are done.
    fn report(&self) -> Result<(), Error> {
        let (me, root, nothing) = (Rank(self.rank()), Rank(0), Bytes::of(&[]));
        let checked = "a rank is below the size";
        let children = TREE.children(me, root, self.size()).expect(checked);
        let parent = TREE.parent(me, root, self.size()).expect(checked);
        let mut receives = Vec::with_capacity(children.len());
        let mut started = Ok(());
        for child in children {
            // SAFETY: no byte is written.
            match unsafe { self.start_receive(child.0, Purpose::Gather, nothing) } {
                Ok(receive) => receives.push(receive),
                Err(error) => started = Err(error),
            }
        }
        let waited = self.wait_for_all(&receives);
        started.and(waited)?;
        if let Some(parent) = parent {
            // SAFETY: no byte is read.
            let send = unsafe { self.start_send(parent.0, Purpose::Gather, nothing, 0)? };
            self.wait_for_all(send.as_slice())?;
        }
        Ok(())
    }
}

/// Rank 0 during a measurement.
struct Leader<'world> {
    world: &'world Communicator,
    /// The algorithms to measure.
    candidates: Vec<Candidate>,
    memory: Vec<u8>,
    /// Time of a report, after which all others wait for the announced broadcast.
    report: Duration,
}

impl<'world> Leader<'world> {
    fn new(world: &'world Communicator, candidates: Vec<Candidate>, longest: u64) -> Self {
        Self { world, candidates, memory: vec![1; longest as usize], report: Duration::ZERO }
    }

    /// Measures the time of a report.
    fn get_ready(&mut self) -> Result<(), Error> {
        // The first broadcasts set up buffers, groups and round-trip times.
        for candidate in self.candidates.clone() {
            self.sample(candidate, 0)?;
        }
        // In the second pass, all others wait before a broadcast begins.
        for _ in 0..2 {
            let samples: Result<Vec<_>, _> =
                (0..REPORTS).map(|_| self.sample(REPORT_ALGORITHM, 0)).collect();
            self.report = lower_quartile(&mut samples?) / 2;
        }
        Ok(())
    }

    /// Measures a size, by all algorithms.
    fn measure(&mut self, planned: &Planned, plan: &Plan) -> Result<Vec<Measured>, Error> {
        let (least, most) = (1.max(*planned.times.start()), *planned.times.end());
        let (start, candidates) = (Instant::now(), self.candidates.clone());
        let budget = plan.budget * candidates.len() as u32;
        let mut samples = vec![Vec::new(); candidates.len()];
        let mut times = 0;
        while times < least || times < most && start.elapsed() < budget {
            for (candidate, samples) in candidates.iter().zip(&mut samples) {
                if goes_on(samples, plan.sample_max) {
                    samples.push(self.sample(*candidate, planned.bytes as usize)?);
                }
            }
            times += 1;
        }
        let measured = candidates.iter().zip(&mut samples).map(|(candidate, samples)| {
            let time_ns = self.without_report(lower_quartile(samples));
            let point = Point { bytes: planned.bytes, time_ns };
            Measured { candidate: *candidate, point, times: samples.len() }
        });
        Ok(measured.collect())
    }

    /// Time of the broadcast in a sample, in nanoseconds.
    fn without_report(&self, sample: Duration) -> u64 {
        // No broadcast is faster than one message from rank to rank.
        let hop = self.report / REPORT_ALGORITHM.depth(self.world.size()).max(1) as u32;
        let time = sample.saturating_sub(self.report).max(hop);
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// One broadcast and its reports.
    fn sample(&mut self, candidate: Candidate, bytes: usize) -> Result<Duration, Error> {
        self.world.tell(Step::Broadcast { candidate, bytes: bytes as u64 })?;
        let told = Instant::now();
        while told.elapsed() < self.report {
            // Ranks may share this core, and must first receive the announcement.
            std::thread::yield_now();
        }
        let start = Instant::now();
        let algorithm = candidate.bcast(self.world.nodes().count());
        self.world.broadcast(0, &mut self.memory[..bytes], algorithm)?;
        self.world.report()?;
        Ok(start.elapsed())
    }
}

/// False once a sample took longer than `sample_max`.
fn goes_on(samples: &[Duration], sample_max: Duration) -> bool {
    samples.last().is_none_or(|last| *last <= sample_max)
}

/// The lower quartile. `samples` must not be empty.
fn lower_quartile(samples: &mut [Duration]) -> Duration {
    samples.sort_unstable();
    samples[(samples.len() - 1) / 4]
}

/// The middle sample, or the lower of the two middle ones. `samples` must not be empty.
pub(super) fn median(samples: &mut [Duration]) -> Duration {
    samples.sort_unstable();
    samples[(samples.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles_are_actual_samples() {
        let times = |values: &[u64]| -> Vec<_> {
            values.iter().copied().map(Duration::from_nanos).collect()
        };
        assert_eq!(median(&mut times(&[5])), Duration::from_nanos(5));
        assert_eq!(median(&mut times(&[9, 1])), Duration::from_nanos(1));
        assert_eq!(median(&mut times(&[900, 3, 2])), Duration::from_nanos(3));
        assert_eq!(lower_quartile(&mut times(&[900, 3, 2])), Duration::from_nanos(2));
        assert_eq!(lower_quartile(&mut times(&[9, 4, 900, 3, 2])), Duration::from_nanos(3));
    }

    #[test]
    fn long_chains_are_not_measured_at_startup_and_use_tree_figures() {
        let candidates = |plan: &Plan, ranks| plan.candidates(ranks, true);
        let quick = Plan::quick();
        assert_eq!(candidates(&quick, 64), Candidate::ALL);
        assert_eq!(candidates(&quick, 65), [Candidate::Multicast, Candidate::Binomial]);
        assert_eq!(quick.candidates(65, false), [Candidate::Binomial]);
        assert_eq!(candidates(&Plan::thorough(&[8], Duration::ZERO), 65), Candidate::ALL);
        let measured = Measured {
            candidate: Candidate::Binomial,
            point: Point { bytes: 8, time_ns: 700 },
            times: 1,
        };
        let found = figures(&[measured], 65, false).map(|it| (it.binomial, it.chain));
        assert!(found.is_some_and(|(binomial, chain)| binomial == chain));
    }

    #[test]
    fn sampling_stops_after_a_sample_over_the_time_limit() {
        let (most, more) = (Duration::from_millis(5), Duration::from_nanos(5_000_001));
        assert!(goes_on(&[], most) && goes_on(&[most, most], most));
        assert!(!goes_on(&[more], most) && !goes_on(&[most, more], most));
    }

    #[test]
    fn figures_require_measurements_of_all_available_algorithms() {
        let measured =
            |candidate| Measured { candidate, point: Point { bytes: 8, time_ns: 700 }, times: 1 };
        let trees = Candidate::TREES.map(measured);
        let found = figures(&trees, 3, false).map(|it| (it.multicast, it.binomial.level_ns));
        assert_eq!(found, Some((None, 350)));
        assert_eq!(figures(&trees, 3, true), None);
        assert_eq!(figures(&trees[1..], 3, false), None);
        assert!(
            figures(&Candidate::ALL.map(measured), 3, true)
                .is_some_and(|it| it.multicast.is_some())
        );
    }
}
