//! Multi-send: a rank sends packets to all ranks to its children in a tree, each of which forwards
//! them to its own children [MS-R7, R15].
//!
//! Multi-send replaces a multicast group below the broadcast machine: packets to all ranks are the
//! same for every rank, so copies differ in their addresses only. Order, repair and credits are
//! handled by that machine, from the root to each receiver. So forwarding never waits: a packet
//! that finds no space is lost and repaired. No cycle of ranks that wait for each other can arise
//! [MS-R12, R21].
//!
//! Multi-send has two forms, which may differ from rank to rank. In the kernel NIC, the host sends
//! a packet once, to its first child, and the firmware clones it to the others; incoming packets
//! are forwarded before the host sees them. In user space, the socket sends the same memory to each
//! child in turn, and the host forwards the packets that it reads, train by train, once the tag of
//! a train's first packet has been checked. A rank whose slot is gone, or is bypassed by packets,
//! continues in user space, without notifying other ranks.

use omnes_nic::OpenSlot;
use omnes_wire::{COMMUNICATOR_OFFSET, CommunicatorId, Rank, SOURCE_OFFSET};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A slot is blind if it has seen none of [`BLIND_TRAINS`] trains, and none of as many again after
/// this time: some trains may precede the slot, or still wait for the address of a neighbour.
const BLIND_TRAINS: u32 = 32;
const BLIND_AFTER: Duration = Duration::from_millis(100);

/// Parameters of a communicator's multi-send.
pub struct MultiSendPlan {
    /// The communicator.
    pub communicator: CommunicatorId,
    /// Its ranks by node, as ranks in the job; the first of each node receives for it.
    pub nodes: Vec<Vec<Rank>>,
    /// The tree over the nodes.
    pub tree: omnes_topo::TreeTable,
    /// This rank's node among them.
    pub own: u32,
    /// The kernel NIC's slot that clones for this rank.
    pub slot: Option<OpenSlot>,
    /// True if the kernel NIC also forwards incoming packets.
    pub slot_forwards: bool,
}

/// A communicator's multi-send, as seen by this rank.
pub(crate) struct MultiSend {
    communicator: CommunicatorId,
    tree: omnes_topo::TreeTable,
    own: Rank,
    /// Address at which each node receives.
    addresses: Vec<SocketAddr>,
    /// Node of each rank of the job, if it has one here.
    node_of: Vec<Option<u32>>,
    cloner: Option<Cloner>,
}

/// A slot of the kernel NIC that clones for this rank.
struct Cloner {
    slot: OpenSlot,
    /// It also forwards incoming packets.
    forwards: bool,
    /// Separate for outgoing and incoming packets: either may bypass the firmware without the
    /// other.
    outward: Sight,
    inward: Sight,
}

impl Cloner {
    fn new(slot: OpenSlot, forwards: bool) -> Self {
        Self { slot, forwards, outward: Sight::default(), inward: Sight::default() }
    }

    fn is_of_use(&self) -> bool {
        !self.outward.is_blind && !self.inward.is_blind
    }

    /// Records a sent train that must be cloned.
    fn on_sent(&mut self) {
        self.outward.on_train(|| self.slot.page().sent_to_all(), Instant::now);
    }

    /// Records a received train that must be cloned.
    fn on_arrived(&mut self) {
        self.inward.on_train(|| self.slot.page().arrived_for_all(), Instant::now);
    }
}

/// Whether the firmware sees the trains that it must copy.
#[derive(Default)]
struct Sight {
    /// Trains since `seen` was read, or since the wait began.
    trains: u32,
    /// Trains that the firmware had seen by then.
    seen: u64,
    /// Time at which the first of them were found unseen.
    unseen_since: Option<Instant>,
    is_blind: bool,
}

impl Sight {
    fn on_train(&mut self, seen: impl Fn() -> u64, now: impl Fn() -> Instant) {
        self.trains += 1;
        if self.trains < BLIND_TRAINS {
            return;
        }
        let seen = seen();
        if std::mem::replace(&mut self.seen, seen) != seen {
            (self.trains, self.unseen_since) = (0, None);
            return;
        }
        let now = now();
        match self.unseen_since {
            None => self.unseen_since = Some(now),
            Some(since) if now.duration_since(since) >= BLIND_AFTER => self.is_blind = true,
            // Only trains after that time count.
            Some(_) => {}
        }
        self.trains = 0;
    }
}

