//! Messages between two ranks of a communicator.

use crate::communicator::{Communicator, detached, number};
use crate::memory::Memory;
use crate::request::Request;
use omnes::{Source, Status, Tag};
use pyo3::prelude::*;

#[pymethods]
impl Communicator {
    /// Sends bytes to rank to; returns when data may be changed.
    ///
    /// A message of up to 16 KiB is on its way then, a longer one has arrived; one of more than
    /// OMNES_EAGER_BYTES waits until its receiver has asked for it: two ranks that both send such a
    /// message first wait for ever, which sendrecv() and isend() do not. As with MPI's standard
    /// sends, no more than a limit is kept of messages that nobody receives: of those of up to 16
    /// KiB, 4 MiB here for each receiver, each counted with 128 bytes beside its data, beyond which
    /// they too wait until they have arrived. Raises RankOutOfRange, PeerFailed, PeerLeft.
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
    /// in bytes. Raises RankOutOfRange, Truncated, PeerFailed, PeerLeft. After a receive that is
    /// given up, by a signal handler or a time_limit(), the next one gets its message, unless that
    /// has begun to come: it is lost then.
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
    /// Returns source, tag and length in bytes of that. Raises what send() and recv() do, and
    /// ValueError if the two overlap; after an error other than Truncated what has not been sent
    /// yet is given up.
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
        place.check_apart_from(room_place)?;
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
}

/// Which messages a receive is for; all, where nothing is named.
fn wanted(source: Option<i64>, tag: Option<i64>) -> PyResult<(Source, Tag)> {
    let source = source.map(|source| number("source", source)).transpose()?;
    let tag = tag.map(|tag| number("tag", tag)).transpose()?;
    Ok((source.map_or(Source::Any, Source::Rank), tag.map_or(Tag::Any, Tag::Is)))
}
