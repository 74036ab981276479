//! Communicators of ranks that exchange data by means of a Python function, and the end of their
//! jobs.

use crate::communicator::{Communicator, detached, detached_to_leave, number};
use crate::process;
use crate::signals::{keep_raised, take_raised, while_waiting};
use omnes::{Communicator as Members, Config, Error, Exchange, Jobs};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// Ranks whose exchange is a Python function.
struct Ranks {
    rank: u32,
    size: u32,
    allgather: Py<PyAny>,
    /// The exception that the function raised: the cause of the one that `join` raises, or that one
    /// itself.
    raised: Mutex<Option<PyErr>>,
}

impl Ranks {
    /// The bytes of all ranks; takes the interpreter's lock for the call.
    fn call(&self, own: &[u8]) -> PyResult<Vec<u8>> {
        // The function may itself wait in calls of this package.
        let raised = take_raised();
        let told = Python::attach(|py| {
            let all = self.allgather.call1(py, (PyBytes::new(py, own),))?;
            let parts: Vec<PyBackedBytes> = all.extract(py)?;
            Ok(parts.iter().flat_map(|part| part.iter().copied()).collect())
        });
        keep_raised(raised);
        told
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

/// Creates a communicator of ranks that can exchange data by means of their own.
///
/// All of these ranks must call it. allgather takes a rank's bytes, the same number on all ranks,
/// and returns the bytes of all ranks, in order of ranks; it is called the same number of times on
/// all ranks. The first such communicator is a job of its own; others whose ranks are all in one
/// job share that job. The jobs last until leave() or abandon(). Raises Exchange on all ranks if
/// one of them cannot join; ExchangeFailed if allgather raises an Exception, which is its cause;
/// anything else that allgather raises, such as KeyboardInterrupt, unchanged; RankOutOfRange;
/// ValueError in a child of fork() whose parent has joined a job.
#[pyfunction]
pub(crate) fn join(
    py: Python<'_>,
    rank: i64,
    size: i64,
    allgather: Py<PyAny>,
) -> PyResult<Communicator> {
    process::check_may_join()?;
    let (rank, size) = (number("rank", rank)?, number("size", size)?);
    let ranks = Ranks { rank, size, allgather, raised: Mutex::new(None) };
    let adjust = |config: &mut Config| config.while_waiting = Some(while_waiting());
    let joined = detached(py, || Members::from_exchange(&ranks, adjust));
    joined.map(Communicator::part).map_err(|failure| {
        match ranks.raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            // For example KeyboardInterrupt, which is to end the program and is not an error.
            Some(raised) if !raised.is_instance_of::<PyException>(py) => raised,
            Some(raised) => {
                failure.set_cause(py, Some(raised));
                failure
            }
            None => failure,
        }
    })
}

/// Leaves all jobs of join(): waits for their ranks, then for outstanding acknowledgements.
///
/// All ranks of these jobs must call it, as their last operation. Raises PeerFailed if a rank has
/// failed; the jobs are left nevertheless.
#[pyfunction]
pub(crate) fn leave(py: Python<'_>) -> PyResult<()> {
    // As in `abandon`.
    if process::is_child_of_joined() {
        return Ok(());
    }
    detached_to_leave(py, || Jobs::of_process().leave())
}

/// Leaves all jobs of join() without waiting for their ranks.
///
/// Ranks that wait for this one then get PeerLeft. Waits at most one second per job for outstanding
/// acknowledgements.
#[pyfunction]
pub(crate) fn abandon(py: Python<'_>) -> PyResult<()> {
    // The jobs that a forked child knows are those of its parent.
    if process::is_child_of_joined() {
        return Ok(());
    }
    detached_to_leave(py, || {
        Jobs::of_process().abandon();
        Ok(())
    })
}
