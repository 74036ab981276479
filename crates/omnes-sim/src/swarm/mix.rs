//! Messages of all kinds between all ranks, at times drawn from the seed.

use super::options::{HEALED, Leaver, Options};
use super::{Pause, wait_for_verdict};
use crate::engine::random::Random;
use crate::rig::cluster::{Cluster, Send};
use crate::rig::ledger::{Operation, State, Stream};
use crate::rig::payload::content;
use omnes_proto::channel::{Pattern, Reply};
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::collections::BTreeMap;
use std::time::Duration;

/// Receives in this communicator name their source.
const NAMED: CommunicatorId = CommunicatorId(1);
/// Receives in this communicator accept any source with the given tag.
const ANY_SOURCE: CommunicatorId = CommunicatorId(2);
/// Receives in this communicator accept any source and any tag.
const ANY: CommunicatorId = CommunicatorId(3);
/// Longest message in a communicator whose receives cannot know the length, in bytes.
const ANY_BYTES_MAX: u64 = 20_000;

/// A timed action.
enum Deed {
    Send(Send),
    Extend {
        rank: u32,
        channel: usize,
        message: usize,
        available: u64,
    },
    Cut {
        rank: u32,
        channel: usize,
        message: usize,
    },
    Receive {
        receive: Receive,
        message: usize,
    },
    /// A probe waits for the message; then the message is received.
    Probe {
        receive: Receive,
    },
    /// A receive is cancelled, if possible, and posted again.
    Repost {
        receive: Receive,
        message: usize,
    },
    Notice {
        from: u32,
        to: u32,
        tag: u32,
    },
    Pause(Pause),
    Stop {
        channel: usize,
        only: Option<u32>,
    },
    Leave {
        rank: u32,
        patience: Duration,
    },
    Forge,
}

#[derive(Clone, Copy)]
struct Receive {
    rank: u32,
    channel: usize,
    pattern: Pattern,
    capacity: u64,
}

/// Runs all actions, then waits until all operations have ended.
pub(super) fn run(cluster: &mut Cluster, options: &Options) {
    let mut random = Random::named(options.config.seed, "mix", 0);
    let mut sends: Vec<Operation> = Vec::new();
    let mut receives: BTreeMap<usize, Operation> = BTreeMap::new();
    limit_flights(cluster);
    for (at, deed) in draw_deeds(&mut random, options) {
        cluster.run_until(at.max(cluster.now()));
        let is_dead = |cluster: &Cluster, rank: u32| cluster.dead().contains(&Rank(rank));
        match deed {
            Deed::Send(send) if is_dead(cluster, send.stream.from.0) => {
                sends.push(Operation(usize::MAX));
            }
            Deed::Send(send) => sends.push(cluster.post_send(send)),
            Deed::Extend { rank, channel, message, available } => {
                if !is_dead(cluster, rank) {
                    cluster.extend(rank, channel, sends[message], available);
                }
            }
            Deed::Cut { rank, channel, message } => {
                if !is_dead(cluster, rank) {
                    cluster.cut(rank, channel, sends[message]);
                }
            }
            Deed::Receive { receive, message } => {
                if !is_dead(cluster, receive.rank) {
                    receives.insert(message, post(cluster, receive));
                }
            }
            Deed::Probe { receive: Receive { rank, channel, pattern, .. } } => {
                if !is_dead(cluster, rank) {
                    cluster.receive_once_found(rank, channel, pattern);
                }
            }
            Deed::Repost { receive, message } => {
                let posted = receives.get(&message).copied();
                let Receive { rank, channel, .. } = receive;
                let is_alive = !is_dead(cluster, rank);
                if posted.is_some_and(|it| is_alive && cluster.cancel(rank, channel, it)) {
                    post(cluster, receive);
                }
            }
            Deed::Notice { from, to, tag } => {
                if !is_dead(cluster, from) {
                    cluster.give_notice(from, to, tag);
                }
            }
            Deed::Pause(pause) => {
                if !is_dead(cluster, pause.rank) {
                    pause.begin(cluster);
                }
            }
            Deed::Stop { channel, only } => switch(cluster, channel, only),
            Deed::Leave { rank, patience } => leave(cluster, rank, patience),
            Deed::Forge => super::forge(cluster, &mut random),
        }
    }
    cluster.run_until(Instant::ZERO + HEALED);
    wait_for_verdict(cluster, &options.faults);
    settle(cluster, options);
}

