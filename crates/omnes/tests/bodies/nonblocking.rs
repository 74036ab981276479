//! Nonblocking reductions and gathers.

use super::{assert_same, pattern};
use omnes::{Communicator, ReduceOp};

const LENGTHS: [usize; 5] = [0, 1, 900, 20_000, 200_000];

fn numbers(length: usize, seed: u32) -> Vec<i64> {
    let bytes = pattern(8 * length, seed);
    bytes.as_chunks().0.iter().map(|word| i64::from_ne_bytes(*word)).collect()
}

/// Sums of the numbers of all ranks, whose seeds begin with `seed`.
fn sums(length: usize, ranks: u32, seed: u32) -> Vec<i64> {
    let mut sums = vec![0i64; length];
    for rank in 0..ranks {
        let row = numbers(length, seed + rank);
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum = sum.wrapping_add(number));
    }
    sums
}

/// Each call, with one root after the other.
pub fn each(comm: &Communicator, bytes_max: usize) {
    let (me, size) = (comm.rank(), comm.size());
    for (round, length) in (0..).zip(LENGTHS.map(|length| length.min(bytes_max / 8))) {
        let (seed, root) = (1000 * round, round % size);
        let expected = sums(length, size, seed);
        let mut all = numbers(length, seed + me);
        let mut one = all.clone();
        let mut block = all.clone();
        let own_block = comm.scope(|scope| {
            let done = scope.iallreduce(&mut all, ReduceOp::Sum).unwrap().wait().unwrap();
            assert_eq!((done.source, done.bytes), (me, 8 * length));
            let done = scope.ireduce(root, &mut one, ReduceOp::Sum).unwrap().wait().unwrap();
            assert_eq!((done.source, done.bytes), (root, 8 * length));
            let (request, range) = scope.ireduce_scatter(&mut block, ReduceOp::Sum).unwrap();
            let done = request.wait().unwrap();
            assert_eq!((done.source, done.bytes), (me, 8 * range.len()));
            range
        });
        assert!(all == expected, "{length} numbers at all");
        assert!(me != root || one == expected, "{length} numbers at {root}");
        let mut kept = numbers(length, seed + me);
        assert_eq!(own_block, comm.reduce_scatter(&mut kept, ReduceOp::Sum).unwrap());
        assert!(block == kept, "block {own_block:?} of {length} numbers");

        let bytes = 8 * length / size as usize;
        let row = |rank: u32| pattern(bytes, seed + 500 + rank);
        let table: Vec<u8> = (0..size).flat_map(row).collect();
        let at_root = |table: &[u8]| if me == root { table.to_vec() } else { Vec::new() };
        let (sent, own) = (at_root(&table), row(me));
        let (mut gathered, mut everywhere) = (at_root(&vec![0; table.len()]), vec![0; table.len()]);
        let mut scattered = vec![0; bytes];
        let part = |from: u32, to: u32| pattern(bytes, seed + 700 + 50 * from + to);
        let data: Vec<u8> = (0..size).flat_map(|to| part(me, to)).collect();
        let mut exchanged = vec![0; data.len()];
        comm.scope(|scope| {
            scope.igather(root, &own, &mut gathered).unwrap().wait().unwrap();
            scope.iallgather(&own, &mut everywhere).unwrap().wait().unwrap();
            scope.iscatter(root, &sent, &mut scattered).unwrap().wait().unwrap();
            scope.ialltoall(&data, &mut exchanged).unwrap().wait().unwrap();
        });
        assert_same(&gathered, &at_root(&table), "what is gathered at one");
        assert_same(&everywhere, &table, "what is gathered at all");
        assert_same(&scattered, &own, "a part of what one has");
        let expected: Vec<u8> = (0..size).flat_map(|from| part(from, me)).collect();
        assert_same(&exchanged, &expected, "parts of all");
    }
}

/// Parts of different lengths, including 0, or of one rank only, among all ranks and among some.
pub fn varied(comm: &Communicator, bytes_max: usize) {
    let part = comm.split(Some(comm.rank() % 3 / 2), -i64::from(comm.rank())).unwrap().unwrap();
    for comm in [comm, &part] {
        let size = comm.size();
        for (round, bytes) in (1..).zip([0, 3, 1000, 30_000, 600_000]) {
            let bytes = bytes.min(bytes_max / size as usize);
            parts_of(comm, round, &|from, to| bytes * ((3 * from + 5 * to) % 4) as usize / 3);
            parts_of(comm, 10 * round, &|from, to| if from + to == size { bytes } else { 0 });
        }
    }
}

