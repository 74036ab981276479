//! One run: the plan of a point, and its results.
//!
//! Samples are defined as in `omnes bench`: the slowest rank's time of a broadcast that all ranks
//! start together; half of a round trip; the time of a window of messages or broadcasts, divided by
//! their number; the mean time in the call if ranks are late. A barrier counts from the end of the
//! previous one until its own end. All ranks start together without a message, so there is no
//! barrier before an iteration that would have to be excluded from the counts.

use super::config::Point;
use super::postal::Postal;
use super::values::{Algorithm, Op, steps, usual_barrier, usual_bcast};
use crate::bench::{AtRoot, Summary};
use omnes_proto::algorithm::BcastAlgorithm;
use omnes_sim::engine::{Span, Time};
use omnes_sim::model::{
    Bar, BarrierKind, Carrier, Model, ModelError, Op as Step, Plan, Report, Sample, Setup,
};
use omnes_sim::testbed::Testbed;

/// A completely specified algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Resolved {
    /// Messages between two ranks.
    None,
    Bcast(BcastAlgorithm),
    Barrier(BarrierKind),
}

/// Results of a point.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The point.
    pub point: Point,
    /// Completely specified algorithm, as in results.
    pub algorithm: String,
    /// The postal tree, with the measurements that it follows from.
    pub postal: Option<Postal>,
    /// Times of one operation.
    pub summary: Summary,
    /// Per operation, summed over all ranks: packets, bytes of Omnes headers and data, repairs.
    pub packets: f64,
    pub wire_bytes: f64,
    pub retransmits: f64,
    /// Costs of a broadcast at its root.
    pub at_root: Option<AtRoot>,
    /// Mean time of the root in its calls, if ranks are late, in microseconds.
    pub root_us: Option<f64>,
    /// Copies lost at random, for lack of room in a switch, and in a host; totals.
    pub lost: u64,
    pub dropped_by_switches: u64,
    pub dropped_by_hosts: u64,
    /// Number of events of the model.
    pub events: u64,
    /// Equal runs have equal hashes.
    pub hash: u64,
    /// Activity of every resource, if requested.
    pub bars: Vec<Bar>,
    /// Start and end of operations; recorded together with `bars`.
    pub samples: Vec<Sample>,
}

/// Simulates a point; `tell` receives the completed share.
///
/// # Errors
/// [`ModelError`] if the run does not complete.
pub fn measure(
    point: Point,
    testbed: &Testbed,
    has_bars: bool,
    tell: impl FnMut(f64),
) -> Result<Measured, ModelError> {
    let (resolved, postal) = resolve(&point, testbed)?;
    let plan = Plan::new(ops(&point, resolved), point.warmup + point.repeat);
    let setup = Setup {
        testbed: testbed.clone(),
        network: point.network.build(point.ranks).expect("checked with the most ranks"),
        ranks: point.ranks,
        seed: point.seed,
        loss_ppm: point.loss.0,
        carrier: point.carrier.0,
    };
    let report = Model::new(setup, plan, has_bars)?.run_with_progress(tell)?;
    let measured = Measured::new(&point, (name(&point, resolved), postal), testbed, report);
    // Many runs are kept, and few of them are plotted.
    let samples = if has_bars { measured.samples } else { Vec::new() };
    Ok(Measured { samples, ..measured })
}

fn resolve(point: &Point, testbed: &Testbed) -> Result<(Resolved, Option<Postal>), ModelError> {
    let barrier = |kind| {
        let (form, algorithm) = usual_barrier(kind, point.ranks);
        let is_multicast = point.carrier.0 == Carrier::Multicast;
        Resolved::Barrier(BarrierKind { algorithm, steps: steps(form), is_multicast })
    };
    Ok(match (point.op, point.algorithm) {
        (Op::Pingpong | Op::Bandwidth, _) => (Resolved::None, None),
        (Op::Barrier, Algorithm::Barrier(kind)) => (barrier(kind), None),
        (Op::Barrier, _) => (barrier(omnes::BarrierKind::default()), None),
        (_, Algorithm::Bcast(bcast)) => (Resolved::Bcast(bcast), None),
        (_, Algorithm::Postal) => {
            let postal = Postal::choose(testbed, point.ranks, point.bytes)?;
            (Resolved::Bcast(BcastAlgorithm::tree(postal.tree)), Some(postal))
        }
        _ => (Resolved::Bcast(usual_bcast(point.ranks)), None),
    })
}

