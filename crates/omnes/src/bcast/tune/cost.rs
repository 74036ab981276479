//! Cost of a broadcast: a model with three measured figures for each algorithm.
//!
//! A message of at most one *piece* ([`PIPELINE_BYTES`]) passes from level to level as a whole. The
//! later pieces of a longer message follow while the first is forwarded, so depth adds no further
//! cost:
//!
//! ```text
//! T(b) = depth · (level + level_byte · min(b, piece)) + copies · stream_byte · max(0, b - piece)
//! ```
//!
//! | algorithm | depth at n ranks | copies that the root sends |
//! |---|---|---|
//! | multicast | 1 | 1 |
//! | binomial tree | ceil(log2 n) | ceil(log2 n) |
//! | chain | n - 1 | 1 |
//!
//! The shape is computed, time is measured: the figures of an algorithm include the effect of ranks
//! that share cores, of a switch and of a slow link. They hold for the number of ranks that they
//! were measured with; smaller groups are estimated by their shape.
//!
//! Guarantees: no algorithm gets faster with a longer message or more ranks. Choices use integer
//! arithmetic only, so ranks with equal figures make the same choice.

use super::super::BcastAlgorithm;
use super::super::PIPELINE_BYTES;
use omnes_proto::broadcast::Policy;
use omnes_topo::{Lambda, Tree};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes that pass a level as a whole.
const PIECE: u64 = PIPELINE_BYTES;
/// An algorithm counts as equally good if it takes at most this fraction (one eighth) longer than
/// the fastest: repeated measurements differ by as much.
const NEAR: u64 = 8;
/// Larger figures are invalid: a second per byte, or a quarter of an hour per level.
const FIGURE_MAX: u64 = 1_000_000_000_000;

/// A broadcast algorithm that the library chooses by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Candidate {
    /// Multicast ([`Policy::usual`]).
    Multicast,
    /// A binomial tree.
    Binomial,
    /// A chain from rank to rank.
    Chain,
}

impl Candidate {
    /// All algorithms; of equally good ones the first is chosen, which sends the fewest packets.
    pub const ALL: [Self; 3] = [Self::Multicast, Self::Binomial, Self::Chain];
    /// The algorithms that need no multicast.
    pub const TREES: [Self; 2] = [Self::Binomial, Self::Chain];

    /// Name of the algorithm, as in `OMNES_BCAST`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Binomial => "binomial",
            Self::Chain => "chain",
        }
    }

    /// The algorithm for `nodes` nodes.
    pub fn bcast(self, nodes: u32) -> BcastAlgorithm {
        match self {
            Self::Multicast => BcastAlgorithm::Multicast(Policy::usual(nodes)),
            Self::Binomial => BcastAlgorithm::tree(Tree::Binomial),
            Self::Chain => BcastAlgorithm::tree(Tree::Chain),
        }
    }

    /// Number of levels that a message passes in succession until the last of `ranks` ranks has it.
    pub fn depth(self, ranks: u32) -> u64 {
        let others = ranks.saturating_sub(1);
        u64::from(match self {
            Self::Multicast => others.min(1),
            Self::Binomial => u32::BITS - others.leading_zeros(),
            Self::Chain => others,
        })
    }

    /// Number of times that the root sends each byte.
    fn copies(self, ranks: u32) -> u64 {
        match self {
            Self::Multicast | Self::Chain => u64::from(ranks > 1),
            Self::Binomial => self.depth(ranks),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Length of the message.
    pub bytes: u64,
    /// Time until the slowest rank has the message, in nanoseconds.
    pub time_ns: u64,
}

/// Costs of one algorithm; see the module header. No figure exceeds 10^12.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Time per level, in nanoseconds.
    pub level_ns: u64,
    /// Additional time per level and byte of the first piece, in picoseconds.
    pub level_byte_ps: u64,
    /// Time for each further byte that the root sends, in picoseconds.
    pub stream_byte_ps: u64,
}

