//! Ranks whose small packets the kernel NIC puts into their memory, on hosts in network namespaces
//! of their own.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::{Family, Host};
use omnes_net::nic::Preference;
use omnes_net::{EngineCounters, JobConfig};
use omnes_wire::{JobKey, PACKET_OVERHEAD_BYTES};
use ranks::{Member, PATIENCE, with_ranks};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Lengths around each change of the path: envelope, largest packet of the queue, packet, train.
const LENGTHS: [usize; 9] = [0, 1, 8, 1000, 1096, 1097, 5000, 65_536, 200_000];
/// Small messages between two checks whether all ranks have their queues.
const MESSAGES: usize = 50;

/// Packets that a rank must receive by its queue: one that does not find its sockets empty would
/// receive only a few, at the beginning.
const SERVED: u64 = 50;

/// Lets small packets arrive by a queue of the kernel NIC.
fn by_queue(config: &mut JobConfig) {
    config.receive_queue = Some(Preference::Kernel);
    config.shared_memory = false;
}

/// Exchanges messages until every rank has received many by its queue, and then messages of all
/// lengths.
fn exchange_before_and_after(member: &Member<'_>, served: &AtomicU32) {
    let (until, mut is_served) = (Instant::now() + PATIENCE, false);
    loop {
        (0..MESSAGES).for_each(|_| member.exchange(8));
        if !is_served && member.engine.counters().queue.packets >= SERVED {
            is_served = true;
            served.fetch_add(1, Ordering::SeqCst);
        }
        member.meet.wait();
        let are_all_served = served.load(Ordering::SeqCst) == member.engine.size();
        member.meet.wait();
        if are_all_served {
            break;
        }
        assert!(Instant::now() < until, "{served:?} ranks have a queue");
    }
    for _ in 0..20 {
        if member.engine.rank() == 0 {
            // The other ranks wait for this one.
            std::thread::sleep(Duration::from_millis(1));
        }
        LENGTHS.into_iter().for_each(|bytes| member.exchange(bytes));
    }
}

fn run(hosts: &[Host], wait: Option<Duration>) -> Vec<EngineCounters> {
    let adjust = |config: &mut JobConfig| {
        by_queue(config);
        (config.spin, config.yield_time) = (wait, wait);
    };
    let served = AtomicU32::new(0);
    let body = |member: &Member<'_>| exchange_before_and_after(member, &served);
    let counters = with_ranks(hosts, adjust, body);
    for counted in &counters {
        assert!(counted.queue.packets > 0);
        assert_eq!(counted.gate.malformed + counted.gate.bad_tag, 0);
    }
    counters
}

#[test]
fn small_packets_arrive_by_the_queue_and_large_ones_by_the_sockets() {
    let Some(hosts) = hosts::network(3, Family::V4) else { return };
    for counted in run(&hosts, None) {
        let (all, small) = (counted.socket.packets_received, counted.queue.packets);
        println!("{small} of {all} by the queue");
        assert!(small >= SERVED && all - small > 1000, "{small} of {all}");
    }
}

#[test]
fn queue_is_not_opened_while_disabled() {
    let Some(hosts) = hosts::network(2, Family::V4) else { return };
    let counters = with_ranks(&hosts, by_queue, |member| {
        member.engine.without_queue(|| {
            (0..300).for_each(|_| member.exchange(8));
            std::thread::sleep(Duration::from_millis(300));
            (0..300).for_each(|_| member.exchange(8));
        });
        // Calls made meanwhile do not count either.
        std::thread::sleep(Duration::from_millis(300));
        (0..50).for_each(|_| member.exchange(8));
    });
    assert!(counters.iter().all(|counted| counted.queue.packets == 0));
}

#[test]
fn queue_is_not_opened_before_the_configured_delay() {
    let Some(hosts) = hosts::network(2, Family::V4) else { return };
    let adjust = |config: &mut JobConfig| {
        by_queue(config);
        config.queue_after = Duration::from_secs(3600);
    };
    let counters = with_ranks(&hosts, adjust, |member| {
        (0..300).for_each(|_| member.exchange(8));
        std::thread::sleep(Duration::from_millis(300));
        (0..50).for_each(|_| member.exchange(8));
    });
    assert!(counters.iter().all(|counted| counted.queue.packets == 0));
}

#[test]
fn encrypted_packets_arrive_by_the_queue() {
    let Some(hosts) = hosts::network(2, Family::V4) else { return };
    let adjust = |config: &mut JobConfig| {
        by_queue(config);
        (config.encryption, config.key) = (true, Some(JobKey::new([5; 16])));
    };
    let served = AtomicU32::new(0);
    let body = |member: &Member<'_>| exchange_before_and_after(member, &served);
    for counted in with_ranks(&hosts, adjust, body) {
        let (gate, queue) = (counted.gate, counted.queue);
        assert_eq!((gate.bad_data, gate.malformed, gate.bad_tag), (0, 0, 0));
        assert!(queue.packets >= SERVED, "{queue:?}");
        assert!(queue.bytes >= queue.packets * PACKET_OVERHEAD_BYTES as u64, "{queue:?}");
    }
}

#[test]
fn sleeping_rank_is_woken_by_the_sockets() {
    let Some(hosts) = hosts::network(2, Family::V4) else { return };
    let [_, other] = &run(&hosts, Some(Duration::ZERO))[..] else { panic!("there are two ranks") };
    println!("{} by the queue, {} sleeps", other.queue.packets, other.sleeps);
    assert!(other.sleeps >= 20);
}

#[test]
fn packets_from_the_same_host_bypass_the_queue() {
    let Some(hosts) = hosts::network(2, Family::V4) else { return };
    let ranks = [hosts[0].clone(), hosts[1].clone(), hosts[0].clone()];
    run(&ranks, None);
}
