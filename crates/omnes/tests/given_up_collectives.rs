//! Collectives that a rank gives up before they are complete: all learn of it, and no other
//! collective receives their data.
#![allow(clippy::unwrap_used)]

mod ranks;

use bytemuck::{cast_slice, cast_slice_mut};
use omnes::{
    BarrierForm, BarrierKind, Collective, Communicator, Config, ElementType, Error, MultiSend,
    Multicast, ReduceAlgorithm, ReduceOp, Tree, WhileWaiting,
};
use ranks::{interrupted, with_ranks};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const RANKS: u32 = 4;
/// Numbers of each rank in a call: one to four may go in the packets of a barrier, some are sent
/// immediately, many wait for their receivers.
const LENGTHS: [usize; 4] = [1, 4, 8, 40_000];

/// A call with distinct numbers; checks its result.
type Call = fn(&Communicator, u64, usize) -> Result<(), Error>;

/// The numbers of a rank.
fn given(comm: &Communicator, value: u64, length: usize) -> Vec<u64> {
    vec![value + u64::from(comm.rank()); length]
}

/// Checks that `all` has one part from each rank, in which each number is that rank's.
fn check_parts(all: &[u64], value: u64) {
    let parts = all.chunks(all.len() / RANKS as usize);
    assert!(parts.zip(value..).all(|(part, given)| part.iter().all(|it| *it == given)), "{value}");
}

fn check_sums(data: &[u64], value: u64) {
    assert!(data.iter().all(|it| *it == 4 * value + 6), "{value}: {}", data[0]);
}

fn allreduce(
    comm: &Communicator,
    value: u64,
    length: usize,
    way: ReduceAlgorithm,
) -> Result<(), Error> {
    let mut data = given(comm, value, length);
    comm.allreduce_with(&mut data, ReduceOp::Sum, way)?;
    check_sums(&data, value);
    Ok(())
}

/// Bytes of the parts of all ranks, which amount to four times `length` numbers; one part is empty.
fn varied(length: usize) -> [usize; 4] {
    [8 * length, 0, 12 * length, 12 * length]
}

/// Checks that `all` has one part from each rank, with the given lengths.
fn check_varied(all: &[u8], value: u64, lengths: &[usize]) {
    let given = (value..).zip(lengths);
    let expected: Vec<u8> = given.flat_map(|(given, length)| vec![given as u8; *length]).collect();
    assert!(all == expected, "{value}");
}

