//! What one seed stands for.

use crate::engine::random::Random;
use crate::rig::builder::{ClusterConfig, Printing};
use crate::rig::network::{NetworkConfig, Order};
use crate::rig::node::{Draining, Looking, Previews, Runs};
use omnes_proto::LivenessConfig;
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::CollectiveConfig;
use std::time::Duration;

/// Shares of packets that suffer, in parts per million.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Lost.
    pub loss_ppm: u32,
    /// Doubled.
    pub duplicate_ppm: u32,
    /// With flipped bits.
    pub corrupt_ppm: u32,
    /// Held up for a random time.
    pub reorder_ppm: u32,
    /// Longest such time.
    pub reorder: Duration,
    /// Ranks `0..cut` cannot talk to the others for a while: when and how long.
    pub partition: Option<(u32, Duration, Duration)>,
    /// A rank that dies, and when.
    pub crash: Option<(u32, Duration)>,
    /// It does not die, but is stopped until then, when all others have given it up.
    pub thaws: Option<Duration>,
    /// A rank that is stopped, when, and for how long: the others may give it up, but all or none.
    pub doubt: Option<(u32, Duration, Duration)>,
    /// Packets of strangers.
    pub forgeries: u32,
}

impl Faults {
    /// Collectives alone are over within milliseconds, so the network is cut in two early; nobody
    /// dies in them.
    fn suit_collectives(&mut self) {
        self.crash = None;
        if let Some((_, from, _)) = &mut self.partition {
            *from /= 200;
        }
    }

    /// Of jobs that nobody leaves: some ranks that die are stopped instead, longer than anybody
    /// waits for them, and some others for about as long.
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

    /// As often where packets go by themselves; rarer in most jobs where they go in runs, which
    /// every fault ends.
    pub(super) fn spare(&mut self, runs: Runs, seed: u64) {
        if runs == Runs::On && Random::named(seed, "faults", 0).chance(750_000) {
            let shares = [&mut self.loss_ppm, &mut self.duplicate_ppm, &mut self.corrupt_ppm];
            shares.into_iter().chain([&mut self.reorder_ppm]).for_each(|share| *share /= 50);
        }
    }
}

/// What the ranks do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Messages of all sorts between all ranks.
    Mix,
    /// Barriers of each algorithm.
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
    /// What the ranks do.
    pub work: Work,
    /// Messages of the mix.
    pub messages: u32,
    /// Bytes of all messages of the mix together, at most.
    pub bytes_max: usize,
    /// Times that some rank looks away, or is stopped.
    pub pauses: u32,
    /// Times that a channel is stopped and resumed.
    pub stops: u32,
    /// A rank that leaves in good order.
    pub leaver: Option<Leaver>,
}

/// A rank that leaves in good order.
#[derive(Clone, Copy, Debug)]
pub struct Leaver {
    /// Which one.
    pub rank: u32,
    /// When it begins to leave while others go on, and how long it waits at most for the end of
    /// what it has begun; `None` if it leaves when all is over.
    pub amid: Option<(Duration, Duration)>,
}

/// Phase 1, with faults, ends then; phase 2 has a healed network.
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

/// When a rank leaves while others go on, and how long it waits.
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

/// Time for a packet in which others come in, so that there are runs.
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
