//! Broadcasts of several roots in several groups, at times drawn from the seed.

use super::cast_options::{CastOptions, Posting};
use super::options::HEALED;
use super::{Pause, bring_faults, check_names, end_of, wait_for_verdict};
use crate::engine::random::Random;
use crate::rig::checks::{
    delivered_once_in_order, no_living_rank_is_named, nothing_is_missing, only_the_dead_fail,
};
use crate::rig::cluster::Cluster;
use crate::rig::ledger::{CastStream, Operation, State};
use crate::rig::rule::drop;
use crate::rig::stranger::Forgery;
use omnes_proto::broadcast::{CastGroupConfig, GroupId};
use omnes_proto::channel::Reply;
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Deadline for the start of broadcasts.
const BEGUN: Duration = Duration::from_millis(900);
/// Approximate duration of the broadcasts.
const BUSY: Duration = Duration::from_millis(2);
/// Deadline of packets from strangers.
const FORGED: Duration = Duration::from_millis(1100);
/// Initial interval at which ranks check whether they may close groups.
const CLOSE_INTERVAL: Duration = Duration::from_micros(20);
/// Most streams that share the messages of a run.
const STREAMS_MAX: u64 = 4;

/// A timed action.
enum Deed {
    Open { rank: u32, group: CastGroupConfig },
    Broadcast { group: GroupId, root: u32, bytes: usize, reply: Reply },
    Receive(Receive),
    Send { from: u32, to: u32, tag: u32, bytes: usize },
    Pause(Pause),
    Forge,
}

/// A receive to post.
#[derive(Clone, Copy)]
struct Receive {
    rank: u32,
    group: GroupId,
    root: u32,
    capacity: u64,
}

impl Receive {
    fn post(self, cluster: &mut Cluster) -> Operation {
        cluster.receive_broadcast(self.rank, self.group, self.root, self.capacity)
    }
}

impl Deed {
    /// The rank that acts; `None` for a stranger.
    fn rank(&self) -> Option<u32> {
        match self {
            Self::Open { rank, .. } | Self::Pause(Pause { rank, .. }) => Some(*rank),
            Self::Receive(receive) => Some(receive.rank),
            Self::Broadcast { root, .. } => Some(*root),
            Self::Send { from, .. } => Some(*from),
            Self::Forge => None,
        }
    }
}

/// Runs all actions, waits until all operations have ended, and runs the checkers. Returns the
/// virtual time from the end of phase 1 to the end of all operations.
pub(super) fn run(cluster: &mut Cluster, options: &CastOptions) -> Duration {
    let mut faults = bring_faults(cluster, &options.faults, options.healed);
    let healed = Instant::ZERO + options.healed;
    let lost = drop().at_uplink().multicast().ppm(options.uplink_loss_ppm).until(healed);
    faults.push(cluster.rule(lost));
    if let Some(mute) = &options.mute {
        let lost = drop().multicast().after(Instant::ZERO + mute.from);
        let lost = mute.until.map_or(lost.clone(), |until| lost.until(Instant::ZERO + until));
        match mute.ranks.as_slice() {
            [] => faults.push(cluster.rule(lost.at_uplink())),
            some => some.iter().for_each(|rank| faults.push(cluster.rule(lost.clone().to(*rank)))),
        }
    }
    let mut random = Random::named(options.config.seed, "casts", 0);
    let (deeds, mut programs) = draw_deeds(&mut random, options);
    let early = options.leaver.filter(|_| options.leaves_early);
    let its_deeds_end = end_of(&deeds, |deed| early.is_some() && deed.rank() == early);
    for (index, (at, deed)) in deeds.into_iter().enumerate() {
        programs.run_until(cluster, at.max(cluster.now()));
        let is_dead = |rank: u32| cluster.dead().contains(&Rank(rank));
        if !deed.rank().is_some_and(is_dead) {
            perform(cluster, deed, &mut random);
        }
        if let Some(rank) = early.filter(|_| index >= its_deeds_end) {
            programs.let_leave(cluster, rank);
        }
    }
    wait_for_verdict(cluster, &options.faults);
    programs.finish(cluster);
    if options.closes {
        close_where_over(cluster, options);
    }
    settle(cluster, options);
    let settled_after = match (options.faults.crash, options.faults.doubt, options.leaver) {
        (None, None, None) => cluster.now().since(Instant::ZERO + HEALED),
        _ => Duration::ZERO,
    };
    check(cluster, options);
    settled_after
}

