//! A group of ranks, for Python.

use crate::failure::exception;
use crate::memory::{Memory, Place};
use crate::process::{self, OfProcess};
use crate::request::Request;
use crate::signals::{take_raised, while_waiting};
use omnes::{Communicator as Ranks, Config, Error, MulticastState, ReduceOp, Source, Status, Tag};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// A group of ranks that communicate with each other, apart from all other groups.
///
/// All ranks call its collective operations, which are all but messages (send(), recv(), probe()
/// and their like), in the same order, each rank from one thread at a time. They raise PeerLeft if
/// a rank has left the job, beside what each of them names. Buffers are whatever has one, with
/// elements one behind the other; TypeError or ValueError says why one cannot be used. Ranks, tags
/// and colors are numbers from 0 to 2**32 - 1, ValueError for others. After finalize(), and in a
/// child of fork(), which must not take its parent's place, all but rank and size raise ValueError.
///
/// Any call may also raise Excluded, when the others have given up on this rank, and Left, once it
/// has left the job. What waits for data of another rank may raise GivenUp, when that has given up
/// its part; what sends TooLarge; what enters a barrier Barrier, when omnesd has taken back what
/// ran it. A collective operation but for bcast(), and barrier() without OMNES_NIC=off, that is
/// begun and raises any of these, or ends by a signal handler or a time_limit(), is given up: it
/// and all others on this communicator raise CollectiveGivenUp from then on, on all ranks;
/// communicators that were made by dup() or split() go on, and may make others.
///
/// Calls that do not fit each other, such as a receive of what nobody sends, may wait for ever, but
/// for a time_limit(). With OMNES_COMPARE=on on all ranks, each collective call but those that do
/// not block or have a limit is compared between them before, its root, length, type and op: where
/// they differ, all raise Disagreement, which names both calls.
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
        process::note_joined();
        let (rank, size) = (ranks.rank(), ranks.size());
        Self { ranks: RwLock::new(Some(OfProcess::new(ranks))), rank, size, is_world: true }
    }

    pub(crate) fn part(ranks: Ranks) -> Self {
        Self { is_world: false, ..Self::world(ranks) }
    }

    fn ranks(&self) -> PyResult<Ranks> {
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
        let reason =
            format!("only the communicator of from_env() is {done}: the job is left with it");
        Err(PyValueError::new_err(reason))
    }

    /// Memory of a broadcast: only the root's may be read-only.
    fn memory(ranks: &Ranks, buffer: &Bound<'_, PyAny>, root: u32) -> PyResult<Memory> {
        match ranks.rank() == root {
            true => Memory::of(buffer),
            false => Memory::to_write(buffer),
        }
    }
}

/// Does what waits without the interpreter's lock. What a signal handler has raised meanwhile, or a
/// limit, is raised also where the operation has ended well, as leaving does without the last
/// answers.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    operation: impl Send + FnOnce() -> Result<T, Error>,
) -> PyResult<T> {
    // Left by what was let go of before, which cannot raise.
    drop(take_raised());
    let ended = py.detach(operation).map_err(|error| exception(py, &error))?;
    take_raised().map_or(Ok(ended), Err)
}

/// An operation of reductions by its name.
fn operation(py: Python<'_>, name: &str) -> PyResult<ReduceOp> {
    name.parse().map_err(|error| exception(py, &error))
}

#[pymethods]
impl Communicator {
    /// All ranks of the job that this process belongs to, as the launcher's environment says.
    ///
    /// Waits until all have come. Raises NoLauncher, Variable, RankOutOfRange, Join, NoMulticast,
    /// NoNic, MultiSend; ValueError in a child of fork() whose parent has joined.
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

