//! Error codes and texts, and the guard around every exported function.
//!
//! A failing call returns a code and stores its full text and the ranks that it names in
//! thread-local storage, which `omnes_last_error` and related functions read. Codes are those of
//! `omnes::Error::code`, plus two of this boundary.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a successful call.
pub const SUCCESS: c_int = 0;

thread_local! {
    static LAST_ERROR: RefCell<Last> = RefCell::default();
}

/// A thread's last failure.
#[derive(Default)]
struct Last {
    text: CString,
    named: Named,
}

/// Ranks that an error names.
#[derive(Clone, Default, Debug)]
struct Named {
    rank: Option<u32>,
    /// Ranks that have not entered a barrier.
    missing: Vec<u32>,
}

/// Reason why a call failed: a code of the header, a detailed text, and the ranks concerned.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
    named: Named,
}

impl Failure {
    /// An invalid argument.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { code: Code::ARGUMENT, text: text.into(), named: Named::default() }
    }

    fn internal(panic: &(dyn Any + Send)) -> Self {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = format!("a bug in Omnes: {}", message.unwrap_or("panic without a text"));
        Self { code: Code::INTERNAL, text, named: Named::default() }
    }
}

impl From<omnes::Error> for Failure {
    fn from(error: omnes::Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors repeat their cause; it is included once.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        let missing = match &error {
            omnes::Error::BarrierTimeout { missing, .. } => missing.clone(),
            _ => Vec::new(),
        };
        Self { code: error.code(), text, named: Named { rank: error.rank(), missing } }
    }
}

/// Runs the body of an exported function, and returns its result or the code of its failure.
///
/// Catches panics. The body's captures are references to C memory and atomically counted handles;
/// after a panic the caller only learns that the call failed, so no partial state is observed.
pub(crate) fn guard(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(number)) => return number,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let failure = Failure::internal(&*panic);
            // Dropping the payload may panic again, outside the guard.
            std::mem::forget(panic);
            failure
        }
    };
    remember(failure.text, failure.named);
    failure.code
}

fn remember(mut text: String, named: Named) {
    text.retain(|character| character != '\0');
    let text = CString::new(text).expect("zero bytes were taken out");
    // At the end of a thread, its storage may be destroyed; then only the code is returned.
    let _ = LAST_ERROR.try_with(|last| last.replace(Last { text, named }));
}

/// Pointer to the text of this thread's last failure; valid until its next failure.
pub(crate) fn last_text() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The rank that this thread's last failure names.
pub(crate) fn last_rank() -> Option<u32> {
    LAST_ERROR.try_with(|last| last.borrow().named.rank).unwrap_or_default()
}

/// The ranks that had not entered the barrier of this thread's last failure.
pub(crate) fn last_missing() -> Vec<u32> {
    LAST_ERROR.try_with(|last| last.borrow().named.missing.clone()).unwrap_or_default()
}

/// A value of `enum omnes_error`.
pub struct Code {
    /// Name in the header without `OMNES_ERROR_`.
    pub name: &'static str,
    /// Value in the header.
    pub number: c_int,
    text: &'static CStr,
}

impl Code {
    /// An invalid argument, detected at the boundary.
    pub(crate) const ARGUMENT: c_int = -100;
    /// A panic, caught at the boundary.
    pub(crate) const INTERNAL: c_int = -101;

