//! The sockets of a rank: one connected to each peer in small jobs, one for all in large ones.
//!
//! A connected socket saves a route lookup per packet at the sender and, by the kernel's early
//! demultiplexing, another at the receiver: about a seventh of a small message's way. It also
//! gives each sender a receive buffer of its own. Its price is one port per pair of ranks and
//! several places to look for packets; a waiting caller mostly knows where to look.

use crate::error::NetError;
use crate::socket::{Offloads, SocketCounters, Train, UdpSocket};
use omnes_wire::Rank;
use std::net::{IpAddr, SocketAddr};

/// Jobs of more ranks use one socket for all peers.
pub const CONNECTED_RANKS_MAX: u32 = 32;
/// Socket buffer asked for, in bytes; the kernel doubles it and counts truesize.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// See the module header.
pub(crate) struct Links {
    sockets: Vec<UdpSocket>,
    peers: Vec<SocketAddr>,
    me: Rank,
    is_connected: bool,
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
        Ok(Self { sockets, peers: Vec::new(), me, is_connected })
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

    /// Where a train for `rank` goes, and through which socket.
    pub(crate) fn route(&self, rank: Rank) -> (usize, Option<SocketAddr>) {
        let to = (!self.is_connected).then(|| self.peers[rank.index()]);
        (self.index(rank).expect("machines do not send to themselves"), to)
    }

    pub(crate) fn socket(&mut self, index: usize) -> &mut UdpSocket {
        &mut self.sockets[index]
    }

    pub(crate) fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
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

    /// Offloads that all sockets use.
    pub(crate) fn offloads(&self) -> Offloads {
        let all = |pick: fn(Offloads) -> bool| self.sockets.iter().all(|s| pick(s.offloads()));
        Offloads { gso: all(|offloads| offloads.gso), gro: all(|offloads| offloads.gro) }
    }
}