/// Name of the algorithm in results.
fn name(point: &Point, resolved: Resolved) -> String {
    match resolved {
        Resolved::None => "default".to_owned(),
        Resolved::Bcast(bcast @ BcastAlgorithm::Multicast(_)) => {
            format!("{bcast}{}", point.carrier.suffix())
        }
        Resolved::Bcast(bcast) => bcast.to_string(),
        Resolved::Barrier(kind) => {
            let asked = match point.algorithm {
                Algorithm::Barrier(asked) => asked,
                _ => omnes::BarrierKind::default(),
            };
            let (form, _) = usual_barrier(asked, point.ranks);
            format!("{form}:{}", kind.algorithm)
        }
    }
}

/// The operations of one iteration.
fn ops(point: &Point, resolved: Resolved) -> Vec<Step> {
    let Point { bytes, root, .. } = *point;
    let cast = match resolved {
        Resolved::Bcast(algorithm) => Step::Bcast { algorithm, root, bytes },
        Resolved::Barrier(kind) => Step::Barrier(kind),
        Resolved::None => Step::Stream { from: 0, to: 1, bytes, messages: point.messages() },
    };
    match point.op {
        Op::Bcast => vec![Step::Meet, cast],
        Op::Barrier => vec![cast],
        Op::Pingpong => {
            vec![Step::Message { from: 0, to: 1, bytes }, Step::Message { from: 1, to: 0, bytes }]
        }
        // Rank 1 answers when it has received all of them.
        Op::Bandwidth => vec![cast, Step::Message { from: 1, to: 0, bytes: 0 }],
        Op::Throughput => {
            let casts = std::iter::repeat_n(cast, point.messages() as usize);
            std::iter::once(Step::Meet).chain(casts).collect()
        }
        Op::Skew => {
            let most = Span::from_ns(point.skew.as_nanos() as u64);
            vec![Step::Meet, Step::Compute { most, root }, cast]
        }
    }
}

/// Times of the timed iterations, and the number of operations in each.
fn times(point: &Point, samples: &[Sample]) -> (Vec<Span>, u64) {
    let messages = u64::from(point.messages());
    let (per_iteration, operations) = match point.op {
        Op::Bcast | Op::Barrier | Op::Skew => (1, 1),
        Op::Pingpong => (2, 2),
        Op::Bandwidth => (2, messages),
        Op::Throughput => (messages as usize, messages),
    };
    let time = |iteration: &[Sample], before: Option<Time>| {
        let (first, last) = (iteration[0], iteration[iteration.len() - 1]);
        match point.op {
            Op::Barrier => last.ended - before.unwrap_or(first.first_began),
            Op::Skew => last.mean_in_call(),
            // Until the first sender has the answer, without waiting for its own acknowledgement of
            // it.
            Op::Pingpong | Op::Bandwidth => last.others_ended - first.root_began,
            Op::Bcast | Op::Throughput => last.ended - first.root_began,
        }
    };
    let mut before = None;
    let iterations = samples.chunks(per_iteration);
    let all = iterations.map(|iteration| {
        let time = time(iteration, before);
        before = iteration.last().map(|sample| sample.ended);
        time
    });
    (all.skip(point.warmup as usize).collect(), operations)
}

/// Exact, unlike the histogram of `omnes bench`: there are few samples.
fn summarize(mut times: Vec<Span>, operations: u64) -> Summary {
    times.sort_unstable();
    // The smallest sample that is not exceeded by this percentage of all.
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1].as_us();
    let each = |us: f64| us / operations as f64;
    let total: Span = times.iter().copied().sum();
    Summary {
        median_us: each(at(50)),
        p99_us: each(at(99)),
        min_us: each(times[0].as_us()),
        mean_us: each(total.as_us() / times.len() as f64),
    }
}