impl Cost {
    /// The figures that fit `points` best, measured with `ranks` ranks: least squares of the
    /// relative errors. `None` without a point of at most one piece; without a longer one, later
    /// bytes cost as much as the first ones.
    pub fn fit(candidate: Candidate, ranks: u32, points: &[Point]) -> Option<Self> {
        let (depth, copies) =
            (candidate.depth(ranks).max(1) as f64, candidate.copies(ranks).max(1) as f64);
        let (short, long): (Vec<Point>, Vec<Point>) =
            points.iter().partition(|it| it.bytes <= PIECE);
        let short: Vec<_> =
            short.iter().map(|it| (it.bytes as f64, it.time_ns as f64 / depth)).collect();
        let (level, slope) = line(&short)?;
        let first = depth * (level + slope * PIECE as f64);
        let long: Vec<_> = long
            .iter()
            .map(|it| (copies * (it.bytes - PIECE) as f64, it.time_ns as f64 - first, it.time_ns))
            .collect();
        let stream = if long.is_empty() { slope } else { slope_through_origin(&long) };
        let figure = |value: f64| value.round().clamp(0.0, FIGURE_MAX as f64) as u64;
        Some(Self {
            level_ns: figure(level),
            level_byte_ps: figure(slope * 1e3),
            stream_byte_ps: figure(stream * 1e3),
        })
    }

    /// Time until the slowest of `ranks` ranks has a message of `bytes` bytes, in nanoseconds.
    pub fn time_ns(self, candidate: Candidate, ranks: u32, bytes: u64) -> u64 {
        let first = u128::from(bytes.min(PIECE));
        let further = u128::from(bytes.saturating_sub(PIECE));
        let level_ps = u128::from(self.level_ns) * 1000 + u128::from(self.level_byte_ps) * first;
        let stream_ps = u128::from(self.stream_byte_ps) * further;
        // Below 2^128: figures have 40 bits, shapes 32, bytes 64, in products of two or three.
        let total_ps = u128::from(candidate.depth(ranks)) * level_ps
            + u128::from(candidate.copies(ranks)) * stream_ps;
        u64::try_from(total_ps / 1000).unwrap_or(u64::MAX)
    }

    fn is_sound(self) -> bool {
        [self.level_ns, self.level_byte_ps, self.stream_byte_ps].iter().all(|it| *it <= FIGURE_MAX)
    }
}

/// Intercept and slope of the line through `points`, neither negative, by relative errors.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let weighted = points.iter().map(|(x, y)| (1.0 / y.max(1.0).powi(2), *x, *y));
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (weight, x, y) in weighted {
        (w, wx, wy) = (w + weight, wx + weight * x, wy + weight * y);
        (wxx, wxy) = (wxx + weight * x * x, wxy + weight * x * y);
    }
    if points.is_empty() {
        return None;
    }
    let spread = w * wxx - wx * wx;
    let slope = if spread > 0.0 { (w * wxy - wx * wy) / spread } else { 0.0 };
    let start = (wy - slope * wx) / w;
    Some(match (start < 0.0, slope < 0.0) {
        (false, false) => (start, slope),
        // Noise: the best line that is allowed has one of them at zero.
        (true, _) => (0.0, if wxx > 0.0 { wxy / wxx } else { 0.0 }),
        (false, true) => (wy / w, 0.0),
    })
}

/// Slope of the line from the origin through `(x, y)`, by errors relative to the whole time.
fn slope_through_origin(points: &[(f64, f64, u64)]) -> f64 {
    let weight = |whole: u64| 1.0 / (whole.max(1) as f64).powi(2);
    let along: f64 = points.iter().map(|(x, y, whole)| weight(*whole) * x * y).sum();
    let square: f64 = points.iter().map(|(x, _, whole)| weight(*whole) * x * x).sum();
    if square > 0.0 { (along / square).max(0.0) } else { 0.0 }
}

/// Costs of all algorithms on a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Multicast; `None` if it does not work.
    pub multicast: Option<Cost>,
    /// A binomial tree.
    pub binomial: Cost,
    /// A chain from rank to rank.
    pub chain: Cost,
    /// Latency of a hop of a multi-send in thousandths of the time that one more copy takes, for
    /// a full packet [MS-R17]; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda_thousandths: Option<u32>,
}

