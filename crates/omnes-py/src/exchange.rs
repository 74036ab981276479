//! Communicators of ranks that exchange already by a function of Python, and their end.

use crate::communicator::Communicator;
use crate::failure::exception;
use crate::signals::while_waiting;
use omnes::{Communicator as Members, Config, Error, Exchange, Jobs};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// Ranks whose exchange is a function of Python.
struct Ranks {
    rank: u32,
    size: u32,
    allgather: Py<PyAny>,
    /// What the function has raised, to be the cause of what `join` raises.
    raised: Mutex<Option<PyErr>>,
}

impl Ranks {
    /// The bytes of all ranks; takes the interpreter's lock for the call.
    fn call(&self, own: &[u8]) -> PyResult<Vec<u8>> {
        Python::attach(|py| {
            let all = self.allgather.call1(py, (PyBytes::new(py, own),))?;
            let parts: Vec<PyBackedBytes> = all.extract(py)?;
            Ok(parts.iter().flat_map(|part| part.iter().copied()).collect())
        })
    }
}

impl Exchange for Ranks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.call(own).map_err(|raised| {
            let reason = raised.to_string();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
            Error::ExchangeFailed { reason }
        })
    }
}

/// A communicator of the ranks that exchange through `allgather`.
#[pyfunction]
pub(crate) fn join(
    py: Python<'_>,
    rank: u32,
    size: u32,
    allgather: Py<PyAny>,
) -> PyResult<Communicator> {
    let ranks = Ranks { rank, size, allgather, raised: Mutex::new(None) };
    let adjust = |config: &mut Config| config.while_waiting = Some(while_waiting());
    let joined = py.detach(|| Members::from_exchange(&ranks, adjust));
    joined.map(Communicator::part).map_err(|error| {
        let failure = exception(py, &error);
        let raised = ranks.raised.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.set_cause(py, raised);
        failure
    })
}

/// Leaves the jobs of `join()` without waiting for their ranks.
#[pyfunction]
pub(crate) fn abandon(py: Python<'_>) {
    py.detach(|| Jobs::of_process().abandon());
}
