//! Options that a seed stands for.

use crate::engine::random::Random;
use crate::rig::builder::{ClusterConfig, Printing};
use crate::rig::network::{NetworkConfig, Order};
use crate::rig::node::{Draining, Looking, Previews, Runs};
use omnes_proto::LivenessConfig;
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::CollectiveConfig;
use std::time::Duration;

/// Faults of the network, and of a rank; shares of packets are in parts per million.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Lost packets.
    pub loss_ppm: u32,
    /// Duplicated packets.
    pub duplicate_ppm: u32,
    /// Packets with flipped bits.
    pub corrupt_ppm: u32,
    /// Packets delayed by a random time.
    pub reorder_ppm: u32,
    /// Longest such delay.
    pub reorder: Duration,
    /// Ranks `0..cut` cannot reach the others for a while: `cut`, start and duration.
    pub partition: Option<(u32, Duration, Duration)>,
    /// A rank that dies, and when.
    pub crash: Option<(u32, Duration)>,
    /// The rank does not die, but is stopped until this time, when all others have given it up.
    pub thaws: Option<Duration>,
    /// A rank that is stopped, when, and for how long: the others may give it up, but all or none.
    pub doubt: Option<(u32, Duration, Duration)>,
    /// Number of packets from strangers.
    pub forgeries: u32,
}

impl Faults {
    /// Collectives alone end within milliseconds, so the network is partitioned early; no rank dies
    /// in them.
    fn suit_collectives(&mut self) {
        self.crash = None;
        if let Some((_, from, _)) = &mut self.partition {
            *from /= 200;
        }
    }

    /// In jobs that no rank leaves, some ranks that would die are stopped instead, for longer than
    /// any rank waits for them, and some other ranks for about as long.
    pub(super) fn draw_long_stop(&mut self, seed: u64, ranks: u32) {
        let random = &mut Random::named(seed, "long stop", 0);
        let LivenessConfig { timeout, interval, .. } = LivenessConfig::default();
        if self.crash.is_some() {
            let thaws = HEALED + timeout + 4 * interval + ms(random.below(3000));
            self.thaws = random.chance(400_000).then_some(thaws);
        } else if random.chance(100_000) {
            let time = timeout - 3 * interval + 6 * ms(random.below(interval.as_millis() as u64));
            let rank = random.below(u64::from(ranks)) as u32;
            self.doubt = Some((rank, ms(random.below(900)), time));
        }
    }

    /// Leaves the shares as they are for single packets; in most jobs with runs, which every fault
    /// ends, divides them by 50.
    pub(super) fn spare(&mut self, runs: Runs, seed: u64) {
        if runs == Runs::On && Random::named(seed, "faults", 0).chance(750_000) {
            let shares = [&mut self.loss_ppm, &mut self.duplicate_ppm, &mut self.corrupt_ppm];
            shares.into_iter().chain([&mut self.reorder_ppm]).for_each(|share| *share /= 50);
        }
    }
}

/// Activity of the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Messages of all kinds between all ranks.
    Mix,
    /// Barriers with each algorithm.
    Barriers,
    /// Broadcasts along each tree.
    Broadcasts,
}

/// Everything that a run draws from its seed before it begins.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rig.
    pub config: ClusterConfig,
    /// The faults of phase 1.
    pub faults: Faults,
    /// Activity of the ranks.
    pub work: Work,
    /// Number of messages of the mix.
    pub messages: u32,
    /// Most bytes of all messages of the mix together.
    pub bytes_max: usize,
    /// Number of times that a rank ignores the network, or is stopped.
    pub pauses: u32,
    /// Number of times that a channel is stopped and resumed.
    pub stops: u32,
    /// A rank that leaves in good order.
    pub leaver: Option<Leaver>,
}

/// A rank that leaves in good order.
#[derive(Clone, Copy, Debug)]
pub struct Leaver {
    /// The rank.
    pub rank: u32,
    /// When the rank begins to leave while others continue, and how long it waits at most for its
    /// operations to end; `None` if it leaves at the end of the run.
    pub amid: Option<(Duration, Duration)>,
}

/// End of phase 1, the phase with faults; in phase 2 the network is healed.
pub(super) const HEALED: Duration = Duration::from_millis(1200);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