const CALLS: [(Collective, Call); 14] = [
    (Collective::Allreduce, |comm, value, length| {
        let mut data = given(comm, value, length);
        comm.allreduce(&mut data, ReduceOp::Sum)?;
        check_sums(&data, value);
        Ok(())
    }),
    (Collective::Allreduce, |comm, value, length| {
        allreduce(comm, value, length, ReduceAlgorithm::Tree(Tree::Chain))
    }),
    (Collective::Allreduce, |comm, value, length| {
        allreduce(comm, value, length, ReduceAlgorithm::Blocks)
    }),
    (Collective::Allreduce, |comm, value, length| {
        allreduce(comm, value, length, ReduceAlgorithm::Ring)
    }),
    (Collective::ReduceScatter, |comm, value, length| {
        let mut data = given(comm, value, length);
        let own = comm.reduce_scatter(&mut data, ReduceOp::Sum)?;
        check_sums(&data[own], value);
        Ok(())
    }),
    (Collective::Reduce, |comm, value, length| {
        let mut data = given(comm, value, length);
        comm.reduce(1, &mut data, ReduceOp::Sum)?;
        if comm.rank() == 1 {
            check_sums(&data, value);
        }
        Ok(())
    }),
    (Collective::Gather, |comm, value, length| {
        let mut all = vec![0; length * RANKS as usize];
        comm.gather(1, cast_slice(&given(comm, value, length)), cast_slice_mut(&mut all))?;
        if comm.rank() == 1 {
            check_parts(&all, value);
        }
        Ok(())
    }),
    (Collective::Allgather, |comm, value, length| {
        let mut all = vec![0; length * RANKS as usize];
        comm.allgather(cast_slice(&given(comm, value, length)), cast_slice_mut(&mut all))?;
        check_parts(&all, value);
        Ok(())
    }),
    (Collective::Scatter, |comm, value, length| {
        // The root is the late rank.
        let all: Vec<u64> = (0..4).flat_map(|rank| vec![value + rank; length]).collect();
        let mut own = vec![0; length];
        comm.scatter(3, cast_slice(&all), cast_slice_mut(&mut own))?;
        assert_eq!(own, given(comm, value, length));
        Ok(())
    }),
    (Collective::Alltoall, |comm, value, length| {
        let mut all = vec![0; length * RANKS as usize];
        let data = given(comm, value, all.len());
        comm.alltoall(cast_slice(&data), cast_slice_mut(&mut all))?;
        check_parts(&all, value);
        Ok(())
    }),
    (Collective::Gatherv, |comm, value, length| {
        let (lengths, me) = (varied(length), comm.rank());
        let mut all = vec![0; 32 * length];
        let own = vec![(value + u64::from(me)) as u8; lengths[me as usize]];
        comm.gatherv(1, &own, &mut all, &lengths)?;
        if me == 1 {
            check_varied(&all, value, &lengths);
        }
        Ok(())
    }),
    (Collective::Allgatherv, |comm, value, length| {
        let (lengths, me) = (varied(length), comm.rank());
        let mut all = vec![0; 32 * length];
        let own = vec![(value + u64::from(me)) as u8; lengths[me as usize]];
        comm.allgatherv(&own, &mut all, &lengths)?;
        check_varied(&all, value, &lengths);
        Ok(())
    }),
    (Collective::Scatterv, |comm, value, length| {
        let (lengths, me) = (varied(length), comm.rank());
        let mut own = vec![0; lengths[me as usize]];
        comm.scatterv(3, &vec![value as u8; 32 * length], &lengths, &mut own)?;
        assert_eq!(own, vec![value as u8; lengths[me as usize]]);
        Ok(())
    }),
    (Collective::Alltoallv, |comm, value, length| {
        let (lengths, me) = (varied(length), comm.rank());
        let own = [lengths[me as usize]; 4];
        let data = vec![(value + u64::from(me)) as u8; 4 * own[0]];
        let mut all = vec![0; 32 * length];
        comm.alltoallv(&data, &own, &mut all, &lengths)?;
        check_varied(&all, value, &lengths);
        Ok(())
    }),
];

/// Lets rank 1's next wait end by `ending` once `ends` is set.
fn interruptible(
    ends: &Arc<AtomicBool>,
    ending: fn() -> ControlFlow<()>,
) -> impl Fn(&mut Config) + Sync {
    let ends = ends.clone();
    move |config| {
        if config.rank == 1 {
            config.while_waiting = Some(interrupted(&ends, ending));
        }
    }
}

fn broken() -> ControlFlow<()> {
    ControlFlow::Break(())
}

fn check_given_up(outcome: Result<(), Error>, collective: Collective) {
    let error = outcome.unwrap_err();
    let names = matches!(error, Error::CollectivesBroken { rank: 1, collective: it }
        if it == collective);
    assert!(names, "{collective}: {error}");
    assert!(error.to_string().starts_with(&format!("rank 1 could not complete {collective} on ")));
}

