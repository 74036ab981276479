//! The NIC's sockets: one for steps of barriers, without UDP checksums, since the tag covers every
//! byte of them and the kernel's NIC would have to mend a checksum in each; one for multi-send
//! ([`crate::spread`]), which takes the group's place where there is no multicast; and one by which
//! only this rank's own NIC is told something ([`crate::doorbell`]).

use super::{Links, SOCKET_BUFFER_BYTES};
use crate::doorbell::Doorbell;
use crate::error::NetError;
use crate::socket::{Offloads, Received, TRAINS_PER_CALL, Train, UdpSocket};
use crate::spread::Spread;
use arrayvec::ArrayVec;
use omnes_nic::OpenSlot;
use omnes_wire::{CommunicatorId, Rank};
use std::net::SocketAddr;

/// Socket buffer asked for of the socket for steps, by which only wake-ups come in, in bytes.
const NIC_BUFFER_BYTES: usize = 64 << 10;

/// The NIC's sockets.
pub(super) struct NicLink {
    pub(super) steps: usize,
    pub(super) spread: usize,
    pub(super) doorbell: Option<Doorbell>,
    /// Those of all ranks, in order of ranks; empty until they have told each other.
    pub(super) peers: Vec<NicAddresses>,
    /// Packets to all go by multi-send.
    pub(super) has_spread: bool,
    pub(super) spreads: Vec<Spread>,
}

/// Where packets for a rank's NIC go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicAddresses {
    /// Steps of barriers.
    pub steps: SocketAddr,
    /// Packets to all.
    pub spread: SocketAddr,
}

impl Links {
    /// Opens the NIC's sockets.
    pub(crate) fn open_nic(&mut self, offloads: Offloads) -> Result<(), NetError> {
        let failed = |what| move |source| NetError::System { what, source };
        let address = self.own_address().map_err(failed("local address"))?;
        let open = |source| NetError::Socket { address, source };
        let steps = UdpSocket::bind_unchecked(address, NIC_BUFFER_BYTES).map_err(open)?;
        let mut spread = UdpSocket::bind(address, SOCKET_BUFFER_BYTES).map_err(open)?;
        spread.restrict(offloads);
        let first = self.sockets.len();
        self.sockets.extend([steps, spread]);
        self.nic = Some(NicLink {
            steps: first,
            spread: first + 1,
            doorbell: None,
            peers: Vec::new(),
            has_spread: false,
            spreads: Vec::new(),
        });
        Ok(())
    }

    /// Opens the doorbell, where there is a NIC; after all other sockets.
    pub(crate) fn open_doorbell(&mut self) {
        let Some(nic) = &mut self.nic else { return };
        let opened = Doorbell::open(&self.sockets[nic.steps], &self.peers, self.sockets.len());
        if let Some((socket, doorbell)) = opened {
            self.sockets.push(socket);
            nic.doorbell = Some(doorbell);
        }
    }

    /// The NIC's socket for steps.
    pub(crate) fn steps_socket(&self) -> Option<&UdpSocket> {
        self.nic.as_ref().map(|nic| &self.sockets[nic.steps])
    }

    /// The NIC's socket for multi-send.
    pub(crate) fn spread_socket(&self) -> Option<&UdpSocket> {
        self.nic.as_ref().map(|nic| &self.sockets[nic.spread])
    }

    /// The ports of this rank's NIC sockets, for steps and for multi-send; 0 where there are none.
    pub(crate) fn nic_ports(&self) -> (u16, u16) {
        let port = |socket: Option<&UdpSocket>| {
            let address = socket.and_then(|socket| socket.local_address().ok());
            address.map_or(0, |address| address.port())
        };
        (port(self.steps_socket()), port(self.spread_socket()))
    }

    /// Makes the ports of all ranks' NIC sockets known, in order of ranks.
    pub(crate) fn know_nics(&mut self, ports: &[(u16, u16)]) {
        let Some(nic) = &mut self.nic else { return };
        let addresses = |(peer, (steps, spread)): (&SocketAddr, &(u16, u16))| NicAddresses {
            steps: SocketAddr::new(peer.ip(), *steps),
            spread: SocketAddr::new(peer.ip(), *spread),
        };
        nic.peers = self.peers.iter().zip(ports).map(addresses).collect();
    }

