//! What libbpf prints while it loads the firmware: kept instead of printed.

use libbpf_rs::PrintLevel;
use std::cell::RefCell;

/// Maximum number of lines kept, from the end: there the verifier says what it rejects.
const LINES_MAX: usize = 16;

thread_local! {
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Stops libbpf from printing: its error values say the same again.
pub(crate) fn silence() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

/// Does `work`; returns its result and the end of what libbpf said meanwhile in this thread.
pub(crate) fn listening<T>(work: impl FnOnce() -> T) -> (T, String) {
    silence();
    SAID.set(Some(String::new()));
    let done = work();
    (done, tail(&SAID.take().unwrap_or_default()))
}

fn keep(_: PrintLevel, text: String) {
    SAID.with_borrow_mut(|said| {
        if let Some(said) = said {
            said.push_str(&text);
        }
    });
}

/// The last lines, joined to one.
fn tail(said: &str) -> String {
    let mut lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.drain(..lines.len().saturating_sub(LINES_MAX));
    lines.join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_of_the_log_is_kept() {
        let said: String = (0..100).map(|line| format!("line {line}\n\n")).collect();
        let kept = tail(&said);
        assert!(kept.starts_with("line 84 | line 85"), "{kept}");
        assert!(kept.ends_with("line 99"), "{kept}");
        assert_eq!(tail(""), "");
    }

    #[test]
    fn only_messages_logged_while_listening_are_kept() {
        let ((), said) = listening(|| keep(PrintLevel::Warn, "libbpf: no\n".to_owned()));
        assert_eq!(said, "libbpf: no");
        keep(PrintLevel::Warn, "later\n".to_owned());
        let ((), said) = listening(|| ());
        assert_eq!(said, "");
    }
}
