//! Ranks that have left, and the effect on those that continue without them.

use super::ranks::{crash, with_ranks};
use omnes::{BarrierAlgorithm, Communicator, Error, OwnedRequest, ReduceOp, Source, Tag};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// Lets four of five ranks make a call after the fifth has left.
fn end_with_its_name(what: &str, call: impl Fn(&Communicator) -> Result<(), Error> + Sync) {
    with_ranks(
        5,
        |_| {},
        |comm| {
            comm.barrier().unwrap();
            let me = comm.rank();
            if me == 3 {
                // A rank that is still in that barrier would learn of the farewell.
                for peer in those_still_there(&comm) {
                    comm.recv(peer, 8, &mut []).unwrap();
                }
                return; // Drops its communicator: a farewell without the last barrier.
            }
            comm.send(3, 8, &[]).unwrap();
            let error = call(&comm).unwrap_err();
            assert!(matches!(error, Error::PeerLeft { rank: 3 }), "{what}, rank {me}: {error}");
            // The remaining ranks can communicate with each other.
            if me < 2 {
                comm.scope(|scope| {
                    let mut got = [0; 1];
                    let _ = scope.isend(1 - me, 1, &[7]).unwrap();
                    comm.recv(1 - me, 1, &mut got).unwrap();
                    assert_eq!(got, [7]);
                });
            }
            // No rank leaves before all have seen which one it was.
            let others = those_still_there(&comm);
            for peer in others.iter().filter(|peer| **peer != me) {
                comm.send(*peer, 9, &[]).unwrap();
            }
            for peer in others.iter().filter(|peer| **peer != me) {
                comm.recv(*peer, 9, &mut []).unwrap();
            }
        },
    );
}

#[test]
fn barrier_fails_with_an_error_that_names_the_departed_rank() {
    for barrier in BarrierAlgorithm::ALL {
        end_with_its_name("barrier", |comm| comm.barrier_with(barrier));
    }
}

#[test]
fn reduction_fails_with_an_error_that_names_the_departed_rank() {
    for algorithm in ["flat", "binomial", "blocks", "ring"] {
        let algorithm = algorithm.parse().unwrap();
        for length in [10, 300_000] {
            end_with_its_name("allreduce", |comm| {
                comm.allreduce_with(&mut vec![1i64; length], ReduceOp::Sum, algorithm)
            });
        }
    }
}

#[test]
fn scan_fails_with_an_error_that_names_the_departed_rank() {
    for length in [10, 300_000] {
        end_with_its_name("scan", |comm| {
            comm.scan(&mut vec![1i64; length], ReduceOp::Sum)?;
            // A rank that waits for no other learns of it later.
            comm.barrier()
        });
        end_with_its_name("exscan", |comm| {
            comm.exscan(&mut vec![1i64; length], ReduceOp::Sum)?;
            comm.barrier()
        });
    }
}

#[test]
fn nonblocking_collective_error_names_the_departed_rank() {
    for length in [10, 100_000] {
        end_with_its_name("iallreduce", |comm| {
            let mut data = vec![1i64; length];
            comm.scope(|scope| scope.iallreduce(&mut data, ReduceOp::Sum)?.wait().map(drop))
        });
        end_with_its_name("ireduce_scatter", |comm| {
            let mut data = vec![1i64; length];
            comm.scope(|scope| scope.ireduce_scatter(&mut data, ReduceOp::Sum)?.0.wait().map(drop))
        });
        end_with_its_name("iallgatherv", |comm| {
            let lengths: Vec<_> = (0..5).map(|rank| rank * length).collect();
            let own = vec![1; lengths[comm.rank() as usize]];
            let mut all = vec![0; 10 * length];
            comm.scope(|scope| scope.iallgatherv(&own, &mut all, &lengths)?.wait().map(drop))
        });
        end_with_its_name("ialltoall", |comm| {
            let (data, mut buffer) = (vec![1; 5 * length], vec![0; 5 * length]);
            comm.scope(|scope| scope.ialltoall(&data, &mut buffer)?.wait().map(drop))
        });
    }
}

#[test]
fn reduction_operator_that_panics_is_an_error_on_the_other_ranks() {
    let outcomes = with_ranks(
        4,
        |_| {},
        |comm| {
            let combine = |into: &mut [u8], from: &[u8]| {
                assert_ne!(comm.rank(), 0, "on purpose");
                into.copy_from_slice(from);
            };
            let mut data = vec![1; 100_000];
            let reduce = || comm.allreduce_by(&mut data, 1, &combine);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(reduce));
            // A rank that has learnt of it leaves, too, which others may notice first.
            let is_told = |error| {
                matches!(error, Error::CollectivesBroken { rank: 0, .. } | Error::PeerLeft { .. })
            };
            outcome.map(|reduced| is_told(reduced.unwrap_err()))
        },
    );
    assert!(outcomes[0].is_err());
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
}

