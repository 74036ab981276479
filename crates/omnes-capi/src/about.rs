//! Error texts, the last error, the version, and the number of this node.

use crate::failure::{self, Code};
use crate::transfer::clamped;
use omnes::NodeId;
use std::ffi::{CStr, c_char, c_int};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };

/// See `omnes_error_text` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_error_text(code: c_int) -> *const c_char {
    Code::text(code).as_ptr()
}

/// See `omnes_last_error` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_last_error() -> *const c_char {
    failure::last_text()
}

/// See `omnes_last_error_rank` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_last_error_rank() -> c_int {
    failure::last_rank().map_or(-1, clamped)
}

/// See `omnes_last_error_missing` in the header.
///
/// # Safety
///
/// `ranks` is valid for writes of `ranks_max` numbers, or NULL where `ranks_max` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_last_error_missing(ranks: *mut c_int, ranks_max: usize) -> usize {
    let missing = failure::last_missing();
    for (place, rank) in missing.iter().take(ranks_max).enumerate() {
        // SAFETY: below `ranks_max`, as our caller promises.
        unsafe { ranks.add(place).write(clamped(*rank)) };
    }
    missing.len()
}

/// See `omnes_version` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_version() -> *const c_char {
    VERSION.as_ptr()
}

/// See `omnes_node` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_node() -> u64 {
    NodeId::this().map_or(0, NodeId::number)
}
