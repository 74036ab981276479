//! The sockets of a rank: one connected to each peer in small jobs, one for all peers in large
//! ones; if the job has several nodes, two for the NIC; and with multicast a pair for the job's
//! multicast group.
//!
//! A connected socket saves a route lookup per packet at the sender and, by the kernel's early
//! demultiplexing, another at the receiver: about a seventh of a small message's path. It also
//! gives each sender a receive buffer of its own. Its price is one port per pair of ranks and
//! several sockets to poll for packets; a waiting caller usually knows which one to poll.
//!
//! Sockets are identified by an index. Sockets that receive packets are first; the group's sender
//! and the doorbell, which receive none, are last.

mod group;
mod nic;

pub use nic::NicAddresses;

use self::group::GroupLink;
use self::nic::NicLink;
use crate::error::NetError;
use crate::multisend::names_of;
use crate::socket::{Offloads, SocketCounters, Train, UdpSocket};
use crate::table::Ports;
use omnes_nic::QueuePlan;
use omnes_proto::packet::{Destination, Head};
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

/// Jobs of more ranks use one socket for all peers.
pub const CONNECTED_RANKS_MAX: u32 = 32;
/// Requested socket buffer, in bytes; the kernel doubles it and counts truesize.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// See the module header.
pub(crate) struct Links {
    sockets: Vec<UdpSocket>,
    group: Option<GroupLink>,
    peers: Vec<SocketAddr>,
    nic: Option<NicLink>,
    me: Rank,
    is_connected: bool,
}

/// Destination of a packet, and the socket that it is sent by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) socket: usize,
    /// `None` for a connected socket, and for packets to many ranks.
    pub(crate) to: Option<SocketAddr>,
    /// The communicator whose multi-send sends the packet to many ranks.
    pub(crate) multisend: Option<CommunicatorId>,
}

