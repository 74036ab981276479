//! What a model is made of.

use crate::testbed::Testbed;
use omnes_topo::Tree;
use omnes_topo::network::Network;

/// Who passes on what goes to all, where no switch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cloning {
    /// The NIC, as the packet comes in.
    Nic,
    /// The host.
    Host,
}

/// How a packet to all gets there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// Switches copy it.
    Multicast,
    /// Multi-send along a tree.
    MultiSend {
        /// Who sends to whom.
        tree: Tree,
        /// Who passes on.
        cloning: Cloning,
    },
}

/// See the module header.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Costs.
    pub testbed: Testbed,
    /// Switches and links.
    pub network: Network,
    /// Ranks; rank `r` is on host `r`.
    pub ranks: u32,
    /// What all randomness follows from.
    pub seed: u64,
    /// Packets in a million that are lost on a host's link, each by itself.
    pub loss_ppm: u32,
    /// How a packet to all gets there.
    pub carrier: Carrier,
}
