//! Forwarding of packets to all: of every kind and channel, once, with the hops of unicast.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::group::{self, GROUP, multisend_plan, rank, socket_address};
use common::hosts::{Host, network, settings};
use common::packets::{self, Way, cast, frame};
use omnes_nic::{Kernel, Page, TestPacket, TestRun};
use omnes_wire::{ChannelId, Flags, Header, Kind, Rank};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

/// The verdict on packets that continue.
const NEXT: i32 = -1;
/// A packet that takes longer does not arrive.
const PATIENCE: Duration = Duration::from_secs(20);

/// Member 0 of three in a chain: packets to all from member 2 arrive at it and go on to member 1.
struct Middle {
    host: Host,
    kernel: Kernel,
    page: Page,
}

impl Middle {
    /// With the firmware at several interfaces; the last one is the slot's.
    fn at(host: &Host, interfaces: &[&str]) -> Self {
        let interfaces = interfaces.iter().map(|name| host.interface_named(name));
        let interfaces: Vec<u32> = interfaces.collect();
        let (kernel, page) = host.inside(|| {
            let kernel = Kernel::load().unwrap();
            interfaces.iter().for_each(|interface| kernel.attach(*interface).unwrap());
            let plan = multisend_plan(0, 3, "chain", false);
            let slot = kernel.open(&plan, *interfaces.last().unwrap(), None).unwrap();
            let page = Page::map(kernel.page(slot).unwrap().as_fd()).unwrap();
            (kernel, page)
        });
        Self { host: host.clone(), kernel, page }
    }

    fn run(&self, program: &str, way: Way, payload: &[u8]) -> TestRun {
        let Self { host, kernel, .. } = self;
        let bytes = &frame(way, payload);
        let packet = TestPacket { bytes, interface: host.interface(), ..Default::default() };
        host.inside(|| kernel.test_run_with(program, packet, 1).unwrap())
    }
}

#[test]
fn packets_to_all_are_forwarded_for_every_kind_and_channel() {
    let Some(hosts) = network(1) else { return };
    let middle = Middle::at(&hosts[0], &["eth0"]);
    let (from, to) = (socket_address(2), socket_address(0));
    let way = Way { mac_from: [2; 6], mac_to: hosts[0].mac(), from, to };
    let kinds = [Kind::Cast, Kind::CastCoded, Kind::Hello];
    for (before, kind) in (0..).zip(kinds) {
        let channel = ChannelId(7 * before as u8);
        let header = packets::header(kind, rank(2), 1, 0);
        let header = Header { channel, flags: Flags::GROUP, ..header };
        let packet = packets::tagged(&header, Rank::ALL, &[1; 60], 0);
        assert_eq!(middle.run("nic_ingress", way, &packet).verdict, NEXT, "{kind:?}");
        assert_eq!(middle.page.counters().clones, before + 1, "{kind:?}");
        assert_eq!((middle.page.arrived_for_all(), middle.page.sent_to_all()), (before + 1, 0));
    }
    assert_eq!(middle.page.counters().bad_tags, 0);
}

#[test]
fn copies_from_the_source_have_the_unicast_ttl() {
    let Some(hosts) = network(1) else { return };
    let middle = Middle::at(&hosts[0], &["eth0"]);
    let way = Way { mac_from: [2; 6], mac_to: [4; 6], from: socket_address(0), to: GROUP };
    let packet = cast(rank(0), 1, false, b"to all");
    assert_ne!(frame(way, &packet)[packets::TTL], 64);
    let run = middle.run("nic_egress", way, &packet);
    assert_eq!(packets::to(&run.bytes), socket_address(1));
    assert_eq!(run.bytes[packets::TTL], 64);
    assert_eq!(packets::ip_sum(&run.bytes), 0xffff);
    assert_eq!((middle.page.sent_to_all(), middle.page.arrived_for_all()), (1, 0));
}

/// The next packet.
fn receive(socket: &UdpSocket) -> Vec<u8> {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 2048];
    let bytes = socket.recv(&mut buffer).unwrap();
    buffer[..bytes].to_vec()
}

#[test]
fn packet_to_all_passing_two_hooks_is_forwarded_once() {
    let Some(hosts) = network(3) else { return };
    let host = &hosts[0];
    // With the MAC address of the lower interface, so that the packet is the host's at both.
    host.command("ip link add link eth0 name own0 type macvlan mode passthru");
    host.command("ip addr flush dev eth0");
    host.command("ip link set own0 up");
    settings(host.address, "own0").iter().for_each(|line| host.command(&format!("ip {line}")));
    let middle = Middle::at(host, &["eth0", "own0"]);
    let [own, child, source] = [0, 1, 2].map(|at| group::socket(&hosts[at], at, true));
    for seq in 1..=3 {
        let packet = cast(rank(2), seq, false, b"once");
        source.send_to(&packet, socket_address(0)).unwrap();
        // The packet has then passed both hooks.
        assert_eq!(receive(&own), packet);
        assert_eq!(receive(&child), packet);
        let Middle { page, .. } = &middle;
        assert_eq!(
            (page.arrived_for_all(), page.counters().clones),
            (u64::from(seq), u64::from(seq))
        );
    }
}
