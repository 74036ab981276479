//! Reductions, gathers and scatters.

use super::{assert_same, pattern};
use omnes::{Communicator, ElementType, Error, ReduceAlgorithm, ReduceOp};

const LENGTHS: [usize; 6] = [0, 1, 7, 900, 5_000, 60_000];

fn algorithms() -> impl Iterator<Item = Option<ReduceAlgorithm>> {
    let named = ["flat", "binomial", "knomial=3", "chain", "blocks", "ring"];
    std::iter::once(None).chain(named.into_iter().map(|name| Some(name.parse().unwrap())))
}

/// Numbers of a rank, which every rank can compute.
fn numbers(length: usize, rank: u32, round: u32) -> Vec<i64> {
    let bytes = pattern(8 * length, 1000 * round + rank);
    bytes.as_chunks().0.iter().map(|word| i64::from_ne_bytes(*word)).collect()
}

fn sums(length: usize, ranks: u32, round: u32) -> Vec<i64> {
    let mut sums = vec![0i64; length];
    for rank in 0..ranks {
        let row = numbers(length, rank, round);
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum = sum.wrapping_add(number));
    }
    sums
}

/// Sums of all data, by every algorithm, at all ranks.
pub fn allreduce(comm: &Communicator, bytes_max: usize) {
    for (round, length) in (0..).zip(LENGTHS.map(|length| length.min(bytes_max / 8))) {
        let expected = sums(length, comm.size(), round);
        for algorithm in algorithms() {
            let mut data = numbers(length, comm.rank(), round);
            match algorithm {
                Some(algorithm) => comm.allreduce_with(&mut data, ReduceOp::Sum, algorithm),
                None => comm.allreduce(&mut data, ReduceOp::Sum),
            }
            .unwrap();
            assert!(data == expected, "{length} numbers by {algorithm:?}");
        }
    }
}

/// One to four numbers of each type, by each operation, combined in a barrier; between other
/// barriers.
pub fn words(comm: &Communicator, _bytes_max: usize) {
    for (round, element) in (0..).zip(ElementType::ALL.iter().copied()) {
        for (op, _) in ReduceOp::ALL {
            // As many as there are types, all positive: no sum of floats is rounded or overflows.
            let number = |which: u32| match element {
                ElementType::F32 => (3.0 + (which + comm.rank()) as f32).to_ne_bytes().to_vec(),
                ElementType::F64 => (3.0 + f64::from(which + comm.rank())).to_ne_bytes().to_vec(),
                _ => pattern(element.bytes(), 77 * round + 7 * which + comm.rank()),
            };
            let count = 1 + (round + op as u32) % 4;
            let own: Vec<u8> = (0..count).flat_map(number).collect();
            let (mut alone, mut among) = (own.clone(), own.clone());
            if let Err(error) = comm.allreduce_as(&mut alone, element, op) {
                assert!(error.to_string().contains("is not for elements of f"), "{error}");
                continue;
            }
            let flat = "flat".parse().unwrap();
            comm.allreduce_as_with(&mut among, element, op, flat).unwrap();
            assert_same(&alone, &among, format_args!("{op} of {count} {element}"));
            if round % 3 == 0 {
                comm.barrier().unwrap();
            }
        }
    }
    let refused =
        comm.allreduce_with(&mut [1u8; 5], ReduceOp::Sum, ReduceAlgorithm::Words).unwrap_err();
    assert!(refused.to_string().contains("`words` is for one to four numbers"), "{refused}");
    let refused =
        comm.allreduce_with(&mut [1.0f32], ReduceOp::Product, ReduceAlgorithm::Words).unwrap_err();
    assert!(refused.to_string().contains("`words` is for one to four numbers"), "{refused}");
}

/// Every rank is the root once; data of short and of long blocks.
pub fn reduce(comm: &Communicator, bytes_max: usize) {
    for (round, length) in (0..).zip([3, 700, 40_000].map(|length| length.min(bytes_max / 8))) {
        for root in 0..comm.size() {
            let mut data = numbers(length, comm.rank(), round);
            comm.reduce(root, &mut data, ReduceOp::Sum).unwrap();
            if comm.rank() == root {
                assert!(data == sums(length, comm.size(), round), "{length} numbers at {root}");
            }
        }
    }
}