impl Figures {
    /// The median of each figure; of an even number of measurements, the lower of the two middle
    /// ones. Lambda is that of the last measurement. `rounds` must not be empty.
    pub(super) fn medians(rounds: &[Self]) -> Self {
        let of = |cost: fn(&Self) -> Cost| {
            let median = |figure: fn(Cost) -> u64| {
                let mut figures: Vec<_> = rounds.iter().map(|it| figure(cost(it))).collect();
                figures.sort_unstable();
                figures[(figures.len() - 1) / 2]
            };
            Cost {
                level_ns: median(|it| it.level_ns),
                level_byte_ps: median(|it| it.level_byte_ps),
                stream_byte_ps: median(|it| it.stream_byte_ps),
            }
        };
        let last = rounds[rounds.len() - 1];
        Self {
            multicast: last.multicast.map(|_| of(|it| it.multicast.unwrap_or_default())),
            binomial: of(|it| it.binomial),
            chain: of(|it| it.chain),
            lambda_thousandths: last.lambda_thousandths,
        }
    }

    /// Latency of a hop of a multi-send in units of the time that one more copy takes.
    pub(crate) fn lambda(&self) -> Option<Lambda> {
        self.lambda_thousandths.and_then(|it| Lambda::from_thousandths(it).ok())
    }

    /// Costs of one algorithm.
    pub fn cost(&self, candidate: Candidate) -> Option<Cost> {
        match candidate {
            Candidate::Multicast => self.multicast,
            Candidate::Binomial => Some(self.binomial),
            Candidate::Chain => Some(self.chain),
        }
    }

    /// Time until the slowest of `ranks` ranks has a message of `bytes` bytes, in nanoseconds.
    pub fn time_ns(&self, candidate: Candidate, ranks: u32, bytes: u64) -> Option<u64> {
        self.cost(candidate).map(|cost| cost.time_ns(candidate, ranks, bytes))
    }

    /// The best `among` these algorithms for a message of `bytes` bytes: the first whose time is
    /// within an eighth of the fastest. A binomial tree if none of them was measured.
    pub fn best(&self, among: &[Candidate], ranks: u32, bytes: u64) -> Candidate {
        let time = |candidate: &Candidate| self.time_ns(*candidate, ranks, bytes);
        let fastest = among.iter().filter_map(time).min();
        let limit = fastest.map(|fastest| fastest.saturating_add(fastest / NEAR));
        let best =
            among.iter().find(|candidate| time(candidate).is_some_and(|it| Some(it) <= limit));
        best.copied().unwrap_or(Candidate::Binomial)
    }

    /// The ranges of sizes, up to messages of `bytes_max` bytes, each with its start and its best
    /// algorithm; the first starts at 0 bytes. An algorithm that is best for less than a doubling
    /// of the size may be left out.
    pub fn ranges(&self, among: &[Candidate], ranks: u32, bytes_max: u64) -> Vec<(u64, Candidate)> {
        let best = |bytes| self.best(among, ranks, bytes);
        let mut ranges = vec![(0, best(0))];
        let mut from = 0;
        while from < bytes_max {
            let end = (from.max(1) * 2).min(bytes_max);
            while best(from) != best(end) {
                from = first_other(from, end, |bytes| best(bytes) == best(from));
                ranges.push((from, best(from)));
            }
            from = end;
        }
        ranges
    }

    /// True if all figures are within their bounds.
    pub(super) fn is_sound(&self) -> bool {
        self.lambda_thousandths.is_some() == self.lambda().is_some()
            && Candidate::ALL
                .iter()
                .filter_map(|candidate| self.cost(*candidate))
                .all(Cost::is_sound)
    }
}

