//! Barriers of several groups, entered at times drawn from the seed.

use super::barrier_options::{BarrierOptions, Closing, FIRST_GROUP};
use super::options::HEALED;
use super::{Pause, bring_faults, check_names, end_of, wait_for_verdict};
use crate::engine::random::Random;
use crate::rig::checks::{
    broken_groups_are_at_rest, delivered_once_in_order, missing_ranks_are_reported,
    no_living_rank_is_named, nothing_is_missing, only_the_dead_fail,
};
use crate::rig::cluster::Cluster;
use crate::rig::ledger::{Operation, State};
use crate::rig::rule::{drop, reorder};
use crate::rig::stranger::Forgery;
use omnes_proto::collective::BarrierGroupConfig;
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Deadline of all activity besides barriers.
const BUSY: Duration = Duration::from_millis(900);
/// Deadline of packets from strangers.
const FORGED: Duration = Duration::from_millis(1100);
/// Longest delay of a packet between a rank and its NIC.
const DOORSTEP: Duration = Duration::from_micros(300);
/// Time in a healed network within which a rank learns that a barrier is done if another living
/// rank has left it: a few rounds of questions.
const HEARSAY: Duration = Duration::from_millis(400);

/// A timed action besides entering.
enum Deed {
    Open { rank: u32, group: BarrierGroupConfig },
    Ask { rank: u32, group: CommunicatorId },
    Send { from: u32, to: u32, tag: u32, bytes: usize },
    Pause(Pause),
    Forge,
}

impl Deed {
    /// The rank that acts; `None` for a stranger.
    fn rank(&self) -> Option<u32> {
        match self {
            Self::Open { rank, .. } | Self::Ask { rank, .. } => Some(*rank),
            Self::Pause(Pause { rank, .. }) => Some(*rank),
            Self::Send { from, .. } => Some(*from),
            Self::Forge => None,
        }
    }
}

/// Runs all actions, waits until all operations have ended, and runs the checkers. Returns the
/// virtual time from the end of phase 1 to the end of all operations.
pub(super) fn run(cluster: &mut Cluster, options: &BarrierOptions) -> Duration {
    let mut faults = bring_faults(cluster, &options.faults, options.healed);
    let healed = Instant::ZERO + options.healed;
    let of_nics = [
        drop().at_uplink().multicast().ppm(options.uplink_loss_ppm),
        drop().at_doorstep().ppm(options.doorstep_loss_ppm),
        reorder(DOORSTEP).at_doorstep().ppm(options.doorstep_delay_ppm),
    ];
    faults.extend(of_nics.map(|rule| cluster.rule(rule.until(healed))));
    let mut random = Random::named(options.config.seed, "barriers", 0);
    let (deeds, mut programs) = draw_deeds(&mut random, options);
    let early = options.leaver.filter(|_| options.leaves_early);
    let its_deeds_end = end_of(&deeds, |deed| early.is_some() && deed.rank() == early);
    for (index, (at, deed)) in deeds.into_iter().enumerate() {
        programs.early_leaver = early.filter(|_| index >= its_deeds_end);
        programs.run_until(cluster, at.max(cluster.now()));
        let is_dead = |rank: u32| cluster.dead().contains(&Rank(rank));
        if !deed.rank().is_some_and(is_dead) {
            perform(cluster, deed, &mut random, options);
        }
        cluster.check(missing_ranks_are_reported);
    }
    programs.early_leaver = early;
    wait_for_verdict(cluster, &options.faults);
    programs.finish(cluster);
    let is_all_over = settle(cluster, options);
    let settled_after = match (options.faults.crash, options.faults.doubt, options.leaver) {
        (None, None, None) => cluster.now().since(Instant::ZERO + HEALED),
        _ => Duration::ZERO,
    };
    check(cluster, options);
    if is_all_over {
        // Delayed copies of packets.
        cluster.run_for(Duration::from_secs(1));
        cluster.check_quiet_for(Duration::from_secs(2));
    }
    settled_after
}