/// Each rank's block is reduced, and all other data stay unchanged.
pub fn reduce_scatter(comm: &Communicator, bytes_max: usize) {
    for (round, length) in (0..).zip(LENGTHS.map(|length| length.min(bytes_max / 8))) {
        let own = numbers(length, comm.rank(), round);
        let mut data = own.clone();
        let range = comm.reduce_scatter(&mut data, ReduceOp::Sum).unwrap();
        let expected = sums(length, comm.size(), round);
        assert!(data[range.clone()] == expected[range.clone()], "{length} numbers");
        assert!(data[..range.start] == own[..range.start] && data[range.end..] == own[range.end..]);
        let mut ends = vec![0; 8 * comm.size() as usize];
        comm.allgather(&range.end.to_ne_bytes(), &mut ends).unwrap();
        let end = |rank: usize| usize::from_ne_bytes(ends.as_chunks().0[rank]);
        let rank = comm.rank() as usize;
        assert_eq!(range.start, if rank == 0 { 0 } else { end(rank - 1) });
        assert_eq!(end(comm.size() as usize - 1), length);
    }
}

/// Sums of floats, which depend on their order, have the same bits on all ranks and in every call.
pub fn same_bits(comm: &Communicator, bytes_max: usize) {
    for length in [1, 300, 20_000].map(|length: usize| length.min(bytes_max / 8)) {
        for algorithm in algorithms().flatten() {
            let own = |at: usize| 1.0 / (1.0 + at as f64 + 7.0 * f64::from(comm.rank()));
            let own: Vec<f64> = (0..length).map(own).collect();
            let mut results: [Vec<f64>; 2] = [own.clone(), own];
            for result in &mut results {
                comm.allreduce_with(result, ReduceOp::Sum, algorithm).unwrap();
            }
            let bits = |floats: &[f64]| floats.iter().flat_map(|it| it.to_ne_bytes()).collect();
            let [first, again]: [Vec<u8>; 2] = results.map(|it| bits(&it));
            assert_same(&again, &first, format_args!("{length} floats by {algorithm} again"));
            let mut at_root = first.clone();
            comm.bcast(0, &mut at_root).unwrap();
            assert_same(&first, &at_root, format_args!("{length} floats by {algorithm}"));
        }
    }
}

/// Elements of a size that no number type has, by a function.
pub fn own_operation(comm: &Communicator, bytes_max: usize) {
    const BYTES: usize = 3;
    let larger = |into: &mut [u8], from: &[u8]| {
        for (into, from) in into.chunks_mut(BYTES).zip(from.chunks(BYTES)) {
            if *from > *into {
                into.copy_from_slice(from);
            }
        }
    };
    for bytes in [0, BYTES, 300, 120_000].map(|bytes: usize| bytes.min(bytes_max)) {
        let rows: Vec<_> = (0..comm.size()).map(|rank| pattern(bytes, rank)).collect();
        let mut expected = rows[0].clone();
        rows.iter().for_each(|row| larger(&mut expected, row));
        let mut data = rows[comm.rank() as usize].clone();
        comm.allreduce_by(&mut data, BYTES, &larger).unwrap();
        assert_same(&data, &expected, "the largest of all");
        let mut data = rows[comm.rank() as usize].clone();
        let root = comm.size() - 1;
        comm.reduce_by(root, &mut data, BYTES, &larger).unwrap();
        if comm.rank() == root {
            assert_same(&data, &expected, "the largest at the root");
        }
    }
}

/// Data of all ranks at one, of all at all, of one at all, and of all at all others.
pub fn gathers(comm: &Communicator, bytes_max: usize) {
    let (me, size) = (comm.rank(), comm.size());
    for (round, bytes) in (1..).zip([0, 1, 1000, 30_000, 300_000]) {
        let bytes = bytes.min(bytes_max / size as usize);
        let row = |rank: u32| pattern(bytes, 100 * round + rank);
        let table = (0..size).flat_map(row).collect::<Vec<_>>();
        let mut all = vec![0; table.len()];
        comm.allgather(&row(me), &mut all).unwrap();
        assert_same(&all, &table, "what is gathered at all");
        all.fill(0);
        all[me as usize * bytes..][..bytes].copy_from_slice(&row(me));
        comm.allgather_in_place(&mut all).unwrap();
        assert_same(&all, &table, "what is gathered in place");
        for root in [0, size - 1] {
            let mut all = vec![0; if me == root { table.len() } else { 0 }];
            comm.gather(root, &row(me), &mut all).unwrap();
            assert_same(&all, if me == root { &table } else { &[] }, "what is gathered at one");
            let mut own = vec![0; bytes];
            comm.scatter(root, if me == root { &table } else { &[] }, &mut own).unwrap();
            assert_same(&own, &row(me), "a part of what one has");
        }
        let part = |from: u32, to: u32| pattern(bytes, 100 * round + 10_000 * from + to);
        let data: Vec<u8> = (0..size).flat_map(|to| part(me, to)).collect();
        let mut buffer = vec![0; data.len()];
        comm.alltoall(&data, &mut buffer).unwrap();
        let expected: Vec<u8> = (0..size).flat_map(|from| part(from, me)).collect();
        assert_same(&buffer, &expected, "parts of all");
    }
}