fn perform(cluster: &mut Cluster, deed: Deed, random: &mut Random) {
    match deed {
        Deed::Open { rank, group } => cluster.open_group_at(rank, &group),
        Deed::Broadcast { group, root, bytes, reply } => {
            cluster.broadcast_with(group, root, bytes, reply);
        }
        Deed::Receive(receive) => {
            receive.post(cluster);
        }
        Deed::Send { from, to, tag, bytes } => super::send(cluster, (from, to), tag, bytes),
        Deed::Pause(pause) => pause.begin(cluster),
        Deed::Forge if random.chance(500_000) => super::forge(cluster, random),
        Deed::Forge => {
            cluster.forge_to_group(random.pick(&Forgery::ALL));
        }
    }
}

/// Receives that a rank posts one at a time, by rank. Their order is the same at all ranks, as
/// programs require: buffers are bounded, so otherwise each rank would wait for another.
#[derive(Default)]
struct Programs {
    receives: BTreeMap<u32, VecDeque<(Instant, Receive)>>,
    under_way: BTreeMap<u32, Operation>,
}

impl Programs {
    /// When and where the next receive is posted, among ranks whose previous receive is complete.
    fn next(&self, cluster: &Cluster) -> Option<(Instant, u32)> {
        let is_busy = |rank: &u32| {
            let operation = self.under_way.get(rank);
            operation.is_some_and(|operation| cluster.state(*operation) == State::Pending)
        };
        let able = self.receives.iter().filter(|(rank, _)| !is_busy(rank));
        able.filter_map(|(rank, receives)| Some((receives.front()?.0, *rank))).min()
    }

    /// Advances time to `until`, posting receives on the way.
    fn run_until(&mut self, cluster: &mut Cluster, until: Instant) {
        while cluster.now() < until {
            let next = self.next(cluster);
            let at = next.map_or(until, |(at, _)| at.min(until));
            let time = at.since(cluster.now().min(at));
            cluster.run_while(time, |cluster| self.next(cluster) == next);
            self.post(cluster);
        }
    }

    /// Advances time until living ranks have posted all receives.
    fn finish(&mut self, cluster: &mut Cluster) {
        let until = cluster.now() + cluster.config.patience;
        while cluster.now() < until && !self.receives.is_empty() {
            self.run_until(cluster, until.min(cluster.now() + Duration::from_millis(1)));
        }
    }

    /// Makes a rank leave if it has nothing left to do.
    fn let_leave(&self, cluster: &mut Cluster, rank: u32) {
        let has_more = self.receives.contains_key(&rank) || !cluster.has_finished(rank);
        if !has_more && !cluster.dead().contains(&Rank(rank)) {
            cluster.leave(rank);
        }
    }

    fn post(&mut self, cluster: &mut Cluster) {
        let dead = cluster.dead();
        self.receives.retain(|rank, receives| !dead.contains(&Rank(*rank)) && !receives.is_empty());
        while let Some((_, rank)) = self.next(cluster).filter(|(at, _)| *at <= cluster.now()) {
            let receive = self.receives.get_mut(&rank).and_then(VecDeque::pop_front);
            if let Some((_, receive)) = receive {
                self.under_way.insert(rank, receive.post(cluster));
            }
        }
    }
}

// ---- actions --------------------------------------------------------------------------------

fn draw_deeds(random: &mut Random, options: &CastOptions) -> (Vec<(Instant, Deed)>, Programs) {
    let bytes_left = options.bytes_max;
    let (deeds, receives) = (Vec::new(), Vec::new());
    let mut drawing = Drawing { random, options, bytes_left, deeds, receives };
    let opened = drawing.openings();
    let mut streams = BTreeSet::new();
    let count = drawing.random.within(1, STREAMS_MAX);
    for number in 0..count {
        let messages = (u64::from(options.messages) + number) / count;
        let stream = drawing.stream();
        // Receives of two lists for one stream would be mixed up.
        if streams.insert(stream.key()) {
            drawing.messages(&opened, &stream, messages);
        }
    }
    drawing.disturbances();
    let mut deeds = drawing.deeds;
    deeds.sort_by_key(|(at, _)| *at);
    let mut programs = Programs::default();
    drawing.receives.sort_by_key(|(begun, _, _)| *begun);
    for (_, posted, receive) in drawing.receives {
        programs.receives.entry(receive.rank).or_default().push_back((posted, receive));
    }
    (deeds, programs)
}

/// Time at which each member opens each group.
type Openings = BTreeMap<(GroupId, Rank), Instant>;

