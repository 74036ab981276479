//! The receive queue: which packets go into it, which go on to the sockets, and in what order.
//!
//! First single packets without a network (`BPF_PROG_TEST_RUN`), then real sockets of two hosts.
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::IS_V6;
use common::group::{self, GROUP, socket_address};
use common::hosts::{Host, network};
use common::packets::{
    FRAME_BYTES, JOB, PROTOCOL, TO, UDP, UDP_CHECK, Way, cast, frame, header, nack, pseudo_sum,
    step, tagged,
};
use omnes_firmware::slot::{QUEUE_ENTRIES, QUEUE_PACKET_BYTES_MAX};
use omnes_nic::{Kernel, NicError, Page, Queue, QueuePlan, SLOTS_MAX, TestPacket};
use omnes_wire::{Kind, Rank};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const NEXT: i32 = -1;
const DROP: i32 = 2;
/// A packet's header and tag.
const HEAD_BYTES: usize = 40;

fn plan() -> QueuePlan {
    QueuePlan { job: JOB, sockets: vec![socket_address(0)], group: Some(GROUP) }
}

/// A packet of a channel with `bytes` bytes of data, made from `number`.
fn packet(number: u32, bytes: usize) -> Vec<u8> {
    let body: Vec<u8> = (0..bytes).map(|at| (number as usize * 7 + at) as u8).collect();
    tagged(&header(Kind::Data, 1, number, 0), Rank(0), &body, 0)
}

/// Host 0 with its queue.
struct Rig {
    host: Host,
    kernel: Kernel,
    queue: Queue,
}

impl Rig {
    fn new() -> Option<Self> {
        let host = network(1)?.remove(0);
        let kernel = host.inside(|| Kernel::load().unwrap());
        let number = kernel.open_queue(&plan()).unwrap();
        let queue = Queue::map(kernel.queue(number).unwrap().as_fd()).unwrap();
        queue.set_sleeping(false);
        Some(Self { host, kernel, queue })
    }

    /// A frame for the queue's socket.
    fn inward(&self, payload: &[u8]) -> Vec<u8> {
        let (from, to) = (socket_address(1), socket_address(0));
        frame(Way { mac_from: [2; 6], mac_to: self.host.mac(), from, to }, payload)
    }

    /// The verdict on an arriving frame.
    fn comes(&self, bytes: &[u8], train_bytes: u32) -> i32 {
        let Self { host, kernel, .. } = self;
        let packet = TestPacket { bytes, mark: 0, interface: host.interface(), train_bytes };
        let run = host.inside(|| kernel.test_run_with("nic_ingress", packet, 1).unwrap());
        assert_eq!(run.bytes, bytes, "no packet is changed");
        run.verdict
    }

    /// The host enters a barrier by a step to member 1.
    fn enters(&self, epoch: u32) {
        let Self { host, kernel, .. } = self;
        let (from, to) = (socket_address(0), socket_address(1));
        let way = Way { mac_from: host.mac(), mac_to: [4; 6], from, to };
        let bytes = &frame(way, &step(group::rank(0), group::rank(1), epoch, 0));
        let packet = TestPacket { bytes, mark: 0, interface: host.interface(), train_bytes: 0 };
        host.inside(|| kernel.test_run_with("nic_egress", packet, 1).unwrap());
    }

    fn takes(&self, payload: &[u8]) -> bool {
        match self.comes(&self.inward(payload), 0) {
            DROP => true,
            NEXT => false,
            other => panic!("verdict {other}"),
        }
    }
}

/// The next packet, which is empty if it was not intact.
fn next(queue: &mut Queue) -> Option<Vec<u8>> {
    let mut taken = None;
    queue.take(|packet| taken = Some(packet.to_vec()));
    taken
}