/// As [`gathers`], with parts of different lengths, including 0, or of one rank only.
pub fn varied_gathers(comm: &Communicator, bytes_max: usize) {
    let size = comm.size();
    for (round, bytes) in (1..).zip([0, 3, 1000, 30_000, 300_000]) {
        let bytes = bytes.min(bytes_max / size as usize);
        gathers_of(comm, round, &|from, to| bytes * ((3 * from + 5 * to) % 4) as usize / 3);
        gathers_of(comm, 10 * round, &|from, to| if from + to == size { bytes } else { 0 });
    }
}

/// Gathers; `length(from, to)` is the length of a part, `length(from, 0)` if it has no destination.
fn gathers_of(comm: &Communicator, round: u32, length: &dyn Fn(u32, u32) -> usize) {
    let (me, size) = (comm.rank(), comm.size());
    let lengths: Vec<_> = (0..size).map(|rank| length(rank, 0)).collect();
    let row = |rank: u32| pattern(lengths[rank as usize], 100 * round + rank);
    let table = (0..size).flat_map(row).collect::<Vec<_>>();
    let mut all = vec![0; table.len()];
    comm.allgatherv(&row(me), &mut all, &lengths).unwrap();
    assert_same(&all, &table, "what is gathered at all");
    all.fill(0);
    let start: usize = lengths[..me as usize].iter().sum();
    all[start..][..lengths[me as usize]].copy_from_slice(&row(me));
    comm.allgatherv_in_place(&mut all, &lengths).unwrap();
    assert_same(&all, &table, "what is gathered in place");
    for root in [0, size - 1] {
        let (lengths, table) =
            if me == root { (&lengths[..], &table[..]) } else { (&[][..], &[][..]) };
        let mut all = vec![0; table.len()];
        comm.gatherv(root, &row(me), &mut all, lengths).unwrap();
        assert_same(&all, table, "what is gathered at one");
        let mut own = vec![0; row(me).len()];
        comm.scatterv(root, table, lengths, &mut own).unwrap();
        assert_same(&own, &row(me), "a part of what one has");
    }
    let part = |from: u32, to: u32| pattern(length(from, to), 100 * round + 10_000 * from + to);
    let data: Vec<u8> = (0..size).flat_map(|to| part(me, to)).collect();
    let expected: Vec<u8> = (0..size).flat_map(|from| part(from, me)).collect();
    let data_lengths: Vec<_> = (0..size).map(|to| length(me, to)).collect();
    let buffer_lengths: Vec<_> = (0..size).map(|from| length(from, me)).collect();
    let mut buffer = vec![0; expected.len()];
    comm.alltoallv(&data, &data_lengths, &mut buffer, &buffer_lengths).unwrap();
    assert_same(&buffer, &expected, "parts of all");
}

/// The same among parts of the ranks, in a different order.
pub fn parts(comm: &Communicator, bytes_max: usize) {
    let color = comm.rank() % 3 / 2;
    let part = comm.split(Some(color), -i64::from(comm.rank())).unwrap().unwrap();
    allreduce(&part, bytes_max.min(200_000));
    reduce(&part, bytes_max.min(200_000));
    reduce_scatter(&part, bytes_max.min(200_000));
    gathers(&part, bytes_max.min(200_000));
    varied_gathers(&part, bytes_max.min(200_000));
}

/// Bytes at the end that do not fill an element stay unchanged, by every algorithm.
pub fn remainders(comm: &Communicator, _bytes_max: usize) {
    for (length, algorithm) in [(10, "flat"), (10, "blocks"), (8 * 9000 + 3, "blocks")] {
        let mut data = pattern(length, comm.rank());
        let (sum, algorithm) = (ReduceOp::Sum, algorithm.parse().unwrap());
        comm.allreduce_as_with(&mut data, ElementType::U64, sum, algorithm).unwrap();
        let whole = length / 8 * 8;
        assert_same(&data[whole..], &pattern(length, comm.rank())[whole..], "a remainder");
        let mut first = [0u64; 1];
        for rank in 0..comm.size() {
            let word = *pattern(length, rank).first_chunk().unwrap();
            first[0] = first[0].wrapping_add(u64::from_ne_bytes(word));
        }
        assert_eq!(data[..8], first[0].to_ne_bytes());
    }
}

