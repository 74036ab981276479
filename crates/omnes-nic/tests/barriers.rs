//! Barriers between hosts, run by their kernels: no member leaves before all have entered.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::group::{self, barrier_plan, rank, socket_address};
use common::hosts::{Host, network, settings};
use common::packets::{doorbell, nack};
use omnes_firmware::barrier::{Combine, Contribution, Table, can_combine};
use omnes_nic::{Counters, Kernel, Page, SlotPlan};
use omnes_topo::{BarrierAlgorithm, Party};
use omnes_wire::{CARRIED_MAX, Rank};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A barrier that takes longer will not end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a member waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// It polls the page.
    Poll,
    /// It sleeps on its socket.
    Sleep,
}

/// A member of a group, with its slot.
struct Member {
    host: Host,
    own: usize,
    kernel: Kernel,
    page: Page,
    table: Table,
    combines: bool,
    socket: UdpSocket,
    /// The socket that receives releases to all, if any.
    _group: Option<UdpSocket>,
}

impl Member {
    fn new(host: &Host, plan: &SlotPlan) -> Self {
        Self::at(host, plan, &["eth0"])
    }

    /// A member whose kernel has the firmware at several interfaces; the last one has the address.
    fn at(host: &Host, plan: &SlotPlan, interfaces: &[&str]) -> Self {
        let own = plan.own as usize;
        let algorithm: BarrierAlgorithm = plan.barrier.as_deref().unwrap().parse().unwrap();
        let table = Table::new(algorithm, plan.own, plan.size(), plan.group.is_some()).unwrap();
        let interfaces = interfaces.iter().map(|name| host.interface_named(name));
        let interfaces: Vec<u32> = interfaces.collect();
        let (kernel, page) = host.inside(|| {
            let kernel = Kernel::load().unwrap();
            interfaces.iter().for_each(|interface| kernel.attach(*interface).unwrap());
            let slot = kernel.open(plan, *interfaces.last().unwrap(), None).unwrap();
            let page = Page::map(kernel.page(slot).unwrap().as_fd()).unwrap();
            (kernel, page)
        });
        let group = plan.group.map(|_| group::group_socket(host));
        let socket = group::socket(host, own, false);
        socket.set_nonblocking(true).unwrap();
        let (host, combines) = (host.clone(), can_combine(algorithm, plan.size()));
        Self { host, own, kernel, page, table, combines, socket, _group: group }
    }

    /// Enters a barrier: sends the first message of the table.
    fn enter(&self, epoch: u32) {
        let first = self.table.first_send().unwrap();
        let (to, address) = match self.table.send_to(first) {
            Party::Rank(to) => (Rank(rank(to.index())), to.index()),
            _ => (Rank::ALL, usize::from(self.own == 0)),
        };
        let own = self.brings(self.own, epoch);
        let packet = doorbell(rank(self.own), to, epoch, first, own);
        self.socket.send_to(&packet, socket_address(address)).unwrap();
    }

