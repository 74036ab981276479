//! Multi-send between hosts: every member receives packets to all once and unharmed, with every way
//! of addressing, with and without offloads, one by one and in trains.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::IS_V6;
use common::group::{self, GROUP, multisend_plan, rank, set_option, socket_address};
use common::hosts::{Host, address, network, settings};
use common::packets::{self, FRAME_BYTES, UDP_CHECK, Way, cast, frame};
use common::sniffer::{Sniffed, Sniffer};
use omnes_nic::{Kernel, Page, SlotPlan, TestPacket};
use omnes_topo::Tree;
use omnes_wire::Rank;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// After this time without a packet none is in flight any more.
const SILENCE: Duration = Duration::from_millis(30);
/// If not a single packet arrives within this time, none will.
const PATIENCE: Duration = Duration::from_secs(3);

/// TTL of packets as they leave their source.
const TTL: u8 = 64;
/// Longest packet in UDP's count: an Ethernet frame less its headers.
const LONGEST: usize = 1514 - FRAME_BYTES;

/// A member with its host.
struct Member {
    host: Host,
    own: usize,
    kernel: Kernel,
    slot: u32,
    page: Page,
    socket: UdpSocket,
    group: UdpSocket,
}

/// What a member has received: the sender's address, and the packet.
type Received = (SocketAddr, Vec<u8>);

impl Member {
    fn new(host: &Host, own: usize, plan: &SlotPlan) -> Self {
        let interface = host.interface();
        let (kernel, slot, page) = host.inside(|| {
            let kernel = Kernel::load().unwrap();
            kernel.attach(interface).unwrap();
            let slot = kernel.open(plan, interface, None).unwrap();
            let page = Page::map(kernel.page(slot).unwrap().as_fd()).unwrap();
            (kernel, slot, page)
        });
        let group = group::group_socket(host);
        let socket = group::socket(host, own, true);
        group::send_to_groups(&socket, TTL);
        for socket in [&socket, &group] {
            socket.set_nonblocking(true).unwrap();
            set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20);
        }
        Self { host: host.clone(), own, kernel, slot, page, socket, group }
    }

    /// Returns the slot and takes another one, which knows no MAC address yet.
    fn reopen(&mut self, plan: &SlotPlan) {
        let interface = self.host.interface();
        let Self { host, kernel, slot, page, .. } = self;
        host.inside(|| {
            kernel.close(*slot);
            *slot = kernel.open(plan, interface, None).unwrap();
            *page = Page::map(kernel.page(*slot).unwrap().as_fd()).unwrap();
        });
    }

    /// Takes the packets that have arrived; true if any had.
    fn take(&self, received: &mut Vec<Received>) -> bool {
        let before = received.len();
        let mut buffer = [0; 2048];
        for socket in [&self.socket, &self.group] {
            while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
                received.push((from, buffer[..bytes].to_vec()));
            }
        }
        received.len() != before
    }

    /// Number of UDP packets that its host's kernel has dropped for their checksum.
    fn checksum_errors(&self) -> u64 {
        let text = self.host.inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
        let text = text.unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
        values.split(' ').nth(at).unwrap().parse().unwrap()
    }
}

/// What each member receives until no more packets arrive; every member except `source` should
/// receive `count` packets, which are waited for longer.
fn received_by_all(members: &[Member], source: usize, count: usize) -> Vec<Vec<Received>> {
    let mut received = vec![Vec::new(); members.len()];
    let mut last = Instant::now();
    loop {
        let mut has_news = false;
        for (member, received) in members.iter().zip(&mut received) {
            has_news |= member.take(received);
        }
        if has_news {
            last = Instant::now();
        }
        let has_all = |(own, got): (usize, &Vec<Received>)| own == source || got.len() >= count;
        let has_all = received.iter().enumerate().all(has_all);
        if last.elapsed() > if has_all { SILENCE } else { PATIENCE } {
            return received;
        }
        std::thread::yield_now();
    }
}

/// How a group sends.
#[derive(Clone, Copy, Debug)]
struct Mode {
    tree: &'static str,
    by_mac: bool,
    /// Interfaces compute checksums and cut trains.
    has_offload: bool,
}

