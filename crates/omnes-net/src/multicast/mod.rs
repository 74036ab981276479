//! IP multicast: one group per job, which all of its nodes hear and all ranks send to [BC-R2].
//!
//! Two sockets. The *receiver* is bound to the group's address and port, so it receives nothing
//! else; several ranks of a host share the port. The *sender* is bound to this rank's own address
//! and connected to the group, so that no route is looked up per packet. Both are used in the same
//! way as the sockets of peers ([`crate::links`]), with GSO and GRO.
//!
//! A rank's own packets do not return unless ranks of the job share this host, and then the kernel
//! drops them before they take space in the receiver ([`filter`]), as it does with packets of
//! strangers.
//!
//! Of the ranks of a host the lowest joins, on behalf of all; when it is gone, the next one does.
//! Switches that snoop on IGMP forget members that no querier asks, and then forward nothing to
//! them; so the membership is renewed every [`RENEWAL_INTERVAL`] [linux-datapath A.8]. Leaving and
//! joining again makes the kernel report it, but only if no other socket of the host is a member.
//! (With IGMPv3 the kernel cancels the leave before it is sent, with IGMPv2 the join follows
//! immediately.) Packets that a rank misses in between are repaired.
//!
//! Joining and *hearing* are different. The kernel copies each packet of the group to every socket
//! of the host that hears it, and wakes the threads that sleep there. So the member hears, and of
//! the other ranks only those that lead their node in a communicator that multicasts: they let the
//! kernel deliver packets of groups that other sockets of the host have joined
//! (`IP_MULTICAST_ALL`), the remaining ranks do not. A kernel that lacks this option, which IPv6
//! has since Linux 4.20, lets all ranks hear.
//!
//! No error here can fail a job: a rank that cannot set multicast up reports the reason
//! ([`MulticastState::Off`]), and the ranks agree to do without. Whether packets *arrive* is not
//! known here: the probe of the crate `omnes` finds out.
//!
//! Cost: two descriptors per rank, one membership per host; two system calls per renewal.

mod address;
mod filter;
#[cfg(test)]
mod tests;

use crate::socket::{Offloads, UdpSocket};
use omnes_proto::broadcast::BroadcastConfig;
use omnes_wire::{CommunicatorId, Instant, JobId, Rank};
use socket2::{InterfaceIndexOrAddress, Socket};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;
use thiserror::Error;

/// Time between two reports of the membership. Switches forget members after 260 s at the earliest
/// (RFC 3376, section 8.4), so that one report may be lost.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(100);
/// Time after which a failed renewal is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Longest delay of an acknowledgement: all receivers owe one, and if they share cores, each one
/// costs a turn of a rank that others may be waiting for.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// How a rank uses multicast; the same on all ranks, except for `broadcast`.
#[derive(Clone, Debug)]
pub struct MulticastConfig {
    /// Whether to use multicast if it works.
    pub wanted: bool,
    /// The group's address. `None`: derived from the job's number.
    pub group: Option<IpAddr>,
    /// The group's UDP port. `None`: derived from the job's number.
    pub port: Option<u16>,
    /// Routers that packets may cross, plus one; 0 keeps them on this host. At most 255.
    pub ttl: u32,
    /// Settings of the broadcast machine; payload, window, credits and the cost of repairs are set
    /// to what the network and the machines allow.
    pub broadcast: BroadcastConfig,
}

impl Default for MulticastConfig {
    fn default() -> Self {
        let broadcast = BroadcastConfig { ack_delay: ACK_DELAY, ..BroadcastConfig::default() };
        Self { wanted: true, group: None, port: None, ttl: 1, broadcast }
    }
}

/// Whether this rank can use multicast, as far as it can tell by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MulticastState {
    /// The rank cannot or must not use multicast.
    Off {
        /// The reason, as text.
        reason: String,
    },
    /// The rank has joined the job's group.
    On {
        /// The group.
        group: SocketAddr,
        /// The interface that its packets go through.
        interface: String,
    },
}

