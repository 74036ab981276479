//! Writes whole lines to stderr: several ranks may share it, and the standard macros write a line
//! in pieces.

use crate::print;
use std::fmt;

/// Writes `omnes: ` and the line by one call.
pub fn notice(line: fmt::Arguments<'_>) {
    write_line(format_args!("omnes: {line}"));
}

/// Writes the line by one call.
pub fn write_line(line: fmt::Arguments<'_>) {
    let _whole = print::alone();
    // If stderr is closed, the line cannot be written anywhere.
    let _ = print::write_all(std::io::stderr().lock(), format!("{line}\n").as_bytes());
}
