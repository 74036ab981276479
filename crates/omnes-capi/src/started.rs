//! Reductions, gathers and scatters that do not block.

use crate::arguments::{self, memory};
use crate::collective::{bytes_of, bytes_of_all, parts_at, type_and_op};
use crate::communicator::OmnesComm;
use crate::failure::{Failure, SUCCESS, guard};
use crate::request::{OmnesRequest, empty};
use omnes::{Communicator, OwnedRequest};
use std::ffi::{c_int, c_void};

/// Starts an operation, and puts it where the caller wants it.
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
/// of `count` elements of `element` that nobody else touches until the request has ended; `request`
/// is NULL or valid for the write of a pointer.
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

/// See `omnes_igather` in the header.
///
/// # Safety
///
/// As for [`omnes_gather`](crate::collective::omnes_gather), until the request has ended; `request`
/// is NULL or valid for the write of a pointer.
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

/// See `omnes_iallgather` in the header.
///
/// # Safety
///
/// As for [`omnes_igather`], where every rank is a root; but `own` may be its place in `all`.
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

/// See `omnes_iscatter` in the header.
///
/// # Safety
///
/// As for [`omnes_scatter`](crate::collective::omnes_scatter), until the request has ended;
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

/// See `omnes_ialltoall` in the header.
///
/// # Safety
///
/// As for [`omnes_alltoall`](crate::collective::omnes_alltoall), until the request has ended;
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
