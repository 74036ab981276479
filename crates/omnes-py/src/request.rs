//! The class `Request`: a nonblocking operation, with the memory that it uses.

use crate::failure::exception;
use crate::limit;
use crate::memory::Memory;
use crate::process::OfProcess;
use crate::signals::{INTERVAL, forget_raised, let_go, raise_by_handler};
use omnes::{Error, OwnedRequest, Status};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// A started operation, which progresses by itself. Several threads may use it concurrently.
///
/// A request that is dropped before it has ended is given up: the message of a receive is left to
/// the next receive, or lost if it has begun to arrive; ranks to which this rank would have
/// forwarded a broadcast get PeerGaveUp, and later broadcasts get their own data; after a
/// reduction, gather or scatter, all collective operations of the communicator raise
/// CollectivesBroken from then on.
#[pyclass(module = "omnes", frozen)]
pub(crate) struct Request {
    state: OfProcess<Mutex<State>>,
    /// Notified when a thread has ended the operation.
    ended: Condvar,
}

enum State {
    Open(Open),
    /// This thread waits for the operation.
    Waiting(ThreadId),
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

    /// Locks the state. No thread holds the lock for long, or while it runs Python code.
    ///
    /// # Errors
    /// `ValueError` in a forked child, where the operation does not continue.
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state.get().ok_or_else(|| {
            let reason = "the request belongs to the process that began it, not to its child";
            PyValueError::new_err(reason)
        })?;
        Ok(state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the outcome, and raises it if it is an error.
    fn end(&self, py: Python<'_>, outcome: Result<Status, Error>) -> PyResult<()> {
        let raised = outcome.map_err(|error| exception(py, &error));
        let ended = match &raised {
            Ok(status) => State::Done(*status),
            Err(error) => State::Failed(without_frames(py, error)),
        };
        // Dropped last, without the lock: memory that Python frees may ask for the outcome.
        let _old = std::mem::replace(&mut *self.lock()?, ended);
        self.ended.notify_all();
        raised.map(drop)
    }

    /// The outcome; `None` until the operation has ended.
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Status>> {
        let error = match &*self.lock()? {
            State::Open(_) | State::Waiting(_) => return Ok(None),
            State::Done(status) => return Ok(Some(*status)),
            State::Failed(error) => error.clone_ref(py),
        };
        // Without the lock, as it runs Python code, and so perhaps another thread or a signal
        // handler.
        Err(without_frames(py, &error))
    }

    /// Takes the operation, for a thread that waits for it; `None` if another thread does, or the
    /// operation has ended.
    fn take(&self) -> PyResult<Option<Open>> {
        let mut state = self.lock()?;
        match std::mem::replace(&mut *state, State::Waiting(thread::current().id())) {
            State::Open(open) => Ok(Some(open)),
            other => {
                *state = other;
                Ok(None)
            }
        }
    }

    /// Waits until the thread that waits for the operation has its outcome.
    ///
    /// # Errors
    /// `RuntimeError` in a signal handler that runs while the same thread waits.
    fn wait_for_another_thread(&self, py: Python<'_>) -> PyResult<()> {
        if matches!(*self.lock()?, State::Waiting(thread) if thread == thread::current().id()) {
            let reason = "this thread already waits for the request; a signal handler cannot";
            return Err(PyRuntimeError::new_err(reason));
        }
        let is_late = || {
            let is_waiting = |state: &mut State| matches!(state, State::Waiting(_));
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

/// A copy of the exception. A raised exception refers to the frames that it passes, which hold the
/// request: if the request kept that exception, neither would ever be freed.
fn without_frames(py: Python<'_>, error: &PyErr) -> PyErr {
    let copied = py.import("copy").and_then(|copy| copy.call_method1("copy", (error.value(py),)));
    copied.map_or_else(|_| error.clone_ref(py), PyErr::from_value)
}

impl Drop for Request {
    fn drop(&mut self) {
        let Ok(Some(Open { request, _memory })) = self.take() else { return };
        // Data still to be sent are copied; other threads continue meanwhile.
        let_go(request);
    }
}

#[pymethods]
impl Request {
    /// True if the operation has ended; does not wait. Raises the operation's error.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let mut state = self.lock()?;
        let tested = match &mut *state {
            // Does not wait, so no signal handler runs under the lock.
            State::Open(open) => open.request.test(),
            _ => Ok(None),
        };
        let Some(outcome) = tested.transpose() else {
            drop(state);
            return Ok(self.outcome(py)?.is_some());
        };
        // No thread asks the request again while its end is recorded.
        let before = std::mem::replace(&mut *state, State::Waiting(thread::current().id()));
        drop(state);
        let ended = self.end(py, outcome);
        if let State::Open(Open { request, _memory }) = before {
            let_go(request); // It may hold the last reference to its communicator.
        }
        ended.map(|()| true)
    }

    /// Waits until the operation has ended. Raises the operation's error.
    ///
    /// An exception of a signal handler is raised, too, and the operation is given up, unless it
    /// has ended while the handler ran: then status is not None, and another wait() raises nothing.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        match self.take()? {
            Some(Open { request, _memory }) => {
                forget_raised();
                let outcome = py.detach(|| request.wait());
                self.end(py, outcome)?;
                // If the outcome is a success, which is stored; otherwise it is the exception that
                // was raised.
                raise_by_handler()?;
            }
            None => self.wait_for_another_thread(py)?,
        }
        self.outcome(py).map(drop)
    }

    /// Source, tag and length in bytes, as from recv(); None until the operation has ended.
    #[getter]
    fn status(&self) -> PyResult<Option<(u32, u32, usize)>> {
        Ok(match &*self.lock()? {
            State::Done(Status { source, tag, bytes }) => Some((*source, *tag, *bytes)),
            _ => None,
        })
    }
}
