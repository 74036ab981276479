//! Limits of time for calls that wait, of whatever kind, thread by thread.
//!
//! A limit is looked at where signal handlers have their turns, so a call ends up to
//! [`INTERVAL`](crate::signals::INTERVAL) after it.

use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// One with block that a thread is in.
struct Limit {
    /// The object that it was entered with: several threads may use one, and blocks of generators
    /// need not end in the order of their beginnings.
    of: *const TimeLimit,
    /// Nothing for a time beyond all clocks.
    at: Option<Instant>,
    given: Duration,
}

thread_local! {
    /// Those that this thread is in.
    static LIMITS: RefCell<Vec<Limit>> = const { RefCell::new(Vec::new()) };
}

/// A limit of so many seconds for all calls of a thread in a with block.
///
/// A call that has not ended by then raises TimeoutError, up to a twentieth of a second later, and
/// its operation is given up; Communicator says what follows from that for a collective one. Of
/// limits within each other, the nearest counts. Raises ValueError for a limit below 0.
#[pyclass(name = "time_limit", module = "omnes", frozen)]
pub(crate) struct TimeLimit {
    given: Duration,
}

#[pymethods]
impl TimeLimit {
    #[new]
    fn new(seconds: f64) -> PyResult<Self> {
        let given = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(format!("seconds={seconds}: {error}")))?;
        Ok(Self { given })
    }

    fn __enter__(&self) {
        let at = Instant::now().checked_add(self.given);
        LIMITS.with_borrow_mut(|limits| limits.push(Limit { of: self, at, given: self.given }));
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        LIMITS.with_borrow_mut(|limits| {
            let own = limits.iter().rposition(|limit| std::ptr::eq(limit.of, self));
            own.map(|own| limits.remove(own));
        });
    }
}

/// What a wait of this thread ends with if a limit is over.
pub(crate) fn exceeded() -> Option<PyErr> {
    let nearest = LIMITS.with_borrow(|limits| {
        let timed = limits.iter().filter_map(|limit| Some((limit.at?, limit.given)));
        timed.min_by_key(|(at, _)| *at)
    });
    let (_, given) = nearest.filter(|(at, _)| Instant::now() >= *at)?;
    let seconds = given.as_secs_f64();
    Some(PyTimeoutError::new_err(format!("the call has not ended within {seconds} s")))
}
