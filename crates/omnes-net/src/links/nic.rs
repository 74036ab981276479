//! The NIC's sockets: one for steps of barriers, without UDP checksums, because the tag covers
//! every byte of a step and the kernel NIC would have to correct the checksum of each; one for
//! multi-send ([`crate::multisend`]), which replaces the group if there is no multicast; and one
//! that only notifies this rank's own NIC ([`crate::doorbell`]).

use super::{Links, SOCKET_BUFFER_BYTES};
use crate::doorbell::{self, Doorbell};
use crate::error::NetError;
use crate::multisend::MultiSend;
use crate::socket::{Offloads, Received, TRAINS_PER_CALL, Train, UdpSocket};
use arrayvec::ArrayVec;
use omnes_nic::OpenSlot;
use omnes_wire::{CommunicatorId, Rank};
use std::net::SocketAddr;

/// Requested buffer of the socket for steps, which only receives wake-ups, in bytes.
const NIC_BUFFER_BYTES: usize = 64 << 10;

/// The NIC's sockets.
pub(super) struct NicLink {
    pub(super) steps: usize,
    pub(super) multisend: usize,
    pub(super) doorbell: Option<Doorbell>,
    /// Addresses of all ranks, in order of ranks; empty until the ranks have exchanged them.
    pub(super) peers: Vec<NicAddresses>,
    /// Packets to all ranks go by multi-send.
    pub(super) has_multisend: bool,
    pub(super) multisends: Vec<MultiSend>,
}

/// Addresses of packets for a rank's NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicAddresses {
    /// Steps of barriers.
    pub steps: SocketAddr,
    /// Packets to all ranks.
    pub multisend: SocketAddr,
}

impl Links {
    /// Opens the NIC's sockets.
    pub(crate) fn open_nic(&mut self, offloads: Offloads) -> Result<(), NetError> {
        let failed = |what| move |source| NetError::System { what, source };
        let address = self.own_address().map_err(failed("local address"))?;
        let open = |source| NetError::Socket { address, source };
        let steps = UdpSocket::bind_unchecked(address, NIC_BUFFER_BYTES).map_err(open)?;
        let mut multisend = UdpSocket::bind(address, SOCKET_BUFFER_BYTES).map_err(open)?;
        multisend.restrict(offloads);
        let first = self.sockets.len();
        self.sockets.extend([steps, multisend]);
        self.nic = Some(NicLink {
            steps: first,
            multisend: first + 1,
            doorbell: None,
            peers: Vec::new(),
            has_multisend: false,
            multisends: Vec::new(),
        });
        Ok(())
    }

    /// Opens the doorbell, if there is a NIC; after all other sockets.
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

    /// The socket of the doorbell.
    pub(crate) fn doorbell_socket(&self) -> Option<&UdpSocket> {
        let doorbell = self.nic.as_ref()?.doorbell.as_ref()?;
        Some(&self.sockets[doorbell.index])
    }

    /// A rank of the host to which packets for this rank's own NIC are addressed.
    pub(crate) fn doorbells_lead_to(&self) -> Option<Rank> {
        let nic = self.nic.as_ref()?;
        match &nic.doorbell {
            Some(doorbell) => Some(doorbell.leads_to()),
            None => doorbell::first_of_another_host(self.own_address().ok()?, &self.peers, &[]),
        }
    }

    /// The NIC's socket for multi-send.
    pub(crate) fn multisend_socket(&self) -> Option<&UdpSocket> {
        self.nic.as_ref().map(|nic| &self.sockets[nic.multisend])
    }

    /// Ports of this rank's NIC sockets, for steps and for multi-send; 0 if there are none.
    pub(crate) fn nic_ports(&self) -> (u16, u16) {
        let port = |socket: Option<&UdpSocket>| {
            let address = socket.and_then(|socket| socket.local_address().ok());
            address.map_or(0, |address| address.port())
        };
        (port(self.steps_socket()), port(self.multisend_socket()))
    }

