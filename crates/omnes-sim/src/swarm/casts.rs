//! Broadcasts of several roots in several groups, at times drawn from the seed.

use super::cast_options::CastOptions;
use super::options::HEALED;
use super::{bring_faults, check_names};
use crate::checks::{
    delivered_once_in_order, no_living_rank_is_named, nothing_is_missing, only_the_dead_fail,
};
use crate::cluster::{COMMUNICATOR, Cluster, Send};
use crate::ledger::{CastStream, Stream};
use crate::payload::content;
use crate::random::Random;
use crate::rule::drop;
use crate::stranger::Forgery;
use omnes_proto::broadcast::{GroupConfig, GroupId};
use omnes_proto::channel::{Pattern, Reply};
use omnes_wire::{Instant, Rank};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Broadcasts begin before then.
const BEGUN: Duration = Duration::from_millis(900);
/// Streams that share the messages of a run.
const STREAMS_MAX: u64 = 4;

/// Something that is done at a time.
enum Deed {
    Open { rank: u32, group: GroupConfig },
    Broadcast { group: GroupId, root: u32, bytes: usize, reply: Reply },
    Receive { rank: u32, group: GroupId, root: u32, capacity: u64 },
    Send { from: u32, to: u32, tag: u32, bytes: usize },
    Distract { rank: u32, time: Duration },
    Forge,
}

impl Deed {
    /// Who does it; `None` for a stranger.
    fn rank(&self) -> Option<u32> {
        match self {
            Self::Open { rank, .. } | Self::Receive { rank, .. } | Self::Distract { rank, .. } => {
                Some(*rank)
            }
            Self::Broadcast { root, .. } => Some(*root),
            Self::Send { from, .. } => Some(*from),
            Self::Forge => None,
        }
    }
}

