//! Barriers of all forms over real sockets on loopback and through shared memory, with ranks as
//! threads: no rank leaves before all have entered, late ranks are named, several are in progress.
#![allow(clippy::unwrap_used, missing_docs)]

mod ranks;

use omnes::{
    BarrierAlgorithm, BarrierForm, BarrierKind, Cloning, Communicator, Config, Error, MultiSend,
    Multicast, NicChoice, NicState, ReduceAlgorithm, ReduceOp, Tree,
};
use ranks::with_ranks;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Consecutive barriers of one kind, with ranks that are late in turn.
fn stays_together(size: u32, adjust: fn(&mut Config), kind: BarrierKind) {
    let entered = AtomicU32::new(0);
    with_ranks(size, adjust, |comm| {
        for round in 1..=20u32 {
            if comm.rank() == round % size {
                std::thread::sleep(Duration::from_micros(300));
            }
            entered.fetch_add(1, Ordering::SeqCst);
            comm.barrier_with(kind).unwrap();
            assert!(entered.load(Ordering::SeqCst) >= round * size, "left {kind} too early");
        }
        comm.finalize().unwrap();
    });
}

fn all_kinds() -> impl Iterator<Item = BarrierKind> {
    [BarrierForm::User, BarrierForm::Channel].into_iter().flat_map(|form| {
        BarrierAlgorithm::ALL
            .map(|algorithm| BarrierKind { form: Some(form), algorithm: Some(algorithm) })
            .into_iter()
    })
}

#[test]
fn no_rank_leaves_any_kind_of_barrier_before_all_have_entered() {
    for kind in all_kinds() {
        for size in [2, 5, 8] {
            stays_together(size, |_| {}, kind);
        }
    }
}

#[test]
fn barriers_synchronize_ranks_within_and_across_nodes() {
    for kind in all_kinds() {
        // One node; then nodes of ranks 0, 2, 3, 5 and of rank 1 and rank 4 alone.
        stays_together(4, |config| config.shared_memory = true, kind);
        stays_together(6, |config| config.shared_memory = config.rank % 3 != 1, kind);
    }
}

#[test]
fn barrier_releases_are_sent_individually_without_multicast() {
    let without = |config: &mut Config| {
        (config.multicast, config.multisend) = (Multicast::Off, MultiSend::Off);
    };
    stays_together(5, without, BarrierAlgorithm::Counter.into());
}

#[test]
fn barrier_kinds_can_be_mixed_on_several_communicators() {
    with_ranks(
        4,
        |_| {},
        |world| {
            let half = world.split(Some(world.rank() % 2), 0).unwrap().unwrap();
            for kind in all_kinds().chain(all_kinds()) {
                world.barrier_with(kind).unwrap();
                half.barrier_with(kind).unwrap();
                world.barrier().unwrap();
            }
            drop(half);
            world.barrier().unwrap();
            world.finalize().unwrap();
        },
    );
}

