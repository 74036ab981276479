//! Time limits for calls that wait, of any kind, per thread.
//!
//! A limit is checked when signal handlers run, so a call ends up to
//! [`INTERVAL`](crate::signals::INTERVAL) after it.

use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A `with` block that a thread has entered.
struct Block {
    /// `None` for a time that the clock cannot represent.
    at: Option<Instant>,
    given: Duration,
    /// Possibly by another thread, such as one that collects a generator.
    is_left: AtomicBool,
}

thread_local! {
    /// The blocks that this thread is in, and possibly some that another thread has left.
    static BLOCKS: RefCell<Vec<Arc<Block>>> = const { RefCell::new(Vec::new()) };
}

/// A limit, in seconds, for all calls of a thread in a with block.
///
/// A call that has not ended by then raises TimeoutError at most a twentieth of a second later, or
/// once it gets the interpreter's lock if another thread holds that for longer. Its operation is
/// given up: Communicator describes the consequences for a collective, and recv() for a message,
/// which is lost if it has begun to arrive. Of nested limits, the nearest one applies; infinity
/// means no limit. Raises ValueError for a negative limit or NaN.
#[pyclass(name = "time_limit", module = "omnes", frozen)]
pub(crate) struct TimeLimit {
    given: Duration,
    /// Blocks that were entered with this limit and not left: several threads may use one limit,
    /// and blocks of generators need not end in the order in which they began.
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
        // A thread that has no block of its own leaves another thread's.
        if let Some(last) = own.or(blocks.len().checked_sub(1)) {
            blocks.remove(last).is_left.store(true, Ordering::Relaxed);
        }
    }
}

/// A limit in seconds; `argument` is the caller's name of the argument. A limit beyond all
/// durations, such as infinity, is the longest duration.
pub(crate) fn limit(argument: &str, seconds: f64) -> PyResult<Duration> {
    if seconds >= Duration::MAX.as_secs_f64() {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{argument}={seconds}: {error}")))
}

/// Calls `call` with the blocks that this thread is in.
fn with_own<T>(call: impl FnOnce(&mut Vec<Arc<Block>>) -> T) -> T {
    BLOCKS.with_borrow_mut(|own| {
        own.retain(|block| !block.is_left.load(Ordering::Relaxed));
        call(own)
    })
}

/// The exception that ends a wait of this thread, if a limit has expired.
pub(crate) fn exceeded() -> Option<PyErr> {
    let nearest = with_own(|own| {
        let timed = own.iter().filter_map(|block| Some((block.at?, block.given)));
        timed.min_by_key(|(at, _)| *at)
    });
    let (_, given) = nearest.filter(|(at, _)| Instant::now() >= *at)?;
    let seconds = given.as_secs_f64();
    Some(PyTimeoutError::new_err(format!("the call has not ended within {seconds} s")))
}
