//! Source routes as bytes: one per switch, removed on the way.
//!
//! What it is: the head of a packet as its sender writes it, what a switch does to it, and what a
//! network interface sees of it.
//!
//! ```text
//!   ordinary     port port port | type(2) | payload
//!   in transit   port port | tag(2) | length(2) | port port port | type(2) | payload
//!                                               └─── length ───┘
//! ```
//!
//! A switch reads the leading byte as its output port and removes it [IT-R7]. An interface sees two
//! bytes of type first; for a packet in transit the type is the tag, and `length` is the number of
//! bytes of route that are left, including tags and lengths of later pieces [IT-R8]. Type and
//! length are the first four bytes, after which the interface may act [IT-R9, R11].
//! Deviation: the figure with the widths is lost; these are the smallest that fit the text.
//! Cost: one byte per switch and four per in-transit buffer.

use alloc::vec::Vec;

use super::in_transit::Route;
use super::{LinkId, Network, NetworkError, Node};

/// Bytes of the type at the end of the route.
pub const TYPE_BYTES: usize = 2;
/// Bytes of tag and length before each further piece.
pub const IN_TRANSIT_BYTES: usize = 4;
/// Bytes that a switch removes.
pub const PORT_BYTES: usize = 1;
/// The type of a packet in transit. The vendor assigns types; this one is ours.
pub const IN_TRANSIT_TAG: u16 = 0x4954;

/// What an interface knows of a packet after its first four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// For this host, of this type.
    Ordinary(u16),
    /// To be forwarded: this many bytes of route follow.
    InTransit(u16),
}

/// The head of a packet of type `kind` for `route`.
///
/// Errors with [`NetworkError::RouteTooLong`] if a port or the length does not fit its field.
pub fn encode(network: &Network, route: &Route, kind: u16) -> Result<Vec<u8>, NetworkError> {
    let mut bytes = Vec::new();
    for piece in route.pieces.iter().rev() {
        if !bytes.is_empty() {
            let value_max = u32::from(u16::MAX);
            let length = u16::try_from(bytes.len())
                .map_err(|_| NetworkError::RouteTooLong { value: bytes.len() as u32, value_max })?;
            bytes.splice(0..0, length.to_be_bytes());
            bytes.splice(0..0, IN_TRANSIT_TAG.to_be_bytes());
        }
        let ports: Result<Vec<u8>, _> =
            piece[1..].iter().map(|link| port(network, *link)).collect();
        bytes.splice(0..0, ports?);
    }
    bytes.extend(kind.to_be_bytes());
    Ok(bytes)
}

/// The number of the port that `link` leaves by.
fn port(network: &Network, link: LinkId) -> Result<u8, NetworkError> {
    let place = match network.link(link).0 {
        Node::Switch(switch) => network.ports(switch).iter().position(|port| *port == link),
        Node::Host(_) => Some(0),
    };
    let value = place.unwrap_or_default() as u32;
    let value_max = u32::from(u8::MAX);
    u8::try_from(value).map_err(|_| NetworkError::RouteTooLong { value, value_max })
}

/// Acts as a switch: the leading byte names the port, the remaining bytes go on; `None` if none is
/// left.
pub fn strip(bytes: &[u8]) -> Option<(u8, &[u8])> {
    bytes.split_first().map(|(port, rest)| (*port, rest))
}

/// What an interface knows of a packet; `None` as long as too few bytes have arrived.
pub fn arrival(bytes: &[u8]) -> Option<Arrival> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    match word(0)? {
        IN_TRANSIT_TAG => word(TYPE_BYTES).map(Arrival::InTransit),
        kind => Some(Arrival::Ordinary(kind)),
    }
}