#[test]
fn gather_fails_with_an_error_that_names_the_departed_rank() {
    for bytes in [10, 1_000_000] {
        end_with_its_name("allgather", |comm| {
            comm.allgather(&vec![1; bytes], &mut vec![0; 5 * bytes])
        });
        end_with_its_name("alltoall", |comm| {
            comm.alltoall(&vec![1; 5 * bytes], &mut vec![0; 5 * bytes])
        });
        end_with_its_name("allgatherv", |comm| {
            let lengths: Vec<_> = (0..5).map(|rank| rank * bytes).collect();
            let own = vec![1; lengths[comm.rank() as usize]];
            comm.allgatherv(&own, &mut vec![0; 10 * bytes], &lengths)
        });
    }
}

fn those_still_there(comm: &Communicator) -> Vec<u32> {
    (0..comm.size()).filter(|rank| *rank != 3).collect()
}

#[test]
fn calls_after_finalize_are_rejected() {
    for memory in [false, true] {
        with_ranks(
            2,
            |config| config.shared_memory = memory,
            |comm| {
                let copy = comm.dup().unwrap();
                copy.barrier().unwrap();
                let other = 1 - comm.rank();
                comm.finalize().unwrap();
                let mut data = [1u8; 4];
                let has_left = |outcome: Result<(), Error>| match outcome {
                    Err(Error::AlreadyLeft) => {}
                    outcome => panic!("{outcome:?}"),
                };
                has_left(copy.ibarrier_owned().and_then(OwnedRequest::wait).map(|_| ()));
                has_left(copy.barrier());
                has_left(copy.barrier_timeout(Duration::from_secs(1)));
                has_left(copy.bcast(0, &mut data));
                has_left(copy.allreduce(&mut data, ReduceOp::Sum));
                has_left(copy.send(other, 7, &data));
                has_left(copy.recv(other, 7, &mut data).map(|_| ()));
                has_left(copy.probe(other, 7).map(|_| ()));
                has_left(copy.iprobe(other, 7).map(|_| ()));
                has_left(copy.allgather(&[1], &mut [0, 0]));
            },
        );
    }
}

#[test]
fn communicator_of_some_ranks_cannot_be_finalized() {
    with_ranks(
        3,
        |_| {},
        |comm| {
            let part = comm.split((comm.rank() < 2).then_some(0), 0).unwrap();
            if let Some(part) = part {
                let refused = part.clone().finalize().unwrap_err();
                assert!(matches!(refused, Error::NotAllRanks { size: 2, job: 3 }), "{refused}");
                part.barrier().unwrap();
            }
            comm.barrier().unwrap();
            // In any order of ranks.
            comm.split(Some(0), -i64::from(comm.rank())).unwrap().unwrap().finalize().unwrap();
        },
    );
}

#[test]
fn rank_leaves_after_a_failed_finalize_despite_other_communicators() {
    let rank_1_has_heard = std::sync::Barrier::new(2);
    with_ranks(
        3,
        |_| {},
        |comm| {
            let pair = comm.split((comm.rank() < 2).then_some(0), 0).unwrap();
            match comm.rank() {
                0 => {
                    let failed = comm.finalize();
                    assert!(matches!(failed, Err(Error::PeerFailed { rank: 2 })), "{failed:?}");
                    rank_1_has_heard.wait();
                }
                1 => {
                    // The end of rank 2 does not break a communicator without it.
                    let gone = pair.unwrap().recv(0, 1, &mut []);
                    assert!(matches!(gone, Err(Error::PeerLeft { rank: 0 })), "{gone:?}");
                    rank_1_has_heard.wait();
                }
                // A rank that panics sends no farewell.
                _ => drop(catch_unwind(AssertUnwindSafe(move || {
                    let _dropped = (comm, pair);
                    resume_unwind(Box::new(()))
                }))),
            }
        },
    );
}

/// The other ranks continue without rank 2 once they know that it is gone: ranks 3 and 1, in that
/// order, have a communicator of their own.
fn others_go_on(end: fn(Communicator), is_its_end: fn(&Error) -> bool) {
    with_ranks(
        4,
        |_| {},
        |comm| {
            let me = comm.rank();
            let pair = comm.split((me % 2 == 1).then_some(0), -i64::from(me)).unwrap();
            if me == 2 {
                for peer in [0, 1, 3] {
                    comm.recv(peer, 8, &mut []).unwrap();
                }
                return end(comm);
            }
            comm.send(2, 8, &[]).unwrap();
            let gone = comm.recv(2, 9, &mut []).unwrap_err();
            assert!(is_its_end(&gone), "{gone}");
            let Some(pair) = pair else { return };
            for length in [1, 9, 100_000] {
                pair.barrier().unwrap();
                let mut data = vec![u64::from(pair.rank()); length];
                pair.allreduce(&mut data, ReduceOp::Sum).unwrap();
                assert!(data.iter().all(|number| *number == 1));
                let mut bytes = vec![pair.rank() as u8; length];
                pair.bcast(1, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 1));
                pair.scope(|scope| scope.iallreduce(&mut data, ReduceOp::Sum)?.wait()).unwrap();
                assert!(data.iter().all(|number| *number == 2));
                pair.scope(|scope| scope.ibarrier()?.wait()).unwrap();
            }
        },
    );
}

