//! What the firmware does with single packets: its verdict, the packet that leaves, and the page.
//!
//! The programs run on packets without a network (`BPF_PROG_TEST_RUN`). Without root the tests
//! print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::IS_V6;
use common::group::{self, barrier_plan, rank, socket_address};
use common::hosts::{Host, address, network};
use common::packets::{
    self, ETHER_TYPE, FRAME_BYTES, PROTOCOL, UDP, UDP_CHECK, Way, frame, nack, step,
};
use omnes_firmware::barrier::{Combine, Contribution};
use omnes_nic::{Counters, Kernel, Page, SlotPlan, TestPacket, TestRun};
use omnes_wire::{CARRIED_MAX, Header, Kind, Rank, Words};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Lets the packet continue, to the host or to the wire.
const NEXT: i32 = -1;
const DROP: i32 = 2;
const REDIRECT: i32 = 7;

/// Marks: the packet is complete, or needs its MAC addresses.
const SENT: u32 = 0x4f6d_2000;
const RESOLVE: u32 = 0x4f6d_4000;
const LEARN: u32 = 0x4f6d_6000;

/// Member 0 of a group, at an interface of its own.
struct Rig {
    host: Host,
    kernel: Kernel,
    page: Page,
    plan: SlotPlan,
}

impl Rig {
    fn new(plan: SlotPlan) -> Option<Self> {
        let host = network(1)?.remove(0);
        let interface = host.interface();
        let (kernel, page) = host.inside(|| {
            let kernel = Kernel::load().unwrap();
            let slot = kernel.open(&plan, interface, None).unwrap();
            let page = Page::map(kernel.page(slot).unwrap().as_fd()).unwrap();
            (kernel, page)
        });
        Some(Self { host, kernel, page, plan })
    }

    fn run(&self, program: &str, bytes: &[u8], mark: u32) -> TestRun {
        self.run_train(program, bytes, mark, 0)
    }

    /// As [`Self::run`], for a train of packets with this many bytes each, unless that is 0.
    fn run_train(&self, program: &str, bytes: &[u8], mark: u32, train_bytes: u32) -> TestRun {
        let packet = TestPacket { bytes, mark, interface: self.host.interface(), train_bytes };
        self.host.inside(|| self.kernel.test_run_with(program, packet, 1).unwrap())
    }

    /// A frame from member `from` to this one arrives.
    fn comes(&self, from: usize, payload: &[u8]) -> TestRun {
        self.run("nic_ingress", &self.inward(from, payload), 0)
    }

    fn inward(&self, from: usize, payload: &[u8]) -> Vec<u8> {
        let (mac_to, from) = (self.host.mac(), socket_address(from));
        frame(Way { mac_from: [2; 6], mac_to, from, to: self.plan.socket }, payload)
    }

    /// The host sends a frame to member `to`.
    fn sends(&self, to: usize, payload: &[u8]) -> TestRun {
        let way = Way {
            mac_from: self.host.mac(),
            mac_to: [4; 6],
            from: self.plan.socket,
            to: socket_address(to),
        };
        self.run("nic_egress", &frame(way, payload), 0)
    }

    /// The host enters barrier `epoch` by a message to member `to`.
    fn enters(&self, to: usize, epoch: u32) -> TestRun {
        self.sends(to, &step(rank(0), rank(to), epoch, 0))
    }
}

/// Asserts that a packet leaves for member `to` as step `number`.
fn assert_is_step(run: &TestRun, to: usize, epoch: u32, number: u32) {
    assert_eq!(run.verdict, REDIRECT);
    assert_eq!(run.mark, RESOLVE | to as u32);
    assert_step_bytes(&run.bytes, to, epoch, number);
}