/// Does everything, waits until all of it has ended, and asks the checkers. Virtual time from the
/// end of phase 1 to the end of all operations.
pub(super) fn run(cluster: &mut Cluster, options: &CastOptions) -> Duration {
    let mut faults = bring_faults(cluster, &options.faults, options.healed);
    let healed = Instant::ZERO + options.healed;
    let lost = drop().at_uplink().multicast().ppm(options.uplink_loss_ppm).until(healed);
    faults.push(cluster.rule(lost));
    let mut random = Random::named(options.config.seed, "casts", 0);
    for (at, deed) in draw_deeds(&mut random, options) {
        cluster.run_until(at.max(cluster.now()));
        let is_dead = |rank: u32| cluster.dead().contains(&Rank(rank));
        if !deed.rank().is_some_and(is_dead) {
            perform(cluster, deed, &mut random);
        }
    }
    settle(cluster, options);
    let settled_after = match (options.faults.crash, options.leaver) {
        (None, None) => cluster.now().since(Instant::ZERO + HEALED),
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
        Deed::Receive { rank, group, root, capacity } => {
            cluster.receive_broadcast(rank, group, root, capacity);
        }
        Deed::Send { from, to, tag, bytes } => send(cluster, (from, to), tag, bytes),
        Deed::Distract { rank, time } => cluster.distract(rank, time),
        Deed::Forge if random.chance(500_000) => super::forge(cluster, random),
        Deed::Forge => {
            cluster.forge_to_group(random.pick(&Forgery::ALL));
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

// ---- what is done ---------------------------------------------------------------------------

fn draw_deeds(random: &mut Random, options: &CastOptions) -> Vec<(Instant, Deed)> {
    let mut deeds = Vec::new();
    let opened = draw_openings(random, options, &mut deeds);
    let streams = random.within(1, STREAMS_MAX);
    // The last message may begin so long after the first.
    let spread = random.pick(&[Duration::from_micros(1), Duration::from_millis(5), BEGUN]);
    let mut bytes_left = options.bytes_max;
    for stream in 0..streams {
        let messages = (u64::from(options.messages) + stream) / streams;
        draw_stream(random, options, (&opened, spread), messages, (&mut bytes_left, &mut deeds));
    }
    let ranks = u64::from(options.config.ranks);
    let at =
        |random: &mut Random, most_ms: u64| Instant::from_ns(random.below(most_ms * 1_000_000));
    for tag in 0..options.channel_messages {
        let from = random.below(ranks);
        let to = (from + random.within(1, ranks - 1)) % ranks;
        let bytes = random.below(5000) as usize;
        deeds.push((at(random, 900), Deed::Send { from: from as u32, to: to as u32, tag, bytes }));
    }
    for _ in 0..options.distractions {
        let time = Duration::from_micros(random.within(1, 300_000));
        let rank = random.below(ranks) as u32;
        deeds.push((at(random, 900), Deed::Distract { rank, time }));
    }
    for _ in 0..options.faults.forgeries {
        deeds.push((at(random, 1100), Deed::Forge));
    }
    deeds.sort_by_key(|(at, _)| *at);
    deeds
}

type Openings = BTreeMap<(GroupId, Rank), Instant>;

fn draw_openings(
    random: &mut Random,
    options: &CastOptions,
    deeds: &mut Vec<(Instant, Deed)>,
) -> Openings {
    let mut opened = Openings::new();
    for group in &options.groups {
        for rank in group.nodes.iter().flatten() {
            let at = Instant::from_ns(random.below(options.opening.as_nanos() as u64));
            opened.insert((group.id, *rank), at);
            deeds.push((at, Deed::Open { rank: rank.0, group: group.clone() }));
        }
    }
    opened
}

/// Broadcasts of some root to some group: the n-th receive at each rank is for the n-th message.
fn draw_stream(
    random: &mut Random,
    options: &CastOptions,
    (opened, spread): (&Openings, Duration),
    messages: u64,
    (bytes_left, deeds): (&mut usize, &mut Vec<(Instant, Deed)>),
) {
    let group = &options.groups[random.below(options.groups.len() as u64) as usize];
    let members: Vec<Rank> = group.nodes.iter().flatten().copied().collect();
    let root = random.pick(&members);
    let receivers = CastStream { group: Rc::new(group.clone()), root }.receivers();
    let group = group.id;
    let is_streamed = deeds.iter().any(|(_, deed)| {
        matches!(deed, Deed::Broadcast { group: other, root: of, .. }
            if (*other, *of) == (group, root.0))
    });
    if is_streamed {
        return; // Receives of two lists would mix.
    }
    let begun = Duration::from_nanos(random.below((BEGUN - spread).as_nanos() as u64 + 1));
    let within = |random: &mut Random, most: Duration| {
        Duration::from_nanos(random.below(most.as_nanos() as u64 + 1))
    };
    let mut times: Vec<Duration> = (0..messages).map(|_| begun + within(random, spread)).collect();
    times.sort_unstable();
    let after = |rank: Rank, at: Duration| (Instant::ZERO + at).max(opened[&(group, rank)]);
    let mut posted: Vec<Instant> = vec![Instant::ZERO; receivers.len()];
    for at in times {
        let bytes = draw_bytes(random, *bytes_left as u64) as usize;
        *bytes_left -= bytes;
        let reply = random.pick(&[Reply::Soon, Reply::Lazy]);
        deeds.push((after(root, at), Deed::Broadcast { group, root: root.0, bytes, reply }));
        for (rank, posted) in receivers.iter().zip(&mut posted) {
            let most = options.lateness;
            let late = (at + within(random, most)).saturating_sub(within(random, most));
            *posted = after(*rank, late).max(*posted);
            let capacity = match random.chance(options.misfit_ppm) {
                true => random.within(bytes as u64 / 2, bytes as u64 * 3 / 2 + 3000),
                false => bytes as u64,
            };
            let (rank, root) = (rank.0, root.0);
            deeds.push((*posted, Deed::Receive { rank, group, root, capacity }));
        }
    }
}

fn draw_bytes(random: &mut Random, most: u64) -> u64 {
    let class = random.pick(&[0, 64, 2_000, 20_000, 300_000]);
    random.within(0, class).min(most)
}

// ---- the end --------------------------------------------------------------------------------

/// Lets time pass until everything has begun and has ended. The leaver leaves when it has nothing
/// left to do, while others may still have.
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

fn check(cluster: &mut Cluster, options: &CastOptions) {
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.check(only_the_dead_fail);
    cluster.check(no_living_rank_is_named);
    if cluster.dead().is_empty() {
        check_pools(cluster);
    }
    check_names(cluster, &options.faults);
    if let Some(leaver) = options.leaver {
        check_departure(cluster, leaver);
    }
    cluster.check(only_the_dead_fail);
    // Answers that were held back, and copies of packets that come late.
    cluster.run_for(Duration::from_secs(1));
    cluster.check_quiet_for(Duration::from_secs(2));
}

/// Everybody has heard that a rank has left, unless a socket buffer was full: farewells are not
/// repeated.
fn check_departure(cluster: &mut Cluster, leaver: u32) {
    if cluster.network_counters().overruns > 0 {
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

/// Once everything has been received, no buffer is in use.
fn check_pools(cluster: &Cluster) {
    for rank in 0..cluster.size() {
        let Some(machine) = cluster.endpoint(rank).broadcasts() else { continue };
        let (free, all) = (machine.free_slots(), machine.config().pool_slots);
        if free < all {
            cluster.fail(&format!("rank {rank} keeps {} of {all} buffers", all - free));
        }
    }
}
