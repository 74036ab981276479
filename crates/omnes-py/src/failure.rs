//! Errors as exceptions: one class per kind, all of them `omnes.Error`, with the error's values as
//! attributes.

// What the macros make has its documents in Python.
#![allow(missing_docs)]

use crate::signals::take_raised;
use omnes::Error;
use pyo3::PyTypeInfo;
use pyo3::prelude::*;

/// Makes a class per kind of error, and what finds it.
macro_rules! kinds {
    ($($kind:ident: $meaning:literal),+ $(,)?) => {
        mod kinds {
            use pyo3::create_exception;
            use pyo3::exceptions::PyRuntimeError;

            create_exception!(omnes, Error, PyRuntimeError, "Any error of Omnes.");
            $(create_exception!(omnes, $kind, Error, $meaning);)+
        }

        /// Puts all exceptions into the module.
        pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            module.add("Error", kinds::Error::type_object(py))?;
            $(module.add(stringify!($kind), kinds::$kind::type_object(py))?;)+
            Ok(())
        }

        /// An exception of the error's kind.
        fn of_kind(error: &Error) -> PyErr {
            let text = error.to_string();
            match error {
                $(Error::$kind { .. } => PyErr::new::<kinds::$kind, _>(text),)+
                _ => PyErr::new::<kinds::Error, _>(text),
            }
        }
    };
}

kinds! {
    NoLauncher: "Nothing in the environment says which rank this is.",
    Variable: "A variable of the environment has a value that makes no sense.",
    Join: "The job could not be joined.",
    RankOutOfRange: "A rank outside the communicator.",
    Truncated: "A message is longer than the memory for it.",
    TooLarge: "A message is longer than any can be.",
    PeerFailed: "A rank has died or is cut off; rank says which.",
    PeerLeft: "The rank that was waited for has left the job; rank says which.",
    GivenUp: "A rank has given up what it was sending; rank says which.",
    Excluded: "The others have given up on this rank.",
    Disagreement: "The ranks disagree about something that must be the same on all.",
    NoMulticast: "The job insists on multicast, and it does not work.",
    NoNic: "No barrier by the kernel's network interface.",
    MultiSend: "A multi-send that cannot be.",
    Barrier: "A barrier that cannot be entered.",
    BarrierTimeout: "Ranks have not come to a barrier in time; missing says which.",
    Length: "Memory of a collective operation that is not one part per rank.",
    Reduction: "An operation that is not for the numbers to be reduced, or that there is not.",
    Exchange: "Ranks could not become a communicator; rank says which could not, the same on all.",
    ExchangeFailed: "What ranks were to become a communicator by does not work.",
    Interrupted: "A wait was interrupted; mostly what a signal handler has raised comes instead.",
    TooManyCommunicators: "No number is left for another communicator.",
}

/// The exception that Python gets for `error`, with `rank` or `missing` where it has them; what a
/// signal handler has raised in the wait, or a limit, comes first.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    if let Some(raised) = take_raised() {
        return raised;
    }
    let exception = of_kind(error);
    let value = exception.value(py);
    let told = match error {
        Error::PeerFailed { rank }
        | Error::PeerLeft { rank }
        | Error::GivenUp { rank }
        | Error::Exchange { rank, .. } => value.setattr("rank", rank),
        Error::BarrierTimeout { missing, .. } => value.setattr("missing", missing),
        _ => Ok(()),
    };
    told.map_or_else(|failure| failure, |()| exception)
}
