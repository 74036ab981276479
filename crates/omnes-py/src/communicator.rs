//! A group of ranks, for Python.

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

/// A group of ranks that communicate with each other, apart from all other groups.
///
/// All ranks call its collective operations, which are all but messages (send(), recv(), probe()
/// and their like), in the same order, each rank from one thread at a time. They raise PeerLeft if
/// a rank has left the job, beside what each of them names. Buffers are whatever has one, with
/// elements one behind the other; TypeError or ValueError says why one cannot be used. Ranks, tags
/// and colors are numbers from 0 to 2**32 - 1, ValueError for others. After finalize(), and in a
/// child of fork(), which must not take its parent's place, rank and size remain, finalize() and
/// abandon() do nothing, and all else raises ValueError.
///
/// Any call may also raise DeclaredFailed, when the others have given up on this rank, and
/// AlreadyLeft, once it has left the job. What waits for data of another rank may raise PeerGaveUp,
/// when that has given up its part; what sends TooLarge; what enters a barrier Barrier, when omnesd
/// has taken back what ran it. A collective operation but for bcast(), and barrier() without
/// OMNES_NIC=off, that is begun and raises any of these, or ends by a signal handler or a
/// time_limit(), is given up: it and all others on this communicator raise CollectivesBroken from
/// then on, on all ranks; communicators that were made by dup() or split() go on, and may make
/// others. So is one of the few barriers, from the seventeenth on, in which the nodes of a
/// communicator agree on the kernel's network interface; a barrier with timeout_s is none of those.
///
/// What a signal handler raises while a call waits is raised by the call, and its operation is
/// given up. An operation that ends while the handler runs is not given up but done: a received
/// message is in its buffer, though recv() does not return its length, which a Request has in its
/// status. A time_limit() raises nothing for an operation that is done.
///
/// Calls that do not fit each other, such as a receive of what nobody sends, may wait for ever, but
/// for a time_limit(). With OMNES_COMPARE=on on all ranks, each collective call but those that do
/// not block or have a limit is compared between them before, its root, length, type and op: where
/// they differ, all raise Mismatch, which names both calls.
#[pyclass(frozen, module = "omnes")]
pub(crate) struct Communicator {
    /// Nothing after `finalize()`.
    ranks: RwLock<Option<OfProcess<Ranks>>>,
    rank: u32,
    size: u32,
    /// True if these are all ranks of the job, which leave it together.
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
            // The last one leaves the job, and waits for the last answers.
            let_go(ranks);
        }
    }
}

/// Does what waits without the interpreter's lock. What a signal handler has raised meanwhile is
/// raised also where the operation has ended well.
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

/// The same for leaving, which ends well also where it has not waited for the last answers: a limit
/// is raised then, too.
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
    /// All ranks of the job that this process belongs to, as the launcher's environment says.
    ///
    /// Waits until all have come. Raises NoLauncher, InvalidVariable, RankOutOfRange, Join,
    /// NoMulticast, NoNic, MultiSend; ValueError in a child of fork() whose parent has joined.
    #[staticmethod]
    fn from_env(py: Python<'_>) -> PyResult<Self> {
        process::check_may_join()?;
        let join = || {
            let while_waiting = Some(while_waiting());
            Ranks::from_config(Config { while_waiting, ..Config::from_env()? })
        };
        detached(py, join).map(Self::world)
    }

    /// This process's rank here, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks here.
    #[getter]
    fn size(&self) -> u32 {
        self.size
    }

    /// Number of nodes that the ranks are on; without shared memory each rank is one.
    #[getter]
    fn node_count(&self) -> PyResult<u32> {
        Ok(self.ranks()?.node_count())
    }

    /// Group and interface that the job multicasts by, or "off" and why, in words.
    #[getter]
    fn multicast(&self) -> PyResult<String> {
        Ok(match self.ranks()?.multicast() {
            MulticastState::On { group, interface } => format!("{group} via {interface}"),
            MulticastState::Off { reason } => format!("off: {reason}"),
        })
    }

    /// Parts the communicator: ranks of one color get a new one, in the order of their keys.
    ///
    /// A rank without color gets None. A job makes at most 2^27 - 1 communicators in its life,
    /// those that were let go of counted. Raises PeerFailed, TooManyCommunicators.
    #[pyo3(signature = (color, key = 0))]
    fn split(&self, py: Python<'_>, color: Option<i64>, key: i64) -> PyResult<Option<Self>> {
        let ranks = self.ranks()?;
        let color = color.map(|color| number("color", color)).transpose()?;
        Ok(detached(py, || ranks.split(color, key))?.map(Self::part))
    }

    /// A communicator of the same ranks whose messages do not mix with this one's.
    fn dup(&self, py: Python<'_>) -> PyResult<Self> {
        let ranks = self.ranks()?;
        detached(py, || ranks.dup()).map(Self::part)
    }

    /// Counts since this rank has started; `omnes stat --help` says what each means.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.ranks()?.stats();
        let counters = PyDict::new(py);
        for ((name, _), value) in omnes::Stats::COUNTERS.iter().zip(stats.values()) {
            counters.set_item(name, value)?;
        }
        Ok(counters)
    }

    /// Leaves the job: waits for all ranks, then for the last answers.
    ///
    /// The last act of every rank, on the communicator of from_env(); ValueError on others. A
    /// second call does nothing.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        self.check_is_world("finalized")?;
        let Some(ranks) = self.take() else { return Ok(()) };
        detached_to_leave(py, || {
            let end = ranks.clone();
            ranks.finalize().inspect_err(|_| end.abandon())
        })
    }

    /// Leaves the job without waiting for its ranks: who waits for this one gets PeerLeft.
    ///
    /// For ranks that cannot go on; waits for the last answers for a second at most. Of the
    /// communicator of from_env(), ValueError on others, which get AlreadyLeft from then on. A
    /// second call does nothing.
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

    /// Finalizes; after an exception, that of sys.exit() too, leaves without waiting, and nobody
    /// waits for this rank.
    ///
    /// A communicator of join(), split() or dup() is just let go of: omnes.leave() leaves the jobs
    /// of join().
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

/// A rank, tag or color; `argument` is what the caller knows it as.
pub(crate) fn number(argument: &str, value: i64) -> PyResult<u32> {
    u32::try_from(value).map_err(|_| {
        let reason = format!("{argument}={value} is not a number from 0 to {}", u32::MAX);
        PyValueError::new_err(reason)
    })
}
