//! Texts of errors, of the last one, of the version; the name of this node.

use crate::failure::{self, Code};
use omnes::Node;
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

/// See `omnes_version` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_version() -> *const c_char {
    VERSION.as_ptr()
}

/// See `omnes_node` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_node() -> u64 {
    Node::this().map_or(0, Node::number)
}
