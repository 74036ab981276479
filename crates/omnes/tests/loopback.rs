//! The public library over real sockets on loopback: the bodies of conformance with ranks as
//! threads, and what only threads can see.
#![allow(clippy::unwrap_used, missing_docs)]

mod bodies;
mod ranks;

use bodies::{BYTES_MAX, Body};
use omnes::{Barrier, Config, Error};
use ranks::{rendezvous, with_ranks, with_ranks_at};
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs all bodies that `filter` lets through.
fn conform(host: &str, size: u32, adjust: fn(&mut Config), filter: fn(&Body) -> bool) {
    with_ranks_at(&rendezvous(host), size, adjust, |comm| {
        for body in bodies::ALL.iter().filter(|body| filter(body)) {
            (body.run)(&comm, BYTES_MAX);
            comm.barrier().unwrap();
        }
        comm.finalize().unwrap();
    });
}

/// All ranks are one process here, and others run beside it: its memory tells nothing.
fn is_not_flood(body: &Body) -> bool {
    body.name != "flood"
}

#[test]
fn two_ranks_conform() {
    conform("127.0.0.1", 2, |_| {}, is_not_flood);
}

#[test]
fn odd_numbers_of_ranks_conform() {
    conform("127.0.0.1", 1, |_| {}, is_not_flood);
    conform("127.0.0.1", 3, |_| {}, is_not_flood);
    conform("127.0.0.1", 5, |_| {}, is_not_flood);
}

#[test]
fn eight_ranks_conform() {
    conform("127.0.0.1", 8, |_| {}, is_not_flood);
}

#[test]
fn ranks_conform_over_ipv6() {
    conform("::1", 3, |_| {}, is_not_flood);
}

#[test]
fn ranks_conform_without_offloads() {
    let none = |config: &mut Config| (config.offloads.gso, config.offloads.gro) = (false, false);
    conform("127.0.0.1", 2, none, is_not_flood);
}

#[test]
fn ranks_conform_with_one_offload_each_way() {
    conform("127.0.0.1", 2, |config| config.offloads.gro = false, is_not_flood);
    conform("127.0.0.1", 2, |config| config.offloads.gso = false, is_not_flood);
}

#[test]
fn ranks_conform_with_small_pools_and_little_that_is_sent_unasked() {
    let tight = |config: &mut Config| (config.pool_slots, config.eager_bytes) = (64, 4096);
    conform("127.0.0.1", 4, tight, |body| is_not_flood(body) && body.name != "out-of-order");
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_entered() {
    for size in [1, 2, 3, 5, 8] {
        let entered = AtomicU32::new(0);
        with_ranks(
            size,
            |_| {},
            |comm| {
                let mut round = 0;
                for algorithm in Barrier::ALL {
                    for _ in 0..20 {
                        round += 1;
                        entered.fetch_add(1, Ordering::SeqCst);
                        comm.barrier_with(algorithm).unwrap();
                        let count = entered.load(Ordering::SeqCst);
                        assert!(count >= round * size, "{algorithm}: {count} in round {round}");
                        comm.barrier_with(Barrier::Dissemination).unwrap();
                    }
                }
                comm.finalize().unwrap();
            },
        );
    }
}

#[test]
fn collective_that_a_departed_rank_cannot_join_ends_with_its_name() {
    let unfinished = |barrier: Barrier| {
        with_ranks(
            5,
            |_| {},
            |comm| {
                comm.barrier().unwrap();
                let me = comm.rank();
                if me == 3 {
                    return; // Drops its communicator: a farewell without the last barrier.
                }
                let error = comm.barrier_with(barrier).unwrap_err();
                assert!(matches!(error, Error::PeerLeft { rank: 3 }), "rank {me}: {error}");
                // Those that are still there can talk to each other.
                if me < 2 {
                    comm.scope(|scope| {
                        let mut got = [0; 1];
                        scope.isend(1 - me, 1, &[7]).unwrap();
                        comm.recv(1 - me, 1, &mut got).unwrap();
                        assert_eq!(got, [7]);
                    });
                }
                // Nobody leaves before all have seen who it was.
                let others = those_still_there(&comm);
                for peer in others.iter().filter(|peer| **peer != me) {
                    comm.send(*peer, 9, &[]).unwrap();
                }
                for peer in others.iter().filter(|peer| **peer != me) {
                    comm.recv(*peer, 9, &mut []).unwrap();
                }
            },
        );
    };
    Barrier::ALL.into_iter().for_each(unfinished);
}

fn those_still_there(comm: &omnes::Communicator) -> Vec<u32> {
    (0..comm.size()).filter(|rank| *rank != 3).collect()
}
