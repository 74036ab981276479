//! The swarm: everything that can be drawn is drawn from a seed, for many seeds.
//!
//! A run has two phases. In the first the network loses, doubles, corrupts and mixes up packets,
//! is cut in two for a while, ranks look away or are stopped, strangers speak, and a rank may die,
//! leave, or be stopped until all others have given it up. In the second it is healed: then every
//! operation must end, everything must have been delivered exactly once and in order, bounds must
//! have held, the dead rank must be named to all and nobody else, and silence must follow. Where
//! the ranks do collectives over channels alone, nobody dies or is given up. A failure is reported
//! with its seed, the options and the last events; `swarm --seed N` repeats it.
//!
//! Channels, broadcasts and barriers have swarms of their own, see [`Machine`]: the seeds of one
//! do not change with the others.

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
    dead_are_named_to_all, delivered_once_in_order, no_living_rank_is_named, nobody_is_wronged,
    nothing_is_missing, only_the_dead_fail,
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

/// What a seed led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Equal for equal runs.
    pub trace_hash: u64,
    /// Packets, commands and events.
    pub events: u64,
    /// Virtual time from the healing of the network to the end of all operations; zero where a
    /// rank has died, since that is waited for.
    pub settled_after: Duration,
}

/// Which machine a swarm is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// Channels, and collectives over them.
    Channel,
    /// Broadcasts over multicast, with a few messages on channels beside.
    Broadcast,
    /// Barriers of groups, by hosts and by NICs, with a few messages on channels beside.
    Collective,
}

impl Machine {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Broadcast, Self::Collective];

    /// Its name on the command line.
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
/// The report of a failure: what is wrong, seed, options, last events.
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

/// Runs a cluster; what panics becomes a report.
fn guarded(
    config: ClusterConfig,
    options: &dyn Debug,
    run: impl FnOnce(&mut Cluster) -> Duration,
) -> Result<Passed, String> {
    let seed = config.seed;
    let mut cluster = Builder::from_config(config).build();
    let run = AssertUnwindSafe(|| {
        let settled_after = run(&mut cluster);
        cluster.check(nobody_is_wronged);
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
                // A machine's own assertion, which knows nothing of the run.
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
    // Answers that were held back, and copies of packets that come late.
    cluster.run_for(Duration::from_secs(1));
    cluster.check_quiet_for(Duration::from_secs(2));
    settled_after
}

/// Pauses and strangers beside collectives alone, which are soon over.
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

/// The faults of phase 1, which ends at `healed`.
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

/// A time in which a rank does not run.
#[derive(Clone, Copy)]
struct Pause {
    rank: u32,
    time: Duration,
    /// It was stopped and is told so when it goes on, other than a rank that computes.
    is_stop: bool,
}

impl Pause {
    /// The `number`-th one of a run.
    fn draw(random: &mut Random, config: &ClusterConfig, number: u32) -> Self {
        let time = Duration::from_micros(random.within(1, 300_000));
        let rank = random.below(u64::from(config.ranks)) as u32;
        let is_stop = Random::named(config.seed, "stop", u64::from(number)).chance(500_000);
        Self { rank, time, is_stop }
    }

    fn begin(self, cluster: &mut Cluster) {
        // A stop in phase 2 would put off when the dead are named.
        if self.is_stop && cluster.now() < Instant::ZERO + HEALED {
            cluster.suspend(self.rank, self.time);
        } else {
            cluster.distract(self.rank, self.time);
        }
    }
}

/// The place behind the last of some deeds, such as those of one rank.
fn end_of<D>(deeds: &[(Instant, D)], is_one: impl Fn(&D) -> bool) -> usize {
    deeds.iter().rposition(|(_, deed)| is_one(deed)).map_or(0, |last| last + 1)
}

/// Waits until nobody gives up any more who was stopped for long.
fn wait_for_verdict(cluster: &mut Cluster, faults: &Faults) {
    if let Some((_, at, time)) = faults.doubt {
        cluster.run_until(Instant::ZERO + at + time + Duration::from_secs(2));
    }
}

/// Waits until everybody must know of the dead rank, and asks.
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
    // A replay may have made the dead rank look alive until the network was healed; then come
    // the timeout, the round in which it is noticed, and the way of the report.
    let healed = (Instant::ZERO + at).max(Instant::ZERO + HEALED);
    let time = liveness.timeout + 3 * liveness.interval;
    cluster.run_until(healed + time);
    // Where who watched it has left meanwhile, the next one watches from then on.
    let left = leaver.and_then(|leaver| {
        (0..cluster.size()).filter_map(|rank| cluster.departed_at(rank, leaver)).max()
    });
    let deadline = left.map_or(healed, |left| left.max(healed)) + time;
    // A farewell may be on its way, where ranks were at work until after that.
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

/// A rank that was given up, and goes on, has been told.
fn check_excluded(cluster: &Cluster, rank: u32) {
    if !cluster.is_excluded(rank) {
        cluster.fail(&format!("nobody tells {rank}, which goes on, that it is out"));
    }
}

/// A rank leaves when all is over: all others hear of it, and nobody takes it for dead.
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

/// A message on a channel, with its receive, where both ranks are there.
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

/// A stranger says something to somebody.
fn forge(cluster: &mut Cluster, random: &mut Random) {
    let forgery = random.pick(&Forgery::ALL);
    let to = random.below(u64::from(cluster.size())) as u32;
    cluster.forge(forgery, to);
}
