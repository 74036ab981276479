//! Ranks of one node through shared memory, with real engines: threads of this process.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::Host;
use omnes_net::JobConfig;
use ranks::{pattern, with_ranks};

/// Lengths around each change of the path: envelope, packet, train, the part that needs no grant.
const LENGTHS: [usize; 10] = [0, 1, 8, 1000, 8892, 8893, 65_536, 131_072, 131_073, (3 << 20) + 1];

fn one_node(size: usize) -> Vec<Host> {
    vec![Host::here([127, 0, 0, 1].into()); size]
}

#[test]
fn ranks_of_one_node_communicate_only_through_rings() {
    let counters = with_ranks(
        &one_node(3),
        |_| {},
        |member| {
            assert_eq!(member.engine.nodes(), [[0, 1, 2]]);
            let others: Vec<u32> = (0..3).filter(|rank| *rank != member.engine.rank()).collect();
            assert_eq!(member.engine.neighbours(), others);
            LENGTHS.into_iter().for_each(|bytes| member.exchange(bytes));
        },
    );
    for counters in counters {
        assert_eq!((counters.socket.packets_sent, counters.socket.packets_received), (0, 0));
        assert!(counters.ring.packets_sent > 100 && counters.ring.packets_received > 100);
        assert!(counters.ring.bytes_sent > 2 * (3 << 20));
        assert_eq!((counters.ring.full, counters.ring.broken), (0, 0));
        assert_eq!(counters.gate.malformed + counters.gate.bad_tag, 0);
    }
}

#[test]
fn rank_without_shared_memory_forms_its_own_node() {
    let one_without = |config: &mut JobConfig| config.shared_memory = config.rank != 1;
    let counters = with_ranks(&one_node(4), one_without, |member| {
        assert_eq!(member.engine.nodes(), [vec![0, 2, 3], vec![1]]);
        let neighbours = match member.engine.rank() {
            0 => vec![2, 3],
            1 => vec![],
            2 => vec![0, 3],
            _ => vec![0, 2],
        };
        assert_eq!(member.engine.neighbours(), neighbours);
        LENGTHS.into_iter().for_each(|bytes| member.exchange(bytes));
    });
    assert!(counters.iter().all(|counters| counters.socket.packets_sent > 0));
    let in_rings: Vec<bool> =
        counters.iter().map(|counters| counters.ring.packets_sent > 0).collect();
    assert_eq!(in_rings, [true, false, true, true]);
}

#[test]
fn rank_outside_the_library_is_woken_and_receives_packets() {
    // More than a ring holds, so the receiver must have polled many times.
    const BYTES: usize = 16 << 20;
    let counters = with_ranks(
        &one_node(2),
        |_| {},
        |member| {
            let mut buffer = vec![0; BYTES];
            if member.engine.rank() == 0 {
                member.meet.wait();
                let data = pattern(BYTES, 0);
                let send = member.start_send(1, &data);
                member.wait(send);
                member.meet.wait();
            } else {
                let receive = member.start_receive(0, &mut buffer);
                member.meet.wait();
                // Waits for the message without calling the engine.
                member.meet.wait();
                assert_eq!(member.wait(Some(receive)), BYTES as u64);
                assert!(buffer == pattern(BYTES, 0));
            }
        },
    );
    assert!(counters[0].ring.wakes > 0 && counters[0].ring.full == 0, "{:?}", counters[0].ring);
}

#[test]
fn unexpected_messages_never_fill_a_ring() {
    // As many as their sender may keep by itself.
    const MESSAGES: usize = omnes_net::KEPT_BYTES_MAX as usize / (100 + 128);
    let counters = with_ranks(
        &one_node(2),
        |_| {},
        |member| {
            if member.engine.rank() == 0 {
                for number in 0..MESSAGES {
                    let send = member.start_send(1, &[number as u8; 100]);
                    member.wait(send);
                }
                member.meet.wait();
            } else {
                member.meet.wait();
                for number in 0..MESSAGES {
                    let mut buffer = [0; 100];
                    let receive = member.start_receive(0, &mut buffer);
                    member.wait(Some(receive));
                    assert_eq!(buffer, [number as u8; 100], "message {number}");
                }
            }
        },
    );
    assert_eq!(counters[0].ring.full, 0);
}

#[test]
fn more_ranks_than_cores_conform() {
    let counters = with_ranks(
        &one_node(12),
        |_| {},
        |member| {
            for bytes in [0, 8, 9000, 200_000] {
                member.exchange(bytes);
            }
        },
    );
    assert!(counters.iter().all(|counters| counters.ring.full == 0));
}