fn members(count: usize, mode: Mode) -> Option<Vec<Member>> {
    let hosts = network(count)?;
    let plan = |own| multisend_plan(own, count, mode.tree, mode.by_mac);
    let member = |(own, host): (usize, &Host)| Member::new(host, own, &plan(own));
    let mut members: Vec<Member> = hosts.iter().enumerate().map(member).collect();
    switch(&mut members, mode);
    Some(members)
}

/// Makes a group send in another way from now on.
fn switch(members: &mut [Member], mode: Mode) {
    let count = members.len();
    let offload = if mode.has_offload { "on" } else { "off" };
    for member in members {
        set_segment(&member.socket, 0);
        member.host.command(&format!("ethtool -K eth0 tx {offload} gso on"));
        member.reopen(&multisend_plan(member.own, count, mode.tree, mode.by_mac));
    }
}

/// A packet of a broadcast with a given length; each carries its number, and a message's first
/// packet is tagged with its envelope.
fn numbered(source: usize, seq: u32, is_first: bool, bytes: usize) -> Vec<u8> {
    let body: Vec<u8> = (0..bytes - 40).map(|at| (at as u32 * 7 + seq) as u8).collect();
    cast(rank(source), seq, is_first, &body)
}

/// Packets of `bytes` each, the first of which begins a message.
fn message(source: usize, seq: u32, packets: u32, bytes: usize) -> Vec<Vec<u8>> {
    (0..packets).map(|at| numbered(source, seq + at, at == 0, bytes)).collect()
}

fn set_segment(socket: &UdpSocket, bytes: usize) {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes as i32);
}

/// Asserts that each receiver has each packet once: from its parent if packets go by unicast, or
/// from the source if they go by MAC address.
fn assert_all_have(members: &[Member], source: usize, packets: &[Vec<u8>], mode: Mode) {
    let tree: Tree = mode.tree.parse().unwrap();
    let size = members.len() as u32;
    let all = received_by_all(members, source, packets.len());
    for (member, mut received) in members.iter().zip(all) {
        if member.own == source {
            assert!(received.is_empty(), "{mode:?}: the source has nothing of its own");
            continue;
        }
        let parent = tree.parent(Rank(member.own as u32), Rank(source as u32), size).unwrap();
        for (from, _) in &received {
            let is_from_parent = *from == socket_address(parent.unwrap().index());
            let is_from_source = *from == socket_address(source);
            assert!(is_from_parent || mode.by_mac && is_from_source, "{mode:?}: {from}");
        }
        received.sort_by_key(|(_, packet)| packet[16..20].to_vec());
        let got: Vec<&Vec<u8>> = received.iter().map(|(_, packet)| packet).collect();
        assert!(
            got.iter().copied().eq(packets),
            "{mode:?}: member {} has {} of {} packets, {} refused",
            member.own,
            got.len(),
            packets.len(),
            member.checksum_errors()
        );
    }
    assert!(members.iter().all(|member| member.checksum_errors() == 0), "{mode:?}");
}

fn modes() -> impl Iterator<Item = Mode> {
    let ways = [(false, true), (false, false), (true, true), (true, false)];
    let trees = ["chain", "binomial", "flat"];
    ways.into_iter().flat_map(move |(by_mac, has_offload)| {
        trees.into_iter().map(move |tree| Mode { tree, by_mac, has_offload })
    })
}

#[test]
fn single_packets_reach_all_in_every_addressing_mode() {
    // [MS-R8, R15]: the host sends once; every host receives, including those that forward.
    const SIZE: usize = 6;
    let Some(mut members) = members(SIZE, modes().next().unwrap()) else { return };
    for mode in modes() {
        switch(&mut members, mode);
        let mut seq = 0;
        // The first packets find no MAC address known, the later ones do.
        for source in [0, 4, 0] {
            let mut packets = Vec::new();
            // Odd lengths, too: their checksums are computed differently.
            for bytes in [40 + 16, 40 + 17, 1000, 1001, LONGEST] {
                packets.push(numbered(source, seq, true, bytes));
                packets.push(numbered(source, seq + 1, false, bytes));
                seq += 2;
            }
            for packet in &packets {
                members[source].socket.send_to(packet, GROUP).unwrap();
            }
            assert_all_have(&members, source, &packets, mode);
        }
        let clones: u64 = members.iter().map(|member| member.page.counters().clones).sum();
        // Each packet reaches five others; one of them gets the packet itself.
        assert_eq!(clones, 30 * (SIZE as u64 - 2), "{mode:?}");
        for member in &members {
            let counters = member.page.counters();
            assert_eq!((counters.clone_failures, counters.bad_tags), (0, 0), "{mode:?}");
        }
    }
}