/// Asserts every byte of a packet except its MAC addresses, which are not known yet.
fn assert_step_bytes(bytes: &[u8], to: usize, epoch: u32, number: u32) {
    let expected = step(rank(0), rank(to), epoch, number);
    assert_eq!(bytes[FRAME_BYTES..], expected, "header and tag");
    assert_eq!(packets::from(bytes), socket_address(0));
    assert_eq!(packets::to(bytes), socket_address(to));
    assert_eq!(bytes[..14], [&[0; 12][..], &ETHER_TYPE].concat());
    assert_eq!(packets::ip_sum(bytes), 0xffff);
    assert_eq!(bytes[UDP + 4..UDP + 6], [0, 48]);
    if IS_V6 {
        assert_eq!(bytes[14..22], [0x60, 0, 0, 0, 0, 48, 17, 64]);
        assert_eq!(packets::udp_sum(bytes), 0xffff);
    } else {
        assert_eq!(bytes[16..18], (28 + 40u16).to_be_bytes());
        assert_eq!(bytes[20..22], [0x40, 0], "not to be fragmented");
        assert_eq!(bytes[UDP_CHECK], [0, 0], "no checksum");
    }
}

fn counters(page: &Page) -> Counters {
    page.counters()
}

fn only(change: impl FnOnce(&mut Counters)) -> Counters {
    let mut counters = Counters::default();
    change(&mut counters);
    counters
}

/// A group of four in which member 0 sends to 1 and receives from 3, then sends to 2 and receives
/// from 2.
fn dissemination() -> Option<Rig> {
    Rig::new(barrier_plan(0, 4, "dissemination", false))
}

#[test]
fn foreign_packets_pass_unchanged_and_uncounted() {
    let Some(rig) = dissemination() else { return };
    let good = rig.inward(3, &step(rank(3), rank(0), 1, 0));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let foreign = [
        ("magic", with(FRAME_BYTES, 0)),
        ("magic, second byte", with(FRAME_BYTES + 1, 0)),
        ("version", with(FRAME_BYTES + 2, 1)),
        ("kind", with(FRAME_BYTES + 3, Kind::Data as u8)),
        ("job", with(FRAME_BYTES + 7, 9)),
        ("communicator", with(FRAME_BYTES + 8, 9)),
        ("communicator, last byte", with(FRAME_BYTES + 11, 9)),
        ("channel", with(FRAME_BYTES + 12, 9)),
        ("port", with(UDP + 3, 1)),
        ("another host's address", with(UDP - 1, 200)),
        ("almost a group's address", with(packets::TO, if IS_V6 { 0xfe } else { 0xf0 })),
        ("TCP", with(PROTOCOL, 6)),
        ("truncated", good[..good.len() - 1].to_vec()),
    ];
    let of_version: Vec<(&str, Vec<u8>)> = if !IS_V6 {
        vec![
            ("IPv6", with(12, 0x86)),
            ("IP options", with(14, 0x46)),
            ("first fragment", with(20, 0x20)),
            ("later fragment", with(21, 1)),
        ]
    } else {
        vec![
            ("IPv4", with(12, 0x08)),
            ("another version", with(14, 0x72)),
            ("hop-by-hop options", with(PROTOCOL, 0)),
            ("fragment", with(PROTOCOL, 44)),
        ]
    };
    for (what, bytes) in foreign.into_iter().chain(of_version) {
        for program in ["nic_ingress", "nic_egress"] {
            let run = rig.run(program, &bytes, 3);
            assert_eq!((run.verdict, run.mark), (NEXT, 3), "{program}: {what}");
            assert_eq!(run.bytes, bytes, "{program}: {what}");
        }
    }
    // The kernel does not run IP packets without an IP header.
    for bytes in UDP..good.len() {
        assert_eq!(rig.run("nic_ingress", &good[..bytes], 0).verdict, NEXT, "{bytes} bytes");
    }
    assert_eq!(counters(&rig.page), Counters::default());
}

#[test]
fn packets_without_a_valid_tag_are_dropped_without_effect() {
    let Some(rig) = dissemination() else { return };
    rig.enters(1, 1);
    let good = step(rank(3), rank(0), 1, 0);
    // Every byte that does not name kind or slot: flags, source, numbers, and the tag itself.
    let mut bad: Vec<Vec<u8>> = (13..good.len())
        .map(|at| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        })
        .collect();
    bad.push(step(rank(3), rank(1), 1, 0)); // For another rank.
    bad.push(step(999, rank(0), 1, 0)); // From a rank that is no member.
    bad.push([&good[..], &[0]].concat()); // Longer than a step.
    for bytes in &bad {
        assert_eq!(rig.comes(3, bytes).verdict, DROP, "{bytes:x?}");
    }
    let counted = only(|it| {
        it.bad_tags = bad.len() as u64;
        it.packets_out = 1;
    });
    assert_eq!(counters(&rig.page), counted);
    assert_eq!((rig.page.entered(), rig.page.done(), rig.page.at()), (1, 0, 0));
    // The same bytes unmodified count.
    assert_is_step(&rig.comes(3, &good), 2, 1, 1);
}

