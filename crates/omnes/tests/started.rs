//! Nonblocking reductions and gathers that fail.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{
    Communicator, Config, ElementType, Error, OwnedRequest, ReduceOp, Source, Status, Tag,
};
use ranks::with_ranks;
use std::ptr::NonNull;
use std::time::Duration;

fn by_sockets(config: &mut Config) {
    config.shared_memory = false;
}

fn sum(comm: &Communicator, data: &mut [i64]) -> Result<Status, Error> {
    comm.scope(|scope| scope.iallreduce(data, ReduceOp::Sum)?.wait())
}

/// The collectives of `other` are over, those of `world` still work.
fn is_over_and_the_world_goes_on(other: &Communicator, world: &Communicator, by: u32) {
    let error = sum(other, &mut [1]).unwrap_err();
    assert!(matches!(error, Error::CollectivesBroken { rank, .. } if rank == by), "{error}");
    let mut data = [1, i64::from(world.rank())];
    sum(world, &mut data).unwrap();
    assert_eq!(data, [3, 3]);
}

#[test]
fn dropped_reduction_breaks_collectives_of_its_communicator() {
    for length in [1, 50_000] {
        with_ranks(3, by_sockets, |world| {
            let other = world.dup().unwrap();
            let mut data = vec![1i64; length];
            if world.rank() == 1 {
                let base = NonNull::from(&mut data[..]).cast();
                let (sum, bytes) = (ReduceOp::Sum, 8 * length);
                // SAFETY: dropped immediately, before the data are.
                drop(unsafe { other.iallreduce_raw(base, bytes, ElementType::I64, sum).unwrap() });
            } else if let Err(error) = sum(&other, &mut data) {
                assert!(matches!(error, Error::CollectivesBroken { rank: 1, .. }), "{error}");
            }
            is_over_and_the_world_goes_on(&other, &world, 1);
            world.finalize().unwrap();
        });
    }
}

#[test]
fn dropped_gather_leaves_its_memory_unchanged() {
    const PART: usize = 4 << 20;
    with_ranks(2, by_sockets, |world| {
        let other = world.dup().unwrap();
        let (mut own, mut all) = (vec![1; PART], vec![7; 2 * PART]);
        let (own, memory) = (NonNull::from(&mut own[..]), NonNull::from(&mut all[..]));
        if world.rank() == 0 {
            // The other part has begun to arrive.
            world.barrier().unwrap();
            // SAFETY: dropped immediately, before the memory is.
            drop(unsafe { other.igather_raw(0, own, memory).unwrap() });
            all.fill(9);
            world.recv(1, 0, &mut []).unwrap();
            assert!(all.iter().all(|byte| *byte == 9));
        } else {
            // SAFETY: ends before the memory is freed, which is not accessed meanwhile.
            let part = unsafe { other.igather_raw(0, own, memory).unwrap() };
            world.barrier().unwrap();
            if let Err(error) = part.wait() {
                assert!(matches!(error, Error::CollectivesBroken { rank: 0, .. }), "{error}");
            }
            world.send(0, 0, &[]).unwrap();
        }
        world.finalize().unwrap();
    });
}

#[test]
fn completed_reduction_can_be_dropped() {
    with_ranks(3, by_sockets, |world| {
        let other = world.dup().unwrap();
        let mut data = [1i64; 4];
        if world.rank() == 1 {
            let base = NonNull::from(&mut data[..]).cast();
            // SAFETY: dropped before the data are, which are used only after it has ended.
            let started =
                unsafe { other.iallreduce_raw(base, 32, ElementType::I64, ReduceOp::Sum) };
            let started = started.unwrap();
            // The others have their results, so this rank has its own, or will receive it soon.
            world.barrier().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            world.iprobe(Source::Any, Tag::Any).unwrap();
            drop(started);
        } else {
            sum(&other, &mut data).unwrap();
            world.barrier().unwrap();
        }
        assert_eq!(data, [3; 4]);
        sum(&other, &mut data).unwrap();
        assert_eq!(data, [9; 4]);
        world.finalize().unwrap();
    });
}

