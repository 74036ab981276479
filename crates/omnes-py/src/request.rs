//! Nonblocking operations, with the memory that they use.

use crate::failure::exception;
use crate::memory::Memory;
use crate::process::OfProcess;
use omnes::{OwnedRequest, Status};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// An operation that has been started. It goes on by itself, and is ended by `wait()`, or by
/// `test()` when that says so. Dropped before it has ended it is given up, and its communicator's
/// collectives with it.
#[pyclass(module = "omnes")]
pub(crate) struct Request {
    open: Option<Open>,
    /// Once it has ended well.
    status: Option<Status>,
}

struct Open {
    /// Dropped first: the memory is in use until then.
    request: OfProcess<OwnedRequest>,
    _memory: Option<Memory>,
}

impl Request {
    pub(crate) fn new(request: OwnedRequest, memory: Option<Memory>) -> Self {
        let open = Open { request: OfProcess::new(request), _memory: memory };
        Self { open: Some(open), status: None }
    }
}

#[pymethods]
impl Request {
    /// Whether the operation has ended; waits for nobody.
    fn test(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(open) = &mut self.open else { return Ok(true) };
        let outcome = open.request.get_mut().test();
        if matches!(outcome, Ok(None)) {
            return Ok(false);
        }
        self.open = None;
        self.status = outcome.map_err(|error| exception(py, &error))?;
        Ok(true)
    }

    /// Waits until the operation has ended.
    fn wait(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(Open { request, _memory }) = self.open.take() else { return Ok(()) };
        let Some(request) = request.into_inner() else {
            return Err(PyValueError::new_err("the request belongs to the process that began it"));
        };
        let outcome = py.detach(|| request.wait());
        self.status = Some(outcome.map_err(|error| exception(py, &error))?);
        Ok(())
    }

    /// Source, tag and length in bytes of the message received; nothing before the end.
    #[getter]
    fn status(&self) -> Option<(u32, u32, usize)> {
        self.status.map(|Status { source, tag, bytes }| (source, tag, bytes))
    }
}
