//! Only packets of the member's own sockets enter a slot's barriers, and not those of another
//! socket that claims the same address.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod agent_rig;
mod common;

use agent_rig::{Member, Served, wait_done};
use common::group::{rank, socket_address};
use common::hosts::{Host, address, network, settings};
use common::packets::step;
use omnes_nic::{Kernel, Page};
use rustix::net::sockopt::socket_cookie;
use socket2::{MsgHdr, SockRef};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// The step by which member 0 of 2 enters a barrier.
fn doorbell(epoch: u32) -> Vec<u8> {
    step(rank(0), rank(1), epoch, 0)
}

/// A socket at the port of member 0, but at another address of its host.
fn forger(host: &Host) -> UdpSocket {
    let other = address(900);
    host.command(&format!("ip {}", settings(other, "eth0")[0]));
    host.inside(|| UdpSocket::bind((other, socket_address(0).port())).unwrap())
}

/// Sends to member 1, as if from member 0: any user may do so with an address of the host.
fn forge(socket: &UdpSocket, packet: &[u8]) {
    let (level, kind, info) = match socket_address(0).ip() {
        // Any interface, and the address; a third field is not used.
        IpAddr::V4(own) => {
            (libc::IPPROTO_IP, libc::IP_PKTINFO, [&[0; 4], &own.octets()[..], &[0; 4]].concat())
        }
        IpAddr::V6(own) => {
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, [&own.octets()[..], &[0; 4]].concat())
        }
    };
    let head_bytes = size_of::<usize>() + 8;
    let length = (head_bytes + info.len()).to_ne_bytes();
    let mut control =
        [&length[..], &level.to_ne_bytes()[..], &kind.to_ne_bytes()[..], &info[..]].concat();
    control.resize(control.len().next_multiple_of(size_of::<usize>()), 0);
    let (to, parts) = (socket_address(1).into(), [IoSlice::new(packet)]);
    let message = MsgHdr::new().with_addr(&to).with_buffers(&parts).with_control(&control);
    assert_eq!(SockRef::from(socket).sendmsg(&message, 0).unwrap(), packet.len());
}

/// A second socket at the address of `first`, which sends only to `to`.
fn beside(host: &Host, first: &UdpSocket, to: SocketAddr) -> UdpSocket {
    let address = first.local_addr().unwrap();
    host.inside(|| {
        let second = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        );
        let (first, second) = (SockRef::from(first), second.unwrap());
        second.set_reuse_port(true).unwrap();
        first.set_reuse_port(true).unwrap();
        second.bind(&address.into()).unwrap();
        first.set_reuse_port(false).unwrap();
        second.connect(&to.into()).unwrap();
        common::group::leave_checksum_out(&second.try_clone().unwrap().into());
        second.into()
    })
}

#[test]
fn barriers_are_entered_by_the_members_own_sockets_alone() {
    let Some(hosts) = network(2) else { return };
    let agents = [Served::usual(&hosts[0]), Served::usual(&hosts[1])];
    let mut members = [Member::new(&hosts[0], 0, 2), Member::new(&hosts[1], 1, 2)];
    let [named, unnamed] = [0, 1].map(|_| beside(&hosts[0], &members[0].socket, socket_address(1)));
    members[0].plan.doorbell = Some(socket_cookie(&named).unwrap());
    let lent = [0, 1].map(|at: usize| {
        let Member { plan, socket, .. } = &members[at];
        agents[at].client().lend(plan, socket.as_fd(), None).unwrap()
    });
    let forger = forger(&hosts[0]);
    for epoch in 1..=4 {
        // A packet that leaves through another socket is an ordinary packet.
        forge(&forger, &doorbell(epoch));
        unnamed.send(&doorbell(epoch)).unwrap();
        assert_eq!(lent[0].page().entered(), epoch - 1);
        match epoch % 2 {
            0 => members[0].enter(epoch),
            _ => assert_eq!(named.send(&doorbell(epoch)).unwrap(), doorbell(epoch).len()),
        }
        assert_eq!(lent[0].page().entered(), epoch);
        members[1].enter(epoch);
        lent.iter().for_each(|lent| wait_done(lent.page(), epoch));
    }
}

/// Shows that only its socket keeps the forged packet out of the slot of
/// [the test above](barriers_are_entered_by_the_members_own_sockets_alone).
#[test]
fn forged_doorbell_differs_only_in_its_socket() {
    let Some(hosts) = network(2) else { return };
    let Member { plan, .. } = Member::new(&hosts[0], 0, 2);
    let interface = hosts[0].interface();
    let (_kernel, page) = hosts[0].inside(|| {
        let kernel = Kernel::load().unwrap();
        kernel.attach(interface).unwrap();
        let slot = kernel.open(&plan, interface, None).unwrap();
        let page = Page::map(kernel.page(slot).unwrap().as_fd()).unwrap();
        (kernel, page)
    });
    forge(&forger(&hosts[0]), &doorbell(1));
    assert_eq!(page.entered(), 1);
}
