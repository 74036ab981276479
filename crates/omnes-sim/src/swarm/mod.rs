//! Random runs for many seeds: everything that can be drawn is drawn from the seed.
//!
//! A run has two phases. In the first the network loses, duplicates, corrupts and reorders packets
//! and is partitioned for a while, ranks ignore the network or are stopped, strangers send packets,
//! and a rank may die, leave, or be stopped until all others have given it up. In the second the
//! network is healed: every operation must end, everything must have been delivered exactly once
//! and in order, bounds must have held, all ranks must name the dead rank and no other, and the
//! network must fall silent. If the ranks run only collectives over channels, no rank dies or is
//! given up. A failure is reported with its seed, the options and the last events; `swarm --seed N`
//! reproduces it.
//!
//! Channels, broadcasts and barriers have separate swarms, see [`Machine`]: the seeds of one are
//! independent of the others.

mod barrier_options;
mod barriers;
mod cast_options;
mod casts;
mod mix;
mod options;

pub use barrier_options::{BarrierOptions, Closing};
pub use cast_options::{CastOptions, Posting};
pub use options::{Faults, Leaver, Options, Work};

use crate::conformance;
use crate::engine::random::Random;
use crate::rig::builder::{Builder, ClusterConfig, Printing};
use crate::rig::checks::{
    dead_are_named_to_all, delivered_once_in_order, no_live_rank_is_excluded,
    no_living_rank_is_named, nothing_is_missing, only_the_dead_fail,
};
use crate::rig::cluster::{COMMUNICATOR, Cluster, Send};
use crate::rig::ledger::Stream;
use crate::rig::payload::content;
use crate::rig::rule::{Guard, Ways, corrupt, drop, duplicate, partition, reorder};
use crate::rig::stranger::Forgery;
use omnes_proto::channel::{Pattern, Reply};
use omnes_topo::{BarrierAlgorithm, Tree};
use omnes_wire::{Instant, Rank};
use options::HEALED;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Result of a passed seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Hash of the trace; equal for equal runs.
    pub trace_hash: u64,
    /// Number of packets, commands and events.
    pub events: u64,
    /// Virtual time from the healing of the network to the end of all operations; zero if a rank
    /// has died, since its failure is awaited.
    pub settled_after: Duration,
}

/// The machine that a swarm tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// Channels, and collectives over them.
    Channel,
    /// Broadcasts over multicast, with a few messages on channels.
    Broadcast,
    /// Barriers of groups, by hosts and by NICs, with a few messages on channels.
    Collective,
}

impl Machine {
    /// All machines.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Broadcast, Self::Collective];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Broadcast => "broadcast",
            Self::Collective => "collective",
        }
    }
}

/// Runs one seed of a machine's swarm.
///
/// # Errors
/// The report of a failure: the violation, seed, options, last events.
pub fn run_seed(machine: Machine, seed: u64, trace: Printing) -> Result<Passed, String> {
    match machine {
        Machine::Channel => {
            let options = Options::draw(seed, trace);
            guarded(options.config.clone(), &options, |cluster| run(cluster, &options))
        }
        Machine::Broadcast => {
            let options = CastOptions::draw(seed, trace);
            guarded(options.config.clone(), &options, |cluster| casts::run(cluster, &options))
        }
        Machine::Collective => {
            let options = BarrierOptions::draw(seed, trace);
            guarded(options.config.clone(), &options, |cluster| barriers::run(cluster, &options))
        }
    }
}

/// Runs a cluster and turns a panic into a report.
fn guarded(
    config: ClusterConfig,
    options: &dyn Debug,
    run: impl FnOnce(&mut Cluster) -> Duration,
) -> Result<Passed, String> {
    let seed = config.seed;
    let mut cluster = Builder::from_config(config).build();
    let run = AssertUnwindSafe(|| {
        let settled_after = run(&mut cluster);
        cluster.check(no_live_rank_is_excluded);
        settled_after
    });
    match catch_unwind(run) {
        Ok(settled_after) => {
            Ok(Passed { trace_hash: cluster.trace_hash(), events: cluster.events(), settled_after })
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            let mut text = text.unwrap_or_else(|| "panicked".to_owned());
            if !text.contains("last events") {
                // A machine's own assertion, which has no information about the run.
                text = format!("{text}\n{}", cluster.report());
            }
            Err(format!("seed {seed} failed: {text}\noptions: {options:#?}\n"))
        }
    }
}

