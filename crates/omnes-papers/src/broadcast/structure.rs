//! Broadcast over multicast: acknowledgements, repairs, windows and credits, counted in the rig.

use crate::rig::{LATENCY, Seen, done_at, group_of, is_done, ms, require, settle, us};
use crate::{Finding, Target, Tolerance};
use omnes_proto::broadcast::{BroadcastConfig, GroupId};
use omnes_proto::channel::Reply;
use omnes_proto::packet::Destination;
use omnes_sim::{Cluster, Rule, delay, drop, duplicate};
use omnes_topo::CoRoots;
use omnes_wire::{Instant, Kind, Rank};

/// Payload of the paper's packets.
const PAYLOAD_BYTES: u16 = 1836;
/// M of the acknowledgement rules.
const EVERY: u32 = 10;
/// Credit for one full packet of the default configuration, with some slack.
const PACKET_CREDIT_BYTES: u32 = 4096;

/// The finding of a target that this file computes.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "BC-P02" => judged(target, fragments())
            .noting("packets of the broadcast machine, whose first also carries an envelope"),
        "BC-S01" => Finding::seen(target, skewed_acknowledgements()),
        "BC-S02" => judged(target, acknowledgements_per_packet()),
        "BC-S03" => Finding::seen(target, old_is_dropped_and_early_is_queued()),
        "BC-S04" => full_window(target),
        "BC-S05" => judged(target, most_repaired_per_loss()),
        "BC-S06" => judged(target, copies_until_done()),
        "BC-S07" => credits(target),
        "BC-S08" => Finding::seen(target, window_holds_more_than_m())
            .noting("windows of fewer messages are enlarged to 2 M when the group is opened"),
        _ => return None,
    })
}

fn judged<V: Into<crate::Value>>(target: &Target, ours: Result<V, String>) -> Finding {
    match ours {
        Ok(ours) => Finding::judged(target, ours),
        Err(instead) => Finding::seen(target, Err(instead)),
    }
}

/// Posts a broadcast of rank 0 without waiting for it.
fn post(cluster: &mut Cluster, group: GroupId, bytes: usize) {
    for rank in 1..cluster.size() {
        cluster.receive_broadcast(rank, group, 0, bytes as u64);
    }
    cluster.broadcast_with(group, 0, bytes, Reply::Lazy);
}

/// Numbers of packets of messages of 2048, 8192 and 32,768 bytes.
fn fragments() -> Result<Vec<f64>, String> {
    let count = |bytes| {
        let config = BroadcastConfig { payload_bytes: PAYLOAD_BYTES, ..BroadcastConfig::default() };
        let (mut cluster, group) = group_of(3, "window", config);
        cluster.broadcast_to_all(group, 0, bytes);
        settle(&mut cluster)?;
        Ok(cluster.packets_by_multicast(Kind::Cast) as f64)
    };
    [2048, 8192, 32_768].into_iter().map(count).collect()
}

/// Acknowledgements that the root receives for each of `broadcasts` broadcasts, one every 50 us,
/// while no timer causes any.
fn acknowledgements(
    cluster: &mut Cluster,
    group: GroupId,
    broadcasts: u32,
) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    for _ in 0..broadcasts {
        let before = cluster.packets_to(Kind::CastAck, 0);
        post(cluster, group, 8);
        cluster.run_for(us(50));
        all.push(cluster.packets_to(Kind::CastAck, 0) - before);
    }
    let casts = cluster.packets_by_multicast(Kind::Cast);
    require(casts == u64::from(broadcasts), || format!("{casts} of {broadcasts} go out"))?;
    Ok(all)
}

fn patient() -> BroadcastConfig {
    BroadcastConfig { ack_delay: ms(20), pool_slots: 64, ..BroadcastConfig::default() }
}

/// Checks that with 1024 nodes and M = 10 each broadcast has 102 or 103 acknowledgements, and that
/// each node acknowledges one in 10.
fn skewed_acknowledgements() -> Seen {
    let ranks = 1024;
    let (mut cluster, group) = group_of(ranks, &format!("skewed={EVERY}"), patient());
    let acks = acknowledgements(&mut cluster, group, 2 * EVERY)?;
    require(acks.iter().all(|acks| [102, 103].contains(acks)), || format!("{acks:?}"))?;
    for of_ten in acks.chunks(EVERY as usize) {
        let sum: u64 = of_ten.iter().sum();
        require(sum == u64::from(ranks) - 1, || format!("{sum} in {EVERY} broadcasts"))?;
    }
    for rank in 1..ranks {
        let own = cluster.packets(Kind::CastAck, rank, Destination::Rank(Rank(0)));
        require(own == 2, || format!("{own} of rank {rank} in {} broadcasts", 2 * EVERY))?;
    }
    Ok(())
}

