//! Invariants of broadcasts at the end of a run.

use omnes_sim::{Cluster, delivered_once_in_order, nothing_is_missing, only_the_dead_fail};
use std::time::Duration;

/// Everything has arrived, and no rank sends any more.
pub fn settle(cluster: &mut Cluster) {
    cluster.run_until_quiescent();
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.check(only_the_dead_fail);
    cluster.run_for(Duration::from_millis(100));
    cluster.check_quiet_for(Duration::from_millis(500));
}
