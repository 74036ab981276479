//! The sockets of a rank: one connected to each peer in small jobs, one for all in large ones, and
//! a pair for the job's multicast group where there is multicast.
//!
//! A connected socket saves a route lookup per packet at the sender and, by the kernel's early
//! demultiplexing, another at the receiver: about a seventh of a small message's way. It also
//! gives each sender a receive buffer of its own. Its price is one port per pair of ranks and
//! several places to look for packets; a waiting caller mostly knows where to look.
//!
//! Sockets are known by an index. Those that packets come in by are first; the group's sender, by
//! which none do, is last.

use crate::error::NetError;
use crate::multicast::{Group, Membership};
use crate::socket::{Offloads, SocketCounters, Train, UdpSocket};
use omnes_proto::packet::Destination;
use omnes_wire::{Instant, Rank};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

/// Jobs of more ranks use one socket for all peers.
pub const CONNECTED_RANKS_MAX: u32 = 32;
/// Socket buffer asked for, in bytes; the kernel doubles it and counts truesize.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// See the module header.
pub(crate) struct Links {
    sockets: Vec<UdpSocket>,
    group: Option<GroupLink>,
    peers: Vec<SocketAddr>,
    me: Rank,
    is_connected: bool,
}

/// The job's group, and the indices of its sockets.
struct GroupLink {
    receiver: usize,
    sender: usize,
    /// None once the rank has left the group.
    membership: Option<Membership>,
}