#[test]
fn trains_reach_all_in_every_addressing_mode() {
    // A train crosses into the kernel in one call, and is split as late as possible.
    const SIZE: usize = 6;
    let Some(mut members) = members(SIZE, modes().next().unwrap()) else { return };
    for mode in modes() {
        switch(&mut members, mode);
        let mut seq = 0;
        for source in [0, 4, 0] {
            let mut packets = Vec::new();
            for (count, bytes) in [(2, 57), (7, 1001), (40, 1400), (3, LONGEST)] {
                let train = message(source, seq, count, bytes);
                set_segment(&members[source].socket, bytes);
                members[source].socket.send_to(&train.concat(), GROUP).unwrap();
                packets.extend(train);
                seq += count;
            }
            assert_all_have(&members, source, &packets, mode);
        }
        let failures = |member: &Member| member.page.counters().clone_failures;
        assert!(members.iter().all(|member| failures(member) == 0), "{mode:?}");
    }
}

#[test]
fn packets_sent_to_one_child_reach_all_members() {
    // Packets sent by unicast, without a group.
    let mode = Mode { tree: "binomial", by_mac: false, has_offload: false };
    let Some(members) = members(4, mode) else { return };
    let packets = [numbered(1, 1, true, 500), numbered(1, 2, false, 501)];
    for packet in &packets {
        members[1].socket.send_to(packet, socket_address(2)).unwrap();
    }
    assert_all_have(&members, 1, &packets, mode);
}

/// Asserts that both checksums are right: complete, or prepared for completion.
fn assert_sums_fit(sniffed: &Sniffed, mode: Mode) {
    let frame = &sniffed.frame;
    assert_eq!(packets::ip_sum(frame), 0xffff, "{mode:?}");
    if sniffed.is_partial || sniffed.train_bytes != 0 {
        let check = u16::from_be_bytes(frame[UDP_CHECK].try_into().unwrap());
        assert_eq!(check, packets::pseudo_sum(frame), "{mode:?}: {sniffed:?}");
    } else {
        assert_eq!(packets::udp_sum(frame), 0xffff, "{mode:?}");
    }
}

#[test]
fn ip_and_udp_checksums_are_valid_on_every_link() {
    let Some(mut members) = members(4, modes().next().unwrap()) else { return };
    for mode in modes().filter(|mode| mode.tree == "chain") {
        switch(&mut members, mode);
        let sniffers: Vec<Sniffer> =
            members.iter().map(|member| Sniffer::new(&member.host)).collect();
        for round in 0..2 {
            for bytes in [57, 1400, 1401] {
                members[0].socket.send_to(&numbered(0, round, true, bytes), GROUP).unwrap();
                let train = message(0, round, 5, bytes).concat();
                set_segment(&members[0].socket, bytes);
                members[0].socket.send_to(&train, GROUP).unwrap();
                set_segment(&members[0].socket, 0);
            }
        }
        for (sniffer, member) in sniffers.iter().zip(&members).skip(1) {
            let frames = sniffer.all(2 * 3 * 6, PATIENCE, SILENCE);
            let packets: usize = frames.iter().map(Sniffed::packets).sum();
            assert_eq!(packets, 2 * 3 * 6, "{mode:?}");
            for sniffed in &frames {
                assert_sums_fit(sniffed, mode);
                assert_eq!(sniffed.frame[..6], member.host.mac(), "{mode:?}");
                let is_to_group = packets::to(&sniffed.frame) == GROUP;
                assert!(!is_to_group || mode.by_mac, "{mode:?}");
                // Members that forward decrement the TTL, as a router does.
                assert_eq!(sniffed.frame[packets::TTL], TTL - (member.own as u8 - 1), "{mode:?}");
            }
            // With known MAC addresses the group's address stays; before, and otherwise, it does
            // not.
            let is_to_group = |sniffed: &Sniffed| packets::to(&sniffed.frame) == GROUP;
            assert_eq!(frames.iter().any(is_to_group), mode.by_mac, "{mode:?}");
            let has_trains = frames.iter().any(|sniffed| sniffed.train_bytes != 0);
            assert_eq!(has_trains, mode.has_offload, "{mode:?}: trains stay whole");
        }
    }
}

