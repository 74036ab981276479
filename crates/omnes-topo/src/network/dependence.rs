//! Which channels wait for which, and whether they can wait in a cycle.
//!
//! What it is: a packet under back-pressure holds one link while it waits for the next of its
//! route. The graph of these pairs over all routes must have no cycle, or packets can block each
//! other forever [IT-R2]. An in-transit buffer takes a packet off the network, so the pieces of its
//! route are added separately [IT-R3].
//! Source: channel-dependence graphs of Dally and Seitz. Cost: O(links + dependences).

use alloc::vec;
use alloc::vec::Vec;

use super::LinkId;

/// The dependences of a set of routes.
#[derive(Clone, Debug)]
pub struct Dependences {
    /// For each link, the links that a packet on it may wait for, each once.
    waits_for: Vec<Vec<LinkId>>,
}

impl Dependences {
    /// No dependences, in a network of `links` directed links.
    pub fn new(links: u32) -> Self {
        Self { waits_for: vec![Vec::new(); links as usize] }
    }

    /// Adds the dependences of a packet that crosses `links` without leaving the network.
    pub fn add(&mut self, links: &[LinkId]) {
        for pair in links.windows(2) {
            let waits_for = &mut self.waits_for[pair[0].index()];
            if !waits_for.contains(&pair[1]) {
                waits_for.push(pair[1]);
            }
        }
    }

    /// True if some links wait for each other in a cycle.
    pub fn has_cycle(&self) -> bool {
        let mut waited_for = vec![0_usize; self.waits_for.len()];
        for link in self.waits_for.iter().flatten() {
            waited_for[link.index()] += 1;
        }
        let free = waited_for.iter().enumerate().filter(|(_, count)| **count == 0);
        let mut ready: Vec<usize> = free.map(|(link, _)| link).collect();
        let mut taken = 0;
        while let Some(link) = ready.pop() {
            taken += 1;
            for next in &self.waits_for[link] {
                waited_for[next.index()] -= 1;
                if waited_for[next.index()] == 0 {
                    ready.push(next.index());
                }
            }
        }
        taken < self.waits_for.len()
    }
}
