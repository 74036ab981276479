//! Communicators of ranks that exchange already by a function of Python, and their end.

use crate::communicator::{Communicator, detached, detached_to_leave, number};
use crate::process;
use crate::signals::{keep_raised, take_raised, while_waiting};
use omnes::{Communicator as Members, Config, Error, Exchange, Jobs};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// Ranks whose exchange is a function of Python.
struct Ranks {
    rank: u32,
    size: u32,
    allgather: Py<PyAny>,
    /// What the function has raised: the cause of what `join` raises, or that itself.
    raised: Mutex<Option<PyErr>>,
}

impl Ranks {
    /// The bytes of all ranks; takes the interpreter's lock for the call.
    fn call(&self, own: &[u8]) -> PyResult<Vec<u8>> {
        // The function may wait in calls of this package, too.
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

/// A communicator of ranks that can tell each other something by means of their own.
///
/// Called by all of them. allgather is given a rank's bytes, as many on all ranks, and returns
/// those of all ranks, in their order; it is called the same number of times on all of them. The
/// first such communicator is a job by itself, others whose ranks are all in one job share it. The
/// jobs go on until leave() or abandon(). Raises Exchange on all ranks if one of them cannot;
/// ExchangeFailed if allgather raises an Exception, with that as its cause; whatever else that
/// raises, such as KeyboardInterrupt, unchanged; RankOutOfRange; ValueError in a child of fork()
/// whose parent has joined a job.
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
            // Such as KeyboardInterrupt: it is to end the program, not to be taken for an error.
            Some(raised) if !raised.is_instance_of::<PyException>(py) => raised,
            Some(raised) => {
                failure.set_cause(py, Some(raised));
                failure
            }
            None => failure,
        }
    })
}

/// Leaves all jobs of join(): waits for their ranks, then for the last answers.
///
/// Called by all ranks of these jobs, as their last act. Raises PeerFailed if a rank has failed;
/// the jobs are left nevertheless.
#[pyfunction]
pub(crate) fn leave(py: Python<'_>) -> PyResult<()> {
    // As in `abandon`.
    if process::is_child_of_joined() {
        return Ok(());
    }
    detached_to_leave(py, || Jobs::of_process().leave())
}

/// Leaves all jobs of join(), without waiting for their ranks.
///
/// Whoever waits for this rank then gets PeerLeft. Waits for the last answers, for a second per job
/// at most.
#[pyfunction]
pub(crate) fn abandon(py: Python<'_>) -> PyResult<()> {
    // The jobs that a forked child knows of are its parent's.
    if process::is_child_of_joined() {
        return Ok(());
    }
    detached_to_leave(py, || {
        Jobs::of_process().abandon();
        Ok(())
    })
}
