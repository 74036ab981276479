//! The network's part of a barrier at a leader: run by the firmware, either in its native form here
//! or by the kernel NIC, of which this side sees a page.

use super::group::has_reached;
use super::interface::{NicView, Runner};
use omnes_firmware::barrier::{Action, Barrier, Contribution, Table, Verdict};
use omnes_topo::{BarrierAlgorithm, Party};
use omnes_wire::Words;

/// See the module header. Members are identified by the index of their node.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) table: Table,
    pub(super) side: Side,
}

/// What runs the network's part.
#[derive(Debug)]
pub(super) enum Side {
    /// This machine.
    Host {
        /// State of the barrier.
        barrier: Barrier,
        /// Newest barrier of which a message has arrived, by sending node.
        stepped: Stepped,
    },
    /// The kernel NIC.
    Nic {
        /// What the page shows of the barrier in progress, once the NIC has seen the doorbell.
        view: Option<NicView>,
    },
}

/// Newest barrier of which a message has arrived, for each node that sends to this one.
#[derive(Debug)]
pub(super) struct Stepped {
    /// The sending nodes, ascending; empty if all nodes send.
    nodes: Vec<u32>,
    epochs: Vec<u32>,
}

impl Stepped {
    /// State after barrier `epoch`, without later messages.
    fn new(table: &Table, epoch: u32) -> Self {
        let mut nodes = Vec::new();
        for step in 0..table.steps() {
            match table.receive_from(step) {
                Party::Nobody => {}
                Party::Rank(node) => nodes.push(node.0),
                Party::Everybody => {
                    return Self { nodes: Vec::new(), epochs: vec![epoch; table.size() as usize] };
                }
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        nodes.shrink_to_fit();
        Self { epochs: vec![epoch; nodes.len()], nodes }
    }

    fn find(&self, node: u32) -> Option<usize> {
        if self.nodes.is_empty() {
            return Some(node as usize);
        }
        self.nodes.binary_search(&node).ok()
    }

    fn set(&mut self, node: u32, epoch: u32) {
        if let Some(entry) = self.find(node).and_then(|at| self.epochs.get_mut(at)) {
            *entry = epoch;
        }
    }

    /// True if a message of barrier `epoch`, or of a later one, has arrived from `node`.
    fn has(&self, node: u32, epoch: u32) -> bool {
        let newest = self.find(node).and_then(|at| self.epochs.get(at));
        newest.is_some_and(|newest| has_reached(*newest, epoch))
    }
}

impl Network {
    /// Creates the part of the leader of node `own` of `nodes`, at least 2, which has completed
    /// barrier `epoch`.
    pub(super) fn new(
        algorithm: BarrierAlgorithm,
        runner: Runner,
        (own, nodes): (u32, u32),
        is_multicast: bool,
        epoch: u32,
    ) -> Self {
        let table = Table::new(algorithm, own, nodes, is_multicast);
        let table = table.expect("own is below the number of nodes");
        let side = match runner {
            Runner::Host => {
                let barrier = Barrier::after(&table, epoch);
                Side::Host { barrier, stepped: Stepped::new(&table, epoch) }
            }
            Runner::Nic => Side::Nic { view: None },
        };
        Self { table, side }
    }

    /// True if the kernel NIC runs it.
    pub(super) fn is_nic(&self) -> bool {
        matches!(self.side, Side::Nic { .. })
    }

    /// Step that a barrier begins with at this leader, which is the doorbell.
    pub(super) fn first_send(&self) -> u32 {
        self.table.first_send().expect("every member of two or more sends")
    }

    /// Begins barrier `epoch` here, with this node's contribution.
    ///
    /// # Panics
    /// If the previous barrier is not complete.
    pub(super) fn enter(&mut self, epoch: u32, own: Contribution) -> Action {
        match &mut self.side {
            Side::Host { barrier, .. } => {
                let (verdict, action) = barrier.enter(&self.table, epoch, own);
                assert!(verdict == Verdict::Taken, "barriers run one after the other");
                action
            }
            Side::Nic { view } => {
                *view = None;
                Action::default()
            }
        }
    }

    /// Accepts the message of `step` in barrier `epoch` from a node's leader, with its words; also
    /// returns whether the waiting step has changed. Only if this machine runs the barrier.
    pub(super) fn arrive(
        &mut self,
        (epoch, step): (u32, u32),
        node: u32,
        words: Words,
    ) -> (Verdict, Action, bool) {
        let Side::Host { barrier, stepped } = &mut self.side else {
            return (Verdict::Ignored, Action::default(), false);
        };
        let waited_at = barrier.waits_at();
        let (verdict, action) = barrier.arrive(&self.table, (epoch, step), node, words);
        if verdict == Verdict::Taken {
            stepped.set(node, epoch);
        }
        (verdict, action, waited_at != barrier.waits_at())
    }

    /// Results of the completed barrier, if this machine runs it.
    pub(super) fn results(&self) -> Words {
        match &self.side {
            Side::Host { barrier, .. } => barrier.results(&self.table),
            Side::Nic { .. } => Words::NONE,
        }
    }

    /// Words of the message of `step` in barrier `epoch`, which this machine sends.
    pub(super) fn carries(&self, epoch: u32, step: u32) -> Words {
        match &self.side {
            Side::Host { barrier, .. } => barrier.words(&self.table, epoch, step),
            Side::Nic { .. } => Words::NONE,
        }
    }

    /// Ends barrier `epoch`, which another member reports as complete, with these results; returns
    /// the steps that this leader has not sent, a bit each, all of which carry the results.
    pub(super) fn end(&mut self, epoch: u32, results: Words) -> u64 {
        let Side::Host { barrier, .. } = &mut self.side else { return 0 };
        let begun = barrier.waits_at().map_or(0, |at| at + 1);
        barrier.end(&self.table, epoch, results);
        let rest = (begun..self.table.steps()).filter(|step| self.sends(*step));
        rest.fold(0, |sends, step| sends | 1 << step)
    }

    fn sends(&self, step: u32) -> bool {
        self.table.send_to(step) != Party::Nobody
    }

    /// Waiting step of barrier `epoch`, and the nodes whose messages it lacks; `None` if it does
    /// not wait.
    pub(super) fn missing(&self, epoch: u32) -> Option<(u32, Vec<u32>)> {
        match &self.side {
            Side::Host { barrier, .. } => {
                let at = barrier.waits_at().filter(|_| barrier.entered() == epoch)?;
                Some((at, barrier.missing(&self.table)))
            }
            Side::Nic { view } => {
                let view = view.filter(|view| view.entered == epoch)?;
                let nodes = match self.table.receive_from(view.at) {
                    Party::Nobody => Vec::new(),
                    Party::Rank(node) => vec![node.0],
                    Party::Everybody => {
                        let (own, nodes) = (self.table.own(), self.table.size());
                        (0..nodes).filter(|it| *it != own && !has_arrived(&view, *it)).collect()
                    }
                };
                Some((view.at, nodes))
            }
        }
    }

    /// True if `step` of barrier `epoch` is waiting, and lacks the message of `node`.
    pub(super) fn is_missing(&self, epoch: u32, step: u32, node: u32) -> bool {
        let (at, has_come) = match &self.side {
            Side::Host { barrier, stepped } => {
                let at = barrier.waits_at().filter(|_| barrier.entered() == epoch);
                (at, stepped.has(node, epoch))
            }
            Side::Nic { view } => {
                let view = view.filter(|view| view.entered == epoch);
                (view.map(|view| view.at), view.is_some_and(|view| has_arrived(&view, node)))
            }
        };
        at == Some(step)
            && match self.table.receive_from(step) {
                Party::Nobody => false,
                Party::Rank(from) => from.0 == node,
                Party::Everybody => !has_come,
            }
    }

    /// Records what the kernel NIC shows of barrier `epoch`, which is not complete; returns whether
    /// the waiting step has changed.
    pub(super) fn on_view(&mut self, epoch: u32, shown: &NicView) -> bool {
        let Side::Nic { view } = &mut self.side else { return false };
        if shown.entered != epoch {
            return false;
        }
        let goes_on = view.is_none_or(|view| view.at != shown.at);
        *view = Some(*shown);
        goes_on
    }

    /// True if an arrived message of barrier `epoch` shows that all ranks of a node have entered
    /// it.
    pub(super) fn has_heard_of(&self, epoch: u32, node: u32) -> bool {
        match &self.side {
            Side::Host { stepped, .. } => stepped.has(node, epoch),
            Side::Nic { view } => {
                let Some(view) = view.filter(|view| view.entered == epoch) else { return false };
                // Steps before the waiting one are complete.
                let mut steps = 0..=view.at.min(self.table.steps());
                steps.any(|step| match self.table.receive_from(step) {
                    Party::Nobody => false,
                    Party::Rank(from) => step < view.at && from.0 == node,
                    Party::Everybody => step < view.at || has_arrived(&view, node),
                })
            }
        }
    }

    /// Determines whether this machine sends the message of `step` in barrier `epoch` again to the
    /// leader of `node`, which lacks it.
    pub(super) fn repeats(&self, epoch: u32, step: u32, node: u32) -> Verdict {
        match &self.side {
            Side::Host { barrier, .. } => barrier.repeat(&self.table, epoch, step, node),
            Side::Nic { .. } => Verdict::Ignored,
        }
    }

    /// True if `step` sends to the leader of `node`.
    pub(super) fn sends_to(&self, step: u32, node: u32) -> bool {
        match self.table.send_to(step) {
            Party::Nobody => false,
            Party::Rank(to) => to.0 == node,
            Party::Everybody => node != self.table.own(),
        }
    }
}

fn has_arrived(view: &NicView, node: u32) -> bool {
    let word = view.arrived.get(node as usize / 64);
    word.is_some_and(|word| word >> (node % 64) & 1 == 1)
}
