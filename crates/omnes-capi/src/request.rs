//! Nonblocking operations: to start, ask for and end.

use crate::arguments;
use crate::communicator::OmnesComm;
use crate::failure::{Failure, SUCCESS, guard};
use omnes::OwnedRequest;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// What a request points to; opaque to C.
pub struct OmnesRequest {
    request: OwnedRequest,
}

impl OmnesRequest {
    fn into_handle(request: OwnedRequest) -> *mut Self {
        Box::into_raw(Box::new(Self { request }))
    }
}

/// The place of a request that is to be started, which holds none so far.
///
/// # Safety
///
/// `request` is NULL or valid for the write of a pointer during `'a`, by this call alone.
unsafe fn empty<'a>(
    request: *mut *mut OmnesRequest,
) -> Result<&'a mut MaybeUninit<*mut OmnesRequest>, Failure> {
    // SAFETY: passed on to our caller.
    let place = unsafe { arguments::place(request, "request") }?;
    place.write(std::ptr::null_mut());
    Ok(place)
}

/// The place of a request that may have been started.
///
/// # Safety
///
/// `request` is NULL or valid for the read and write of a pointer during `'a`, by this call alone.
unsafe fn filled<'a>(
    request: *mut *mut OmnesRequest,
) -> Result<&'a mut *mut OmnesRequest, Failure> {
    // SAFETY: passed on to our caller.
    unsafe { request.as_mut() }.ok_or_else(|| Failure::argument("request is NULL"))
}

/// Takes the request out of its place; nothing if none is there.
///
/// # Safety
///
/// `*place` is NULL or a request of this library that has not ended and is not in use.
unsafe fn take(place: &mut *mut OmnesRequest) -> Option<OwnedRequest> {
    let handle = std::mem::replace(place, std::ptr::null_mut());
    // SAFETY: all requests come from Box::into_raw in `into_handle`, and this one has not been
    // freed, as our caller promises.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) }.request)
}

/// See `omnes_ibcast` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `buffer` is NULL or valid for reads and writes
/// of `bytes` bytes that nobody else touches until the request has ended; `request` is NULL or
/// valid for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_ibcast(
    comm: *mut OmnesComm,
    buffer: *mut c_void,
    bytes: usize,
    root: c_int,
    request: *mut *mut OmnesRequest,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let place = unsafe { empty(request) }?;
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let root = arguments::rank(root, communicator.size(), "root")?;
        // SAFETY: as our caller promises; the slice itself is gone before others use the memory.
        let base = NonNull::from(unsafe { arguments::buffer(buffer, bytes, "buffer") }?).cast();
        // SAFETY: as our caller promises.
        let started = unsafe { communicator.ibcast_raw(root, base, bytes) }?;
        place.write(OmnesRequest::into_handle(started));
        Ok(SUCCESS)
    })
}

/// See `omnes_ibarrier` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `request` is NULL or valid for the write of a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_ibarrier(
    comm: *mut OmnesComm,
    request: *mut *mut OmnesRequest,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let place = unsafe { empty(request) }?;
        // SAFETY: as our caller promises.
        let started = unsafe { arguments::comm(comm) }?.communicator.ibarrier_owned()?;
        place.write(OmnesRequest::into_handle(started));
        Ok(SUCCESS)
    })
}

/// See `omnes_test` in the header.
///
/// # Safety
///
/// `request` is NULL, or points to NULL or a request that has not ended and is not in use by
/// another call; `done` is NULL or valid for the write of an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_test(request: *mut *mut OmnesRequest, done: *mut c_int) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let place = unsafe { filled(request) }?;
        // SAFETY: as our caller promises.
        let done = unsafe { arguments::place(done, "done") }?;
        done.write(0);
        // SAFETY: as our caller promises.
        let outcome = unsafe { place.as_mut() }.map(|open| open.request.test());
        if !matches!(outcome, Some(Ok(None))) {
            done.write(1);
            // SAFETY: as our caller promises.
            drop(unsafe { take(place) });
        }
        outcome.transpose()?;
        Ok(SUCCESS)
    })
}

/// See `omnes_wait` in the header.
///
/// # Safety
///
/// `request` is NULL, or points to NULL or a request that has not ended and is not in use by
/// another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_wait(request: *mut *mut OmnesRequest) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let taken = unsafe { take(filled(request)?) };
        if let Some(open) = taken {
            open.wait()?;
        }
        Ok(SUCCESS)
    })
}
