//! Options that a seed of the broadcast swarm stands for.

use super::options::{Faults, busy_time, draw_draining, draw_network, draw_runs};
use crate::engine::random::Random;
use crate::rig::builder::{ClusterConfig, Printing};
use crate::rig::node::{Looking, Previews};
use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::{
    AckRule, Asking, BroadcastConfig, CastGroupConfig, Collection, GapReports, GroupId, Hold,
    Policy,
};
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::CollectiveConfig;
use omnes_wire::{CommunicatorId, Rank};
use std::time::Duration;

/// When a rank posts its receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posting {
    /// At the drawn times.
    Timely,
    /// Not before the previous receive is complete, in the same order at all ranks: data that have
    /// not been asked for yet must not block the current receive.
    OneByOne,
}

/// Everything that a run of broadcasts draws from its seed before it begins.
#[derive(Clone, Debug)]
pub struct CastOptions {
    /// The rig.
    pub config: ClusterConfig,
    /// Faults of phase 1; they affect each copy of a multicast separately.
    pub faults: Faults,
    /// End of phase 1.
    pub healed: Duration,
    /// Start of the interval in which broadcasts begin, unless their group opens later.
    pub begun: Duration,
    /// Length of that interval.
    pub spread: Duration,
    /// Multicasts lost for all receivers, in parts per million.
    pub uplink_loss_ppm: u32,
    /// The groups.
    pub groups: Vec<CastGroupConfig>,
    /// Number of broadcasts in all groups together.
    pub messages: u32,
    /// Most bytes of all broadcasts together.
    pub bytes_max: usize,
    /// Receives that are larger or smaller than their message, in parts per million.
    pub misfit_ppm: u32,
    /// Longest delay of a receive.
    pub lateness: Duration,
    /// When receives are posted.
    pub posting: Posting,
    /// Time at which the last member opens a group.
    pub opening: Duration,
    /// Number of additional messages on channels.
    pub channel_messages: u32,
    /// Number of times that a rank ignores the network, or is stopped.
    pub pauses: u32,
    /// A rank that leaves in good order after it has taken part in everything. Farewells are not
    /// repeated, as the end of the connection to rank 0 carries the same information: a rank that
    /// misses a farewell in phase 1 takes the leaver for dead.
    pub leaver: Option<u32>,
    /// The rank leaves soon after that, not in phase 2.
    pub leaves_early: bool,
    /// Ranks close groups as soon as they have received everything there.
    pub closes: bool,
    /// Ranks then abandon the groups, as if a collective had been given up there.
    pub abandons: bool,
    /// Period in which multicast no longer reaches some or all ranks, also in phase 2.
    pub mute: Option<Mute>,
}

/// A loss of multicast in the middle of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mute {
    /// Start of the loss.
    pub from: Duration,
    /// End of the loss, if multicast returns.
    pub until: Option<Duration>,
    /// Ranks that multicast does not reach; empty for all.
    pub ranks: Vec<u32>,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A random time of at most `most`.
fn share_of(random: &mut Random, most: Duration) -> Duration {
    Duration::from_nanos(random.below(most.as_nanos() as u64 + 1))
}

impl CastOptions {
    /// Draws the options of a seed.
    pub fn draw(seed: u64, trace: Printing) -> Self {
        let random = &mut Random::named(seed, "cast options", 0);
        let runs = draw_runs(seed);
        let nodes = draw_nodes(random);
        let ranks = nodes.iter().map(Vec::len).sum::<usize>() as u32;
        let count = random.pick(&[1, 1, 1, 2, 3, 4]);
        let groups: Vec<CastGroupConfig> =
            (0..count).map(|number| draw_group(random, &nodes, number)).collect();
        let mut faults = draw_faults(random, ranks);
        faults.spare(runs, seed);
        let leaver = random
            .chance(250_000)
            .then(|| random.below(u64::from(ranks)) as u32)
            .filter(|rank| faults.crash.is_none_or(|(victim, _)| victim != *rank));
        if leaver.is_none() {
            faults.draw_long_stop(seed, ranks);
        }
        let leaves_early = leaver.is_some() && Random::named(seed, "departure", 0).chance(500_000);
        let healed = match leaver {
            Some(_) if leaves_early => ms(1200),
            Some(_) => ms(random.below(600)),
            None => ms(random.pick(&[300, 1200, 1200])),
        };
        let begun = share_of(random, healed.min(ms(900)));
        let spread = random.pick(&[us(1), ms(5), ms(900) - begun]);
        if let Some((_, at)) = &mut faults.crash
            && random.chance(600_000)
        {
            let most = us(random.pick(&[100, 1000, 10_000]));
            *at = begun + share_of(random, most);
        }
        let peer_timeout = BroadcastConfig::default().peer_timeout;
        Self {
            config: ClusterConfig {
                seed,
                ranks,
                channel: ChannelConfig { pool_slots: 64, ..ChannelConfig::default() },
                broadcast: Some(draw_broadcast(random)),
                collective: CollectiveConfig::default(),
                looking: Looking::Always,
                liveness: LivenessConfig::default(),
                network: draw_network(random),
                packet_time: us(random.pick(&[0, 0, 0, 1, 5])).max(busy_time(runs)),
                previews: random.pick(&[Previews::Compared, Previews::Unused]),
                draining: draw_draining(random),
                runs,
                patience: Duration::from_secs(120),
                trace,
            },
            faults,
            healed,
            begun,
            spread,
            uplink_loss_ppm: random.pick(&[0, 0, 10_000, 100_000]),
            groups,
            messages: random.pick(&[1, 3, 10, 40]),
            bytes_max: random.pick(&[3000, 30_000, 300_000]),
            misfit_ppm: random.pick(&[0, 0, 200_000]),
            lateness: random.pick(&[us(0), us(200), ms(20), ms(400)]),
            posting: random.pick(&[Posting::Timely, Posting::Timely, Posting::OneByOne]),
            opening: random.pick(&[us(0), us(0), us(0), ms(300), ms(300), 2 * peer_timeout]),
            channel_messages: random.pick(&[0, 0, 5]),
            pauses: random.below(6) as u32,
            leaver,
            leaves_early,
            closes: random.chance(400_000),
            abandons: random.chance(300_000),
            mute: random.chance(150_000).then(|| draw_mute(random, begun, ranks)),
        }
    }
}

