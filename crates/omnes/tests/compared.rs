//! Calls that are compared between ranks: a difference causes an error on all, and nothing else.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{Communicator, Config, Error, ReduceAlgorithm, ReduceOp};
use ranks::with_ranks;
use std::ptr::NonNull;
use std::time::Duration;

type Call = fn(&Communicator) -> Result<(), Error>;

fn compares(config: &mut Config) {
    config.compare_calls = true;
}

fn sum(comm: &Communicator, root: u32, length: usize, op: ReduceOp) -> Result<(), Error> {
    comm.reduce(root, &mut vec![1.0; length], op)
}

fn gather(comm: &Communicator, root: u32, bytes: usize) -> Result<(), Error> {
    comm.gather(root, &vec![1; bytes], &mut vec![0; bytes * comm.size() as usize])
}

/// The call of ranks 0, 1 and 3, that of rank 2, and the text of both.
const DIFFERENCES: [(Call, Call, &str, &str); 21] = [
    (
        |comm| sum(comm, 0, 4, ReduceOp::Sum),
        |comm| sum(comm, 1, 4, ReduceOp::Sum),
        "reduce of 4 f64 by sum with root 0",
        "reduce of 4 f64 by sum with root 1",
    ),
    (
        |comm| sum(comm, 3, 4, ReduceOp::Sum),
        |comm| sum(comm, 3, 4, ReduceOp::Max),
        "reduce of 4 f64 by sum with root 3",
        "reduce of 4 f64 by max with root 3",
    ),
    (
        |comm| sum(comm, 3, 4, ReduceOp::Sum),
        |comm| sum(comm, 3, 50_000, ReduceOp::Sum),
        "reduce of 4 f64 by sum with root 3",
        "reduce of 50000 f64 by sum with root 3",
    ),
    (
        |comm| comm.allreduce(&mut [1u64], ReduceOp::Sum),
        |comm| comm.allreduce(&mut [1i64], ReduceOp::Sum),
        "allreduce of 1 u64 by sum",
        "allreduce of 1 i64 by sum",
    ),
    (
        // Several numbers, and one: without comparison, both wait forever.
        |comm| comm.allreduce(&mut [1u64], ReduceOp::Sum),
        |comm| comm.allreduce(&mut [1u64; 2], ReduceOp::Sum),
        "allreduce of 1 u64 by sum",
        "allreduce of 2 u64 by sum",
    ),
    (
        |comm| comm.allreduce_by(&mut [1; 8], 1, &|_, _| {}),
        |comm| comm.reduce_scatter(&mut [1u8; 8], ReduceOp::Xor).map(|_| ()),
        "allreduce of 8 bytes",
        "reduce_scatter of 8 u8 by xor",
    ),
    (
        |comm| comm.scan(&mut [1u8; 8], ReduceOp::Xor),
        |comm| comm.exscan(&mut [1u8; 8], ReduceOp::Xor),
        "scan of 8 u8 by xor",
        "exscan of 8 u8 by xor",
    ),
    (
        // Short and long: without comparison, all may wait forever.
        |comm| comm.scan_by(&mut [1; 8], 1, &|_, _| {}),
        |comm| comm.scan_by(&mut vec![1; 100_000], 1, &|_, _| {}),
        "scan of 8 bytes",
        "scan of 100000 bytes",
    ),
    (
        |comm| gather(comm, 0, 7),
        |comm| comm.scatter(0, &[], &mut [0; 7]),
        "gather of 7 bytes with root 0",
        "scatter of 7 bytes with root 0",
    ),
    (
        |comm| comm.allgather(&[1; 7], &mut [0; 28]),
        |comm| comm.alltoall(&[1; 28], &mut [0; 28]),
        "allgather of 7 bytes",
        "alltoall of 28 bytes",
    ),
    (
        |comm| comm.allgatherv_in_place(&mut [1; 7], &[3, 0, 4, 0]),
        |comm| comm.allgatherv_in_place(&mut [1; 7], &[3, 4, 0, 0]),
        "allgatherv of 7 bytes in parts of lengths #6a3354e0",
        "allgatherv of 7 bytes in parts of lengths #093e5360",
    ),
    (
        |comm| comm.gatherv(0, &[1], &mut [0; 4], &[1; 4]),
        |comm| comm.scatterv(0, &[], &[], &mut [0]),
        "gatherv with root 0",
        "scatterv with root 0",
    ),
    (
        |comm| comm.gatherv(0, &[1], &mut [0; 4], &[1; 4]),
        |comm| comm.gatherv(1, &[1], &mut [0; 4], &[1; 4]),
        "gatherv with root 0",
        "gatherv with root 1",
    ),
    (
        |comm| comm.scatterv(1, &[1; 4], &[1; 4], &mut [0]),
        |comm| comm.scatterv(2, &[1; 4], &[1; 4], &mut [0]),
        "scatterv with root 1",
        "scatterv with root 2",
    ),
    (
        |comm| comm.alltoallv(&[1; 4], &[1; 4], &mut [0; 4], &[1; 4]),
        |comm| comm.alltoall(&[1; 4], &mut [0; 4]),
        "alltoallv",
        "alltoall of 4 bytes",
    ),
    (
        |comm| comm.reduce_by(0, &mut [1; 8], 1, &|_, _| {}),
        |comm| comm.reduce_by(1, &mut [1; 8], 1, &|_, _| {}),
        "reduce of 8 bytes with root 0",
        "reduce of 8 bytes with root 1",
    ),
    (
        |comm| comm.reduce_by(0, &mut [1; 8], 1, &|_, _| {}),
        |comm| comm.reduce_by(0, &mut [1; 9], 1, &|_, _| {}),
        "reduce of 8 bytes with root 0",
        "reduce of 9 bytes with root 0",
    ),
    (
        |comm| comm.allreduce_with(&mut [1u64; 9], ReduceOp::Sum, ReduceAlgorithm::Blocks),
        |comm| comm.allreduce_with(&mut [1u64; 9], ReduceOp::Max, ReduceAlgorithm::Blocks),
        "allreduce of 9 u64 by sum",
        "allreduce of 9 u64 by max",
    ),
    (|comm| comm.barrier(), |comm| comm.dup().map(|_| ()), "barrier", "split"),
    (
        |comm| comm.bcast(0, &mut [1; 9]),
        |comm| comm.barrier(),
        "bcast of 9 bytes with root 0",
        "barrier",
    ),
    (
        |comm| comm.bcast(0, &mut [1; 9]),
        |comm| {
            let base = NonNull::from(&mut [1; 8]).cast();
            // SAFETY: the array lives until the end of the call.
            unsafe { comm.bcast_raw(0, base, 8) }
        },
        "bcast of 9 bytes with root 0",
        "bcast of 8 bytes with root 0",
    ),
];

