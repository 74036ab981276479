//! Limits of time for calls that wait, of whatever kind, thread by thread.
//!
//! A limit is looked at where signal handlers have their turns, so a call ends up to
//! [`INTERVAL`](crate::signals::INTERVAL) after it.

use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One with block that a thread has entered.
struct Block {
    /// Nothing for a time beyond all clocks.
    at: Option<Instant>,
    given: Duration,
    /// Perhaps by another thread, as where that collects a generator.
    is_left: AtomicBool,
}

thread_local! {
    /// Those that this thread is in, and some that another thread has left.
    static BLOCKS: RefCell<Vec<Arc<Block>>> = const { RefCell::new(Vec::new()) };
}

/// A limit of so many seconds for all calls of a thread in a with block.
///
/// A call that has not ended by then raises TimeoutError, up to a twentieth of a second later, or
/// once it gets the interpreter's lock if another thread holds that for longer, and its operation
/// is given up; Communicator says what follows from that for a collective one, and recv() for a
/// message, which is lost if it has begun to come. Of limits within each other, the nearest counts;
/// infinity is none. Raises ValueError for a limit below 0 and NaN.
#[pyclass(name = "time_limit", module = "omnes", frozen)]
pub(crate) struct TimeLimit {
    given: Duration,
    /// Those that were entered with it and not left: several threads may use one limit, and blocks
    /// of generators need not end in the order of their beginnings.
    blocks: Mutex<Vec<Arc<Block>>>,
}

#[pymethods]
impl TimeLimit {
    #[new]
    fn new(seconds: f64) -> PyResult<Self> {
        Ok(Self { given: limit("seconds", seconds)?, blocks: Mutex::default() })
    }

    fn __enter__(&self) {
        let at = Instant::now().checked_add(self.given);
        let block = Arc::new(Block { at, given: self.given, is_left: AtomicBool::new(false) });
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&block));
        with_own(|own| own.push(block));
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let own = with_own(|own| {
            blocks.iter().rposition(|block| own.iter().any(|other| Arc::ptr_eq(block, other)))
        });
        // Without one of its own, this thread leaves another's.
        if let Some(last) = own.or(blocks.len().checked_sub(1)) {
            blocks.remove(last).is_left.store(true, Ordering::Relaxed);
        }
    }
}

/// A limit in seconds; `argument` is what the caller knows it as. One that is beyond all durations,
/// such as infinity, is the longest.
pub(crate) fn limit(argument: &str, seconds: f64) -> PyResult<Duration> {
    if seconds >= Duration::MAX.as_secs_f64() {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{argument}={seconds}: {error}")))
}

/// With the blocks that this thread is in.
fn with_own<T>(call: impl FnOnce(&mut Vec<Arc<Block>>) -> T) -> T {
    BLOCKS.with_borrow_mut(|own| {
        own.retain(|block| !block.is_left.load(Ordering::Relaxed));
        call(own)
    })
}

/// What a wait of this thread ends with if a limit is over.
pub(crate) fn exceeded() -> Option<PyErr> {
    let nearest = with_own(|own| {
        let timed = own.iter().filter_map(|block| Some((block.at?, block.given)));
        timed.min_by_key(|(at, _)| *at)
    });
    let (_, given) = nearest.filter(|(at, _)| Instant::now() >= *at)?;
    let seconds = given.as_secs_f64();
    Some(PyTimeoutError::new_err(format!("the call has not ended within {seconds} s")))
}
