//! Nonblocking operations, with the memory that they use.

use crate::failure::exception;
use crate::memory::Memory;
use crate::process::OfProcess;
use crate::signals::INTERVAL;
use omnes::{Error, OwnedRequest, Status};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// An operation that has been started. It goes on by itself, and is ended by `wait()`, or by
/// `test()` when that says so, in any thread; one that has failed says so each time. Dropped before
/// it has ended it is given up, and its communicator's collectives with it.
#[pyclass(module = "omnes", frozen)]
pub(crate) struct Request {
    state: Mutex<State>,
    /// Some thread has ended it.
    ended: Condvar,
}

enum State {
    Open(Open),
    /// A thread waits for it.
    Waiting,
    Done(Status),
    Failed(PyErr),
}

struct Open {
    /// Dropped first: the memory is in use until then.
    request: OfProcess<OwnedRequest>,
    _memory: Option<Memory>,
}

impl Request {
    pub(crate) fn new(request: OwnedRequest, memory: Option<Memory>) -> Self {
        let open = Open { request: OfProcess::new(request), _memory: memory };
        Self { state: Mutex::new(State::Open(open)), ended: Condvar::new() }
    }

    /// Nobody holds it for long.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, py: Python<'_>, outcome: Result<Status, Error>) {
        let ended = outcome.map_err(|error| exception(py, &error));
        *self.lock() = ended.map_or_else(State::Failed, State::Done);
        self.ended.notify_all();
    }

    /// What the end was; nothing before it.
    fn outcome(&self, py: Python<'_>) -> Option<PyResult<Status>> {
        match &*self.lock() {
            State::Open(_) | State::Waiting => None,
            State::Done(status) => Some(Ok(*status)),
            State::Failed(error) => Some(Err(error.clone_ref(py))),
        }
    }

    fn wait_for_another_thread(&self, py: Python<'_>) -> PyResult<()> {
        let is_waiting = |state: &mut State| matches!(state, State::Waiting);
        let is_late = || {
            let waited = self.ended.wait_timeout_while(self.lock(), INTERVAL, is_waiting);
            waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
        };
        while py.detach(is_late) {
            py.check_signals()?;
        }
        Ok(())
    }
}

#[pymethods]
impl Request {
    /// Whether the operation has ended; waits for nobody.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let tested = match &mut *self.lock() {
            State::Open(open) => open.request.get_mut().test(),
            _ => Ok(None),
        };
        if let Some(outcome) = tested.transpose() {
            self.end(py, outcome);
        }
        self.outcome(py).transpose().map(|outcome| outcome.is_some())
    }

    /// Waits until the operation has ended.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let taken = {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, State::Waiting) {
                State::Open(open) => Some(open),
                other => {
                    *state = other;
                    None
                }
            }
        };
        match taken {
            Some(Open { request, _memory }) => match request.into_inner() {
                Some(request) => {
                    let outcome = py.detach(|| request.wait());
                    self.end(py, outcome);
                }
                None => {
                    let why = "the request belongs to the process that began it";
                    *self.lock() = State::Failed(PyValueError::new_err(why));
                }
            },
            None => self.wait_for_another_thread(py)?,
        }
        self.outcome(py).transpose().map(drop)
    }

    /// Source, tag and length in bytes of the message received; nothing before the end.
    #[getter]
    fn status(&self) -> Option<(u32, u32, usize)> {
        match &*self.lock() {
            State::Done(Status { source, tag, bytes }) => Some((*source, *tag, *bytes)),
            _ => None,
        }
    }
}