impl Links {
    /// The sockets of rank `me` of `size`, on `address`.
    pub(crate) fn open(
        address: IpAddr,
        me: Rank,
        size: u32,
        offloads: Offloads,
    ) -> Result<Self, NetError> {
        let is_connected = size <= CONNECTED_RANKS_MAX;
        let count = if is_connected { size.saturating_sub(1).max(1) } else { 1 };
        let mut sockets = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let socket = UdpSocket::bind(address, SOCKET_BUFFER_BYTES);
            let mut socket = socket.map_err(|source| NetError::Socket { address, source })?;
            socket.restrict(offloads);
            sockets.push(socket);
        }
        Ok(Self { sockets, group: None, peers: Vec::new(), me, is_connected })
    }

    /// The port for packets of each rank, in order of ranks; this rank's own is 0.
    pub(crate) fn ports(&self, size: u32) -> Result<Vec<u16>, NetError> {
        let port = |rank: u32| match self.index(Rank(rank)) {
            Some(index) => Ok(self.sockets[index].local_address()?.port()),
            None => Ok(0),
        };
        let ports: std::io::Result<Vec<u16>> = (0..size).map(port).collect();
        ports.map_err(|source| NetError::System { what: "local port", source })
    }

    /// Ties the sockets to the peers, whose addresses for this rank are given in order of ranks.
    pub(crate) fn connect(&mut self, peers: Vec<SocketAddr>) -> Result<(), NetError> {
        if self.is_connected {
            for (rank, address) in peers.iter().enumerate() {
                if let Some(index) = self.index(Rank(rank as u32)) {
                    let connected = self.sockets[index].connect(*address);
                    connected.map_err(|source| NetError::System { what: "connect", source })?;
                }
            }
        }
        self.peers = peers;
        Ok(())
    }

    /// The socket for packets from and to `rank`; none for this rank itself.
    pub(crate) fn index(&self, rank: Rank) -> Option<usize> {
        if rank == self.me {
            return None;
        }
        let before_me = rank < self.me;
        let of_peer = if before_me { rank.index() } else { rank.index() - 1 };
        Some(if self.is_connected { of_peer } else { 0 })
    }

    /// Adds the sockets of the job's group.
    pub(crate) fn add_group(&mut self, group: Group) {
        let Group { receiver, sender, membership } = group;
        let first = self.sockets.len();
        self.sockets.extend([receiver, sender]);
        let membership = Some(membership);
        self.group = Some(GroupLink { receiver: first, sender: first + 1, membership });
    }

    /// The socket that packets to the group come in by.
    pub(crate) fn group_index(&self) -> Option<usize> {
        self.group.as_ref().map(|group| group.receiver)
    }

    /// Reports the membership in the group again if it is time, lest switches forget it.
    pub(crate) fn renew_membership(&mut self, now: Instant) {
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = &mut group.membership {
            membership.renew(now, &self.sockets[group.receiver]);
        }
    }

    /// A rank is no more.
    pub(crate) fn on_gone(&mut self, now: Instant, rank: Rank) {
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = &mut group.membership {
            membership.on_gone(now, rank, &self.sockets[group.receiver]);
        }
    }

    /// Leaves the group: nothing comes in by it any more.
    pub(crate) fn leave_group(&mut self) {
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = group.membership.take() {
            // Not a member any more in any case.
            let _ = membership.leave(&self.sockets[group.receiver]);
        }
    }

    /// Where a train goes, and through which socket.
    pub(crate) fn route(&self, to: Destination) -> (usize, Option<SocketAddr>) {
        match to {
            Destination::Rank(rank) => {
                let to = (!self.is_connected).then(|| self.peers[rank.index()]);
                (self.index(rank).expect("machines do not send to themselves"), to)
            }
            Destination::Group => {
                let group = self.group.as_ref();
                (group.expect("only a rank with a group has a machine that uses it").sender, None)
            }
        }
    }

    pub(crate) fn socket(&mut self, index: usize) -> &mut UdpSocket {
        &mut self.sockets[index]
    }

    /// Descriptors of all sockets, by index.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.sockets.iter().map(UdpSocket::fd).collect()
    }

    /// Sockets that packets come in by.
    pub(crate) fn readable(&self) -> usize {
        self.sockets.len() - usize::from(self.group.is_some())
    }

    /// Receive buffer that was granted to a peer's socket, in bytes of truesize.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.sockets[0].receive_buffer_bytes()
    }

    /// The same of the group's socket.
    pub(crate) fn group_buffer_bytes(&self) -> Option<usize> {
        Some(self.sockets[self.group_index()?].receive_buffer_bytes())
    }

    /// The address that peers' packets come to.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn own_address(&self) -> std::io::Result<IpAddr> {
        Ok(self.sockets[0].local_address()?.ip())
    }

    /// Sends trains in order, each through its socket; how many the kernel took.
    pub(crate) fn send(
        &mut self,
        trains: &[(usize, Train)],
        parts: &mut [libc::iovec],
        batch: &mut Vec<Train>,
    ) -> usize {
        let mut done = 0;
        while done < trains.len() {
            let index = trains[done].0;
            batch.clear();
            let same = trains[done..].iter().take_while(|(other, _)| *other == index);
            batch.extend(same.map(|(_, train)| *train));
            let sent = self.sockets[index].send(batch, parts);
            done += sent;
            if sent < batch.len() {
                break;
            }
        }
        done
    }

    /// Sum over the sockets.
    pub(crate) fn counters(&self) -> SocketCounters {
        let mut sum = SocketCounters::default();
        for socket in &self.sockets {
            sum.add(&socket.counters);
        }
        sum
    }

    /// Of these, the group's: what was sent to all counts once.
    pub(crate) fn group_counters(&self) -> SocketCounters {
        let mut sum = SocketCounters::default();
        if let Some(GroupLink { receiver, sender, .. }) = self.group {
            sum.add(&self.sockets[receiver].counters);
            sum.add(&self.sockets[sender].counters);
        }
        sum
    }

    /// Packets to the group that the kernel dropped before they were read; see
    /// [`UdpSocket::dropped`].
    pub(crate) fn group_drops(&self) -> u64 {
        self.group_index().map_or(0, |index| self.sockets[index].dropped())
    }

    /// Offloads that all sockets use.
    pub(crate) fn offloads(&self) -> Offloads {
        let all = |pick: fn(Offloads) -> bool| self.sockets.iter().all(|s| pick(s.offloads()));
        Offloads { gso: all(|offloads| offloads.gso), gro: all(|offloads| offloads.gro) }
    }
}
