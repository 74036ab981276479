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

use omnes_nic::OpenSlot;
use omnes_wire::{COMMUNICATOR_OFFSET, CommunicatorId, Rank, SOURCE_OFFSET};
use std::net::SocketAddr;

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
    slot: Option<OpenSlot>,
    slot_forwards: bool,
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
        Some(Self { communicator, tree, own, addresses, node_of, slot, slot_forwards })
    }

    pub(crate) fn communicator(&self) -> CommunicatorId {
        self.communicator
    }

    /// The slot of the kernel's NIC, if it clones.
    pub(crate) fn slot(&self) -> Option<&OpenSlot> {
        self.slot.as_ref()
    }

    /// From now on a slot of the kernel's NIC clones, and passes on what comes in if it is to. What
    /// came before and is not read yet is lost then, and repaired. The slot there was.
    pub(crate) fn give_slot(&mut self, slot: OpenSlot, forwards: bool) -> Option<OpenSlot> {
        self.slot_forwards = forwards;
        self.slot.replace(slot)
    }

    /// Goes on in user space if the slot is gone, as with its agent: nobody need be told. The slot.
    pub(crate) fn take_lost_slot(&mut self) -> Option<OpenSlot> {
        let slot = self.slot.take_if(|slot| slot.is_lost())?;
        self.slot_forwards = false;
        Some(slot)
    }

    /// Where this rank sends what it sends to all.
    pub(crate) fn targets(&self, me: Rank) -> impl Iterator<Item = SocketAddr> + '_ {
        // The firmware sees to the others.
        let most = if self.slot.is_some() { 1 } else { usize::MAX };
        self.children(me).take(most)
    }

    /// Where this host passes on what `source` sends to all.
    pub(crate) fn forward_targets(&self, source: Rank) -> impl Iterator<Item = SocketAddr> + '_ {
        let most = if self.slot_forwards { 0 } else { usize::MAX };
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