#[test]
fn arriving_steps_trigger_the_next_step_of_the_table() {
    // [CB-R4, R7, R11]: an arrival immediately sends the next step, in the memory of the packet.
    let Some(rig) = dissemination() else { return };
    for epoch in 1..=3 {
        assert_is_step(&rig.enters(1, epoch), 1, epoch, 0);
        assert_eq!((rig.page.entered(), rig.page.done(), rig.page.at()), (epoch, epoch - 1, 0));
        assert_is_step(&rig.comes(3, &step(rank(3), rank(0), epoch, 0)), 2, epoch, 1);
        assert_eq!((rig.page.done(), rig.page.at()), (epoch - 1, 1));
        let last = rig.comes(2, &step(rank(2), rank(0), epoch, 1));
        assert_eq!(last.verdict, DROP, "nobody sleeps");
        assert_eq!((rig.page.entered(), rig.page.done()), (epoch, epoch));
    }
    let counted = only(|it| {
        it.packets_in = 6;
        it.packets_out = 6;
    });
    assert_eq!(counters(&rig.page), counted);
}

#[test]
fn reused_slot_starts_with_the_first_barrier() {
    let Some(mut rig) = dissemination() else { return };
    rig.enters(1, 1);
    rig.comes(3, &step(rank(3), rank(0), 1, 0));
    // The last packet is of the next barrier.
    rig.comes(2, &step(rank(2), rank(0), 1, 1));
    rig.comes(2, &step(rank(2), rank(0), 2, 1));
    assert_eq!(rig.page.done(), 1);
    let Rig { host, kernel, page, plan } = &mut rig;
    let interface = host.interface();
    host.inside(|| {
        kernel.close(0);
        assert_eq!(kernel.open(plan, interface, None).unwrap(), 0);
        *page = Page::map(kernel.page(0).unwrap().as_fd()).unwrap();
    });
    assert_eq!((rig.page.entered(), rig.page.done()), (0, 0));
    assert_eq!(counters(&rig.page), Counters::default());
    assert_eq!(rig.enters(1, 2).verdict, DROP, "not the next barrier");
    assert_is_step(&rig.enters(1, 1), 1, 1, 0);
    assert_is_step(&rig.comes(3, &step(rank(3), rank(0), 1, 0)), 2, 1, 1);
    assert_eq!((rig.page.entered(), rig.page.done()), (1, 0), "nothing is left of the last one");
}

#[test]
fn steps_coalesced_by_the_kernel_pass_unsplit() {
    let Some(rig) = dissemination() else { return };
    rig.enters(1, 1);
    let before = counters(&rig.page);
    let came = step(rank(3), rank(0), 1, 0);
    let train = rig.inward(3, &[came.clone(), step(rank(3), rank(0), 2, 0)].concat());
    let run = rig.run_train("nic_ingress", &train, 0, came.len() as u32);
    assert_eq!((run.verdict, run.bytes), (NEXT, train));
    assert_eq!(counters(&rig.page), before);
}

#[test]
fn multicast_release_has_the_ttl_of_the_plan() {
    let plan = SlotPlan { group_ttl: 3, ..barrier_plan(0, 2, "counter", true) };
    let Some(rig) = Rig::new(plan) else { return };
    let own = packets::doorbell(rank(0), Rank(rank(1)), 1, 1, Contribution::default());
    assert_eq!(rig.sends(1, &own).verdict, DROP, "member 1 has not entered");
    let release = rig.comes(1, &step(rank(1), rank(0), 1, 0));
    assert_eq!((release.verdict, release.mark), (REDIRECT, SENT));
    assert_eq!(packets::to(&release.bytes), group::GROUP);
    assert_eq!(release.bytes[packets::TTL], 3);
    assert_eq!(packets::ip_sum(&release.bytes), 0xffff);
}

