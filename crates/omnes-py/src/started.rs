//! Nonblocking collective operations of a communicator.

use crate::collectives::{lengths, memory, operation};
use crate::communicator::{Communicator, detached, number};
use crate::memory::{Memory, Place};
use crate::request::Request;
use pyo3::prelude::*;

#[pymethods]
impl Communicator {
    /// Starts a bcast(); buffer is in use until the request has ended.
    #[pyo3(signature = (buffer, root = 0))]
    fn ibcast(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, root: i64) -> PyResult<Request> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let memory = memory(&ranks, buffer, root)?;
        let place = memory.place();
        // SAFETY: the request holds the memory until it has ended; otherwise as in `bcast`.
        let begin = || unsafe { ranks.ibcast_raw(root, place.base(), place.bytes()) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Enters a barrier without waiting for it; all ranks must then enter it by this call.
    fn ibarrier(&self, py: Python<'_>) -> PyResult<Request> {
        let ranks = self.ranks()?;
        Ok(Request::new(detached(py, || ranks.ibarrier_owned())?, Vec::new()))
    }

    /// Starts an allreduce(); buffer is in use until the request has ended.
    ///
    /// All ranks must start it by this call, in the same order as their other collective
    /// operations. Any number of nonblocking reductions, gathers, scatters and all-to-alls may be
    /// outstanding.
    #[pyo3(signature = (buffer, op = "sum"))]
    fn iallreduce(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, op: &str) -> PyResult<Request> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: the request holds the memory, which is writable, until it has ended; the caller
        // ensures that nobody else uses it.
        let begin = || unsafe { ranks.iallreduce_raw(place.base(), place.bytes(), element, op) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Starts a reduce(); buffer is in use until the request has ended.
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

    /// Starts a reduce_scatter(); buffer is in use until the request has ended.
    ///
    /// Returns the request and, immediately, the two indices of reduce_scatter().
    #[pyo3(signature = (buffer, op = "sum"))]
    fn ireduce_scatter(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        op: &str,
    ) -> PyResult<(Request, (usize, usize))> {
        let (ranks, op) = (self.ranks()?, operation(py, op)?);
        let memory = Memory::to_write(buffer)?;
        let (place, element) = (memory.place(), memory.element()?);
        // SAFETY: as in `iallreduce`.
        let begin =
            || unsafe { ranks.ireduce_scatter_raw(place.base(), place.bytes(), element, op) };
        let (request, range) = detached(py, begin)?;
        let block = (range.start / element.bytes(), range.end / element.bytes());
        Ok((Request::new(request, vec![memory]), block))
    }

    /// Starts a gather(); both buffers are in use until the request has ended.
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
        // SAFETY: the request holds the memory, of which `all` is writable, until it has ended; the
        // caller ensures that nobody else uses it.
        let begin = || unsafe { ranks.igather_raw(root, from.memory(), to.memory()) };
        let request = detached(py, begin)?;
        Ok(Request::new(request, std::iter::once(own).chain(all).collect()))
    }

    /// Starts a gatherv(); both buffers are in use until the request has ended.
    ///
    /// If one of them has the wrong length, the root gets the error of gatherv(): of its own
    /// buffers from this call, otherwise from wait(). The other ranks, and this communicator,
    /// continue.
    #[pyo3(signature = (own, all = None, lengths = None, root = 0))]
    fn igatherv(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: Option<&Bound<'_, PyAny>>,
        lengths: Option<Vec<i64>>,
        root: i64,
    ) -> PyResult<Request> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let lengths = self::lengths("lengths", lengths.unwrap_or_default())?;
        let own = Memory::of(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::to_write).transpose()?;
        let (from, to) = (own.place(), all.as_ref().map_or(Place::NOWHERE, Memory::place));
        from.check_apart_from(to)?;
        // SAFETY: as in `igather`.
        let begin = || unsafe { ranks.igatherv_raw(root, from.memory(), to.memory(), &lengths) };
        let request = detached(py, begin)?;
        Ok(Request::new(request, std::iter::once(own).chain(all).collect()))
    }

    /// Starts an allgather(); both buffers are in use until the request has ended.
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

    /// Starts an allgatherv(); both buffers are in use until the request has ended.
    fn iallgatherv(
        &self,
        py: Python<'_>,
        own: &Bound<'_, PyAny>,
        all: &Bound<'_, PyAny>,
        lengths: Vec<i64>,
    ) -> PyResult<Request> {
        let (ranks, lengths) = (self.ranks()?, self::lengths("lengths", lengths)?);
        let (own, all) = (Memory::of(own)?, Memory::to_write(all)?);
        let (from, to) = (own.place(), all.place());
        from.check_apart_from(to)?;
        // SAFETY: as in `igather`.
        let begin = || unsafe { ranks.iallgatherv_raw(from.memory(), to.memory(), &lengths) };
        Ok(Request::new(detached(py, begin)?, vec![own, all]))
    }

    /// Starts a scatter(); both buffers are in use until the request has ended.
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

    /// Starts a scatterv(); both buffers are in use until the request has ended.
    ///
    /// Lengths that do not match raise errors as in igatherv(); a root that raises one immediately
    /// sends nothing.
    #[pyo3(signature = (all, lengths, own, root = 0))]
    fn iscatterv(
        &self,
        py: Python<'_>,
        all: Option<&Bound<'_, PyAny>>,
        lengths: Option<Vec<i64>>,
        own: &Bound<'_, PyAny>,
        root: i64,
    ) -> PyResult<Request> {
        let (ranks, root) = (self.ranks()?, number("root", root)?);
        let lengths = self::lengths("lengths", lengths.unwrap_or_default())?;
        let own = Memory::to_write(own)?;
        let all = all.filter(|_| ranks.rank() == root).map(Memory::of).transpose()?;
        let (from, to) = (all.as_ref().map_or(Place::NOWHERE, Memory::place), own.place());
        from.check_apart_from(to)?;
        // SAFETY: as in `iscatter`.
        let begin = || unsafe { ranks.iscatterv_raw(root, from.memory(), &lengths, to.memory()) };
        let request = detached(py, begin)?;
        Ok(Request::new(request, std::iter::once(own).chain(all).collect()))
    }

    /// Starts an alltoall(); both buffers are in use until the request has ended.
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

    /// Starts an alltoallv(); both buffers are in use until the request has ended.
    fn ialltoallv(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        data_lengths: Vec<i64>,
        buffer: &Bound<'_, PyAny>,
        buffer_lengths: Vec<i64>,
    ) -> PyResult<Request> {
        let ranks = self.ranks()?;
        let outgoing = lengths("data_lengths", data_lengths)?;
        let incoming = lengths("buffer_lengths", buffer_lengths)?;
        let (data, buffer) = (Memory::of(data)?, Memory::to_write(buffer)?);
        let (from, to) = (data.place(), buffer.place());
        from.check_apart_from(to)?;
        // SAFETY: as in `igather`.
        let begin =
            || unsafe { ranks.ialltoallv_raw(from.memory(), &outgoing, to.memory(), &incoming) };
        Ok(Request::new(detached(py, begin)?, vec![data, buffer]))
    }
}