/// Ranks by node, numbered consecutively.
pub(super) fn draw_nodes(random: &mut Random) -> Vec<Vec<Rank>> {
    let nodes = if random.chance(40_000) { 40 } else { random.within(2, 12) };
    let most = random.pick(&[1, 1, 1, 2, 4]);
    let mut next = 0;
    let node = |random: &mut Random, next: &mut u32| {
        let first = *next;
        *next += random.within(1, most) as u32;
        (first..*next).map(Rank).collect()
    };
    (0..nodes).map(|_| node(random, &mut next)).collect()
}

/// Selects all ranks or some; any rank of a node may lead it.
fn draw_group(random: &mut Random, nodes: &[Vec<Rank>], number: u8) -> CastGroupConfig {
    let share = random.pick(&[1_000_000, 1_000_000, 700_000]);
    let mut members: Vec<Vec<Rank>> = Vec::new();
    for node in nodes {
        let mut chosen: Vec<Rank> = node.iter().copied().filter(|_| random.chance(share)).collect();
        if !chosen.is_empty() {
            let leader = random.below(chosen.len() as u64) as usize;
            chosen.swap(0, leader);
            members.push(chosen);
        }
    }
    if members.is_empty() {
        members.push(nodes[0].clone());
    }
    let id = GroupId { communicator: CommunicatorId(random.within(1, 3) as u32), number };
    CastGroupConfig { id, nodes: members.into(), policy: draw_policy(random) }
}

fn draw_policy(random: &mut Random) -> Policy {
    let designs = [Policy::BASIC, Policy::WINDOW, Policy::NACK, Policy::COMBINED];
    let every = random.pick(&[1, 2, 3, 8, 10, 32]);
    let mut policy = random.pick(&designs);
    if random.chance(500_000) {
        policy = Policy {
            hold: random.pick(&[Hold::Basic, Hold::Window]),
            acks: random.pick(&[AckRule::Every, AckRule::EveryNth(every), AckRule::Skewed(every)]),
            gaps: random.pick(&[GapReports::Never, GapReports::Prompt]),
            asking: random.pick(&[Asking::IfNeeded, Asking::WhenIdle]),
            ..policy
        };
    }
    let (radix, count) = (random.within(2, 5) as u32, random.within(2, 6) as u32);
    let collections = [Collection::Root, Collection::Tree { radix }, Collection::CoRoots { count }];
    let collection = random.pick(&collections);
    Policy { collection, ..policy }
}

fn draw_mute(random: &mut Random, begun: Duration, ranks: u32) -> Mute {
    let from = begun + share_of(random, ms(20));
    let until = random.chance(500_000).then(|| from + share_of(random, ms(1000)));
    let share = random.pick(&[0, 200_000, 800_000]);
    let ranks = (0..ranks).filter(|_| random.chance(share)).collect();
    Mute { from, until, ranks }
}

fn draw_broadcast(random: &mut Random) -> BroadcastConfig {
    let defaults = BroadcastConfig::default();
    BroadcastConfig {
        payload_bytes: random.pick(&[256, 700, 1432, 1432, 8908]),
        window_packets: random.pick(&[1, 2, 7, 64, defaults.window_packets]),
        window_messages: random.pick(&[1, 4, defaults.window_messages]),
        pool_slots: random.pick(&[16, 16, 17, 30, 100, defaults.pool_slots]),
        receive_truesize_bytes: random.pick(&[4096, 20_000, 200_000, 3 << 20]),
        initial_credit_bytes: random.pick(&[4096, 16_384, 512 << 10]),
        ack_delay: us(random.pick(&[0, 50, 500, 2000])),
        timeout_min: us(random.pick(&[1, 40, 200, 2000])),
        nack_delay: us(random.pick(&[0, 50, 500])),
        multicast_repair_ranks: random.pick(&[0, 1, 2, 4, 100]),
        peer_timeout: defaults.peer_timeout,
    }
}

fn draw_faults(random: &mut Random, ranks: u32) -> Faults {
    let share = |random: &mut Random, most: u64| {
        if random.chance(400_000) { 0 } else { random.within(0, most) as u32 }
    };
    let partition = random.chance(150_000).then(|| {
        let cut = random.within(1, u64::from(ranks) - 1) as u32;
        (cut, ms(random.below(500)), ms(random.within(1, 300)))
    });
    let crash = random
        .chance(250_000)
        .then(|| (random.below(u64::from(ranks)) as u32, ms(random.below(1000))));
    Faults {
        loss_ppm: share(random, 300_000),
        duplicate_ppm: share(random, 100_000),
        corrupt_ppm: share(random, 50_000),
        reorder_ppm: share(random, 300_000),
        reorder: us(random.pick(&[20, 200, 3000])),
        partition,
        crash,
        thaws: None,
        doubt: None,
        forgeries: random.pick(&[0, 0, 20, 100]),
    }
}
