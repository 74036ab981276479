//! Co-roots: a group divided into subgroups of neighbours, each with a member that answers for it.
//!
//! What it is: positions `0..size`, with the root at 0, are cut into `count` runs whose lengths
//! differ by at most one; the first of each run is its collector. Source: [BC-R10]; the collectors
//! form a binomial tree, along which they also receive the message. Guarantees: each position has
//! one collector, position 0 is a collector, and no subgroup is empty. Cost: O(1) each.

/// A partition into subgroups; see the module header.
///
/// ```
/// use omnes_topo::CoRoots;
///
/// // Runs 0..4, 4..7 and 7..10.
/// let co_roots = CoRoots::new(10, 3);
/// assert_eq!(co_roots.subgroup(1), 4..7);
/// assert_eq!(co_roots.subgroup_of(6), 1);
/// assert_eq!(co_roots.collector(2), 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoRoots {
    size: u32,
    count: u32,
}

impl CoRoots {
    /// `size` positions with `count` collectors, the root included; `count` is limited to the
    /// number of positions, and to at least one.
    pub fn new(size: u32, count: u32) -> Self {
        let size = size.max(1);
        Self { size, count: count.clamp(1, size) }
    }

    /// Number of collectors.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Position of the collector of subgroup `index`, below [`Self::count`].
    pub fn collector(&self, index: u32) -> u32 {
        let (least, longer) = (self.size / self.count, self.size % self.count);
        index * least + index.min(longer)
    }

    /// Positions of subgroup `index`, the collector first.
    pub fn subgroup(&self, index: u32) -> core::ops::Range<u32> {
        self.collector(index)..self.collector(index + 1)
    }

    /// The subgroup of a position.
    pub fn subgroup_of(&self, position: u32) -> u32 {
        let (least, longer) = (self.size / self.count, self.size % self.count);
        let in_longer = longer * (least + 1);
        if position < in_longer {
            position / (least + 1)
        } else {
            longer + (position - in_longer) / least
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgroups_cover_each_position_once_and_differ_in_size_by_at_most_one() {
        for size in 1..40 {
            for count in 0..45 {
                let co_roots = CoRoots::new(size, count);
                let mut next = 0;
                for index in 0..co_roots.count() {
                    let subgroup = co_roots.subgroup(index);
                    assert_eq!(subgroup.start, next);
                    assert!(subgroup.len() as u32 - size / co_roots.count() <= 1);
                    assert!(subgroup.clone().all(|at| co_roots.subgroup_of(at) == index));
                    next = subgroup.end;
                }
                assert_eq!(next, size);
            }
        }
    }
}
