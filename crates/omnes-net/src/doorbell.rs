//! The socket by which a rank notifies its own NIC that it has entered a barrier.
//!
//! The kernel NIC takes the first step of a barrier on its way out, recognizes it by its source
//! address, and writes its receiver's addresses into it. So that step may as well leave by a
//! connected socket, for which no route is looked up: a socket at the same address as the one at
//! which steps arrive, connected to an address of a rank of another host from which nothing is ever
//! sent here. So no packet arrives at it.

use crate::socket::UdpSocket;
use omnes_wire::Rank;
use std::net::{IpAddr, SocketAddr};

/// See the module header.
pub(crate) struct Doorbell {
    /// Index among the rank's sockets.
    pub(crate) index: usize,
    towards: Rank,
    /// Ranks that have failed or left.
    gone: Vec<Rank>,
}

impl Doorbell {
    /// Opens a socket with the same address as `steps`, connected to the first rank of another
    /// host, and returns it with its state; it will have `index`. `None` if there is no other host,
    /// or the kernel refuses.
    pub(crate) fn open(
        steps: &UdpSocket,
        peers: &[SocketAddr],
        index: usize,
    ) -> Option<(UdpSocket, Self)> {
        let own = steps.local_address().ok()?.ip();
        let towards = first_of_another_host(own, peers, &[])?;
        let socket = steps.beside(peers[towards.index()]).ok()?;
        Some((socket, Self { index, towards, gone: Vec::new() }))
    }

    /// A rank of the host to which the socket is connected.
    pub(crate) fn leads_to(&self) -> Rank {
        self.towards
    }

    /// Called when a rank has failed or left: its host may be gone, too, and no route would lead
    /// there.
    pub(crate) fn on_gone(&mut self, rank: Rank, peers: &[SocketAddr], socket: &UdpSocket) {
        self.gone.push(rank);
        if rank != self.towards {
            return;
        }
        let Ok(own) = socket.local_address() else { return };
        if let Some(towards) = first_of_another_host(own.ip(), peers, &self.gone) {
            // If the kernel refuses, the socket stays as it is.
            let _ = socket.connect(peers[towards.index()]);
            self.towards = towards;
        }
    }
}

/// The first rank of another host that is not gone.
pub(crate) fn first_of_another_host(
    own: IpAddr,
    peers: &[SocketAddr],
    gone: &[Rank],
) -> Option<Rank> {
    let ranks = (0..).map(Rank).zip(peers);
    let mut far = ranks.filter(|(rank, peer)| peer.ip() != own && !gone.contains(rank));
    far.next().map(|(rank, _)| rank)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn packets_to_the_shared_address_arrive_at_the_step_socket() {
        let (here, there) = ("127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap());
        let mut steps = UdpSocket::bind_unchecked(here, 1 << 16).unwrap();
        let peer = UdpSocket::bind_unchecked(there, 1 << 16).unwrap();
        let peers = [steps.local_address().unwrap(), peer.local_address().unwrap()];
        let (mut bell, mut doorbell) = Doorbell::open(&steps, &peers, 2).unwrap();
        assert_eq!((doorbell.index, doorbell.towards), (2, Rank(1)));
        assert_eq!(bell.local_address().unwrap(), peers[0]);
        let from_peer = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
        from_peer.send_to(b"a step", peers[0]).unwrap();
        let mut bytes = [0u8; 16];
        let mut into = [libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 16 }];
        let mut received = Vec::new();
        assert_eq!(bell.receive(&mut into, &mut received), 0);
        assert_eq!(steps.receive(&mut into, &mut received), 1);
        assert_eq!(&bytes[..6], b"a step");
        // No other socket may use the address beside them.
        assert!(std::net::UdpSocket::bind(peers[0]).is_err());
        doorbell.on_gone(Rank(1), &peers, &bell);
        assert_eq!(doorbell.towards, Rank(1), "there is no other");
    }

    #[test]
    fn doorbell_connects_to_another_host_when_its_rank_is_gone() {
        let here = "127.0.0.1".parse().unwrap();
        let steps = UdpSocket::bind_unchecked(here, 1 << 16).unwrap();
        let peers = ["127.0.0.1:5", "127.0.0.2:5", "127.0.0.3:5"].map(|it| it.parse().unwrap());
        let (bell, mut doorbell) = Doorbell::open(&steps, &peers, 2).unwrap();
        doorbell.on_gone(Rank(2), &peers, &bell);
        assert_eq!(doorbell.towards, Rank(1));
        doorbell.on_gone(Rank(1), &peers, &bell);
        assert_eq!(doorbell.towards, Rank(1), "all are gone");
        drop(bell);
        let (bell, mut doorbell) = Doorbell::open(&steps, &peers, 2).unwrap();
        doorbell.on_gone(Rank(1), &peers, &bell);
        assert_eq!(doorbell.towards, Rank(2));
        let leads_to = bell.options().peer_addr().unwrap().as_socket();
        assert_eq!(leads_to, Some(peers[2]));
        assert!(Doorbell::open(&steps, &peers[..1], 2).is_none());
    }
}
