//! Cost of each path through the firmware, by the kernel's own statistics of program run time.
//!
//! Packets are handed to the programs without a network, one by one, so caches are as warm as
//! between two packets of a busy host. The cost of the kernel's clock reads shows in an empty path,
//! a packet that is too short to be examined; it is not subtracted. Needs root.
//!
//! ```text
//! cargo run --release -p omnes-nic --example cost
//! ```
#![allow(clippy::unwrap_used)] // A failure ends the program.

#[path = "../tests/common/mod.rs"]
mod common;

use common::group::{barrier_plan, multisend_plan, rank, socket_address};
use common::hosts::{Host, network};
use common::packets::{self, Way, cast, frame, nack, step};
use omnes_nic::{Kernel, SlotPlan, Statistics, TestPacket};
use std::net::SocketAddr;

const ROUNDS: usize = 15;

/// A host with loaded but unattached firmware.
struct Rig {
    host: Host,
    kernel: Kernel,
    interface: u32,
    mac: [u8; 6],
}

impl Rig {
    fn new(plan: &SlotPlan) -> Option<Self> {
        let host = network(1)?.remove(0);
        let (interface, mac) = (host.interface(), host.mac());
        let kernel = host.inside(|| {
            let kernel = Kernel::load().unwrap();
            kernel.open(plan, interface, None).unwrap();
            kernel
        });
        Some(Self { host, kernel, interface, mac })
    }

    fn frame(&self, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
        frame(Way { mac_from: [2; 6], mac_to: self.mac, from, to }, payload)
    }

    fn inward(&self, from: usize, payload: &[u8]) -> Vec<u8> {
        self.frame(socket_address(from), socket_address(0), payload)
    }

    fn outward(&self, to: usize, payload: &[u8]) -> Vec<u8> {
        self.frame(socket_address(0), socket_address(to), payload)
    }

    /// Mean time of a program over `frames`, in nanoseconds.
    fn time(&self, program: &str, frames: &[Vec<u8>]) -> u64 {
        self.host.inside(|| {
            let before = self.kernel.program_info(program).unwrap();
            for bytes in frames {
                let packet = TestPacket { bytes, interface: self.interface, ..Default::default() };
                self.kernel.test_run_with(program, packet, 1).unwrap();
            }
            let after = self.kernel.program_info(program).unwrap();
            let time = (after.run_time - before.run_time).as_nanos() as u64;
            time / (after.runs - before.runs).max(1)
        })
    }
}

/// Prints the median and the minimum of several rounds.
fn report(what: &str, mut round: impl FnMut(u32) -> u64) {
    let mut times: Vec<u64> = (1..=ROUNDS as u32).map(&mut round).collect();
    times.sort_unstable();
    println!("{what:56} {:5} {:5}", times[ROUNDS / 2], times[0]);
}

/// Number of packets of a measurement.
const MANY: usize = 1000;

fn main() {
    if !common::root::is_root() {
        return;
    }
    println!("{:56} {:>5} {:>5}", "nanoseconds per run, with the clock reads", "median", "least");
    let _statistics = Statistics::keep().unwrap();
    foreign_and_counting();
    chained();
    for children in [1, 10, 100] {
        let Some(rig) = Rig::new(&multisend_plan(0, children + 1, "flat", false)) else { return };
        let packets = vec![rig.outward(1, &cast(rank(0), 1, false, &[0; 1000])); 100];
        report(&format!("egress: to {children} children"), |_| rig.time("nic_egress", &packets));
    }
}

/// Packets of other programs, and a root that counts reports.
fn foreign_and_counting() {
    let Some(rig) = Rig::new(&barrier_plan(0, MANY, "counter", true)) else { return };
    let repeated = |frame: Vec<u8>| vec![frame; MANY];
    let short = repeated(rig.inward(1, &[0; 4]));
    report("ingress: too short to be ours", |_| rig.time("nic_ingress", &short));
    let foreign = repeated(rig.inward(1, &[0; 1000]));
    report("ingress: ordinary UDP", |_| rig.time("nic_ingress", &foreign));
    report("egress: ordinary UDP", |_| rig.time("nic_egress", &foreign));
    let data = repeated(rig.inward(1, &cast(rank(1), 1, false, &[0; 1000])));
    report("ingress: to all, without a slot for it", |_| rig.time("nic_ingress", &data));

    let bell = |epoch| vec![rig.outward(1, &step(rank(0), rank(1), epoch, 1))];
    let reported = |from: usize, epoch| rig.inward(from, &step(rank(from), rank(0), epoch, 0));
    report("ingress: a report, kept", |epoch| {
        rig.time("nic_egress", &bell(epoch));
        let arrivals: Vec<Vec<u8>> = (1..MANY).map(|from| reported(from, epoch)).collect();
        let (last, kept) = arrivals.split_last().unwrap();
        let time = rig.time("nic_ingress", kept);
        rig.time("nic_ingress", std::slice::from_ref(last));
        time
    });
    let old = repeated(reported(1, 1));
    report("ingress: a duplicate", |_| rig.time("nic_ingress", &old));
    let mut bad = reported(1, 1);
    bad[packets::FRAME_BYTES + 18] ^= 1;
    let bad = repeated(bad);
    report("ingress: a wrong tag", |_| rig.time("nic_ingress", &bad));
}

/// A member whose steps follow each other: three packets per barrier.
fn chained() {
    let Some(rig) = Rig::new(&barrier_plan(0, 4, "dissemination", false)) else { return };
    let mut times = [const { Vec::new() }; 3];
    for epoch in 1..=MANY as u32 {
        let packets = [
            ("nic_egress", rig.outward(1, &step(rank(0), rank(1), epoch, 0))),
            ("nic_ingress", rig.inward(3, &step(rank(3), rank(0), epoch, 0))),
            ("nic_ingress", rig.inward(2, &step(rank(2), rank(0), epoch, 1))),
        ];
        for ((program, frame), times) in packets.into_iter().zip(&mut times) {
            times.push(rig.time(program, &[frame]));
        }
    }
    let paths = [
        "egress: a member enters and sends",
        "ingress: a step, the next one sent",
        "ingress: the last step",
    ];
    for (what, mut times) in paths.into_iter().zip(times) {
        times.sort_unstable();
        println!("{what:56} {:5} {:5}", times[MANY / 2], times[0]);
    }
    let missed = vec![rig.inward(1, &nack(rank(1), rank(0), MANY as u32, 0)); MANY];
    report("ingress: a step is missed", |_| rig.time("nic_ingress", &missed));
}