/// Acknowledgements per receiver and broadcast in a long burst.
fn acknowledgements_per_packet() -> Result<f64, String> {
    let (ranks, broadcasts) = (16, 200);
    let (mut cluster, group) = group_of(ranks, &format!("ack-every={EVERY}"), patient());
    let acks: u64 = acknowledgements(&mut cluster, group, broadcasts)?.iter().sum();
    Ok(acks as f64 / f64::from((ranks - 1) * broadcasts))
}

/// Checks that old packets are dropped, that packets already queued are dropped, and that early
/// packets are queued: they are delivered when the gap closes, without being retransmitted.
fn old_is_dropped_and_early_is_queued() -> Seen {
    let late = us(100);
    let (mut cluster, group) = group_of(4, "window", patient());
    let cast = |rule: Rule| rule.kind(Kind::Cast).to(2);
    let _late = cluster.rule(cast(delay(late)).seq(2));
    let _old = cluster.rule(cast(duplicate()).seq(1));
    let _queued = cluster.rule(cast(duplicate()).seq(4));
    let mut receives = Vec::new();
    for _ in 0..6 {
        for rank in 1..4 {
            let receive = cluster.receive_broadcast(rank, group, 0, 8);
            receives.extend((rank == 2).then_some(receive));
        }
        cluster.broadcast_with(group, 0, 8, Reply::Lazy);
    }
    settle(&mut cluster)?;
    let prompt = Instant::ZERO + LATENCY;
    for (seq, receive) in receives.into_iter().enumerate() {
        let expected = if seq < 2 { prompt } else { prompt + late };
        let at = done_at(&cluster, receive)?;
        require(at == expected, || format!("message {seq} at {at:?}, not {expected:?}"))?;
    }
    let duplicates = cluster.broadcast_counters(2).duplicates;
    require(duplicates == 2, || format!("{duplicates} of 2 duplicates are dropped"))?;
    let again = cluster.packets_by_unicast(Kind::Cast);
    require(again == 0, || format!("{again} packets go again"))
}

/// The root's behaviour when its window is full.
const WAITS_AND_ASKS: &str = "waits for the acknowledgements that are due, and asks by its timer";

/// The root's behaviour when its window of two is full and a receiver's acknowledgements are lost.
fn full_window(target: &Target) -> Finding {
    let config = BroadcastConfig { window_packets: 2, ..BroadcastConfig::default() };
    let (mut cluster, group) = group_of(4, "window", config);
    let silence = cluster.rule(drop().kind(Kind::CastAck).from(3));
    for _ in 0..3 {
        post(&mut cluster, group, 8);
    }
    // Longer than a round trip, shorter than any timeout.
    cluster.run_for(us(150));
    let unicasts = cluster.packets_to(Kind::Cast, 3);
    let casts = cluster.packets_by_multicast(Kind::Cast);
    match (unicasts, casts) {
        (0, ..=2) => {}
        (0, _) => return Finding::seen(target, Err("ignores its window".to_owned())),
        (_, ..=2) => return Finding::seen(target, Err("repairs, and frees no slot".to_owned())),
        _ => return Finding::seen(target, Ok(())),
    }
    cluster.run_for(ms(5));
    let asks = cluster.packets_to(Kind::Cast, 3) > 0;
    let casts = cluster.packets_by_multicast(Kind::Cast);
    silence.heal();
    if let Err(instead) = settle(&mut cluster) {
        return Finding::seen(target, Err(instead));
    }
    let seen = match (asks, casts) {
        (true, 2) => WAITS_AND_ASKS,
        (false, 2) => "waits for ever",
        _ => "frees slots without acknowledgement",
    };
    Finding::judged(target, seen)
        .explained((Tolerance::Exact, WAITS_AND_ASKS), "D-05: nothing is sent twice for being slow")
}

/// Data packets sent to single ranks: repairs, and the copies for co-roots.
fn unicasts(cluster: &Cluster) -> Vec<u64> {
    (0..cluster.size()).map(|rank| cluster.packets_to(Kind::Cast, rank)).collect()
}