impl Options {
    /// Draws the options of a seed.
    pub fn draw(seed: u64, trace: Printing) -> Self {
        let random = &mut Random::named(seed, "options", 0);
        let (ranks, runs) = (random.within(2, 12) as u32, draw_runs(seed));
        let work =
            random.pick(&[Work::Mix, Work::Mix, Work::Mix, Work::Barriers, Work::Broadcasts]);
        let mut faults = draw_faults(random, ranks);
        faults.spare(runs, seed);
        let is_mix = work == Work::Mix;
        if !is_mix {
            faults.suit_collectives();
        }
        let config = ClusterConfig {
            seed,
            ranks,
            channel: draw_channel(random),
            broadcast: None,
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
        };
        let messages = random.within(1, 50) as u32;
        let bytes_max = random.pick(&[20_000, 200_000, 700_000]);
        let pauses = random.below(6) as u32;
        let stops = random.pick(&[0, 0, 1, 2]) * u32::from(is_mix);
        let leaver = random.chance(300_000).then(|| random.below(u64::from(ranks)) as u32);
        let leaver = leaver.map(|rank| {
            let dies = faults.crash.is_some_and(|(victim, _)| victim == rank);
            Leaver { rank, amid: draw_departure(seed).filter(|_| is_mix && !dies) }
        });
        if leaver.is_none() && is_mix {
            faults.draw_long_stop(seed, ranks);
        }
        Self { config, faults, work, messages, bytes_max, pauses, stops, leaver }
    }
}

/// When a rank leaves while others continue, and how long it waits.
fn draw_departure(seed: u64) -> Option<(Duration, Duration)> {
    let random = &mut Random::named(seed, "departure", 0);
    let patience = ms(random.pick(&[0, 10, 1000, 1000]));
    random.chance(600_000).then(|| (ms(random.below(1100)), patience))
}

fn draw_channel(random: &mut Random) -> ChannelConfig {
    let defaults = ChannelConfig::default();
    let eager_bytes = random.pick(&[0, 100, 3000, 20_000, defaults.eager_bytes]);
    ChannelConfig {
        payload_bytes: random.pick(&[256, 700, 1432, 1432, 8908]),
        eager_bytes,
        eager_head_bytes: random.within(0, u64::from(eager_bytes)) as u32,
        pool_slots: random.pick(&[1, 2, 5, 16, 100, defaults.pool_slots]),
        window_packets: random.pick(&[1, 2, 7, 64, defaults.window_packets]),
        receive_truesize_bytes: random.pick(&[4096, 20_000, 200_000, 3 << 20]),
        initial_credit_bytes: random.pick(&[4096, 16_384, 512 << 10]),
        ack_packets: random.pick(&[1, 2, 16, 64]),
        ack_delay: us(random.pick(&[0, 50, 500, 2000])),
        timeout_min: us(random.pick(&[1, 40, 200, 2000])),
        nack_delay: us(random.pick(&[0, 50, 500])),
        ask_min: us(random.pick(&[1, 40, 200, 2000])),
        peer_timeout: Duration::from_secs(4),
    }
}

pub(super) fn draw_network(random: &mut Random) -> NetworkConfig {
    NetworkConfig {
        latency: us(random.pick(&[1, 10, 25, 100, 1000])),
        jitter: us(random.pick(&[0, 0, 5, 50, 500])),
        order: random.pick(&[Order::Kept, Order::Kept, Order::Free]),
        receiver_bps: random.pick(&[None, None, Some(1_000_000_000), Some(10_000_000_000)]),
        receive_queue_bytes: random.pick(&[30_000, 212_992, 4 << 20]),
    }
}

pub(super) fn draw_draining(random: &mut Random) -> Draining {
    let a_few = |packets_max| Draining::EventsFirst { packets_max };
    random.pick(&[Draining::PacketsFirst, Draining::PacketsFirst, a_few(1), a_few(45), a_few(1000)])
}

pub(super) fn draw_runs(seed: u64) -> Runs {
    Random::named(seed, "runs", 0).pick(&[Runs::Off, Runs::On])
}

/// Time to handle a packet during which others arrive, so that runs form.
pub(super) fn busy_time(runs: Runs) -> Duration {
    us(if runs == Runs::On { 5 } else { 0 })
}

fn draw_faults(random: &mut Random, ranks: u32) -> Faults {
    let share = |random: &mut Random, most: u64| {
        if random.chance(400_000) { 0 } else { random.within(0, most) as u32 }
    };
    let partition = random.chance(250_000).then(|| {
        let cut = random.within(1, u64::from(ranks) - 1) as u32;
        (cut, ms(random.below(700)), ms(random.within(1, 450)))
    });
    let crash = random
        .chance(200_000)
        .then(|| (random.below(u64::from(ranks)) as u32, ms(random.below(1000))));
    Faults {
        loss_ppm: share(random, 200_000),
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