/// Connects some ranks by rings in shared memory, which hold little.
fn limit_flights(cluster: &mut Cluster) {
    let mut random = Random::named(cluster.config.seed, "rings", 0);
    let share = random.pick(&[0, 0, 300_000, 1_000_000]);
    for from in 0..cluster.size() {
        for to in (0..cluster.size()).filter(|to| *to != from) {
            if random.chance(share) {
                cluster.limit_flight(from, to, random.pick(&[1, 20_000, 200_000]));
            }
        }
    }
}

fn post(cluster: &mut Cluster, receive: Receive) -> Operation {
    let Receive { rank, channel, pattern, capacity } = receive;
    cluster.post_receive(rank, channel, pattern, capacity)
}

// ---- actions --------------------------------------------------------------------------------

fn draw_deeds(random: &mut Random, options: &Options) -> Vec<(Instant, Deed)> {
    let mut deeds = Vec::new();
    let at =
        |random: &mut Random, most_ms: u64| Instant::from_ns(random.below(most_ms * 1_000_000));
    let mut bytes_left = options.bytes_max;
    // Actions on one message keep their order, as extensions refer to the message by its number.
    let mut times: Vec<Instant> = (0..options.messages).map(|_| at(random, 900)).collect();
    times.sort_unstable();
    for (message, sent_at) in times.into_iter().enumerate() {
        draw_message(random, options, (message, sent_at), &mut bytes_left, &mut deeds);
    }
    let ranks = u64::from(options.config.ranks);
    for number in 0..options.pauses {
        let pause = Pause::draw(random, &options.config, number);
        deeds.push((at(random, 900), Deed::Pause(pause)));
    }
    for _ in 0..options.stops {
        let only = random.chance(300_000).then(|| random.below(ranks) as u32);
        let channel = random.below(2) as usize;
        deeds.push((at(random, 1000), Deed::Stop { channel, only }));
    }
    for _ in 0..options.faults.forgeries {
        deeds.push((at(random, 1100), Deed::Forge));
    }
    let notices = &mut Random::named(options.config.seed, "notices", 0);
    for tag in 0..notices.pick(&[0, 0, 1, 10]) {
        let from = notices.below(ranks);
        let to = ((from + notices.within(1, ranks - 1)) % ranks) as u32;
        deeds.push((at(notices, 900), Deed::Notice { from: from as u32, to, tag }));
    }
    if let Some(Leaver { rank, amid: Some((at, patience)) }) = options.leaver {
        deeds.push((Instant::ZERO + at, Deed::Leave { rank, patience }));
    }
    deeds.sort_by_key(|(at, _)| *at);
    deeds
}

fn draw_bytes(random: &mut Random, most: u64) -> u64 {
    let class = random.pick(&[0, 64, 2_000, 20_000, 300_000]);
    random.within(0, class).min(most)
}

fn draw_message(
    random: &mut Random,
    options: &Options,
    (message, sent_at): (usize, Instant),
    bytes_left: &mut usize,
    deeds: &mut Vec<(Instant, Deed)>,
) {
    let mut whims = Random::named(options.config.seed, "whims", message as u64);
    let ranks = u64::from(options.config.ranks);
    let from = random.below(ranks) as u32;
    let to = ((u64::from(from) + random.within(1, ranks - 1)) % ranks) as u32;
    let communicator = random.pick(&[NAMED, NAMED, ANY_SOURCE, ANY]);
    let bytes_max = if communicator == NAMED { u64::MAX } else { ANY_BYTES_MAX };
    let bytes = draw_bytes(random, bytes_max.min(*bytes_left as u64));
    *bytes_left -= bytes as usize;
    let channel = random.pick(&[0, 0, 1]);
    let tag = random.below(3) as u32;
    let stream = Stream { from: Rank(from), to: Rank(to), channel, communicator, tag };
    let identity = options.config.seed << 16 ^ message as u64;
    let content = content(identity, bytes as usize);
    let reply = random.pick(&[Reply::Soon, Reply::Lazy]);
    let is_partial = random.chance(200_000);
    let available = if is_partial { random.within(0, bytes) } else { bytes };
    deeds.push((sent_at, Deed::Send(Send { stream, content, available, reply })));
    if is_partial {
        let more = random.within(available, bytes);
        let is_cut = whims.chance(300_000);
        for (wait_us, available) in [(300, more), (40_000, bytes)] {
            let at = sent_at + Duration::from_micros(random.within(1, wait_us));
            let at = if available == bytes { at + Duration::from_micros(300) } else { at };
            deeds.push((
                at,
                if is_cut && available == bytes {
                    Deed::Cut { rank: from, channel, message }
                } else {
                    Deed::Extend { rank: from, channel, message, available }
                },
            ));
        }
    }
    let pattern = Pattern {
        communicator,
        source: (communicator == NAMED).then_some(Rank(from)),
        tag: (communicator != ANY).then_some(tag),
    };
    let capacity = match communicator {
        NAMED if random.chance(50_000) => random.within(0, bytes),
        // Another message of the stream may arrive first.
        NAMED => bytes,
        _ => ANY_BYTES_MAX,
    };
    let posted_at = Instant::from_ns(random.below(1_150_000_000));
    let receive = Receive { rank: to, channel, pattern, capacity };
    let reposted = whims.chance(100_000).then(|| whims.within(1, 2_000));
    if whims.chance(150_000) {
        deeds.push((posted_at, Deed::Probe { receive }));
        return;
    }
    deeds.push((posted_at, Deed::Receive { receive, message }));
    if let Some(us) = reposted {
        let at = posted_at + Duration::from_micros(us);
        deeds.push((at, Deed::Repost { receive, message }));
    }
}

