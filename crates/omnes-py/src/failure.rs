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
    NoLauncher: "The environment does not say which rank this is.",
    InvalidVariable: "An environment variable has an invalid value, or is required and not set.",
    Join: "This rank could not join the job.",
    RankOutOfRange and PyValueError: "A rank outside the communicator, which has size ranks.",
    Truncated: "A message of that many bytes exceeds the capacity of its buffer.",
    TooLarge: "A message of that many bytes exceeds the limit; nothing was sent.",
    PeerFailed: "A rank has died or is unreachable; rank says which.",
    PeerLeft: "The rank that this rank waited for has left the job; rank says which.",
    AlreadyLeft: "This rank has already left the job.",
    PeerGaveUp:
        "A rank has abandoned the operation whose data this rank waited for; rank says which.",
    CollectivesBroken:
        "A rank could not complete a collective; no collective works on its communicator any more.",
    DeclaredFailed:
        "The others have declared this rank failed; by is one of them, numbered as in the job.",
    Mismatch: "Something that must be the same on all ranks differs between them.",
    NoMulticast: "Multicast is required, but does not work.",
    NoNic: "The kernel NIC is required, but not available.",
    MultiSend: "The requested multi-send is not possible.",
    Barrier: "A barrier could not be entered or completed.",
    BarrierTimeout and PyTimeoutError:
        "Ranks did not enter a barrier within its limit; missing says which.",
    BufferLength and PyValueError:
        "The length of a collective's buffer is not that of one part per rank.",
    Reduction and PyValueError:
        "The operation does not apply to the numbers' type, or no operation has that name.",
    Exchange:
        "The ranks could not form a communicator; rank says which could not join, alike on all.",
    ExchangeFailed: "The program's own exchange between the ranks has failed.",
    Interrupted:
        "A wait was interrupted; usually the signal handler's own exception is raised instead.",
    TooManyCommunicators: "The job has created the maximum number of communicators, the limit.",
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