#[test]
fn steps_one_barrier_ahead_are_kept_and_others_ignored() {
    // [CB-R8]: a member may be one barrier ahead, none may be two.
    let Some(rig) = dissemination() else { return };
    let (first, second) = (step(rank(3), rank(0), 1, 0), step(rank(2), rank(0), 1, 1));
    assert_eq!(rig.comes(2, &second).verdict, DROP);
    assert_eq!(rig.comes(3, &first).verdict, DROP);
    assert_eq!((rig.page.entered(), rig.page.done()), (0, 0), "this member has not entered");
    assert_eq!(rig.comes(3, &first).verdict, DROP);
    assert_eq!(counters(&rig.page).duplicates, 1);
    assert_eq!(rig.comes(3, &step(rank(3), rank(0), 2, 0)).verdict, DROP);
    assert_eq!(counters(&rig.page).ignored, 1, "of the barrier after the next");

    // Everything has arrived: entering sends both steps and ends the barrier. The first leaves as a
    // clone.
    let run = rig.enters(1, 1);
    assert_is_step(&run, 2, 1, 1);
    assert_eq!((rig.page.entered(), rig.page.done()), (1, 1));
    assert_eq!(counters(&rig.page).packets_out, 2);
    // A packet of a barrier that is over.
    assert_eq!(rig.comes(3, &first).verdict, DROP);
    assert_eq!(counters(&rig.page).duplicates, 2);
    let counted = only(|it| {
        it.packets_in = 5;
        it.packets_out = 2;
        it.duplicates = 2;
        it.ignored = 1;
    });
    assert_eq!(counters(&rig.page), counted);
}

#[test]
fn steps_inconsistent_with_the_schedule_are_counted_as_nonsense() {
    let Some(rig) = dissemination() else { return };
    rig.enters(1, 1);
    let nonsense = [
        (1, step(rank(1), rank(0), 1, 0)),        // Step 0 is member 3's.
        (3, step(rank(3), rank(0), 1, 2)),        // There are two steps.
        (3, step(rank(3), rank(0), 1, u32::MAX)), // As above.
        (0, step(rank(0), rank(0), 1, 0)),        // This member itself.
        (3, nack(rank(3), rank(0), 1, 0)),        // Owed to member 1.
        (1, nack(rank(1), rank(0), 1, 64)),       // There is no such step.
    ];
    for (from, packet) in &nonsense {
        assert_eq!(rig.comes(*from, packet).verdict, DROP);
    }
    assert_eq!(counters(&rig.page).nonsense, nonsense.len() as u64);
    assert_eq!((rig.page.entered(), rig.page.done(), rig.page.at()), (1, 0, 0));
}

#[test]
fn requested_step_is_retransmitted_if_already_sent() {
    // [CB-R6, R8]: from the record alone, for the present and the previous barrier.
    let Some(rig) = dissemination() else { return };
    let ask = |epoch, number| {
        let member = if number == 0 { 1 } else { 2 };
        rig.comes(member, &nack(rank(member), rank(0), epoch, number))
    };
    assert_eq!(ask(1, 0).verdict, DROP, "not entered");
    rig.enters(1, 1);
    assert_is_step(&ask(1, 0), 1, 1, 0);
    assert_eq!(ask(1, 1).verdict, DROP, "not sent yet");
    rig.comes(3, &step(rank(3), rank(0), 1, 0));
    assert_is_step(&ask(1, 1), 2, 1, 1);
    rig.comes(2, &step(rank(2), rank(0), 1, 1));
    assert_eq!(rig.page.done(), 1);
    rig.enters(1, 2);
    for (epoch, number) in [(1, 0), (1, 1), (2, 0)] {
        assert_is_step(&ask(epoch, number), number as usize + 1, epoch, number);
    }
    assert_eq!(ask(2, 1).verdict, DROP);
    let counted = only(|it| {
        it.packets_in = 10;
        it.packets_out = 3;
        it.repeated = 5;
        it.ignored = 3;
    });
    assert_eq!(counters(&rig.page), counted);
}

