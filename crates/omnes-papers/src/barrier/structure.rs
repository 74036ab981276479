//! Barriers in the NIC: packets, records, buffers and repairs, counted in the rig.

use crate::rig::{LATENCY, Seen, done_at, ms, require, settle, watch};
use crate::{Finding, Target};
use omnes_firmware::barrier::{Barrier as State, Contribution, Table};
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::Runner;
use omnes_sim::{Cluster, drop};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{Kind, Rank, Words};

const ALGORITHMS: [BarrierAlgorithm; 3] = [
    BarrierAlgorithm::Dissemination,
    BarrierAlgorithm::PairwiseExchange,
    BarrierAlgorithm::GatherBroadcast,
];
const RUNNERS: [Runner; 2] = [Runner::Host, Runner::Nic];

/// The finding of a target that this file computes.
pub(super) fn find(target: &Target) -> Option<Finding> {
    let ours = match target.id.as_str() {
        "CB-S01" => packets_per_message(),
        "CB-S02" => records_per_barrier(),
        "CB-S03" => buffers_per_barrier(),
        "CB-S04" => return Some(Finding::seen(target, each_loss_is_repaired())),
        _ => return None,
    };
    Some(match ours {
        Ok(ours) => Finding::judged(target, ours),
        Err(instead) => Finding::seen(target, Err(instead)),
    })
}

fn cluster(ranks: u32) -> Cluster {
    Cluster::builder().ranks(ranks).latency(LATENCY).build()
}

/// Most packets of all kinds that a loss-free barrier takes per message of its algorithm.
fn packets_per_message() -> Result<f64, String> {
    let mut most = 0.0_f64;
    for ranks in [2, 8, 10, 16] {
        for algorithm in ALGORITHMS {
            for runner in RUNNERS {
                let mut cluster = cluster(ranks);
                let group = cluster.open_barriers_of_all(algorithm, runner);
                cluster.enter_all(group);
                settle(&mut cluster)?;
                let kinds = [Kind::Step, Kind::StepNack, Kind::StepAsk, Kind::StepTell];
                let packets: u64 =
                    kinds.iter().map(|kind| cluster.packets_about(*kind, group)).sum();
                let messages = algorithm.messages(ranks).map_err(|error| error.to_string())?;
                most = most.max(packets as f64 / messages as f64);
            }
        }
    }
    Ok(most)
}

/// Records for one barrier in a member's state: those with the barrier's number.
fn records_per_barrier() -> Result<f64, String> {
    let mut most = 0;
    for size in [2, 3, 8, 100, 1024] {
        for algorithm in ALGORITHMS {
            let table = Table::new(algorithm, 0, size, false).map_err(|error| error.to_string())?;
            let before = 6;
            let mut state = State::after(&table, before);
            state.enter(&table, before + 1, Contribution::default());
            for step in 0..table.steps() {
                if let Some(from) = table.receive_from(step).rank() {
                    state.arrive(&table, (before + 1, step), from.0, Words::NONE);
                }
            }
            require(state.done() == before + 1, || format!("{algorithm} of {size} is not done"))?;
            // The only view of the C structure's records.
            let records = format!("{state:?}").matches("Record { epoch: 7").count();
            most = most.max(records);
        }
    }
    Ok(most as f64)
}

/// Most messages that a rank hands to its channel for a barrier; each of them would take a send
/// buffer.
fn buffers_per_barrier() -> Result<f64, String> {
    let mut most = 0;
    for algorithm in ALGORITHMS {
        for runner in RUNNERS {
            let mut cluster = cluster(8);
            let group = cluster.open_barriers_of_all(algorithm, runner);
            cluster.enter_all(group);
            settle(&mut cluster)?;
            let handed = |rank| cluster.counters(rank).data_packets;
            most = most.max((0..8).map(handed).max().unwrap_or_default());
        }
    }
    no_buffer_is_needed()?;
    Ok(most as f64)
}

/// Checks that a barrier completes while messages are queued everywhere because no rank has a
/// buffer left.
fn no_buffer_is_needed() -> Seen {
    let config = ChannelConfig { pool_slots: 1, ..ChannelConfig::default() };
    let mut cluster = Cluster::builder().ranks(8).latency(LATENCY).channel(config).build();
    // The buffers of all ranks are full of messages without receives, and more are queued.
    for to in 0..8 {
        for from in (0..8).filter(|from| *from != to) {
            cluster.send(from, to, 1, 1000);
        }
    }
    cluster.run_for(ms(100));
    let is_full = (0..8).all(|rank| cluster.counters(rank).rejects_sent > 0);
    require(is_full, || "buffers are left".to_owned())?;
    let group = cluster.open_barriers_of_all(BarrierAlgorithm::Dissemination, Runner::Nic);
    let begun = cluster.now();
    let operations = cluster.enter_all(group);
    cluster.run_for(LATENCY * 3);
    for operation in operations {
        let took = done_at(&cluster, operation)?.since(begun);
        require(took <= LATENCY * 3, || format!("takes {took:?}"))?;
    }
    Ok(())
}

/// Drops each message of each algorithm once [CB-R6].
fn each_loss_is_repaired() -> Seen {
    for runner in RUNNERS {
        for algorithm in ALGORITHMS {
            for ranks in [7, 8] {
                for (from, to, step) in messages(algorithm, ranks)? {
                    let name = || format!("{algorithm} {runner:?}: step {step}, {from} to {to}");
                    one_loss(&mut cluster(ranks), (algorithm, runner), (from, to, step))
                        .map_err(|instead| format!("{}: {instead}", name()))?;
                }
            }
        }
    }
    Ok(())
}

/// Sender, receiver and step of all messages.
fn messages(algorithm: BarrierAlgorithm, ranks: u32) -> Result<Vec<(u32, u32, u32)>, String> {
    let mut all = Vec::new();
    for from in 0..ranks {
        let schedule = algorithm.schedule(Rank(from), ranks).map_err(|error| error.to_string())?;
        let sends = (0..)
            .zip(schedule)
            .filter_map(|(number, step)| Some((from, step.send_to.rank()?.0, number)));
        all.extend(sends);
    }
    Ok(all)
}

fn one_loss(
    cluster: &mut Cluster,
    (algorithm, runner): (BarrierAlgorithm, Runner),
    (from, to, step): (u32, u32, u32),
) -> Seen {
    let group = cluster.open_barriers_of_all(algorithm, runner);
    let loss = cluster.rule(drop().kind(Kind::Step).from(from).to(to).step(step).times(1));
    let asked = watch(cluster, |rule| rule.kind(Kind::StepNack).from(to).step(step));
    let rightly = watch(cluster, |rule| rule.kind(Kind::StepNack).from(to).to(from).step(step));
    cluster.enter_all(group);
    settle(cluster)?;
    require(loss.hits() == 1, || "nothing was lost".to_owned())?;
    require(asked.hits() >= 1, || "the receiver does not ask".to_owned())?;
    require(asked.hits() == rightly.hits(), || "the receiver asks others".to_owned())?;
    let messages = algorithm.messages(cluster.size()).map_err(|error| error.to_string())?;
    let packets = cluster.step_packets(group);
    require(packets == messages + 1, || format!("{packets} packets for {messages} messages"))
}
