//! Which tree is fastest for a message of many packets.
//!
//! What it is: the time that a tree takes for M packets, each forwarded as soon as it has arrived
//! (store-and-forward by packet), and the tree for which that time is smallest.
//!
//! Model, in the units of [`crate::postal`]: a rank sends packet after packet, each to all its
//! children in order, and one send occupies it for a unit. A packet whose sending begins at t is
//! ready at its receiver at t + lambda. All ranks then have all packets after
//!
//! ```text
//! max over paths from the root (sum of (place among its siblings - 1 + lambda))   first packet
//!   + (M - 1) * fan_out_max                                                       all others
//! ```
//!
//! Source: the postal model [MS-R17] and pipelining by packet [MS-R21]; the tree depends on the
//! size of the message [MS-R16]. Guarantees: the time is exact for the model, because in all
//! families the root has the most children: packets leave it `fan_out_max` apart, so no other rank
//! still has a packet to send when the next one arrives. [`choose`] gives the smallest time of all
//! chains, flat, k-ary, postal and bounded postal trees. In small groups it was compared with every
//! ordered tree: none is faster. Assumes: a rank's work to receive and prepare a packet (lambda - 1
//! units) overlaps with its other work. Where it does not, packets cannot be less than that time
//! apart, whatever the tree. No limit by credits or windows. Cost: building a tree is O(size);
//! [`choose`] builds few, because intervals of fan-outs that cannot win are skipped. Not done:
//! several concurrent trees, in which all ranks would send equally much.

use alloc::vec;

use crate::error::{TopoError, check_size_up_to};
use crate::postal::{Greedy, Lambda, POSTAL_SIZE_MAX, UNIT};
use crate::tree::Tree;

/// Time until all ranks have all of `packets` packets, in thousandths of the time unit.
///
/// See the module header for the model. Zero packets count as one, because an empty message is a
/// packet, too. `size` is in `1..=`[`POSTAL_SIZE_MAX`]. Errors with [`TopoError::SizeZero`],
/// [`TopoError::SizeTooLarge`] or a mistake in the tree's parameters, as [`Tree::depth`].
/// Cost: O(size log size) time, O(size) memory.
///
/// ```
/// use omnes_topo::{Tree, pipeline};
///
/// // Six edges of 2.5 units each, then 9 packets of one unit.
/// assert_eq!(pipeline::time(Tree::Chain, 7, 10, "2.5".parse()?)?, 24_000);
/// // The sixth child's packet leaves after 5 units; then 9 packets of six units.
/// assert_eq!(pipeline::time(Tree::Flat, 7, 10, "2.5".parse()?)?, 61_500);
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
pub fn time(tree: Tree, size: u32, packets: u32, lambda: Lambda) -> Result<u64, TopoError> {
    check_size_up_to(size, POSTAL_SIZE_MAX)?;
    let edges = tree.edges(size)?;
    let mut ready_at = vec![0; size as usize];
    // A parent's number is below its children's in every family.
    for (rank, run) in edges.first.windows(2).enumerate() {
        let mut free_at = ready_at[rank];
        for child in &edges.children[run[0] as usize..run[1] as usize] {
            ready_at[*child as usize] = free_at + u64::from(lambda.thousandths());
            free_at += UNIT;
        }
    }
    let latency = ready_at.into_iter().max().unwrap_or(0);
    Ok(latency + further(packets) * u64::from(tree.fan_out_max(size)?) * UNIT)
}

/// The tree for which [`time`] is smallest.
///
/// Of equally fast trees it is the first of chain, flat and postal, otherwise the one with the
/// smallest fan-out, k-ary before bounded postal. Arguments as for [`time`]. Errors with
/// [`TopoError::SizeZero`] or [`TopoError::SizeTooLarge`].
/// Cost: O(size) time for each of the few trees built, O(size) memory.
///
/// ```
/// use omnes_topo::{Lambda, Tree, pipeline};
///
/// let lambda = Lambda::from_thousandths(2500)?;
/// assert_eq!(pipeline::choose(64, 1, lambda)?, Tree::Postal { lambda });
/// assert_eq!(pipeline::choose(64, 20, lambda)?, Tree::PostalBounded { lambda, fan_out: 2 });
/// assert_eq!(pipeline::choose(64, 1000, lambda)?, Tree::Chain);
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
pub fn choose(size: u32, packets: u32, lambda: Lambda) -> Result<Tree, TopoError> {
    check_size_up_to(size, POSTAL_SIZE_MAX)?;
    if size == 1 {
        return Ok(Tree::Chain);
    }
    let postal = Tree::Postal { lambda };
    let widest = postal.fan_out_max(size)?;
    let search = Search { size, further: further(packets), lambda };
    let best = search.best(widest);
    for tree in [Tree::Chain, Tree::Flat, postal, Tree::Kary { arity: best.fan_out }] {
        if time(tree, size, packets, lambda)? == best.time {
            return Ok(tree);
        }
    }
    Ok(Tree::PostalBounded { lambda, fan_out: best.fan_out })
}

/// Packets after the first.
fn further(packets: u32) -> u64 {
    u64::from(packets.saturating_sub(1))
}

/// The best fan-out of bounded postal trees, which are the fastest of their fan-out.
struct Search {
    size: u32,
    further: u64,
    lambda: Lambda,
}

/// A bounded postal tree, ordered by time, then by fan-out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bounded {
    time: u64,
    fan_out: u32,
}

impl Search {
    /// The best of the fan-outs from 1 to `widest`, the fan-out of the unbounded tree.
    ///
    /// Latency falls with the fan-out and the remaining time grows: no tree strictly between two
    /// fan-outs is faster than the latency of the wider plus the remaining time of the narrower.
    fn best(&self, widest: u32) -> Bounded {
        let (chain, unbounded) = (self.bounded(1), self.bounded(widest));
        let mut best = chain.min(unbounded);
        let mut open = vec![(chain, unbounded)];
        while let Some((narrow, wide)) = open.pop() {
            let inside = narrow.fan_out + 1;
            let latency = self.latency(wide);
            let bound = Bounded { time: latency + self.rest(inside), fan_out: inside };
            if inside >= wide.fan_out || bound >= best || latency == self.latency(narrow) {
                continue;
            }
            let middle = self.bounded(narrow.fan_out + (wide.fan_out - narrow.fan_out) / 2);
            best = best.min(middle);
            open.push((middle, wide));
            open.push((narrow, middle));
        }
        best
    }

    /// Builds the tree of this fan-out; the last rank is the last to be ready.
    fn bounded(&self, fan_out: u32) -> Bounded {
        let edge = Greedy::new(self.lambda, fan_out).nth(self.size as usize - 2);
        let latency = edge.map_or(0, |edge| edge.ready_at);
        Bounded { time: latency + self.rest(fan_out), fan_out }
    }

    /// Time of all packets but the first.
    fn rest(&self, fan_out: u32) -> u64 {
        self.further * u64::from(fan_out) * UNIT
    }

    /// Time of the first packet.
    fn latency(&self, tree: Bounded) -> u64 {
        tree.time - self.rest(tree.fan_out)
    }
}