#[test]
fn final_packet_of_a_barrier_wakes_the_sleeping_host() {
    let Some(rig) = dissemination() else { return };
    rig.page.set_sleeping(true);
    rig.enters(1, 1);
    assert_is_step(&rig.comes(3, &step(rank(3), rank(0), 1, 0)), 2, 1, 1);
    let last = rig.inward(2, &step(rank(2), rank(0), 1, 1));
    let run = rig.run("nic_ingress", &last, 0);
    assert_eq!((run.verdict, run.mark), (NEXT, 0));
    assert_eq!(run.bytes, last, "unchanged");
    rig.page.set_sleeping(false);
    rig.enters(1, 2);
    // The other way round: the last arrival also sends.
    rig.comes(2, &step(rank(2), rank(0), 2, 1));
    rig.page.set_sleeping(true);
    let last = rig.inward(3, &step(rank(3), rank(0), 2, 0));
    let run = rig.run("nic_ingress", &last, 0);
    assert_eq!((run.verdict, run.mark), (NEXT, 0));
    assert_eq!(run.bytes, last, "its own bytes again, after the clone");
    let counted = only(|it| {
        it.packets_in = 4;
        it.packets_out = 4;
        it.wakes = 2;
    });
    assert_eq!(counters(&rig.page), counted);
}

#[test]
fn waking_packet_is_restored_after_cloning_with_other_words() {
    let Some(rig) = Rig::new(barrier_plan(0, 2, "gather-broadcast", false)) else { return };
    let (own, other) = (Contribution::new(Combine::Sum, &[5, 6, 7]), Words::new(&[10, 20, 30]));
    let bell = packets::doorbell(rank(0), Rank(rank(1)), 1, 1, own);
    assert_eq!(rig.sends(1, &bell).verdict, DROP, "member 1 has not entered");
    rig.page.set_sleeping(true);
    let report = packets::step_with(rank(1), Rank(rank(0)), 1, 0, other);
    let last = rig.inward(1, &report);
    let run = rig.run("nic_ingress", &last, 0);
    assert_eq!((run.verdict, run.mark, run.bytes), (NEXT, 0, last));
    assert_eq!((rig.page.done(), rig.page.results()), (1, [15, 26, 37, 0]));
    let counted = only(|it| {
        it.packets_in = 1;
        it.packets_out = 1;
        it.wakes = 1;
    });
    assert_eq!(counters(&rig.page), counted, "the release has left");
}

#[test]
fn only_the_socket_of_the_slot_can_enter_a_barrier() {
    let Some(rig) = dissemination() else { return };
    let bell = step(rank(0), rank(1), 1, 0);
    let way = |from: SocketAddr| Way {
        mac_from: rig.host.mac(),
        mac_to: [4; 6],
        from,
        to: socket_address(1),
    };
    let own = rig.plan.socket;
    for from in
        [SocketAddr::new(own.ip(), own.port() + 1), SocketAddr::new(address(2000), own.port())]
    {
        let bytes = frame(way(from), &bell);
        let run = rig.run("nic_egress", &bytes, 0);
        assert_eq!((run.verdict, run.bytes), (NEXT, bytes), "{from}");
    }
    assert_eq!(rig.page.entered(), 0);
    assert_eq!(rig.enters(1, 2).verdict, DROP, "not the next barrier");
    assert_eq!(rig.page.entered(), 0);
    assert_is_step(&rig.enters(1, 1), 1, 1, 0);
    assert_eq!(rig.enters(1, 1).verdict, DROP, "entered already");
    // A packet that is not a first step passes unchanged, for example a request for a step.
    assert_eq!(rig.sends(3, &nack(rank(0), rank(3), 1, 0)).verdict, NEXT);
}

#[test]
fn packets_from_the_group_port_do_not_enter_a_barrier() {
    // Other programs of this host may have a socket there, too.
    let Some(rig) = Rig::new(barrier_plan(1, 4, "counter", true)) else { return };
    let bell = step(rank(1), rank(0), 1, 0);
    let way = |from| Way { mac_from: rig.host.mac(), mac_to: [4; 6], from, to: socket_address(0) };
    let own = rig.plan.socket;
    let bytes = frame(way(SocketAddr::new(own.ip(), group::GROUP.port())), &bell);
    let run = rig.run("nic_egress", &bytes, 0);
    assert_eq!((run.verdict, run.bytes), (NEXT, bytes));
    assert_eq!(rig.page.entered(), 0);
    assert_eq!(rig.run("nic_egress", &frame(way(own), &bell), 0).verdict, REDIRECT);
    assert_eq!(rig.page.entered(), 1);
}