/// [PM-R10]
#[test]
fn small_packets_are_queued_and_others_pass_to_the_socket() {
    let Some(mut rig) = Rig::new() else { return };
    let longest = QUEUE_PACKET_BYTES_MAX - HEAD_BYTES;
    // So many that each entry is reused, mostly for a shorter packet.
    let sizes = [longest, 1024, 473, 472, 8, 3, 2, 1, 0].into_iter().cycle();
    for (number, bytes) in sizes.take(3 * QUEUE_ENTRIES as usize).enumerate() {
        let packet = packet(number as u32, bytes);
        assert!(rig.takes(&packet), "{bytes} bytes");
        assert_eq!(next(&mut rig.queue), Some(packet), "{bytes} bytes");
    }
    assert_eq!(rig.queue.passed(), 0);
    let group = Way { mac_from: [2; 6], mac_to: [1; 6], from: socket_address(1), to: GROUP };
    let to_all = cast(1, 1, false, b"to all");
    assert_eq!(rig.comes(&frame(group, &to_all), 0), DROP);
    assert_eq!(next(&mut rig.queue), Some(to_all));
    // Steps of a barrier that runs in user space: no slot takes them.
    for of_barrier in [step(1, 0, 1, 0), nack(1, 0, 1, 0)] {
        assert!(rig.takes(&of_barrier));
        assert_eq!(next(&mut rig.queue), Some(of_barrier));
    }

    // Until the sockets have been read, all later packets go there, too.
    assert!(!rig.takes(&packet(1, longest + 1)));
    assert!(!rig.takes(&packet(2, 8)));
    assert_eq!((next(&mut rig.queue), rig.queue.passed()), (None, 2));
    rig.queue.set_drained(1);
    assert!(!rig.takes(&packet(3, 8)));
    assert!(!rig.takes(&step(1, 0, 2, 0)));
    assert_eq!((next(&mut rig.queue), rig.queue.passed()), (None, 4));
    rig.queue.set_drained(4);
    assert!(rig.takes(&packet(4, 8)));
    // A train goes on as a whole, however small.
    let train = rig.inward(&[packet(5, 60), packet(6, 60)].concat());
    assert_eq!(rig.comes(&train, 100), NEXT);
    assert_eq!(rig.queue.passed(), 5);
}

#[test]
fn step_that_wakes_its_host_counts_as_passed_to_the_socket() {
    let Some(mut rig) = Rig::new() else { return };
    let plan = group::barrier_plan(0, 2, "dissemination", false);
    let interface = rig.host.interface();
    let Rig { host, kernel, .. } = &mut rig;
    let slot = host.inside(|| kernel.open(&plan, interface, None).unwrap());
    let page = Page::map(rig.kernel.page(slot).unwrap().as_fd()).unwrap();
    for (epoch, sleeps) in [(1, true), (2, false)] {
        page.set_sleeping(sleeps);
        rig.queue.set_sleeping(sleeps);
        rig.enters(epoch);
        let came = step(group::rank(1), group::rank(0), epoch, 0);
        assert_eq!(rig.takes(&came), !sleeps);
        assert_eq!(page.done(), epoch);
        assert_eq!((next(&mut rig.queue), rig.queue.passed()), (None, 1));
    }
}

#[test]
fn foreign_packets_pass_uncounted() {
    let Some(mut rig) = Rig::new() else { return };
    let good = rig.inward(&packet(1, 8));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let foreign = [
        ("magic", with(FRAME_BYTES, 0)),
        ("version", with(FRAME_BYTES + 2, 1)),
        ("job", with(FRAME_BYTES + 7, 9)),
        ("address", with(UDP - 1, 200)),
        ("address, first byte", with(TO, 9)),
        ("port", with(UDP + 3, 1)),
        ("TCP", with(PROTOCOL, 6)),
    ];
    let of_version: Vec<(&str, Vec<u8>)> = if !IS_V6 {
        vec![
            ("IPv6", with(12, 0x86)),
            ("IP options", with(14, 0x46)),
            ("first fragment", with(20, 0x20)),
        ]
    } else {
        vec![("IPv4", with(12, 0x08)), ("fragment", with(PROTOCOL, 44))]
    };
    for (what, bytes) in foreign.into_iter().chain(of_version) {
        assert_eq!(rig.comes(&bytes, 0), NEXT, "{what}");
        assert_eq!((next(&mut rig.queue), rig.queue.passed()), (None, 0), "{what}");
    }
}