/// Member 1 of three in a chain, which forwards packets of member 0 to member 2; a sniffer at 2.
struct Middle {
    members: Vec<Member>,
    sniffer: Sniffer,
}

impl Middle {
    fn new() -> Option<Self> {
        let mode = Mode { tree: "chain", by_mac: false, has_offload: true };
        let members = members(3, mode)?;
        let sniffer = Sniffer::new(&members[2].host);
        Some(Self { members, sniffer })
    }

    fn inward(&self, payload: &[u8]) -> Vec<u8> {
        let mac_to = self.members[1].host.mac();
        let (from, to) = (socket_address(0), socket_address(1));
        frame(Way { mac_from: [2; 6], mac_to, from, to }, payload)
    }

    /// A packet arrives at member 1 and goes on unchanged to its host. Returns what member 2 gets,
    /// where at least `expected` packets are waited for longer.
    fn passes_on(&self, bytes: &[u8], expected: usize) -> Vec<Sniffed> {
        let Member { host, kernel, .. } = &self.members[1];
        let packet = TestPacket { bytes, mark: 77, interface: host.interface(), train_bytes: 0 };
        let run = host.inside(|| kernel.test_run_with("nic_ingress", packet, 1).unwrap());
        assert_eq!((run.verdict, run.mark), (-1, 77));
        assert_eq!(run.bytes, bytes, "unchanged");
        self.sniffer.all(expected, PATIENCE, SILENCE)
    }
}

#[test]
fn forwarded_packets_reach_the_host_unchanged() {
    let Some(middle) = Middle::new() else { return };
    for bytes in [56, 57, 1400] {
        for _ in 0..2 {
            let single = middle.inward(&numbered(0, 1, true, bytes));
            let sniffed = middle.passes_on(&single, 1);
            assert_eq!(sniffed.len(), 1);
            assert_eq!(sniffed[0].frame[FRAME_BYTES..], single[FRAME_BYTES..]);
            assert_eq!(packets::udp_sum(&sniffed[0].frame), 0xffff);
            assert_eq!(packets::from(&sniffed[0].frame), socket_address(1));
            assert_eq!(packets::to(&sniffed[0].frame), socket_address(2));
            // A packet without a checksum stays without.
            let mut without = single.clone();
            without[UDP_CHECK].fill(0);
            let sniffed = middle.passes_on(&without, 1);
            assert_eq!(sniffed[0].frame[UDP_CHECK], [0, 0]);
            assert_eq!(sniffed[0].frame[FRAME_BYTES..], single[FRAME_BYTES..]);
        }
    }
    let counters = middle.members[1].page.counters();
    assert_eq!((counters.clones, counters.clone_failures, counters.bad_tags), (12, 0, 0));
}

#[test]
fn packets_with_an_expired_ttl_are_not_forwarded() {
    let Some(middle) = Middle::new() else { return };
    let mut frame = middle.inward(&numbered(0, 1, true, 100));
    for (ttl, passes) in [(2, 1), (1, 0), (0, 0)] {
        frame[packets::TTL] = ttl;
        let sniffed = middle.passes_on(&frame, passes);
        assert_eq!(sniffed.len(), passes);
        assert!(sniffed.iter().all(|it| it.frame[packets::TTL] == ttl - 1));
    }
    assert_eq!(middle.members[1].page.counters().clone_failures, 2);
}