/// Actions drawn so far.
struct Drawing<'a> {
    random: &'a mut Random,
    options: &'a CastOptions,
    bytes_left: usize,
    deeds: Vec<(Instant, Deed)>,
    /// Receives that are posted one at a time, with the start of their broadcast and the earliest
    /// time of posting.
    receives: Vec<(Duration, Instant, Receive)>,
}

impl Drawing<'_> {
    /// A random time of at most `most`.
    fn within(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.random.below(most.as_nanos() as u64 + 1))
    }

    /// A random time, often one while broadcasts are in progress.
    fn at(&mut self, most: Duration) -> Instant {
        let CastOptions { begun, spread, .. } = *self.options;
        let at = if self.random.chance(500_000) {
            begun + self.within(spread + BUSY)
        } else {
            self.within(most)
        };
        Instant::ZERO + at.min(most)
    }

    fn openings(&mut self) -> Openings {
        let mut opened = Openings::new();
        for group in &self.options.groups {
            for rank in group.nodes.ranks() {
                let at = Instant::ZERO + self.within(self.options.opening);
                opened.insert((group.id, rank), at);
                self.deeds.push((at, Deed::Open { rank: rank.0, group: group.clone() }));
            }
        }
        opened
    }

    /// A random root in a random group.
    fn stream(&mut self) -> CastStream {
        let groups = &self.options.groups;
        let group = &groups[self.random.below(groups.len() as u64) as usize];
        let members: Vec<Rank> = group.nodes.ranks().collect();
        CastStream { group: Rc::new(group.clone()), root: self.random.pick(&members) }
    }

    /// Broadcasts of one stream: the n-th receive at each rank is for the n-th message.
    fn messages(&mut self, opened: &Openings, stream: &CastStream, messages: u64) {
        let (group, root) = stream.key();
        let receivers = stream.receivers();
        let after = |rank: Rank, at: Duration| (Instant::ZERO + at).max(opened[&(group, rank)]);
        let CastOptions { begun, spread, .. } = *self.options;
        let mut times: Vec<Duration> = (0..messages).map(|_| begun + self.within(spread)).collect();
        times.sort_unstable();
        let mut posted: Vec<Instant> = vec![Instant::ZERO; receivers.len()];
        for at in times {
            let bytes = self.bytes();
            let reply = self.random.pick(&[Reply::Soon, Reply::Lazy]);
            self.deeds
                .push((after(root, at), Deed::Broadcast { group, root: root.0, bytes, reply }));
            for (rank, posted) in receivers.iter().zip(&mut posted) {
                let lateness = self.options.lateness;
                let late = (at + self.within(lateness)).saturating_sub(self.within(lateness));
                *posted = after(*rank, late).max(*posted);
                let capacity = self.capacity(bytes as u64);
                let (rank, root) = (rank.0, root.0);
                let receive = Receive { rank, group, root, capacity };
                match self.options.posting {
                    Posting::Timely => self.deeds.push((*posted, Deed::Receive(receive))),
                    // The group may be opened at that very instant.
                    Posting::OneByOne => {
                        let posted = *posted + Duration::from_nanos(1);
                        self.receives.push((at, posted, receive));
                    }
                }
            }
        }
    }

    fn bytes(&mut self) -> usize {
        let class = self.random.pick(&[0, 64, 2_000, 20_000, 300_000]);
        let bytes = (self.random.within(0, class) as usize).min(self.bytes_left);
        self.bytes_left -= bytes;
        bytes
    }

    /// Capacity of a receive for a message of `bytes`.
    fn capacity(&mut self, bytes: u64) -> u64 {
        if self.random.chance(self.options.misfit_ppm) {
            self.random.within(bytes / 2, bytes * 3 / 2 + 3000)
        } else {
            bytes
        }
    }

    fn disturbances(&mut self) {
        let ranks = u64::from(self.options.config.ranks);
        for tag in 0..self.options.channel_messages {
            let from = self.random.below(ranks);
            let to = (from + self.random.within(1, ranks - 1)) % ranks;
            let bytes = self.random.below(5000) as usize;
            let at = self.at(BEGUN);
            self.deeds.push((at, Deed::Send { from: from as u32, to: to as u32, tag, bytes }));
        }
        for number in 0..self.options.pauses {
            let pause = Pause::draw(self.random, &self.options.config, number);
            let at = self.at(BEGUN);
            self.deeds.push((at, Deed::Pause(pause)));
        }
        for _ in 0..self.options.faults.forgeries {
            let at = self.at(FORGED);
            self.deeds.push((at, Deed::Forge));
        }
    }
}

