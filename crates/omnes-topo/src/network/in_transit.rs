//! Routes with in-transit buffers: minimal paths cut where up*/down* forbids the turn.
//!
//! What it is: where a minimal path turns from down to up, the packet leaves the network into a
//! host on that switch, and enters it again from there [IT-R3]. Each piece is legal by itself, so
//! the channels of all pieces have no cyclic dependence, and every pair of hosts has a minimal
//! route [IT-R6].
//!
//! ```text
//!   4 ──▶ 6 ──▶ 1    is    host of 4 ─ 4 ─ 6 ─ host of 6    then    host of 6 ─ 6 ─ 1 ─ host of 1
//! ```
//!
//! Source: [IT §1]. The host that serves at a switch is chosen by a hash, so that all hosts share
//! the work; the paper leaves the choice open. Cost: O(hops).

use alloc::vec;
use alloc::vec::Vec;

use super::draw::hashed;
use super::up_down::UpDown;
use super::{HostId, LinkId, Network, NetworkError, Node, SwitchId};

/// A path from host to host; see the module header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Each piece leads from the uplink of one host to the downlink of the next; at least one
    /// piece.
    pub pieces: Vec<Vec<LinkId>>,
}

/// The two ends of a route, and the flow that selects among possible in-transit hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The sending host.
    pub from: HostId,
    /// The receiving host, which differs from the sending one.
    pub to: HostId,
    /// Selects in-transit hosts.
    pub flow: u32,
}

impl Route {
    /// The route over `path`, a path of links between switches, in one piece.
    pub fn direct(network: &Network, ends: Ends, path: &[LinkId]) -> Self {
        let links = [network.uplink(ends.from)].into_iter().chain(path.iter().copied());
        Self { pieces: vec![links.chain([network.downlink(ends.to)]).collect()] }
    }

    /// The route over `path` with an in-transit host at each turn from down to up [IT-R3].
    ///
    /// Errors with [`NetworkError::NoHostAt`] if the switch of a turn has no host.
    pub fn split(
        network: &Network,
        labels: &UpDown,
        ends: Ends,
        path: &[LinkId],
    ) -> Result<Self, NetworkError> {
        let mut pieces = Vec::new();
        let mut piece = vec![network.uplink(ends.from)];
        for (place, link) in path.iter().copied().enumerate() {
            if place > 0 && labels.is_turn(network, path[place - 1], link) {
                let host = in_transit_host(network, link, ends.flow)?;
                piece.push(network.downlink(host));
                pieces.push(core::mem::replace(&mut piece, vec![network.uplink(host)]));
            }
            piece.push(link);
        }
        piece.push(network.downlink(ends.to));
        pieces.push(piece);
        Ok(Self { pieces })
    }

    /// Number of in-transit hosts on the route.
    pub fn in_transit(&self) -> usize {
        self.pieces.len() - 1
    }

    /// Number of links between switches on the route.
    pub fn hops(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len() - 2).sum()
    }
}

/// A host on the switch where `link` begins.
fn in_transit_host(network: &Network, link: LinkId, flow: u32) -> Result<HostId, NetworkError> {
    let switch = match network.link(link).0 {
        Node::Switch(switch) => switch,
        Node::Host(host) => network.seat(host),
    };
    let SwitchId(number) = switch;
    let count = network.hosts_of(switch).count() as u32;
    let choice = hashed(flow, number, count) as usize;
    network.hosts_of(switch).nth(choice).ok_or(NetworkError::NoHostAt { switch })
}