#[test]
fn failed_rank_does_not_affect_communicators_of_other_ranks() {
    others_go_on(crash, |gone| matches!(gone, Error::PeerFailed { rank: 2 }));
}

#[test]
fn departed_rank_does_not_affect_communicators_of_other_ranks() {
    others_go_on(drop, |gone| matches!(gone, Error::PeerLeft { rank: 2 }));
}

/// Of ranks 3, 2 and 1, rank 2 ends, which is rank 1 of their communicator.
fn is_named_by_its_number(end: fn(Communicator), is_its_end: fn(&Error) -> bool) {
    let both_have_seen = std::sync::Barrier::new(2);
    with_ranks(
        4,
        |_| {},
        |comm| {
            let me = comm.rank();
            let trio = comm.split((me > 0).then_some(0), -i64::from(me)).unwrap();
            let Some(trio) = trio else { return };
            trio.barrier().unwrap();
            if me == 2 {
                for peer in [0, 2] {
                    trio.recv(peer, 8, &mut []).unwrap();
                }
                drop(comm);
                return end(trio);
            }
            trio.send(1, 8, &[]).unwrap();
            let is_named = |outcome: Result<(), Error>| {
                let error = outcome.unwrap_err();
                assert!(is_its_end(&error), "{error}");
            };
            let outcomes = [
                trio.recv(1, 9, &mut []).map(drop),
                trio.barrier(),
                trio.bcast(1, &mut [0; 8]),
                trio.allreduce(&mut [1u64; 9], ReduceOp::Sum),
            ];
            both_have_seen.wait();
            outcomes.into_iter().for_each(is_named);
        },
    );
}

#[test]
fn failed_rank_is_named_by_its_number_in_the_communicator() {
    is_named_by_its_number(crash, |error| matches!(error, Error::PeerFailed { rank: 1 }));
}

#[test]
fn departed_rank_is_named_by_its_number_in_the_communicator() {
    is_named_by_its_number(drop, |error| matches!(error, Error::PeerLeft { rank: 1 }));
}

#[test]
fn receive_from_any_source_waits_until_all_others_have_left() {
    with_ranks(
        4,
        |_| {},
        |comm| {
            let me = comm.rank();
            let trio = comm.split((me != 1).then_some(0), 0).unwrap();
            let leave_first = [1, 2];
            for peer in leave_first.into_iter().filter(|peer| *peer != me) {
                comm.send(peer, 8, &[]).unwrap();
            }
            if leave_first.contains(&me) {
                for peer in (0..4).filter(|peer| *peer != me) {
                    comm.recv(peer, 8, &mut []).unwrap();
                }
                return;
            }
            let trio = trio.unwrap();
            if me == 3 {
                comm.recv(0, 9, &mut []).unwrap();
                return trio.send(0, 7, &[]).unwrap();
            }
            for peer in leave_first {
                let gone = comm.recv(peer, 7, &mut []);
                assert!(matches!(gone, Err(Error::PeerLeft { rank }) if rank == peer), "{gone:?}");
            }
            assert_eq!(trio.iprobe(Source::Any, 7).unwrap(), None);
            comm.send(3, 9, &[]).unwrap();
            assert_eq!(trio.probe(Source::Any, Tag::Any).unwrap().source, 2);
            assert_eq!(trio.recv(Source::Any, 7, &mut []).unwrap().source, 2);
            for comm in [&comm, &trio] {
                let is_over = |error| matches!(error, Err(Error::PeerLeft { .. }));
                assert!(is_over(comm.recv(Source::Any, 7, &mut []).map(drop)));
                assert!(is_over(comm.probe(Source::Any, 7).map(drop)));
                assert!(is_over(comm.iprobe(Source::Any, 7).map(drop)));
            }
        },
    );
}

#[test]
fn started_messages_complete_after_another_rank_has_left() {
    let large = vec![7; 1 << 20];
    with_ranks(
        3,
        |_| {},
        |comm| {
            let me = comm.rank();
            if me == 2 {
                for peer in [0, 1] {
                    comm.recv(peer, 8, &mut []).unwrap();
                }
                return;
            }
            comm.send(2, 8, &[]).unwrap();
            let gone = comm.recv(2, 8, &mut []);
            assert!(matches!(gone, Err(Error::PeerLeft { rank: 2 })), "{gone:?}");
            for waits in [true, false] {
                let mut buffer = vec![0; large.len()];
                if me == 1 {
                    // Neither message is sent before rank 0 waits for it, or has tested for it.
                    comm.recv(0, 9, &mut []).unwrap();
                    comm.recv(0, 1, &mut buffer).unwrap();
                    comm.send(0, 2, &buffer).unwrap();
                    continue;
                }
                comm.scope(|scope| {
                    let sent = scope.isend(1, 1, &large).unwrap();
                    let received = scope.irecv(1, 2, &mut buffer).unwrap();
                    comm.send(1, 9, &[]).unwrap();
                    for mut request in [sent, received] {
                        while !waits && request.test().unwrap().is_none() {
                            std::thread::yield_now();
                        }
                        request.wait().unwrap();
                    }
                });
                assert!(buffer == large);
            }
        },
    );
}
