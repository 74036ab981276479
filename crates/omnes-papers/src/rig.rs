//! Shared parts of the structural findings: clusters of the rig that are run to the end without
//! panics.

use omnes_proto::broadcast::{BroadcastConfig, GroupId, Policy};
use omnes_sim::{
    Cluster, Guard, Operation, State, delay, delivered_once_in_order, nothing_is_missing,
    only_the_dead_fail,
};
use omnes_wire::Instant;
use std::time::Duration;

/// Success, or the behaviour observed instead of the target's.
pub(crate) type Seen = Result<(), String>;

/// Latency from one rank to another.
pub(crate) const LATENCY: Duration = Duration::from_micros(25);
/// Time limit of a run.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Fails with a description of the observed behaviour unless `holds`.
pub(crate) fn require(holds: bool, instead: impl FnOnce() -> String) -> Seen {
    if holds { Ok(()) } else { Err(instead()) }
}

/// A cluster with one group of all ranks under `policy`.
///
/// # Panics
/// If `policy` is invalid: a mistake in the calling code.
pub(crate) fn group_of(ranks: u32, policy: &str, config: BroadcastConfig) -> (Cluster, GroupId) {
    let mut cluster = Cluster::builder().ranks(ranks).latency(LATENCY).broadcast(config).build();
    let policy: Policy = policy.parse().expect("policies of findings are constants");
    let group = cluster.open_group_of_all(policy);
    (cluster, group)
}

/// Runs until everything has ended, then checks that everything arrived once and in order.
pub(crate) fn settle(cluster: &mut Cluster) -> Seen {
    if !cluster.run_while(PATIENCE, |cluster| !cluster.is_quiescent()) {
        return Err("does not come to an end".to_owned());
    }
    delivered_once_in_order(cluster)?;
    nothing_is_missing(cluster)?;
    only_the_dead_fail(cluster)
}

/// Time at which an operation was done.
pub(crate) fn done_at(cluster: &Cluster, operation: Operation) -> Result<Instant, String> {
    match cluster.state(operation) {
        State::Done(at) => Ok(at),
        state => Err(format!("an operation is {state:?}")),
    }
}

pub(crate) fn is_done(cluster: &Cluster, operation: Operation) -> bool {
    matches!(cluster.state(operation), State::Done(_))
}

/// A rule without effect that counts the packets it sees, as its guard's hits.
pub(crate) fn watch(
    cluster: &mut Cluster,
    packets: impl FnOnce(omnes_sim::Rule) -> omnes_sim::Rule,
) -> Guard {
    cluster.rule(packets(delay(Duration::ZERO)))
}