    /// What a member contributes to a barrier, if barriers combine words.
    fn brings(&self, own: usize, epoch: u32) -> Contribution {
        if !self.combines {
            return Contribution::default();
        }
        let combine = Combine::ALL[epoch as usize % Combine::ALL.len()];
        let words: [u64; CARRIED_MAX] = std::array::from_fn(|which| {
            let word = (own as u64 + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let word = word.rotate_left(epoch.wrapping_add(13 * which as u32));
            // No sum of these values is rounded.
            if combine == Combine::SumF64 { f64::from(word as i32).to_bits() } else { word }
        });
        Contribution::new(combine, &words[..1 + epoch as usize % CARRIED_MAX])
    }

    fn check_result(&self, epoch: u32) {
        let words = (1..self.table.size() as usize).map(|own| self.brings(own, epoch).words());
        let made = self.brings(0, epoch).with(words).words();
        let (made, results) = (made.as_slice(), self.page.results());
        assert_eq!(results[..made.len()], *made, "member {}, barrier {epoch}", self.own);
    }

    fn is_done(&self, epoch: u32) -> bool {
        self.page.done() == epoch
    }

    fn wait(&self, epoch: u32, how: Wait) {
        let start = Instant::now();
        while !self.is_done(epoch) {
            assert!(
                start.elapsed() < PATIENCE,
                "member {}: barrier {epoch}: entered {} done {} at {} {:?}",
                self.own,
                self.page.entered(),
                self.page.done(),
                self.page.at(),
                self.page.counters()
            );
            match how {
                Wait::Poll => std::thread::yield_now(),
                Wait::Sleep => self.sleep(epoch),
            }
        }
    }

    fn sleep(&self, epoch: u32) {
        self.page.set_sleeping(true);
        let start = Instant::now();
        // A packet for the previous barrier that arrived with this member awake wakes it, too.
        while !self.is_done(epoch) {
            let mut polls = [self.socket.as_raw_fd(), -1].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            if let Some(group) = &self._group {
                polls[1].fd = group.as_raw_fd();
            }
            // SAFETY: two entries, which live as long as the call.
            unsafe { libc::poll(polls.as_mut_ptr(), 2, PATIENCE.as_millis() as i32) };
            assert!(
                self.is_done(epoch) || start.elapsed() < PATIENCE,
                "nobody has woken it: {:?}",
                self.page.counters()
            );
            while self.socket.recv(&mut [0; 100]).is_ok() {}
            if let Some(group) = &self._group {
                while group.recv(&mut [0; 100]).is_ok() {}
            }
        }
        self.page.set_sleeping(false);
    }
}

/// All members run `epochs` barriers, each in a thread of its own; returns their counters.
fn run(
    size: usize,
    algorithm: &str,
    is_multicast: bool,
    how: Wait,
    epochs: u32,
) -> Option<Counters> {
    run_on(&network(size)?, algorithm, is_multicast, how, epochs).into()
}

/// As [`run`], on existing hosts.
fn run_on(hosts: &[Host], algorithm: &str, is_multicast: bool, how: Wait, epochs: u32) -> Counters {
    let size = hosts.len();
    let member = |(own, host): (usize, &Host)| {
        Member::new(host, &barrier_plan(own, size, algorithm, is_multicast))
    };
    run_members(&hosts.iter().enumerate().map(member).collect::<Vec<_>>(), how, epochs)
}

/// As [`run`], with existing members.
fn run_members(members: &[Member], how: Wait, epochs: u32) -> Counters {
    members.iter().filter_map(|member| member._group.as_ref()).for_each(|group| {
        group.set_nonblocking(true).unwrap();
    });
    let entered: Vec<AtomicU32> = (0..=epochs).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for member in members {
            let entered = &entered;
            scope.spawn(move || {
                for epoch in 1..=epochs {
                    entered[epoch as usize].fetch_add(1, Ordering::SeqCst);
                    member.enter(epoch);
                    member.wait(epoch, how);
                    member.check_result(epoch);
                    let count = entered[epoch as usize].load(Ordering::SeqCst);
                    assert_eq!(count as usize, members.len(), "left before all had entered");
                }
            });
        }
    });
    let sum = |field: fn(&Counters) -> u64| {
        members.iter().map(|member| field(&member.page.counters())).sum()
    };
    Counters {
        packets_in: sum(|it| it.packets_in),
        packets_out: sum(|it| it.packets_out),
        repeated: sum(|it| it.repeated),
        duplicates: sum(|it| it.duplicates),
        ignored: sum(|it| it.ignored),
        nonsense: sum(|it| it.nonsense),
        bad_tags: sum(|it| it.bad_tags),
        wakes: sum(|it| it.wakes),
        clones: sum(|it| it.clones),
        clone_failures: sum(|it| it.clone_failures),
    }
}

/// Asserts that exactly as many packets are sent as the algorithm says.
fn assert_runs(
    size: usize,
    algorithm: BarrierAlgorithm,
    is_multicast: bool,
    how: Wait,
    epochs: u32,
) {
    let name = algorithm.to_string();
    let Some(counters) = run(size, &name, is_multicast, how, epochs) else { return };
    let messages = algorithm.messages(size as u32).unwrap();
    // The releases are one packet.
    let packets = if is_multicast { messages - (size as u64 - 2) } else { messages };
    let what = format!("{name}, {size} members: {counters:?}");
    assert_eq!(counters.packets_in, messages * u64::from(epochs), "{what}");
    assert_eq!(counters.packets_out, packets * u64::from(epochs), "{what}");
    let Counters { repeated, duplicates, ignored, nonsense, bad_tags, .. } = counters;
    assert_eq!([repeated, duplicates, ignored, nonsense, bad_tags], [0; 5], "{what}");
    assert_eq!(counters.clone_failures, 0, "{what}");
    assert!(how == Wait::Sleep || counters.wakes == 0, "{what}");
}