fn run(cluster: &mut Cluster, options: &Options) -> Duration {
    let _faults = bring_faults(cluster, &options.faults, HEALED);
    if options.work != Work::Mix {
        disturb(cluster, options);
    }
    match options.work {
        Work::Mix => mix::run(cluster, options),
        Work::Barriers => {
            for algorithm in BarrierAlgorithm::ALL {
                conformance::nobody_leaves_a_barrier_early(cluster, algorithm);
            }
        }
        Work::Broadcasts => broadcasts(cluster, options),
    }
    let settled_after = match (options.faults.crash, options.faults.doubt) {
        (None, None) if cluster.dead().is_empty() => cluster.now().since(Instant::ZERO + HEALED),
        _ => Duration::ZERO,
    };
    cluster.run_until(Instant::ZERO + HEALED);
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.check(only_the_dead_fail);
    cluster.check(no_living_rank_is_named);
    check_names(cluster, &options.faults, options.leaver.map(|leaver| leaver.rank));
    part(cluster, options);
    // Delayed acknowledgements, and delayed copies of packets.
    cluster.run_for(Duration::from_secs(1));
    cluster.check_quiet_for(Duration::from_secs(2));
    settled_after
}

/// Pauses and strangers during collectives that run alone, which end soon.
fn disturb(cluster: &mut Cluster, options: &Options) {
    let mut random = Random::named(options.config.seed, "disturbances", 0);
    let until_ns = random.pick(&[500_000, 5_000_000, 50_000_000]);
    let at = |random: &mut Random| Instant::from_ns(random.below(until_ns));
    for number in 0..options.pauses {
        let pause = Pause::draw(&mut random, &options.config, number);
        cluster.at(at(&mut random), move |cluster| pause.begin(cluster));
    }
    for number in 0..options.faults.forgeries {
        let mut stranger = Random::named(options.config.seed, "stranger", u64::from(number));
        cluster.at(at(&mut random), move |cluster| forge(cluster, &mut stranger));
    }
}

fn broadcasts(cluster: &mut Cluster, options: &Options) {
    let random = &mut Random::named(options.config.seed, "broadcasts", 0);
    let knomial = Tree::Knomial { radix: random.within(2, 5) as u32 };
    for tree in [Tree::Binomial, Tree::Chain, Tree::Flat, knomial] {
        let root = Rank(random.below(u64::from(options.config.ranks)) as u32);
        let bytes = random.within(0, options.bytes_max as u64 / 16) as usize;
        let chunk_bytes = random.pick(&[0, 1000, 10_000]);
        conformance::broadcast_reaches_everybody(cluster, tree, root, bytes, chunk_bytes);
    }
}

/// Applies the faults of phase 1, which ends at `healed`.
fn bring_faults(cluster: &mut Cluster, faults: &Faults, healed: Duration) -> Vec<Guard> {
    let healed = Instant::ZERO + healed;
    let mut rules = vec![
        drop().ppm(faults.loss_ppm),
        duplicate().ppm(faults.duplicate_ppm),
        corrupt().ppm(faults.corrupt_ppm),
        reorder(faults.reorder).ppm(faults.reorder_ppm),
    ];
    if let Some((cut, from, time)) = faults.partition {
        let (first, second): (Vec<u32>, Vec<u32>) =
            (0..cluster.size()).partition(|rank| *rank < cut);
        let ways = if cut.is_multiple_of(2) { Ways::Both } else { Ways::One };
        let from = Instant::ZERO + from;
        rules.push(partition(&first, &second, ways).after(from).until(from + time));
    }
    if let Some((rank, at)) = faults.crash {
        match faults.thaws {
            Some(until) => {
                let until = Instant::ZERO + until;
                cluster.at(Instant::ZERO + at, move |cluster| cluster.freeze(rank, until));
            }
            None => cluster.crash_at(rank, Instant::ZERO + at),
        }
    }
    if let Some((rank, at, time)) = faults.doubt {
        let until = Instant::ZERO + at + time;
        cluster.at(Instant::ZERO + at, move |cluster| cluster.freeze_perhaps(rank, until));
    }
    let until = |rule: crate::rig::rule::Rule| {
        let ends = rule.ends().map_or(healed, |ends| ends.min(healed));
        rule.until(ends)
    };
    rules.into_iter().map(|rule| cluster.rule(until(rule))).collect()
}

/// A period in which a rank does not run.
#[derive(Clone, Copy)]
struct Pause {
    rank: u32,
    time: Duration,
    /// The rank is stopped and notified of the pause when it resumes, unlike a rank that computes.
    is_stop: bool,
}

impl Pause {
    /// Draws the `number`-th pause of a run.
    fn draw(random: &mut Random, config: &ClusterConfig, number: u32) -> Self {
        let time = Duration::from_micros(random.within(1, 300_000));
        let rank = random.below(u64::from(config.ranks)) as u32;
        let is_stop = Random::named(config.seed, "stop", u64::from(number)).chance(500_000);
        Self { rank, time, is_stop }
    }

