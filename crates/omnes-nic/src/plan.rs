//! What a slot or a queue has to do.

use crate::NicError;
use omnes_firmware::{KERNEL_GROUP_MAX, barrier, multisend, slot};
use omnes_topo::{BarrierAlgorithm, Tree, TreeTable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

/// Maximum number of sockets of one receive queue.
pub(crate) const QUEUE_SOCKETS_MAX: usize = 32;

/// One rank that a slot deals with.
#[derive(Clone, Serialize, Deserialize)]
pub struct MemberPlan {
    /// Its rank in the job.
    pub rank: u32,
    /// Its position in the group: the index of its node.
    pub index: u32,
    /// The key that it tags its packets with.
    pub key: [u8; 16],
}

impl fmt::Debug for MemberPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, index, key: _ } = self;
        write!(formatter, "MemberPlan {{ rank: {rank}, index: {index}, key: secret }}")
    }
}

/// What a slot has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlotPlan {
    /// The job's number.
    pub job: u32,
    /// The communicator's number.
    pub communicator: u32,
    /// The header's channel; 0 for multi-send, whose slot serves packets of any channel.
    pub channel: u8,
    /// This member's rank in the job.
    pub rank: u32,
    /// This member's index in the group.
    pub own: u32,
    /// The address of the socket that this member's packets leave from and arrive at. The others'
    /// addresses have the same version of IP.
    pub socket: SocketAddr,
    /// The cookie (`SO_COOKIE`) of a second socket that this member sends through, from the same
    /// address and port.
    pub doorbell: Option<u64>,
    /// For each index of the group: the rank that packets go to, and its socket.
    pub peers: Vec<(u32, SocketAddr)>,
    /// All ranks whose packets the slot accepts.
    pub members: Vec<MemberPlan>,
    /// The group's multicast address, if packets to all are to go there.
    pub group: Option<SocketAddr>,
    /// TTL, or hop limit, of the steps that the slot sends to the group: the number of routers that
    /// they may cross, plus one.
    pub group_ttl: u8,
    /// The barrier's algorithm in text form, if the slot runs barriers.
    pub barrier: Option<String>,
    /// The tree of packets to all in text form, if the slot forwards them.
    pub tree: Option<String>,
    /// True if the slot forwards arriving packets to the children; otherwise the host does.
    pub forwards: bool,
    /// True if packets to all that carry the group's address keep it and go to each child's MAC
    /// address; otherwise they go by unicast. Needs `group`, and a TTL that the forwarding members
    /// can decrement.
    pub by_mac: bool,
}

impl SlotPlan {
    /// Number of members of the group.
    pub fn size(&self) -> u32 {
        self.peers.len() as u32
    }

    /// The class of the packets that find the slot.
    pub fn class(&self) -> slot::Class {
        if self.barrier.is_some() { slot::Class::Steps } else { slot::Class::MultiSend }
    }

    /// Rejects a plan that the firmware cannot serve.
    ///
    /// # Errors
    /// [`NicError::Plan`].
    pub fn check(&self) -> Result<(), NicError> {
        let wrong = |what| Err(NicError::Plan { what });
        if self.peers.len() < 2 || self.peers.len() > KERNEL_GROUP_MAX {
            return wrong("the kernel NIC serves groups of 2 to 1,024 members");
        }
        if self.own >= self.size() || self.peers[self.own as usize].0 != self.rank {
            return wrong("the slot's own member is not in the group");
        }
        if self.barrier.is_some() == self.tree.is_some() {
            return wrong("a slot runs barriers or passes packets on");
        }
        if self.members.iter().any(|member| member.index >= self.size()) {
            return wrong("a member is not in the group");
        }
        let others = self.peers.iter().enumerate().filter(|(at, _)| *at != self.own as usize);
        let mut addresses = BTreeSet::from([self.socket.ip()]);
        if !others.map(|(_, peer)| peer.1.ip()).all(|ip| addresses.insert(ip)) {
            return wrong("two members of the group share an address");
        }
        let all = self.peers.iter().map(|(_, peer)| *peer).chain([self.socket]).chain(self.group);
        check_version(all)?;
        if self.group.is_some_and(|group| !group.ip().is_multicast()) {
            return wrong("the group's address is not a multicast address");
        }
        if self.by_mac && self.group.is_none() {
            return wrong("sending by MAC address needs the group's address");
        }
        Ok(())
    }

