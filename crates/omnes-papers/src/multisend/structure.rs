//! Multi-send: trees of the postal model, credits, and open streams.

use crate::rig::{LATENCY, Seen, group_of, is_done, ms, require, settle, us};
use crate::{Finding, Target, Tolerance};
use omnes_proto::broadcast::BroadcastConfig;
use omnes_proto::channel::Reply;
use omnes_sim::{COMMUNICATOR, Cluster, Guard, Send, Stream, content, drop};
use omnes_topo::{Lambda, TopoError, Tree, pipeline, postal};
use omnes_wire::{Kind, Rank};

/// The finding of a target that this file computes.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "MS-F21" => from(target, worst_excess()),
        "MS-F22" => from(target, root_fan_out(4, 2)),
        "MS-F23" => Finding::seen(target, flat_from_size_less_two()),
        "MS-F24" => Finding::seen(target, lambda_of_one_is_binomial()),
        "MS-S01" => Finding::seen(target, one_without_credit_blocks_all())
            .noting("the broadcast machine, the same over multicast, as here, and multi-send"),
        "MS-S04" => open_stream(target),
        _ => return None,
    })
}

fn from(target: &Target, ours: Result<f64, TopoError>) -> Finding {
    match ours {
        Ok(ours) => Finding::judged(target, ours),
        Err(error) => Finding::seen(target, Err(error.to_string())),
    }
}

/// Largest delay, in time units, of the greedy tree relative to the recurrence.
fn worst_excess() -> Result<f64, TopoError> {
    let mut worst = 0.0_f64;
    for size in 2..=64 {
        for units in 1..=size as u16 {
            let lambda = Lambda::whole(units);
            let built = pipeline::time(Tree::Postal { lambda }, size, 1, lambda)?;
            let reaches = |unit: &u64| postal::reach(unit * postal::UNIT, lambda) >= size.into();
            let least = (0..).find(reaches).unwrap_or(u64::MAX);
            worst = worst.max((built as f64 / postal::UNIT as f64 - least as f64).abs());
        }
    }
    Ok(worst)
}

fn root_fan_out(size: u32, lambda: u16) -> Result<f64, TopoError> {
    let tree = Tree::Postal { lambda: Lambda::whole(lambda) };
    Ok(tree.children(Rank(0), Rank(0), size)?.len() as f64)
}

/// Checks that the tree on n ranks is flat from lambda n - 2 on, and not below.
fn flat_from_size_less_two() -> Seen {
    for size in 3..=32_u32 {
        for lambda in 1..=40_u16 {
            let fan_out = root_fan_out(size, lambda).map_err(|error| error.to_string())?;
            let is_flat = fan_out == f64::from(size - 1);
            require(is_flat == (u32::from(lambda) >= size - 2), || {
                format!("{size} ranks, lambda {lambda}: {fan_out} children")
            })?;
        }
    }
    Ok(())
}

/// Checks that with lambda 1 the ranks have as many children as in the binomial tree.
fn lambda_of_one_is_binomial() -> Seen {
    let fan_outs = |tree: Tree, size: u32| -> Result<Vec<usize>, TopoError> {
        let of = |rank| Ok(tree.children(Rank(rank), Rank(0), size)?.len());
        let mut all = (0..size).map(of).collect::<Result<Vec<_>, TopoError>>()?;
        all.sort_unstable();
        Ok(all)
    };
    for power in 0..=9 {
        let size = 1 << power;
        let ours = fan_outs(Tree::Postal { lambda: Lambda::ONE }, size);
        let binomial = fan_outs(Tree::Binomial, size);
        require(ours.is_ok() && ours == binomial, || format!("{size} ranks: {ours:?}"))?;
    }
    Ok(())
}

/// Checks that no receiver gets a packet while one of them has no credit [MS-R12].
fn one_without_credit_blocks_all() -> Seen {
    // Credit for a packet, until receivers report; rank 3 cannot.
    let (mut cluster, silence) = two_packets_to_a_silent_rank(4096);
    let casts = cluster.packets_by_multicast(Kind::Cast);
    require(casts == 1, || format!("{casts} of 2 packets go out"))?;
    let to_others: u64 = [1, 2, 4].map(|rank| cluster.packets_to(Kind::Cast, rank)).iter().sum();
    require(to_others == 0, || format!("{to_others} packets to those with credit"))?;
    silence.heal();
    settle(&mut cluster)?;
    // The missing credit was the cause: with more credit both packets are sent.
    let (cluster, _silence) = two_packets_to_a_silent_rank(8192);
    let casts = cluster.packets_by_multicast(Kind::Cast);
    require(casts == 2, || format!("{casts} of 2 packets go out with credit for them"))
}

fn two_packets_to_a_silent_rank(initial_credit_bytes: u32) -> (Cluster, Guard) {
    let config = BroadcastConfig { initial_credit_bytes, ..BroadcastConfig::default() };
    let (mut cluster, group) = group_of(5, "window", config);
    let silence = cluster.rule(drop().from(3));
    for _ in 0..2 {
        for rank in 1..5 {
            cluster.receive_broadcast(rank, group, 0, 8);
        }
        cluster.broadcast_with(group, 0, 8, Reply::Lazy);
    }
    cluster.run_for(ms(50));
    (cluster, silence)
}

/// Behaviour of a rank while its own message is half sent.
const DELIVERS: &str = "deliver while a stream is open";

/// Checks whether a rank accepts messages of others while its own message is half sent.
fn open_stream(target: &Target) -> Finding {
    let mut cluster = Cluster::builder().ranks(3).latency(LATENCY).build();
    let stream =
        Stream { from: Rank(0), to: Rank(1), channel: 0, communicator: COMMUNICATOR, tag: 1 };
    let send = Send { stream, content: content(1, 9000), available: 3000, reply: Reply::Soon };
    let open = cluster.post_send(send);
    let receive = cluster.receive(0, 2, 7, 1000);
    cluster.send(2, 0, 7, 1000);
    cluster.run_for(us(500));
    if !is_done(&cluster, receive) && !is_done(&cluster, open) {
        return Finding::seen(target, Ok(()));
    }
    let ends = "end the stream before all of it is there";
    let seen = if is_done(&cluster, open) { ends } else { DELIVERS };
    Finding::judged(target, seen).explained(
        (Tolerance::Exact, DELIVERS),
        "streams take no lock here: the unsafe form is the only one, and cannot lock up, as \
         passing on never waits for a receiver",
    )
}
