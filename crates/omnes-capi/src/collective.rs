//! Reductions, gathers, scatters and all-to-all operations.

use crate::arguments;
use crate::communicator::OmnesComm;
use crate::failure::{Failure, SUCCESS, guard};
use omnes::{Communicator, ElementType, ReduceOp};
use std::ffi::{c_int, c_void};

/// `omnes_combine` of the header.
pub type CombineFn = unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void);

/// Converts a value of an enumeration of the header, which counts from 1, to an element of `all`.
fn numbered<T: Copy>(number: c_int, all: &[T], name: &str) -> Result<T, Failure> {
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let value = place.and_then(|place| all.get(place)).copied();
    value.ok_or_else(|| {
        let count = all.len();
        let reason = format!("{name} is {number}; values of enum omnes_{name} are 1 to {count}");
        Failure::argument(reason)
    })
}

pub(crate) fn type_and_op(element: c_int, op: c_int) -> Result<(ElementType, ReduceOp), Failure> {
    let element = numbered(element, ElementType::ALL, "type")?;
    Ok((element, numbered(op, &ReduceOp::ALL, "op")?.0))
}

/// Returns the length of `count` elements in bytes.
pub(crate) fn bytes_of(count: usize, each: usize) -> Result<usize, Failure> {
    count.checked_mul(each).ok_or_else(|| {
        let reason =
            format!("count is {count}, of {each} bytes each, which exceeds the address space");
        Failure::argument(reason)
    })
}

/// Returns the total length of one part of `bytes` bytes per rank.
pub(crate) fn bytes_of_all(ranks: usize, bytes: usize) -> Result<usize, Failure> {
    ranks.checked_mul(bytes).ok_or_else(|| {
        let reason = format!(
            "bytes is {bytes}, from each of {ranks} ranks, which exceeds the address space"
        );
        Failure::argument(reason)
    })
}

/// Number of parts in this rank's buffer in a call with this root: one per rank at the root, none
/// elsewhere.
pub(crate) fn parts_at(root: u32, communicator: &Communicator) -> usize {
    if root == communicator.rank() { communicator.size() as usize } else { 0 }
}

/// Returns the sum of `lengths`; `name` is the parameter's name.
pub(crate) fn sum_of(lengths: &[usize], name: &str) -> Result<usize, Failure> {
    let sum = lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(*length));
    sum.ok_or_else(|| Failure::argument(format!("the sum of {name} exceeds the address space")))
}

/// Calls `reduce` with the C function wrapped as a Rust closure.
pub(crate) fn with_function<T>(
    each: usize,
    combine: Option<CombineFn>,
    context: *mut c_void,
    reduce: impl FnOnce(&dyn Fn(&mut [u8], &[u8])) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let combine = combine.ok_or_else(|| Failure::argument("combine is NULL"))?;
    if each == 0 {
        return Err(Failure::argument("bytes_each is 0, an element has a byte at least"));
    }
    reduce(&|into: &mut [u8], from: &[u8]| {
        let count = into.len() / each;
        // SAFETY: the caller of the library promises that the function reads and writes exactly
        // `count` elements; the context is the caller's.
        unsafe { combine(into.as_mut_ptr().cast(), from.as_ptr().cast(), count, context) }
    })
}

/// See `omnes_allreduce` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `data` is NULL or valid for reads and writes
/// of `count` elements of `element` that nobody else accesses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_allreduce(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let (element, op) = type_and_op(element, op)?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::buffer(data, bytes_of(count, element.bytes())?, "data") }?;
        communicator.allreduce_as(data, element, op)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_allreduce_by` in the header.
///
/// # Safety
///
/// As for [`omnes_allreduce`], of elements of `bytes_each` bytes; `combine` is NULL or a function
/// that accesses only the elements it is given and returns normally.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_allreduce_by(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    bytes_each: usize,
    combine: Option<CombineFn>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::buffer(data, bytes_of(count, bytes_each)?, "data") }?;
        with_function(bytes_each, combine, context, |combine| {
            Ok(communicator.allreduce_by(data, bytes_each, combine)?)
        })?;
        Ok(SUCCESS)
    })
}

/// See `omnes_reduce` in the header.
///
/// # Safety
///
/// As for [`omnes_allreduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_reduce(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    root: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let (element, op) = type_and_op(element, op)?;
        let root = arguments::rank(root, communicator.size(), "root")?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::buffer(data, bytes_of(count, element.bytes())?, "data") }?;
        communicator.reduce_as(root, data, element, op)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_reduce_by` in the header.
///
/// # Safety
///
/// As for [`omnes_allreduce_by`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_reduce_by(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    bytes_each: usize,
    combine: Option<CombineFn>,
    context: *mut c_void,
    root: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let root = arguments::rank(root, communicator.size(), "root")?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::buffer(data, bytes_of(count, bytes_each)?, "data") }?;
        with_function(bytes_each, combine, context, |combine| {
            Ok(communicator.reduce_by(root, data, bytes_each, combine)?)
        })?;
        Ok(SUCCESS)
    })
}

/// See `omnes_reduce_scatter` in the header.
///
/// # Safety
///
/// As for [`omnes_allreduce`]; `first` and `length` are NULL or valid for the write of a `usize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_reduce_scatter(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    first: *mut usize,
    length: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let (element, op) = type_and_op(element, op)?;
        // SAFETY: as our caller promises.
        let first = unsafe { arguments::place(first, "first") }?;
        // SAFETY: as our caller promises.
        let length = unsafe { arguments::place(length, "length") }?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::buffer(data, bytes_of(count, element.bytes())?, "data") }?;
        let range = communicator.reduce_scatter_as(data, element, op)?;
        first.write(range.start / element.bytes());
        length.write(range.len() / element.bytes());
        Ok(SUCCESS)
    })
}