#[test]
fn corrupted_packets_pass_to_the_kernel_and_are_dropped() {
    let Some(mut rig) = Rig::new() else { return };
    for (bytes, at) in [(8, 0), (8, 47), (1000, 500), (1000, 1039), (1001, 1040)] {
        let mut damaged = rig.inward(&packet(1, bytes));
        damaged[FRAME_BYTES + at] ^= 0x10;
        let is_ours = at > 0; // Byte 0 is the magic number.
        let passed = rig.queue.passed();
        assert_eq!(rig.comes(&damaged, 0), NEXT, "{bytes} bytes, byte {at}");
        assert_eq!(next(&mut rig.queue), is_ours.then(Vec::new), "{bytes} bytes, byte {at}");
        assert_eq!(rig.queue.passed() - passed, u32::from(is_ours));
        rig.queue.set_drained(rig.queue.passed());
    }
    // A packet that has not crossed a wire has an incomplete checksum.
    let mut local = rig.inward(&packet(2, 8));
    let sum = pseudo_sum(&local).to_be_bytes();
    local[UDP_CHECK].copy_from_slice(&sum);
    assert_eq!(rig.comes(&local, 0), DROP);
    // Without a checksum the packet cannot be verified.
    local[UDP_CHECK].copy_from_slice(&[0, 0]);
    assert_eq!(rig.comes(&local, 0), NEXT);
    assert_eq!(next(&mut rig.queue), Some(packet(2, 8)));
    assert_eq!(next(&mut rig.queue), None, "it is not even put there");
    rig.queue.set_drained(rig.queue.passed());
    // Bytes after the datagram are not part of it.
    let mut longer = rig.inward(&packet(3, 8));
    longer.extend([0; 4]);
    assert_eq!(rig.comes(&longer, 0), NEXT);
    assert_eq!(next(&mut rig.queue), None);
}

#[test]
fn packets_bypass_a_full_queue_and_a_sleeping_owner() {
    let Some(mut rig) = Rig::new() else { return };
    for number in 0..QUEUE_ENTRIES {
        assert!(rig.takes(&packet(number, 8)));
    }
    assert!(!rig.takes(&packet(QUEUE_ENTRIES, 8)));
    assert_eq!(next(&mut rig.queue), Some(packet(0, 8)));
    rig.queue.set_drained(rig.queue.passed());
    assert!(rig.takes(&packet(QUEUE_ENTRIES + 1, 8)));
    rig.queue.set_sleeping(true);
    assert_eq!(next(&mut rig.queue), Some(packet(1, 8)));
    assert!(!rig.takes(&packet(100, 8)));
    rig.queue.set_sleeping(false);
    rig.queue.set_drained(rig.queue.passed());
    assert!(rig.takes(&packet(101, 8)));
}

