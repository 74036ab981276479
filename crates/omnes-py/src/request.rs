//! Nonblocking operations, with the memory that they use.

use crate::failure::exception;
use crate::limit;
use crate::memory::Memory;
use crate::process::OfProcess;
use crate::signals::{INTERVAL, forget_raised, let_go, raise_by_handler};
use omnes::{Error, OwnedRequest, Status};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// An operation that has been started; it goes on by itself. Any threads may use it at once.
///
/// Dropped before it has ended it is given up: the message of a receive is for the next receive,
/// but lost if it has begun to come; those to whom this rank would have passed a broadcast on get
/// PeerGaveUp, and later broadcasts their own data; of a reduction, gather or scatter, all
/// collective operations of the communicator raise CollectivesBroken from then on.
#[pyclass(module = "omnes", frozen)]
pub(crate) struct Request {
    state: OfProcess<Mutex<State>>,
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
    request: OwnedRequest,
    _memory: Vec<Memory>,
}

impl Request {
    pub(crate) fn new(request: OwnedRequest, memory: Vec<Memory>) -> Self {
        let state = Mutex::new(State::Open(Open { request, _memory: memory }));
        Self { state: OfProcess::new(state), ended: Condvar::new() }
    }

    /// Nobody holds it for long, nor while code of Python runs.
    ///
    /// # Errors
    /// `ValueError` in a forked child, where the operation does not go on.
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state.get().ok_or_else(|| {
            let reason = "the request belongs to the process that began it, not to its child";
            PyValueError::new_err(reason)
        })?;
        Ok(state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the outcome, and raises it if it is an error.
    fn end(&self, py: Python<'_>, outcome: Result<Status, Error>) -> PyResult<()> {
        let raised = outcome.map_err(|error| exception(py, &error));
        let ended = match &raised {
            Ok(status) => State::Done(*status),
            Err(error) => State::Failed(without_frames(py, error)),
        };
        // Dropped last, unlocked: memory that Python lets go of may ask for the outcome.
        let _old = std::mem::replace(&mut *self.lock()?, ended);
        self.ended.notify_all();
        raised.map(drop)
    }

    /// What the end was; nothing before it.
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Status>> {
        let error = match &*self.lock()? {
            State::Open(_) | State::Waiting => return Ok(None),
            State::Done(status) => return Ok(Some(*status)),
            State::Failed(error) => error.clone_ref(py),
        };
        // Unlocked, as it runs Python, and so perhaps another thread or a signal handler.
        Err(without_frames(py, &error))
    }

    /// The operation, for who waits for it; nothing if another thread does, or it has ended.
    fn take(&self) -> PyResult<Option<Open>> {
        let mut state = self.lock()?;
        match std::mem::replace(&mut *state, State::Waiting) {
            State::Open(open) => Ok(Some(open)),
            other => {
                *state = other;
                Ok(None)
            }
        }
    }

    fn wait_for_another_thread(&self, py: Python<'_>) -> PyResult<()> {
        let is_late = || {
            let is_waiting = |state: &mut State| matches!(state, State::Waiting);
            let waited = self.ended.wait_timeout_while(self.lock()?, INTERVAL, is_waiting);
            Ok::<_, PyErr>(waited.unwrap_or_else(PoisonError::into_inner).1.timed_out())
        };
        while py.detach(is_late)? {
            py.check_signals()?;
            limit::exceeded().map_or(Ok(()), Err)?;
        }
        Ok(())
    }
}

/// The same exception anew. One that is raised leads to the frames that it passes, which hold the
/// request: if the request kept that one, neither would ever be freed.
fn without_frames(py: Python<'_>, error: &PyErr) -> PyErr {
    let copied = py.import("copy").and_then(|copy| copy.call_method1("copy", (error.value(py),)));
    copied.map_or_else(|_| error.clone_ref(py), PyErr::from_value)
}

impl Drop for Request {
    fn drop(&mut self) {
        let Ok(Some(Open { request, _memory })) = self.take() else { return };
        // What is still to be sent is copied; others go on meanwhile.
        let_go(request);
    }
}

#[pymethods]
impl Request {
    /// Whether the operation has ended; waits for nobody. Raises what the operation raises.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let mut state = self.lock()?;
        let tested = match &mut *state {
            // Does not wait, so no signal handler has its turn under the lock.
            State::Open(open) => open.request.test(),
            _ => Ok(None),
        };
        let Some(outcome) = tested.transpose() else {
            drop(state);
            return Ok(self.outcome(py)?.is_some());
        };
        // Nobody asks it again while its end is noted.
        let before = std::mem::replace(&mut *state, State::Waiting);
        drop(state);
        let ended = self.end(py, outcome);
        if let State::Open(Open { request, _memory }) = before {
            let_go(request); // It may be the last that holds its communicator.
        }
        ended.map(|()| true)
    }

    /// Waits until the operation has ended. Raises what the operation raises.
    ///
    /// What a signal handler raises is raised too, and the operation is given up, unless it has
    /// ended while the handler ran: then status is not None, and another wait() raises nothing.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        match self.take()? {
            Some(Open { request, _memory }) => {
                forget_raised();
                let outcome = py.detach(|| request.wait());
                self.end(py, outcome)?;
                // Where the outcome is good, which is kept: else it is what was raised.
                raise_by_handler()?;
            }
            None => self.wait_for_another_thread(py)?,
        }
        self.outcome(py).map(drop)
    }

    /// Source, tag and length in bytes, as of recv(); None before the operation has ended.
    #[getter]
    fn status(&self) -> PyResult<Option<(u32, u32, usize)>> {
        Ok(match &*self.lock()? {
            State::Done(Status { source, tag, bytes }) => Some((*source, *tag, *bytes)),
            _ => None,
        })
    }
}