/// See `omnes_gather` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `own` is NULL or valid for reads of `bytes`
/// bytes that nobody writes during the call; `all` is NULL or, at the root, valid for reads and
/// writes of as many bytes per rank, disjoint from `own`, that nobody else accesses during the
/// call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_gather(
    comm: *mut OmnesComm,
    own: *const c_void,
    all: *mut c_void,
    bytes: usize,
    root: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let root = arguments::rank(root, communicator.size(), "root")?;
        let ranks = parts_at(root, communicator);
        let all_bytes = bytes_of_all(ranks, bytes)?;
        // SAFETY: as our caller promises.
        let own = unsafe { arguments::data(own, bytes, "own") }?;
        // SAFETY: as our caller promises.
        communicator.gather(root, own, unsafe { arguments::buffer(all, all_bytes, "all") }?)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_gatherv` in the header.
///
/// # Safety
///
/// As for [`omnes_gather`], where `all` has as many bytes as the sum of `lengths`; `lengths` is
/// NULL or, at the root, valid for reads of one length per rank that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_gatherv(
    comm: *mut OmnesComm,
    own: *const c_void,
    bytes: usize,
    all: *mut c_void,
    lengths: *const usize,
    root: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let root = arguments::rank(root, communicator.size(), "root")?;
        let ranks = parts_at(root, communicator);
        // SAFETY: as our caller promises.
        let lengths = unsafe { arguments::lengths(lengths, ranks, "lengths") }?;
        let all_bytes = sum_of(lengths, "lengths")?;
        // SAFETY: as our caller promises.
        let own = unsafe { arguments::data(own, bytes, "own") }?;
        // SAFETY: as our caller promises.
        let all = unsafe { arguments::buffer(all, all_bytes, "all") }?;
        communicator.gatherv(root, own, all, lengths)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_allgather` in the header.
