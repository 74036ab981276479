//! In-transit buffers: routes on the ring of the paper's example and on random networks, headers,
//! and the marks of single packets, with `omnes_sim::wormhole`.

use crate::rig::{Seen, require};
use crate::{Finding, Target};
use omnes_sim::wormhole::{BUFFERS, studies};
use omnes_topo::network::NetworkError;

/// The finding of a target that this file computes.
pub(super) fn find(target: &Target) -> Option<Finding> {
    Some(match target.id.as_str() {
        "IT-S01" => Finding::seen(target, only_the_way_over_the_root_is_legal()),
        "IT-S02" => judged(target, in_transit_hosts()).noting("counted at switch 6"),
        "IT-S03" => Finding::judged(target, studies::ring_hops().map(f64::from)),
        "IT-S04" => judged(target, cycles()),
        "IT-S05" => leaves_before_its_tail(target),
        "IT-P01" => judged(target, studies::early_bytes().map(|bytes| bytes as f64)),
        "IT-P02" => buffers(target),
        "IT-P03" => judged(target, bytes_per_switch()),
        "IT-D01" => judged(target, studies::bottleneck_ratios()),
        "IT-D02" => judged(target, studies::path_means()),
        _ => return None,
    })
}

/// Compares ours with the target; an error, which only a mistake of ours can cause, is reported
/// instead.
pub(super) fn judged<V: Into<crate::Value>>(
    target: &Target,
    ours: Result<V, NetworkError>,
) -> Finding {
    match ours {
        Ok(ours) => Finding::judged(target, ours),
        Err(error) => Finding::seen(target, Err(error.to_string())),
    }
}

fn only_the_way_over_the_root_is_legal() -> Seen {
    let [short, long] = studies::ring_legality();
    let is_short_illegal = short.ups == [false, true] && !short.is_legal;
    require(is_short_illegal, || format!("4-6-1: {short:?}"))?;
    let is_long_legal = long.ups == [true, false, false] && long.is_legal;
    require(is_long_legal, || format!("4-0-2-1: {long:?}"))
}

/// In-transit hosts on 4-6-1, counted at the permitted switch.
fn in_transit_hosts() -> Result<f64, NetworkError> {
    let stops = studies::ring_stops()?;
    Ok(stops.iter().filter(|switch| **switch == 6).count() as f64)
}

/// Networks with a cycle although they should have none; all of them if the unrestricted ring has
/// none.
fn cycles() -> Result<f64, NetworkError> {
    let found = studies::cycles()?;
    let cyclic = found.up_down + found.in_transit;
    let is_blind = found.minimal_on_ring == 0;
    Ok(f64::from(if is_blind { found.networks } else { cyclic }))
}

fn leaves_before_its_tail(target: &Target) -> Finding {
    match studies::cut_through_ns() {
        Ok(ns) => Finding::seen(target, require(ns > 0.0, || format!("{} ns after it", -ns)))
            .noting(format!("{ns:.0} ns before it, for 4,096 bytes")),
        Err(error) => Finding::seen(target, Err(error.to_string())),
    }
}

fn buffers(target: &Target) -> Finding {
    let lost = match studies::overflows() {
        Ok(lost) => lost,
        Err(error) => return Finding::seen(target, Err(error.to_string())),
    };
    if lost.with_two == 0 || lost.with_pool > 0 {
        return Finding::seen(target, Err(format!("{lost:?}")));
    }
    Finding::judged(target, BUFFERS as f64).noting(format!(
        "a burst of {} packets in transit loses {} with them, and none with a pool",
        lost.packets, lost.with_two
    ))
}

/// Most bytes that a switch removes.
fn bytes_per_switch() -> Result<f64, NetworkError> {
    Ok(studies::bytes_per_switch()?.into_iter().max().unwrap_or(0) as f64)
}
