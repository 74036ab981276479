//! The two tests of section 6, and the search over trees.

use super::machine::Machine;
use super::plan::Plan;
use super::world::{Forwarding, Primitive, Test, World};
use omnes_sim::engine::Span;
use omnes_topo::{Lambda, Tree, TreeTable};

/// The root sends to each of `destinations` destinations, and the last one answers [MS-R23].
#[derive(Clone, Copy, Debug)]
pub(super) struct ToEach {
    pub(super) machine: Machine,
    pub(super) destinations: u32,
    pub(super) bytes: u64,
    pub(super) iterations: u32,
}

impl ToEach {
    /// A test of one iteration.
    pub(super) fn new(machine: Machine, destinations: u32, bytes: u64) -> Self {
        Self { machine, destinations, bytes, iterations: 1 }
    }

    /// Mean time of an iteration.
    pub(super) fn time(self, primitive: Primitive) -> Span {
        let Self { machine, destinations, bytes, iterations } = self;
        answered(Test {
            machine,
            plan: &Plan::new(Tree::Flat, destinations + 1),
            bytes,
            primitive,
            forwarding: Forwarding::WholeMessage,
            replier: destinations as usize,
            iterations,
        })
    }

    /// Gain of multi-send over repeated unicast.
    pub(super) fn gain(self) -> f64 {
        ratio(self.time(Primitive::Unicast), self.time(Primitive::MultiSend))
    }
}

/// One multicast, without its tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Multicast {
    pub(super) machine: Machine,
    pub(super) nodes: u32,
    pub(super) bytes: u64,
    pub(super) primitive: Primitive,
    pub(super) forwarding: Forwarding,
}

/// The best of the trees with an integer lambda.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Best {
    /// The smallest of the equally good values.
    pub(super) lambda: u16,
    pub(super) time: Span,
}

impl Multicast {
    /// Multicast by multi-send, forwarded packet by packet.
    pub(super) fn assisted(machine: Machine, nodes: u32, bytes: u64) -> Self {
        let (primitive, forwarding) = (Primitive::MultiSend, Forwarding::Packetwise);
        Self { machine, nodes, bytes, primitive, forwarding }
    }

    /// The same by the host alone.
    #[must_use]
    pub(super) fn by_host(self) -> Self {
        Self { primitive: Primitive::Unicast, ..self }
    }

    /// The same with the message forwarded only as a whole.
    #[must_use]
    pub(super) fn not_pipelined(self) -> Self {
        Self { forwarding: Forwarding::WholeMessage, ..self }
    }

    /// Time until the worst leaf has answered [MS-R24].
    pub(super) fn time(self, plan: &Plan) -> Span {
        let Self { machine, bytes, primitive, forwarding, .. } = self;
        let answer = |replier| {
            answered(Test { machine, plan, bytes, primitive, forwarding, replier, iterations: 1 })
        };
        plan.last_leaves().into_iter().map(answer).max().unwrap_or_default()
    }

    /// Time with the binomial tree.
    pub(super) fn binomial(self) -> Span {
        self.time(&Plan::new(Tree::Binomial, self.nodes))
    }

    /// The best of all integer lambdas up to the number of nodes [MS-R20]; each tree is tried once.
    pub(super) fn best(self) -> Best {
        let mut tried: Vec<TreeTable> = Vec::new();
        let mut best = Best { lambda: 0, time: Span::from_ps(u64::MAX) };
        for lambda in 1..=self.nodes as u16 {
            let tree = Tree::Postal { lambda: Lambda::whole(lambda) };
            let table =
                TreeTable::new(tree, self.nodes).expect("postal trees of a few nodes exist");
            if tried.contains(&table) {
                continue;
            }
            let time = self.time(&Plan::of(&table));
            if time < best.time {
                best = Best { lambda, time };
            }
            tried.push(table);
        }
        best
    }

    /// Gain of the best tree by multi-send over the host's binomial tree, which forwards whole
    /// messages.
    pub(super) fn gain(self) -> f64 {
        ratio(self.by_host().not_pipelined().binomial(), self.best().time)
    }

    /// Gain over the best tree by the host, forwarded in the same way.
    pub(super) fn gain_over_best(self) -> f64 {
        ratio(self.by_host().best().time, self.best().time)
    }
}

pub(super) fn ratio(over: Span, under: Span) -> f64 {
    over.as_ps() as f64 / under.as_ps() as f64
}

fn answered(test: Test<'_>) -> Span {
    World::new(test).run().expect("with credits at hand nothing stops")
}
