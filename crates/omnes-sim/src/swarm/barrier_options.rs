//! Options that a seed of the barrier swarm stands for.

use super::cast_options::draw_nodes;
use super::options::{Faults, draw_draining, draw_network};
use crate::engine::random::Random;
use crate::rig::builder::{ClusterConfig, Printing};
use crate::rig::node::{Looking, Previews, Runs};
use omnes_proto::LivenessConfig;
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::{BarrierGroupConfig, CollectiveConfig, Runner};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Rank};
use std::time::Duration;

/// First communicator of the groups.
pub(super) const FIRST_GROUP: u32 = 1;

/// Selects one of many possible drawings: with this one, seed 24, whose trace is kept, has every
/// kind of fault.
const DRAWING: u64 = 23;

/// When a member that has left its last barrier of a group forgets the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// Not before the end of the run.
    Never,
    /// Immediately, while other members may still miss a message of the last barrier.
    AtOnce,
}

/// Everything that a run of barriers draws from its seed before it begins.
#[derive(Clone, Debug)]
pub struct BarrierOptions {
    /// The rig.
    pub config: ClusterConfig,
    /// Faults of phase 1; they affect each copy of a multicast separately.
    pub faults: Faults,
    /// End of phase 1.
    pub healed: Duration,
    /// Start of the interval in which barriers begin, unless their group opens later.
    pub begun: Duration,
    /// Length of that interval.
    pub spread: Duration,
    /// Multicasts lost for all receivers, in parts per million.
    pub uplink_loss_ppm: u32,
    /// Packets lost between a rank and the NIC of its node, in parts per million.
    pub doorstep_loss_ppm: u32,
    /// Packets delayed between a rank and the NIC of its node, in parts per million.
    pub doorstep_delay_ppm: u32,
    /// The groups, each with its own communicator.
    pub groups: Vec<BarrierGroupConfig>,
    /// Number of barriers of each group.
    pub barriers: u32,
    /// Most barriers of a group that a member enters before the first of them is done.
    pub outstanding: u32,
    /// Longest delay of a member before it enters a barrier.
    pub lateness: Duration,
    /// Time at which the last member opens a group.
    pub opening: Duration,
    /// When members forget groups.
    pub closing: Closing,
    /// Number of times that a rank asks which members have entered.
    pub asks: u32,
    /// Number of additional messages on channels.
    pub channel_messages: u32,
    /// Number of times that a rank ignores the network, or is stopped.
    pub pauses: u32,
    /// A rank that leaves in good order after it has taken part in everything.
    pub leaver: Option<u32>,
    /// The rank leaves soon after that, not in phase 2.
    pub leaves_early: bool,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

impl BarrierOptions {
    /// Draws the options of a seed.
    pub fn draw(seed: u64, trace: Printing) -> Self {
        let random = &mut Random::named(seed, "barrier options", DRAWING);
        let nodes = draw_nodes(random);
        let ranks = nodes.iter().map(Vec::len).sum::<usize>() as u32;
        let count = random.pick(&[1, 1, 1, 1, 2, 2, 3, 10]);
        let groups = (0..count).map(|number| draw_group(random, &nodes, number)).collect();
        let mut faults = draw_faults(random, ranks);
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
        let begun = us(random.below(healed.min(ms(800)).as_micros() as u64 + 1));
        let spread = random.pick(&[us(1), us(500), ms(5), ms(90)]);
        if let Some((_, at)) = &mut faults.crash
            && random.chance(700_000)
        {
            let most = random.pick(&[100, 1000, 10_000]) + spread.as_micros() as u64;
            *at = begun + us(random.below(most));
        }
        Self {
            config: draw_config(random, (seed, ranks), trace),
            faults,
            healed,
            begun,
            spread,
            uplink_loss_ppm: random.pick(&[0, 0, 10_000, 100_000]),
            doorstep_loss_ppm: random.pick(&[0, 0, 0, 200_000]),
            doorstep_delay_ppm: random.pick(&[0, 0, 0, 200_000]),
            groups,
            barriers: random.pick(&[1, 3, 10, 40]),
            outstanding: random.pick(&[1, 1, 1, 2, 3, 40]),
            lateness: random.pick(&[us(0), us(20), us(200), ms(20), ms(400)]),
            opening: random.pick(&[us(0), us(0), us(100), ms(300)]),
            closing: random.pick(&[Closing::Never, Closing::AtOnce]),
            asks: random.pick(&[0, 0, 3, 20]),
            channel_messages: random.pick(&[0, 0, 5]),
            pauses: random.below(6) as u32,
            leaver,
            leaves_early,
        }
    }
}

fn draw_config(random: &mut Random, (seed, ranks): (u64, u32), trace: Printing) -> ClusterConfig {
    let defaults = CollectiveConfig::default();
    ClusterConfig {
        seed,
        ranks,
        channel: ChannelConfig { pool_slots: 64, ..ChannelConfig::default() },
        broadcast: None,
        collective: CollectiveConfig {
            nack_after_min: us(random.pick(&[1, 50, 150, 150, 2000])),
            nack_after_max: us(random.pick(&[2_000, 10_000, 10_000, 50_000])),
            ask_interval: random.pick(&[us(500), defaults.ask_interval]),
        },
        looking: random.pick(&[Looking::Always, Looking::WhenWoken]),
        liveness: LivenessConfig::default(),
        network: draw_network(random),
        packet_time: us(random.pick(&[0, 0, 0, 1, 5])),
        previews: Previews::Unused,
        draining: draw_draining(random),
        runs: Runs::Off,
        patience: Duration::from_secs(120),
        trace,
    }
}

/// Selects all ranks or some; any rank of a node may lead it, and the order of the nodes is random.
fn draw_group(random: &mut Random, nodes: &[Vec<Rank>], number: u32) -> BarrierGroupConfig {
    let share = random.pick(&[1_000_000, 1_000_000, 700_000]);
    let mut members: Vec<Vec<Rank>> = Vec::new();
    for node in nodes {
        let mut chosen: Vec<Rank> = node.iter().copied().filter(|_| random.chance(share)).collect();
        if !chosen.is_empty() {
            let leader = random.below(chosen.len() as u64) as usize;
            chosen.swap(0, leader);
            let place = if random.chance(500_000) {
                members.len()
            } else {
                random.below(members.len() as u64 + 1) as usize
            };
            members.insert(place, chosen);
        }
    }
    if members.is_empty() {
        members.push(nodes[0].clone());
    }
    BarrierGroupConfig {
        communicator: CommunicatorId(FIRST_GROUP + number),
        nodes: members.into(),
        algorithm: random.pick(&BarrierAlgorithm::ALL),
        runner: random.pick(&[Runner::Host, Runner::Nic]),
        is_multicast: random.chance(500_000),
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
