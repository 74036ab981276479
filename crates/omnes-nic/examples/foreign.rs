//! What the firmware adds to the cost of packets that are not Omnes's [MS-R11].
//!
//! One host floods another with ordinary UDP datagrams over a link of their own, in alternating
//! rounds with and without the firmware at both ends. A packet passes two programs: at the sender's
//! egress and the receiver's ingress. The receiver's work is done in the sender's system call, so
//! the processor time of the sending thread covers the whole path. Needs root;
//! `tools/bench-foreign.sh` builds and runs it.
#![allow(clippy::unwrap_used)] // A failure ends the program.

#[path = "../tests/common/mod.rs"]
mod common;

use common::hosts::{Host, pair};
use common::packets::{Way, frame};
use omnes_nic::{Kernel, Statistics, TestPacket};
use std::net::{SocketAddr, UdpSocket};

const ROUNDS: usize = 41;
const PACKETS: u32 = 50_000;
const BYTES: usize = 200;
/// Maximum additional cost of a packet for both programs together.
const TARGET_NS: f64 = 150.0;

fn main() {
    let Some(hosts) = pair() else { return };
    pin();
    let to = SocketAddr::new(hosts[1].address, 9000);
    // Never read: arriving packets are dropped once the buffer is full, at a constant cost.
    let receiver = hosts[1].inside(|| UdpSocket::bind(to).unwrap());
    let sender = hosts[0].inside(|| {
        let socket = UdpSocket::bind((hosts[0].address, 9001)).unwrap();
        socket.connect(to).unwrap();
        socket
    });
    let kernels = [Kernel::load().unwrap(), Kernel::load().unwrap()];
    flood(&sender);
    let mut added = Vec::new();
    let mut without = Vec::new();
    for round in 0..ROUNDS {
        // The order alternates, too.
        let mut times = [0.0; 2];
        for half in 0..2 {
            let is_attached = (round + half) % 2 == 0;
            set_attached(&hosts, &kernels, is_attached);
            times[usize::from(is_attached)] = flood(&sender);
        }
        without.push(times[0]);
        added.push(times[1] - times[0]);
    }
    println!(
        "{PACKETS} datagrams of {BYTES} bytes a round, {ROUNDS} rounds each way, ns per packet"
    );
    print("without firmware", &mut without);
    let median = print("added by both programs", &mut added);
    statistics(&hosts, &kernels, &sender);
    let way = Way {
        mac_from: hosts[0].mac(),
        mac_to: hosts[1].mac(),
        from: SocketAddr::new(hosts[0].address, 9001),
        to,
    };
    hot(&kernels[0], &frame(way, &[0; BYTES]));
    drop(receiver);
    assert!(median < TARGET_NS, "over the target of {TARGET_NS} ns");
}

/// Keeps this thread on one processor.
fn pin() {
    // SAFETY: plain data, for which zeros are a value; the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn set_attached(hosts: &[Host; 2], kernels: &[Kernel; 2], is_attached: bool) {
    for (host, kernel) in hosts.iter().zip(kernels) {
        let interface = host.interface();
        host.inside(|| {
            if is_attached { kernel.attach(interface).unwrap() } else { kernel.detach(interface) }
        });
    }
}

/// Processor time of this thread, in nanoseconds.
fn processor_time() -> u64 {
    // SAFETY: plain data, for which zeros are a value; the call fills it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sends a round's packets; returns nanoseconds per packet.
fn flood(sender: &UdpSocket) -> f64 {
    let start = processor_time();
    for _ in 0..PACKETS {
        sender.send(&[0; BYTES]).unwrap();
    }
    (processor_time() - start) as f64 / f64::from(PACKETS)
}

/// Prints median and quartiles; returns the median.
fn print(what: &str, values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values[values.len() * quarter / 4];
    println!("{what:40} {:7.1}   half of the rounds {:.1} to {:.1}", at(2), at(1), at(3));
    at(2)
}

/// Prints the same by the kernel's statistics of time in programs, which contain two clock reads.
fn statistics(hosts: &[Host; 2], kernels: &[Kernel; 2], sender: &UdpSocket) {
    set_attached(hosts, kernels, true);
    let _statistics = Statistics::keep().unwrap();
    let programs = [(0, "nic_egress"), (1, "nic_ingress")];
    let look = |kernels: &[Kernel; 2]| {
        programs.map(|(kernel, program)| kernels[kernel].program_info(program).unwrap())
    };
    let before = look(kernels);
    flood(sender);
    let after = look(kernels);
    for ((_, program), (before, after)) in programs.iter().zip(before.iter().zip(&after)) {
        let time = (after.run_time - before.run_time).as_nanos() as f64;
        let each = time / (after.runs - before.runs) as f64;
        println!("{program:40} {each:7.1}   in the program, with the clock reads");
    }
}

/// The programs alone, repeatedly on one packet: neither clock reads nor cache misses.
fn hot(kernel: &Kernel, bytes: &[u8]) {
    for program in ["nic_egress", "nic_ingress"] {
        let packet = TestPacket { bytes, ..TestPacket::default() };
        let run = kernel.test_run_with(program, packet, 1_000_000).unwrap();
        let each = run.time.as_nanos() as f64;
        println!("{program:40} {each:7.1}   over and over, with the test's loop");
    }
}