impl MultiSend {
    /// Creates the multi-send of a plan; `address` returns the address at which a rank receives.
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

    /// The slot of the kernel NIC, if one clones.
    pub(crate) fn slot(&self) -> Option<&OpenSlot> {
        self.cloner.as_ref().map(|cloner| &cloner.slot)
    }

    /// Uses a slot of the kernel NIC from now on, which clones, and also forwards incoming packets
    /// if `forwards`. Packets that arrived before and are not read yet are lost then, and repaired.
    /// Returns the previous slot.
    pub(crate) fn give_slot(&mut self, slot: OpenSlot, forwards: bool) -> Option<OpenSlot> {
        let before = self.cloner.replace(Cloner::new(slot, forwards));
        before.map(|cloner| cloner.slot)
    }

    /// Takes the slot if it is gone, for instance with its agent, or blind: multi-send continues in
    /// user space.
    pub(crate) fn take_useless_slot(&mut self) -> Option<OpenSlot> {
        let is_useless = |cloner: &mut Cloner| !cloner.is_of_use() || cloner.slot.is_lost();
        self.cloner.take_if(is_useless).map(|cloner| cloner.slot)
    }

    /// Addresses to which this rank sends a train for all ranks.
    pub(crate) fn targets(&mut self, me: Rank) -> impl Iterator<Item = SocketAddr> + '_ {
        let is_copied = self.cloner.is_some() && self.children(me).nth(1).is_some();
        let most = match &mut self.cloner {
            Some(cloner) if cloner.is_of_use() => {
                if is_copied {
                    cloner.on_sent();
                }
                // The firmware sends to the others.
                1
            }
            _ => usize::MAX,
        };
        self.children(me).take(most)
    }

    /// Addresses to which this host forwards a train that `source` has sent to all ranks.
    pub(crate) fn forward_targets(
        &mut self,
        source: Rank,
    ) -> impl Iterator<Item = SocketAddr> + '_ {
        let is_copied = self.cloner.is_some() && self.children(source).next().is_some();
        let most = match &mut self.cloner {
            Some(cloner) if cloner.forwards && cloner.is_of_use() => {
                if is_copied {
                    cloner.on_arrived();
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

    /// Sends `trains` trains while the firmware has seen `seen`, at `ms` milliseconds after
    /// `start`.
    fn watch(sight: &mut Sight, trains: u32, seen: u64, start: Instant, ms: u64) -> bool {
        for _ in 0..trains {
            sight.on_train(|| seen, || start + Duration::from_millis(ms));
        }
        sight.is_blind
    }

    #[test]
    fn slot_that_sees_no_trains_for_long_is_blind() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        assert!(!watch(&mut sight, 10 * BLIND_TRAINS, 0, start, 0));
        assert!(!watch(&mut sight, BLIND_TRAINS, 0, start, 99));
        assert!(!watch(&mut sight, BLIND_TRAINS - 1, 0, start, 100));
        assert!(watch(&mut sight, 1, 0, start, 100));
    }

    #[test]
    fn slot_that_sees_occasional_trains_is_not_blind() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        for round in 0..100 {
            // Trains that arrived before the slot are not seen, later ones are.
            assert!(!watch(&mut sight, BLIND_TRAINS + 10, 50 * round, start, 500 * round));
            for seen in 1..=50 {
                assert!(!watch(&mut sight, 1, 50 * round + seen, start, 500 * round + 200));
            }
        }
    }

    #[test]
    fn train_count_restarts_after_a_pause() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        // A link was down: the first train after that waits for a neighbour's address.
        assert!(!watch(&mut sight, BLIND_TRAINS, 0, start, 0));
        assert!(!watch(&mut sight, 1, 0, start, 10_000));
        assert!(!watch(&mut sight, BLIND_TRAINS, 2, start, 10_001));
    }
}
