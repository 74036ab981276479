//! Limits of time for calls that wait, of whatever kind, thread by thread.
//!
//! A limit is looked at where signal handlers have their turns, so a call ends up to
//! [`INTERVAL`](crate::signals::INTERVAL) after it.

use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
struct Limit {
    at: Instant,
    given: Duration,
}

thread_local! {
    /// The nearest of those that this thread is in.
    static NEAREST: Cell<Option<Limit>> = const { Cell::new(None) };
}

/// A limit of so many seconds for all calls of a thread in a with block.
///
/// A call that has not ended by then raises TimeoutError, up to a twentieth of a second later, and
/// its operation is given up: of a collective one, others may wait for this rank until it leaves.
/// Of limits within each other, the nearest counts. Raises ValueError for a limit below 0.
#[pyclass(name = "time_limit", module = "omnes", frozen)]
pub(crate) struct TimeLimit {
    given: Duration,
    /// What the thread had before it entered, once for each block that it is in.
    outer: Mutex<Vec<Option<Limit>>>,
}

#[pymethods]
impl TimeLimit {
    #[new]
    fn new(seconds: f64) -> PyResult<Self> {
        let given = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(format!("seconds={seconds}: {error}")))?;
        Ok(Self { given, outer: Mutex::default() })
    }

    fn __enter__(&self) {
        let outer = NEAREST.get();
        // A time beyond all clocks is no limit.
        let at = Instant::now().checked_add(self.given);
        let own = at.map(|at| Limit { at, given: self.given });
        let nearest = [outer, own].into_iter().flatten().min_by_key(|limit| limit.at);
        NEAREST.set(nearest);
        self.stack().push(outer);
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        let outer = self.stack().pop();
        NEAREST.set(outer.flatten());
    }
}

impl TimeLimit {
    fn stack(&self) -> MutexGuard<'_, Vec<Option<Limit>>> {
        self.outer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a wait of this thread ends with if its limit is over.
pub(crate) fn exceeded() -> Option<PyErr> {
    let limit = NEAREST.get().filter(|limit| Instant::now() >= limit.at)?;
    let seconds = limit.given.as_secs_f64();
    Some(PyTimeoutError::new_err(format!("the call has not ended within {seconds} s")))
}