#[test]
fn only_packets_tagged_for_all_by_a_member_are_forwarded() {
    let Some(middle) = Middle::new() else { return };
    let nothing = Vec::new();
    let good = numbered(0, 1, true, 100);
    // Every byte of the header that does not name a slot, tag and envelope; data are not tagged.
    let tagged: Vec<usize> = (13..56).collect();
    for at in &tagged {
        let mut bad = good.clone();
        bad[*at] ^= 1;
        let frame = middle.inward(&bad);
        let Member { host, kernel, .. } = &middle.members[1];
        let packet =
            TestPacket { bytes: &frame, interface: host.interface(), ..Default::default() };
        let run = host.inside(|| kernel.test_run_with("nic_ingress", packet, 1).unwrap());
        assert_eq!((run.verdict, run.bytes), (-1, frame), "the host judges by itself");
    }
    assert_eq!(middle.sniffer.all(0, PATIENCE, SILENCE), nothing);
    let counters = middle.members[1].page.counters();
    // With another rank in it, a packet is from no member or from this one: it is not checked.
    assert_eq!(counters.bad_tags, tagged.len() as u64 - 2);
    assert_eq!(counters.clones, 0);

    let short = packets::cast(rank(0), 1, true, &[0; 16])[..55].to_vec();
    let own = numbered(1, 1, true, 100);
    let from_a_leaf = numbered(2, 1, true, 100);
    let to_one = packets::tagged(
        &packets::header(omnes_wire::Kind::Cast, rank(0), 1, 0),
        Rank(rank(1)),
        &[],
        0,
    );
    for (what, packet) in [
        ("an envelope that is cut", &short),
        ("what comes back", &own),
        ("what ends here", &from_a_leaf),
        ("what is for one", &to_one),
    ] {
        assert_eq!(middle.passes_on(&middle.inward(packet), 0), nothing, "{what}");
    }
    let mut everybody = middle.inward(&good);
    everybody[..6].copy_from_slice(&group::GROUP_MAC);
    assert_eq!(middle.passes_on(&everybody, 0), nothing, "the network delivers to everybody");
    let elsewhere = Way {
        mac_from: [2; 6],
        mac_to: middle.members[1].host.mac(),
        from: socket_address(0),
        to: SocketAddr::new(address(3), socket_address(1).port()),
    };
    assert_eq!(middle.passes_on(&frame(elsewhere, &good), 0), nothing, "another address's");
    let by_another_way = Way { from: socket_address(2), to: socket_address(1), ..elsewhere };
    let stray = frame(by_another_way, &good);
    assert_eq!(middle.passes_on(&stray, 0), nothing, "not from the parent");
    everybody[..6].fill(6);
    assert_eq!(middle.passes_on(&everybody, 0), nothing, "another host's");
    assert_eq!(middle.passes_on(&middle.inward(&good), 1).len(), 1, "the same unharmed");
}

#[test]
fn packets_of_other_sockets_and_members_are_not_cloned() {
    let mode = Mode { tree: "flat", by_mac: false, has_offload: true };
    let Some(members) = members(3, mode) else { return };
    let Member { host, kernel, page, .. } = &members[0];
    let own = socket_address(0);
    let way = |from| Way { mac_from: host.mac(), mac_to: [4; 6], from, to: GROUP };
    let mine = numbered(0, 1, true, 100);
    for (what, bytes) in [
        ("another port", frame(way(SocketAddr::new(own.ip(), 999)), &mine)),
        ("another address", frame(way(SocketAddr::new(address(9), own.port())), &mine)),
        ("another member's", frame(way(own), &numbered(1, 1, true, 100))),
    ] {
        let packet =
            TestPacket { bytes: &bytes, interface: host.interface(), ..Default::default() };
        let run = host.inside(|| kernel.test_run_with("nic_egress", packet, 1).unwrap());
        assert_eq!((run.verdict, run.bytes), (-1, bytes), "{what}");
    }
    assert_eq!(page.counters().clones, 0);
}