#[test]
fn marked_packets_are_treated_as_sent_by_the_firmware() {
    let Some(rig) = dissemination() else { return };
    let bell = rig.inward(1, &step(rank(0), rank(1), 1, 0));
    let run = rig.run("nic_egress", &bell, SENT);
    assert_eq!((run.verdict, run.mark, run.bytes), (NEXT, SENT, bell.clone()));
    let run = rig.run("nic_egress", &bell, RESOLVE | 1);
    assert_eq!((run.verdict, run.mark, run.bytes), (REDIRECT, LEARN | 1, bell));
    // The addresses of a resolved packet are learnt: the next packet has them.
    let way = Way {
        mac_from: [2, 0, 0, 0, 0, 1],
        mac_to: [2, 0, 0, 0, 0, 2],
        from: rig.plan.socket,
        to: socket_address(1),
    };
    let resolved = frame(way, &step(rank(0), rank(1), 1, 0));
    let run = rig.run("nic_egress", &resolved, LEARN | 1);
    assert_eq!((run.verdict, run.mark), (NEXT, SENT));
    // A packet of another firmware, which is behind this one.
    let mut others = resolved.clone();
    others[UDP + 1] ^= 1;
    let run = rig.run("nic_egress", &others, LEARN | 1);
    assert_eq!((run.verdict, run.mark, run.bytes), (NEXT, LEARN | 1, others));
    let run = rig.enters(1, 1);
    assert_eq!((run.verdict, run.mark), (NEXT, SENT), "nothing is to be asked for");
    assert_eq!(run.bytes[..12], resolved[..12]);
    // A retransmission resolves again, for a peer that may have moved.
    let again = rig.comes(1, &nack(rank(1), rank(0), 1, 0));
    assert_eq!((again.verdict, again.mark), (REDIRECT, RESOLVE | 1));
}

#[test]
fn counter_root_shows_arrivals_and_releases_all_members_together() {
    let Some(rig) = Rig::new(barrier_plan(0, 70, "counter", true)) else { return };
    let report = |member: usize, epoch| step(rank(member), rank(0), epoch, 0);
    let arrived = |members: &[usize]| {
        let mut words = [0u64; 16];
        members.iter().for_each(|member| words[member / 64] |= 1 << (member % 64));
        words
    };
    // A member that arrives early is shown from the entry on.
    rig.comes(5, &report(5, 1));
    assert_eq!((rig.page.arrived(), rig.page.arrived_count()), (arrived(&[]), 0));
    let bell =
        Header { flags: omnes_wire::Flags::GROUP, ..packets::header(Kind::Step, rank(0), 1, 1) };
    let bell = packets::tagged(&bell, Rank::ALL, &[], 0);
    assert_eq!(rig.sends(1, &bell).verdict, DROP, "nothing to send yet");
    assert_eq!((rig.page.arrived(), rig.page.arrived_count()), (arrived(&[5]), 1));
    for member in [69, 1, 69] {
        assert_eq!(rig.comes(member, &report(member, 1)).verdict, DROP);
    }
    assert_eq!((rig.page.arrived(), rig.page.arrived_count()), (arrived(&[1, 5, 69]), 3));
    assert_eq!(counters(&rig.page).duplicates, 1);
    // The last report becomes the release, to the group.
    let others: Vec<usize> = (2..69).filter(|member| *member != 5).collect();
    let (last, all) = others.split_last().unwrap();
    for member in all {
        assert_eq!(rig.comes(*member, &report(*member, 1)).verdict, DROP);
    }
    let run = rig.comes(*last, &report(*last, 1));
    assert_eq!((run.verdict, run.mark), (REDIRECT, SENT));
    assert_eq!(packets::to(&run.bytes), group::GROUP);
    assert_eq!(run.bytes[..6], group::GROUP_MAC);
    assert_eq!(run.bytes[packets::TTL], 1);
    assert_eq!(run.bytes[6..12], rig.host.mac());
    let header = packets::open(&run.bytes, Rank::ALL).unwrap();
    assert_eq!((header.seq.0, header.argument, header.source), (1, 1, Rank(rank(0))));
    assert_eq!((rig.page.done(), rig.page.arrived_count()), (1, 69));
    // The next barrier begins empty; one member has arrived already.
    rig.comes(7, &report(7, 2));
    assert_eq!(rig.page.arrived_count(), 69, "of barrier 1");
    let next = Header { seq: omnes_wire::Seq(2), ..packets::header(Kind::Step, rank(0), 2, 1) };
    rig.sends(1, &packets::tagged(&next, Rank::ALL, &[], 0));
    assert_eq!((rig.page.arrived(), rig.page.arrived_count()), (arrived(&[7]), 1));
}

