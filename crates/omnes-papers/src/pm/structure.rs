//! PM: order, shared buffers, and stopping a channel until it is stable, in the rig.

use super::lanai::Constants;
use crate::rig::{LATENCY, Seen, ms, require, settle, us};
use crate::{Finding, Target, Tolerance};
use omnes_proto::channel::{ChannelConfig, Pattern, Reply};
use omnes_sim::swarm::{self, Machine};
use omnes_sim::{
    COMMUNICATOR, Cluster, Guard, Printing, Random, Send, Stream, content, drop, duplicate,
    no_message_is_in_flight, reorder,
};
use omnes_wire::Rank;

const RANKS: u32 = 5;
/// Number of swarm seeds per finding; nightly runs take thousands.
const SWARM_SEEDS: u64 = 20;

/// The finding of a target that this file computes.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "PM-S01" => Finding::seen(target, order_survives_shortage())
            .noting(format!("{SWARM_SEEDS} seeds of the swarm, and ten with few buffers")),
        "PM-S02" => Finding::seen(target, buffers_are_shared_by_all_senders())
            .noting("and no buffer of their own"),
        "PM-S03" => own_channels(target),
        "PM-S04" => Finding::seen(target, stable_means_nothing_in_flight()),
        "PM-P01" => Finding::judged(target, lengths(&Constants::built_in())),
        "PM-P02" => Finding::judged(target, machine(&Constants::built_in())).explained(
            (Tolerance::Exact, [80.0, 128.0, 5.0]),
            "no link of the emulation is ever blocked for 50 ms, so it has no reset",
        ),
        _ => return None,
    })
}

/// Shortest and longest message, in bytes: the shortest one in a queue is a record less its
/// descriptor.
fn lengths(Constants { host, buffers, .. }: &Constants) -> [f64; 2] {
    const WORD_BYTES: u64 = 4;
    let shortest = buffers.send_record_bytes - host.descriptor_words * WORD_BYTES;
    [shortest, buffers.message_bytes].map(|bytes| bytes as f64)
}

/// Rate of a link in MB/s, SRAM in KB, and speed of the NIC in MIPS, as emulated.
fn machine(Constants { link, nic, .. }: &Constants) -> [f64; 3] {
    let sram = nic.sram_bytes as f64 / 1024.0;
    [1.0 / link.byte.as_us(), sram, 1.0 / nic.instruction.as_us()]
}

/// Checks that nothing is lost, duplicated or out of order while receivers run out of buffers.
fn order_survives_shortage() -> Seen {
    for seed in 0..SWARM_SEEDS {
        swarm::run_seed(Machine::Channel, seed, Printing::Last)
            .map_err(|report| format!("seed {seed}: {report}"))?;
    }
    let mut rejects = 0;
    for seed in 0..10 {
        let config = ChannelConfig { pool_slots: 4, ..ChannelConfig::default() };
        let builder = Cluster::builder().ranks(RANKS).latency(LATENCY).channel(config);
        let mut cluster = builder.seed(seed).build();
        let mut random = Random::named(seed, "stalls", 0);
        for round in 0..20 {
            for from in 1..RANKS {
                cluster.send(from, 0, 1, random.within(0, 3000) as usize);
            }
            if round % 3 == 0 {
                cluster.distract(0, us(random.within(0, 2000)));
            }
            cluster.run_for(us(random.within(0, 300)));
        }
        cluster.run_for(ms(20));
        for from in 1..RANKS {
            for _ in 0..20 {
                cluster.receive(0, from, 1, 3000);
            }
        }
        settle(&mut cluster).map_err(|instead| format!("seed {seed}: {instead}"))?;
        rejects += cluster.counters(0).rejects_sent;
    }
    require(rejects > 0, || "no receiver ran out of buffers".to_owned())
}

/// Checks that there is an entry per sender, and that as many messages are kept for one sender as
/// for many.
fn buffers_are_shared_by_all_senders() -> Seen {
    let slots = 12;
    for senders in [1, 2, 3, 6, 12] {
        let config = ChannelConfig { pool_slots: slots, ..ChannelConfig::default() };
        let ranks = senders + 1;
        let mut cluster = Cluster::builder().ranks(ranks).latency(LATENCY).channel(config).build();
        for from in 1..ranks {
            for _ in 0..slots {
                cluster.send(from, 0, 1, 100);
            }
        }
        cluster.run_for(ms(100));
        let entries = cluster.endpoint(0).channels()[0].peers_known();
        require(entries == senders as usize, || format!("{entries} entries, {senders} senders"))?;
        let kept = cluster.counters(0).unexpected;
        require(kept == u64::from(slots), || {
            format!("{kept} messages of {senders} senders in {slots} buffers")
        })?;
        for from in 1..ranks {
            for _ in 0..slots {
                cluster.receive(0, from, 1, 100);
            }
        }
        settle(&mut cluster)?;
    }
    Ok(())
}