    /// This member's key.
    pub(crate) fn own_key(&self) -> Result<[u8; 16], NicError> {
        let own = self.members.iter().find(|member| member.rank == self.rank);
        own.map(|member| member.key).ok_or(NicError::Plan { what: "the slot's key is missing" })
    }

    pub(crate) fn barrier_table(&self) -> Result<barrier::Table, NicError> {
        let text = self.barrier.as_deref().unwrap_or("dissemination");
        let algorithm: BarrierAlgorithm =
            text.parse().map_err(|_| NicError::Plan { what: "no such barrier algorithm" })?;
        barrier::Table::new(algorithm, self.own, self.size(), self.group.is_some())
            .map_err(|_| NicError::Plan { what: "no such member" })
    }

    pub(crate) fn multisend_table(&self) -> Result<multisend::Table, NicError> {
        let Some(text) = &self.tree else { return Ok(multisend::Table::none()) };
        let tree: Tree = text.parse().map_err(|_| NicError::Plan { what: "no such tree" })?;
        let table = TreeTable::new(tree, self.size())
            .ok()
            .filter(|table| table.size() as usize <= KERNEL_GROUP_MAX)
            .ok_or(NicError::Plan { what: "no such tree of that size" })?;
        Ok(multisend::Table::new(&table, self.own))
    }
}

/// Rejects addresses that are not all of one version of IP, in the form that is on the wire.
fn check_version(addresses: impl IntoIterator<Item = SocketAddr>) -> Result<(), NicError> {
    let wrong = |what| Err(NicError::Plan { what });
    let mut addresses = addresses.into_iter().map(|address| address.ip());
    let Some(first) = addresses.next() else { return Ok(()) };
    for address in addresses.chain([first]) {
        if address.is_ipv6() != first.is_ipv6() {
            return wrong("addresses of IPv4 and of IPv6 are mixed");
        }
        if address.to_canonical() != address {
            return wrong("an address of IPv4 is written as one of IPv6");
        }
    }
    Ok(())
}

/// Which packets a receive queue takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueuePlan {
    /// The job's number.
    pub job: u32,
    /// The sockets that this rank's packets arrive at; all on one address.
    pub sockets: Vec<SocketAddr>,
    /// The job's multicast group, if no other rank of this host listens to it.
    pub group: Option<SocketAddr>,
}

