//! Checkers that run at chosen moments; the checkers that run on every event are in `bounds`,
//! `memory` and `node`.

use crate::rig::cluster::Cluster;
use omnes_wire::{Header, Kind, Rank};
use std::time::Duration;

/// Inspects a cluster; the error describes the violation.
pub type Checker = fn(&Cluster) -> Result<(), String>;

/// Every completed receive holds the right message, in sending order, each exactly once; streams
/// that begin or end at a dead rank may have holes, broadcasts never.
///
/// # Errors
/// Names the stream and the message.
pub fn delivered_once_in_order(cluster: &Cluster) -> Result<(), String> {
    cluster.ledger().check_delivery(&cluster.dead())?;
    cluster.ledger().check_broadcasts()
}

/// Every message between living ranks has been received, as has every message of a departed rank
/// that had arrived when it left; so has every broadcast in groups where no member has died; and
/// every barrier that a living rank has entered has ended there.
///
/// # Errors
/// Names the streams with the number of missing messages, or the barrier.
pub fn nothing_is_missing(cluster: &Cluster) -> Result<(), String> {
    let (dead, left) = (cluster.dead(), cluster.left());
    let failed = dead.difference(&left).copied().collect();
    if let Some(text) = cluster.ledger().missing_broadcast(&failed, &dead) {
        return Err(format!("missing: {text}"));
    }
    if let Some(text) = cluster.ledger().missing_barrier() {
        return Err(format!("missing: {text}"));
    }
    let missing = cluster.ledger().missing(&cluster.dead(), &cluster.delivered());
    if missing.is_empty() { Ok(()) } else { Err(format!("missing: {missing:?}")) }
}

/// No packet of a message is in flight, nor an acknowledgement of one [PM-R20].
///
/// # Errors
/// Gives the number of packets.
pub fn no_message_is_in_flight(cluster: &Cluster) -> Result<(), String> {
    let is_message = |bytes: &[u8]| {
        let header = Header::parse(bytes).ok().map(|(header, _)| header);
        header.is_some_and(|header| {
            matches!(header.kind, Kind::Data | Kind::Grant | Kind::Ack | Kind::Nack)
        })
    };
    let on_their_way = cluster.network.on_their_way();
    let count = on_their_way.filter(|packet| is_message(&packet.bytes)).count();
    if count == 0 { Ok(()) } else { Err(format!("{count} packets of messages are in flight")) }
}

/// Every live rank waiting in a barrier reports each rank that has not entered it, if it can tell.
///
/// # Errors
/// Names the rank that assumes another to have entered.
pub fn missing_ranks_are_reported(cluster: &Cluster) -> Result<(), String> {
    for node in cluster.nodes.iter().filter(|node| node.is_member()) {
        let groups = node.barriers.groups.keys();
        for communicator in groups.filter(|name| node.barriers.is_under_way(**name)) {
            let missing = node.endpoint.collective().missing(*communicator);
            cluster.ledger().check_missing(*communicator, node.rank, &missing)?;
        }
    }
    Ok(())
}

/// At a living rank, no barrier is in progress in a group with a member that the rank has named as
/// failed.
///
/// # Errors
/// Names rank and group.
pub fn broken_groups_are_at_rest(cluster: &Cluster) -> Result<(), String> {
    for node in cluster.nodes.iter().filter(|node| node.is_member()) {
        for (communicator, group) in &node.barriers.groups {
            let mut members = group.nodes.ranks();
            let has_failed = |rank: Rank| node.failed.contains_key(&rank);
            if members.any(has_failed) && node.barriers.is_under_way(*communicator) {
                let (rank, name) = (node.rank, communicator.0);
                return Err(format!("rank {rank} still waits in the broken group {name}"));
            }
        }
    }
    Ok(())
}

/// Every living rank has been notified of every dead one.
///
/// # Errors
/// Names the pairs that are missing.
pub fn dead_are_named_to_all(cluster: &Cluster) -> Result<(), String> {
    let dead = cluster.dead();
    for node in cluster.nodes.iter().filter(|node| node.is_member()) {
        let knows = |rank| node.failed.contains_key(rank) || node.departed.contains_key(rank);
        if let Some(rank) = dead.iter().find(|rank| !knows(rank)) {
            return Err(format!("rank {} does not know that {rank} is dead", node.rank));
        }
    }
    Ok(())
}

/// No living rank is named as failed.
///
/// # Errors
/// Names the pair.
pub fn no_living_rank_is_named(cluster: &Cluster) -> Result<(), String> {
    let dead = cluster.dead();
    for node in cluster.nodes.iter().filter(|node| node.is_member()) {
        if let Some(rank) = node.failed.keys().find(|rank| !dead.contains(rank)) {
            return Err(format!("rank {} takes the living {rank} for dead", node.rank));
        }
    }
    Ok(())
}

/// No living rank has been notified that it is excluded, and no rank that has left is taken for
/// dead, unless a farewell was lost.
///
/// # Errors
/// Names the pair.
pub fn no_live_rank_is_excluded(cluster: &Cluster) -> Result<(), String> {
    let has_lost_farewells = cluster.network_counters().lost_farewells > 0;
    for node in cluster.nodes.iter().filter(|node| node.is_member()) {
        if let Some(by) = node.excluded_by.keys().next() {
            return Err(format!("rank {by} has told the living rank {} that it is out", node.rank));
        }
        let has_left = |rank: &&Rank| cluster.nodes[rank.index()].has_left();
        if let Some(rank) = node.failed.keys().find(has_left).filter(|_| !has_lost_farewells) {
            return Err(format!("rank {} takes {rank} for dead, which has left", node.rank));
        }
    }
    Ok(())
}

/// Operations have failed only where a rank that they depend on has died.
///
/// # Errors
/// Names the operation.
pub fn only_the_dead_fail(cluster: &Cluster) -> Result<(), String> {
    let (dead, left) = (cluster.dead(), cluster.left());
    let failed = dead.difference(&left).copied().collect();
    cluster.ledger().check_broadcast_failures(&failed, &left)?;
    cluster.ledger().check_barrier_failures(&failed)?;
    cluster.ledger().check_failures(&dead)
}

impl Cluster {
    /// Advances time by `time`, during which only heartbeats may be sent.
    ///
    /// # Panics
    /// If a channel sends anything.
    pub fn check_quiet_for(&mut self, time: Duration) {
        let sent = |cluster: &Self| {
            let counters = &cluster.network.counters;
            counters.sent_on_channels + counters.doorbells
        };
        let before = sent(self);
        self.run_for(time);
        let sent = sent(self) - before;
        if sent > 0 {
            self.fail(&format!("{sent} packets although there is nothing to say"));
        }
    }
}