    /// Sets the ports of all ranks' NIC sockets, in order of ranks.
    pub(crate) fn set_nic_ports(&mut self, ports: &[(u16, u16)]) {
        let Some(nic) = &mut self.nic else { return };
        let addresses = |(peer, (steps, multisend)): (&SocketAddr, &(u16, u16))| NicAddresses {
            steps: SocketAddr::new(peer.ip(), *steps),
            multisend: SocketAddr::new(peer.ip(), *multisend),
        };
        nic.peers = self.peers.iter().zip(ports).map(addresses).collect();
    }

    /// Addresses of each rank's NIC, in order of ranks; empty before they are known.
    pub(crate) fn nics(&self) -> &[NicAddresses] {
        self.nic.as_ref().map_or(&[], |nic| &nic.peers)
    }

    /// Sends packets to all ranks by multi-send from now on, for communicators that have one.
    pub(crate) fn use_multisend(&mut self) {
        if let Some(nic) = &mut self.nic {
            nic.has_multisend = true;
        }
    }

    /// True if packets to all ranks go by multi-send.
    pub(crate) fn has_multisend(&self) -> bool {
        self.nic.as_ref().is_some_and(|nic| nic.has_multisend)
    }

    /// Adds the multi-send of a communicator.
    pub(crate) fn add_multisend(&mut self, multisend: MultiSend) {
        if let Some(nic) = &mut self.nic {
            nic.multisends.push(multisend);
        }
    }

    /// Removes the multi-send of a communicator.
    pub(crate) fn remove_multisend(&mut self, communicator: CommunicatorId) -> Option<MultiSend> {
        let multisends = &mut self.nic.as_mut()?.multisends;
        let place =
            multisends.iter().position(|multisend| multisend.communicator() == communicator)?;
        Some(multisends.swap_remove(place))
    }

    /// The multi-send of a communicator.
    pub(crate) fn multisend_mut(&mut self, communicator: CommunicatorId) -> Option<&mut MultiSend> {
        let multisends = &mut self.nic.as_mut()?.multisends;
        multisends.iter_mut().find(|multisend| multisend.communicator() == communicator)
    }

    /// Slots of the kernel NIC that clone packets.
    pub(crate) fn multisend_slots(&self) -> impl Iterator<Item = &OpenSlot> {
        let multisends = self.nic.iter().flat_map(|nic| &nic.multisends);
        multisends.filter_map(MultiSend::slot)
    }

    /// Takes slots for multi-send that are gone or blind: multi-send continues in user space. One
    /// system call for each slot.
    pub(crate) fn take_useless_slots(&mut self) -> impl Iterator<Item = OpenSlot> {
        let multisends = self.nic.iter_mut().flat_map(|nic| &mut nic.multisends);
        multisends.filter_map(MultiSend::take_useless_slot)
    }

    /// True if this rank must forward packets from another rank to all ranks that arrived at this
    /// socket.
    pub(crate) fn passes_on(&self, socket: usize) -> bool {
        self.nic.as_ref().is_some_and(|nic| nic.has_multisend && nic.multisend == socket)
    }

    /// Forwards a train that arrived by multi-send and is in `parts`, to the targets of this host;
    /// `names` are its communicator and source. Packets that find no space are lost.
    pub(crate) fn pass_on(
        &mut self,
        names: Option<(CommunicatorId, Rank)>,
        train: Received,
        parts: &mut [libc::iovec],
    ) {
        let (Some(nic), Some((communicator, source))) = (&mut self.nic, names) else { return };
        let of = nic.multisends.iter_mut().find(|it| it.communicator() == communicator);
        let Some(multisend) = of else { return };
        let packet_bytes = train.packet_bytes;
        let train = Train {
            to: None,
            multisend: None,
            parts: (0, parts.len()),
            packets: train.bytes.div_ceil(packet_bytes.max(1)),
            packet_bytes,
        };
        let mut trains =
            multisend.forward_targets(source).map(|to| Train { to: Some(to), ..train });
        loop {
            let batch: ArrayVec<Train, TRAINS_PER_CALL> =
                trains.by_ref().take(TRAINS_PER_CALL).collect();
            if batch.is_empty() {
                return;
            }
            self.sockets[nic.multisend].send(&batch, parts);
        }
    }
}