/// Context switch [PM-R21]: stops a channel, waits until it is stable, checks that it is quiet, and
/// resumes it.
fn switch(cluster: &mut Cluster, channel: usize, only: Option<u32>) {
    let dead = cluster.dead();
    let ranks: Vec<u32> = (0..cluster.size())
        .filter(|rank| !dead.contains(&Rank(*rank)) && only.is_none_or(|only| only == *rank))
        .collect();
    for rank in &ranks {
        cluster.stop(*rank, channel);
    }
    let patience = Duration::from_secs(20);
    let is_unstable = |cluster: &Cluster, rank: &u32| {
        cluster.stable_at(*rank, channel).is_none() && !cluster.dead().contains(&Rank(*rank))
    };
    if !cluster.run_while(patience, |cluster| ranks.iter().any(|rank| is_unstable(cluster, rank))) {
        cluster.fail(&format!("channel {channel} does not become stable"));
    }
    let sent = |cluster: &Cluster| {
        let of = |rank: &u32| {
            let counters = cluster.endpoint(*rank).channels()[channel].counters();
            counters.data_packets + counters.retransmits
        };
        ranks.iter().map(of).sum::<u64>()
    };
    let before = sent(cluster);
    cluster.run_for(Duration::from_millis(30));
    if sent(cluster) != before {
        cluster.fail(&format!("channel {channel} sends although it is stable"));
    }
    for rank in ranks {
        if !cluster.dead().contains(&Rank(rank)) {
            cluster.resume(rank, channel);
        }
    }
}

/// A rank leaves as drivers do: when its operations have ended, or its patience is exhausted.
fn leave(cluster: &mut Cluster, rank: u32, patience: Duration) {
    let is_dead = |cluster: &Cluster| cluster.dead().contains(&Rank(rank));
    cluster.run_while(patience, |cluster| !is_dead(cluster) && !cluster.has_finished(rank));
    if !is_dead(cluster) {
        cluster.leave(rank);
    }
}

// ---- the end --------------------------------------------------------------------------------

/// Waits until everything has ended. Receives from any source that failed with the dead rank are
/// posted again, and cancelled if no message is left for them.
fn settle(cluster: &mut Cluster, options: &Options) {
    if !cluster.dead().is_empty() || options.faults.crash.is_some() {
        let liveness = options.config.liveness;
        cluster.run_for(liveness.timeout + 3 * liveness.interval);
        for (receive, rank, channel, pattern, capacity) in cluster.ledger().receives_from_any() {
            let is_alive = !cluster.dead().contains(&Rank(rank));
            if is_alive && matches!(cluster.state(receive), State::Failed(_)) {
                cluster.post_receive(rank, channel, pattern, capacity);
            }
        }
    }
    let until = cluster.now() + options.config.patience;
    while cluster.now() < until && crate::rig::checks::nothing_is_missing(cluster).is_err() {
        cluster.run_for(Duration::from_millis(10));
    }
    if !cluster.dead().is_empty() {
        for (receive, rank, channel, ..) in cluster.ledger().receives_from_any() {
            if cluster.state(receive) == State::Pending {
                cluster.cancel(rank, channel, receive);
            }
        }
    }
    cluster.run_until_quiescent();
}