fn perform(cluster: &mut Cluster, deed: Deed, random: &mut Random, options: &BarrierOptions) {
    match deed {
        Deed::Open { rank, group } => cluster.open_barriers_at(rank, &group),
        Deed::Ask { rank, group } => cluster.ask(rank, group),
        Deed::Send { from, to, tag, bytes } => super::send(cluster, (from, to), tag, bytes),
        Deed::Pause(pause) => pause.begin(cluster),
        Deed::Forge if random.chance(300_000) => super::forge(cluster, random),
        Deed::Forge => {
            let forgery = random.pick(&Forgery::ALL);
            let to = random.below(u64::from(cluster.size())) as u32;
            let number = random.below(options.groups.len() as u64) as u32;
            cluster.forge_step(forgery, to, CommunicatorId(FIRST_GROUP + number));
        }
    }
}

// ---- entry times ------------------------------------------------------------------------------

/// One member's barriers of one group.
struct Program {
    group: CommunicatorId,
    rank: u32,
    /// When the member enters each barrier, in order; not before it has opened the group.
    times: VecDeque<Instant>,
    under_way: Vec<Operation>,
    has_failed: bool,
    closing: Closing,
}

/// All members' barriers: each member enters when its time has come, unless too many of its
/// barriers are in progress.
struct Programs {
    programs: Vec<Program>,
    outstanding: usize,
    /// The rank that leaves as soon as it has no barrier left.
    early_leaver: Option<u32>,
}

impl Program {
    /// Removes the barriers that have ended.
    fn look(&mut self, cluster: &Cluster) {
        let states = self.under_way.iter().map(|operation| cluster.state(*operation));
        self.has_failed |= states.clone().any(|state| matches!(state, State::Failed(_)));
        self.under_way.retain(|operation| cluster.state(*operation) == State::Pending);
    }

    /// Time of the next entry; `None` if a barrier must end first, or nothing is left.
    fn next(&self, outstanding: usize) -> Option<Instant> {
        let is_free = self.under_way.len() < outstanding && !self.has_failed;
        self.times.front().copied().filter(|_| is_free)
    }

    fn has_ended(&self) -> bool {
        self.has_failed || self.times.is_empty() && self.under_way.is_empty()
    }
}

impl Programs {
    fn next(&self) -> Option<Instant> {
        self.programs.iter().filter_map(|program| program.next(self.outstanding)).min()
    }

    /// Advances time to `until`, entering barriers on the way.
    fn run_until(&mut self, cluster: &mut Cluster, until: Instant) {
        self.enter(cluster);
        while cluster.now() < until {
            let at = self.next().map_or(until, |at| at.min(until));
            let time = at.since(cluster.now().min(at));
            let seen = (cluster.ledger().settled, cluster.dead().len());
            cluster.run_while(time, |cluster| {
                (cluster.ledger().settled, cluster.dead().len()) == seen
            });
            self.enter(cluster);
        }
    }

    /// Advances time until living members have entered all barriers and all of these have ended.
    fn finish(&mut self, cluster: &mut Cluster) {
        let until = cluster.now() + cluster.config.patience;
        let has_more = |program: &Program| !program.times.is_empty() && !program.has_failed;
        while cluster.now() < until && self.programs.iter().any(has_more) {
            self.run_until(cluster, until.min(cluster.now() + Duration::from_millis(1)));
        }
        // Members that close groups must see the end of their last barrier.
        let is_waiting = |program: &Program| !program.under_way.is_empty();
        let until = cluster.now() + Duration::from_millis(50);
        while cluster.now() < until && self.programs.iter().any(is_waiting) {
            self.run_until(cluster, until.min(cluster.now() + Duration::from_millis(1)));
        }
    }

