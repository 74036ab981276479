//! Barriers on modelled clusters: mean latency of many in a row.
//!
//! The packets are those of the machines. In the NIC the firmware's own steps answer each other; a
//! host sends messages over channels ([`Steps::Channel`]), as GM's unicast needs queues, records
//! and acknowledgements [CB-R1], or, if the hardware does all that, the bare messages of the
//! collective machine ([`Runner::Host`]), as the tree barrier of Quadrics' library stores flags.

use omnes_proto::collective::Runner;
use omnes_sim::model::{BarrierKind, Carrier, Model, Op, Plan, Setup, Steps};
use omnes_sim::testbed::{Testbed, named};
use omnes_topo::BarrierAlgorithm;
use omnes_topo::network::Network;

/// Topology of the switches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Switches {
    /// A single switch for any number of nodes.
    One,
    /// A tree of switches with `ports` ports, for at least `nodes` nodes.
    Tree { ports: u32, nodes: u32 },
}

/// A cluster of the slides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bed {
    /// Name of the testbed.
    pub(super) testbed: &'static str,
    /// Number of nodes.
    pub(super) nodes: u32,
    pub(super) switches: Switches,
    /// How hosts run the barrier that serves as baseline.
    host_steps: Steps,
}

/// "A 32 port switch", with no further details.
pub(super) const LANAI9: Bed = Bed {
    testbed: "myrinet-lanai9",
    nodes: 16,
    switches: Switches::One,
    host_steps: Steps::Channel,
};
/// The newer Myrinet cluster.
pub(super) const LANAI_XP: Bed = Bed { testbed: "myrinet-lanaixp", nodes: 8, ..LANAI9 };
/// The Elite-16 is a tree of 8-port switches for 16 nodes, of which 8 are present.
pub(super) const ELAN3: Bed = Bed {
    testbed: "quadrics-elan3",
    nodes: 8,
    switches: Switches::Tree { ports: 8, nodes: 16 },
    host_steps: Steps::Machine(Runner::Host),
};

/// Where the barrier runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    Nic,
    Host,
}

/// Consecutive barriers in groups of up to [`FEW`] nodes, and in larger ones.
const REPEAT: (u32, u32) = (100, 5);
const FEW: u32 = 64;

impl Bed {
    /// The same cluster with other switches.
    pub(super) fn on(self, switches: Switches) -> Self {
        Self { switches, ..self }
    }

    fn network(self, nodes: u32) -> Result<Network, String> {
        let network = match self.switches {
            Switches::One => Network::single_switch(nodes),
            Switches::Tree { ports, nodes: least } => Network::fat_tree(nodes.max(least), ports),
        };
        network.map_err(|error| error.to_string())
    }

    /// Costs of the testbed.
    pub(super) fn costs(self) -> Result<Testbed, String> {
        named(self.testbed).map_err(|error| error.to_string())
    }

    /// Mean latency in us of many consecutive barriers of `nodes` nodes.
    ///
    /// Errors with a description of what is wrong with the model.
    pub(super) fn latency_us(
        self,
        by: By,
        algorithm: BarrierAlgorithm,
        nodes: u32,
    ) -> Result<f64, String> {
        self.latency_at(self.costs()?, by, algorithm, nodes)
    }

    /// The same with other costs.
    pub(super) fn latency_at(
        self,
        testbed: Testbed,
        by: By,
        algorithm: BarrierAlgorithm,
        nodes: u32,
    ) -> Result<f64, String> {
        let steps = match by {
            By::Nic => Steps::Machine(Runner::Nic),
            By::Host => self.host_steps,
        };
        let op = Op::Barrier(BarrierKind { algorithm, steps, is_multicast: false });
        let (network, carrier) = (self.network(nodes)?, Carrier::Multicast);
        let setup = Setup { testbed, network, ranks: nodes, seed: 1, loss_ppm: 0, carrier };
        let repeat = if nodes <= FEW { REPEAT.0 } else { REPEAT.1 };
        let model = Model::new(setup, Plan::new([op], repeat), false);
        let report = model.and_then(Model::run).map_err(|error| error.to_string())?;
        Ok(report.end.as_ps() as f64 / 1e6 / f64::from(repeat))
    }

    /// Ratio of the latency of the host's barrier to that of the NIC's, with all nodes.
    pub(super) fn gain(self, host: BarrierAlgorithm, nic: BarrierAlgorithm) -> Result<f64, String> {
        let host = self.latency_us(By::Host, host, self.nodes)?;
        Ok(host / self.latency_us(By::Nic, nic, self.nodes)?)
    }
}
