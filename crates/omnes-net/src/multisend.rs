//! Multi-send: what a rank sends to all goes to its children in a tree, each of which passes it on
//! to its own [MS-R7, R15].
//!
//! It takes the place of a multicast group below the broadcast machine: packets to all are the same
//! for everybody, so a copy differs in its address only. Order, repair and credits are that
//! machine's, from the root to each receiver. So passing on never waits: a packet that finds no
//! room is lost and repaired. No cycle of ranks that wait for each other can arise [MS-R12, R21].
//!
//! Two forms, which may differ from rank to rank. In the kernel's NIC the host sends a packet once,
//! to its first child, and the firmware clones it to the others; what comes in is passed on before
//! the host sees it. In user space the socket sends the same memory to each child in turn, and the
//! host passes on what it reads, train by train, once the tag of a train's first packet is right.
//! A rank whose slot is gone, or copies nothing as packets pass by the firmware, goes on in user
//! space; nobody need be told.

use omnes_nic::{Counters, OpenSlot};
use omnes_wire::{COMMUNICATOR_OFFSET, CommunicatorId, Rank, SOURCE_OFFSET};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Trains of which no copy was made, and the time meanwhile, after which a slot is taken for blind:
/// some may have come before the slot, or still wait for the address of a neighbour.
const BLIND_TRAINS: u32 = 32;
const BLIND_AFTER: Duration = Duration::from_millis(100);

/// What a communicator's multi-send is to be.
pub struct MultiSendPlan {
    /// The communicator.
    pub communicator: CommunicatorId,
    /// Its ranks by node, as ranks in the job; the first of each receives for the node.
    pub nodes: Vec<Vec<Rank>>,
    /// The tree over the nodes.
    pub tree: omnes_topo::TreeTable,
    /// This rank's node among them.
    pub own: u32,
    /// The kernel's NIC clones for this rank.
    pub slot: Option<OpenSlot>,
    /// The kernel's NIC also passes on what comes in.
    pub slot_forwards: bool,
}

/// A communicator's multi-send, as this rank takes part in it.
pub(crate) struct MultiSend {
    communicator: CommunicatorId,
    tree: omnes_topo::TreeTable,
    own: Rank,
    /// Where each node receives.
    addresses: Vec<SocketAddr>,
    /// The node of each rank of the job, if it has one here.
    node_of: Vec<Option<u32>>,
    cloner: Option<Cloner>,
}

/// The kernel's NIC, which clones for this rank.
struct Cloner {
    slot: OpenSlot,
    /// It also passes on what comes in.
    forwards: bool,
    sight: Sight,
}

impl Cloner {
    fn new(slot: OpenSlot, forwards: bool) -> Self {
        Self { slot, forwards, sight: Sight::default() }
    }

    fn is_of_use(&self) -> bool {
        !self.sight.is_blind
    }

    /// A train of which there must be copies has left or come.
    fn on_train(&mut self) {
        self.sight.on_train(|| self.slot.page().counters(), Instant::now);
    }
}

/// Whether the firmware sees what it is to copy.
#[derive(Default)]
struct Sight {
    /// Trains since `copies` was asked for.
    trains: u32,
    /// Copies made, or tried in vain, by then.
    copies: u64,
    /// When trains were first found not to be copied.
    uncopied_since: Option<Instant>,
    is_blind: bool,
}

impl Sight {
    fn on_train(&mut self, counters: impl Fn() -> Counters, now: impl Fn() -> Instant) {
        self.trains += 1;
        if self.trains < BLIND_TRAINS {
            return;
        }
        let counters = counters();
        let copies = counters.clones + counters.clone_failures;
        if std::mem::replace(&mut self.copies, copies) != copies {
            (self.trains, self.uncopied_since) = (0, None);
            return;
        }
        let now = now();
        let since = *self.uncopied_since.get_or_insert(now);
        self.is_blind |= now.duration_since(since) >= BLIND_AFTER;
    }
}

impl MultiSend {
    /// `address` tells where a rank receives.
    pub(crate) fn new(
        plan: MultiSendPlan,
        address: impl Fn(Rank) -> Option<SocketAddr>,
    ) -> Option<Self> {
        let MultiSendPlan { communicator, nodes, tree, own, slot, slot_forwards } = plan;
        let addresses: Option<Vec<SocketAddr>> =
            nodes.iter().map(|node| address(*node.first()?)).collect();
        let last = nodes.iter().flatten().map(|rank| rank.index()).max()?;
        let mut node_of = vec![None; last + 1];
        for (node, ranks) in (0..).zip(&nodes) {
            for rank in ranks {
                node_of[rank.index()] = Some(node);
            }
        }
        let addresses = addresses?;
        let own = Rank(own);
        let cloner = slot.map(|slot| Cloner::new(slot, slot_forwards));
        Some(Self { communicator, tree, own, addresses, node_of, cloner })
    }

