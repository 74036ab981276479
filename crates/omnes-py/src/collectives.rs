//! Collective operations of a communicator that wait.

use crate::communicator::{Communicator, detached, number};
use crate::failure::exception;
use crate::limit::limit;
use crate::memory::{Memory, Place};
use omnes::{Communicator as Ranks, ReduceOp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pymethods]
impl Communicator {
    /// Copies the root's bytes into buffer of every rank, which is as long everywhere.
    ///
    /// The root's buffer may be read-only. Raises RankOutOfRange, Truncated, Mismatch (the
    /// lengths differ), PeerFailed.
    #[pyo3(signature = (buffer, root = 0))]
    fn bcast(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, root: i64) -> PyResult<()> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let memory = memory(&ranks, buffer, root)?;
        let place = memory.place();
        detached(py, || {
            // SAFETY: the memory lives until the end of the call; only the root's may be read-only,
            // and the root's is only read.
            unsafe { ranks.bcast_raw(root, place.base(), place.bytes()) }
        })
    }

    /// Waits until all ranks have called it, with a limit for so many seconds at most.
    ///
    /// If one rank gives a limit, all do, though limits may differ, and be infinite. Raises
    /// BarrierTimeout, whose missing names the ranks that have not come, and PeerFailed; ValueError
    /// for a limit below 0 and NaN. After a timeout the barrier remains entered: the next one, with
    /// a limit or without, goes on waiting for it; with OMNES_NIC=off only one with a limit does.
    #[pyo3(signature = (*, timeout_s = None))]
    fn barrier(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<()> {
        let ranks = self.ranks()?;
        let limit = timeout_s.map(|seconds| limit("timeout_s", seconds)).transpose()?;
        detached(py, || match limit {
            Some(limit) => ranks.barrier_timeout(limit),
            None => ranks.barrier(),
        })
    }

    /// Combines the numbers of all ranks' buffers, which have the same bits everywhere then.
    ///
    /// buffer has integers of 1 to 8 bytes or floats of 4 or 8, as many on all ranks. op is sum,
    /// product, min, max, or of integers and, or, xor. Elements' type and op are compared between
    /// ranks with OMNES_COMPARE=on alone: else, where they differ, the result means nothing, and
    /// nobody is told. Raises Reduction, Truncated, Mismatch (the lengths differ), PeerFailed,
    /// PeerLeft; TypeError for other buffers. Where lengths differ, ranks that take different ways,
    /// as with up to four numbers and more, may all wait until somebody leaves.
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

    /// Combines the numbers of the buffers of this rank and of all ranks before it.
    ///
    /// In order of ranks and from the left, ((0 op 1) op 2) op 3 at rank 3, so that floats have the
    /// same bits as from a loop that does the same. Raises what allreduce() raises. Where the
    /// buffers of some have up to 4 KiB and those of others more, all may wait until somebody
    /// leaves.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn scan(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<()> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `allreduce`.
        detached(py, || ranks.scan_as(unsafe { place.buffer() }, element, op))
    }

    /// Does what scan() does with the buffers of the ranks before this one alone.
    ///
    /// That of rank 0, which has none before it, stays as it is.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn exscan(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<()> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `allreduce`.
        detached(py, || ranks.exscan_as(unsafe { place.buffer() }, element, op))
    }

    /// Brings the bytes of every rank's own to the root, into all, in order of ranks.
    ///
    /// own is as long on all ranks; all is needed by the root alone. Raises BufferLength (all of
    /// the root is not as long as all own together), RankOutOfRange, Truncated, Mismatch,
    /// PeerFailed, PeerLeft; ValueError if the two overlap. Where lengths differ, some are short
    /// and others are not, all may wait until somebody leaves.
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
}

/// An operation of reductions by its name.
pub(crate) fn operation(py: Python<'_>, name: &str) -> PyResult<ReduceOp> {
    name.parse().map_err(|error| exception(py, &error))
}

/// Memory of a broadcast: only the root's may be read-only.
pub(crate) fn memory(ranks: &Ranks, buffer: &Bound<'_, PyAny>, root: u32) -> PyResult<Memory> {
    if ranks.rank() == root { Memory::of(buffer) } else { Memory::to_write(buffer) }
}

/// Lengths of parts in bytes; `argument` is what the caller knows them as.
pub(crate) fn lengths(argument: &str, values: Vec<i64>) -> PyResult<Vec<usize>> {
    let length = |value| {
        let reason =
            || PyValueError::new_err(format!("{argument} has {value}, which is not a length"));
        usize::try_from(value).map_err(|_| reason())
    };
    values.into_iter().map(length).collect()
}