/// Rank 1 gives up a call because rank 3 is late; then all continue with other calls.
fn give_up(world: &Communicator, ends: &AtomicBool, (collective, call): (Collective, Call)) {
    for length in LENGTHS {
        let other = world.dup().unwrap();
        call(&other, 5, length).unwrap();
        world.barrier().unwrap();
        if world.rank() == 3 {
            world.recv(1, 0, &mut []).unwrap();
        }
        ends.fetch_or(world.rank() == 1, Ordering::Relaxed);
        let mut outcome = call(&other, 10, length);
        if world.rank() == 1 {
            assert!(matches!(outcome, Err(Error::Interrupted)), "{collective}: {outcome:?}");
            world.send(3, 0, &[]).unwrap();
            outcome = call(&other, 11, length);
        }
        // A rank that waits for no other learns of it later.
        for value in (1..).map(|round| 1000 * round) {
            let mut has_ended = [u8::from(outcome.is_err())];
            world.allreduce(&mut has_ended, ReduceOp::Min).unwrap();
            if has_ended == [1] {
                break;
            }
            outcome = outcome.and_then(|()| call(&other, value, length));
        }
        check_given_up(outcome, collective);
        check_given_up(call(&other, 7, length), collective);
        check_given_up(other.barrier(), collective);
        check_given_up(other.bcast(0, &mut [0]), collective);
        check_given_up(other.dup().map(|_| ()), collective);
    }
}

fn all_hear(adjust: impl Fn(&mut Config) + Sync) {
    let ends = Arc::new(AtomicBool::new(false));
    let interruptible = interruptible(&ends, broken);
    let adjust = |config: &mut Config| {
        interruptible(config);
        adjust(config);
    };
    with_ranks(RANKS, adjust, |world| {
        for call in CALLS {
            give_up(&world, &ends, call);
        }
        world.finalize().unwrap();
    });
}

#[test]
fn abandoned_collective_is_reported_without_multicast_or_multisend() {
    all_hear(|config| {
        config.multicast = Multicast::Off;
        config.multisend = MultiSend::Off;
    });
}

#[test]
fn abandoned_collective_is_reported_with_multicast_and_shared_memory() {
    all_hear(|config| config.shared_memory = config.rank % 2 == 0);
}

/// Wherever rank 1 is when it gives up, the results that others have by then are correct.
#[test]
fn successive_collectives_are_correct_until_one_is_abandoned() {
    for calls in 1..=20 {
        // Calls are counted only after all ranks have joined.
        let left = Arc::new(AtomicU32::new(0));
        let adjust = |config: &mut Config| {
            if config.rank == 1 {
                let left = left.clone();
                let before = |left: u32| left.checked_sub(1);
                let callback =
                    move || match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, before) {
                        Ok(1) => ControlFlow::Break(()),
                        _ => ControlFlow::Continue(()),
                    };
                let callback = WhileWaiting::every(Duration::from_micros(20), callback);
                config.while_waiting = Some(callback);
            }
        };
        with_ranks(RANKS, adjust, |world| {
            let other = world.dup().unwrap();
            world.barrier().unwrap();
            left.fetch_max(calls * u32::from(world.rank() == 1), Ordering::Relaxed);
            let calls = CALLS.iter().cycle().zip(LENGTHS.into_iter().cycle());
            let mut outcomes = calls
                .zip(1..)
                .map(|(((_, call), length), value)| call(&other, 1000 * value, length));
            let error = outcomes.find_map(Result::err).unwrap();
            match error {
                Error::Interrupted => assert_eq!(world.rank(), 1),
                Error::CollectivesBroken { rank: 1, .. } => {}
                error => panic!("{error}"),
            }
            world.finalize().unwrap();
        });
    }
}

/// Rank 1's part in a sum up a chain and down again ends by `ending`.
fn sum_ends(ending: fn() -> ControlFlow<()>, adjust: fn(&mut Config)) {
    let ends = Arc::new(AtomicBool::new(false));
    let interruptible = interruptible(&ends, ending);
    let adjust = |config: &mut Config| {
        interruptible(config);
        adjust(config);
    };
    with_ranks(3, adjust, |world| {
        let up = || {
            let mut data = [1u64; 9];
            world.allreduce_with(&mut data, ReduceOp::Sum, ReduceAlgorithm::Tree(Tree::Chain))
        };
        match world.rank() {
            // Rank 1 waits for it, but it takes part too late.
            2 => world.recv(1, 0, &mut []).map(|_| ()).unwrap(),
            1 => {
                ends.store(true, Ordering::Relaxed);
                assert!(!matches!(catch_unwind(AssertUnwindSafe(up)), Ok(Ok(()))));
                world.send(2, 0, &[]).unwrap();
            }
            _ => {}
        }
        check_given_up(up(), Collective::Allreduce);
        world.finalize().unwrap();
    });
}

