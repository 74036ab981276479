//! Prefix reductions: scan and exscan.

use crate::arguments;
use crate::collective::{CombineFn, bytes_of, type_and_op, with_function};
use crate::communicator::OmnesComm;
use crate::failure::{SUCCESS, guard};
use omnes::{Communicator, ElementType, Error, ReduceOp};
use std::ffi::{c_int, c_void};

/// A prefix reduction of `omnes` with a user-defined operation on elements of a given size in
/// bytes.
type ScanBy = fn(&Communicator, &mut [u8], usize, &dyn Fn(&mut [u8], &[u8])) -> Result<(), Error>;

/// Implements `omnes_scan` and `omnes_exscan` with `scan`.
///
/// # Safety
///
/// As for [`omnes_scan`].
unsafe fn scan_numbers(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    (element, op): (c_int, c_int),
    scan: fn(&Communicator, &mut [u8], ElementType, ReduceOp) -> Result<(), Error>,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        let (element, op) = type_and_op(element, op)?;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::buffer(data, bytes_of(count, element.bytes())?, "data") }?;
        scan(communicator, data, element, op)?;
        Ok(SUCCESS)
    })
}

/// Implements `omnes_scan_by` and `omnes_exscan_by` with `scan`.
///
/// # Safety
///
/// As for [`omnes_scan_by`].
unsafe fn scan_elements(
    comm: *mut OmnesComm,
    data: *mut c_void,
    (count, bytes_each): (usize, usize),
    (combine, context): (Option<CombineFn>, *mut c_void),
    scan: ScanBy,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let communicator = &unsafe { arguments::comm(comm) }?.communicator;
        // SAFETY: as our caller promises.
        let data = unsafe { arguments::buffer(data, bytes_of(count, bytes_each)?, "data") }?;
        with_function(bytes_each, combine, context, |combine| {
            Ok(scan(communicator, data, bytes_each, combine)?)
        })?;
        Ok(SUCCESS)
    })
}

/// See `omnes_scan` in the header.
///
/// # Safety
///
/// As for [`omnes_allreduce`](crate::collective::omnes_allreduce).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_scan(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: as our caller promises.
    unsafe { scan_numbers(comm, data, count, (element, op), Communicator::scan_as) }
}

/// See `omnes_scan_by` in the header.
///
/// # Safety
///
/// As for [`omnes_allreduce_by`](crate::collective::omnes_allreduce_by).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_scan_by(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    bytes_each: usize,
    combine: Option<CombineFn>,
    context: *mut c_void,
) -> c_int {
    let (elements, function) = ((count, bytes_each), (combine, context));
    // SAFETY: as our caller promises.
    unsafe { scan_elements(comm, data, elements, function, Communicator::scan_by) }
}

/// See `omnes_exscan` in the header.
///
/// # Safety
///
/// As for [`omnes_scan`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_exscan(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: as our caller promises.
    unsafe { scan_numbers(comm, data, count, (element, op), Communicator::exscan_as) }
}

/// See `omnes_exscan_by` in the header.
///
/// # Safety
///
/// As for [`omnes_scan_by`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_exscan_by(
    comm: *mut OmnesComm,
    data: *mut c_void,
    count: usize,
    bytes_each: usize,
    combine: Option<CombineFn>,
    context: *mut c_void,
) -> c_int {
    let (elements, function) = ((count, bytes_each), (combine, context));
    // SAFETY: as our caller promises.
    unsafe { scan_elements(comm, data, elements, function, Communicator::exscan_by) }
}
