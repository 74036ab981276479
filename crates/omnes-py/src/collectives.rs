//! Blocking collective operations of a communicator.

use crate::communicator::{Communicator, detached, number};
use crate::failure::exception;
use crate::limit::limit;
use crate::memory::{Memory, Place};
use omnes::{Communicator as Ranks, ReduceOp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pymethods]
impl Communicator {
    /// Copies the root's bytes into the buffer of every rank; all have the same length.
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

    /// Waits until all ranks have entered the barrier, for at most timeout_s seconds.
    ///
    /// If one rank sets a limit, all must; limits may differ, and be infinite. Raises
    /// BarrierTimeout, whose missing lists the ranks that have not entered, and PeerFailed;
    /// ValueError for a negative limit or NaN. After a timeout this rank has still entered the
    /// barrier, and its next one, with or without a limit, continues to wait for it; with
    /// OMNES_NIC=off only one with a limit does.
    #[pyo3(signature = (*, timeout_s = None))]
    fn barrier(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<()> {
        let ranks = self.ranks()?;
        let limit = timeout_s.map(|seconds| limit("timeout_s", seconds)).transpose()?;
        detached(py, || match limit {
            Some(limit) => ranks.barrier_timeout(limit),
            None => ranks.barrier(),
        })
    }

    /// Combines the numbers in all ranks' buffers; every buffer gets the result.
    ///
    /// The result has the same bits on all ranks. buffer holds integers of 1 to 8 bytes or floats
    /// of 4 or 8 bytes, the same number on all ranks. op is "sum", "product", "min" or "max"; for
    /// integers, also "and", "or" or "xor". Element types and op are compared between ranks only
    /// with OMNES_COMPARE=on: otherwise, if they differ, the result is meaningless and no rank is
    /// notified. Raises Reduction, Truncated, Mismatch (the lengths differ), PeerFailed, PeerLeft;
    /// TypeError for other buffers. If lengths differ, ranks that use different algorithms, as for
    /// up to four numbers and for more, may all wait until one leaves.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn allreduce(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<()> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: the memory is writable and lives until the end of the call; the caller ensures
        // that nobody else uses it.
        detached(py, || ranks.allreduce_as(unsafe { place.buffer() }, element, op))
    }

    /// Combines the numbers in all ranks' buffers; the root's buffer gets the result.
    ///
    /// The buffers of the other ranks are scratch space, and their contents are then undefined.
    /// Raises the errors of allreduce(), and RankOutOfRange.
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

    /// Combines the numbers in all ranks' buffers; each rank gets one block of the result.
    ///
    /// Returns the index of the block's first number and the index after its last; all other
    /// numbers are unchanged. Blocks are contiguous, in order of ranks. Raises the errors of
    /// allreduce().
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

    /// Combines the numbers in the buffers of this rank and of all ranks before it.
    ///
    /// Combines in order of ranks and from the left, ((0 op 1) op 2) op 3 at rank 3, so floats have
    /// the same bits as from a loop that does the same. Raises the errors of allreduce(). If some
    /// buffers have at most 4 KiB and others more, all ranks may wait until one leaves.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn scan(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<()> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `allreduce`.
        detached(py, || ranks.scan_as(unsafe { place.buffer() }, element, op))
    }

    /// As scan(), but combines only the buffers of the ranks before this one.
    ///
    /// The buffer of rank 0, which has no ranks before it, is unchanged.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn exscan(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<()> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `allreduce`.
        detached(py, || ranks.exscan_as(unsafe { place.buffer() }, element, op))
    }

    /// Gathers every rank's own into the root's all, in order of ranks.
    ///
    /// own has the same length on all ranks; only the root needs all. Raises BufferLength (the
    /// root's all does not have the length of all own together), RankOutOfRange, Truncated,
    /// Mismatch, PeerFailed, PeerLeft; ValueError if the two buffers overlap. If lengths differ,
    /// some of them short and others long, all ranks may wait until one leaves.
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
        // SAFETY: the memory lives until the end of the call; `all` is writable and does not
        // overlap with `own`; the caller ensures that nobody else uses it.
        detached(py, || unsafe { ranks.gather(root, own.data(), all.buffer()) })
    }

    /// As gather(), but each own may have a different length.
    ///
    /// lengths has those of all ranks in bytes, in order of ranks; only the root needs all and
    /// lengths. Raises the errors of gather(), but those about lengths only at the root; the other
    /// ranks, and this communicator, continue.
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

    /// Gathers every rank's own into the all of every rank, in order of ranks.
    ///
    /// Raises the errors of gather().
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

    /// As allgather(), but each own may have a different length.
    ///
    /// lengths has those of all ranks in bytes, in order of ranks, the same on all ranks. Raises
    /// the errors of allgather(); LengthMismatch also if own has another length than its lengths
    /// say, and the other ranks then wait until this one calls again or leaves. If lengths differ
    /// between ranks, but not in their sum, bytes are in wrong places.
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

    /// Distributes the parts of the root's all, in order of ranks, to every rank's own.
    ///
    /// Only the root needs all. Raises the errors of gather().
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

    /// As scatter(), but each own may have a different length.
    ///
    /// lengths has those of all ranks in bytes, in order of ranks; only the root needs all and
    /// lengths. Raises the errors of scatter(), but those about lengths only on ranks whose lengths
    /// do not match; the other ranks, and this communicator, continue.
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

    /// Sends part r of every rank's data to rank r, into its buffer, in order of ranks.
    ///
    /// All parts have the same length. Raises the errors of gather().
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

    /// As alltoall(), but parts may have different lengths.
    ///
    /// data_lengths has the lengths of the parts of data in bytes, in order of destination ranks;
    /// buffer_lengths those of the parts to receive, in order of source ranks. Raises the errors of
    /// alltoall().
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

/// The reduction operation of that name.
pub(crate) fn operation(py: Python<'_>, name: &str) -> PyResult<ReduceOp> {
    name.parse().map_err(|error| exception(py, &error))
}

/// The memory of a broadcast: only the root's may be read-only.
pub(crate) fn memory(ranks: &Ranks, buffer: &Bound<'_, PyAny>, root: u32) -> PyResult<Memory> {
    if ranks.rank() == root { Memory::of(buffer) } else { Memory::to_write(buffer) }
}

/// Lengths of parts in bytes; `argument` is the caller's name of the argument.
pub(crate) fn lengths(argument: &str, values: Vec<i64>) -> PyResult<Vec<usize>> {
    let length = |value| {
        let reason =
            || PyValueError::new_err(format!("{argument} has {value}, which is not a length"));
        usize::try_from(value).map_err(|_| reason())
    };
    values.into_iter().map(length).collect()
}
