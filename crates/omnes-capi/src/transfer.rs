//! Point-to-point messages, broadcast and barrier.

use crate::arguments;
use crate::communicator::OmnesComm;
use crate::failure::{SUCCESS, guard};
use omnes::Status;
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// `struct omnes_status` of the header.
#[repr(C)]
pub struct OmnesStatus {
    /// Rank that sent the message.
    pub source: c_int,
    /// Tag of the message.
    pub tag: c_int,
    /// Length of the message in bytes.
    pub bytes: usize,
}

impl From<Status> for OmnesStatus {
    fn from(status: Status) -> Self {
        let Status { source, tag, bytes } = status;
        Self { source: clamped(source), tag: clamped(tag), bytes }
    }
}

/// Reports the message received or found, unless `place` is NULL.
///
/// # Safety
///
/// `place` is NULL or valid for the write of a status.
pub(crate) unsafe fn tell(place: *mut OmnesStatus, status: Status) {
    // SAFETY: as our caller promises.
    if let Some(place) = unsafe { arguments::optional_place(place) } {
        place.write(status.into());
    }
}

/// See `omnes_send` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `data` is NULL or valid for reads of `bytes`
/// bytes that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_send(
    comm: *mut OmnesComm,
    to: c_int,
    tag: c_int,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let to = arguments::rank(to, communicator.size(), "to")?;
        let tag = arguments::tag(tag)?;
        // SAFETY: as our caller promises.
        communicator.send(to, tag, unsafe { arguments::data(data, bytes, "data") }?)?;
        Ok(SUCCESS)
    })
}

/// See `omnes_recv` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `buffer` is NULL or valid for reads and writes
/// of `bytes` bytes that nobody else accesses during the call; `status` is NULL or valid for the
/// write of a status, and does not overlap `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_recv(
    comm: *mut OmnesComm,
    from: c_int,
    tag: c_int,
    buffer: *mut c_void,
    bytes: usize,
    status: *mut OmnesStatus,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let from = arguments::source(from, communicator.size())?;
        let tag = arguments::wanted_tag(tag)?;
        // SAFETY: as our caller promises.
        let buffer = unsafe { arguments::buffer(buffer, bytes, "buffer") }?;
        let received = communicator.recv(from, tag, buffer)?;
        // SAFETY: as our caller promises.
        unsafe { tell(status, received) };
        Ok(SUCCESS)
    })
}

/// See `omnes_probe` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `status` is NULL or valid for the write of a
/// status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_probe(
    comm: *mut OmnesComm,
    from: c_int,
    tag: c_int,
    status: *mut OmnesStatus,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let from = arguments::source(from, communicator.size())?;
        let found = communicator.probe(from, arguments::wanted_tag(tag)?)?;
        // SAFETY: as our caller promises.
        unsafe { tell(status, found) };
        Ok(SUCCESS)
    })
}

/// See `omnes_iprobe` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `found` is NULL or valid for the write of an
/// `int`, `status` NULL or valid for the write of a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_iprobe(
    comm: *mut OmnesComm,
    from: c_int,
    tag: c_int,
    found: *mut c_int,
    status: *mut OmnesStatus,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        // SAFETY: as our caller promises.
        let found = unsafe { arguments::place(found, "found") }?;
        found.write(0);
        let from = arguments::source(from, communicator.size())?;
        let Some(message) = communicator.iprobe(from, arguments::wanted_tag(tag)?)? else {
            return Ok(SUCCESS);
        };
        found.write(1);
        // SAFETY: as our caller promises.
        unsafe { tell(status, message) };
        Ok(SUCCESS)
    })
}

/// See `omnes_sendrecv` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `data` is NULL or valid for reads of `bytes`
/// bytes that nobody writes during the call; `buffer` is NULL or valid for reads and writes of
/// `buffer_bytes` bytes that nobody else accesses during the call; `status` is NULL or valid for
/// the write of a status, and overlaps neither `data` nor `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_sendrecv(
    comm: *mut OmnesComm,
    to: c_int,
    tag: c_int,
    data: *const c_void,
    bytes: usize,
    from: c_int,
    receive_tag: c_int,
    buffer: *mut c_void,
    buffer_bytes: usize,
    status: *mut OmnesStatus,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let to = arguments::rank(to, communicator.size(), "to")?;
        let tag = arguments::tag(tag)?;
        let from = arguments::source(from, communicator.size())?;
        let receive_tag = arguments::wanted_tag(receive_tag)?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::data(data, bytes, "data") }?;
        // SAFETY: as our caller promises.
        let buffer = unsafe { arguments::buffer(buffer, buffer_bytes, "buffer") }?;
        let received = communicator.sendrecv(to, tag, data, from, receive_tag, buffer)?;
        // SAFETY: as our caller promises.
        unsafe { tell(status, received) };
        Ok(SUCCESS)
    })
}

/// Converts a rank or tag to an `int`. Those of C programs fit; a larger tag, which only other
/// languages can send, is reported as `INT_MAX`: the message has been received, so the call must
/// not fail.
pub(crate) fn clamped(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// See `omnes_bcast` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `buffer` is NULL or valid for reads (and,
/// except at the root, writes) of `bytes` bytes that nobody else accesses during the call; at the
/// root, others may read them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_bcast(
    comm: *mut OmnesComm,
    buffer: *mut c_void,
    bytes: usize,
    root: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let root = arguments::rank(root, communicator.size(), "root")?;
        let base = arguments::memory(buffer, bytes, "buffer")?.cast();
        // SAFETY: as our caller promises.
        unsafe { communicator.bcast_raw(root, base, bytes) }?;
        Ok(SUCCESS)
    })
}

/// See `omnes_barrier` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_barrier(comm: *mut OmnesComm) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        unsafe { arguments::comm(comm) }?.communicator.barrier()?;
        Ok(SUCCESS)
    })
}

/// See `omnes_barrier_timeout` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_barrier_timeout(comm: *mut OmnesComm, limit_ms: u64) -> c_int {
    guard(|| {
        let limit = Duration::from_millis(limit_ms);
        // SAFETY: as our caller promises.
        unsafe { arguments::comm(comm) }?.communicator.barrier_timeout(limit)?;
        Ok(SUCCESS)
    })
}
