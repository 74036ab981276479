//! Shapes of networks, as typed.

use omnes_topo::network::{LinkId, Network, NetworkError, Node};
use std::fmt;
use std::str::FromStr;

/// Default number of ports of a fat tree's switches: that of a present-day switch chip.
const RADIX: u32 = 64;

/// The shape of a network, for any number of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    /// One switch.
    Single,
    /// The smallest fat tree of full bisection, with switches of this many ports.
    FatTree {
        /// Number of ports of a switch.
        radix: u32,
    },
    /// The smallest balanced dragonfly.
    Dragonfly,
}

impl NetworkKind {
    /// Builds the network for this many hosts.
    ///
    /// # Errors
    /// [`NetworkError`] if no such network has this many hosts.
    pub fn build(self, hosts: u32) -> Result<Network, NetworkError> {
        match self {
            Self::Single => Network::single_switch(hosts),
            Self::FatTree { radix } => Network::fat_tree(hosts, radix),
            Self::Dragonfly => Network::dragonfly(hosts),
        }
    }
}

impl FromStr for NetworkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` must be single, fat-tree, fat-tree=RADIX or dragonfly");
        Ok(match text.split_once('=') {
            None if text == "single" => Self::Single,
            None if text == "fat-tree" => Self::FatTree { radix: RADIX },
            None if text == "dragonfly" => Self::Dragonfly,
            Some(("fat-tree", radix)) => {
                Self::FatTree { radix: radix.parse().map_err(|_| wrong())? }
            }
            _ => return Err(wrong()),
        })
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => f.pad("single"),
            Self::FatTree { radix } => f.pad(&format!("fat-tree={radix}")),
            Self::Dragonfly => f.pad("dragonfly"),
        }
    }
}

/// Names of links: `h3>s0` from host 3 to switch 0, `s0>s4` between switches.
pub struct LinkNames {
    network: Network,
}

impl LinkNames {
    /// Names for the links of a network.
    ///
    /// # Errors
    /// [`NetworkError`] if no such network has this many hosts.
    pub fn new(kind: NetworkKind, hosts: u32) -> Result<Self, NetworkError> {
        Ok(Self { network: kind.build(hosts)? })
    }

    /// Name of an existing link.
    pub fn name(&self, link: u32) -> String {
        let place = |node| match node {
            Node::Host(host) => format!("h{}", host.0),
            Node::Switch(switch) => format!("s{}", switch.0),
        };
        let (from, to) = self.network.link(LinkId(link));
        format!("{}>{}", place(from), place(to))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn links_are_named_by_their_endpoints() {
        let names = LinkNames::new(NetworkKind::Single, 4).unwrap();
        assert_eq!((names.name(6), names.name(7)), ("h3>s0".into(), "s0>h3".into()));
    }

    #[test]
    fn network_kinds_round_trip_and_are_built() {
        for (text, switches) in [("single", 1), ("fat-tree=4", 20), ("dragonfly", 1)] {
            let kind: NetworkKind = text.parse().unwrap();
            assert_eq!(kind.to_string(), text);
            let network = kind.build(16).unwrap();
            assert_eq!(network.hosts(), 16);
            assert!(network.switches() >= switches, "{text}");
        }
        assert!("torus".parse::<NetworkKind>().unwrap_err().contains("dragonfly"));
        assert!("fat-tree=".parse::<NetworkKind>().is_err());
    }
}