    /// Every code: those of `omnes::Error::code`, then those of the boundary.
    pub const ALL: [Self; 30] = [
        Self::new("NO_LAUNCHER", -1, c"the environment does not say which rank this is"),
        Self::new(
            "INVALID_VARIABLE",
            -2,
            c"an environment variable has an invalid value or is not set",
        ),
        Self::new("JOIN", -3, c"the ranks of the job did not find each other"),
        Self::new("RANK", -4, c"a rank is not below the number of ranks"),
        Self::new("TRUNCATED", -5, c"a message is longer than the buffer for it"),
        Self::new("PEER_FAILED", -6, c"another rank has died or is unreachable"),
        Self::new("PEER_LEFT", -7, c"the rank that was waited for has left the job"),
        Self::new("DECLARED_FAILED", -8, c"the other ranks have declared this rank failed"),
        Self::new("MISMATCH", -9, c"something that must be the same on all ranks differs"),
        Self::new("TOO_MANY_COMMUNICATORS", -10, c"the job cannot create any more communicators"),
        Self::new("NO_MULTICAST", -11, c"multicast is required, but does not work"),
        Self::new("TOO_MANY_SCHEMES", -12, c"too many broadcast schemes on one communicator"),
        Self::new("NO_NIC", -13, c"the kernel NIC is required, but not available"),
        Self::new("BARRIER_TIMEOUT", -14, c"a barrier is not complete within the time limit"),
        Self::new("MULTISEND", -15, c"the required multi-send does not work"),
        Self::new("BARRIER", -16, c"a barrier cannot be entered or completed"),
        Self::new("EXCHANGE", -17, c"the ranks of an exchange could not form a communicator"),
        Self::new("EXCHANGE_FAILED", -18, c"the exchange between ranks has failed"),
        Self::new("BUFFER_LENGTH", -19, c"the lengths of buffers do not match"),
        Self::new("REDUCTION", -20, c"an operation does not apply to the element type"),
        Self::new("INTERRUPTED", -21, c"a wait was interrupted"),
        Self::new("ALGORITHM", -22, c"an algorithm has invalid parameters"),
        Self::new("TOO_LARGE", -23, c"a message exceeds the maximum length"),
        Self::new("PEER_GAVE_UP", -24, c"a rank stopped sending what this rank waits for"),
        Self::new("NOT_ALL_RANKS", -25, c"the communicator does not have all ranks of the job"),
        Self::new("ALREADY_LEFT", -26, c"the calling rank has left the job"),
        Self::new("REQUEST_FAILED", -27, c"a request has already ended with an error"),
        Self::new(
            "COLLECTIVES_BROKEN",
            -28,
            c"a rank could not complete a collective, so none works on its communicator any more",
        ),
        Self::new("ARGUMENT", Self::ARGUMENT, c"an argument is NULL or out of range"),
        Self::new("INTERNAL", Self::INTERNAL, c"a bug in Omnes"),
    ];

    const fn new(name: &'static str, number: c_int, text: &'static CStr) -> Self {
        Self { name, number, text }
    }

    /// Description of a code, even of one that does not exist.
    pub(crate) fn text(number: c_int) -> &'static CStr {
        if number == SUCCESS {
            return c"success";
        }
        let known = Self::ALL.iter().find(|code| code.number == number);
        known.map_or(c"no such error code", |code| code.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn last() -> String {
        // SAFETY: the text is valid until the next failure on this thread.
        unsafe { CStr::from_ptr(last_text()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn library_errors_keep_their_code_and_message() {
        let code = guard(|| Err(omnes::Error::PeerFailed { rank: 3 }.into()));
        let known = Code::ALL.iter().find(|known| known.number == code).unwrap();
        assert_eq!(known.name, "PEER_FAILED");
        assert!(last().starts_with("rank 3 has failed: "), "{}", last());
        assert_eq!((last_rank(), last_missing()), (Some(3), vec![]));
        let code = guard(|| Err(omnes::Error::Truncated { bytes: 9, capacity: 4 }.into()));
        let known = Code::ALL.iter().find(|known| known.number == code).unwrap();
        assert_eq!((known.name, last_rank()), ("TRUNCATED", None));
        guard(|| Err(omnes::Error::BarrierTimeout { ms: 1, missing: vec![2, 5] }.into()));
        assert_eq!((last_rank(), last_missing()), (None, vec![2, 5]));
    }

    #[test]
    fn every_library_error_code_is_listed() {
        let (rank, collective) = (0, omnes::Collective::Gather);
        let last = omnes::Error::CollectivesBroken { rank, collective }.code();
        let known = |number: c_int| Code::ALL.iter().any(|code| code.number == number);
        assert!((last..0).all(known));
        assert_eq!(Code::ALL.len(), last.unsigned_abs() as usize + 2);
    }

    #[test]
    fn panics_become_internal_errors_with_the_panic_message() {
        assert_eq!(guard(|| panic!("left the path")), Code::INTERNAL);
        assert!(last().ends_with("left the path"), "{}", last());
        let rank = 7;
        assert_eq!(guard(|| panic!("rank {rank}")), Code::INTERNAL);
        assert!(last().ends_with("rank 7"), "{}", last());
    }

    #[test]
    fn panic_payloads_that_panic_on_drop_do_not_unwind_further() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        assert_eq!(guard(|| std::panic::panic_any(Bomb)), Code::INTERNAL);
    }

    #[test]
    fn last_error_message_survives_success_and_is_thread_local() {
        guard(|| Err(Failure::argument("first\0 part")));
        assert_eq!(guard(|| Ok(3)), 3);
        assert_eq!(last(), "first part");
        let elsewhere = std::thread::spawn(last).join().unwrap();
        assert_eq!(elsewhere, "");
    }
}
