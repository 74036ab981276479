//! Barriers in the NIC: simulations on three testbeds.
//!
//! | testbed | fitted to | checked against |
//! |---|---|---|
//! | `myrinet-lanaixp` | CB-F11, F12; GM's messages one way, both ways | CB-F13.., F01, M02, M04 |
//! | `myrinet-lanai9` | nothing: the former with slower clocks | CB-M01, M04 |
//! | `quadrics-elan3` | CB-F11, F12 | CB-F13.., F02, M03, M05 |
//!
//! In the paper's model each doubling of the nodes costs one T_trig; here that cost results from
//! packets ([`beside`]). The model leaves out switches, so these runs have one switch at any size.
//!
//! For hosts, the slides name an algorithm only for Quadrics' library: gather-broadcast [CB-R14],
//! the one of their three algorithms that no NIC runs [CB-R9, R12]. Myrinet's hosts are assumed to
//! run it too: then all three ratios [CB-M01 to M03] are reproduced with nothing fitted to any of
//! them. The note gives the ratio with the NIC's own algorithm at the hosts, which is too small.
//!
//! Which algorithm is faster [CB-M04, M05]. In groups of a power of two both algorithms send
//! equally many messages in equally many steps, and on one switch they take the same time to the
//! picosecond, with one processor in the NIC or two; nothing there can distinguish them. In other
//! groups pairwise exchange takes one or two steps more. On a tree of small switches its partners
//! are near for all but the last steps, while dissemination crosses the tree in more of them. The
//! verdict is for all nodes of the cluster, as in the paper.

use super::bed::{Bed, By, ELAN3, LANAI_XP, LANAI9, Switches};
use super::closed::{MYRINET, QUADRICS, nodes_of};
use super::curves;
use crate::{Figure, Finding, Target, Tolerance};
use omnes_sim::engine::Cost;
use omnes_topo::BarrierAlgorithm::{Dissemination, GatherBroadcast, PairwiseExchange};

/// Largest relative deviation of simulated latencies from the formula.
const OFF_MAX: f64 = 0.02;
/// Latencies whose relative difference is at most this are equal.
const TIE: f64 = 1e-6;
const TIED: &str = "a tie";

/// The finding of a target that is simulated.
pub(super) fn find(target: &Target) -> Option<Finding> {
    let found = match target.id.as_str() {
        "CB-M01" => by_messages(target, LANAI9),
        "CB-M02" => by_messages(target, LANAI_XP),
        "CB-M03" => by_library(target),
        "CB-M04" => on_myrinet(target),
        "CB-M05" => on_quadrics(target),
        _ => return None,
    };
    Some(found.unwrap_or_else(Finding::not_computed))
}

/// Adds the simulated latencies of the same barriers to the finding of a formula; missed if they
/// deviate by more than 2 %.
pub(super) fn beside(target: &Target, finding: Finding) -> Finding {
    let (xp, elan) = ((LANAI_XP, MYRINET), (ELAN3.on(Switches::One), QUADRICS));
    let runs = match target.id.as_str() {
        "CB-F01" => vec![(xp, 1024)],
        "CB-F02" => vec![(elan, 1024)],
        _ => match nodes_of(target) {
            Some(nodes) => vec![(xp, nodes), (elan, nodes)],
            None => return finding,
        },
    };
    let mut told = Vec::new();
    for ((bed, model), nodes) in runs {
        let simulated = match bed.latency_us(By::Nic, Dissemination, nodes) {
            Ok(simulated) => simulated,
            Err(error) => return Finding::seen(target, Err(error)),
        };
        let off = simulated / model.latency_us(nodes) - 1.0;
        told.push(format!("{simulated:.2} us ({:+.1} %)", 100.0 * off));
        if off.abs() > OFF_MAX {
            return Finding::seen(target, Err(format!("simulated: {}", told.join(", "))));
        }
    }
    finding.noting(format!("simulated from packets: {}", told.join(", ")))
}

/// Curves of the simulations, with the points that the paper states.
pub(super) fn figures() -> Vec<Figure> {
    // The findings report what cannot be simulated.
    curves::figures().unwrap_or_default()
}