/// Why this rank has no multicast.
#[derive(Debug, Error)]
pub(crate) enum NoMulticast {
    #[error("switched off")]
    Unwanted,
    #[error("there is only one rank")]
    Alone,
    #[error("{group} is not a multicast address")]
    NotMulticast { group: IpAddr },
    #[error("{group} is of another IP version than this rank's address {own}")]
    OtherFamily { group: IpAddr, own: IpAddr },
    #[error("cannot list the interfaces: {source}")]
    Interfaces { source: io::Error },
    #[error("no interface has this rank's address {own}")]
    NoInterface { own: IpAddr },
    #[error("{what} {group} through {interface}: {source}")]
    System { what: &'static str, group: SocketAddr, interface: String, source: io::Error },
}

/// Parameters of a group.
pub(crate) struct Plan<'a> {
    pub(crate) config: &'a MulticastConfig,
    pub(crate) job: JobId,
    pub(crate) me: Rank,
    /// This rank's own address.
    pub(crate) own: IpAddr,
    /// Addresses of all ranks, in order of ranks.
    pub(crate) peers: &'a [SocketAddr],
    pub(crate) offloads: Offloads,
    /// Requested size of socket buffers in bytes.
    pub(crate) buffer_bytes: usize,
}

/// A group that this rank has joined.
pub(crate) struct Group {
    pub(crate) receiver: UdpSocket,
    pub(crate) sender: UdpSocket,
    pub(crate) membership: Membership,
}

/// A reason to hear the group for a rank that has not joined it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum HeardFor {
    /// Broadcasts of a communicator.
    Broadcasts(CommunicatorId),
    /// Barriers of a group, whose end is multicast to all ranks.
    Barriers(CommunicatorId),
}

/// This host's membership in the group, as far as this rank maintains it; ends automatically with
/// the socket.
pub(crate) struct Membership {
    group: SocketAddr,
    interface: address::Interface,
    /// Lower ranks of this host that still exist; the lowest is the member.
    seniors: Vec<Rank>,
    /// Reasons for this rank to hear the group, whether it is the member or not.
    heard_for: BTreeSet<HeardFor>,
    renewed_until: Instant,
}

impl Plan<'_> {
    /// Joins the group.
    pub(crate) fn join(&self) -> Result<Group, NoMulticast> {
        if !self.config.wanted {
            return Err(NoMulticast::Unwanted);
        }
        if self.peers.len() < 2 {
            return Err(NoMulticast::Alone);
        }
        let group = address::group(self.job, self.own, self.config)?;
        let interface = address::interface_of(self.own)?;
        let renewed_until = Instant::ZERO + RENEWAL_INTERVAL;
        let seniors = self.seniors();
        let heard_for = BTreeSet::new();
        let membership = Membership { group, interface, seniors, heard_for, renewed_until };
        let failed = |what| {
            let interface = membership.interface.name.clone();
            move |source| NoMulticast::System { what, group, interface, source }
        };
        let receiver = self.receiver(&membership).map_err(failed("cannot join"))?;
        let sender = self.sender(&membership).map_err(failed("cannot send to"))?;
        Ok(Group { receiver, sender, membership })
    }

    fn receiver(&self, membership: &Membership) -> io::Result<UdpSocket> {
        let socket = UdpSocket::open(membership.group)?;
        socket.set_reuse_address(true)?;
        // Without the filter packets of strangers cost more; the tag still rejects them.
        let _ = filter::attach(&socket, self.job, self.me);
        socket.bind(&membership.address().into())?;
        membership.hear_others(&socket);
        if membership.seniors.is_empty() {
            membership.join(&socket)?;
        }
        self.finish(socket)
    }

    fn sender(&self, membership: &Membership) -> io::Result<UdpSocket> {
        let socket = UdpSocket::open(membership.group)?;
        socket.bind(&SocketAddr::new(self.own, 0).into())?;
        let is_heard_here = self.shares_host(&membership.interface);
        match self.own {
            IpAddr::V4(own) => {
                socket.set_multicast_if_v4(&own)?;
                socket.set_multicast_ttl_v4(self.config.ttl)?;
                socket.set_multicast_loop_v4(is_heard_here)?;
            }
            IpAddr::V6(_) => {
                socket.set_multicast_if_v6(membership.interface.index)?;
                socket.set_multicast_hops_v6(self.config.ttl)?;
                socket.set_multicast_loop_v6(is_heard_here)?;
            }
        }
        socket.connect(&membership.address().into())?;
        self.finish(socket)
    }

    fn finish(&self, socket: Socket) -> io::Result<UdpSocket> {
        let mut socket = UdpSocket::new(socket, self.buffer_bytes)?;
        socket.restrict(self.offloads);
        Ok(socket)
    }

    /// Lower ranks with the same address as this one.
    fn seniors(&self) -> Vec<Rank> {
        let lower = (0..).zip(self.peers).take(self.me.index());
        lower.filter(|(_, peer)| peer.ip() == self.own).map(|(rank, _)| Rank(rank)).collect()
    }

    /// True if another rank has an address of this host.
    fn shares_host(&self, interface: &address::Interface) -> bool {
        let is_here = |(rank, peer): (usize, &SocketAddr)| {
            let ip = peer.ip();
            rank != self.me.index() && (ip.is_loopback() || interface.host.contains(&ip))
        };
        self.peers.iter().enumerate().any(is_here)
    }
}

