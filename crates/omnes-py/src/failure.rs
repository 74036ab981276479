//! Errors as exceptions: one class per kind, all of them `omnes.Error`, with the error's values as
//! attributes. Some are what Python's own programs expect as well, such as `TimeoutError`.

use crate::signals::{Raised, take_raised};
use omnes::Error;
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// Where a class is kept that is made when the module is.
type Place = PyOnceLock<Py<PyType>>;

/// Makes a class per kind of error, and what finds it.
macro_rules! kinds {
    ($($kind:ident $(and $other:ident)?: $meaning:literal),+ $(,)?) => {
        /// The classes by their names.
        #[allow(non_upper_case_globals)]
        mod classes {
            use super::Place;

            pub(super) static Error: Place = Place::new();
            $(pub(super) static $kind: Place = Place::new();)+
        }

        /// Puts all exceptions into the module.
        pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            let bases = [PyRuntimeError::type_object(py)];
            let error = add(module, &classes::Error, "Error", &bases, "Any error of Omnes.")?;
            $(
                let bases = [error.clone(), $($other::type_object(py))?];
                add(module, &classes::$kind, stringify!($kind), &bases, $meaning)?;
            )+
            Ok(())
        }

        /// Where the class of the error's kind is.
        fn class_of(error: &Error) -> &'static Place {
            match error {
                Error::MtuBlackHole { .. } => &classes::PeerFailed,
                Error::InvalidConfig { .. } => &classes::InvalidVariable,
                Error::CallMismatch { .. } | Error::LengthMismatch { .. } => &classes::Mismatch,
                Error::LengthsCount { .. } | Error::NotDivisible { .. } => &classes::BufferLength,
                $(Error::$kind { .. } => &classes::$kind,)+
                _ => &classes::Error,
            }
        }
    };
}

/// Makes a class of exceptions and puts it into the module.
fn add<'py>(
    module: &Bound<'py, PyModule>,
    place: &Place,
    name: &str,
    bases: &[Bound<'py, PyType>],
    meaning: &str,
) -> PyResult<Bound<'py, PyType>> {
    let py = module.py();
    let make = || {
        let told = PyDict::new(py);
        told.set_item("__module__", "omnes")?;
        told.set_item("__doc__", meaning)?;
        let class = PyType::type_object(py).call1((name, PyTuple::new(py, bases)?, told))?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    };
    let class = place.get_or_try_init(py, make)?.bind(py).clone();
    module.add(name, &class)?;
    Ok(class)
}

kinds! {
    NoLauncher: "Nothing in the environment says which rank this is.",
    InvalidVariable: "A variable of the environment has an invalid value, or is missing.",
    Join: "The job could not be joined.",
    RankOutOfRange and PyValueError: "A rank outside the communicator, which has size ranks.",
    Truncated: "A message of so many bytes is longer than the memory for it, the capacity.",
    TooLarge: "A message of so many bytes is longer than any can be, the limit.",
    PeerFailed: "A rank has died or is cut off; rank says which.",
    PeerLeft: "The rank that was waited for has left the job; rank says which.",
    AlreadyLeft: "This rank has left the job itself.",
    PeerGaveUp: "A rank has given up what it was sending; rank says which.",
    CollectivesBroken:
        "A rank has given up a collective operation: its communicator has none any more.",
    DeclaredFailed:
        "The others have declared this rank failed; by is the rank of the job that says so.",
    Mismatch: "The ranks disagree about something that must be the same on all.",
    NoMulticast: "The job insists on multicast, and it does not work.",
    NoNic: "No barrier by the kernel's network interface.",
    MultiSend: "A multi-send that cannot be.",
    Barrier: "A barrier that cannot be entered.",
    BarrierTimeout and PyTimeoutError:
        "Ranks have not come to a barrier in time; missing says which.",
    BufferLength and PyValueError:
        "A buffer of a collective operation whose length is not that of one part per rank.",
    Reduction and PyValueError:
        "An operation that is not for the numbers to be reduced, or that there is not.",
    Exchange: "Ranks could not become a communicator; rank says which could not, the same on all.",
    ExchangeFailed: "What ranks were to become a communicator by does not work.",
    Interrupted: "A wait was interrupted; mostly what a signal handler has raised comes instead.",
    TooManyCommunicators: "The job has made as many communicators as it can, the limit.",
}

/// The exception that Python gets for `error`, with the error's values as attributes; what a signal
/// handler has raised in the wait, or a limit, comes first. A limit does not where the message that
/// was waited for has come to an end, which the next call would not be told any more.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let is_of_message = matches!(error, Error::Truncated { .. } | Error::PeerGaveUp { .. });
    match take_raised() {
        Some(Raised::ByLimit(_)) if is_of_message => {}
        Some(raised) => return raised.into_error(),
        None => {}
    }
    let class = class_of(error).get(py).expect("made with the module, which raises this");
    let exception = PyErr::from_type(class.bind(py).clone(), error.to_string());
    let told = tell(exception.value(py), error);
    told.map_or_else(|failure| failure, |()| exception)
}

/// Sets the attributes of an exception.
fn tell(value: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    match error {
        Error::PeerFailed { rank }
        | Error::MtuBlackHole { rank, .. }
        | Error::PeerLeft { rank }
        | Error::PeerGaveUp { rank }
        | Error::Exchange { rank, .. } => value.setattr("rank", rank),
        Error::CollectivesBroken { rank, collective } => {
            value.setattr("rank", rank)?;
            value.setattr("collective", collective.to_string())
        }
        Error::RankOutOfRange { rank, size } => {
            value.setattr("rank", rank)?;
            value.setattr("size", size)
        }
        Error::DeclaredFailed { by } => value.setattr("by", by),
        Error::Truncated { bytes, capacity } => {
            value.setattr("bytes", bytes)?;
            value.setattr("capacity", capacity)
        }
        Error::TooLarge { bytes, limit } => {
            value.setattr("bytes", bytes)?;
            value.setattr("limit", limit)
        }
        Error::TooManyCommunicators { limit } => value.setattr("limit", limit),
        Error::BarrierTimeout { missing, .. } => value.setattr("missing", missing),
        _ => Ok(()),
    }
}