#[test]
fn ports_belong_to_one_queue_until_closed() {
    let Some(rig) = Rig::new() else { return };
    let taken = rig.kernel.open_queue(&plan());
    assert!(matches!(taken, Err(NicError::Taken { job: JOB, .. })), "{taken:?}");
    rig.kernel.close(SLOTS_MAX);
    assert!(!rig.takes(&packet(1, 8)));
    assert_eq!(rig.kernel.open_queue(&plan()).unwrap(), SLOTS_MAX);
    let queue = Queue::map(rig.kernel.queue(SLOTS_MAX).unwrap().as_fd()).unwrap();
    assert!(!rig.takes(&packet(2, 8)), "nobody looks at it yet");
    queue.set_sleeping(false);
    queue.set_drained(queue.passed());
    assert!(rig.takes(&packet(3, 8)));
    let none = QueuePlan { sockets: Vec::new(), ..plan() };
    assert!(matches!(rig.kernel.open_queue(&none), Err(NicError::Plan { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Against a model: nothing is lost, and packets keep their order on each path.
    #[test]
    fn packets_keep_their_order(steps in prop::collection::vec(0..8u32, 1..300)) {
        let Some(mut rig) = Rig::new() else { return Ok(()) };
        let (mut queued, mut passed) = (VecDeque::new(), 0);
        let (mut drained, mut sleeps) = (0, false);
        for (number, step) in (0u32..).zip(steps) {
            match step {
                0..4 => {
                    let is_small = step < 3;
                    let packet = packet(number, if is_small { 8 } else { 1400 });
                    let has_room = queued.len() < QUEUE_ENTRIES as usize;
                    let expected = is_small && !sleeps && drained == passed && has_room;
                    prop_assert_eq!(rig.takes(&packet), expected);
                    if expected { queued.push_back(packet) } else { passed += 1 }
                }
                4..6 => prop_assert_eq!(next(&mut rig.queue), queued.pop_front()),
                6 => {
                    drained = passed;
                    rig.queue.set_drained(drained);
                }
                _ => {
                    sleeps = !sleeps;
                    rig.queue.set_sleeping(sleeps);
                }
            }
            prop_assert_eq!(rig.queue.passed(), passed);
        }
    }
}

/// Several processors send to one queue concurrently, some of it while its owner falls asleep: each
/// packet arrives, by the queue or by the socket, and only packets in flight at that time arrive
/// twice.
#[test]
fn packets_of_many_senders_arrive_by_queue_or_socket() {
    for offload in ["on", "off"] {
        let Some(hosts) = network(4) else { return };
        for host in &hosts {
            host.command(&format!("ethtool -K eth0 tx {offload}"));
        }
        let interface = hosts[0].interface();
        let kernel = hosts[0].inside(|| {
            let kernel = Kernel::load().unwrap();
            kernel.attach(interface).unwrap();
            kernel
        });
        let number = kernel.open_queue(&plan()).unwrap();
        let mut queue = Queue::map(kernel.queue(number).unwrap().as_fd()).unwrap();
        let socket = group::socket(&hosts[0], 0, true);
        group::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
        let meetings = [Barrier::new(hosts.len()), Barrier::new(hosts.len())];
        let meetings = meetings.each_ref();
        let (by_queue, by_socket) = std::thread::scope(|scope| {
            for (index, host) in hosts.iter().enumerate().skip(1) {
                let sender = group::socket(host, index, true);
                scope.spawn(move || send_many(&sender, index as u32, meetings));
            }
            receive_many(&mut queue, &socket, meetings)
        });
        println!("offload {offload}: {by_queue} by the queue, {by_socket} by the socket");
        assert!(by_queue > 0 && by_socket > 0);
    }
}

const PACKETS: u32 = 3000;

/// Sends half of the packets, and the others once the first ones have been received.
fn send_many(socket: &UdpSocket, sender: u32, [have_asked, half]: [&Barrier; 2]) {
    // The kernel drops packets while it resolves a neighbour.
    socket.send_to(b"where are you?", socket_address(0)).unwrap();
    have_asked.wait();
    for number in 0..PACKETS {
        if number == PACKETS / 2 {
            half.wait();
        }
        socket.send_to(&packet(sender * 10_000 + number, 64), socket_address(0)).unwrap();
        if number % 50 == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Receives all packets, and sleeps now and then; returns how many arrived each way.
fn receive_many(
    queue: &mut Queue,
    socket: &UdpSocket,
    [have_asked, half]: [&Barrier; 2],
) -> (u32, u32) {
    let mut seen = std::collections::BTreeSet::new();
    let (mut by_queue, mut by_socket, mut sleeps) = (0, 0, 0);
    let since = Instant::now();
    let number = |packet: &[u8]| u32::from_be_bytes(packet[16..20].try_into().unwrap());
    let mut buffer = [0; 2048];
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for _ in 1..4 {
        assert_eq!(socket.recv(&mut buffer).unwrap(), 14);
    }
    have_asked.wait();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    // From now on the queue is polled, however late the first round below ends.
    queue.set_sleeping(false);
    queue.set_drained(queue.passed());
    while seen.len() < 3 * PACKETS as usize {
        assert!(since.elapsed() < Duration::from_secs(20), "{} came", seen.len());
        for _ in 0..1000 {
            if let Some(taken) = next(queue) {
                assert_eq!(taken, packet(number(&taken), 64));
                seen.insert(number(&taken));
                by_queue += 1;
            }
            std::thread::yield_now();
        }
        queue.set_sleeping(true);
        if !queue.has_packets() {
            sleeps += 1;
            if let Ok(bytes) = socket.recv(&mut buffer) {
                seen.insert(number(&buffer[..bytes]));
                by_socket += 1;
            }
        }
        queue.set_sleeping(false);
        socket.set_nonblocking(true).unwrap();
        let passed = queue.passed();
        while let Ok(bytes) = socket.recv(&mut buffer) {
            seen.insert(number(&buffer[..bytes]));
            by_socket += 1;
        }
        queue.set_drained(passed);
        socket.set_nonblocking(false).unwrap();
        // Nothing is in flight: whatever the load, the next packet arrives by the queue.
        if seen.len() == 3 * PACKETS as usize / 2 && queue.passed() == passed {
            half.wait();
            while !queue.has_packets() {
                assert!(since.elapsed() < Duration::from_secs(20), "nothing came by the queue");
                std::thread::yield_now();
            }
        }
    }
    assert!(by_queue + by_socket <= 3 * PACKETS + 3 * sleeps, "packets came twice for no reason");
    (by_queue, by_socket)
}
