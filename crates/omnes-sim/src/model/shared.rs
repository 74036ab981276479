//! State shared by all ranks of a model: the plan, and the identifiers of its groups.

use super::plan::{BarrierKind, Op, Plan, Steps};
use omnes_proto::algorithm::BcastAlgorithm;
use omnes_proto::broadcast::{GroupId, Policy};
use omnes_topo::{TopoError, Tree, TreeTable};
use omnes_wire::{CommunicatorId, Rank};

/// The communicator of messages.
pub(super) const MESSAGES: CommunicatorId = CommunicatorId(1);
/// The communicator of groups for broadcasts.
const CASTS: CommunicatorId = CommunicatorId(2);
/// First communicator of groups for barriers.
const BARRIERS: u32 = 0x100;

/// State shared by all ranks of a model.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    /// Policies of the plan's broadcasts; one group per policy.
    pub(super) policies: Vec<Policy>,
    /// Kinds of the plan's barriers run by the machine; one group per kind.
    pub(super) barriers: Vec<BarrierKind>,
    /// Trees of the plan's broadcasts over channels, each built once for all ranks.
    pub(super) shapes: Vec<Shape>,
    pub(super) ranks: u32,
    pub(super) seed: u64,
}

/// A tree of all ranks, in both directions.
#[derive(Debug)]
pub(super) struct Shape {
    tree: Tree,
    down: TreeTable,
    /// The parent of each relative rank; the root is its own parent.
    up: Vec<u32>,
}

impl Shape {
    pub(super) fn new(tree: Tree, ranks: u32) -> Result<Self, TopoError> {
        let down = TreeTable::new(tree, ranks)?;
        let mut up = vec![0; ranks as usize];
        for (parent, run) in (0..).zip(down.first().windows(2)) {
            let children = &down.children()[usize::from(run[0])..usize::from(run[1])];
            children.iter().for_each(|child| up[usize::from(*child)] = parent);
        }
        Ok(Self { tree, down, up })
    }

    /// Ranks to which `rank` forwards the data of `root`, in sending order.
    pub(super) fn children(&self, rank: u32, root: u32) -> impl Iterator<Item = Rank> + '_ {
        self.down.children_of(Rank(rank), Rank(root)).into_iter().flatten()
    }

    /// The rank from which `rank` receives the data of `root`; `None` at the root.
    pub(super) fn parent(&self, rank: u32, root: u32) -> Option<Rank> {
        let ranks = self.up.len() as u32;
        let relative = (rank + ranks - root) % ranks;
        (relative != 0).then(|| Rank((self.up[relative as usize] + root) % ranks))
    }
}

/// Adds an item unless the list contains it.
fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

impl Shared {
    /// State that `ranks` ranks need for a plan.
    pub(super) fn new(plan: Plan, ranks: u32, seed: u64) -> Result<Self, TopoError> {
        let (mut policies, mut barriers, mut trees) = (Vec::new(), Vec::new(), Vec::new());
        for op in &plan.ops {
            match *op {
                Op::Bcast { algorithm: BcastAlgorithm::Multicast(policy), .. } => {
                    add(&mut policies, policy)
                }
                Op::Bcast { algorithm: BcastAlgorithm::Tree { tree, .. }, .. } => {
                    add(&mut trees, tree)
                }
                Op::Barrier(kind) if kind.steps != Steps::Channel => add(&mut barriers, kind),
                _ => {}
            }
        }
        let shapes = trees.into_iter().map(|tree| Shape::new(tree, ranks));
        let shapes = shapes.collect::<Result<_, _>>()?;
        Ok(Self { plan, policies, barriers, shapes, ranks, seed })
    }

    /// The tree of all ranks, if the plan uses it.
    pub(super) fn shape(&self, tree: Tree) -> Option<&Shape> {
        self.shapes.iter().find(|shape| shape.tree == tree)
    }

    pub(super) fn group(&self, policy: Policy) -> GroupId {
        let at = self.policies.iter().position(|other| *other == policy).unwrap_or(0);
        GroupId { communicator: CASTS, number: at as u8 }
    }

    pub(super) fn communicator(&self, kind: BarrierKind) -> CommunicatorId {
        let at = self.barriers.iter().position(|other| *other == kind).unwrap_or(0);
        CommunicatorId(BARRIERS + at as u32)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shapes_agree_with_their_trees() {
        for tree in ["binomial", "chain", "flat", "kary=3", "postal=2.5"] {
            let tree: Tree = tree.parse().unwrap();
            for (ranks, root) in [(2, 1), (9, 0), (9, 4), (64, 63)] {
                let shape = Shape::new(tree, ranks).unwrap();
                for rank in 0..ranks {
                    let (own, from) = (Rank(rank), Rank(root));
                    let children: Vec<Rank> = shape.children(rank, root).collect();
                    assert_eq!(children, tree.children(own, from, ranks).unwrap(), "{tree} {rank}");
                    assert_eq!(shape.parent(rank, root), tree.parent(own, from, ranks).unwrap());
                }
            }
        }
    }
}
