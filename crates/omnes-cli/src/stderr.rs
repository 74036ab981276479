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

/// Formats an error with its causes, each once: a message may already contain its cause.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_contained_in_the_message_is_not_repeated() {
        let refused =
            anyhow::anyhow!("Connection refused").context("no rank 0: Connection refused");
        assert_eq!(
            with_causes(&refused.context("cannot join")),
            "cannot join: no rank 0: Connection refused"
        );
    }
}
