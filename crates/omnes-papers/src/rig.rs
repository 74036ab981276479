//! What the structural findings share: clusters of the rig, driven to an end without panics.

use omnes_proto::broadcast::{BroadcastConfig, GroupId, Policy};
use omnes_sim::{
    Cluster, Guard, Operation, State, delay, delivered_once_in_order, nothing_is_missing,
    only_the_dead_fail,
};
use omnes_wire::Instant;
use std::time::Duration;

/// What was seen instead of what a target says.
pub(crate) type Seen = Result<(), String>;

/// From one rank to another.
pub(crate) const LATENCY: Duration = Duration::from_micros(25);
/// Longest wait for a run to end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Words for what was seen instead, unless `holds`.
pub(crate) fn require(holds: bool, instead: impl FnOnce() -> String) -> Seen {
    if holds { Ok(()) } else { Err(instead()) }
}

/// A cluster with one group of all ranks under `policy`.
///
/// # Panics
/// If `policy` names none: a mistake in the calling code.
pub(crate) fn group_of(ranks: u32, policy: &str, config: BroadcastConfig) -> (Cluster, GroupId) {
    let mut cluster = Cluster::builder().ranks(ranks).latency(LATENCY).broadcast(config).build();
    let policy: Policy = policy.parse().expect("policies of findings are constants");
    let group = cluster.open_group_of_all(policy);
    (cluster, group)
}

/// Lets everything end; then all must have arrived once and in order.
pub(crate) fn settle(cluster: &mut Cluster) -> Seen {
    if !cluster.run_while(PATIENCE, |cluster| !cluster.is_quiescent()) {
        return Err("does not come to an end".to_owned());
    }
    delivered_once_in_order(cluster)?;
    nothing_is_missing(cluster)?;
    only_the_dead_fail(cluster)
}

/// When an operation was done.
pub(crate) fn done_at(cluster: &Cluster, operation: Operation) -> Result<Instant, String> {
    match cluster.state(operation) {
        State::Done(at) => Ok(at),
        state => Err(format!("an operation is {state:?}")),
    }
}

pub(crate) fn is_done(cluster: &Cluster, operation: Operation) -> bool {
    matches!(cluster.state(operation), State::Done(_))
}

/// A rule that does nothing but count the packets it sees, by its guard's hits.
pub(crate) fn watch(
    cluster: &mut Cluster,
    packets: impl FnOnce(omnes_sim::Rule) -> omnes_sim::Rule,
) -> Guard {
    cluster.rule(packets(delay(Duration::ZERO)))
}
