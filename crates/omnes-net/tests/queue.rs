//! Ranks whose small packets the kernel's NIC puts into their memory, on hosts in network
//! namespaces of their own.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::{Family, Host};
use omnes_net::EngineCounters;
use omnes_net::nic::Preference;
use ranks::{Member, with_ranks};
use std::time::Duration;

/// Lengths around what changes the way: envelope, largest packet of the queue, packet, train.
const LENGTHS: [usize; 9] = [0, 1, 8, 1000, 1096, 1097, 5000, 65_536, 200_000];
/// Calls after which the queue has been opened, if it ever is.
const CALLS: usize = 400;
/// Longer than opening it takes.
const OPENING: Duration = Duration::from_millis(300);

fn exchange_before_and_after(member: &Member<'_>) {
    (0..CALLS).for_each(|_| member.exchange(8));
    std::thread::sleep(OPENING);
    for _ in 0..20 {
        if member.engine.rank() == 0 {
            // The others wait for this one.
            std::thread::sleep(Duration::from_millis(1));
        }
        LENGTHS.into_iter().for_each(|bytes| member.exchange(bytes));
    }
}

fn run(hosts: &[Host], wait: Option<Duration>) -> Vec<EngineCounters> {
    let adjust = |config: &mut omnes_net::JobConfig| {
        config.receive_queue = Some(Preference::Kernel);
        (config.spin, config.give_way) = (wait, wait);
        config.shared_memory = false;
    };
    let counters = with_ranks(hosts, adjust, exchange_before_and_after);
    for counted in &counters {
        assert_eq!(counted.gate.malformed + counted.gate.bad_tag, 0);
    }
    counters
}

#[test]
fn small_packets_come_by_the_queue_and_large_ones_by_the_sockets() {
    let Some(hosts) = hosts::network(3, Family::V4) else { return };
    for counted in run(&hosts, None) {
        let small = counted.queue.packets;
        println!("{small} by the queue, {} by sockets", counted.socket.packets_received);
        assert!(small > 100 && counted.socket.packets_received > 1000, "{small}");
    }
}

#[test]
fn who_sleeps_is_woken_by_the_sockets() {
    let Some(hosts) = hosts::network(2, Family::V4) else { return };
    let [_, other] = &run(&hosts, Some(Duration::ZERO))[..] else { panic!("there are two ranks") };
    println!("{} by the queue, {} sleeps", other.queue.packets, other.sleeps);
    assert!(other.sleeps >= 20);
}

#[test]
fn ranks_of_the_own_host_are_heard_past_the_queue() {
    let Some(hosts) = hosts::network(2, Family::V4) else { return };
    let ranks = [hosts[0].clone(), hosts[1].clone(), hosts[0].clone()];
    let counters = run(&ranks, None);
    assert!(counters.iter().all(|counted| counted.queue.packets > 0), "{counters:?}");
}
