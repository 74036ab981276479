//! How evenly routes load links, by counting: no packet is sent.
//!
//! What it is: one random shortest path per ordered pair of switches, once under up*/down* and once
//! minimal with in-transit buffers; the lengths of these paths, and the number of paths over the
//! busiest link.
//! Source: derived from the aims of [IT-R6]. Assumes: all pairs send equally.
//! Cost: O(switches * links + all paths).

use alloc::vec;
use alloc::vec::Vec;

use super::up_down::{Rule, Toward, UpDown};
use super::{Draw, LinkId, Network, SwitchId};

/// Sums over one path for each ordered pair of switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Number of paths.
    pub paths: u32,
    /// Number of links on all paths.
    pub hops: u32,
    /// Number of turns from down to up on all paths; each needs an in-transit buffer.
    pub turns: u32,
    /// Number of paths over the busiest link.
    pub busiest: u32,
}

/// Draws and counts one path per pair of switches; turns are counted by `labels` under both rules.
pub fn load(network: &Network, labels: &UpDown, rule: Rule<'_>, draw: &mut Draw) -> Load {
    let mut sums = Load::default();
    let mut used = vec![0_u32; network.links() as usize];
    let switches = || (0..network.switches()).map(SwitchId);
    for to in switches() {
        let toward = Toward::new(network, rule, to);
        for from in switches().filter(|from| *from != to) {
            let path: Vec<LinkId> = toward.path(from, draw);
            let turns = path.windows(2).filter(|pair| labels.is_turn(network, pair[0], pair[1]));
            sums.turns += turns.count() as u32;
            sums.paths += 1;
            sums.hops += path.len() as u32;
            path.iter().for_each(|link| used[link.index()] += 1);
        }
    }
    sums.busiest = used.into_iter().max().unwrap_or(0);
    sums
}
