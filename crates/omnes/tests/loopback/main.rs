//! The public library over real sockets on loopback, and through shared memory: the conformance
//! bodies with ranks as threads, and tests that need threads.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../bodies/mod.rs"]
mod bodies;
mod departed;
#[path = "../ranks/mod.rs"]
mod ranks;

use bodies::{BYTES_MAX, Body};
use omnes::{
    BarrierAlgorithm, Cloning, Config, Error, JobKey, MultiSend, Multicast, MulticastState,
    ReduceAlgorithm, ReduceOp, Source, Tree,
};
use ranks::{rendezvous, try_with_ranks, with_ranks, with_ranks_at};
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs all bodies that `filter` accepts.
fn conform(host: &str, size: u32, adjust: fn(&mut Config), filter: fn(&Body) -> bool) {
    with_ranks_at(&rendezvous(host), size, adjust, |comm| {
        for body in bodies::ALL.iter().filter(|body| filter(body)) {
            (body.run)(&comm, BYTES_MAX);
            comm.barrier().unwrap();
        }
        comm.finalize().unwrap();
    });
}

/// All ranks share one process here with other tests, so its memory says nothing.
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
fn ranks_of_one_node_conform_through_shared_memory() {
    for size in [2, 3, 8] {
        conform("127.0.0.1", size, |config| config.shared_memory = true, is_not_flood);
    }
}

#[test]
fn ranks_that_compare_their_calls_conform() {
    conform("127.0.0.1", 3, |config| config.compare_calls = true, is_not_flood);
}

#[test]
fn ranks_conform_when_some_share_a_node() {
    // Nodes of ranks 0, 2, 3, 5 and of rank 1 and rank 4 alone.
    let some = |config: &mut Config| config.shared_memory = config.rank % 3 != 1;
    conform("127.0.0.1", 6, some, is_not_flood);
    // Rank 0 alone, so that its broadcasts enter the node through another rank.
    conform("127.0.0.1", 4, |config| config.shared_memory = config.rank > 0, is_not_flood);
}

/// So many ranks that short parts go through other ranks, to and from any root, in any order of
/// ranks.
#[test]
fn many_ranks_gather_and_scatter_when_some_share_a_node() {
    let some = |config: &mut Config| config.shared_memory = config.rank % 5 > 2;
    with_ranks(66, some, |comm| {
        let bodies = [
            "scans",
            "gathers",
            "varied-gathers",
            "refused-reductions",
            "refused-lengths",
            "started",
        ];
        let backwards = comm.split(Some(0), -i64::from(comm.rank())).unwrap().unwrap();
        for body in bodies::ALL.iter().filter(|body| bodies.contains(&body.name)) {
            for comm in [&comm, &backwards] {
                (body.run)(comm, 300_000);
                comm.barrier().unwrap();
            }
        }
        comm.finalize().unwrap();
    });
}

#[test]
fn ranks_of_one_node_with_small_pools_conform() {
    let tight = |config: &mut Config| {
        (config.pool_packets, config.eager_bytes, config.shared_memory) = (64, 4096, true);
    };
    conform("127.0.0.1", 4, tight, |body| is_not_flood(body) && body.name != "out-of-order");
}

/// Encrypts user data.
fn encrypted(config: &mut Config) {
    let key = JobKey::from_hex("00112233445566778899aabbccddeeff").unwrap();
    (config.encryption, config.job_key) = (true, Some(key));
}

#[test]
fn ranks_conform_with_encryption() {
    for size in [2, 5] {
        conform("127.0.0.1", size, encrypted, is_not_flood);
    }
    let some = |config: &mut Config| {
        encrypted(config);
        config.shared_memory = config.rank % 3 != 1;
    };
    conform("127.0.0.1", 6, some, is_not_flood);
}

#[test]
fn words_reduction_is_rejected_with_encryption() {
    with_ranks(3, encrypted, |comm| {
        let mut sum = [comm.rank() + 1];
        let refused =
            comm.allreduce_with(&mut sum, ReduceOp::Sum, ReduceAlgorithm::Words).unwrap_err();
        assert!(refused.to_string().contains("encryption"), "{refused}");
        comm.allreduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [6]);
        comm.finalize().unwrap();
    });
}