#[test]
fn no_algorithm_releases_a_member_before_all_have_entered() {
    // [CB-R9, R10, R11]
    for size in [2, 5] {
        for algorithm in BarrierAlgorithm::ALL {
            assert_runs(size, algorithm, false, Wait::Poll, 200);
        }
    }
}

#[test]
fn multicast_release_is_one_packet() {
    for size in [2, 5] {
        assert_runs(size, BarrierAlgorithm::Counter, true, Wait::Poll, 200);
    }
}

#[test]
fn sleeping_rank_is_woken_by_the_packet_that_ends_the_barrier() {
    for algorithm in BarrierAlgorithm::ALL {
        assert_runs(3, algorithm, false, Wait::Sleep, 50);
    }
    assert_runs(3, BarrierAlgorithm::Counter, true, Wait::Sleep, 50);
}

#[test]
fn packet_passing_two_hooks_is_processed_once() {
    let Some(hosts) = network(2) else { return };
    for host in &hosts {
        host.command("ip link add link eth0 name own0 type macvlan mode bridge");
        host.command("ip addr flush dev eth0");
        host.command("ip link set own0 up");
        settings(host.address, "own0").iter().for_each(|line| host.command(&format!("ip {line}")));
    }
    for (algorithm, is_multicast) in [("dissemination", false), ("counter", true)] {
        for how in [Wait::Poll, Wait::Sleep] {
            let member = |(own, host): (usize, &Host)| {
                let plan = barrier_plan(own, 2, algorithm, is_multicast);
                Member::at(host, &plan, &["eth0", "own0"])
            };
            let members: Vec<Member> = hosts.iter().enumerate().map(member).collect();
            let counters = run_members(&members, how, 50);
            let Counters { duplicates, ignored, nonsense, bad_tags, .. } = counters;
            assert_eq!([duplicates, ignored, nonsense, bad_tags], [0; 4], "{counters:?}");
        }
    }
}

#[test]
fn steps_wake_sleepers_with_and_without_checksum_offload() {
    // A host drops packets with a wrong checksum, and what its firmware has sent is summed by
    // nobody or by the sender's device.
    for offload in ["on", "off"] {
        let Some(hosts) = network(3) else { return };
        for host in &hosts {
            host.command(&format!("ethtool -K eth0 tx {offload}"));
        }
        for (algorithm, is_multicast) in [("dissemination", false), ("counter", true)] {
            let counters = run_on(&hosts, algorithm, is_multicast, Wait::Sleep, 50);
            assert!(counters.wakes > 0, "{counters:?}");
            assert_eq!((counters.bad_tags, counters.clone_failures), (0, 0), "{counters:?}");
        }
    }
}

#[test]
fn lost_step_is_retransmitted_on_request() {
    // [CB-R6]: the kernel of the member that owes the step answers, without its host.
    let Some(hosts) = network(2) else { return };
    let plans = [0, 1].map(|own| barrier_plan(own, 2, "dissemination", false));
    let first = Member::new(&hosts[0], &plans[0]);
    let mut second = Member::new(&hosts[1], &plans[1]);
    // While member 1 has no slot, packets to it are lost: its host ignores them.
    second.host.clone().inside(|| second.kernel.close(0));
    first.enter(1);
    let mut poll = libc::pollfd { fd: second.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives as long as the call.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 5_000) }, 1, "it has come");
    let interface = second.host.interface();
    second.host.clone().inside(|| {
        let slot = second.kernel.open(&plans[1], interface, None).unwrap();
        second.page = Page::map(second.kernel.page(slot).unwrap().as_fd()).unwrap();
    });
    second.enter(1);
    first.wait(1, Wait::Poll);
    assert_eq!((second.page.entered(), second.page.done()), (1, 0));
    for _ in 0..2 {
        let missed = nack(rank(1), rank(0), 1, 0);
        second.socket.send_to(&missed, socket_address(0)).unwrap();
        second.wait(1, Wait::Poll);
    }
    let start = Instant::now();
    while second.page.counters().duplicates == 0 && start.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    let counters = (first.page.counters(), second.page.counters());
    assert_eq!((counters.0.repeated, counters.1.duplicates), (2, 1));
}