impl Links {
    /// Opens the sockets of rank `me` of `size`, on `address`.
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
        Ok(Self { sockets, group: None, peers: Vec::new(), nic: None, me, is_connected })
    }

    /// Ports at which this rank receives packets of the `size` ranks.
    pub(crate) fn ports(&self, size: u32) -> Result<Ports, NetError> {
        let port = |index: usize| Ok(self.sockets[index].local_address()?.port());
        let of_rank = |rank| self.index(Rank(rank)).map_or(Ok(0), port);
        let ports: std::io::Result<Ports> = if self.is_connected {
            (0..size).map(of_rank).collect::<Result<_, _>>().map(Ports::Each)
        } else {
            port(0).map(Ports::One)
        };
        ports.map_err(|source| NetError::System { what: "local port", source })
    }

    /// Connects the sockets to the peers, whose addresses for this rank are in order of ranks.
    pub(crate) fn connect(&mut self, peers: Vec<SocketAddr>) -> Result<(), NetError> {
        if self.is_connected {
            for (rank, address) in peers.iter().enumerate() {
                if let Some(index) = self.index(Rank(rank as u32)) {
                    let (rank, address) = (Rank(rank as u32), *address);
                    let connected = self.sockets[index].connect(address);
                    connected.map_err(|source| NetError::NoRoute { rank, address, source })?;
                }
            }
        }
        self.peers = peers;
        Ok(())
    }

    /// Index of the socket for packets from and to `rank`; `None` for this rank itself.
    pub(crate) fn index(&self, rank: Rank) -> Option<usize> {
        if rank == self.me {
            return None;
        }
        let before_me = rank < self.me;
        let of_peer = if before_me { rank.index() } else { rank.index() - 1 };
        Some(if self.is_connected { of_peer } else { 0 })
    }

    /// Indices of sockets at which packets of other ranks are expected.
    pub(crate) fn expected(&self) -> impl Iterator<Item = usize> {
        let peers = (0..self.peers.len()).filter_map(|rank| self.index(Rank(rank as u32)));
        peers.chain(self.group_index())
    }

    /// Plan of a receive queue, and the indices of its sockets: those at which packets of other
    /// hosts arrive; `None` if there is no such socket.
    pub(crate) fn queue_plan(&self, job: u32) -> Option<(QueuePlan, Vec<usize>)> {
        let own = self.own_address().ok()?;
        let is_far = |rank: &usize| *rank != self.me.index() && self.peers[*rank].ip() != own;
        let far = (0..self.peers.len()).filter(is_far);
        let mut indices: Vec<usize> =
            far.filter_map(|rank| self.index(Rank(rank as u32))).collect();
        indices.dedup();
        let address = |index: &usize| self.sockets[*index].local_address().ok();
        let sockets: Vec<SocketAddr> = indices.iter().map(address).collect::<Option<_>>()?;
        let is_alone = self.peers.iter().filter(|peer| peer.ip() == own).count() == 1;
        let group = self.group.as_ref().filter(|_| is_alone).map(|group| group.receiver);
        let plan = QueuePlan { job, sockets, group: group.as_ref().and_then(address) };
        indices.extend(group);
        plan.check().is_ok().then_some((plan, indices))
    }

    /// Index of the socket at which packets to all ranks arrive: the group's, or that of
    /// multi-send.
    pub(crate) fn group_index(&self) -> Option<usize> {
        match &self.nic {
            Some(nic) if nic.has_multisend => Some(nic.multisend),
            _ => self.group.as_ref().map(|group| group.receiver),
        }
    }

    /// Called when a rank has failed or left.
    pub(crate) fn on_gone(&mut self, now: Instant, rank: Rank) {
        if let Some(doorbell) = self.nic.as_mut().and_then(|nic| nic.doorbell.as_mut()) {
            doorbell.on_gone(rank, &self.peers, &self.sockets[doorbell.index]);
        }
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = &mut group.membership {
            membership.on_gone(now, rank, &self.sockets[group.receiver]);
        }
    }

    /// Route of a packet with this head; `None` if there is no path.
    pub(crate) fn route(&self, to: Destination, head: &Head) -> Option<Route> {
        let to_one = |socket, to| Some(Route { socket, to, multisend: None });
        match to {
            Destination::Rank(rank) => {
                let to = (!self.is_connected).then(|| self.peers[rank.index()]);
                to_one(self.index(rank).expect("machines do not send to themselves"), to)
            }
            Destination::Nic { to, .. } => {
                let nic = self.nic.as_ref()?;
                to_one(nic.steps, Some(nic.peers.get(to.index())?.steps))
            }
            Destination::Doorbell { to, .. } => {
                let nic = self.nic.as_ref()?;
                match &nic.doorbell {
                    Some(doorbell) => to_one(doorbell.index, None),
                    None => to_one(nic.steps, Some(nic.peers.get(to.index())?.steps)),
                }
            }
            Destination::Group => match &self.nic {
                Some(nic) if nic.has_multisend => {
                    let multisend = Some(names_of(head.as_bytes())?.0);
                    Some(Route { socket: nic.multisend, to: None, multisend })
                }
                _ => to_one(self.group.as_ref()?.sender, None),
            },
        }
    }

    pub(crate) fn socket(&mut self, index: usize) -> &mut UdpSocket {
        &mut self.sockets[index]
    }

    /// Descriptors of all sockets, by index.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.sockets.iter().map(UdpSocket::fd).collect()
    }

    /// Number of sockets that receive packets.
    pub(crate) fn readable(&self) -> usize {
        let has_doorbell = self.nic.as_ref().is_some_and(|nic| nic.doorbell.is_some());
        self.sockets.len() - usize::from(self.group.is_some()) - usize::from(has_doorbell)
    }

    /// Receive buffer granted to a peer's socket, in bytes of truesize.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.sockets[0].receive_buffer_bytes()
    }

    /// The same for the socket at which packets to all ranks arrive, whichever that will be.
    pub(crate) fn group_buffer_bytes(&self) -> Option<usize> {
        let socket = self.group_socket().or(self.multisend_socket())?;
        Some(socket.receive_buffer_bytes())
    }

    /// Address at which packets of peers arrive.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn own_address(&self) -> std::io::Result<IpAddr> {
        Ok(self.sockets[0].local_address()?.ip())
    }

    /// Sends trains in order, each through its socket; returns how many the kernel took.
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

    /// Counters of the group's sockets alone; data sent to all ranks count once.
    pub(crate) fn group_counters(&self) -> SocketCounters {
        let mut sum = SocketCounters::default();
        if let Some(multisend) = self.multisend_socket() {
            sum.add(&multisend.counters);
        }
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

    /// Offloads that all sockets use, except those that only send single steps.
    pub(crate) fn offloads(&self) -> Offloads {
        let is_for_steps = |index: usize| {
            let doorbell = |nic: &NicLink| nic.doorbell.as_ref().map(|doorbell| doorbell.index);
            self.nic.as_ref().is_some_and(|nic| index == nic.steps || Some(index) == doorbell(nic))
        };
        let sockets = self.sockets.iter().enumerate().filter(|(index, _)| !is_for_steps(*index));
        let all = |pick: fn(Offloads) -> bool| sockets.clone().all(|(_, s)| pick(s.offloads()));
        Offloads { gso: all(|offloads| offloads.gso), gro: all(|offloads| offloads.gro) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Steps include answers that this machine gives for a group that its NIC has forgotten.
    #[test]
    fn only_packets_for_the_own_nic_leave_by_the_doorbell() {
        let offloads = Offloads { gso: false, gro: false };
        let mut links = Links::open("127.0.0.1".parse().unwrap(), Rank(0), 2, offloads).unwrap();
        let peers = ["127.0.0.1:5", "127.0.0.2:5"].map(|peer| peer.parse().unwrap());
        links.connect(peers.to_vec()).unwrap();
        links.open_nic(offloads).unwrap();
        let readable = links.readable();
        links.open_doorbell();
        links.set_nic_ports(&[(6, 7), (8, 9)]);
        assert_eq!((links.readable(), links.descriptors().len()), (readable, readable + 1));
        let (to, communicator) = (Rank(1), CommunicatorId(3));
        let route = |destination| links.route(destination, &Head::default()).unwrap();
        let Route { socket, to: address, .. } = route(Destination::Nic { to, communicator });
        assert_eq!((socket, address), (readable - 2, Some("127.0.0.2:8".parse().unwrap())));
        let Route { socket, to: address, .. } = route(Destination::Doorbell { to, communicator });
        assert_eq!((socket, address), (readable, None));
    }

    #[test]
    fn reported_offloads_ignore_the_sockets_for_steps() {
        let wanted = Offloads { gso: true, gro: true };
        let mut links = Links::open("127.0.0.1".parse().unwrap(), Rank(0), 2, wanted).unwrap();
        let peers = ["127.0.0.1:5", "127.0.0.2:5"].map(|peer| peer.parse().unwrap());
        links.connect(peers.to_vec()).unwrap();
        let of_peers = links.offloads();
        links.open_nic(wanted).unwrap();
        links.open_doorbell();
        assert_eq!(links.offloads(), of_peers);
        let unwanted = Offloads { gso: false, gro: false };
        links.open_nic(unwanted).unwrap();
        assert_eq!(links.offloads(), unwanted, "that for multi-send counts");
    }
}