fn faults(cluster: &mut Cluster) -> [Guard; 3] {
    [
        cluster.rule(drop().ppm(50_000)),
        cluster.rule(duplicate().ppm(50_000)),
        cluster.rule(reorder(ms(1)).ppm(50_000)),
    ]
}

/// All ranks send to all others on a channel, and post their receives immediately.
fn traffic(cluster: &mut Cluster, channel: usize, identity: u64) {
    for from in 0..RANKS {
        for to in (0..RANKS).filter(|to| *to != from) {
            let (from, to) = (Rank(from), Rank(to));
            let stream = Stream { from, to, channel, communicator: COMMUNICATOR, tag: 1 };
            let content = content(identity << 8 | u64::from(from.0), 8000);
            let pattern = Pattern { communicator: COMMUNICATOR, source: Some(from), tag: Some(1) };
            cluster.post_receive(to.0, channel, pattern, 8000);
            cluster.post_send(Send { stream, content, available: 8000, reply: Reply::Lazy });
        }
    }
}

/// Steps C1 to C4 at all ranks; C5 holds when all of them have finished.
fn stop_all(cluster: &mut Cluster, channel: usize) -> Seen {
    for rank in 0..RANKS {
        cluster.stop(rank, channel);
    }
    let is_unstable =
        |cluster: &Cluster| (0..RANKS).any(|rank| cluster.stable_at(rank, channel).is_none());
    require(cluster.run_while(ms(10_000), is_unstable), || "some rank never is stable".to_owned())
}

fn resume_all(cluster: &mut Cluster, channel: usize) {
    for rank in 0..RANKS {
        cluster.resume(rank, channel);
    }
}

/// How contexts share the network.
const OWN_CHANNELS: &str = "no loss or duplicate; nothing is shared that could be mixed up";

fn own_channels(target: &Target) -> Finding {
    if let Err(instead) = switches_mix_nothing_up() {
        return Finding::seen(target, Err(instead));
    }
    Finding::judged(target, OWN_CHANNELS).explained(
        (Tolerance::Exact, OWN_CHANNELS),
        "each context has a channel of its own, so that a switch stops one and resumes the other \
         (C1 to C5, C8), and none is saved or restored (C6, C7)",
    )
}

/// Switches between two contexts at random times, under load and loss.
fn switches_mix_nothing_up() -> Seen {
    for seed in 0..10 {
        let mut cluster = Cluster::builder().ranks(RANKS).latency(LATENCY).seed(seed).build();
        let mut random = Random::named(seed, "switches", 0);
        let guards = faults(&mut cluster);
        stop_all(&mut cluster, 1)?;
        for turn in 0..8_u64 {
            let (running, other) = ((turn % 2) as usize, (turn % 2 + 1) as usize % 2);
            traffic(&mut cluster, running, seed << 32 | turn);
            cluster.run_for(us(random.within(0, 1500)));
            stop_all(&mut cluster, running)?;
            resume_all(&mut cluster, other);
        }
        resume_all(&mut cluster, 1);
        guards.into_iter().for_each(Guard::heal);
        settle(&mut cluster).map_err(|instead| format!("seed {seed}: {instead}"))?;
    }
    Ok(())
}

/// Checks that once a channel is stable, no message is in flight, and none is sent.
fn stable_means_nothing_in_flight() -> Seen {
    let sent = |cluster: &Cluster| -> u64 {
        let of = |rank| cluster.counters(rank).data_packets + cluster.counters(rank).retransmits;
        (0..RANKS).map(of).sum()
    };
    for seed in 0..10 {
        let mut cluster = Cluster::builder().ranks(RANKS).latency(LATENCY).seed(seed).build();
        // Only faults that leave no copies in flight.
        let loss = cluster.rule(drop().ppm(50_000));
        traffic(&mut cluster, 0, seed);
        cluster.run_for(us(30 * seed));
        stop_all(&mut cluster, 0)?;
        no_message_is_in_flight(&cluster)?;
        let before = sent(&cluster);
        cluster.run_for(ms(200));
        let after = sent(&cluster);
        require(before == after, || format!("{} packets after it", after - before))?;
        resume_all(&mut cluster, 0);
        loss.heal();
        settle(&mut cluster)?;
    }
    Ok(())
}