    fn enter(&mut self, cluster: &mut Cluster) {
        let dead = cluster.dead();
        self.programs.retain(|program| !dead.contains(&Rank(program.rank)));
        let outstanding = self.outstanding;
        for program in &mut self.programs {
            program.look(cluster);
            while program.next(outstanding).is_some_and(|at| at <= cluster.now()) {
                program.times.pop_front();
                program.under_way.push(cluster.enter(program.rank, program.group));
                program.look(cluster);
            }
            if program.has_ended() && !program.has_failed && program.closing == Closing::AtOnce {
                cluster.close_barriers(program.rank, program.group);
            }
        }
        self.programs.retain(|program| !program.has_ended());
        if let Some(rank) = self.early_leaver {
            let has_more = self.programs.iter().any(|program| program.rank == rank);
            if !has_more && !dead.contains(&Rank(rank)) && cluster.has_finished(rank) {
                cluster.leave(rank);
            }
        }
    }
}

// ---- actions ----------------------------------------------------------------------------------

fn draw_deeds(random: &mut Random, options: &BarrierOptions) -> (Vec<(Instant, Deed)>, Programs) {
    let mut drawing = Drawing { random, options, deeds: Vec::new(), programs: Vec::new() };
    for group in &options.groups {
        drawing.group(group);
    }
    drawing.disturbances();
    let Drawing { mut deeds, programs, .. } = drawing;
    deeds.sort_by_key(|(at, _)| *at);
    let outstanding = options.outstanding as usize;
    (deeds, Programs { programs, outstanding, early_leaver: None })
}

/// Actions drawn so far.
struct Drawing<'a> {
    random: &'a mut Random,
    options: &'a BarrierOptions,
    deeds: Vec<(Instant, Deed)>,
    programs: Vec<Program>,
}

impl Drawing<'_> {
    /// A random time of at most `most`.
    fn within(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.random.below(most.as_nanos() as u64 + 1))
    }

    /// A random time, more often than not one while barriers are in progress.
    fn at(&mut self, most: Duration) -> Instant {
        let BarrierOptions { begun, spread, lateness, .. } = *self.options;
        let at = if self.random.chance(600_000) {
            begun + self.within(spread + lateness)
        } else {
            self.within(most)
        };
        Instant::ZERO + at.min(most)
    }

    fn group(&mut self, group: &BarrierGroupConfig) {
        let BarrierOptions { begun, spread, lateness, opening, closing, .. } = *self.options;
        let mut begins: Vec<Duration> =
            (0..self.options.barriers).map(|_| begun + self.within(spread)).collect();
        begins.sort_unstable();
        for rank in group.nodes.ranks().map(|rank| rank.0) {
            let opened = Instant::ZERO + self.within(opening);
            self.deeds.push((opened, Deed::Open { rank, group: group.clone() }));
            // The group may be opened at that very instant.
            let mut entered = opened + Duration::from_nanos(1);
            let mut times = VecDeque::new();
            for at in &begins {
                entered = entered.max(Instant::ZERO + *at + self.within(lateness));
                times.push_back(entered);
            }
            let (under_way, has_failed) = (Vec::new(), false);
            let group = group.communicator;
            self.programs.push(Program { group, rank, times, under_way, has_failed, closing });
        }
    }

    fn disturbances(&mut self) {
        let ranks = u64::from(self.options.config.ranks);
        for tag in 0..self.options.channel_messages {
            let from = self.random.below(ranks);
            let to = (from + self.random.within(1, ranks - 1)) % ranks;
            let bytes = self.random.below(5000) as usize;
            let at = self.at(BUSY);
            self.deeds.push((at, Deed::Send { from: from as u32, to: to as u32, tag, bytes }));
        }
        for number in 0..self.options.pauses {
            let pause = Pause::draw(self.random, &self.options.config, number);
            let at = self.at(BUSY);
            self.deeds.push((at, Deed::Pause(pause)));
        }
        for _ in 0..self.options.asks {
            let number = self.random.below(self.options.groups.len() as u64) as u32;
            let (rank, group) =
                (self.random.below(ranks) as u32, CommunicatorId(FIRST_GROUP + number));
            let at = self.at(BUSY);
            self.deeds.push((at, Deed::Ask { rank, group }));
        }
        for _ in 0..self.options.faults.forgeries {
            let at = self.at(FORGED);
            self.deeds.push((at, Deed::Forge));
        }
    }
}

// ---- the end ----------------------------------------------------------------------------------

