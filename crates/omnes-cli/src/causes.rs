//! Errors with their causes, as both commands print them.

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