impl Measured {
    fn new(
        point: &Point,
        (algorithm, postal): (String, Option<Postal>),
        testbed: &Testbed,
        report: Report,
    ) -> Self {
        let (spans, operations) = times(point, &report.samples);
        // Counters do not distinguish timed iterations from warm-up ones.
        let all = u64::from(point.warmup + point.repeat) * operations;
        let each = |count: u64| count as f64 / all as f64;
        let Report { counters, ranks, hash, bars, samples, .. } = report;
        let frames = counters.packets * testbed.link.frame_bytes;
        let counted = &samples[samples.len() - spans.len().min(samples.len())..];
        let root_spans = counted.iter().map(|sample| sample.root_ended - sample.root_began);
        let root_us = root_spans.map(Span::as_us).sum::<f64>() / spans.len() as f64;
        let root = ranks[point.root as usize];
        Self {
            point: *point,
            algorithm,
            postal,
            packets: each(counters.packets),
            wire_bytes: each(counters.bytes.saturating_sub(frames)),
            retransmits: each(ranks.iter().map(|rank| rank.repairs).sum()),
            at_root: point.op.is_broadcast().then(|| AtRoot {
                packets: each(root.data_packets + root.casts),
                repairs: each(root.repairs),
                acks: each(root.acks),
                nacks: each(root.nacks),
            }),
            root_us: (point.op == Op::Skew).then_some(root_us),
            summary: summarize(spans, operations),
            lost: counters.lost,
            dropped_by_switches: counters.dropped_by_switches,
            dropped_by_hosts: counters.dropped_by_hosts,
            events: counters.events,
            hash,
            bars,
            samples,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::config::Config;
    use super::super::options::Wanted;
    use super::*;

    fn measured(op: Op, wanted: Wanted) -> Vec<Measured> {
        let config = Config::resolve(op, wanted).unwrap();
        let measure = |point| measure(point, &config.testbed, false, |_| ()).unwrap();
        config.points().into_iter().map(measure).collect()
    }

    fn of(sizes: &[u64]) -> Wanted {
        Wanted { sizes: sizes.to_vec(), ..Wanted::default() }
    }

    #[test]
    fn ping_pong_time_is_half_a_round_trip_and_grows_with_size() {
        let results = measured(Op::Pingpong, of(&[8, 8 << 10]));
        let [small, large] = [&results[0], &results[1]].map(|it| it.summary.median_us);
        // 8 B: the sum of all parts of the path, as given by the model's own test.
        assert!((4.0..14.0).contains(&small) && large > small + 2.0, "{small} {large}");
        // It is copied, and no sender waits for an acknowledgement.
        assert!((13.8..13.9).contains(&large), "{large}");
    }

    #[test]
    fn successive_broadcasts_do_not_interfere() {
        let algorithms = vec!["skewed=10".parse().unwrap()];
        let alone = Wanted { ranks: vec![64], sizes: vec![8], algorithms, ..Wanted::default() };
        let config = Config::resolve(Op::Bcast, alone).unwrap();
        let result = measure(config.points()[0], &config.testbed, true, |_| ()).unwrap();
        let first = result.samples[0].from_root().as_us();
        assert!(result.summary.p99_us < 1.1 * first, "{first} {:?}", result.summary);
        // One packet to all, and a reply from each, including the last one's.
        assert_eq!(result.packets, 64.0);
    }

    #[test]
    fn stream_rate_is_close_to_but_below_the_wire_rate() {
        let results = measured(Op::Bandwidth, of(&[1 << 20]));
        let rate = f64::from(1 << 20) / results[0].summary.median_us;
        // 25 Gbit/s without headers and frames are at most 2,916 MB/s.
        assert!((1_000.0..2_916.0).contains(&rate), "{rate} MB/s");
    }

    #[test]
    fn back_to_back_broadcasts_are_faster_than_single_ones() {
        let one = measured(Op::Bcast, of(&[8]));
        let many = measured(Op::Throughput, of(&[8]));
        assert!(many[0].summary.median_us < one[0].summary.median_us);
        let root = many[0].at_root.unwrap();
        assert!((0.99..1.1).contains(&root.packets) && root.acks < 7.0, "{root:?}");
    }

    #[test]
    fn late_rank_delays_its_subtree() {
        let algorithms = ["combined", "original"].map(|name| name.parse().unwrap()).to_vec();
        let skew = vec![std::time::Duration::from_micros(1000)];
        let wanted =
            Wanted { sizes: vec![8], algorithms, skew, ranks: vec![16], ..Wanted::default() };
        let results = measured(Op::Skew, wanted);
        assert!(results[0].summary.mean_us * 2.0 < results[1].summary.mean_us);
        assert!(results.iter().all(|result| result.root_us.unwrap() > 0.0));
    }

    #[test]
    fn nic_barriers_are_faster_than_channel_barriers() {
        let kinds = ["nic:dissemination", "channel:dissemination", "default"];
        let algorithms = kinds.map(|name| name.parse().unwrap()).to_vec();
        let results = measured(Op::Barrier, Wanted { algorithms, ..Wanted::default() });
        let names: Vec<_> = results.iter().map(|result| result.algorithm.as_str()).collect();
        assert_eq!(names, ["nic:dissemination", "channel:dissemination", "user:counter"]);
        assert!(results[0].summary.median_us < results[1].summary.median_us);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_samples() {
        let times = (1..=10).rev().map(|us| Span::from_ns(us * 1000)).collect();
        let summary = summarize(times, 2);
        let wanted = Summary { median_us: 2.5, p99_us: 5.0, min_us: 0.5, mean_us: 2.75 };
        assert_eq!(summary, wanted);
    }
}