#[test]
fn non_forwarding_slot_leaves_forwarding_to_the_host() {
    let Some(hosts) = network(3) else { return };
    let members: Vec<Member> = (0..3)
        .map(|own| {
            let plan = SlotPlan { forwards: false, ..multisend_plan(own, 3, "chain", false) };
            Member::new(&hosts[own], own, &plan)
        })
        .collect();
    let packet = numbered(0, 1, true, 100);
    members[0].socket.send_to(&packet, GROUP).unwrap();
    let received = |count| -> Vec<Vec<Received>> { received_by_all(&members, 0, count) };
    let got: Vec<usize> = received(1).iter().map(Vec::len).collect();
    assert_eq!(got, [0, 1, 0]);
    // The host forwards what it received by its own means.
    members[1].socket.send_to(&packet, socket_address(2)).unwrap();
    assert_eq!(received(1)[2], [(socket_address(1), packet)]);
}

#[test]
fn one_send_call_reaches_a_thousand_children() {
    const SIZE: usize = 1024;
    let Some(mut hosts) = network(1) else { return };
    let host = hosts.remove(0);
    // A bridge without ports accepts every packet.
    host.command("ip link set eth0 down");
    host.command("ip link add wide type bridge");
    host.command("ip link set wide arp off up");
    let [addr, _] = settings(address(0), "wide");
    host.command(&format!("ip {addr}"));
    let interface = host.interface_named("wide");
    let plan = multisend_plan(0, SIZE, "flat", false);
    let (_kernel, page) = host.inside(|| {
        let kernel = Kernel::load().unwrap();
        kernel.attach(interface).unwrap();
        let slot = kernel.open(&plan, interface, None).unwrap();
        let page = Page::map(kernel.page(slot).unwrap().as_fd()).unwrap();
        (kernel, page)
    });
    let socket = group::socket(&host, 0, true);
    let sniffer = Sniffer::outgoing(&host, "wide");
    for round in 0..2u32 {
        let packet = numbered(0, round, true, 60);
        let start = Instant::now();
        socket.send_to(&packet, socket_address(1)).unwrap();
        let took = start.elapsed();
        println!("round {round}: {SIZE} members in {took:?}");
        let mut to: Vec<SocketAddr> = sniffer
            .all(1, PATIENCE, SILENCE)
            .iter()
            .inspect(|sniffed| assert_eq!(sniffed.frame[FRAME_BYTES..], packet))
            .map(|sniffed| packets::to(&sniffed.frame))
            .collect();
        to.sort();
        let all: Vec<SocketAddr> = (1..SIZE).map(socket_address).collect();
        assert!(to == all, "{} of {} packets, or to others", to.len(), all.len());
        let counters = page.counters();
        assert_eq!(counters.clones, u64::from(round + 1) * (SIZE as u64 - 2));
        assert_eq!(counters.clone_failures, 0);
    }
}

#[test]
fn child_with_a_new_mac_address_is_resolved_again() {
    let mode = Mode { tree: "flat", by_mac: true, has_offload: true };
    let Some(members) = members(3, mode) else { return };
    for seq in 0..2 {
        let packet = numbered(0, seq, true, 100);
        members[0].socket.send_to(&packet, GROUP).unwrap();
        assert_all_have(&members, 0, &[packet], mode);
    }
    // Member 1 gets another interface address, and asks for its neighbours, who learn it from that.
    let host = &members[1].host;
    host.command("ip link set eth0 down");
    host.command("ip link set eth0 address 02:00:00:00:77:77");
    host.command("ip link set eth0 up");
    // Only IPv4 addresses stay on an interface that is down.
    if IS_V6 {
        host.command(&format!("ip {}", settings(address(1), "eth0")[0]));
    } else {
        host.command(&format!("ip {}", settings(address(1), "eth0")[1]));
    }
    let start = Instant::now();
    let mut buffer = [0; 2048];
    let mut seq = 10;
    while members[1].socket.recv(&mut buffer).is_err()
        && members[1].group.recv(&mut buffer).is_err()
    {
        assert!(start.elapsed() < Duration::from_secs(20), "not found again");
        seq += 1;
        members[1].socket.send_to(b"here", socket_address(0)).unwrap();
        members[0].socket.send_to(&numbered(0, seq, true, 100), GROUP).unwrap();
        let mut poll =
            libc::pollfd { fd: members[1].socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives as long as the call.
        unsafe { libc::poll(&raw mut poll, 1, 20) };
    }
    println!("found again after {:?}", start.elapsed());
}