#[test]
fn ranks_can_finalize_after_an_abandoned_world_collective() {
    sum_ends(broken, |_| {});
}

#[test]
fn ranks_can_finalize_after_an_abandoned_collective_without_a_nic() {
    sum_ends(broken, |config| config.nic = omnes::NicChoice::Off);
}

#[test]
fn panic_of_a_rank_in_a_collective_is_reported_to_the_others() {
    sum_ends(|| panic!("the test's own"), |_| {});
}

/// Rank 1 gives up a scan because rank 0, whose numbers it waits for, is late.
#[test]
fn abandoned_scan_is_reported_to_all_ranks() {
    let ends = Arc::new(AtomicBool::new(false));
    with_ranks(9, interruptible(&ends, broken), |world| {
        for length in LENGTHS {
            let other = world.dup().unwrap();
            let scan = || other.scan(&mut vec![1u64; length], ReduceOp::Sum);
            world.barrier().unwrap();
            match world.rank() {
                0 => world.recv(1, 0, &mut []).map(|_| ()).unwrap(),
                1 => {
                    ends.store(true, Ordering::Relaxed);
                    let outcome = scan();
                    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
                    world.send(0, 0, &[]).unwrap();
                }
                _ => {}
            }
            // A rank that waits for no other learns of it later.
            check_given_up(scan().and_then(|()| other.barrier()), Collective::Scan);
            check_given_up(scan(), Collective::Scan);
        }
        world.finalize().unwrap();
    });
}

/// Lengths that are gathered; that differ within a segment, by whole segments, and in the last one
/// only.
#[test]
fn scan_with_different_lengths_fails_on_all_ranks() {
    with_ranks(
        9,
        |_| {},
        |world| {
            let pairs = [(9, 10), (40_000, 40_001), (16_384, 24_576), (16_384, 16_385)];
            for (one, two) in pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
                let other = world.dup().unwrap();
                let mut data = vec![1u64; if world.rank() == 2 { two } else { one }];
                let outcome = other.exscan(&mut data, ReduceOp::Sum);
                let error = outcome.and_then(|()| other.barrier()).unwrap_err();
                let is_own =
                    matches!(error, Error::Truncated { .. } | Error::LengthMismatch { .. });
                let is_told = matches!(error, Error::CollectivesBroken { .. });
                assert!(is_own || is_told, "{one} {two}: {error}");
            }
            world.finalize().unwrap();
        },
    );
}

#[test]
fn allreduce_with_different_lengths_fails_on_all_ranks() {
    with_ranks(
        4,
        |_| {},
        |world| {
            let other = world.dup().unwrap();
            let mut data = vec![1u64; if world.rank() == 2 { 10 } else { 9 }];
            let outcome =
                other.allreduce_with(&mut data, ReduceOp::Sum, ReduceAlgorithm::Tree(Tree::Chain));
            let error = outcome.and_then(|()| other.barrier()).unwrap_err();
            let is_own = matches!(error, Error::Truncated { .. } | Error::LengthMismatch { .. });
            let is_told = matches!(error, Error::CollectivesBroken { .. });
            assert!(is_own || is_told, "{error}");
            world.finalize().unwrap();
        },
    );
}

/// Also if one of the two lengths is 0, so that the message is empty.
#[test]
fn alltoall_with_an_unexpected_part_length_fails_on_all_ranks() {
    for (sent, expected) in [(0, 5), (5, 0), (5, 4), (4, 5), (100_000, 0), (0, 100_000)] {
        with_ranks(
            3,
            |_| {},
            |world| {
                let (other, me) = (world.dup().unwrap(), world.rank());
                let (mut outgoing, mut incoming) = ([7; 3], [7; 3]);
                match me {
                    1 => outgoing[0] = sent,
                    0 => incoming[1] = expected,
                    _ => {}
                }
                let data = vec![1; outgoing.iter().sum()];
                let mut buffer = vec![0; incoming.iter().sum()];
                let outcome = other.alltoallv(&data, &outgoing, &mut buffer, &incoming);
                let error = outcome.and_then(|()| other.barrier()).unwrap_err();
                let is_own =
                    matches!(error, Error::Truncated { .. } | Error::LengthMismatch { .. });
                let is_told = matches!(error, Error::CollectivesBroken { rank: 0, .. });
                assert!(if me == 0 { is_own } else { is_told }, "{error}");
                world.finalize().unwrap();
            },
        );
    }
}

