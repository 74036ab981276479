//! The class `Communicator`: a group of ranks.

use crate::failure::exception;
use crate::process::{self, OfProcess};
use crate::signals::{
    forget_raised, leaving, let_go, raise_by_handler, take_raised, while_waiting,
};
use omnes::{Communicator as Ranks, Config, Error, MulticastState};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{PoisonError, RwLock};

/// A group of ranks that communicate with each other, separately from all other groups.
///
/// All ranks must call its collective operations, which are all except messages (send(), recv(),
/// probe() and their variants), in the same order, each rank from one thread at a time. Collective
/// operations raise PeerLeft if a rank has left the job, in addition to the errors that they list.
/// A buffer is any object with the buffer protocol and contiguous elements; TypeError or ValueError
/// says why an object cannot be used. Ranks, tags and colors are numbers from 0 to 2**32 - 1;
/// others raise ValueError, or OverflowError beyond 64 bits. After finalize(), and in a child of
/// fork(), which must not take its parent's place, rank and size remain available, finalize() and
/// abandon() do nothing, and everything else raises ValueError.
///
/// Any call may also raise DeclaredFailed, if the other ranks have declared this one failed, and
/// AlreadyLeft, once this rank has left the job. A call that waits for data from another rank may
/// raise PeerGaveUp, if that rank has given up its part; a call that sends, TooLarge; and a call
/// that enters a barrier, Barrier, if omnesd has withdrawn the slot that ran it. A collective
/// operation that has started and raises one of these errors, or is ended by a signal handler or a
/// time_limit(), is given up, except for bcast(), and for barrier() unless OMNES_NIC=off: the
/// operation and all others on this communicator raise CollectivesBroken from then on, on all
/// ranks. Communicators that were made by dup() or split() continue to work, and can create others.
/// A barrier is given up, too, if it is one of the few, from the seventeenth on, in which the nodes
/// of a communicator agree on the kernel NIC; a barrier with timeout_s is never one of them.
///
/// An exception that a signal handler raises while a call waits is raised by the call, and its
/// operation is given up. An operation that completes while the handler runs is not given up: a
/// received message is in its buffer, although recv() does not return its length, which a Request
/// has in its status. A time_limit() raises nothing for a completed operation.
///
/// Calls that do not match, such as a receive of a message that nobody sends, may wait forever
/// unless a time_limit() ends them. With OMNES_COMPARE=on on all ranks, each collective call,
/// except nonblocking calls and those with a limit, first compares its root, length, type and op
/// between the ranks: if they differ, all ranks raise Mismatch, which names both calls.
#[pyclass(frozen, module = "omnes")]
pub(crate) struct Communicator {
    /// `None` after `finalize()`.
    ranks: RwLock<Option<OfProcess<Ranks>>>,
    rank: u32,
    size: u32,
    /// True for the communicator of all ranks of the job, with which the job is left.
    is_world: bool,
}

impl Communicator {
    fn world(ranks: Ranks) -> Self {
        Self::new(ranks, true)
    }

    pub(crate) fn part(ranks: Ranks) -> Self {
        Self::new(ranks, false)
    }

    fn new(ranks: Ranks, is_world: bool) -> Self {
        process::note_joined();
        let (rank, size) = (ranks.rank(), ranks.size());
        Self { ranks: RwLock::new(Some(OfProcess::new(ranks))), rank, size, is_world }
    }

    pub(crate) fn ranks(&self) -> PyResult<Ranks> {
        let ranks = self.ranks.read().unwrap_or_else(PoisonError::into_inner);
        let ranks = ranks
            .as_ref()
            .ok_or_else(|| PyValueError::new_err("the communicator has been finalized"))?;
        ranks.get().cloned().ok_or_else(|| {
            let reason = "the communicator belongs to the process that made it; a child of fork() \
                          leaves it alone, and lets its parent communicate";
            PyValueError::new_err(reason)
        })
    }

    fn take(&self) -> Option<Ranks> {
        let taken = self.ranks.write().unwrap_or_else(PoisonError::into_inner).take();
        taken.and_then(OfProcess::into_inner)
    }

    fn check_is_world(&self, done: &str) -> PyResult<()> {
        if self.is_world {
            return Ok(());
        }
        let reason = format!(
            "only the communicator of from_env() is {done}: the job is left with it; \
             omnes.leave() leaves those of join()"
        );
        Err(PyValueError::new_err(reason))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let ranks = self.ranks.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ranks) = ranks.and_then(OfProcess::into_inner) {
            // The last communicator leaves the job, and waits for outstanding acknowledgements.
            let_go(ranks);
        }
    }
}

/// Runs an operation that waits, without the interpreter's lock. An exception of a signal handler
/// is raised even if the operation succeeds.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    operation: impl Send + FnOnce() -> Result<T, Error>,
) -> PyResult<T> {
    forget_raised();
    let ended = py.detach(operation).map_err(|error| exception(py, &error))?;
    match raise_by_handler() {
        Ok(()) => Ok(ended),
        Err(error) => {
            let_go(ended);
            Err(error)
        }
    }
}