/// Most ranks that receive a retransmission if one leaf's copy is lost.
fn most_repaired_per_loss() -> Result<f64, String> {
    let ranks = 12;
    let mut most = 0;
    for count in 2..=4 {
        let co_roots = CoRoots::new(ranks, count);
        let collector = |rank| co_roots.collector(co_roots.subgroup_of(rank));
        let policy = format!("co-root={count}");
        let (mut whole, group) = group_of(ranks, &policy, BroadcastConfig::default());
        whole.broadcast_to_all(group, 0, 8);
        settle(&mut whole)?;
        let copies = unicasts(&whole);
        for leaf in (1..ranks).filter(|rank| collector(*rank) != *rank) {
            let (mut cluster, group) = group_of(ranks, &policy, BroadcastConfig::default());
            let _loss = cluster.rule(drop().kind(Kind::Cast).multicast().to(leaf).times(1));
            cluster.broadcast_to_all(group, 0, 8);
            settle(&mut cluster)?;
            let sent = unicasts(&cluster);
            let again = (0..ranks as usize).filter(|rank| sent[*rank] > copies[*rank]);
            most = most.max(again.count());
            let to_leaf = Destination::Rank(Rank(leaf));
            let by_collector = cluster.packets(Kind::Cast, collector(leaf), to_leaf);
            let all = cluster.packets_to(Kind::Cast, leaf);
            require(by_collector == all && all > 0, || {
                format!("{by_collector} of {all} repairs of {leaf} by its collector")
            })?;
        }
    }
    Ok(most as f64)
}

/// Copies that have reached a co-root when its receive is done, after one of two has been lost.
fn copies_until_done() -> Result<f64, String> {
    let (ranks, co_root) = (8, CoRoots::new(8, 2).collector(1));
    let mut most = 0.0_f64;
    let copies: [fn(Rule) -> Rule; 2] = [Rule::multicast, Rule::unicast];
    for lost in copies {
        let (mut cluster, group) = group_of(ranks, "co-root=2", BroadcastConfig::default());
        let loss = cluster.rule(lost(drop().kind(Kind::Cast).to(co_root)).times(1));
        let receives: Vec<_> =
            (1..ranks).map(|rank| cluster.receive_broadcast(rank, group, 0, 8)).collect();
        cluster.broadcast(group, 0, 8);
        // Neither timers nor second copies act within this time.
        cluster.run_for(LATENCY);
        require(is_done(&cluster, receives[co_root as usize - 1]), || {
            "one copy is not enough".to_owned()
        })?;
        let sent = 1 + cluster.packets_to(Kind::Cast, co_root);
        most = most.max((sent - loss.hits()) as f64);
        settle(&mut cluster)?;
    }
    Ok(most)
}

/// Packets that each of two roots sends before it waits for a rank that never answers, with credit
/// for `packets` packets at each root.
fn packets_sent_on_credit(packets: u32) -> [u64; 2] {
    let config = BroadcastConfig {
        initial_credit_bytes: packets * PACKET_CREDIT_BYTES,
        ..BroadcastConfig::default()
    };
    let (mut cluster, group) = group_of(5, "window", config);
    let _silence = cluster.rule(drop().from(3));
    let mut sent = [0; 2];
    for (root, sent) in [0, 1].into_iter().zip(&mut sent) {
        let before = cluster.packets_by_multicast(Kind::Cast);
        for rank in (0..5).filter(|rank| *rank != root) {
            cluster.receive_broadcast(rank, group, root, 40_000);
        }
        cluster.broadcast_with(group, root, 40_000, Reply::Lazy);
        cluster.run_for(us(150));
        *sent = cluster.packets_by_multicast(Kind::Cast) - before;
    }
    sent
}

fn credits(target: &Target) -> Finding {
    // A packet of the default configuration consumes 2304 bytes of credit.
    let granted = f64::from(4 * PACKET_CREDIT_BYTES / 2304);
    let [first, second] = packets_sent_on_credit(4).map(|sent| sent as f64);
    if first == 0.0 {
        return Finding::seen(target, Err("a root sends nothing on its credit".to_owned()));
    }
    let taken_by_first = granted / first;
    let taken_elsewhere = (granted - second) / first;
    Finding::judged(target, [taken_by_first, taken_elsewhere])
        .explained(
            (Tolerance::Exact, [1.0, 0.0]),
            "D-07: each receiver offers its own room, so a packet takes a credit at the root that \
             sends it and none at other nodes; a root waits while any receiver is at zero",
        )
        .noting("credits per packet: at the root, at another root")
}

/// Checks that a root sends more than M messages without an acknowledgement, whatever window is
/// configured.
fn window_holds_more_than_m() -> Seen {
    for wanted in [EVERY - 1, EVERY, 2 * EVERY] {
        let config = BroadcastConfig { window_messages: wanted, ..patient() };
        let (mut cluster, group) = group_of(4, &format!("ack-every={EVERY}"), config);
        let silence = cluster.rule(drop().kind(Kind::CastAck));
        for _ in 0..4 * EVERY {
            post(&mut cluster, group, 8);
        }
        cluster.run_for(us(100));
        let sent = cluster.packets_by_multicast(Kind::Cast);
        let again = cluster.packets_by_unicast(Kind::Cast);
        require(sent > u64::from(EVERY) && again == 0, || {
            format!("window {wanted}: {sent} messages, {again} packets again")
        })?;
        silence.heal();
        settle(&mut cluster)?;
    }
    Ok(())
}
