//! Nonblocking operations: starting, testing and waiting.

use crate::arguments;
use crate::communicator::OmnesComm;
use crate::failure::{Failure, SUCCESS, guard};
use crate::transfer::{OmnesStatus, tell};
use omnes::OwnedRequest;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A request handle's target; opaque to C.
pub struct OmnesRequest {
    request: OwnedRequest,
    /// Where to report the received message; NULL if the caller does not want it.
    status: *mut OmnesStatus,
}

impl OmnesRequest {
    pub(crate) fn into_handle(request: OwnedRequest) -> *mut Self {
        Box::into_raw(Box::new(Self { request, status: std::ptr::null_mut() }))
    }
}

/// Returns the place for a new request, set to NULL.
///
/// # Safety
///
/// `request` is NULL or valid for the write of a pointer during `'a`, by this call alone.
pub(crate) unsafe fn empty<'a>(
    request: *mut *mut OmnesRequest,
) -> Result<&'a mut MaybeUninit<*mut OmnesRequest>, Failure> {
    // SAFETY: required of our caller, too.
    let place = unsafe { arguments::place(request, "request") }?;
    place.write(std::ptr::null_mut());
    Ok(place)
}

/// Returns the place of a request that may have been started.
///
/// # Safety
///
/// `request` is NULL or valid for the read and write of a pointer during `'a`, by this call alone.
unsafe fn filled<'a>(
    request: *mut *mut OmnesRequest,
) -> Result<&'a mut *mut OmnesRequest, Failure> {
    // SAFETY: required of our caller, too.
    unsafe { request.as_mut() }.ok_or_else(|| Failure::argument("request is NULL"))
}

/// Takes the request out of its place; `None` if the place holds none.
///
/// # Safety
///
/// `*place` is NULL or a request of this library that is not freed and not in use.
unsafe fn take(place: &mut *mut OmnesRequest) -> Option<OmnesRequest> {
    let handle = std::mem::replace(place, std::ptr::null_mut());
    // SAFETY: all requests come from Box::into_raw in `into_handle`, and this one has not been
    // freed, as our caller promises.
    (!handle.is_null()).then(|| *unsafe { Box::from_raw(handle) })
}

/// See `omnes_isend` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `data` is NULL or valid for reads of `bytes`
/// bytes that nobody writes until the request has completed; `request` is NULL or valid for the
/// write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_isend(
    comm: *mut OmnesComm,
    to: c_int,
    tag: c_int,
    data: *const c_void,
    bytes: usize,
    request: *mut *mut OmnesRequest,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let place = unsafe { empty(request) }?;
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let to = arguments::rank(to, communicator.size(), "to")?;
        let tag = arguments::tag(tag)?;
        // SAFETY: as our caller promises.
        let base = NonNull::from(unsafe { arguments::data(data, bytes, "data") }?).cast();
        // SAFETY: as our caller promises.
        let started = unsafe { communicator.isend_raw(to, tag, base, bytes) }?;
        place.write(OmnesRequest::into_handle(started));
        Ok(SUCCESS)
    })
}

/// See `omnes_irecv` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `buffer` is NULL or valid for reads and writes
/// of `bytes` bytes that nobody else accesses until the request has completed; `status` is NULL or
/// valid for the write of one until then, and does not overlap `buffer`; `request` is NULL or valid
/// for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_irecv(
    comm: *mut OmnesComm,
    from: c_int,
    tag: c_int,
    buffer: *mut c_void,
    bytes: usize,
    status: *mut OmnesStatus,
    request: *mut *mut OmnesRequest,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let place = unsafe { empty(request) }?;
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let from = arguments::source(from, communicator.size())?;
        let tag = arguments::wanted_tag(tag)?;
        let base = arguments::memory(buffer, bytes, "buffer")?.cast();
        // SAFETY: as our caller promises.
        let request = unsafe { communicator.irecv_raw(from, tag, base, bytes) }?;
        place.write(Box::into_raw(Box::new(OmnesRequest { request, status })));
        Ok(SUCCESS)
    })
}

/// See `omnes_ibcast` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `buffer` is NULL or valid for reads and writes
/// of `bytes` bytes that nobody else accesses until the request has completed; `request` is NULL or
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
        let base = arguments::memory(buffer, bytes, "buffer")?.cast();
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
/// `request` is NULL, or points to NULL or a request that has not completed and is not in use by
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
            let ended = unsafe { take(place) };
            if let (Some(ended), Some(Some(status))) = (ended, outcome.transpose()?) {
                // SAFETY: promised by the caller who started the request.
                unsafe { tell(ended.status, status) };
            }
        }
        Ok(SUCCESS)
    })
}

/// See `omnes_wait_all` in the header.
///
/// # Safety
///
/// `requests` is NULL if `count` is 0, or points to `count` places, each as for [`omnes_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_wait_all(requests: *mut *mut OmnesRequest, count: usize) -> c_int {
    guard(|| {
        if count > 0 && requests.is_null() {
            return Err(Failure::argument("requests is NULL"));
        }
        let mut outcome = Ok(SUCCESS);
        for number in 0..count {
            // SAFETY: as our caller promises.
            outcome = outcome.and(unsafe { wait(requests.add(number)) });
        }
        outcome
    })
}

/// See `omnes_wait` in the header.
///
/// # Safety
///
/// `request` is NULL, or points to NULL or a request that has not completed and is not in use by
/// another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_wait(request: *mut *mut OmnesRequest) -> c_int {
    // SAFETY: as our caller promises.
    guard(|| unsafe { wait(request) })
}

/// Waits for a request, if its place holds one.
///
/// # Safety
///
/// As for [`omnes_wait`].
unsafe fn wait(request: *mut *mut OmnesRequest) -> Result<c_int, Failure> {
    // SAFETY: as our caller promises.
    let taken = unsafe { take(filled(request)?) };
    if let Some(OmnesRequest { request, status }) = taken {
        let ended = request.wait()?;
        // SAFETY: promised by the caller who started the request.
        unsafe { tell(status, ended) };
    }
    Ok(SUCCESS)
}
