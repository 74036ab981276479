//! Creation, queries and release of communicators.

use crate::arguments;
use crate::failure::{Failure, SUCCESS, guard};
use omnes::{Communicator, Jobs};
use std::ffi::c_int;

/// A communicator handle's target; opaque to C.
pub struct OmnesComm {
    pub(crate) communicator: Communicator,
    origin: Origin,
}

/// The call that created a handle, which determines the call that may free it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Init,
    /// Split, dup or exchange.
    Other,
}

impl OmnesComm {
    pub(crate) fn into_handle(communicator: Communicator, origin: Origin) -> *mut Self {
        Box::into_raw(Box::new(Self { communicator, origin }))
    }
}

/// Takes ownership of a handle, if `origin` created it.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed and not in use by another call.
unsafe fn take(comm: *mut OmnesComm, origin: Origin) -> Result<Communicator, Failure> {
    // SAFETY: required of our caller, too.
    let found = unsafe { arguments::comm(comm) }?.origin;
    match (found, origin) {
        (Origin::Init, Origin::Other) => {
            Err(Failure::argument("comm is of omnes_init; free it with omnes_finalize"))
        }
        (Origin::Other, Origin::Init) => {
            Err(Failure::argument("world is not of omnes_init; free it with omnes_comm_free"))
        }
        // SAFETY: all handles come from Box::into_raw in `into_handle`, and this one is not yet
        // freed and not in use, as our caller promises.
        _ => Ok(unsafe { Box::from_raw(comm) }.communicator),
    }
}

/// Converts a rank or a number of ranks to a C `int`.
pub(crate) fn number(count: u32) -> Result<c_int, Failure> {
    c_int::try_from(count).map_err(|_| Failure::argument(format!("{count} does not fit in an int")))
}

/// See `omnes_init` in the header.
///
/// # Safety
///
/// `world` is NULL or valid for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_init(world: *mut *mut OmnesComm) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let world = unsafe { arguments::place(world, "world") }?;
        world.write(std::ptr::null_mut());
        let communicator = Communicator::from_env()?;
        world.write(OmnesComm::into_handle(communicator, Origin::Init));
        Ok(SUCCESS)
    })
}

/// See `omnes_finalize` in the header.
///
/// # Safety
///
/// `world` is NULL or a handle that is not yet freed and not in use by another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_finalize(world: *mut OmnesComm) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = unsafe { take(world, Origin::Init) }?;
        communicator.finalize()?;
        Ok(SUCCESS)
    })
}

/// See `omnes_abandon` in the header.
///
/// # Safety
///
/// `world` is NULL or a handle that is not yet freed and not in use by another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_abandon(world: *mut OmnesComm) -> c_int {
    guard(|| {
        if world.is_null() {
            Jobs::of_process().abandon();
            return Ok(SUCCESS);
        }
        // SAFETY: as our caller promises.
        unsafe { take(world, Origin::Init) }?.abandon();
        Ok(SUCCESS)
    })
}

/// See `omnes_rank` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_rank(comm: *const OmnesComm) -> c_int {
    // SAFETY: as our caller promises.
    guard(|| number(unsafe { arguments::comm(comm) }?.communicator.rank()))
}

/// See `omnes_size` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_size(comm: *const OmnesComm) -> c_int {
    // SAFETY: as our caller promises.
    guard(|| number(unsafe { arguments::comm(comm) }?.communicator.size()))
}

/// See `omnes_comm_split` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `part` is NULL or valid for the write of a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_comm_split(
    comm: *mut OmnesComm,
    color: c_int,
    key: i64,
    part: *mut *mut OmnesComm,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let part = unsafe { arguments::place(part, "part") }?;
        part.write(std::ptr::null_mut());
        // SAFETY: as our caller promises.
        let comm = unsafe { arguments::comm(comm) }?;
        if let Some(own) = comm.communicator.split(arguments::color(color)?, key)? {
            part.write(OmnesComm::into_handle(own, Origin::Other));
        }
        Ok(SUCCESS)
    })
}

/// See `omnes_comm_dup` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed; `copy` is NULL or valid for the write of a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_comm_dup(comm: *mut OmnesComm, copy: *mut *mut OmnesComm) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let copy = unsafe { arguments::place(copy, "copy") }?;
        copy.write(std::ptr::null_mut());
        // SAFETY: as our caller promises.
        let twin = unsafe { arguments::comm(comm) }?.communicator.dup()?;
        copy.write(OmnesComm::into_handle(twin, Origin::Other));
        Ok(SUCCESS)
    })
}

/// See `omnes_comm_free` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed and not in use by another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_comm_free(comm: *mut OmnesComm) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        drop(unsafe { take(comm, Origin::Other) }?);
        Ok(SUCCESS)
    })
}