#[test]
fn timed_out_barrier_names_missing_ranks_and_can_still_complete() {
    let (limit, is_over) = (Duration::from_millis(500), Barrier::new(5));
    with_ranks(
        5,
        |_| {},
        |comm| {
            comm.barrier().unwrap();
            if [2, 4].contains(&comm.rank()) {
                is_over.wait();
                comm.barrier_timeout(Duration::from_secs(20)).unwrap();
            } else {
                let missing_now = || {
                    let error = comm.barrier_timeout(limit).unwrap_err();
                    let Error::BarrierTimeout { ms: 500, missing } = &error else {
                        panic!("{error}")
                    };
                    let named = missing.iter().map(|rank| format!("rank {rank}"));
                    assert!(error.to_string().contains(&named.collect::<Vec<_>>().join(", ")));
                    missing.clone()
                };
                // On a busy core, other ranks may be late, too.
                let mut tries = std::iter::repeat_with(missing_now).take(40);
                let are_named = tries.any(|missing| missing == [2, 4]);
                is_over.wait();
                assert!(are_named);
                // The same barrier: it completes when they enter.
                comm.barrier().unwrap();
            }
            comm.barrier_timeout(Duration::from_secs(20)).unwrap();
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn reduction_works_after_a_barrier_that_some_ranks_timed_out_of() {
    let is_over = Barrier::new(4);
    with_ranks(
        4,
        |_| {},
        |comm| {
            let rank = i64::from(comm.rank());
            let sum = || {
                let mut sum = [rank];
                comm.allreduce_with(&mut sum, ReduceOp::Sum, ReduceAlgorithm::Words).unwrap();
                sum[0]
            };
            assert_eq!(sum(), 6);
            if rank == 3 {
                is_over.wait();
                comm.barrier_timeout(Duration::from_secs(20)).unwrap();
            } else {
                assert!(comm.barrier_timeout(Duration::from_millis(50)).is_err());
                is_over.wait();
            }
            // Not the barrier that was given up, which has no result, and whose outcome is still to
            // be returned.
            assert_eq!(sum(), 6);
            if rank != 3 {
                comm.barrier_timeout(Duration::from_secs(20)).unwrap();
            }
            for _ in 0..40 {
                assert_eq!(sum(), 6);
                comm.barrier().unwrap();
            }
            comm.finalize().unwrap();
        },
    );
}

/// Rank 0 gives up waiting for a barrier, which the others complete; then all make a library call
/// that contains a barrier.
fn meets_after_giving_up(adjust: fn(&mut Config), call: fn(&Communicator)) {
    let is_over = Barrier::new(3);
    with_ranks(3, adjust, |comm| {
        if comm.rank() == 0 {
            assert!(comm.barrier_timeout(Duration::from_millis(50)).is_err());
            is_over.wait();
        } else {
            is_over.wait();
            comm.barrier_timeout(Duration::from_secs(20)).unwrap();
        }
        call(&comm);
        if comm.rank() == 0 {
            // The outcome of the barrier given up is still to be returned.
            comm.barrier().unwrap();
        }
        comm.barrier().unwrap();
        comm.finalize().unwrap();
    });
}

#[test]
fn new_policy_is_opened_after_a_barrier_that_some_ranks_timed_out_of() {
    let call = |comm: &Communicator| {
        let mut data = [comm.rank() as u8; 8];
        comm.bcast_with(1, &mut data, "skewed=5".parse().unwrap()).unwrap();
        assert_eq!(data, [1; 8]);
    };
    meets_after_giving_up(|_| {}, call);
}

#[test]
fn tree_can_change_after_a_barrier_that_some_ranks_timed_out_of() {
    let adjust = |config: &mut Config| {
        config.multicast = Multicast::Off;
        config.multisend = MultiSend::Tree(Tree::Flat, Cloning::Loop);
    };
    let call = |comm: &Communicator| {
        comm.use_multisend_tree(Tree::Chain, Cloning::Loop).unwrap();
    };
    meets_after_giving_up(adjust, call);
}

#[test]
fn several_barriers_can_overlap_with_other_operations() {
    with_ranks(
        4,
        |_| {},
        |comm| {
            let entered = AtomicU32::new(0);
            let peer = comm.rank() ^ 1;
            let (mine, mut theirs) = ([7u8; 1000], [0u8; 1000]);
            comm.scope(|scope| {
                let first = scope.ibarrier().unwrap();
                let second = scope.ibarrier().unwrap();
                let received = scope.irecv(peer, 1, &mut theirs).unwrap();
                let _ = scope.isend(peer, 1, &mine).unwrap();
                received.wait().unwrap();
                let mut third = scope.ibarrier().unwrap();
                first.wait().unwrap();
                second.wait().unwrap();
                while third.test().unwrap().is_none() {
                    entered.fetch_add(1, Ordering::Relaxed);
                }
                let _ = scope.ibarrier().unwrap();
            });
            assert_eq!(theirs, mine);
            comm.barrier().unwrap();
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn ranks_with_one_address_stay_in_user_space_and_report_the_reason() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            for _ in 0..40 {
                comm.barrier().unwrap();
            }
            let NicState::User { reason } = comm.nic() else {
                panic!("no kernel serves one address")
            };
            assert!(reason.contains("share an address"), "{reason}");
            let error =
                comm.barrier_with("nic:counter".parse::<BarrierKind>().unwrap()).unwrap_err();
            assert!(matches!(error, Error::NoNic { .. }), "{error}");
            comm.barrier().unwrap();
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn repeated_waits_for_the_same_barrier_count_once() {
    // All ranks make the agreement that follows this many barriers at the same barrier.
    let (patient, is_over) = (Duration::from_secs(20), Barrier::new(2));
    with_ranks(
        2,
        |_| {},
        |comm| {
            for _ in 0..20 {
                if comm.rank() == 1 {
                    is_over.wait();
                    comm.barrier_timeout(patient).unwrap();
                } else {
                    assert!(comm.barrier_timeout(Duration::from_millis(2)).is_err());
                    is_over.wait();
                    comm.barrier().unwrap();
                }
            }
            for _ in 0..40 {
                comm.barrier().unwrap();
            }
            assert!(matches!(comm.nic(), NicState::User { reason } if reason.contains("address")));
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn barrier_of_another_kind_does_not_replace_the_usual_group() {
    let pairwise: BarrierKind = "user:pairwise".parse().unwrap();
    with_ranks(
        3,
        |_| {},
        |comm| {
            comm.barrier_with(pairwise).unwrap();
            comm.barrier_timeout(Duration::from_secs(20)).unwrap();
            comm.barrier_with(pairwise).unwrap();
            comm.scope(|scope| scope.ibarrier().unwrap().wait()).unwrap();
            comm.barrier_with(pairwise).unwrap();
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn nonblocking_barriers_work_for_every_kind_except_channel_barriers() {
    for size in [1, 2] {
        with_ranks(
            size,
            |_| {},
            |comm| {
                for kind in all_kinds() {
                    comm.barrier_with(kind).unwrap();
                    let waited = comm.scope(|scope| scope.ibarrier_with(kind)?.wait());
                    match (kind.form, waited) {
                        (Some(BarrierForm::Channel), Err(Error::Barrier { reason })) => {
                            assert!(reason.contains("cannot be entered without waiting"));
                        }
                        (Some(BarrierForm::User), Ok(_)) => {}
                        (_, other) => panic!("{kind}: {other:?}"),
                    }
                }
                comm.finalize().unwrap();
            },
        );
    }
}

/// All ranks ask whether it is time for the kernel NIC, or none does: otherwise a rank that may use
/// it immediately would meet others in its next question.
#[test]
fn ranks_with_different_nic_settings_agree_on_when_to_use_the_nic() {
    let since = std::time::Instant::now();
    let callback = move || {
        if since.elapsed() > Duration::from_secs(20) {
            std::ops::ControlFlow::Break(())
        } else {
            std::ops::ControlFlow::Continue(())
        }
    };
    let on_one_node = |config: &mut Config| config.shared_memory = true;
    for place in [|_: &mut Config| {}, on_one_node] {
        let adjust = |config: &mut Config| {
            place(config);
            config.while_waiting =
                Some(omnes::WhileWaiting::every(Duration::from_secs(1), callback));
            match config.rank {
                0 => config.nic = omnes::NicChoice::User,
                1 => config.nic_after = Duration::MAX,
                _ => config.nic_after = Duration::from_millis(50),
            }
        };
        with_ranks(3, adjust, |comm| {
            for call in 0..60 {
                if call == 40 {
                    std::thread::sleep(Duration::from_millis(60));
                }
                comm.barrier().unwrap();
            }
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn missing_ranks_are_named_by_their_number_in_the_communicator() {
    let is_over = Barrier::new(3);
    with_ranks(
        3,
        |_| {},
        |comm| {
            let part = comm.split(Some(0), -i64::from(comm.rank())).unwrap().unwrap();
            part.barrier().unwrap();
            let names_the_last = || match part.barrier_timeout(Duration::from_millis(100)) {
                Err(Error::BarrierTimeout { missing, .. }) => missing == [2],
                outcome => panic!("{outcome:?}"),
            };
            // On a busy core, other ranks may be late, too.
            let are_named = part.rank() == 2 || (0..200).any(|_| names_the_last());
            is_over.wait();
            assert!(are_named);
            part.barrier_timeout(Duration::from_secs(20)).unwrap();
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn world_barriers_use_the_configured_algorithm() {
    for algorithm in BarrierAlgorithm::ALL {
        with_ranks(
            5,
            |config| config.barrier = Some(algorithm),
            |comm| {
                let steps = |barrier: &dyn Fn() -> Result<(), Error>| {
                    let before = comm.stats().steps_sent;
                    barrier().unwrap();
                    comm.stats().steps_sent - before
                };
                let named = steps(&|| comm.barrier_with(algorithm));
                assert_eq!(steps(&|| comm.barrier()), named, "{algorithm}");
                comm.finalize().unwrap();
            },
        );
    }
}

#[test]
fn barriers_and_small_reductions_use_messages_without_a_nic() {
    with_ranks(
        3,
        |config| config.nic = NicChoice::Off,
        |comm| {
            comm.barrier().unwrap();
            let mut sum = [1];
            comm.allreduce(&mut sum, ReduceOp::Sum).unwrap();
            let words = comm.allreduce_with(&mut sum, ReduceOp::Sum, ReduceAlgorithm::Words);
            assert!(matches!(words, Err(Error::Reduction { .. })), "{words:?}");
            assert_eq!((sum, comm.stats().barriers, comm.stats().steps_sent), ([3], 0, 0));
            comm.finalize().unwrap();
        },
    );
}
