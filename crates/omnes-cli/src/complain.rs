//! Lines to stderr that stay whole: several ranks may share it, and the standard macros write a
//! line piece by piece.

use std::fmt;
use std::io::Write;

/// Writes `omnes: ` and the line by one call.
pub fn complain(line: fmt::Arguments<'_>) {
    // Nobody is left to tell if stderr is closed.
    let _ = std::io::stderr().write_all(format!("omnes: {line}\n").as_bytes());
}