/// All calls at the same time; `length(from, to)` is the length of a part, `length(from, 0)` if it
/// has no destination.
fn parts_of(comm: &Communicator, round: u32, length: &dyn Fn(u32, u32) -> usize) {
    let (me, size, root) = (comm.rank(), comm.size(), comm.size() - 1);
    let lengths: Vec<_> = (0..size).map(|rank| length(rank, 0)).collect();
    let row = |rank: u32| pattern(lengths[rank as usize], 100 * round + rank);
    let (own, table) = (row(me), (0..size).flat_map(row).collect::<Vec<_>>());
    let (root_lengths, root_table) =
        if me == root { (&lengths[..], &table[..]) } else { (&[][..], &[][..]) };
    let (mut everywhere, mut gathered) = (vec![0; table.len()], vec![0; root_table.len()]);
    let mut scattered = vec![0; own.len()];
    let part = |from: u32, to: u32| pattern(length(from, to), 100 * round + 10_000 * from + to);
    let data: Vec<u8> = (0..size).flat_map(|to| part(me, to)).collect();
    let expected: Vec<u8> = (0..size).flat_map(|from| part(from, me)).collect();
    let outgoing: Vec<_> = (0..size).map(|to| length(me, to)).collect();
    let incoming: Vec<_> = (0..size).map(|from| length(from, me)).collect();
    let mut exchanged = vec![0; expected.len()];
    comm.scope(|scope| {
        let requests = [
            scope.iallgatherv(&own, &mut everywhere, &lengths),
            scope.igatherv(root, &own, &mut gathered, root_lengths),
            scope.iscatterv(root, root_table, root_lengths, &mut scattered),
            scope.ialltoallv(&data, &outgoing, &mut exchanged, &incoming),
        ];
        let done = requests.map(|request| request.unwrap().wait().unwrap());
        let expected = [(me, table.len()), (root, own.len()), (root, own.len()), (me, data.len())];
        assert_eq!(done.map(|status| (status.source, status.bytes)), expected);
    });
    assert_same(&everywhere, &table, "what is gathered at all");
    assert_same(&gathered, root_table, "what is gathered at one");
    assert_same(&scattered, &own, "a part of what one has");
    assert_same(&exchanged, &expected, "parts of all");
}

/// Many calls in progress, mixed with other operations, which end in a different order on each
/// rank.
pub fn outstanding(comm: &Communicator, bytes_max: usize) {
    const COUNT: usize = 24;
    let (me, size) = (comm.rank(), comm.size());
    let length = |at: usize| LENGTHS[at % LENGTHS.len()].min(bytes_max / 8) / (1 + at % 3);
    let seed = |at: usize| 100_000 + 100 * at as u32;
    let mut data: Vec<_> = (0..COUNT).map(|at| numbers(length(at), seed(at) + me)).collect();
    let mut tables = vec![vec![0; 4 * size as usize]; COUNT];
    let own = me.to_ne_bytes();
    comm.scope(|scope| {
        let mut requests = Vec::new();
        for (at, (data, table)) in data.iter_mut().zip(&mut tables).enumerate() {
            requests.push(scope.iallreduce(data, ReduceOp::Sum).unwrap());
            requests.push(scope.iallgather(&own, table).unwrap());
            if at % 5 == 0 {
                let mut word = [0; 8];
                if at as u32 % size == me {
                    word = [at as u8; 8];
                }
                comm.bcast(at as u32 % size, &mut word).unwrap();
                assert_eq!(word, [at as u8; 8]);
                comm.barrier().unwrap();
                let mut sum = [i64::from(me)];
                comm.allreduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum[0], i64::from(size * (size - 1) / 2));
            }
        }
        let turn = 7 * me as usize % requests.len();
        requests.rotate_left(turn);
        for (at, mut request) in requests.into_iter().enumerate() {
            match at % 3 {
                0 => while request.test().unwrap().is_none() {},
                _ => assert!(request.wait().is_ok()),
            }
        }
    });
    for (at, data) in data.iter().enumerate() {
        assert!(*data == sums(length(at), size, seed(at)), "{} numbers, {at}", length(at));
    }
    let ranks: Vec<u8> = (0..size).flat_map(u32::to_ne_bytes).collect();
    tables.iter().for_each(|table| assert_same(table, &ranks, "the ranks"));
}

/// A call makes progress at a rank that waits for a message that is sent only after the call has
/// ended.
pub fn behind_another_wait(comm: &Communicator, bytes_max: usize) {
    let (me, last) = (comm.rank(), comm.size() - 1);
    for (round, length) in (0..).zip(LENGTHS.map(|length| length.min(bytes_max / 8))) {
        let mut data = numbers(length, 1000 * round + me);
        comm.scope(|scope| {
            let sums = scope.iallreduce(&mut data, ReduceOp::Sum).unwrap();
            if me != last {
                comm.recv(last, 9, &mut []).unwrap();
            }
            sums.wait().unwrap();
            if me == last {
                (0..last).for_each(|rank| comm.send(rank, 9, &[]).unwrap());
            }
        });
        assert!(data == sums(length, comm.size(), 1000 * round), "{length} numbers");
    }
}