    /// Where packets for each rank's NIC go, in order of ranks; empty before they are known.
    pub(crate) fn nics(&self) -> &[NicAddresses] {
        self.nic.as_ref().map_or(&[], |nic| &nic.peers)
    }

    /// Packets to all go by multi-send from now on, for communicators that have one.
    pub(crate) fn use_spread(&mut self) {
        if let Some(nic) = &mut self.nic {
            nic.has_spread = true;
        }
    }

    /// True if packets to all go by multi-send.
    pub(crate) fn has_spread(&self) -> bool {
        self.nic.as_ref().is_some_and(|nic| nic.has_spread)
    }

    /// Adds the multi-send of a communicator.
    pub(crate) fn add_spread(&mut self, spread: Spread) {
        if let Some(nic) = &mut self.nic {
            nic.spreads.push(spread);
        }
    }

    /// Forgets the multi-send of a communicator.
    pub(crate) fn remove_spread(&mut self, communicator: CommunicatorId) -> Option<Spread> {
        let spreads = &mut self.nic.as_mut()?.spreads;
        let place = spreads.iter().position(|spread| spread.communicator() == communicator)?;
        Some(spreads.swap_remove(place))
    }

    /// The multi-send of a communicator, to change.
    pub(crate) fn spread_mut(&mut self, communicator: CommunicatorId) -> Option<&mut Spread> {
        let spreads = &mut self.nic.as_mut()?.spreads;
        spreads.iter_mut().find(|spread| spread.communicator() == communicator)
    }

    /// Slots of the kernel's NIC that clone.
    pub(crate) fn spread_slots(&self) -> impl Iterator<Item = &OpenSlot> {
        let spreads = self.nic.iter().flat_map(|nic| &nic.spreads);
        spreads.filter_map(Spread::slot)
    }

    /// Slots for multi-send that are gone: it goes on in user space. A system call for each slot.
    pub(crate) fn take_lost_slots(&mut self) -> impl Iterator<Item = OpenSlot> {
        let spreads = self.nic.iter_mut().flat_map(|nic| &mut nic.spreads);
        spreads.filter_map(Spread::take_lost_slot)
    }

    /// The multi-send of a communicator.
    pub(crate) fn spread(&self, communicator: CommunicatorId) -> Option<&Spread> {
        let spreads = &self.nic.as_ref()?.spreads;
        spreads.iter().find(|spread| spread.communicator() == communicator)
    }

    /// True if packets from another rank for all, which came in by this socket, must be passed on
    /// by this rank.
    pub(crate) fn passes_on(&self, socket: usize) -> bool {
        self.nic.as_ref().is_some_and(|nic| nic.has_spread && nic.spread == socket)
    }

    /// Passes a train on that came in by multi-send and lies in `parts`, to whom this host does so;
    /// `names` are its communicator and source. What finds no room is lost.
    pub(crate) fn pass_on(
        &mut self,
        names: Option<(CommunicatorId, Rank)>,
        train: Received,
        parts: &mut [libc::iovec],
    ) {
        let (Some(nic), Some((communicator, source))) = (&self.nic, names) else { return };
        let Some(spread) = nic.spreads.iter().find(|it| it.communicator() == communicator) else {
            return;
        };
        let packet_bytes = train.packet_bytes;
        let train = Train {
            to: None,
            spread: None,
            parts: (0, parts.len()),
            packets: train.bytes.div_ceil(packet_bytes.max(1)),
            packet_bytes,
        };
        let mut trains = spread.forward_targets(source).map(|to| Train { to: Some(to), ..train });
        loop {
            let batch: ArrayVec<Train, TRAINS_PER_CALL> =
                trains.by_ref().take(TRAINS_PER_CALL).collect();
            if batch.is_empty() {
                return;
            }
            self.sockets[nic.spread].send(&batch, parts);
        }
    }
}
