//! Errors of a caller about a network.

use core::fmt;

use super::SwitchId;

/// A caller's mistake: the value given and the limit it broke.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NetworkError {
    /// No hosts or no switches; a network has at least one of each.
    Empty,
    /// A switch with this many ports cannot build the shape.
    RadixTooSmall {
        /// Ports given.
        radix: u32,
        /// Minimum number of ports.
        radix_min: u32,
    },
    /// The shape has no room for this many hosts.
    TooManyHosts {
        /// Hosts given.
        hosts: u32,
        /// Maximum number of hosts.
        hosts_max: u32,
    },
    /// Too many switches: a graph keeps a distance for each pair of them.
    TooManySwitches {
        /// Switches given.
        switches: u32,
        /// Maximum number of switches.
        switches_max: u32,
    },
    /// So many links per switch cannot be drawn without a double link or an unpaired end.
    LinksImpossible {
        /// Switches given.
        switches: u32,
        /// Links of each switch to others.
        links_per_switch: u32,
    },
    /// No connected network was found within the maximum number of tries.
    NotDrawn {
        /// Switches given.
        switches: u32,
        /// Links of each switch to others.
        links_per_switch: u32,
    },
    /// A cable ends at a switch that does not exist, or at the switch where it begins.
    BadCable {
        /// One end.
        from: SwitchId,
        /// The other.
        to: SwitchId,
    },
    /// A switch cannot be reached.
    NotConnected {
        /// The first such switch.
        switch: SwitchId,
    },
    /// A route uses a port that one byte cannot name, or is longer than a header can hold.
    RouteTooLong {
        /// The port number or length.
        value: u32,
        /// The largest that fits.
        value_max: u32,
    },
    /// An in-transit host is needed on a switch without hosts.
    NoHostAt {
        /// The switch.
        switch: SwitchId,
    },
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a network has at least 1 host and 1 switch"),
            Self::RadixTooSmall { radix, radix_min } => {
                write!(f, "radix {radix} is below the minimum {radix_min}")
            }
            Self::TooManyHosts { hosts, hosts_max } => {
                write!(f, "{hosts} hosts do not fit: the maximum is {hosts_max}")
            }
            Self::TooManySwitches { switches, switches_max } => {
                write!(f, "{switches} switches are above the maximum {switches_max}")
            }
            Self::LinksImpossible { switches, links_per_switch } => {
                write!(f, "{switches} switches cannot have {links_per_switch} single links each")
            }
            Self::NotDrawn { switches, links_per_switch } => write!(
                f,
                "no connected network of {switches} switches with {links_per_switch} links each \
                 was drawn; fewer links are drawn sooner"
            ),
            Self::BadCable { from, to } => {
                write!(f, "no cable can join switch {} and switch {}", from.0, to.0)
            }
            Self::NotConnected { switch } => {
                write!(f, "switch {} cannot be reached from switch 0", switch.0)
            }
            Self::RouteTooLong { value, value_max } => {
                write!(f, "{value} does not fit into a route: the maximum is {value_max}")
            }
            Self::NoHostAt { switch } => {
                write!(f, "switch {} has no host that could be an in-transit host", switch.0)
            }
        }
    }
}

impl core::error::Error for NetworkError {}