#[test]
fn new_barrier_shows_no_arrivals() {
    let Some(rig) = Rig::new(barrier_plan(0, 2, "counter", true)) else { return };
    let bell = |epoch| packets::doorbell(rank(0), Rank::ALL, epoch, 1, Contribution::default());
    for epoch in 1..=3 {
        rig.sends(1, &bell(epoch));
        assert_eq!((rig.page.arrived_count(), rig.page.arrived()), (0, [0; 16]));
        rig.comes(1, &step(rank(1), rank(0), epoch, 0));
        assert_eq!((rig.page.arrived_count(), rig.page.arrived()[0]), (1, 0b10));
        assert_eq!(rig.page.done(), epoch);
    }
}

#[test]
fn ebpf_and_native_firmware_combine_words_equally() {
    // Member 0 of a counter, which hears from all others and then releases all.
    const SIZE: usize = 5;
    let Some(rig) = Rig::new(barrier_plan(0, SIZE, "counter", false)) else { return };
    let special = [0, 1, u64::MAX, 1 << 63, i64::MAX as u64, f64::NAN.to_bits()];
    let special = special.into_iter().chain([1.5, -1e300, 1e-310].map(f64::to_bits));
    let special: Vec<u64> = special.collect();
    for epoch in 1..=200u32 {
        let word = |own: usize| match (epoch as usize + own) % 3 {
            0 => special[(epoch as usize * 7 + own) % special.len()],
            _ => u64::from(epoch).wrapping_mul(0x9e37_79b9_7f4a_7c15 + own as u64),
        };
        let combine = Combine::ALL[epoch as usize % Combine::ALL.len()];
        // Each member contributes the same number, from one to four.
        let count = 1 + epoch as usize / 2 % CARRIED_MAX;
        let words = |own: usize| {
            let all: [u64; CARRIED_MAX] = std::array::from_fn(|which| word(own + SIZE * which));
            Words::new(&all[..count])
        };
        let own = Contribution::new(combine, words(0).as_slice());
        // Some have arrived before this member enters, and in any order.
        let order = |turn: usize| 1 + (turn * 3 + epoch as usize) % (SIZE - 1);
        let comes = |from: usize| {
            let to_own = Rank(rank(0));
            rig.comes(from, &packets::step_with(rank(from), to_own, epoch, 0, words(from)))
        };
        (0..2).for_each(|turn| assert_eq!(comes(order(turn)).verdict, DROP));
        rig.sends(1, &packets::doorbell(rank(0), Rank::ALL, epoch, 1, own));
        assert_eq!(comes(order(2)).verdict, DROP);
        let last = comes(order(3));
        let made = own.with((1..SIZE).map(words)).words();
        assert_eq!(rig.page.done(), epoch);
        assert_eq!(rig.page.results()[..count], *made.as_slice(), "{combine:?}");
        let told = packets::step_with(rank(0), Rank::ALL, epoch, 1, made);
        assert_eq!(last.bytes[FRAME_BYTES..], told, "all are told");
        // [CB-R8]: a node that misses the message gets it from the record.
        let again = rig.comes(2, &nack(rank(2), rank(0), epoch, 1));
        let told = packets::step_with(rank(0), Rank(rank(2)), epoch, 1, made);
        assert_eq!(again.bytes[FRAME_BYTES..], told);
    }
}