fn by_messages(target: &Target, bed: Bed) -> Result<Finding, String> {
    let ours = bed.gain(GatherBroadcast, Dissemination)?;
    let as_in_nic = bed.gain(Dissemination, Dissemination)?;
    let nic = bed.latency_us(By::Nic, Dissemination, bed.nodes)?;
    let note = format!(
        "NIC {nic:.2} us; hosts by gather-broadcast, the only algorithm of hosts that the slides \
         name; {as_in_nic:.2} if they ran the NIC's own instead"
    );
    Ok(Finding::judged(target, ours).noting(note))
}

fn by_library(target: &Target) -> Result<Finding, String> {
    let ours = ELAN3.gain(GatherBroadcast, PairwiseExchange)?;
    // The only cost in this file that is a guess and matters: the ratio without it.
    let mut bare = ELAN3.costs()?;
    bare.host.receive = Cost::default();
    let host = ELAN3.latency_at(bare, By::Host, GatherBroadcast, ELAN3.nodes)?;
    let nic = ELAN3.latency_us(By::Nic, PairwiseExchange, ELAN3.nodes)?;
    let note = format!(
        "on the Elite-16's tree of 8-port switches; {:.2} if the library's software took no time",
        host / nic
    );
    Ok(Finding::judged(target, ours).noting(note))
}

/// Mean latencies in us of dissemination and pairwise exchange over groups of these sizes.
fn both(bed: Bed, sizes: impl Iterator<Item = u32> + Clone) -> Result<(f64, f64), String> {
    let mean = |algorithm| {
        let latencies: Result<Vec<f64>, String> =
            sizes.clone().map(|nodes| bed.latency_us(By::Nic, algorithm, nodes)).collect();
        latencies.map(|all| all.iter().sum::<f64>() / all.len() as f64)
    };
    Ok((mean(Dissemination)?, mean(PairwiseExchange)?))
}

/// The faster algorithm among all nodes of the cluster, if any; and both times.
fn winner(bed: Bed) -> Result<(&'static str, String), String> {
    let nodes = bed.nodes;
    let (spread, pairs) = both(bed, nodes..=nodes)?;
    let told = format!("at {nodes}: dissemination {spread:.3}, pairwise {pairs:.3} us; ");
    let better = match spread / pairs - 1.0 {
        difference if difference.abs() <= TIE => TIED,
        difference if difference < 0.0 => "dissemination",
        _ => "pairwise exchange",
    };
    Ok((better, told))
}

fn on_myrinet(target: &Target) -> Result<Finding, String> {
    let (new, told_new) = winner(LANAI_XP)?;
    let (old, told_old) = winner(LANAI9)?;
    let ours = if new == old { new.to_owned() } else { format!("{new} and {old}") };
    let over_all = |bed: Bed| both(bed, 2..=bed.nodes);
    let ((new_spread, new_pairs), (old_spread, old_pairs)) =
        (over_all(LANAI_XP)?, over_all(LANAI9)?);
    let tree = LANAI9.on(Switches::Tree { ports: 16, nodes: 17 });
    let (spread, pairs) = both(tree, LANAI9.nodes..=LANAI9.nodes)?;
    let note = format!(
        "{told_new}{told_old}over all sizes to 8 {new_spread:.3} and {new_pairs:.3}, to 16 \
         {old_spread:.3} and {old_pairs:.3} us; on a tree of 16-port switches {spread:.3} and \
         {pairs:.3} us at 16"
    );
    Ok(Finding::judged(target, ours).noting(note).explained(
        (Tolerance::Exact, TIED),
        "in groups of a power of two both send equally many messages in equally many steps, and \
         one switch treats all pairs alike; in other groups dissemination takes fewer steps",
    ))
}

fn on_quadrics(target: &Target) -> Result<Finding, String> {
    let (ours, told) = winner(ELAN3)?;
    let (spread, pairs) = both(ELAN3.on(Switches::One), ELAN3.nodes..=ELAN3.nodes)?;
    let (all_spread, all_pairs) = both(ELAN3, 2..=ELAN3.nodes)?;
    let note = format!(
        "{told}on one switch they are equal: {spread:.3}, {pairs:.3} us; over all sizes, as some \
         are no powers of two, {all_spread:.3}, {all_pairs:.3} us"
    );
    Ok(Finding::judged(target, ours).noting(note))
}