#[test]
fn empty_alltoall_part_of_one_rank_fails_on_all_ranks() {
    with_ranks(
        3,
        |_| {},
        |world| {
            let other = world.dup().unwrap();
            let bytes = if world.rank() == 1 { 0 } else { 30 };
            let outcome = other.alltoall(&vec![1; bytes], &mut vec![0; bytes]);
            let error = outcome.and_then(|()| other.barrier()).unwrap_err();
            let is_own = matches!(error, Error::Truncated { .. } | Error::LengthMismatch { .. });
            let is_told = matches!(error, Error::CollectivesBroken { .. });
            assert!(is_own || is_told, "{error}");
            world.finalize().unwrap();
        },
    );
}

#[test]
fn abandoned_channel_barrier_is_not_completed_by_another_barrier() {
    let ends = Arc::new(AtomicBool::new(false));
    with_ranks(3, interruptible(&ends, broken), |world| {
        let other = world.dup().unwrap();
        let kind = BarrierKind { form: Some(BarrierForm::Channel), algorithm: None };
        match world.rank() {
            2 => world.recv(1, 0, &mut []).map(|_| ()).unwrap(),
            1 => {
                ends.store(true, Ordering::Relaxed);
                assert!(matches!(other.barrier_with(kind), Err(Error::Interrupted)));
                world.send(2, 0, &[]).unwrap();
            }
            _ => {}
        }
        check_given_up(other.barrier_with(kind), Collective::Barrier);
        // Other barriers in user space still work.
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

/// So that a broadcast arrives after the earlier messages of its root.
fn by_channels(config: &mut Config) {
    config.bcast = Some("binomial".parse().unwrap());
}

/// Rank 1 drops its part in a sum of `other`, and all know it.
fn give_a_sum_up(world: &Communicator, other: &Communicator) {
    if world.rank() == 1 {
        let mut data = [1u64; 4];
        let base = NonNull::from(&mut data[..]).cast();
        // SAFETY: dropped immediately, before the data are.
        drop(unsafe { other.iallreduce_raw(base, 32, ElementType::U64, ReduceOp::Sum).unwrap() });
    }
    world.bcast(1, &mut [0]).unwrap();
}

#[test]
fn no_collective_starts_after_an_abandoned_one() {
    let kind: BarrierKind = "user:pairwise".parse().unwrap();
    with_ranks(3, by_channels, |world| {
        let other = world.dup().unwrap();
        other.barrier_with(kind).unwrap();
        world.barrier().unwrap();
        give_a_sum_up(&world, &other);
        let is_refused = |outcome| check_given_up(outcome, Collective::Allreduce);
        is_refused(other.bcast_owned(0, vec![1; 8]).map(drop));
        is_refused(other.ibarrier_owned().map(drop));
        is_refused(other.scope(|scope| scope.ibarrier_with(kind).map(drop)));
        is_refused(other.barrier_timeout(Duration::from_secs(20)));
        is_refused(other.barrier_with(kind));
        let mut byte = [1];
        is_refused(other.scope(|scope| scope.iscatter(0, &[1; 3], &mut byte).map(drop)));
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn dropping_a_communicator_keeps_failure_reports_of_another() {
    with_ranks(2, by_channels, |world| {
        let (other, dropped) = (world.dup().unwrap(), world.dup().unwrap());
        give_a_sum_up(&world, &other);
        drop(dropped);
        check_given_up(other.barrier(), Collective::Allreduce);
        world.finalize().unwrap();
    });
}
