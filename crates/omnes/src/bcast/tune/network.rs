//! The network for which measured figures are valid.

use super::super::multisend::MultiSend;
use crate::communicator::Communicator;
use crate::fnv::fnv;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A network and the ranks on it, as rank 0 sees them; figures of one are invalid for another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Version of Omnes.
    pub version: String,
    /// The machine of rank 0, as a hash.
    pub machine: String,
    /// The network's name, if `OMNES_NETWORK` gives it one.
    pub name: Option<String>,
    /// The network's address, such as `10.0.0.0/16`.
    pub prefix: String,
    /// Data bytes per packet, which follow from the MTU.
    pub payload_bytes: u16,
    /// Ranks of the job.
    pub ranks: u32,
    /// Number of nodes that the ranks are on.
    pub nodes: u32,
    /// True if some machine has more ranks than cores.
    pub is_oversubscribed: bool,
    /// True if the job multicasts, or multi-sends.
    pub has_multicast: bool,
    /// How the job multi-sends, if it does: the tree, or `auto`, and the form at rank 0.
    pub multisend: Option<String>,
}

impl Network {
    /// The network of the job, of which this process is rank 0.
    pub(super) fn of(world: &Communicator) -> Self {
        let job = world.job();
        Self {
            version: VERSION.to_owned(),
            machine: machine(),
            name: job.config.network_name.clone(),
            prefix: prefix(job.engine.peers()[world.rank() as usize].ip()),
            payload_bytes: job.engine.payload_bytes(),
            ranks: world.size(),
            nodes: world.nodes().count(),
            is_oversubscribed: job.engine.is_oversubscribed(),
            has_multicast: world.has_multicast(),
            multisend: world.multisend().map(|usage| match job.config.multisend {
                // The tree follows from the figures, so it cannot be part of their key.
                MultiSend::Auto => format!("auto:{}", usage.form()),
                _ => usage.brief(),
            }),
        }
    }

    /// True if this version of Omnes has measured the figures.
    pub(super) fn is_of_this_version(&self) -> bool {
        self.version == VERSION
    }

    /// True if rank 0 was on this machine.
    pub(super) fn is_of_this_machine(&self) -> bool {
        self.machine == machine()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, ranks, nodes, payload_bytes, .. } = self;
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        write!(f, "{prefix}, {ranks} ranks on {nodes} nodes, {payload_bytes} bytes per packet")?;
        f.write_str(if self.is_oversubscribed { ", more ranks than cores" } else { "" })?;
        match &self.multisend {
            Some(multisend) => write!(f, ", multi-send by {multisend}"),
            None if self.has_multicast => f.write_str(", multicast"),
            None => f.write_str(", no multicast"),
        }
    }
}

/// Prefix of the network of `own`; `own` itself if no interface has this address.
fn prefix(own: IpAddr) -> String {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let length = interfaces.iter().find(|it| it.ip() == own).map(|it| match &it.addr {
        if_addrs::IfAddr::V4(v4) => v4.prefixlen,
        if_addrs::IfAddr::V6(v6) => v6.prefixlen,
    });
    match length {
        Some(length) => format!("{}/{length}", masked(own, length)),
        None => own.to_string(),
    }
}

/// `address` with all bits cleared after the first `length`.
pub(crate) fn masked(address: IpAddr, length: u8) -> IpAddr {
    let drop = |bits: u32| bits.saturating_sub(u32::from(length));
    match address {
        IpAddr::V4(v4) => {
            let kept = u32::MAX.checked_shl(drop(32)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & kept).into())
        }
        IpAddr::V6(v6) => {
            let kept = u128::MAX.checked_shl(drop(128)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & kept).into())
        }
    }
}

/// A name of this machine that does not reveal its identity.
fn machine() -> String {
    let identity = std::fs::read("/etc/machine-id").unwrap_or_default();
    format!("{:016x}", fnv(identity))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn network_prefixes_have_no_host_bits() {
        let masked = |text: &str, length| masked(text.parse().unwrap(), length).to_string();
        assert_eq!(masked("10.77.3.9", 16), "10.77.0.0");
        assert_eq!(masked("10.77.3.9", 32), "10.77.3.9");
        assert_eq!(masked("10.77.3.9", 0), "0.0.0.0");
        assert_eq!(masked("fd77::1:2", 64), "fd77::");
        assert_eq!(masked("fd77::1:2", 0), "::");
        assert_eq!(prefix("127.0.0.1".parse().unwrap()), "127.0.0.0/8");
        assert_eq!(prefix("192.0.2.77".parse().unwrap()), "192.0.2.77");
    }

    #[test]
    fn machine_name_is_stable() {
        assert_eq!(machine(), machine());
        assert_eq!(machine().len(), 16);
    }
}
