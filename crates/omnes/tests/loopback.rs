//! The public library over real sockets on loopback.
#![allow(clippy::unwrap_used, missing_docs)]

mod ranks;

use omnes::{Barrier, Bcast, Communicator, Error, Source, Tag};
use ranks::{pattern, rendezvous, with_ranks, with_ranks_at};

const SIZES: [usize; 9] = [0, 1, 1000, 1416, 9000, 65_536, 131_072, 131_073, 3_000_000];

fn ping_pong(comm: &Communicator) {
    let peer = 1 - comm.rank();
    for (round, bytes) in SIZES.into_iter().enumerate() {
        let data = pattern(bytes, round as u32);
        let mut back = vec![0; bytes];
        if comm.rank() == 0 {
            comm.send(peer, round as u32, &data).unwrap();
            let status = comm.recv(peer, Tag::Any, &mut back).unwrap();
            assert_eq!((status.source, status.tag, status.bytes), (1, round as u32, bytes));
            assert!(back == data, "{bytes} bytes came back changed");
        } else {
            comm.recv(Source::Any, round as u32, &mut back).unwrap();
            comm.send(peer, round as u32, &back).unwrap();
        }
    }
}

#[test]
fn messages_of_all_sizes_come_back_unchanged() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            ping_pong(&comm);
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn messages_travel_over_ipv6() {
    with_ranks_at(
        &rendezvous("::1"),
        2,
        |_| {},
        |comm| {
            ping_pong(&comm);
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn messages_travel_without_offloads() {
    let plain = |config: &mut omnes::Config| {
        config.offloads.gso = false;
        config.offloads.gro = false;
    };
    with_ranks(2, plain, |comm| {
        ping_pong(&comm);
        comm.finalize().unwrap();
    });
}

#[test]
fn messages_that_come_before_their_receive_are_kept() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            if comm.rank() == 0 {
                let data = pattern(400_000, 1);
                comm.scope(|scope| {
                    scope.isend(1, 1, &data).unwrap();
                    scope.isend(1, 2, &data[..100]).unwrap();
                    scope.isend(1, 3, &data[..5000]).unwrap();
                });
            } else {
                // Out of order: the large one must not stand in the way.
                let mut small = [0; 100];
                comm.recv(0, 2, &mut small).unwrap();
                let mut medium = vec![0; 5000];
                comm.recv(0, 3, &mut medium).unwrap();
                let mut large = vec![0; 400_000];
                comm.recv(0, 1, &mut large).unwrap();
                assert!(large == pattern(400_000, 1));
                assert_eq!(small, large[..100]);
                assert_eq!(medium, large[..5000]);
            }
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn rank_can_talk_to_itself() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            let me = comm.rank();
            let data = pattern(200_000, me);
            let mut back = vec![0; 200_000];
            let mut any = [0; 3];
            comm.scope(|scope| {
                let first = scope.irecv(me, 5, &mut back).unwrap();
                let second = scope.irecv(Source::Any, 6, &mut any).unwrap();
                scope.isend(me, 5, &data).unwrap();
                scope.isend(me, 6, &[1, 2, 3]).unwrap();
                assert_eq!(first.wait().unwrap().source, me);
                assert_eq!(second.wait().unwrap().source, me);
            });
            assert!(back == data);
            assert_eq!(any, [1, 2, 3]);
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn message_longer_than_its_buffer_is_an_error_that_names_both() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            if comm.rank() == 0 {
                comm.send(1, 1, &pattern(5000, 1)).unwrap();
                comm.send(1, 2, &pattern(300_000, 1)).unwrap();
            } else {
                for (tag, bytes) in [(1, 5000), (2, 300_000)] {
                    let mut short = [0; 999];
                    match comm.recv(0, tag, &mut short) {
                        Err(Error::Truncated { bytes: got, capacity: 999 }) => {
                            assert_eq!(got, bytes)
                        }
                        other => panic!("{other:?}"),
                    }
                    assert_eq!(short[..], pattern(999, 1)[..]);
                }
            }
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn every_broadcast_reaches_every_rank_from_every_root() {
    with_ranks(
        5,
        |_| {},
        |comm| {
            for algorithm in
                ["binomial", "binomial:pipelined", "chain", "chain:store", "flat", "knomial=4"]
            {
                let algorithm: Bcast = algorithm.parse().unwrap();
                for (round, bytes) in SIZES.into_iter().enumerate() {
                    let root = round as u32 % comm.size();
                    let data = pattern(bytes, round as u32);
                    let mut buffer =
                        if comm.rank() == root { data.clone() } else { vec![0; bytes] };
                    comm.bcast_with(root, &mut buffer, algorithm).unwrap();
                    assert!(buffer == data, "{algorithm} of {bytes} bytes at rank {}", comm.rank());
                }
            }
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_entered() {
    use std::sync::atomic::{AtomicU32, Ordering};
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
fn split_parts_by_color_and_orders_by_key() {
    with_ranks(
        6,
        |_| {},
        |world| {
            let me = world.rank();
            let color = (me != 5).then_some(me % 2);
            let part = world.split(color, -i64::from(me)).unwrap();
            let Some(part) = part else {
                assert_eq!(me, 5);
                world.finalize().unwrap();
                return;
            };
            assert_eq!(part.size(), if me % 2 == 0 { 3 } else { 2 });
            let mut sum = [me as u8];
            part.bcast(0, &mut sum).unwrap();
            assert_eq!(sum[0], if me % 2 == 0 { 4 } else { 3 });
            let copy = part.dup().unwrap();
            // Same ranks, same tag: the communicators keep the messages apart.
            if copy.rank() == 0 {
                copy.send(1, 9, b"copy").unwrap();
                part.send(1, 9, b"part").unwrap();
            } else if copy.rank() == 1 {
                let mut text = [0; 4];
                part.recv(0, 9, &mut text).unwrap();
                assert_eq!(&text, b"part");
                let status = copy.recv(Source::Any, Tag::Any, &mut text).unwrap();
                assert_eq!((&text, status.source), (b"copy", 0));
            }
            world.finalize().unwrap();
        },
    );
}

#[test]
fn wrong_ranks_are_refused_by_name() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            let error = comm.send(2, 0, &[]).unwrap_err();
            assert_eq!(error.to_string(), "rank 2 is not in a communicator of 2 ranks");
            assert!(comm.bcast(7, &mut []).is_err());
            assert!(comm.recv(9, 0, &mut []).is_err());
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn several_threads_of_a_rank_may_communicate_at_once() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            std::thread::scope(|scope| {
                for tag in 0..4u32 {
                    let comm = &comm;
                    scope.spawn(move || {
                        let peer = 1 - comm.rank();
                        for round in 0..50 {
                            let data = pattern(1 + 3000 * tag as usize, round + tag);
                            let mut back = vec![0; data.len()];
                            if comm.rank() == 0 {
                                comm.send(peer, tag, &data).unwrap();
                                comm.recv(peer, tag, &mut back).unwrap();
                                assert!(back == data);
                            } else {
                                comm.recv(peer, tag, &mut back).unwrap();
                                comm.send(peer, tag, &back).unwrap();
                            }
                        }
                    });
                }
            });
            comm.finalize().unwrap();
        },
    );
}