///
/// # Safety
///
/// As for [`omnes_gather`], with every rank as root; but `own` may be the caller's part of `all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_allgather(
    comm: *mut OmnesComm,
    own: *const c_void,
    all: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let all_bytes = bytes_of_all(communicator.size() as usize, bytes)?;
        let place = all.cast::<u8>().wrapping_add(communicator.rank() as usize * bytes);
        if !all.is_null() && own == place.cast() {
            // SAFETY: as our caller promises.
            let all = unsafe { arguments::buffer(all, all_bytes, "all") }?;
            communicator.allgather_in_place(all)?;
            return Ok(SUCCESS);
        }
        // SAFETY: as our caller promises.
        let own = unsafe { arguments::data(own, bytes, "own") }?;
        // SAFETY: as our caller promises.
        communicator.allgather(own, unsafe { arguments::buffer(all, all_bytes, "all") }?)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_allgatherv` in the header.
///
/// # Safety
///
/// As for [`omnes_gatherv`], with every rank as root; but `own` may be the caller's part of `all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_allgatherv(
    comm: *mut OmnesComm,
    own: *const c_void,
    bytes: usize,
    all: *mut c_void,
    lengths: *const usize,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let (ranks, rank) = (communicator.size() as usize, communicator.rank() as usize);
        // SAFETY: as our caller promises.
        let lengths = unsafe { arguments::lengths(lengths, ranks, "lengths") }?;
        let all_bytes = sum_of(lengths, "lengths")?;
        let place = all.cast::<u8>().wrapping_add(lengths[..rank].iter().sum());
        if !all.is_null() && own == place.cast() && bytes == lengths[rank] {
            // SAFETY: as our caller promises.
            let all = unsafe { arguments::buffer(all, all_bytes, "all") }?;
            communicator.allgatherv_in_place(all, lengths)?;
            return Ok(SUCCESS);
        }
        // SAFETY: as our caller promises.
        let own = unsafe { arguments::data(own, bytes, "own") }?;
        // SAFETY: as our caller promises.
        let all = unsafe { arguments::buffer(all, all_bytes, "all") }?;
        communicator.allgatherv(own, all, lengths)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_scatter` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `own` is NULL or valid for reads and writes of
/// `bytes` bytes that nobody else accesses during the call; `all` is NULL or, at the root, valid
/// for reads of as many bytes per rank, disjoint from `own`, that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_scatter(
    comm: *mut OmnesComm,
    all: *const c_void,
    own: *mut c_void,
    bytes: usize,
    root: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let root = arguments::rank(root, communicator.size(), "root")?;
        let ranks = parts_at(root, communicator);
        // SAFETY: as our caller promises.
        let all = unsafe { arguments::data(all, bytes_of_all(ranks, bytes)?, "all") }?;
        // SAFETY: as our caller promises.
        communicator.scatter(root, all, unsafe { arguments::buffer(own, bytes, "own") }?)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_scatterv` in the header.
///
/// # Safety
///
/// As for [`omnes_scatter`], where `all` has as many bytes as the sum of `lengths`; `lengths` is
/// NULL or, at the root, valid for reads of one length per rank that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_scatterv(
    comm: *mut OmnesComm,
    all: *const c_void,
    lengths: *const usize,
    own: *mut c_void,
    bytes: usize,
    root: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let root = arguments::rank(root, communicator.size(), "root")?;
        let ranks = parts_at(root, communicator);
        // SAFETY: as our caller promises.
        let lengths = unsafe { arguments::lengths(lengths, ranks, "lengths") }?;
        // SAFETY: as our caller promises.
        let all = unsafe { arguments::data(all, sum_of(lengths, "lengths")?, "all") }?;
        // SAFETY: as our caller promises.
        let own = unsafe { arguments::buffer(own, bytes, "own") }?;
        communicator.scatterv(root, all, lengths, own)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_alltoall` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `data` is NULL or valid for reads of `bytes`
/// bytes per rank that nobody writes during the call, `buffer` for reads and writes of as many,
/// disjoint from `data`, that nobody else accesses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_alltoall(
    comm: *mut OmnesComm,
    data: *const c_void,
    buffer: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let all_bytes = bytes_of_all(communicator.size() as usize, bytes)?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::data(data, all_bytes, "data") }?;
        // SAFETY: as our caller promises.
        communicator.alltoall(data, unsafe { arguments::buffer(buffer, all_bytes, "buffer") }?)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_alltoallv` in the header.
///
/// # Safety
///
/// As for [`omnes_alltoall`], where `data` and `buffer` have as many bytes as the sum of their
/// lengths; both arrays of lengths are NULL or valid for reads of one length per rank that nobody
/// writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_alltoallv(
    comm: *mut OmnesComm,
    data: *const c_void,
    data_lengths: *const usize,
    buffer: *mut c_void,
    buffer_lengths: *const usize,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let ranks = communicator.size() as usize;
        // SAFETY: as our caller promises.
        let outgoing = unsafe { arguments::lengths(data_lengths, ranks, "data_lengths") }?;
        // SAFETY: as our caller promises.
        let incoming = unsafe { arguments::lengths(buffer_lengths, ranks, "buffer_lengths") }?;
        let data_bytes = sum_of(outgoing, "data_lengths")?;
        let buffer_bytes = sum_of(incoming, "buffer_lengths")?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::data(data, data_bytes, "data") }?;
        // SAFETY: as our caller promises.
        let buffer = unsafe { arguments::buffer(buffer, buffer_bytes, "buffer") }?;
        communicator.alltoallv(data, outgoing, buffer, incoming)?;
        Ok(SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn header_constants_map_to_element_types_and_reduce_operations() {
        assert_eq!(type_and_op(1, 1).unwrap(), (ElementType::I8, ReduceOp::Sum));
        assert_eq!(type_and_op(10, 7).unwrap(), (ElementType::F64, ReduceOp::Xor));
        for (element, op) in [(0, 1), (11, 1), (-1, 1), (1, 0), (1, 8), (1, c_int::MIN)] {
            assert!(type_and_op(element, op).is_err(), "{element} {op}");
        }
        let refused = format!("{:?}", type_and_op(11, 1).unwrap_err());
        assert!(refused.contains("type is 11; values of enum omnes_type are 1 to 10"), "{refused}");
    }

    #[test]
    fn byte_counts_that_overflow_are_rejected() {
        assert_eq!(bytes_of(3, 8).unwrap(), 24);
        assert!(bytes_of(usize::MAX, 8).is_err());
        assert_eq!(sum_of(&[3, 0, 4], "lengths").unwrap(), 7);
        let refused = format!("{:?}", sum_of(&[usize::MAX, 1], "lengths").unwrap_err());
        assert!(refused.contains("the sum of lengths exceeds the address space"), "{refused}");
    }
}