    pub(crate) fn communicator(&self) -> CommunicatorId {
        self.communicator
    }

    /// The slot of the kernel's NIC, if it clones.
    pub(crate) fn slot(&self) -> Option<&OpenSlot> {
        self.cloner.as_ref().map(|cloner| &cloner.slot)
    }

    /// From now on a slot of the kernel's NIC clones, and passes on what comes in if it is to. What
    /// came before and is not read yet is lost then, and repaired. The slot there was.
    pub(crate) fn give_slot(&mut self, slot: OpenSlot, forwards: bool) -> Option<OpenSlot> {
        let before = self.cloner.replace(Cloner::new(slot, forwards));
        before.map(|cloner| cloner.slot)
    }

    /// The slot, if it is gone, as with its agent, or blind: the rank goes on in user space.
    pub(crate) fn take_useless_slot(&mut self) -> Option<OpenSlot> {
        let is_useless = |cloner: &mut Cloner| !cloner.is_of_use() || cloner.slot.is_lost();
        self.cloner.take_if(is_useless).map(|cloner| cloner.slot)
    }

    /// Where this rank sends a train that goes to all.
    pub(crate) fn targets(&mut self, me: Rank) -> impl Iterator<Item = SocketAddr> + '_ {
        let is_copied = self.children(me).nth(1).is_some();
        let most = match &mut self.cloner {
            Some(cloner) if cloner.is_of_use() => {
                if is_copied {
                    cloner.on_train();
                }
                // The firmware sees to the others.
                1
            }
            _ => usize::MAX,
        };
        self.children(me).take(most)
    }

    /// Where this host passes a train on that `source` has sent to all.
    pub(crate) fn forward_targets(
        &mut self,
        source: Rank,
    ) -> impl Iterator<Item = SocketAddr> + '_ {
        let is_copied = self.children(source).next().is_some();
        let most = match &mut self.cloner {
            Some(cloner) if cloner.forwards && cloner.is_of_use() => {
                if is_copied {
                    cloner.on_train();
                }
                0
            }
            _ => usize::MAX,
        };
        self.children(source).take(most)
    }

    fn children(&self, source: Rank) -> impl Iterator<Item = SocketAddr> + '_ {
        let source = self.node_of.get(source.index()).copied().flatten();
        let children = source.and_then(|source| self.tree.children_of(self.own, Rank(source)).ok());
        children
            .into_iter()
            .flatten()
            .filter_map(|child| self.addresses.get(child.index()).copied())
    }
}

/// Communicator and sender of a packet, before it is parsed.
pub(crate) fn names_of(head: &[u8]) -> Option<(CommunicatorId, Rank)> {
    let communicator = head.get(COMMUNICATOR_OFFSET..)?.first_chunk()?;
    let source = head.get(SOURCE_OFFSET..)?.first_chunk()?;
    let source = Rank(u32::from(u16::from_be_bytes(*source)));
    Some((CommunicatorId(u32::from_be_bytes(*communicator)), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot that has cloned so often when the clock, in milliseconds, says so.
    fn watch(sight: &mut Sight, trains: u32, clones: u64, start: Instant, ms: u64) -> bool {
        let counters = || Counters { clones, ..Counters::default() };
        for _ in 0..trains {
            sight.on_train(counters, || start + Duration::from_millis(ms));
        }
        sight.is_blind
    }

    #[test]
    fn a_slot_that_copies_nothing_for_long_is_blind() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        assert!(!watch(&mut sight, 1000, 0, start, 0));
        assert!(!watch(&mut sight, 1000, 0, start, 99));
        assert!(watch(&mut sight, 1, 0, start, 100));
    }

    #[test]
    fn a_slot_that_copies_now_and_then_is_not_blind() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        for round in 0..100 {
            // Trains that came before the slot are not copied, those behind them are.
            assert!(!watch(&mut sight, BLIND_TRAINS + 10, round, start, 90 * round));
            assert!(!watch(&mut sight, BLIND_TRAINS + 10, round + 1, start, 90 * round + 80));
        }
    }

    #[test]
    fn few_trains_tell_nothing() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        assert!(!watch(&mut sight, BLIND_TRAINS - 1, 0, start, 10_000));
        assert!(!watch(&mut sight, 1, 0, start, 20_000));
        assert!(!watch(&mut sight, 1, 1, start, 30_000));
    }
}
