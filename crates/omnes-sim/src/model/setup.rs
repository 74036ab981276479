//! Parts of a model.

use crate::testbed::Testbed;
use omnes_topo::Tree;
use omnes_topo::network::Network;

/// Where packets to all are forwarded if no switch copies them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cloning {
    /// By the NIC, as the packet arrives.
    Nic,
    /// By the host.
    Host,
}

/// How a packet to all reaches its receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// Switches copy it.
    Multicast,
    /// Multi-send along a tree.
    MultiSend {
        /// The tree.
        tree: Tree,
        /// Where packets are forwarded.
        cloning: Cloning,
    },
}

/// See the module header.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Costs of hosts, NICs, links and switches.
    pub testbed: Testbed,
    /// Switches and links.
    pub network: Network,
    /// Ranks; rank `r` is on host `r`.
    pub ranks: u32,
    /// Seed of all randomness.
    pub seed: u64,
    /// Packets per million that are lost on a host's link, each independently.
    pub loss_ppm: u32,
    /// How a packet to all reaches its receivers.
    pub carrier: Carrier,
}