#[test]
fn different_reduction_lengths_are_an_error_on_all_ranks() {
    with_ranks(3, by_sockets, |world| {
        let other = world.dup().unwrap();
        let mut data = vec![1; if world.rank() == 2 { 10 } else { 20 }];
        let error = sum(&other, &mut data).unwrap_err();
        match world.rank() {
            0 => assert!(matches!(error, Error::LengthMismatch { received: 80, expected: 160 })),
            _ => assert!(matches!(error, Error::CollectivesBroken { rank: 0, .. }), "{error}"),
        }
        is_over_and_the_world_goes_on(&other, &world, 0);
        world.finalize().unwrap();
    });
}

#[test]
fn collectives_of_different_kinds_do_not_match() {
    with_ranks(2, by_sockets, |world| {
        let other = world.dup().unwrap();
        let mut data = [7i64];
        let base = NonNull::from(&mut data[..]);
        let bytes: NonNull<[u8]> = NonNull::slice_from_raw_parts(base.cast(), 8);
        if world.rank() == 0 {
            // SAFETY: dropped before the data are.
            let sum =
                unsafe { other.iallreduce_raw(base.cast(), 8, ElementType::I64, ReduceOp::Sum) };
            let mut sum = sum.unwrap();
            world.barrier().unwrap();
            for _ in 0..20 {
                assert!(sum.test().unwrap().is_none(), "a part of a gather has come in");
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(sum);
            assert_eq!(data, [7]);
        } else {
            // SAFETY: as above; a rank that is not the root has no buffer for all parts.
            let own = unsafe {
                other.igather_raw(0, bytes, NonNull::slice_from_raw_parts(bytes.cast(), 0))
            };
            assert!(matches!(own.unwrap().wait(), Ok(_) | Err(Error::CollectivesBroken { .. })));
            world.barrier().unwrap();
        }
        world.finalize().unwrap();
    });
}

/// Up to four numbers are combined in the packets of a barrier.
#[test]
fn element_count_different_from_the_node_leader_is_an_error() {
    let by_memory = |config: &mut Config| config.shared_memory = true;
    for counts in [[1, 2], [4, 1]] {
        with_ranks(2, by_memory, |world| {
            let other = world.dup().unwrap();
            let mut data = vec![3i64; counts[world.rank() as usize]];
            let outcome = other.allreduce(&mut data, ReduceOp::Product);
            if world.rank() == 1 {
                let error = outcome.unwrap_err();
                let Error::LengthMismatch { received, expected } = error else { panic!("{error}") };
                assert_eq!([received, expected], counts.map(|count: usize| 8 * count as u64));
            }
            let error = other.allreduce(&mut [1i64], ReduceOp::Sum).unwrap_err();
            assert!(matches!(error, Error::CollectivesBroken { rank: 1, .. }), "{error}");
            world.finalize().unwrap();
        });
    }
}

#[test]
fn wrong_part_lengths_fail_only_on_the_receiving_rank() {
    const EACH: usize = 100_000;
    for bytes in [EACH - 1, EACH + 1] {
        with_ranks(3, by_sockets, |world| {
            let (me, right) = (world.rank(), vec![1; 3 * EACH]);
            let mut own = vec![1; if me == 1 { bytes } else { EACH }];
            let mut all = vec![0; 3 * EACH];
            let is_length = |error: Error| {
                assert!(matches!(error, Error::Truncated { .. } | Error::LengthMismatch { .. }));
            };
            let gathered =
                world.scope(|scope| scope.igatherv(0, &own, &mut all, &[EACH; 3])?.wait());
            match gathered {
                Ok(_) => assert_ne!(me, 0),
                Err(error) => is_length(error),
            }
            let scattered =
                world.scope(|scope| scope.iscatterv(0, &right, &[EACH; 3], &mut own)?.wait());
            match scattered {
                Ok(_) => assert_ne!(me, 1),
                Err(error) => is_length(error),
            }
            own.resize(EACH, 1);
            own.fill(me as u8);
            world.scope(|scope| scope.igatherv(0, &own, &mut all, &[EACH; 3])?.wait()).unwrap();
            assert!(me > 0 || all.chunks(EACH).map(|part| part[7]).eq(0..3));
            world.finalize().unwrap();
        });
    }
}

#[test]
fn invalid_lengths_are_rejected_before_memory_is_touched() {
    with_ranks(3, by_sockets, |world| {
        let (own, mut all, mut other) = ([1; 2], [7; 6], [7; 6]);
        let (me, size) = (world.rank() as usize, [2; 3]);
        let mut uneven = size;
        uneven[me] = 1;
        world.scope(|scope| {
            let refused = scope.iallgatherv(&own, &mut all, &size[1..]).unwrap_err();
            assert!(matches!(refused, Error::LengthsCount { name: "lengths", count: 2, ranks: 3 }));
        });
        world.scope(|scope| {
            let refused = scope.iallgatherv(&own, &mut all[1..], &uneven).unwrap_err();
            assert!(
                matches!(refused, Error::LengthMismatch { received: 2, expected: 1 }),
                "{refused}"
            );
        });
        world.scope(|scope| {
            let refused = scope.ialltoallv(&[1; 6], &size, &mut other[..5], &size).unwrap_err();
            assert!(matches!(refused, Error::BufferLength { name: "buffer", .. }), "{refused}");
        });
        assert_eq!((all, other), ([7; 6], [7; 6]));
        let mut data = [1];
        sum(&world, &mut data).unwrap();
        assert_eq!(data, [3]);
        world.finalize().unwrap();
    });
}

/// Whether messages are short, or wait for the receiver's consent.
#[test]
fn root_that_is_rejected_takes_part_without_data() {
    for (ranks, each) in [(3, 5), (3, 1 << 20), (66, 5)] {
        with_ranks(
            ranks,
            |config| config.shared_memory = ranks > 3,
            |world| {
                let (size, is_root) = (ranks as usize, world.rank() == 1);
                let (given, mut all) = (vec![1; each * size], vec![7; each * size]);
                let (own, mut part) = (vec![1; each], vec![7; each]);
                let other_sum = vec![each + 1; size];
                let rejected = |error: Error| match error {
                    Error::BufferLength { name: "all", .. } | Error::LengthsCount { .. } => {}
                    Error::LengthMismatch { .. } | Error::Truncated { .. } => {}
                    error => panic!("{error}"),
                };
                let (other_own, few) = (&own[1..], vec![each; size - 1]);
                for lengths in [None, Some(&other_sum), Some(&few)] {
                    world.scope(|scope| {
                        let gathers = match lengths {
                            None => scope.igather(1, &own, &mut all[1..]),
                            Some(lengths) => scope.igatherv(1, &own, &mut all, lengths),
                        };
                        assert_eq!(gathers.is_err(), is_root, "{gathers:?}");
                        match gathers {
                            Ok(gathers) => assert_eq!(gathers.wait().unwrap().source, 1),
                            Err(error) => rejected(error),
                        }
                    });
                    world.scope(|scope| {
                        let scatters = match lengths {
                            None => scope.iscatter(1, &given[1..], &mut part),
                            Some(lengths) => scope.iscatterv(1, &given, lengths, &mut part),
                        };
                        assert_eq!(scatters.is_err(), is_root, "{scatters:?}");
                        rejected(scatters.and_then(|scatters| scatters.wait()).unwrap_err());
                    });
                }
                // Of this rank's own part.
                let lengths = vec![each; size];
                world.scope(|scope| {
                    let own = if is_root { other_own } else { &own };
                    match scope.igatherv(1, own, &mut all, &lengths) {
                        Ok(gathers) => assert_eq!(gathers.wait().unwrap().source, 1),
                        Err(Error::LengthMismatch { .. }) => assert!(is_root),
                        Err(error) => panic!("{error}"),
                    }
                });
                assert!(all.iter().chain(&part).all(|byte| *byte == 7));
                let mut data = [1];
                sum(&world, &mut data).unwrap();
                assert_eq!(data, [i64::from(ranks)]);
                world.finalize().unwrap();
            },
        );
    }
}

#[test]
fn alltoall_rejected_for_the_own_part_breaks_collectives() {
    const EACH: usize = 1 << 20;
    with_ranks(3, by_sockets, |world| {
        let other = world.dup().unwrap();
        let (data, mut buffer) = (vec![1; 3 * EACH], vec![0; 3 * EACH]);
        let mut lengths = [EACH; 3];
        let outcome = other.scope(|scope| {
            let outgoing = lengths;
            if world.rank() == 1 {
                lengths = [EACH, EACH + 1, EACH - 1];
            }
            scope.ialltoallv(&data, &outgoing, &mut buffer, &lengths)?.wait()
        });
        match outcome.unwrap_err() {
            Error::LengthMismatch { expected, .. } => {
                assert_eq!((world.rank(), expected), (1, EACH as u64 + 1));
            }
            error => assert!(matches!(error, Error::CollectivesBroken { rank: 1, .. }), "{error}"),
        }
        is_over_and_the_world_goes_on(&other, &world, 1);
        world.finalize().unwrap();
    });
}

#[test]
fn invalid_calls_on_all_ranks_do_not_affect_later_calls() {
    with_ranks(3, by_sockets, |world| {
        let (mut floats, mut more_floats) = ([1.0f32], [1.0f32]);
        let (mut small, mut bytes, own) = ([0; 5], [1u8], [1; 2]);
        world.scope(|scope| {
            let refused = scope.iallreduce(&mut floats, ReduceOp::Xor).unwrap_err();
            assert!(matches!(refused, Error::Reduction { .. }), "{refused}");
            let refused = scope.iallgather(&own, &mut small).unwrap_err();
            assert!(matches!(refused, Error::BufferLength { expected: 6, .. }), "{refused}");
            let refused = scope.ireduce_scatter(&mut more_floats, ReduceOp::And).unwrap_err();
            assert!(matches!(refused, Error::Reduction { .. }), "{refused}");
            let refused = scope.ireduce(3, &mut bytes, ReduceOp::Sum).unwrap_err();
            assert!(matches!(refused, Error::RankOutOfRange { .. }), "{refused}");
        });
        let mut data = [1];
        sum(&world, &mut data).unwrap();
        assert_eq!(data, [3]);
        world.finalize().unwrap();
    });
}

/// Memory of 4 numbers per rank, which outlives the operations started on it.
struct Memory {
    own: [u8; 32],
    data: [u8; 96],
    all: [u8; 96],
}

/// Starts a call among three ranks; this rank's call is rejected if it is `wrong`.
type Start = fn(&Communicator, &mut Memory, bool) -> Result<OwnedRequest, Error>;

/// The memory is not accessed otherwise, and outlives the operations, which are dropped first.
const STARTS: [Start; 9] = [
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let element = if wrong { ElementType::F64 } else { ElementType::I64 };
        comm.iallreduce_raw(NonNull::from(&mut memory.own).cast(), 32, element, ReduceOp::And)
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let (own, root) = (NonNull::from(&mut memory.own).cast(), if wrong { 3 } else { 0 });
        comm.ireduce_raw(root, own, 32, ElementType::I64, ReduceOp::And)
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let element = if wrong { ElementType::F64 } else { ElementType::I64 };
        let own = NonNull::from(&mut memory.own).cast();
        Ok(comm.ireduce_scatter_raw(own, 32, element, ReduceOp::And)?.0)
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let (own, all) = (NonNull::from(&memory.own[..]), NonNull::from(&mut memory.all[..]));
        comm.igather_raw(if wrong { 3 } else { 0 }, own, all)
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let room = &mut memory.all[..if wrong { 95 } else { 96 }];
        comm.igather_raw(1, NonNull::from(&memory.own[..]), NonNull::from(room))
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let room = &mut memory.all[..if wrong { 95 } else { 96 }];
        comm.iallgather_raw(NonNull::from(&memory.own[..]), NonNull::from(room))
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let (own, all) = (NonNull::from(&mut memory.own[..]), NonNull::from(&memory.all[..]));
        comm.iscatter_raw(if wrong { 3 } else { 0 }, all, own)
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let all = &memory.all[..if wrong { 95 } else { 96 }];
        comm.iscatter_raw(1, NonNull::from(all), NonNull::from(&mut memory.own[..]))
    },
    // SAFETY: as described above.
    |comm, memory, wrong| unsafe {
        let room = &mut memory.all[..if wrong { 95 } else { 96 }];
        comm.ialltoall_raw(NonNull::from(&memory.data[..]), NonNull::from(room))
    },
];

#[test]
fn call_rejected_on_one_rank_keeps_its_place_in_the_call_order() {
    with_ranks(3, by_sockets, |world| {
        for (number, start) in STARTS.into_iter().enumerate() {
            let other = world.dup().unwrap();
            let mut memory = Memory { own: [1; 32], data: [1; 96], all: [0; 96] };
            let started = start(&other, &mut memory, world.rank() == 1);
            assert_eq!(started.is_err(), world.rank() == 1, "start {number}: {started:?}");
            let mut data = [1, i64::from(world.rank())];
            sum(&other, &mut data).unwrap();
            assert_eq!(data, [3, 3], "start {number}");
            // No rank may miss its sum because another one abandons what cannot complete.
            world.barrier().unwrap();
            drop(started);
        }
        world.finalize().unwrap();
    });
}
