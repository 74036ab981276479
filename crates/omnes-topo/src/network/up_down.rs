//! Up*/down* labels, and shortest paths with and without their rule.
//!
//! What it is: a breadth-first search from a root gives each switch a depth. A link goes up if it
//! ends nearer to the root or, at equal depth, at the lower number [IT-R1]. A path is legal if no
//! up link follows a down link [IT-R2]; so every cycle of channels contains a forbidden turn.
//!
//! ```text
//!        0            4-6-1    down, up: illegal
//!      /   \          4-0-2-1  up, down, down: legal, and the shortest such path
//!     2     4
//!     |     |         the ring of [`Network::ring`], root 0, switches by the paper's numbers
//!     1 --- 6
//! ```
//!
//! Source: [IT §1], after Autonet. Paths are lists of links between switches.
//! Guarantees: a legal path exists between any two switches; of several shortest paths each has a
//! chance to be drawn.
//! Cost: O(links) per destination, then O(hops * ports) per path.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::{Draw, LinkId, Network, Node, SwitchId};

const UNREACHED: u16 = u16::MAX;

/// Which end of each link is up.
#[derive(Clone, Debug)]
pub struct UpDown {
    depths: Vec<u16>,
}

impl UpDown {
    /// The labels of a spanning tree from `root`. Cost: O(links).
    ///
    /// # Panics
    /// If the switch does not exist.
    pub fn new(network: &Network, root: SwitchId) -> Self {
        let mut depths = vec![UNREACHED; network.switches() as usize];
        depths[root.0 as usize] = 0;
        let mut queue = VecDeque::from([root]);
        while let Some(switch) = queue.pop_front() {
            for (_, next) in network.neighbours(switch) {
                if depths[next.0 as usize] == UNREACHED {
                    depths[next.0 as usize] = depths[switch.0 as usize] + 1;
                    queue.push_back(next);
                }
            }
        }
        Self { depths }
    }

    /// Number of links between the root and `switch` on the spanning tree.
    pub fn depth(&self, switch: SwitchId) -> u16 {
        self.depths[switch.0 as usize]
    }

    /// True if `link`, which joins two switches, goes up [IT-R1].
    pub fn is_up(&self, network: &Network, link: LinkId) -> bool {
        let rank = |node| match node {
            Node::Switch(switch) => (self.depth(switch), switch),
            Node::Host(_) => (UNREACHED, SwitchId(u32::MAX)),
        };
        let (from, to) = network.link(link);
        rank(to) < rank(from)
    }

    /// True if no up link follows a down link on this path between switches [IT-R2].
    pub fn is_legal(&self, network: &Network, path: &[LinkId]) -> bool {
        path.windows(2).all(|pair| !self.is_turn(network, pair[0], pair[1]))
    }

    /// True if a path that continues from `before` to `link` turns from down to up.
    pub fn is_turn(&self, network: &Network, before: LinkId, link: LinkId) -> bool {
        !self.is_up(network, before) && self.is_up(network, link)
    }
}

/// Restriction on paths.
#[derive(Clone, Copy, Debug)]
pub enum Rule<'a> {
    /// No restriction: the shortest paths are minimal.
    Minimal,
    /// Only paths that up*/down* allows.
    Legal(&'a UpDown),
}

/// A packet that has gone down may not go up again.
const MAY_GO_UP: usize = 0;
const HAS_GONE_DOWN: usize = 1;

/// All shortest paths to one switch under one rule.
#[derive(Clone, Debug)]
pub struct Toward<'a> {
    network: &'a Network,
    rule: Rule<'a>,
    to: SwitchId,
    /// Number of links left from each switch, by whether the packet has gone down.
    left: Vec<[u16; 2]>,
}

impl<'a> Toward<'a> {
    /// Searches all paths to `to`. Cost: O(links).
    pub fn new(network: &'a Network, rule: Rule<'a>, to: SwitchId) -> Self {
        let left = vec![[UNREACHED; 2]; network.switches() as usize];
        let mut paths = Self { network, rule, to, left };
        paths.left[to.0 as usize] = [0, 0];
        let mut queue = VecDeque::from([(to, MAY_GO_UP), (to, HAS_GONE_DOWN)]);
        while let Some((switch, phase)) = queue.pop_front() {
            let left = paths.left[switch.0 as usize][phase] + 1;
            for (link, before) in network.neighbours(switch) {
                for came in [MAY_GO_UP, HAS_GONE_DOWN] {
                    let allowed = paths.after(came, link.reverse()) == Some(phase);
                    if allowed && paths.left[before.0 as usize][came] == UNREACHED {
                        paths.left[before.0 as usize][came] = left;
                        queue.push_back((before, came));
                    }
                }
            }
        }
        paths
    }

    /// The phase after `link`; `None` if that is illegal.
    fn after(&self, phase: usize, link: LinkId) -> Option<usize> {
        match self.rule {
            Rule::Minimal => Some(phase),
            Rule::Legal(labels) => {
                if labels.is_up(self.network, link) {
                    (phase == MAY_GO_UP).then_some(MAY_GO_UP)
                } else {
                    Some(HAS_GONE_DOWN)
                }
            }
        }
    }

    /// Number of links on a shortest path from `from`.
    pub fn hops(&self, from: SwitchId) -> u16 {
        self.left[from.0 as usize][MAY_GO_UP]
    }

    /// A shortest path from `from`, drawn link by link.
    pub fn path(&self, from: SwitchId, draw: &mut Draw) -> Vec<LinkId> {
        let (mut switch, mut phase) = (from, MAY_GO_UP);
        let mut path = Vec::with_capacity(usize::from(self.hops(from)));
        while switch != self.to {
            let left = self.left[switch.0 as usize][phase];
            let onward = self.network.neighbours(switch).filter_map(|(link, next)| {
                let phase = self.after(phase, link)?;
                (self.left[next.0 as usize][phase] < left).then_some((link, next, phase))
            });
            let choice = draw.below(onward.clone().count() as u32) as usize;
            let Some((link, next, after)) = onward.clone().nth(choice) else { break };
            path.push(link);
            (switch, phase) = (next, after);
        }
        path
    }
}
