//! Complete configuration of a simulation, and the runs that result from it.

use super::network::NetworkKind;
use super::options::Wanted;
use super::values::{Algorithm, CarrierKind, Loss, Op};
use crate::bench::short_bytes;
use crate::units::short_time;
use anyhow::{Context, Result, bail, ensure};
use omnes_sim::model::Carrier;
use omnes_sim::testbed::{self, Testbed, TestbedError};
use omnes_topo::TreeTable;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// Default testbed.
const USUAL_TESTBED: &str = "ethernet-25g";
/// Larger messages are rejected, as in `omnes bench`.
const MESSAGE_BYTES_MAX: u64 = 16 << 30;
/// Bytes that all ranks together may receive in one run before the number of iterations is reduced:
/// some seconds of a core.
const RUN_BYTES_MAX: u64 = 4 << 30;
/// Weight of an empty message: about the cost of its packet.
const MESSAGE_BYTES_MIN: u64 = 4096;
/// Number of iterations unless there is a reason for fewer.
const ITERATIONS: u64 = 10;

/// Maximum number of iterations of one run, including warm-up.
const RUN_ITERATIONS_MAX: u64 = 1_000_000;
/// Maximum number of runs.
const RUNS_MAX: u128 = 1_000_000;
/// Within this total a run completes before the model gives it up.
const SKEWS_MAX: Duration = Duration::from_secs(3000);

/// See the module header.
#[derive(Clone, Debug)]
pub struct Config {
    /// Operation to simulate.
    pub op: Op,
    /// The testbed as given, by name or file.
    pub testbed_name: String,
    /// The testbed.
    pub testbed: Testbed,
    /// See [`Wanted`], for this and all below.
    pub ranks: Vec<u32>,
    pub sizes: Vec<u64>,
    pub algorithms: Vec<Algorithm>,
    pub roots: Vec<u32>,
    pub networks: Vec<NetworkKind>,
    pub losses: Vec<Loss>,
    pub skews: Vec<Duration>,
    pub carriers: Vec<CarrierKind>,
    pub seed: u64,
    pub seeds: u32,
    pub repeat: Option<u32>,
    pub warmup: Option<u32>,
}

/// One run: a value of each axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub op: Op,
    pub algorithm: Algorithm,
    pub carrier: CarrierKind,
    pub network: NetworkKind,
    pub ranks: u32,
    pub loss: Loss,
    pub root: u32,
    pub skew: Duration,
    pub bytes: u64,
    pub seed: u64,
    /// Timed iterations, and warm-up iterations before them.
    pub repeat: u32,
    pub warmup: u32,
}

impl Config {
    /// Fills in defaults, and rejects contradictory settings.
    pub fn resolve(op: Op, wanted: Wanted) -> Result<Self> {
        check_use(op, &wanted)?;
        let testbed_name = wanted.testbed.unwrap_or_else(|| USUAL_TESTBED.to_owned());
        let usual_sizes = [8, 1 << 10, 64 << 10, 1 << 20, 4 << 20];
        let config = Self {
            op,
            testbed: read_testbed(&testbed_name)?,
            testbed_name,
            ranks: filled(wanted.ranks, &[if op.is_between_two() { 2 } else { 8 }]),
            sizes: if op == Op::Barrier { vec![0] } else { filled(wanted.sizes, &usual_sizes) },
            algorithms: filled(wanted.algorithms, &[Algorithm::Default]),
            roots: filled(wanted.roots, &[0]),
            networks: filled(wanted.network, &[NetworkKind::Single]),
            losses: filled(wanted.loss, &[Loss(0)]),
            skews: match op {
                Op::Skew => filled(wanted.skew, &[0, 200, 400, 1000].map(Duration::from_micros)),
                _ => vec![Duration::ZERO],
            },
            carriers: filled(wanted.carrier, &[CarrierKind(Carrier::Multicast)]),
            seed: wanted.seed.unwrap_or(1),
            seeds: wanted.seeds.unwrap_or(1),
            repeat: wanted.repeat,
            warmup: wanted.warmup,
        };
        config.check()?;
        Ok(config)
    }

    /// True if messages have sizes.
    pub fn has_sizes(&self) -> bool {
        self.op != Op::Barrier
    }