/// Mistakes that all ranks make are reported before anything is sent; after a mistake of the root
/// only, the next call gets its own data.
pub fn refusals(comm: &Communicator, _bytes_max: usize) {
    let (me, size) = (comm.rank(), comm.size());
    let error = comm.allreduce(&mut [1.0f32], ReduceOp::And).unwrap_err();
    assert_eq!(error.to_string(), "reduction: and is not for elements of f32");
    let error = comm.reduce(size, &mut [1u8], ReduceOp::And).unwrap_err();
    assert!(matches!(error, Error::RankOutOfRange { rank, .. } if rank == size));
    let error = comm.allgather(&[1, 2], &mut [0; 1]).unwrap_err();
    let expected = format!("all has 1 bytes; one part per rank would need {}", 2 * size);
    assert_eq!(error.to_string(), expected);
    if size > 1 {
        assert!(comm.allgather_in_place(&mut vec![0; size as usize + 1]).is_err());
    }
    assert!(comm.gather(size, &[], &mut []).is_err());
    assert!(comm.scatter(size, &[], &mut []).is_err());
    assert!(comm.alltoall(&vec![0; size as usize], &mut vec![0; size as usize + 1]).is_err());
    if size > 1 {
        assert!(comm.alltoall(&vec![0; size as usize + 1], &mut [0; 1]).is_err());
    }
    let mut all = vec![0; size as usize];
    let gathered = comm.gather(0, &[7], &mut vec![0; size as usize + 1]);
    assert_eq!(gathered.is_err(), me == 0);
    comm.gather(0, &[me as u8], &mut all).unwrap();
    assert!(me > 0 || all.iter().enumerate().all(|(rank, own)| rank == usize::from(*own)));
    let mut own = [0];
    let error = comm.scatter(0, &vec![1; size as usize + 1], &mut own).unwrap_err();
    assert!(me == 0 || matches!(error, Error::LengthMismatch { .. }), "{error}");
    comm.scatter(0, &all, &mut own).unwrap();
    assert_eq!(u32::from(own[0]), me);
}

fn is_length(error: &Error) -> bool {
    matches!(error, Error::Truncated { .. } | Error::LengthMismatch { .. })
}

/// Lengths that do not match are reported at the ranks concerned; no other rank notices, and the
/// next call gets its own data.
pub fn refused_lengths(comm: &Communicator, bytes_max: usize) {
    let (me, size) = (comm.rank(), comm.size());
    let long = 200_000.min(bytes_max / size as usize).max(1);
    for each in [1, long] {
        let equal = vec![each; size as usize];
        let right = vec![1; each * size as usize];
        let mut own = vec![me as u8; each];
        let is_named =
            |outcome: Result<(), Error>, at: u32, names: fn(&Error) -> bool| match outcome {
                Ok(()) => assert_ne!(me, at),
                Err(error) => assert!(me == at && names(&error), "{error}"),
            };
        let mut all = right.clone();
        let outcome = comm.gatherv(0, &own, &mut all, &vec![each; size as usize + 1]);
        is_named(outcome, 0, |error| matches!(error, Error::LengthsCount { .. }));
        let outcome = comm.gatherv(0, &own, &mut all, &vec![usize::MAX; size as usize]);
        is_named(outcome, 0, |error| matches!(error, Error::BufferLength { .. }));
        let outcome = comm.gatherv(0, &vec![1; each + usize::from(me == 0)], &mut all, &equal);
        is_named(outcome, 0, |error| matches!(error, Error::LengthMismatch { .. }));
        // The part of the last rank is longer, then shorter, than the root expects.
        let last = size - 1;
        for bytes in [each + 1, each - 1].into_iter().filter(|_| size > 1) {
            let outcome =
                comm.gatherv(0, &vec![1; if me == last { bytes } else { each }], &mut all, &equal);
            is_named(outcome, 0, is_length);
            let mut own = vec![0; if me == last { bytes } else { each }];
            is_named(comm.scatterv(0, &right, &equal, &mut own), last, is_length);
        }
        comm.gatherv(0, &own, &mut all, &equal).unwrap();
        let expected: Vec<u8> = (0..size).flat_map(|rank| vec![rank as u8; each]).collect();
        assert!(me > 0 || all == expected);
        let error = comm.scatterv(0, &right, &equal[1..], &mut own).unwrap_err();
        assert!(me == 0 || matches!(error, Error::LengthMismatch { received: 0, .. }), "{error}");
        comm.scatterv(0, &expected, &equal, &mut own).unwrap();
        assert_same(&own, &vec![me as u8; each], "a part of what one has");
        assert!(comm.allgatherv(&own, &mut all, &equal[1..]).is_err());
        assert!(comm.allgatherv(&own[1..], &mut all, &equal).is_err());
        assert!(comm.allgatherv_in_place(&mut all[1..], &equal).is_err());
        assert!(comm.alltoallv(&right[1..], &equal, &mut all, &equal).is_err());
        assert!(comm.alltoallv(&right, &equal, &mut all, &equal[1..]).is_err());
        comm.alltoallv(&right, &equal, &mut all, &equal).unwrap();
        assert_same(&all, &right, "parts of all");
    }
    assert!(comm.gatherv(size, &[], &mut [], &[]).is_err());
    assert!(comm.scatterv(size, &[], &[], &mut []).is_err());
}
