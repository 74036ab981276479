//! Routes between all hosts, as the mapper writes them to the interfaces [IT-R5].

use omnes_topo::network::in_transit::{Ends, Route};
use omnes_topo::network::up_down::{Rule, Toward, UpDown};
use omnes_topo::network::{Draw, HostId, Network, NetworkError, SwitchId, header};

/// How routes are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Shortest paths permitted by up*/down*.
    UpDown,
    /// Minimal paths, through in-transit buffers where up*/down* forbids a turn.
    InTransit,
    /// Minimal paths without in-transit buffers. They can deadlock.
    Minimal,
}

/// Path from a host to the next: its links, and the bytes of its head at the start.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub links: Vec<u32>,
    pub head_bytes: u32,
}

/// A route for each ordered pair of hosts, or a given list of routes.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: u32,
    pub(super) pieces: Vec<Vec<Piece>>,
}

/// Head bytes: one route byte per switch, tag and length per further piece, and the type.
fn compiled(route: &Route) -> Vec<Piece> {
    let mut head_bytes = header::TYPE_BYTES;
    let mut pieces = Vec::with_capacity(route.pieces.len());
    for links in route.pieces.iter().rev() {
        if !pieces.is_empty() {
            head_bytes += header::IN_TRANSIT_BYTES;
        }
        head_bytes += header::PORT_BYTES * (links.len() - 1);
        let links = links.iter().map(|link| link.0).collect();
        pieces.push(Piece { links, head_bytes: head_bytes as u32 });
    }
    pieces.reverse();
    pieces
}

impl Routes {
    /// One route for each pair of hosts, drawn from the shortest of the scheme. The root of the
    /// labels is switch 0. Cost: O(hosts^2 * hops).
    ///
    /// Errors with [`NetworkError::NoHostAt`] if an in-transit host is needed where there is none.
    pub fn drawn(network: &Network, scheme: Scheme, seed: u64) -> Result<Self, NetworkError> {
        let labels = UpDown::new(network, SwitchId(0));
        let rule = match scheme {
            Scheme::UpDown => Rule::Legal(&labels),
            Scheme::InTransit | Scheme::Minimal => Rule::Minimal,
        };
        let mut draw = Draw::new(seed);
        let hosts = network.hosts();
        let mut pieces = vec![Vec::new(); (hosts * hosts) as usize];
        let switches = (0..network.switches()).map(SwitchId);
        for seat in switches.filter(|switch| network.hosts_of(*switch).count() > 0) {
            let toward = Toward::new(network, rule, seat);
            for (to, from) in
                network.hosts_of(seat).flat_map(|to| (0..hosts).map(move |from| (to, from)))
            {
                let from = HostId(from);
                let path = toward.path(network.seat(from), &mut draw);
                let ends = Ends { from, to, flow: from.0 * hosts + to.0 };
                let route = match scheme {
                    Scheme::InTransit => Route::split(network, &labels, ends, &path)?,
                    Scheme::UpDown | Scheme::Minimal => Route::direct(network, ends, &path),
                };
                pieces[(from.0 * hosts + to.0) as usize] = compiled(&route);
            }
        }
        Ok(Self { hosts, pieces })
    }

    /// Creates a table of these routes only, numbered in this order.
    pub fn given(routes: &[Route]) -> Self {
        Self { hosts: 0, pieces: routes.iter().map(compiled).collect() }
    }

    /// The number of the drawn route from `from` to `to`.
    pub(super) fn number(&self, from: u32, to: u32) -> u32 {
        from * self.hosts + to
    }

    /// Mean number of in-transit buffers per route, over pairs of different hosts.
    pub fn in_transit(&self) -> f64 {
        let turns: usize = self.pieces.iter().map(|pieces| pieces.len().saturating_sub(1)).sum();
        let pairs = self.hosts * self.hosts.saturating_sub(1);
        turns as f64 / f64::from(pairs.max(1))
    }
}