// ---- the end --------------------------------------------------------------------------------

/// Advances time until everything has begun and has ended. The leaver leaves when it has nothing
/// left to do, while others may still be busy.
fn settle(cluster: &mut Cluster, options: &CastOptions) {
    let is_dead = |cluster: &Cluster, rank: u32| cluster.dead().contains(&Rank(rank));
    if let Some(rank) = options.leaver {
        cluster.run_until((Instant::ZERO + options.healed).max(cluster.now()));
        let patience = cluster.config.patience;
        cluster
            .run_while(patience, |cluster| !is_dead(cluster, rank) && !cluster.has_finished(rank));
        if !is_dead(cluster, rank) {
            cluster.leave(rank);
        }
    }
    cluster.run_until_quiescent();
    cluster.run_until(Instant::ZERO + HEALED);
}

/// Each rank closes the groups of a communicator when it has received everything there, possibly
/// long before it hears that the others have, too.
fn close_where_over(cluster: &mut Cluster, options: &CastOptions) {
    let begun = cluster.now();
    let mut open: BTreeSet<(u32, CommunicatorId)> = BTreeSet::new();
    for group in &options.groups {
        open.extend(group.nodes.ranks().map(|rank| (rank.0, group.id.communicator)));
    }
    while !open.is_empty() {
        open.retain(|(rank, communicator)| {
            let is_dead = cluster.dead().contains(&Rank(*rank));
            let is_over = !cluster.awaits_broadcast(*rank, *communicator);
            if is_over && !is_dead {
                if options.abandons {
                    cluster.abandon_groups(*rank, *communicator);
                } else {
                    cluster.close_groups(*rank, *communicator);
                }
            }
            !is_over && !is_dead
        });
        let waited = cluster.now().since(begun);
        if waited > cluster.config.patience {
            return; // The checkers report what is missing.
        }
        cluster.run_for((waited / 16).max(CLOSE_INTERVAL));
    }
}

fn check(cluster: &mut Cluster, options: &CastOptions) {
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.check(only_the_dead_fail);
    cluster.check(no_living_rank_is_named);
    if cluster.dead().is_empty() {
        check_pools(cluster);
    }
    check_names(cluster, &options.faults, options.leaver);
    if let Some(leaver) = options.leaver {
        check_departure(cluster, leaver);
    }
    cluster.check(only_the_dead_fail);
    // Delayed acknowledgements, and delayed copies of packets.
    cluster.run_for(Duration::from_secs(1));
    cluster.check_quiet_for(Duration::from_secs(2));
    if options.closes && cluster.dead().is_empty() {
        check_closed(cluster, options);
    }
}

/// Groups that all members have closed are forgotten.
fn check_closed(cluster: &Cluster, options: &CastOptions) {
    for CastGroupConfig { id, nodes, .. } in &options.groups {
        for rank in nodes.ranks() {
            let Some(machine) = cluster.endpoint(rank.0).broadcast() else { continue };
            if !machine.is_over(id.communicator) {
                cluster.fail(&format!("rank {rank} keeps {id:?}, though all have closed it"));
            }
        }
    }
}

/// All ranks have heard that a rank has left, unless a farewell was lost.
fn check_departure(cluster: &mut Cluster, leaver: u32) {
    if cluster.network_counters().lost_farewells > 0 {
        return;
    }
    let liveness = cluster.config.liveness;
    cluster.run_for(liveness.timeout + 3 * liveness.interval);
    let dead = cluster.dead();
    for rank in (0..cluster.size()).filter(|rank| !dead.contains(&Rank(*rank))) {
        let heard = cluster.departed_at(rank, leaver).or(cluster.named_at(rank, leaver));
        if dead.contains(&Rank(leaver)) && heard.is_none() {
            cluster.fail(&format!("rank {rank} has not heard that {leaver} has left"));
        }
    }
}

/// Once everything has been received, no buffer is in use and nothing is in progress.
fn check_pools(cluster: &Cluster) {
    for rank in 0..cluster.size() {
        let Some(machine) = cluster.endpoint(rank).broadcast() else { continue };
        let (free, all) = (machine.free_slots(), machine.config().pool_slots);
        if free < all {
            cluster.fail(&format!("rank {rank} keeps {} of {all} buffers", all - free));
        }
        let active = machine.active_streams();
        if active > 0 {
            cluster.fail(&format!("rank {rank} counts {active} streams as active"));
        }
    }
}