    fn check(&self) -> Result<()> {
        for bytes in &self.sizes {
            ensure!(*bytes <= MESSAGE_BYTES_MAX, "--sizes: {bytes} bytes is above 16g");
        }
        self.check_counts()?;
        let fewest = self.ranks.iter().min().copied().unwrap_or(2);
        for root in &self.roots {
            let last = fewest - 1;
            ensure!(*root < fewest, "--roots {root}: the last of {fewest} ranks is {last}");
        }
        let most = self.ranks.iter().max().copied().unwrap_or(2);
        for network in &self.networks {
            network.build(most).with_context(|| format!("--network {network}"))?;
        }
        for carrier in &self.carriers {
            let CarrierKind(Carrier::MultiSend { tree, .. }) = carrier else { continue };
            TreeTable::new(*tree, most).with_context(|| format!("--carrier {carrier}"))?;
            let of_ranks = |ranks| self.algorithms.iter().any(|it| it.sends_to_all(self.op, ranks));
            ensure!(
                self.ranks.iter().any(|ranks| of_ranks(*ranks)),
                "--carrier {carrier}: none of the algorithms sends to all ranks; omit it, or name \
                 a multicast or the barrier `counter`"
            );
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<()> {
        let axes = [
            self.algorithms.len(),
            self.carriers.len(),
            self.networks.len(),
            self.ranks.len(),
            self.losses.len(),
            self.roots.len(),
            self.skews.len(),
            self.sizes.len(),
            self.seeds as usize,
        ];
        let runs = axes.iter().fold(1u128, |runs, values| runs.saturating_mul(*values as u128));
        ensure!(
            runs <= RUNS_MAX,
            "this makes {runs} runs, at most {RUNS_MAX} are made; give fewer values, or --seeds"
        );
        let repeat = self.repeat.map_or(ITERATIONS, u64::from);
        let iterations = repeat + self.warmup.map_or(1, u64::from);
        ensure!(
            iterations <= RUN_ITERATIONS_MAX,
            "--repeat and --warmup give {iterations} iterations; a run has at most \
             {RUN_ITERATIONS_MAX}, --seeds makes more runs"
        );
        for skew in &self.skews {
            ensure!(
                skew.as_nanos() * u128::from(iterations) <= SKEWS_MAX.as_nanos(),
                "{iterations} iterations with `--skew {}` may last longer than {} of the model's \
                 time; give less, or a smaller --repeat",
                short_time(*skew),
                short_time(SKEWS_MAX)
            );
        }
        Ok(())
    }

    /// All runs, in the order of results.
    pub fn points(&self) -> Vec<Point> {
        let seeds: Vec<u64> = (0..u64::from(self.seeds)).map(|at| self.seed + at).collect();
        let first = Point {
            op: self.op,
            algorithm: Algorithm::Default,
            carrier: CarrierKind(Carrier::Multicast),
            network: NetworkKind::Single,
            ranks: 2,
            loss: Loss(0),
            root: 0,
            skew: Duration::ZERO,
            bytes: 0,
            seed: 1,
            repeat: 1,
            warmup: 0,
        };
        let mut points = vec![first];
        // The last axis changes fastest.
        cross(&mut points, &self.algorithms, |point, value| point.algorithm = value);
        cross(&mut points, &self.carriers, |point, value| point.carrier = value);
        cross(&mut points, &self.networks, |point, value| point.network = value);
        cross(&mut points, &self.ranks, |point, value| point.ranks = value);
        cross(&mut points, &self.losses, |point, value| point.loss = value);
        cross(&mut points, &self.roots, |point, value| point.root = value);
        cross(&mut points, &self.skews, |point, value| point.skew = value);
        cross(&mut points, &self.sizes, |point, value| point.bytes = value);
        cross(&mut points, &seeds, |point, value| point.seed = value);
        // If nothing is sent to all ranks, all carriers would give the same run.
        points.retain(|point| point.has_carrier() || point.carrier == self.carriers[0]);
        for point in points.iter_mut().filter(|point| !point.has_carrier()) {
            point.carrier = CarrierKind(Carrier::Multicast);
        }
        for point in &mut points {
            (point.repeat, point.warmup) = self.iterations(point);
        }
        points
    }

    /// Timed iterations, and warm-up iterations before them, which bring the machines into a steady
    /// state.
    fn iterations(&self, point: &Point) -> (u32, u32) {
        let fitting = (RUN_BYTES_MAX / point.weight()).clamp(1, ITERATIONS) as u32;
        // Consecutive barriers have no start of their own: each counts from the end of the previous
        // one.
        let warmup = u32::from(fitting > 1 || self.op == Op::Barrier);
        (self.repeat.unwrap_or(fitting), self.warmup.unwrap_or(warmup))
    }

    /// Command line that repeats this simulation.
    pub fn command_line(&self) -> String {
        fn list<T: ToString>(values: &[T]) -> String {
            values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
        }
        let skews: Vec<_> = self.skews.iter().map(|skew| short_time(*skew)).collect();
        let mut words = vec![format!("omnes sim {}", self.op.name())];
        let mut add = |flag: &str, text: String| words.push(format!("--{flag} {text}"));
        let testbed = crate::run::quote(OsStr::new(&self.testbed_name));
        add("testbed", String::from_utf8_lossy(&testbed).into_owned());
        add("ranks", list(&self.ranks));
        if self.has_sizes() {
            let sizes: Vec<_> = self.sizes.iter().map(|bytes| short_bytes(*bytes)).collect();
            add("sizes", sizes.join(","));
        }
        if !self.op.is_between_two() {
            add("algorithms", list(&self.algorithms));
            add("carrier", list(&self.carriers));
        }
        if self.op.is_broadcast() {
            add("roots", list(&self.roots));
        }
        add("network", list(&self.networks));
        add("loss", list(&self.losses));
        if self.op == Op::Skew {
            add("skew", skews.join(","));
        }
        add("seed", self.seed.to_string());
        add("seeds", self.seeds.to_string());
        for (flag, number) in [("repeat", self.repeat), ("warmup", self.warmup)] {
            if let Some(number) = number {
                add(flag, number.to_string());
            }
        }
        words.join(" ")
    }
}

impl Point {
    /// True if packets travel by the point's carrier.
    pub fn has_carrier(&self) -> bool {
        self.algorithm.sends_to_all(self.op, self.ranks)
    }

    /// Approximate amount of work of an iteration, in bytes received.
    pub fn weight(&self) -> u64 {
        let receivers = if self.op.is_between_two() { 1 } else { u64::from(self.ranks) };
        receivers * self.bytes.max(MESSAGE_BYTES_MIN) * u64::from(self.messages())
    }

    /// The weight of all iterations.
    pub fn work(&self) -> u128 {
        u128::from(self.weight()) * (u128::from(self.repeat) + u128::from(self.warmup))
    }

    /// Messages that one iteration sends back to back without waiting, as in `omnes bench`.
    pub fn messages(&self) -> u32 {
        const WINDOW_BYTES_MAX: u64 = 32 << 20;
        let fitting = WINDOW_BYTES_MAX / self.bytes.max(1);
        match self.op {
            Op::Bandwidth => fitting.clamp(1, 64) as u32,
            Op::Throughput => fitting.clamp(8, 256) as u32,
            _ => 1,
        }
    }
}

fn filled<T: Clone>(given: Vec<T>, usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual.to_vec() } else { given }
}

/// Combines each point with each value.
fn cross<T: Copy>(points: &mut Vec<Point>, values: &[T], set: impl Fn(&mut Point, T)) {
    let with = |point: &Point| -> Vec<Point> {
        let put = |value: &T| {
            let mut point = *point;
            set(&mut point, *value);
            point
        };
        values.iter().map(put).collect()
    };
    *points = points.iter().flat_map(with).collect();
}

/// Rejects settings that would have no effect.
fn check_use(op: Op, wanted: &Wanted) -> Result<()> {
    let name = op.name();
    ensure!(op == Op::Skew || wanted.skew.is_empty(), "--skew is for skew, not for {name}");
    ensure!(op.is_broadcast() || wanted.roots.is_empty(), "--roots is for broadcasts, not {name}");
    ensure!(op != Op::Barrier || wanted.sizes.is_empty(), "--sizes: a barrier has no size");
    ensure!(
        !op.is_between_two() || wanted.carrier.is_empty(),
        "--carrier is for collectives, not {name}"
    );
    if let Some(algorithm) = wanted.algorithms.iter().find(|algorithm| !algorithm.fits(op)) {
        bail!("--algorithms {algorithm}: {name} cannot use it");
    }
    ensure!(
        wanted.seed.is_none_or(|seed| seed.checked_add(u64::from(u32::MAX)).is_some()),
        "--seed is too large; give one below 2^64 - 2^32"
    );
    Ok(())
}

/// The testbed with this name, or from this file.
pub fn read_testbed(name: &str) -> Result<Testbed> {
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") && !path.is_file() {
        return testbed::named(name).map_err(|error| match error {
            TestbedError::Unknown { .. } => anyhow::anyhow!("--testbed: {error}"),
            _ => error.into(),
        });
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    Testbed::parse(&text).with_context(|| format!("testbed {name}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolve(op: Op, wanted: Wanted) -> Result<Config> {
        Config::resolve(op, wanted)
    }

    #[test]
    fn axes_expand_to_all_combinations_in_a_fixed_order() {
        let wanted = Wanted {
            ranks: vec![4, 8],
            sizes: vec![8, 1024],
            algorithms: vec!["binomial".parse().unwrap(), Algorithm::Postal],
            seeds: Some(3),
            ..Wanted::default()
        };
        let points = resolve(Op::Bcast, wanted).unwrap().points();
        assert_eq!(points.len(), 24);
        let heads: Vec<_> = points.iter().map(|it| (it.ranks, it.bytes, it.seed)).collect();
        assert_eq!(heads[..4], [(4, 8, 1), (4, 8, 2), (4, 8, 3), (4, 1024, 1)]);
        assert_eq!(points[12].algorithm, Algorithm::Postal);
    }

    #[test]
    fn large_runs_default_to_fewer_iterations() {
        let wanted = |repeat| Wanted {
            ranks: vec![8, 512],
            sizes: vec![8, 64 << 20],
            repeat,
            ..Wanted::default()
        };
        let counts = |repeat| -> Vec<_> {
            let points = resolve(Op::Bcast, wanted(repeat)).unwrap().points();
            points.iter().map(|point| (point.repeat, point.warmup)).collect()
        };
        assert_eq!(counts(None), [(10, 1), (8, 1), (10, 1), (1, 0)]);
        assert_eq!(counts(Some(3)), [(3, 1), (3, 1), (3, 1), (3, 0)]);
    }

    #[test]
    fn carriers_vary_only_for_algorithms_that_send_to_all() {
        let carriers = ["multicast", "multisend:flat"].map(|it| it.parse().unwrap()).to_vec();
        let wanted = |algorithms: &[&str]| Wanted {
            algorithms: algorithms.iter().map(|it| it.parse().unwrap()).collect(),
            carrier: carriers.clone(),
            sizes: vec![8],
            ..Wanted::default()
        };
        let points = resolve(Op::Bcast, wanted(&["nack", "chain"])).unwrap().points();
        let carried: Vec<_> = points.iter().map(|point| point.carrier).collect();
        assert_eq!(carried, [carriers[0], carriers[1], carriers[0]]);
        let error = resolve(Op::Bcast, wanted(&["chain", "postal"])).unwrap_err().to_string();
        assert!(error.contains("sends to all ranks"), "{error}");
        let barriers = Wanted { sizes: Vec::new(), ..wanted(&["user:counter", "dissemination"]) };
        assert_eq!(resolve(Op::Barrier, barriers).unwrap().points().len(), 3);
    }

    #[test]
    fn contradictory_options_are_rejected_with_a_hint() {
        let refused = |op, wanted| format!("{:#}", resolve(op, wanted).unwrap_err());
        let roots = Wanted { roots: vec![8], ..Wanted::default() };
        assert!(refused(Op::Bcast, roots.clone()).contains("the last of 8 ranks is 7"));
        assert!(refused(Op::Barrier, roots).contains("for broadcasts"));
        let testbed = Wanted { testbed: Some("fm".to_owned()), ..Wanted::default() };
        let error = refused(Op::Bcast, testbed);
        assert!(error.contains("`fm`") && error.contains("`ethernet-25g`"), "{error}");
        let tree = Wanted { algorithms: vec![Algorithm::Postal], ..Wanted::default() };
        assert!(refused(Op::Barrier, tree).contains("barrier cannot use it"));
        let skew = Wanted { skew: vec![Duration::ZERO], ..Wanted::default() };
        assert!(refused(Op::Bcast, skew).contains("--skew is for skew"));
        let missing = Wanted { testbed: Some("no/such.toml".to_owned()), ..Wanted::default() };
        assert!(refused(Op::Bcast, missing).contains("cannot read no/such.toml"));
    }
}
