//! Prefix reductions, compared with a loop over the ranks in the same order, so with the same bits.

use super::{assert_same, pattern};
use omnes::{Communicator, ElementType, ReduceOp};

/// Numbers of elements of 8 bytes: gathered among many ranks; whole segments; the last segment
/// partial.
const LENGTHS: [usize; 7] = [0, 1, 500, 8_192, 16_384, 16_385, 120_000];
/// Maximum number of elements of all ranks together, in large jobs.
const ALL_MAX: usize = 1_000_000;

/// How the second element is combined with the first.
type Combine = dyn Fn(&mut [u8], &[u8]);
/// A call with this rank's data.
type Call<'a> = &'a dyn Fn(&mut [u8]);

/// Compares the results of `scan` and `exscan` on the rows of ranks with a loop over the ranks.
fn check(
    comm: &Communicator,
    row: &dyn Fn(u32) -> Vec<u8>,
    combine: &Combine,
    [scan, exscan]: [Call<'_>; 2],
    what: &str,
) {
    let (me, own) = (comm.rank(), row(comm.rank()));
    let mut expected = row(0);
    (1..me).for_each(|rank| combine(&mut expected, &row(rank)));
    let mut data = own.clone();
    exscan(&mut data);
    assert_same(&data, &expected, format_args!("{what} before rank {me}"));
    if me > 0 {
        combine(&mut expected, &own);
    }
    data.copy_from_slice(&own);
    scan(&mut data);
    assert_same(&data, &expected, format_args!("{what} up to rank {me}"));
}

fn sum_floats(into: &mut [u8], from: &[u8]) {
    for (into, from) in into.as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks().0) {
        *into = (f64::from_ne_bytes(*into) + f64::from_ne_bytes(*from)).to_ne_bytes();
    }
}

/// `3 a - b` of bytes, in elements of two: neither commutative nor associative.
fn differ(into: &mut [u8], from: &[u8]) {
    assert!(into.len() == from.len() && into.len().is_multiple_of(2));
    for (into, from) in into.iter_mut().zip(from) {
        *into = into.wrapping_mul(3).wrapping_sub(*from);
    }
}

/// Sums of floats, which depend on their order, and an operation that is correct in no other order.
pub fn scans(comm: &Communicator, bytes_max: usize) {
    let length_max = (bytes_max / 8).min(ALL_MAX / comm.size() as usize);
    for length in LENGTHS.map(|length| length.min(length_max)) {
        let float = |rank: u32, at: usize| 1.0 / (1.0 + at as f64 + 7.0 * f64::from(rank));
        let row = |rank: u32| (0..length).flat_map(|at| float(rank, at).to_ne_bytes()).collect();
        let (element, sum) = (ElementType::F64, ReduceOp::Sum);
        let scan = |data: &mut [u8]| comm.scan_as(data, element, sum).unwrap();
        let exscan = |data: &mut [u8]| comm.exscan_as(data, element, sum).unwrap();
        check(comm, &row, &sum_floats, [&scan, &exscan], "sums of floats");
        let row = |rank| pattern(8 * length, rank);
        let scan = |data: &mut [u8]| comm.scan_by(data, 2, &differ).unwrap();
        let exscan = |data: &mut [u8]| comm.exscan_by(data, 2, &differ).unwrap();
        check(comm, &row, &differ, [&scan, &exscan], "what a function makes");
    }
    let me = comm.rank();
    let (mut through, mut before) = ([me + 1, 1], [1u8 << (me % 8)]);
    comm.scan(&mut through, ReduceOp::Sum).unwrap();
    assert_eq!(through, [(me + 1) * (me + 2) / 2, me + 1]);
    comm.exscan(&mut before, ReduceOp::Or).unwrap();
    assert_eq!(before, [if me == 0 { 1 } else { u8::MAX >> (8 - me.min(8)) }]);
    let error = comm.exscan(&mut [1.0f32], ReduceOp::And).unwrap_err();
    assert_eq!(error.to_string(), "reduction: and is not for elements of f32");
    remainders(comm, bytes_max);
}

/// Bytes at the end that do not fill an element stay unchanged, by every algorithm.
fn remainders(comm: &Communicator, bytes_max: usize) {
    for length in [10, 70_003].map(|length: usize| length.min(bytes_max)) {
        let row = pattern(length, comm.rank());
        for scan in [Communicator::scan_as, Communicator::exscan_as] {
            let mut data = row.clone();
            scan(comm, &mut data, ElementType::U64, ReduceOp::Xor).unwrap();
            let whole = length / 8 * 8;
            assert_same(&data[whole..], &row[whole..], "a remainder");
        }
    }
}

/// The same among parts of the ranks, in a different order.
pub fn parts(comm: &Communicator, bytes_max: usize) {
    let color = comm.rank() % 3 / 2;
    let part = comm.split(Some(color), -i64::from(comm.rank())).unwrap().unwrap();
    scans(&part, bytes_max.min(200_000));
}
