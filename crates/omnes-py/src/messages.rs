//! Messages between two ranks of a communicator.

use crate::communicator::{Communicator, detached, number};
use crate::memory::Memory;
use crate::request::Request;
use omnes::{Source, Status, Tag};
use pyo3::prelude::*;

#[pymethods]
impl Communicator {
    /// Sends data to rank to, and returns when data may be changed.
    ///
    /// A message of up to 16 KiB is then in flight; a longer one has arrived. A message of more
    /// than OMNES_EAGER_BYTES waits until its receiver has asked for it: two ranks that both first
    /// send each other such a message wait forever; use sendrecv() or isend(). As with MPI's
    /// standard mode, messages that nobody receives are buffered only up to a limit: 4 MiB here per
    /// receiver for messages of up to 16 KiB, counting 128 bytes of overhead each, beyond which
    /// they, too, wait until they have arrived. Raises RankOutOfRange, PeerFailed, PeerLeft.
    #[pyo3(signature = (data, to, *, tag = 0))]
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, to: i64, tag: i64) -> PyResult<()> {
        let ranks = self.ranks()?;
        let (to, tag) = (number("to", to)?, number("tag", tag)?);
        let memory = Memory::of(data)?;
        let place = memory.place();
        // SAFETY: the memory lives until the end of the call; the caller ensures that nobody writes
        // to it.
        detached(py, || ranks.send(to, tag, unsafe { place.data() }))
    }

    /// Waits for the oldest message that no receive has taken, and stores it in buffer.
    ///
    /// source and tag are those of the message, None for any; buffer may be longer than the
    /// message. Messages of one sender with the same tag arrive in the order sent. Returns source,
    /// tag and length in bytes. Raises RankOutOfRange, Truncated, PeerFailed, PeerLeft. If a signal
    /// handler or a time_limit() ends a receive, its message is left to the next receive, or lost
    /// if it has begun to arrive.
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
        // SAFETY: the memory is writable and lives until the end of the call; the caller ensures
        // that nobody else uses it.
        let status = detached(py, || ranks.recv(from, wanted, unsafe { place.buffer() }))?;
        Ok((status.source, status.tag, status.bytes))
    }

    /// Waits for the oldest message that no receive has taken, as recv() does, but leaves it.
    ///
    /// Returns its source, tag and length in bytes: a recv() with that source and tag gets it,
    /// unless a receive of another thread is first. Raises RankOutOfRange, PeerFailed, PeerLeft.
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

    /// As probe(), but returns None if no such message is there yet.
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

    /// Sends data as send() does, and concurrently receives into buffer as recv() does.
    ///
    /// The lengths are not limited. tag is that of data; source and wanted are the source and tag
    /// of the message to receive, None for any. Returns source, tag and length in bytes of that
    /// message. Raises the errors of send() and recv(), and ValueError if the two buffers overlap;
    /// after an error other than Truncated, data still arrive if at most 4 MiB were unsent;
    /// otherwise their receiver gets PeerGaveUp.
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
        // SAFETY: both live until the end of the call, and `room` is writable; the caller ensures
        // that nobody writes to `memory` or uses `room`.
        let status = detached(py, || unsafe {
            ranks.sendrecv(to, tag, place.data(), from, wanted, room_place.buffer())
        })?;
        Ok((status.source, status.tag, status.bytes))
    }

    /// Starts a send(); data is in use until the request has ended.
    ///
    /// Never waits: if send() would wait, the request ends later.
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
        // SAFETY: the request holds the memory until it has ended; the caller ensures that nobody
        // writes to it.
        let begin = || unsafe { ranks.isend_raw(to, tag, place.base(), place.bytes()) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }

    /// Starts a recv(); buffer is in use until the request has ended.
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
        // SAFETY: the request holds the memory, which is writable, until it has ended; the caller
        // ensures that nobody else uses it.
        let begin = || unsafe { ranks.irecv_raw(from, wanted, place.base(), place.bytes()) };
        Ok(Request::new(detached(py, begin)?, vec![memory]))
    }
}

/// The messages that a receive accepts; all if neither source nor tag is given.
fn wanted(source: Option<i64>, tag: Option<i64>) -> PyResult<(Source, Tag)> {
    let source = source.map(|source| number("source", source)).transpose()?;
    let tag = tag.map(|tag| number("tag", tag)).transpose()?;
    Ok((source.map_or(Source::Any, Source::Rank), tag.map_or(Tag::Any, Tag::Is)))
}