#[test]
fn encrypted_broadcasts_conform_with_and_without_multisend() {
    let passed_on = |config: &mut Config| {
        encrypted(config);
        multisend_by(config, "chain");
    };
    conform("127.0.0.1", 4, passed_on, is_cast);
    let channels = |config: &mut Config| {
        encrypted(config);
        (config.multicast, config.multisend) = (Multicast::Off, MultiSend::Off);
    };
    conform("127.0.0.1", 3, channels, is_cast);
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
fn ranks_conform_with_only_one_of_the_offloads() {
    conform("127.0.0.1", 2, |config| config.offloads.gro = false, is_not_flood);
    conform("127.0.0.1", 2, |config| config.offloads.gso = false, is_not_flood);
}

#[test]
fn ranks_conform_with_small_pools_and_a_low_eager_limit() {
    let tight = |config: &mut Config| (config.pool_packets, config.eager_bytes) = (64, 4096);
    conform("127.0.0.1", 4, tight, |body| is_not_flood(body) && body.name != "out-of-order");
}

fn is_cast(body: &Body) -> bool {
    ["schemes", "back-to-back", "all-roots", "outstanding", "passed-on", "parts"]
        .contains(&body.name)
}

#[test]
fn broadcasts_conform_without_multicast() {
    let channels = |config: &mut Config| {
        (config.multicast, config.multisend) = (Multicast::Off, MultiSend::Off);
    };
    conform("127.0.0.1", 5, channels, is_cast);
}

/// Without multicast; multi-sends follow `tree`, with copies in user space.
fn multisend_by(config: &mut Config, tree: &str) {
    let tree = tree.parse().unwrap();
    config.multicast = Multicast::Off;
    config.multisend = MultiSend::Tree(tree, Cloning::Loop);
}

#[test]
fn broadcasts_conform_by_multisend() {
    conform("127.0.0.1", 5, |config| multisend_by(config, "flat"), is_cast);
    conform("127.0.0.1", 6, |config| multisend_by(config, "postal=2.5"), is_cast);
    conform("127.0.0.1", 4, |config| multisend_by(config, "chain"), is_cast);
}

#[test]
fn multisend_broadcasts_conform_when_some_ranks_share_a_node() {
    let some = |config: &mut Config| {
        multisend_by(config, "binomial");
        config.shared_memory = config.rank % 3 != 1;
    };
    conform("127.0.0.1", 6, some, is_cast);
}

#[test]
fn multisend_tree_can_be_changed_while_a_job_runs() {
    let flat = |config: &mut Config| multisend_by(config, "flat");
    with_ranks(6, flat, |comm| {
        let part = comm.split(Some(comm.rank() % 2), 0).unwrap().unwrap();
        for (round, text) in (0..).zip(["chain", "kary=2", "postal=1", "binomial", "flat"]) {
            let tree: Tree = text.parse().unwrap();
            for comm in [&comm, &part] {
                let used = comm.use_multisend_tree(tree, Cloning::Loop).unwrap().unwrap();
                assert_eq!(used.brief(), format!("{text}:loop"));
                for root in 0..comm.size() {
                    let sent = bodies::pattern(20_000, round * 8 + root);
                    let mut data =
                        if comm.rank() == root { sent.clone() } else { vec![0; sent.len()] };
                    comm.bcast_with(root, &mut data, "combined".parse().unwrap()).unwrap();
                    bodies::assert_same(&data, &sent, format_args!("{text} from {root}"));
                }
            }
            // A part has a tree of its own.
            assert_eq!(comm.multisend().unwrap().tree, tree);
        }
        assert!(part.use_multisend_tree(Tree::Chain, Cloning::Loop).unwrap().is_some());
        assert_eq!(comm.multisend().unwrap().tree, Tree::Flat);
        let error = comm.use_multisend_tree(Tree::Kary { arity: 0 }, Cloning::Loop).unwrap_err();
        assert!(matches!(error, Error::MultiSend { .. }), "{error}");
        // The rejected call has changed nothing.
        let mut data = [comm.rank() as u8; 1000];
        comm.bcast_with(1, &mut data, "combined".parse().unwrap()).unwrap();
        assert_eq!(data, [1; 1000]);
        comm.finalize().unwrap();
    });
    with_ranks(
        2,
        |_| {},
        |comm| {
            assert_eq!(comm.use_multisend_tree(Tree::Flat, Cloning::Loop).unwrap(), None);
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn multicast_can_be_required_with_a_configured_group() {
    let insist = |config: &mut Config| {
        config.multicast = Multicast::On;
        config.multicast_group = Some("239.195.77.78".parse().unwrap());
        config.bcast = Some("co-root=2+skewed=4".parse().unwrap());
    };
    with_ranks(4, insist, |comm| {
        let MulticastState::On { group, interface } = comm.multicast() else { panic!("off") };
        assert_eq!((group.ip().to_string().as_str(), interface.as_str()), ("239.195.77.78", "lo"));
        let mut data = [comm.rank() as u8; 100];
        comm.bcast(2, &mut data).unwrap();
        assert_eq!(data, [2; 100]);
        let stats = comm.stats();
        assert_eq!((stats.multicast, stats.bcast_packets_sent), (1, u64::from(comm.rank() == 2)));
        comm.finalize().unwrap();
    });
}

#[test]
fn all_ranks_report_the_reason_for_disabled_multicast() {
    let one_is_off = |config: &mut Config| {
        if config.rank == 1 {
            config.multicast = Multicast::Off;
        }
        config.multisend = MultiSend::Off;
    };
    with_ranks(3, one_is_off, |comm| {
        let MulticastState::Off { reason } = comm.multicast() else { panic!("on") };
        assert_eq!(reason, "multicast is off on rank 1: switched off");
        assert_eq!(comm.stats().multicast, 0);
        let mut data = [comm.rank() as u8; 9];
        comm.bcast_with(1, &mut data, "window".parse().unwrap()).unwrap();
        assert_eq!((data, comm.stats().bcast_packets_sent), ([1; 9], 0));
        comm.finalize().unwrap();
    });
}

#[test]
fn job_that_requires_multicast_fails_without_multicast() {
    let insist = |config: &mut Config| {
        config.multicast = Multicast::On;
        config.multicast_group = Some("239.195.77.79".parse().unwrap());
        // Ranks with different ports do not receive each other's packets.
        config.multicast_port = Some(20_000 + config.rank as u16);
    };
    let errors = try_with_ranks(3, insist);
    for error in errors {
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("OMNES_MULTICAST=on, but rank 0 hears no multicast"), "{error}");
    }
}

#[test]
fn loss_free_broadcast_takes_one_packet_for_any_number_of_ranks() {
    for size in [3, 8] {
        with_ranks(
            size,
            |_| {},
            |comm| {
                comm.barrier().unwrap();
                let before = comm.stats();
                for _ in 0..50 {
                    comm.bcast(0, &mut [7; 1000]).unwrap();
                }
                comm.barrier().unwrap();
                let casts = comm.stats().bcast_packets_sent - before.bcast_packets_sent;
                assert_eq!(casts, if comm.rank() == 0 { 50 } else { 0 });
                comm.finalize().unwrap();
            },
        );
    }
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
                for algorithm in BarrierAlgorithm::ALL {
                    for _ in 0..20 {
                        round += 1;
                        entered.fetch_add(1, Ordering::SeqCst);
                        comm.barrier_with(algorithm).unwrap();
                        let count = entered.load(Ordering::SeqCst);
                        assert!(count >= round * size, "{algorithm}: {count} in round {round}");
                        comm.barrier_with(BarrierAlgorithm::Dissemination).unwrap();
                    }
                }
                comm.finalize().unwrap();
            },
        );
    }
}