/// The first value in `from..=end` that is not the same as `from`; `end` is not the same.
fn first_other(from: u64, end: u64, is_same: impl Fn(u64) -> bool) -> u64 {
    let (mut same, mut other) = (from, end);
    while other - same > 1 {
        let middle = same + (other - same) / 2;
        if is_same(middle) { same = middle } else { other = middle }
    }
    other
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const fn cost(level_ns: u64, level_byte_ps: u64, stream_byte_ps: u64) -> Cost {
        Cost { level_ns, level_byte_ps, stream_byte_ps }
    }

    /// A switched network of 10 Gbit/s: 25 us per hop, and 35 us by multicast, which includes
    /// acknowledgements.
    const SWITCHED: Figures = Figures {
        multicast: Some(cost(35_000, 850, 800)),
        binomial: cost(25_000, 850, 800),
        chain: cost(25_000, 850, 800),
        lambda_thousandths: None,
    };
    const SIZES: [u64; 9] = [0, 1, 8, 1 << 10, PIECE - 1, PIECE, PIECE + 1, 1 << 20, 1 << 40];

    #[test]
    fn depth_matches_the_tree_shape() {
        let depths = |ranks| Candidate::ALL.map(|candidate| candidate.depth(ranks));
        assert_eq!(depths(1), [0, 0, 0]);
        assert_eq!(depths(2), [1, 1, 1]);
        assert_eq!(depths(3), [1, 2, 2]);
        assert_eq!(depths(8), [1, 3, 7]);
        assert_eq!(depths(9), [1, 4, 8]);
        for ranks in 2..200 {
            let rounds = Tree::Binomial.fan_out_max(ranks).unwrap();
            assert_eq!(Candidate::Binomial.depth(ranks), u64::from(rounds), "{ranks}");
            let depth = Tree::Chain.depth(ranks).unwrap();
            assert_eq!(Candidate::Chain.depth(ranks), u64::from(depth), "{ranks}");
        }
    }

    #[test]
    fn longer_messages_and_more_ranks_never_take_less_time() {
        for candidate in Candidate::ALL {
            for ranks in 1..70 {
                let times = SIZES.map(|bytes| SWITCHED.time_ns(candidate, ranks, bytes).unwrap());
                assert!(times.is_sorted(), "{candidate} {ranks}: {times:?}");
                let more =
                    SIZES.map(|bytes| SWITCHED.time_ns(candidate, ranks + 1, bytes).unwrap());
                assert!(
                    times.iter().zip(&more).all(|(few, many)| few <= many),
                    "{candidate} {ranks}"
                );
            }
        }
        let most = cost(FIGURE_MAX, FIGURE_MAX, FIGURE_MAX);
        assert_eq!(most.time_ns(Candidate::Chain, u32::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn multicast_is_best_for_many_ranks_and_trees_for_two() {
        for bytes in SIZES {
            assert_eq!(SWITCHED.best(&Candidate::ALL, 8, bytes), Candidate::Multicast, "{bytes}");
            // To a single receiver, a long message takes equally long by every algorithm.
            let is_short = bytes <= 1 << 10;
            let candidate = SWITCHED.best(&Candidate::ALL, 2, bytes);
            assert_eq!(candidate != Candidate::Multicast, is_short, "{bytes}");
            assert_ne!(SWITCHED.best(&Candidate::TREES, 8, bytes), Candidate::Multicast, "{bytes}");
        }
        let without = Figures { multicast: None, ..SWITCHED };
        assert_eq!(without.best(&Candidate::ALL, 8, 8), Candidate::Binomial);
        assert_eq!(without.best(&Candidate::ALL, 8, 1 << 30), Candidate::Chain);
        assert_eq!(without.best(&[], 8, 8), Candidate::Binomial);
    }

    #[test]
    fn chain_replaces_binomial_past_the_crossover_size() {
        let ranges = SWITCHED.ranges(&Candidate::TREES, 8, 1 << 30);
        assert_eq!(ranges.len(), 2, "{ranges:?}");
        let (bytes, candidate) = ranges[1];
        assert_eq!((ranges[0], candidate), ((0, Candidate::Binomial), Candidate::Chain));
        // Two copies fewer make up for four more levels: 4 (25 us + 111 us) = 2 · 800 ps · x;
        // beyond that size, the chain must be faster by the required fraction.
        let equal = PIECE + 4 * (25_000_000 + 850 * PIECE) / (2 * 800);
        let time = |candidate, bytes| SWITCHED.time_ns(candidate, 8, bytes).unwrap();
        assert!(time(Candidate::Chain, equal).abs_diff(time(Candidate::Binomial, equal)) <= 2);
        assert!((equal..2 * equal).contains(&bytes), "{bytes} {equal}");
        let is_much_faster = |bytes| {
            let fast = time(Candidate::Chain, bytes);
            time(Candidate::Binomial, bytes) > fast + fast / NEAR
        };
        assert!(is_much_faster(bytes) && !is_much_faster(bytes - 1));
    }

    #[test]
    fn fewest_packets_win_among_nearly_equal_algorithms() {
        let figures = |ns| Figures {
            multicast: Some(cost(ns, 0, 0)),
            binomial: cost(1000, 0, 0),
            chain: cost(1000, 0, 0),
            lambda_thousandths: None,
        };
        assert_eq!(figures(1000).best(&Candidate::ALL, 2, 8), Candidate::Multicast);
        assert_eq!(figures(1125).best(&Candidate::ALL, 2, 8), Candidate::Multicast);
        assert_eq!(figures(1126).best(&Candidate::ALL, 2, 8), Candidate::Binomial);
    }

    #[test]
    fn ranges_name_the_best_algorithm_for_every_size() {
        // Binomial, then chain, then multicast, then chain again in further pieces.
        let figures = Figures {
            multicast: Some(cost(400_000, 100, 2_000)),
            binomial: cost(10_000, 10_000, 10_000),
            chain: cost(20_000, 1_000, 500),
            lambda_thousandths: None,
        };
        let ranges = figures.ranges(&Candidate::ALL, 8, 64 << 20);
        let candidates: Vec<_> = ranges.iter().map(|(_, candidate)| *candidate).collect();
        assert_eq!(
            candidates,
            [Candidate::Binomial, Candidate::Chain, Candidate::Multicast, Candidate::Chain]
        );
        for bytes in (0..64 << 20).step_by(777) {
            let range = ranges.iter().rfind(|(from, _)| *from <= bytes).unwrap();
            assert_eq!(range.1, figures.best(&Candidate::ALL, 8, bytes), "{bytes}");
        }
        assert_eq!(figures.ranges(&Candidate::ALL, 8, 0), [(0, Candidate::Binomial)]);
    }

    #[test]
    fn fitted_figures_reproduce_the_original_cost() {
        for candidate in Candidate::ALL {
            let made = cost(30_000, 700, 450);
            for ranks in [3, 8, 100] {
                let points = [8, 1 << 10, 64 << 10, PIECE, 512 << 10, 4 << 20]
                    .map(|bytes| Point { bytes, time_ns: made.time_ns(candidate, ranks, bytes) });
                let found = Cost::fit(candidate, ranks, &points).unwrap();
                assert!(found.level_ns.abs_diff(made.level_ns) <= 10, "{candidate}: {found:?}");
                assert!(
                    found.level_byte_ps.abs_diff(made.level_byte_ps) <= 2,
                    "{candidate}: {found:?}"
                );
                assert!(found.stream_byte_ps.abs_diff(made.stream_byte_ps) <= 2, "{candidate}");
            }
        }
    }

    #[test]
    fn noise_never_makes_a_figure_negative() {
        let point = |bytes, time_ns| Point { bytes, time_ns };
        let falling = [point(8, 50_000), point(PIECE, 20_000), point(512 << 10, 10_000)];
        let fitted = Cost::fit(Candidate::Multicast, 8, &falling).unwrap();
        assert!(fitted.level_ns > 20_000, "{fitted:?}");
        assert_eq!((fitted.level_byte_ps, fitted.stream_byte_ps), (0, 0));
        let steep = [point(1 << 10, 10), point(PIECE, 1_000_000)];
        let fitted = Cost::fit(Candidate::Multicast, 8, &steep).unwrap();
        assert_eq!(fitted.level_ns, 0, "{fitted:?}");
        assert_eq!(fitted.stream_byte_ps, fitted.level_byte_ps);
        let nothing = [point(8, 0), point(PIECE, 0), point(512 << 10, 0)];
        assert_eq!(Cost::fit(Candidate::Chain, 1, &nothing), Some(Cost::default()));
        assert_eq!(Cost::fit(Candidate::Chain, 8, &[point(1 << 20, 5)]), None);
    }
}