impl QueuePlan {
    /// Rejects a plan that the firmware cannot serve.
    ///
    /// # Errors
    /// [`NicError::Plan`].
    pub fn check(&self) -> Result<(), NicError> {
        let wrong = |what| Err(NicError::Plan { what });
        let Some(first) = self.sockets.first() else {
            return wrong("a receive queue needs a socket");
        };
        if self.sockets.len() > QUEUE_SOCKETS_MAX {
            return wrong("a receive queue serves at most 32 sockets");
        }
        if self.sockets.iter().any(|socket| socket.ip() != first.ip()) {
            return wrong("the sockets of a receive queue must have one address");
        }
        check_version(self.sockets.iter().copied().chain(self.group))?;
        if self.group.is_some_and(|group| !group.ip().is_multicast()) {
            return wrong("the group's address is not a multicast address");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn mixed_and_ipv4_mapped_plan_addresses_are_rejected() {
        let plan = |sockets: &[&str], group: Option<&str>| {
            let sockets = sockets.iter().map(|socket| socket.parse().unwrap()).collect();
            QueuePlan { job: 1, sockets, group: group.map(|group| group.parse().unwrap()) }
        };
        assert!(plan(&["10.0.0.1:1", "10.0.0.1:2"], Some("239.0.0.1:3")).check().is_ok());
        assert!(plan(&["[fd00::1]:1", "[fd00::1]:2"], Some("[ff15::1]:3")).check().is_ok());
        let wrong = [
            plan(&["10.0.0.1:1"], Some("[ff15::1]:3")),
            plan(&["[fd00::1]:1"], Some("239.0.0.1:3")),
            plan(&["[::ffff:10.0.0.1]:1"], None),
        ];
        for plan in wrong {
            assert!(matches!(plan.check(), Err(NicError::Plan { .. })), "{plan:?}");
        }
    }

    fn address(index: usize) -> SocketAddr {
        SocketAddr::new([10, 0, (index / 250) as u8, (index % 250 + 1) as u8].into(), 5000)
    }

    /// The plan of member 0, whose rank is 100, of a group.
    fn plan(size: usize) -> SlotPlan {
        let rank = |index: usize| 100 + index as u32;
        let member =
            |index| MemberPlan { rank: rank(index), index: index as u32, key: [index as u8; 16] };
        SlotPlan {
            job: 1,
            communicator: 1,
            channel: 0,
            rank: rank(0),
            own: 0,
            socket: address(0),
            doorbell: None,
            peers: (0..size).map(|index| (rank(index), address(index))).collect(),
            members: (0..size).map(member).collect(),
            group: Some("239.0.0.1:3".parse().unwrap()),
            group_ttl: 1,
            barrier: None,
            tree: Some("binomial".to_owned()),
            forwards: true,
            by_mac: true,
        }
    }

    fn refusal<T: fmt::Debug>(checked: Result<T, NicError>) -> &'static str {
        match checked.unwrap_err() {
            NicError::Plan { what } => what,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn invalid_slot_plans_are_rejected_with_the_reason() {
        let wrong = |change: fn(&mut SlotPlan)| {
            let mut plan = plan(3);
            assert!(plan.check().is_ok());
            change(&mut plan);
            refusal(plan.check())
        };
        let other = "the slot's own member is not in the group";
        assert_eq!(wrong(|it| it.own = 3), other);
        assert_eq!(wrong(|it| it.own = 1), other, "another's rank");
        let purpose = "a slot runs barriers or passes packets on";
        assert_eq!(wrong(|it| it.tree = None), purpose);
        assert_eq!(wrong(|it| it.barrier = Some("counter".to_owned())), purpose);
        assert_eq!(wrong(|it| it.members[1].index = 3), "a member is not in the group");
        let shared = "two members of the group share an address";
        assert_eq!(wrong(|it| it.peers[2].1 = it.peers[1].1), shared);
        assert_eq!(wrong(|it| it.peers[2].1 = it.socket), shared);
        let mixed = "addresses of IPv4 and of IPv6 are mixed";
        assert_eq!(wrong(|it| it.peers[2].1 = "[fd00::1]:1".parse().unwrap()), mixed);
        assert_eq!(wrong(|it| it.group = Some("[ff15::1]:1".parse().unwrap())), mixed);
        let no_group = "the group's address is not a multicast address";
        assert_eq!(wrong(|it| it.group = Some(address(9))), no_group);
        assert_eq!(wrong(|it| it.group = None), "sending by MAC address needs the group's address");
        let most = KERNEL_GROUP_MAX;
        for (size, is_served) in [(1, false), (2, true), (most, true), (most + 1, false)] {
            assert_eq!(plan(size).check().is_ok(), is_served, "{size} members");
        }
        let keyless = SlotPlan { members: plan(3).members.split_off(1), ..plan(3) };
        assert_eq!(refusal(keyless.own_key()), "the slot's key is missing");
    }

    #[test]
    fn invalid_queue_plans_are_rejected_with_the_reason() {
        let plan = |count, group: Option<SocketAddr>| {
            let socket = |at: u16| SocketAddr::new(address(0).ip(), 5000 + at);
            QueuePlan { job: 1, sockets: (0..count).map(socket).collect(), group }
        };
        assert!(plan(QUEUE_SOCKETS_MAX as u16, None).check().is_ok());
        let many = plan(QUEUE_SOCKETS_MAX as u16 + 1, None);
        assert_eq!(refusal(many.check()), "a receive queue serves at most 32 sockets");
        assert_eq!(refusal(plan(0, None).check()), "a receive queue needs a socket");
        let mut apart = plan(2, None);
        apart.sockets[1] = address(1);
        let one = "the sockets of a receive queue must have one address";
        assert_eq!(refusal(apart.check()), one);
        let no_group = "the group's address is not a multicast address";
        assert_eq!(refusal(plan(1, Some(address(9))).check()), no_group);
    }

    #[test]
    fn debug_output_hides_keys() {
        let member = MemberPlan { rank: 3, index: 1, key: [0xab; 16] };
        assert_eq!(format!("{member:?}"), "MemberPlan { rank: 3, index: 1, key: secret }");
    }
}