#[test]
fn mismatched_calls_are_named_on_all_ranks_and_later_calls_succeed() {
    with_ranks(4, compares, |world| {
        for (call, other, first, second) in DIFFERENCES {
            let outcome = if world.rank() == 2 { other(&world) } else { call(&world) };
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::CallMismatch { rank: 2, .. }), "{error}");
            let text = format!("rank 2 called {second}, rank 0 {first}: ");
            assert!(error.to_string().starts_with(&text), "{error}");
            call(&world).unwrap();
            let mut sums = [u64::from(world.rank()); 9];
            world.allreduce(&mut sums, ReduceOp::Sum).unwrap();
            assert_eq!(sums, [6; 9]);
        }
        world.finalize().unwrap();
    });
}

#[test]
fn odd_call_of_rank_0_is_reported_as_a_mismatch_of_rank_1() {
    with_ranks(3, compares, |world| {
        let part = world.split(Some(0), -i64::from(world.rank())).unwrap().unwrap();
        let error = sum(&part, u32::from(part.rank() > 0), 1, ReduceOp::Min).unwrap_err();
        assert!(matches!(error, Error::CallMismatch { rank: 1, .. }), "{error}");
        world.finalize().unwrap();
    });
}

#[test]
fn timed_out_barrier_is_resumed_without_comparing_calls() {
    with_ranks(2, compares, |world| {
        if world.rank() == 0 {
            let error = world.barrier_timeout(Duration::from_millis(10)).unwrap_err();
            assert!(matches!(error, Error::BarrierTimeout { .. }), "{error}");
            world.send(1, 0, &[]).unwrap();
            world.barrier().unwrap();
        } else {
            world.recv(0, 0, &mut []).unwrap();
            world.barrier_timeout(Duration::from_secs(60)).unwrap();
        }
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}
