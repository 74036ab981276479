//! Nonblocking reductions, gathers, scatters and all-to-all operations.

use crate::arguments::{self, memory};
use crate::collective::{bytes_of, bytes_of_all, parts_at, sum_of, type_and_op};
use crate::communicator::OmnesComm;
use crate::failure::{Failure, SUCCESS, guard};
use crate::request::{OmnesRequest, empty};
use omnes::{Communicator, OwnedRequest};
use std::ffi::{c_int, c_void};

/// Starts an operation, and stores its request in `*request`.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `request` is NULL or valid for the write of a
/// pointer.
unsafe fn start(
    comm: *mut OmnesComm,
    request: *mut *mut OmnesRequest,
    start: impl FnOnce(&Communicator) -> Result<OwnedRequest, Failure>,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let place = unsafe { empty(request) }?;
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        place.write(OmnesRequest::into_handle(start(communicator)?));
        Ok(SUCCESS)
    })
}

/// See `omnes_iallreduce` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `data` is NULL or valid for reads and writes
/// of `count` elements of `element` that nobody else accesses until the request has completed;
/// `request` is NULL or valid for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_iallreduce(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let (element, op) = type_and_op(element, op)?;
        let bytes = bytes_of(count, element.bytes())?;
        let data = memory(data, bytes, "data")?;
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.iallreduce_raw(data.cast(), bytes, element, op) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_ireduce` in the header.
///
/// # Safety
///
/// As for [`omnes_iallreduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_ireduce(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    root: c_int,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let (element, op) = type_and_op(element, op)?;
        let root = arguments::rank(root, communicator.size(), "root")?;
        let bytes = bytes_of(count, element.bytes())?;
        let data = memory(data, bytes, "data")?;
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.ireduce_raw(root, data.cast(), bytes, element, op) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_ireduce_scatter` in the header.
///
/// # Safety
///
/// As for [`omnes_iallreduce`]; `first` and `length` are NULL or valid for the write of a `usize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_ireduce_scatter(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    first: *mut usize,
    length: *mut usize,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let (element, op) = type_and_op(element, op)?;
        // SAFETY: as our caller promises.
        let first = unsafe { arguments::place(first, "first") }?;
        // SAFETY: as our caller promises.
        let length = unsafe { arguments::place(length, "length") }?;
        let bytes = bytes_of(count, element.bytes())?;
        let data = memory(data, bytes, "data")?.cast();
        // SAFETY: as our caller promises.
        let started = unsafe { communicator.ireduce_scatter_raw(data, bytes, element, op) };
        let (request, range) = started?;
        first.write(range.start / element.bytes());
        length.write(range.len() / element.bytes());
        Ok(request)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_igather` in the header.
///
/// # Safety
///
/// As for [`omnes_gather`](crate::collective::omnes_gather), until the request has completed;
/// `request` is NULL or valid for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_igather(
    comm: *mut OmnesComm,
    own: *const c_void,
    all: *mut c_void,
    bytes: usize,
    root: c_int,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let root = arguments::rank(root, communicator.size(), "root")?;
        let all_bytes = bytes_of_all(parts_at(root, communicator), bytes)?;
        let (own, all) = (memory(own, bytes, "own")?, memory(all, all_bytes, "all")?);
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.igather_raw(root, own, all) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_igatherv` in the header.
///
/// # Safety
///
/// As for [`omnes_igather`], where `all` has as many bytes as the sum of `lengths`; `lengths` is
/// NULL or, at the root, valid for reads of one length per rank that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_igatherv(
    comm: *mut OmnesComm,
    own: *const c_void,
    bytes: usize,
    all: *mut c_void,
    lengths: *const usize,
    root: c_int,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let root = arguments::rank(root, communicator.size(), "root")?;
        let ranks = parts_at(root, communicator);
        // SAFETY: as our caller promises.
        let lengths = unsafe { arguments::lengths(lengths, ranks, "lengths") }?;
        let own = memory(own, bytes, "own")?;
        let all = memory(all, sum_of(lengths, "lengths")?, "all")?;
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.igatherv_raw(root, own, all, lengths) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_iallgather` in the header.
///
/// # Safety
///
/// As for [`omnes_igather`], with every rank as root; but `own` may be the caller's part of `all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_iallgather(
    comm: *mut OmnesComm,
    own: *const c_void,
    all: *mut c_void,
    bytes: usize,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let all_bytes = bytes_of_all(communicator.size() as usize, bytes)?;
        let (own, all) = (memory(own, bytes, "own")?, memory(all, all_bytes, "all")?);
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.iallgather_raw(own, all) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_iallgatherv` in the header.
///
/// # Safety
///
/// As for [`omnes_igatherv`], with every rank as root; but `own` may be the caller's part of `all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_iallgatherv(
    comm: *mut OmnesComm,
    own: *const c_void,
    bytes: usize,
    all: *mut c_void,
    lengths: *const usize,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let ranks = communicator.size() as usize;
        // SAFETY: as our caller promises.
        let lengths = unsafe { arguments::lengths(lengths, ranks, "lengths") }?;
        let own = memory(own, bytes, "own")?;
        let all = memory(all, sum_of(lengths, "lengths")?, "all")?;
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.iallgatherv_raw(own, all, lengths) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_iscatter` in the header.
///
/// # Safety
///
/// As for [`omnes_scatter`](crate::collective::omnes_scatter), until the request has completed;
/// `request` is NULL or valid for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_iscatter(
    comm: *mut OmnesComm,
    all: *const c_void,
    own: *mut c_void,
    bytes: usize,
    root: c_int,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let root = arguments::rank(root, communicator.size(), "root")?;
        let all_bytes = bytes_of_all(parts_at(root, communicator), bytes)?;
        let (all, own) = (memory(all, all_bytes, "all")?, memory(own, bytes, "own")?);
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.iscatter_raw(root, all, own) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_iscatterv` in the header.
///
/// # Safety
///
/// As for [`omnes_iscatter`], where `all` has as many bytes as the sum of `lengths`; `lengths` is
/// NULL or, at the root, valid for reads of one length per rank that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_iscatterv(
    comm: *mut OmnesComm,
    all: *const c_void,
    lengths: *const usize,
    own: *mut c_void,
    bytes: usize,
    root: c_int,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let root = arguments::rank(root, communicator.size(), "root")?;
        let ranks = parts_at(root, communicator);
        // SAFETY: as our caller promises.
        let lengths = unsafe { arguments::lengths(lengths, ranks, "lengths") }?;
        let all = memory(all, sum_of(lengths, "lengths")?, "all")?;
        let own = memory(own, bytes, "own")?;
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.iscatterv_raw(root, all, lengths, own) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_ialltoall` in the header.
///
/// # Safety
///
/// As for [`omnes_alltoall`](crate::collective::omnes_alltoall), until the request has completed;
/// `request` is NULL or valid for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_ialltoall(
    comm: *mut OmnesComm,
    data: *const c_void,
    buffer: *mut c_void,
    bytes: usize,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let all_bytes = bytes_of_all(communicator.size() as usize, bytes)?;
        let data = memory(data, all_bytes, "data")?;
        let buffer = memory(buffer, all_bytes, "buffer")?;
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.ialltoall_raw(data, buffer) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}

/// See `omnes_ialltoallv` in the header.
///
/// # Safety
///
/// As for [`omnes_ialltoall`], where `data` and `buffer` have as many bytes as the sum of their
/// lengths; both arrays of lengths are NULL or valid for reads of one length per rank that nobody
/// writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_ialltoallv(
    comm: *mut OmnesComm,
    data: *const c_void,
    data_lengths: *const usize,
    buffer: *mut c_void,
    buffer_lengths: *const usize,
    request: *mut *mut OmnesRequest,
) -> c_int {
    let begin = |communicator: &Communicator| {
        let ranks = communicator.size() as usize;
        // SAFETY: as our caller promises.
        let outgoing = unsafe { arguments::lengths(data_lengths, ranks, "data_lengths") }?;
        // SAFETY: as our caller promises.
        let incoming = unsafe { arguments::lengths(buffer_lengths, ranks, "buffer_lengths") }?;
        let data = memory(data, sum_of(outgoing, "data_lengths")?, "data")?;
        let buffer = memory(buffer, sum_of(incoming, "buffer_lengths")?, "buffer")?;
        // SAFETY: as our caller promises.
        Ok(unsafe { communicator.ialltoallv_raw(data, outgoing, buffer, incoming) }?)
    };
    // SAFETY: as our caller promises.
    unsafe { start(comm, request, begin) }
}