/// As [`detached`], for leaving a job, which succeeds even if it has not waited for the outstanding
/// acknowledgements: the exception of a limit is raised then, too.
pub(crate) fn detached_to_leave(
    py: Python<'_>,
    leave: impl Send + FnOnce() -> Result<(), Error>,
) -> PyResult<()> {
    forget_raised();
    py.detach(|| leaving(leave)).map_err(|error| exception(py, &error))?;
    take_raised().map_or(Ok(()), |raised| Err(raised.into_error()))
}

#[pymethods]
impl Communicator {
    /// The communicator of all ranks of the job that the launcher's environment describes.
    ///
    /// Waits until all ranks have joined. Raises NoLauncher, InvalidVariable, RankOutOfRange, Join,
    /// NoMulticast, NoNic, MultiSend; ValueError in a child of fork() whose parent has joined a
    /// job.
    #[staticmethod]
    fn from_env(py: Python<'_>) -> PyResult<Self> {
        process::check_may_join()?;
        let join = || {
            let while_waiting = Some(while_waiting());
            Ranks::from_config(Config { while_waiting, ..Config::from_env()? })
        };
        detached(py, join).map(Self::world)
    }

    /// Rank of this process in the communicator, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks in the communicator.
    #[getter]
    fn size(&self) -> u32 {
        self.size
    }

    /// Number of nodes that the ranks are on; without shared memory, each rank is one.
    #[getter]
    fn node_count(&self) -> PyResult<u32> {
        Ok(self.ranks()?.node_count())
    }

    /// Multicast group and interface of the job, or "off" and the reason, as text.
    #[getter]
    fn multicast(&self) -> PyResult<String> {
        Ok(match self.ranks()?.multicast() {
            MulticastState::On { group, interface } => format!("{group} via {interface}"),
            MulticastState::Off { reason } => format!("off: {reason}"),
        })
    }

    /// Splits the communicator: ranks of the same color form a new one, in order of their keys.
    ///
    /// A rank whose color is None gets None. A job can create at most 2^27 - 1 communicators in
    /// total, including those that were dropped. Raises PeerFailed, TooManyCommunicators.
    #[pyo3(signature = (color, key = 0))]
    fn split(&self, py: Python<'_>, color: Option<i64>, key: i64) -> PyResult<Option<Self>> {
        let ranks = self.ranks()?;
        let color = color.map(|color| number("color", color)).transpose()?;
        Ok(detached(py, || ranks.split(color, key))?.map(Self::part))
    }

    /// A new communicator of the same ranks, whose messages do not mix with this one's.
    fn dup(&self, py: Python<'_>) -> PyResult<Self> {
        let ranks = self.ranks()?;
        detached(py, || ranks.dup()).map(Self::part)
    }

    /// Counters since this rank started; `omnes stat --help` describes each of them.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.ranks()?.stats();
        let counters = PyDict::new(py);
        for ((name, _), value) in omnes::Stats::COUNTERS.iter().zip(stats.values()) {
            counters.set_item(name, value)?;
        }
        Ok(counters)
    }

    /// Leaves the job: waits for all ranks, then for outstanding acknowledgements.
    ///
    /// Every rank must call it as its last operation, on the communicator of from_env(); others
    /// raise ValueError. A second call does nothing.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        self.check_is_world("finalized")?;
        let Some(ranks) = self.take() else { return Ok(()) };
        detached_to_leave(py, || {
            let end = ranks.clone();
            ranks.finalize().inspect_err(|_| end.abandon())
        })
    }

    /// Leaves the job without waiting for its ranks; ranks that wait for this one get PeerLeft.
    ///
    /// For ranks that cannot continue; waits at most one second for outstanding acknowledgements.
    /// Must be called on the communicator of from_env(); on others it raises ValueError, and they
    /// raise AlreadyLeft once the job is left. A second call does nothing.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.check_is_world("abandoned")?;
        let Some(ranks) = self.take() else { return Ok(()) };
        detached_to_leave(py, || {
            ranks.abandon();
            Ok(())
        })
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Calls finalize(); after an exception, including sys.exit(), leaves without waiting.
    ///
    /// No rank then waits for this one. A communicator of join(), split() or dup() is only dropped:
    /// omnes.leave() leaves the jobs of join().
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.is_world && exception.iter().all(|part| part.is_none()) {
            return self.finalize(py);
        }
        let Some(ranks) = self.take() else { return Ok(()) };
        detached_to_leave(py, || {
            if self.is_world {
                ranks.abandon()
            } else {
                drop(ranks)
            }
            Ok(())
        })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a communicator belongs to its process and cannot be pickled"))
    }

    fn __repr__(&self) -> String {
        let is_over = self.ranks.read().unwrap_or_else(PoisonError::into_inner).is_none();
        let state = if is_over { ", finalized" } else { "" };
        format!("<omnes.Communicator rank {} of {}{state}>", self.rank, self.size)
    }
}

/// A rank, tag or color; `argument` is the caller's name of the argument.
pub(crate) fn number(argument: &str, value: i64) -> PyResult<u32> {
    u32::try_from(value).map_err(|_| {
        let reason = format!("{argument}={value} is not a number from 0 to {}", u32::MAX);
        PyValueError::new_err(reason)
    })
}