impl Membership {
    /// The group, with the interface if the address alone does not determine it.
    fn address(&self) -> SocketAddr {
        match self.group {
            SocketAddr::V4(_) => self.group,
            SocketAddr::V6(group) => {
                SocketAddrV6::new(*group.ip(), group.port(), 0, self.interface.index).into()
            }
        }
    }

    fn join(&self, socket: &Socket) -> io::Result<()> {
        let index = self.interface.index;
        match self.group.ip() {
            IpAddr::V4(group) => {
                socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
            }
            IpAddr::V6(group) => socket.join_multicast_v6(&group, index),
        }
    }

    /// Called when this rank leads its node in a communicator that multicasts from now on.
    pub(crate) fn hear_for(&mut self, reason: HeardFor, receiver: &UdpSocket) {
        self.heard_for.insert(reason);
        self.hear_others(receiver.options());
    }

    /// Called when no more packets are expected for this reason.
    pub(crate) fn forget(&mut self, reason: HeardFor, receiver: &UdpSocket) {
        if self.heard_for.remove(&reason) {
            self.hear_others(receiver.options());
        }
    }

    /// Receives packets of groups that other sockets of the host have joined, if and only if there
    /// is a reason to hear them.
    fn hear_others(&self, socket: &Socket) {
        let is_wanted = !self.heard_for.is_empty();
        // A kernel without this option lets every rank hear everything.
        let _ = match self.group {
            SocketAddr::V4(_) => socket.set_multicast_all_v4(is_wanted),
            SocketAddr::V6(_) => socket.set_multicast_all_v6(is_wanted),
        };
    }

    /// Leaves the group. No packets arrive any more when all ranks of the host have left.
    pub(crate) fn leave(&self, receiver: &UdpSocket) -> io::Result<()> {
        let index = self.interface.index;
        let socket = receiver.options();
        match self.group.ip() {
            IpAddr::V4(group) => {
                socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
            }
            IpAddr::V6(group) => socket.leave_multicast_v6(&group, index),
        }
    }

    /// Renews the report of the membership if that is due.
    pub(crate) fn renew(&mut self, now: Instant, receiver: &UdpSocket) {
        if now < self.renewed_until {
            return;
        }
        let mut wait = RENEWAL_INTERVAL;
        if self.seniors.is_empty() {
            // There is no membership yet if the previous member has just gone, or if joining
            // failed.
            let _ = self.leave(receiver);
            if self.join(receiver.options()).is_err() {
                wait = RETRY_INTERVAL;
            }
        }
        self.renewed_until = now + wait;
    }

    /// Called when a rank has failed or left: this one may be the lowest of its host from now on.
    pub(crate) fn on_gone(&mut self, now: Instant, rank: Rank, receiver: &UdpSocket) {
        let before = self.seniors.len();
        self.seniors.retain(|senior| *senior != rank);
        if self.seniors.is_empty() && before > 0 {
            self.renewed_until = now;
            self.renew(now, receiver);
        }
    }

    pub(crate) fn state(&self) -> MulticastState {
        MulticastState::On { group: self.group, interface: self.interface.name.clone() }
    }
}