    /// Copies the root's bytes into buffer of every rank, which is as long everywhere.
    ///
    /// The root's buffer may be read-only. Raises RankOutOfRange, Truncated, Disagreement (the
    /// lengths differ), PeerFailed.
    #[pyo3(signature = (buffer, root = 0))]
    fn bcast(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, root: i64) -> PyResult<()> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let memory = Self::memory(&ranks, buffer, root)?;
        let place = memory.place();
        detached(py, || {
            // SAFETY: the memory lives until the end of the call; only the root's may be read-only,
            // and the root's is only read.
            unsafe { ranks.bcast_raw(root, place.base(), place.bytes()) }
        })
    }

    /// Starts what bcast() does; buffer is in use until the request has ended.
    #[pyo3(signature = (buffer, root = 0))]
    fn ibcast(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, root: i64) -> PyResult<Request> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let memory = Self::memory(&ranks, buffer, root)?;
        let place = memory.place();
        // SAFETY: the request holds the memory until it has ended; as in `bcast` otherwise.
        let begin = || unsafe { ranks.ibcast_raw(root, place.base(), place.bytes()) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Waits until all ranks have called it, with a limit for so many seconds at most.
    ///
    /// If one rank gives a limit, all do, though limits may differ. Raises BarrierTimeout, whose
    /// missing names the ranks that have not come, and PeerFailed. After a timeout the barrier
    /// remains entered: the next one, with a limit or without, goes on waiting for it; with
    /// OMNES_NIC=off only one with a limit does.
    #[pyo3(signature = (*, timeout_s = None))]
    fn barrier(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<()> {
        let ranks = self.ranks()?;
        let limit = timeout_s.map(Duration::try_from_secs_f64).transpose().map_err(|error| {
            let given = timeout_s.unwrap_or_default();
            PyValueError::new_err(format!("timeout_s={given}: {error}"))
        })?;
        detached(py, || match limit {
            Some(limit) => ranks.barrier_within(limit),
            None => ranks.barrier(),
        })
    }

    /// Enters a barrier without waiting for it, as all ranks then do.
    fn ibarrier(&self, py: Python<'_>) -> PyResult<Request> {
        let ranks = self.ranks()?;
        Ok(Request::new(detached(py, || ranks.ibarrier_owned())?, Vec::new()))
    }

    /// Combines the numbers of all ranks' buffers, which have the same bits everywhere then.
    ///
    /// buffer has integers of 1 to 8 bytes or floats of 4 or 8, as many on all ranks. op is sum,
    /// product, min, max, or of integers and, or, xor. Elements' type and op are compared between
    /// ranks with OMNES_COMPARE=on alone: else, where they differ, the result means nothing, and
    /// nobody is told. Raises Reduction, Truncated, Disagreement (the lengths differ), PeerFailed,
    /// PeerLeft; TypeError for other buffers. Where some bring one number and others several, all
    /// may wait until somebody leaves.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn allreduce(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<()> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: the memory is writable and lives until the end of the call; that nobody else uses
        // it is the caller's.
        detached(py, || ranks.allreduce_as(unsafe { place.buffer() }, element, op))
    }

    /// Combines the numbers of all ranks' buffers at the root.
    ///
    /// Those of the others serve as room, and mean nothing afterwards. Raises what allreduce()
    /// raises, and RankOutOfRange.
    #[pyo3(signature = (buffer, root = 0, op = "sum"))]
    fn reduce(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        root: i64,
        op: &str,
    ) -> PyResult<()> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let root = number("root", root)?;
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `allreduce`.
        detached(py, || ranks.reduce_as(root, unsafe { place.buffer() }, element, op))
    }

    /// Combines the numbers of all ranks' buffers, of which each rank gets a block.
    ///
    /// Returns the block's first index and the one after its last; all other numbers stay as they
    /// were. Blocks follow each other in order of ranks. Raises what allreduce() raises.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        op: &str,
    ) -> PyResult<(usize, usize)> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `allreduce`.
        let reduce = || ranks.reduce_scatter_as(unsafe { place.buffer() }, element, op);
        let range = detached(py, reduce)?;
        Ok((range.start / element.bytes(), range.end / element.bytes()))
    }

    /// Brings the bytes of every rank's own to the root, into all, in order of ranks.
    ///
    /// own is as long on all ranks; all is needed by the root alone. Raises Length (all of the root
    /// is not as long as all own together), RankOutOfRange, Truncated, Disagreement, PeerFailed,
    /// PeerLeft; ValueError if the two overlap.
    #[pyo3(signature = (own, all = None, root = 0))]
    fn gather(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: Option<&Bound<'_, PyAny>>,
        root: i64,
    ) -> PyResult<()> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let own = Memory::of(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::to_write).transpose()?;
        let (own, all) = (own.place(), all.as_ref().map_or(Place::NOWHERE, Memory::place));
        own.check_apart_from(all)?;
        // SAFETY: the memory lives until the end of the call, `all` is writable and apart from
        // `own`; that nobody else uses it is the caller's.
        detached(py, || unsafe { ranks.gather(root, own.data(), all.buffer()) })
    }

    /// Does what gather() does, where each own may have any length.
    ///
    /// lengths has those of all ranks in bytes, in order of ranks; all and lengths are needed by
    /// the root alone. Raises what gather() raises, but of lengths at the root alone, and others,
    /// and this communicator, go on.
    #[pyo3(signature = (own, all = None, lengths = None, root = 0))]
    fn gatherv(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: Option<&Bound<'_, PyAny>>,
        lengths: Option<Vec<i64>>,
        root: i64,
    ) -> PyResult<()> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let lengths = self::lengths("lengths", lengths.unwrap_or_default())?;
        let own = Memory::of(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::to_write).transpose()?;
        let (own, all) = (own.place(), all.as_ref().map_or(Place::NOWHERE, Memory::place));
        own.check_apart_from(all)?;
        // SAFETY: as in `gather`.
        detached(py, || unsafe { ranks.gatherv(root, own.data(), all.buffer(), &lengths) })
    }

    /// Brings the bytes of every rank's own to all ranks, into all, in order of ranks.
    ///
    /// Raises what gather() raises.
    fn allgather(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let ranks = self.ranks()?;
        let (own, all) = (Memory::of(own)?, Memory::to_write(all)?);
        let (own, all) = (own.place(), all.place());
        own.check_apart_from(all)?;
        // SAFETY: as in `gather`.
        detached(py, || unsafe { ranks.allgather(own.data(), all.buffer()) })
    }

    /// Does what allgather() does, where each own may have any length.
    ///
    /// lengths has those of all ranks in bytes, in order of ranks, the same on all. Raises what
    /// allgather() raises. Where lengths differ, but not their sum, bytes are in wrong places.
    fn allgatherv(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: &Bound<'_, PyAny>,
        lengths: Vec<i64>,
    ) -> PyResult<()> {
        let (ranks, lengths) = (self.ranks()?, self::lengths("lengths", lengths)?);
        let (own, all) = (Memory::of(own)?, Memory::to_write(all)?);
        let (own, all) = (own.place(), all.place());
        own.check_apart_from(all)?;
        // SAFETY: as in `gather`.
        detached(py, || unsafe { ranks.allgatherv(own.data(), all.buffer(), &lengths) })
    }

    /// Brings to every rank's own its part of the root's all, which has them in order of ranks.
    ///
    /// all is needed by the root alone. Raises what gather() raises.
    #[pyo3(signature = (all, own, root = 0))]
    fn scatter(
        &self,
        py: Python<'_>,
        all: Option<&Bound<'_, PyAny>>,
        own: &Bound<'_, PyAny>,
        root: i64,
    ) -> PyResult<()> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let own = Memory::to_write(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::of).transpose()?;
        let (own, all) = (own.place(), all.as_ref().map_or(Place::NOWHERE, Memory::place));
        own.check_apart_from(all)?;
        // SAFETY: as in `gather`, with `own` written and `all` read.
        detached(py, || unsafe { ranks.scatter(root, all.data(), own.buffer()) })
    }

    /// Does what scatter() does, where each own may have any length.
    ///
    /// lengths has those of all ranks in bytes, in order of ranks; all and lengths are needed by
    /// the root alone. Raises what scatter() raises, but of lengths only where they do not fit, and
    /// others, and this communicator, go on.
    #[pyo3(signature = (all, lengths, own, root = 0))]
    fn scatterv(
        &self,
        py: Python<'_>,
        all: Option<&Bound<'_, PyAny>>,
        lengths: Option<Vec<i64>>,
        own: &Bound<'_, PyAny>,
        root: i64,
    ) -> PyResult<()> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let lengths = self::lengths("lengths", lengths.unwrap_or_default())?;
        let own = Memory::to_write(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::of).transpose()?;
        let (own, all) = (own.place(), all.as_ref().map_or(Place::NOWHERE, Memory::place));
        own.check_apart_from(all)?;
        // SAFETY: as in `scatter`.
        detached(py, || unsafe { ranks.scatterv(root, all.data(), &lengths, own.buffer()) })
    }

    /// Brings part r of every rank's data to rank r, into buffer, in order of ranks.
    ///
    /// All parts are equally long. Raises what gather() raises.
    fn alltoall(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let ranks = self.ranks()?;
        let (data, buffer) = (Memory::of(data)?, Memory::to_write(buffer)?);
        let (data, buffer) = (data.place(), buffer.place());
        data.check_apart_from(buffer)?;
        // SAFETY: as in `gather`.
        detached(py, || unsafe { ranks.alltoall(data.data(), buffer.buffer()) })
    }

    /// Does what alltoall() does, where parts may have any lengths.
    ///
    /// data_lengths has those of data in bytes, in order of the ranks that they are for;
    /// buffer_lengths those of what comes, in order of the ranks that send it. Raises what
    /// alltoall() raises.
    fn alltoallv(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        data_lengths: Vec<i64>,
        buffer: &Bound<'_, PyAny>,
        buffer_lengths: Vec<i64>,
    ) -> PyResult<()> {
        let ranks = self.ranks()?;
        let outgoing = lengths("data_lengths", data_lengths)?;
        let incoming = lengths("buffer_lengths", buffer_lengths)?;
        let (data, buffer) = (Memory::of(data)?, Memory::to_write(buffer)?);
        let (data, buffer) = (data.place(), buffer.place());
        data.check_apart_from(buffer)?;
        // SAFETY: as in `gather`.
        detached(py, || unsafe {
            ranks.alltoallv(data.data(), &outgoing, buffer.buffer(), &incoming)
        })
    }

    /// Sends bytes to rank to; returns when data may be changed.
    ///
    /// A message of up to a packet is on its way then, a longer one has arrived; one of more than
    /// OMNES_EAGER_BYTES waits until its receiver has asked for it: two ranks that both send such a
    /// message first wait for ever, which sendrecv() and isend() do not. As with MPI's standard
    /// sends, no more than a limit is kept of messages that nobody receives: of those of one packet
    /// 4 MiB here for each receiver, each counted with 128 bytes beside its data, beyond which they
    /// too wait until they have arrived. Raises RankOutOfRange, PeerFailed, PeerLeft.
    #[pyo3(signature = (data, to, *, tag = 0))]
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, to: i64, tag: i64) -> PyResult<()> {
        let ranks = self.ranks()?;
        let (to, tag) = (number("to", to)?, number("tag", tag)?);
        let memory = Memory::of(data)?;
        let place = memory.place();
        // SAFETY: the memory lives until the end of the call; that nobody writes is the caller's.
        detached(py, || ranks.send(to, tag, unsafe { place.data() }))
    }

    /// Waits for the oldest message that no receive has taken, and puts it into buffer.
    ///
    /// source and tag are those wanted, None for any; buffer may be longer than the message.
    /// Messages of one sender with one tag come in the order sent. Returns source, tag and length
    /// in bytes. Raises RankOutOfRange, Truncated, PeerFailed, PeerLeft.
    #[pyo3(signature = (buffer, source = None, *, tag = None))]
    fn recv(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        source: Option<i64>,
        tag: Option<i64>,
    ) -> PyResult<(u32, u32, usize)> {
        let ranks = self.ranks()?;
        let memory = Memory::to_write(buffer)?;
        let place = memory.place();
        let (from, wanted) = wanted(source, tag)?;
        // SAFETY: the memory is writable and lives until the end of the call; that nobody else uses
        // it is the caller's.
        let status = detached(py, || ranks.recv(from, wanted, unsafe { place.buffer() }))?;
        Ok((status.source, status.tag, status.bytes))
    }

    /// Waits for the oldest message that no receive has taken, as recv() does, but leaves it.
    ///
    /// Returns its source, tag and length in bytes: a recv() from that source with that tag gets
    /// it, unless another thread's was sooner. Raises RankOutOfRange, PeerFailed, PeerLeft.
    #[pyo3(signature = (source = None, *, tag = None))]
    fn probe(
        &self,
        py: Python<'_>,
        source: Option<i64>,
        tag: Option<i64>,
    ) -> PyResult<(u32, u32, usize)> {
        let ranks = self.ranks()?;
        let (from, wanted) = wanted(source, tag)?;
        let Status { source, tag, bytes } = detached(py, || ranks.probe(from, wanted))?;
        Ok((source, tag, bytes))
    }

    /// As probe(), but None if no such message is there yet.
    #[pyo3(signature = (source = None, *, tag = None))]
    fn iprobe(
        &self,
        py: Python<'_>,
        source: Option<i64>,
        tag: Option<i64>,
    ) -> PyResult<Option<(u32, u32, usize)>> {
        let ranks = self.ranks()?;
        let (from, wanted) = wanted(source, tag)?;
        let found = detached(py, || ranks.iprobe(from, wanted))?;
        Ok(found.map(|Status { source, tag, bytes }| (source, tag, bytes)))
    }

    /// Sends data as send() and receives into buffer as recv() at once, at any length.
    ///
    /// tag is that of data; source and wanted are those of the message that comes, None for any.
    /// Returns source, tag and length in bytes of that. Raises what send() and recv() do; after an
    /// error other than Truncated what has not been sent yet is given up.
    #[pyo3(signature = (data, to, buffer, source = None, *, tag = 0, wanted = None))]
    #[expect(clippy::too_many_arguments, reason = "those of two calls")]
    fn sendrecv(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        to: i64,
        buffer: &Bound<'_, PyAny>,
        source: Option<i64>,
        tag: i64,
        wanted: Option<i64>,
    ) -> PyResult<(u32, u32, usize)> {
        let ranks = self.ranks()?;
        let (to, tag) = (number("to", to)?, number("tag", tag)?);
        let (from, wanted) = self::wanted(source, wanted)?;
        let (memory, room) = (Memory::of(data)?, Memory::to_write(buffer)?);
        let (place, room_place) = (memory.place(), room.place());
        // SAFETY: both live until the end of the call, and `room` is writable; that nobody writes
        // the one or uses the other is the caller's.
        let status = detached(py, || unsafe {
            ranks.sendrecv(to, tag, place.data(), from, wanted, room_place.buffer())
        })?;
        Ok((status.source, status.tag, status.bytes))
    }

    /// Starts what send() does; data is in use until the request has ended.
    ///
    /// Never waits: a message for which send() would is a request that ends later.
    #[pyo3(signature = (data, to, *, tag = 0))]
    fn isend(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        to: i64,
        tag: i64,
    ) -> PyResult<Request> {
        let ranks = self.ranks()?;
        let (to, tag) = (number("to", to)?, number("tag", tag)?);
        let memory = Memory::of(data)?;
        let place = memory.place();
        // SAFETY: the request holds the memory until it has ended; that nobody writes is the
        // caller's.
        let begin = || unsafe { ranks.isend_raw(to, tag, place.base(), place.bytes()) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Starts what recv() does; buffer is in use until the request has ended.
    #[pyo3(signature = (buffer, source = None, *, tag = None))]
    fn irecv(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        source: Option<i64>,
        tag: Option<i64>,
    ) -> PyResult<Request> {
        let ranks = self.ranks()?;
        let memory = Memory::to_write(buffer)?;
        let place = memory.place();
        let (from, wanted) = wanted(source, tag)?;
        // SAFETY: the request holds the memory, which is writable, until it has ended; that nobody
        // else uses it is the caller's.
        let begin = || unsafe { ranks.irecv_raw(from, wanted, place.base(), place.bytes()) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Starts what allreduce() does; buffer is in use until the request has ended.
    ///
    /// All ranks start it by this call, in the same order as their other collective operations; any
    /// number may be under way, also of the ones below.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn iallreduce(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<Request> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: the request holds the memory, which is writable, until it has ended; that nobody
        // else uses it is the caller's.
        let begin = || unsafe { ranks.iallreduce_raw(place.base(), place.bytes(), element, op) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Starts what reduce() does; buffer is in use until the request has ended.
    #[pyo3(signature = (buffer, root = 0, op = "sum"))]
    fn ireduce(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        root: i64,
        op: &str,
    ) -> PyResult<Request> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let root = number("root", root)?;
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `iallreduce`.
        let begin = || unsafe { ranks.ireduce_raw(root, place.base(), place.bytes(), element, op) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Starts what gather() does; both buffers are in use until the request has ended.
    #[pyo3(signature = (own, all = None, root = 0))]
    fn igather(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: Option<&Bound<'_, PyAny>>,
        root: i64,
    ) -> PyResult<Request> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let own = Memory::of(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::to_write).transpose()?;
        let (from, to) = (own.place(), all.as_ref().map_or(Place::NOWHERE, Memory::place));
        from.check_apart_from(to)?;
        // SAFETY: the request holds the memory, of which `all` is writable, until it has ended;
        // that nobody else uses it is the caller's.
        let begin = || unsafe { ranks.igather_raw(root, from.memory(), to.memory()) };
        let request = detached(py, begin)?;
        Ok(Request::new(request, std::iter::once(own).chain(all).collect()))
    }

    /// Starts what allgather() does; both buffers are in use until the request has ended.
    fn iallgather(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        let ranks = self.ranks()?;
        let (own, all) = (Memory::of(own)?, Memory::to_write(all)?);
        let (from, to) = (own.place(), all.place());
        from.check_apart_from(to)?;
        // SAFETY: as in `igather`.
        let begin = || unsafe { ranks.iallgather_raw(from.memory(), to.memory()) };
        Ok(Request::new(detached(py, begin)?, vec![own, all]))
    }

    /// Starts what scatter() does; both buffers are in use until the request has ended.
    #[pyo3(signature = (all, own, root = 0))]
    fn iscatter(
        &self,
        py: Python<'_>,
        all: Option<&Bound<'_, PyAny>>,
        own: &Bound<'_, PyAny>,
        root: i64,
    ) -> PyResult<Request> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let own = Memory::to_write(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::of).transpose()?;
        let (from, to) = (all.as_ref().map_or(Place::NOWHERE, Memory::place), own.place());
        from.check_apart_from(to)?;
        // SAFETY: as in `igather`, with `own` written and `all` read.
        let begin = || unsafe { ranks.iscatter_raw(root, from.memory(), to.memory()) };
        let request = detached(py, begin)?;
        Ok(Request::new(request, std::iter::once(own).chain(all).collect()))
    }

    /// Starts what alltoall() does; both buffers are in use until the request has ended.
    fn ialltoall(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        let ranks = self.ranks()?;
        let (data, buffer) = (Memory::of(data)?, Memory::to_write(buffer)?);
        let (from, to) = (data.place(), buffer.place());
        from.check_apart_from(to)?;
        // SAFETY: as in `igather`.
        let begin = || unsafe { ranks.ialltoall_raw(from.memory(), to.memory()) };
        Ok(Request::new(detached(py, begin)?, vec![data, buffer]))
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
        detached(py, || {
            let end = ranks.clone();
            ranks.finalize().inspect_err(|_| end.abandon())
        })
    }

    /// Leaves the job without waiting for its ranks: who waits for this one gets PeerLeft.
    ///
    /// For ranks that cannot go on; waits for the last answers for a second at most. Of the
    /// communicator of from_env(), ValueError on others, which get Left from then on. A second call
    /// does nothing.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.check_is_world("abandoned")?;
        let Some(ranks) = self.take() else { return Ok(()) };
        detached(py, || {
            ranks.abandon();
            Ok(())
        })
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Finalizes; after an exception leaves without waiting, and nobody waits for this rank.
    ///
    /// A communicator of split() or dup() is just let go of.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.is_world && exception.iter().all(|part| part.is_none()) {
            return self.finalize(py);
        }
        let Some(ranks) = self.take() else { return Ok(()) };
        detached(py, || {
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

/// Which messages a receive is for; all, where nothing is named.
fn wanted(source: Option<i64>, tag: Option<i64>) -> PyResult<(Source, Tag)> {
    let source = source.map(|source| number("source", source)).transpose()?;
    let tag = tag.map(|tag| number("tag", tag)).transpose()?;
    Ok((source.map_or(Source::Any, Source::Rank), tag.map_or(Tag::Any, Tag::Is)))
}

/// Lengths of parts in bytes; `argument` is what the caller knows them as.
fn lengths(argument: &str, values: Vec<i64>) -> PyResult<Vec<usize>> {
    let length = |value| {
        let reason =
            || PyValueError::new_err(format!("{argument} has {value}, which is no length"));
        usize::try_from(value).map_err(|_| reason())
    };
    values.into_iter().map(length).collect()
}

/// A rank, tag or color; `argument` is what the caller knows it as.
pub(crate) fn number(argument: &str, value: i64) -> PyResult<u32> {
    u32::try_from(value).map_err(|_| {
        let reason = format!("{argument}={value} is no number from 0 to {}", u32::MAX);
        PyValueError::new_err(reason)
    })
}