    fn begin(self, cluster: &mut Cluster) {
        // A stop in phase 2 would delay the naming of the dead.
        if self.is_stop && cluster.now() < Instant::ZERO + HEALED {
            cluster.suspend(self.rank, self.time);
        } else {
            cluster.distract(self.rank, self.time);
        }
    }
}

/// Index after the last action that satisfies `is_one`, such as the actions of one rank.
fn end_of<D>(deeds: &[(Instant, D)], is_one: impl Fn(&D) -> bool) -> usize {
    deeds.iter().rposition(|(_, deed)| is_one(deed)).map_or(0, |last| last + 1)
}

/// Waits until no rank can still give up one that was stopped for long.
fn wait_for_verdict(cluster: &mut Cluster, faults: &Faults) {
    if let Some((_, at, time)) = faults.doubt {
        cluster.run_until(Instant::ZERO + at + time + Duration::from_secs(2));
    }
}

/// Waits until every rank must know of the dead rank, and checks that it does.
fn check_names(cluster: &mut Cluster, faults: &Faults, leaver: Option<u32>) {
    let liveness = cluster.config.liveness;
    if let Some((rank, ..)) =
        faults.doubt.filter(|(rank, ..)| cluster.dead().contains(&Rank(*rank)))
    {
        cluster.run_for(liveness.timeout + 3 * liveness.interval);
        cluster.check(dead_are_named_to_all);
        check_excluded(cluster, rank);
    }
    let Some((rank, at)) = faults.crash else { return };
    // A replay may have made the dead rank look alive until the network was healed; then the
    // timeout, the round in which it is noticed, and the report's transit follow.
    let healed = (Instant::ZERO + at).max(Instant::ZERO + HEALED);
    let time = liveness.timeout + 3 * liveness.interval;
    cluster.run_until(healed + time);
    // If the rank that watched the dead one has left meanwhile, the next one watches from then on.
    let left = leaver.and_then(|leaver| {
        (0..cluster.size()).filter_map(|rank| cluster.departed_at(rank, leaver)).max()
    });
    let deadline = left.map_or(healed, |left| left.max(healed)) + time;
    // A farewell may be in flight if ranks were busy until after that.
    cluster.run_until(deadline.max(cluster.now() + liveness.interval));
    if cluster.network_counters().lost_farewells == 0 {
        cluster.check(dead_are_named_to_all);
    }
    let dead = cluster.dead();
    for other in (0..cluster.size()).filter(|other| !dead.contains(&Rank(*other))) {
        match cluster.named_at(other, rank) {
            Some(named) if named < Instant::ZERO + at => {
                cluster.fail(&format!("rank {other} took {rank} for dead before it died"));
            }
            Some(named) if named <= deadline => {}
            _ => cluster.fail(&format!("rank {other} heard late of the death of {rank}")),
        }
    }
    if let Some(thaws) = faults.thaws {
        cluster.run_until(Instant::ZERO + thaws + time);
        check_excluded(cluster, rank);
    }
}

/// A rank that was given up and resumes has been notified of its exclusion.
fn check_excluded(cluster: &Cluster, rank: u32) {
    if !cluster.is_excluded(rank) {
        cluster.fail(&format!("nobody tells {rank}, which goes on, that it is out"));
    }
}

/// A rank leaves at the end: all others hear of it, and none takes it for dead.
fn part(cluster: &mut Cluster, options: &Options) {
    let Some(Leaver { rank: leaver, amid: None }) = options.leaver else { return };
    if cluster.dead().contains(&Rank(leaver)) {
        return;
    }
    cluster.leave(leaver);
    cluster.run_for(Duration::from_secs(1));
    for rank in (0..options.config.ranks).filter(|rank| *rank != leaver) {
        let is_alive = !cluster.dead().contains(&Rank(rank));
        if is_alive && cluster.departed_at(rank, leaver).is_none() {
            cluster.fail(&format!("rank {rank} has not heard that {leaver} has left"));
        }
    }
}

/// Sends a message on a channel and posts its receive, if both ranks are alive.
fn send(cluster: &mut Cluster, (from, to): (u32, u32), tag: u32, bytes: usize) {
    if cluster.dead().contains(&Rank(to)) {
        return;
    }
    let communicator = COMMUNICATOR;
    let pattern = Pattern { communicator, source: Some(Rank(from)), tag: Some(tag) };
    cluster.post_receive(to, 0, pattern, bytes as u64);
    let stream = Stream { from: Rank(from), to: Rank(to), channel: 0, communicator, tag };
    let content = content(u64::from(tag), bytes);
    let available = bytes as u64;
    cluster.post_send(Send { stream, content, available, reply: Reply::Soon });
}

/// A stranger sends a packet to a random rank.
fn forge(cluster: &mut Cluster, random: &mut Random) {
    let forgery = random.pick(&Forgery::ALL);
    let to = random.below(u64::from(cluster.size())) as u32;
    cluster.forge(forgery, to);
}
