//! Maximum throughput of a network under up*/down* and with in-transit buffers.
//!
//! The load is raised by half until, twice, more packets are in flight at the end than there are
//! hosts; two more loads lie below the first of these. The most that was delivered at any load
//! counts as throughput, since a wormhole network delivers less in overload.
//! Conditions: irregular networks as [`IrregularOptions::eight_ports`], packets of 512 bytes,
//! one fixed route per pair of hosts, drawn from the shortest; interfaces at the costs that the
//! earlier studies assumed ([`Interface::ESTIMATED`]), or those that were measured.
//! Validation only: nothing here was calibrated. Wires are general knowledge about Myrinet.
//! Not done: several routes per pair in turn, the best root, other patterns of traffic.

use omnes_topo::network::{IrregularOptions, Network, NetworkError};

use super::config::{Interface, Wires};
use super::routes::{Routes, Scheme};
use super::traffic::{Afterwards, Outcome, Setting, Traffic, run};
use crate::engine::Span;

/// Payload of a packet in all studies of throughput, in bytes.
pub const PAYLOAD_BYTES: u32 = 512;
const WARM_UP: Span = Span::from_ns(60_000);
const COUNTED: Span = Span::from_ns(160_000);
/// First load, in bytes per microsecond and switch; below the saturation of any of the networks.
const LOAD_FIRST: f64 = 10.0;
const LOAD_FACTOR: f64 = 1.5;
/// Loads between the last two, as factors of the lower one: even steps.
const BETWEEN: [f64; 2] = [1.1447, 1.3104];
/// Loads above saturation: small networks still deliver more at the second one.
const OVERLOADS: u32 = 2;
/// A host's link carries at most 160 bytes per microsecond, so no load needs more raises.
const RAISES_MAX: usize = 12;

/// Maximum throughput of one network under each scheme.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Saturation {
    /// Switches of the network.
    pub switches: u32,
    /// Seed of network, routes and load.
    pub seed: u64,
    /// Bytes per microsecond and switch under up*/down*.
    pub up_down: f64,
    /// The same on minimal routes with in-transit buffers.
    pub in_transit: f64,
}

impl Saturation {
    /// Ratio of the throughput with in-transit buffers to that under up*/down*.
    pub fn ratio(&self) -> f64 {
        self.in_transit / self.up_down
    }
}

/// A point of the curve of a network: load, delivery and latency.
pub fn load_point(setting: Setting<'_>, load: f64, seed: u64) -> Outcome {
    let hosts_per_switch =
        f64::from(setting.network.hosts()) / f64::from(setting.network.switches());
    let interval_ns = f64::from(PAYLOAD_BYTES) * hosts_per_switch / load * 1e3;
    let traffic = Traffic {
        payload_bytes: PAYLOAD_BYTES,
        interval: Span::from_ns_rounded(interval_ns),
        warm_up: WARM_UP,
        counted: COUNTED,
        seed,
        afterwards: Afterwards::Stop,
    };
    run(setting, traffic)
}

/// The points of a network's curve up to saturation, in ascending order of load.
pub fn sweep(setting: Setting<'_>, seed: u64) -> Vec<Outcome> {
    let (mut load, mut points, mut overloads) = (LOAD_FIRST, Vec::new(), 0);
    for _ in 0..RAISES_MAX {
        let outcome = load_point(setting, load, seed);
        let is_overload = outcome.left > u64::from(setting.network.hosts());
        if is_overload && overloads == 0 {
            let last_good = load / LOAD_FACTOR;
            points.extend(BETWEEN.map(|factor| load_point(setting, last_good * factor, seed)));
        }
        points.push(outcome);
        overloads += u32::from(is_overload);
        if overloads == OVERLOADS {
            break;
        }
        load *= LOAD_FACTOR;
    }
    points
}

/// The curve of one random network under one scheme.
///
/// Errors if no such network can be drawn.
pub fn curve(
    switches: u32,
    seed: u64,
    scheme: Scheme,
    interface: Interface,
) -> Result<Vec<Outcome>, NetworkError> {
    let network = Network::irregular(IrregularOptions::eight_ports(switches), seed)?;
    let routes = Routes::drawn(&network, scheme, seed)?;
    let setting = Setting { network: &network, routes: &routes, wires: Wires::MYRINET, interface };
    Ok(sweep(setting, seed))
}

/// Both schemes on one random network.
///
/// Errors as [`curve`].
pub fn compare(switches: u32, seed: u64, interface: Interface) -> Result<Saturation, NetworkError> {
    let most = |scheme| {
        let points = curve(switches, seed, scheme, interface)?;
        Ok(points.iter().map(|point| point.accepted).fold(0.0, f64::max))
    };
    let (up_down, in_transit) = (most(Scheme::UpDown)?, most(Scheme::InTransit)?);
    Ok(Saturation { switches, seed, up_down, in_transit })
}