#[test]
fn self_message_does_not_match_a_receive_with_an_arriving_message() {
    let large = vec![7; 1 << 20];
    with_ranks(
        2,
        |_| {},
        |comm| {
            if comm.rank() == 1 {
                comm.scope(|scope| {
                    let _ = scope.isend(0, 7, &large).unwrap();
                    comm.send(0, 8, &[]).unwrap();
                });
                return comm.barrier().unwrap();
            }
            // By then, earlier messages, or their first packets, have arrived.
            comm.recv(1, 8, &mut []).unwrap();
            let (mut first, mut second) = (vec![0; 1 << 20], [0]);
            comm.scope(|scope| {
                let first = scope.irecv(Source::Any, 7, &mut first).unwrap();
                comm.send(0, 7, b"x").unwrap();
                let second = scope.irecv(Source::Any, 7, &mut second).unwrap();
                assert_eq!(first.wait().unwrap().source, 1);
                assert_eq!(second.wait().unwrap().source, 0);
            });
            assert_eq!((first == large, &second), (true, b"x"));
            comm.barrier().unwrap();
        },
    );
}

#[test]
fn invalid_lengths_are_reported_with_the_expected_ones() {
    with_ranks(
        3,
        |_| {},
        |comm| {
            let text = |outcome: Result<(), Error>| outcome.unwrap_err().to_string();
            let parts = "data has 10 bytes, which cannot be divided into 3 equal parts";
            assert_eq!(text(comm.alltoall(&[0; 10], &mut [0; 10])), parts);
            assert_eq!(text(comm.allgather_in_place(&mut [0; 10])), parts.replace("data", "all"));
            let one_each = "all has 10 bytes; one part per rank would need 12";
            assert_eq!(text(comm.allgather(&[0; 4], &mut [0; 10])), one_each);
            assert_eq!(
                text(comm.alltoall(&[0; 12], &mut [0; 10])),
                one_each.replace("all", "buffer")
            );
            let lengths = "data_lengths has 2 entries, but the communicator has 3 ranks";
            assert_eq!(text(comm.alltoallv(&[0; 3], &[1, 2], &mut [0; 3], &[1; 3])), lengths);
            assert_eq!(text(comm.allgatherv(&[0; 4], &mut [0; 10], &[4, 4, 4])), one_each);
            assert_eq!(
                text(comm.allgatherv(&[0; 3], &mut [0; 12], &[4, 4, 4])),
                "received 3 bytes where this rank expects 4: all ranks must pass the same lengths"
            );
            // Data that are shorter than this rank's buffer.
            let outcome = comm.bcast(0, &mut vec![0; if comm.rank() == 0 { 4 } else { 9 }]);
            match comm.rank() {
                0 => outcome.unwrap(),
                _ => {
                    assert!(text(outcome).starts_with("received 4 bytes where this rank expects 9"))
                }
            }
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn own_part_longer_than_its_buffer_is_rejected() {
    with_ranks(
        3,
        |_| {},
        |comm| {
            let other = comm.dup().unwrap();
            if comm.rank() == 1 {
                let (lengths, room) = ([1, 2, 1], [1; 3]);
                let refused = other.alltoallv(&[0; 4], &lengths, &mut [0; 3], &room).unwrap_err();
                let is_length =
                    matches!(refused, Error::LengthMismatch { received: 2, expected: 1 });
                assert!(is_length, "{refused}");
            }
            let told = other.barrier().unwrap_err();
            assert!(matches!(told, Error::CollectivesBroken { rank: 1, .. }), "{told}");
            comm.finalize().unwrap();
        },
    );
}

/// Rank 1's part is not as long as the root says, which has not yet called all the others.
#[test]
fn parts_after_one_of_wrong_length_do_not_leak_into_the_next_gather() {
    const RANKS: usize = 7;
    with_ranks(
        RANKS as u32,
        |_| {},
        |comm| {
            let (me, value) = (comm.rank(), comm.rank() as u8 + 1);
            for each in [8, 200_000] {
                for wrong in [each - 1, each + 1] {
                    let mut all = vec![0; RANKS * each];
                    let bytes = if me == 1 { wrong } else { each };
                    match comm.gatherv(0, &vec![value; bytes], &mut all, &[each; RANKS]) {
                        Ok(()) => assert_ne!(me, 0),
                        Err(Error::Truncated { .. } | Error::LengthMismatch { .. }) => {
                            assert_eq!(me, 0);
                        }
                        Err(error) => panic!("{error}"),
                    }
                    comm.gatherv(0, &vec![10 * value; each], &mut all, &[each; RANKS]).unwrap();
                    let came = all.chunks(each).map(|part| (part[0], part[each - 1]));
                    assert!(me > 0 || came.eq((1..=RANKS as u8).map(|it| (10 * it, 10 * it))));
                }
            }
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn split_accepts_the_full_range_of_colors_and_keys() {
    with_ranks(
        3,
        |_| {},
        |comm| {
            let key = [i64::MAX, i64::MIN, 1 << 32][comm.rank() as usize];
            let part = comm.split(Some(u32::MAX), key).unwrap().unwrap();
            assert_eq!((part.size(), part.rank()), (3, [2, 0, 1][comm.rank() as usize]));
            comm.finalize().unwrap();
        },
    );
}
