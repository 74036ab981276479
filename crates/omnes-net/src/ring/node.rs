//! Which ranks are on one node: those that run on one kernel, in one network namespace, as one
//! user.
//!
//! The namespace counts because the hosts of a lab are namespaces of one kernel, and so are
//! containers with addresses of their own: they are meant to communicate through their network as
//! hosts do. The user counts because ranks hand each other memory.

use crate::boot::boot_id;
use crate::peer_user::own_user;
use omnes_wire::JobKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

/// Identifies a node: a hash that is the same for all ranks of a node and differs between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeId(u64);

/// File that identifies the network namespace of the calling thread.
const NETWORK: &str = "/proc/thread-self/ns/net";
/// Not a secret: it only serves to hash a few numbers.
const HASH: JobKey = JobKey::new(*b"omnes node names");

impl NodeId {
    /// The node that the calling thread runs on; `None` if the kernel does not report it.
    pub fn this() -> Option<Self> {
        let mut name = boot_id()?.to_vec();
        let network = std::fs::metadata(NETWORK).ok()?;
        for number in [network.dev(), network.ino(), u64::from(own_user())] {
            name.extend(number.to_be_bytes());
        }
        Some(Self(HASH.answer(&name)))
    }

    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Ranks of each node, given the node of each rank, in order of ranks. A rank without a node
    /// forms one by itself. Nodes are in order of their first ranks, so all ranks compute the same.
    pub fn groups(nodes: &[Option<Self>]) -> Vec<Vec<u32>> {
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut known = BTreeMap::new();
        for (rank, node) in (0..).zip(nodes) {
            let next = groups.len();
            let place = node.map_or(next, |node| *known.entry(node.0).or_insert(next));
            match groups.get_mut(place) {
                Some(group) => group.push(rank),
                None => groups.push(vec![rank]),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_id_is_available_and_stable() {
        assert!(NodeId::this().is_some());
        assert_eq!(NodeId::this(), NodeId::this());
    }

    #[test]
    fn ranks_are_grouped_by_node_in_order() {
        let (first, second) = (Some(NodeId(1)), Some(NodeId(2)));
        assert_eq!(
            NodeId::groups(&[first, second, None, first, None, second]),
            [vec![0, 3], vec![1, 5], vec![2], vec![4]]
        );
        assert!(NodeId::groups(&[]).is_empty());
    }

    #[test]
    fn another_network_namespace_is_another_node() {
        let here = NodeId::this();
        let there = std::thread::spawn(|| {
            use rustix::thread::{UnshareFlags, unshare_unsafe};
            // SAFETY: the namespace of this thread alone changes, and the thread ends.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.ok().map(|()| NodeId::this())
        });
        match there.join() {
            Ok(Some(there)) => assert!(there.is_some() && there != here),
            _ => eprintln!("skipped: needs the right to make a network namespace"),
        }
    }
}