/// Advances time until everything has begun and has ended. The leaver leaves when it has nothing
/// left to do, while others may still miss a message from it. False if some barriers cannot end;
/// ranks keep asking about these, at growing intervals.
fn settle(cluster: &mut Cluster, options: &BarrierOptions) -> bool {
    let mut is_all_over = true;
    cluster.run_until((Instant::ZERO + options.healed).max(cluster.now()));
    if let Some(rank) = options.leaver {
        let is_dead = |cluster: &Cluster| cluster.dead().contains(&Rank(rank));
        let patience = cluster.config.patience;
        cluster.run_while(patience, |cluster| !is_dead(cluster) && !cluster.has_finished(rank));
        if !is_dead(cluster) {
            cluster.leave(rank);
        }
        is_all_over = give_up_stranded(cluster) == 0;
    }
    cluster.run_until_quiescent();
    cluster.run_until(Instant::ZERO + HEALED);
    is_all_over
}

/// The caller's part after a rank has left: a barrier that no other rank is done with cannot end if
/// its messages left with that rank. All other barriers must end. Returns the number of barriers
/// given up, counted per rank.
fn give_up_stranded(cluster: &mut Cluster) -> usize {
    // A rank that ignores the network returns before that.
    let time = HEARSAY + Duration::from_millis(300) + cluster.config.collective.nack_after_max;
    let until = cluster.now() + time;
    cluster.run_while(time, |cluster| !cluster.is_quiescent());
    if cluster.is_quiescent() {
        return 0;
    }
    cluster.run_until(until);
    let dead = cluster.dead();
    let living: BTreeSet<Rank> =
        (0..cluster.size()).map(Rank).filter(|rank| !dead.contains(rank)).collect();
    let left = cluster.left();
    let stranded = cluster.ledger().stranded_barriers(&living, &left);
    for (rank, group) in &stranded {
        cluster.close_barriers(rank.0, *group);
    }
    stranded.len()
}

fn check(cluster: &mut Cluster, options: &BarrierOptions) {
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.check(only_the_dead_fail);
    cluster.check(no_living_rank_is_named);
    cluster.check(missing_ranks_are_reported);
    check_counts(cluster, options);
    check_names(cluster, &options.faults, options.leaver);
    cluster.check(broken_groups_are_at_rest);
    check_refusals(cluster, options);
    cluster.check(only_the_dead_fail);
}

/// In groups without dead or departed members, every member has left as many barriers as it has
/// entered.
fn check_counts(cluster: &Cluster, options: &BarrierOptions) {
    let dead = cluster.dead();
    for group in &options.groups {
        let mut members = group.nodes.ranks();
        if group.nodes.ranks().any(|rank| dead.contains(&rank)) {
            continue;
        }
        let all = (options.barriers, options.barriers);
        let progress = |rank: Rank| cluster.progress(rank.0, group.communicator);
        if let Some(rank) = members.find(|rank| progress(*rank) != all) {
            let (found, group) = (progress(rank), group.communicator.0);
            cluster.fail(&format!("rank {rank} has entered and left {found:?} in {group}"));
        }
    }
}

/// A group with a failed rank refuses further barriers and names the rank.
fn check_refusals(cluster: &mut Cluster, options: &BarrierOptions) {
    let Some((victim, _)) = options.faults.crash else { return };
    let mut later: BTreeMap<u32, CommunicatorId> = BTreeMap::new();
    for group in &options.groups {
        let members: Vec<u32> = group.nodes.ranks().map(|rank| rank.0).collect();
        if members.contains(&victim) {
            later.extend(members.into_iter().map(|rank| (rank, group.communicator)));
        }
    }
    let dead = cluster.dead();
    for (rank, group) in later.into_iter().filter(|(rank, _)| !dead.contains(&Rank(*rank))) {
        let node = &cluster.nodes[rank as usize];
        if node.barriers.groups.contains_key(&group) {
            let operation = cluster.enter(rank, group);
            if !matches!(cluster.state(operation), State::Failed(_)) {
                let group = group.0;
                cluster.fail(&format!("rank {rank} enters a barrier of the broken group {group}"));
            }
        }
    }
}
