//! The data's way from rank 0's source to every rank's sink.
//!
//! ```text
//! rank 0   reader ──► broadcast ──► writer (if it has a copy of its own)
//!             ▲                        │ buffers go round
//!             └────────────────────────┘
//! others            broadcast ──► writer ──► broadcast …
//! ```
//!
//! While a chunk is broadcast the next is read and the one before is written. Memory on a rank is
//! [`BUFFERS`] chunks. Every chunk says how long the next one is, so a broadcast never carries
//! more than the data, and there is no message besides it.

use super::checksum::{SUMS_BYTES, Sums};
use super::frame::{ChunkHeader, Next, Totals};
use super::sink::Sink;
use super::source::{self, Read};
use super::verdict::Rounds;
use super::writer::Writer;
use crate::bench::group;
use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use omnes::{Bcast, Communicator};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};

/// On rank 0: one being read, one read, one being broadcast, one being written.
const BUFFERS: usize = 4;

/// How chunks are sent; the same on every rank.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Longest chunk, header included.
    pub chunk_bytes: usize,
    /// Of the broadcasts; `None` leaves it to the library.
    pub algorithm: Option<Bcast>,
}

/// How the stream ended on this rank.
pub struct Ending {
    /// What was sent, with its checksum; `None` if rank 0 gave up.
    pub whole: Option<Whole>,
    /// This rank's copy, or why there is none; `None` if it writes none.
    pub copy: Option<Result<Sink, String>>,
    /// Why rank 0 cannot read the source; elsewhere `None`.
    pub source_failure: Option<String>,
}

/// A stream with its end.
#[derive(Clone, Copy)]
pub struct Whole {
    /// Of the frames, as rank 0 read them.
    pub sums: Sums,
    /// What they hold; known to rank 0.
    pub totals: Totals,
}

/// Sends what is at `path` from rank 0, and writes it to `sink` if there is one. The other ranks
/// call [`receive`].
///
/// Errors: another rank is gone.
pub fn send(
    comm: &Communicator,
    how: How,
    path: &Path,
    sink: Option<Sink>,
    progress: &ProgressBar,
) -> Result<Ending> {
    let (free, buffers) = mpsc::channel();
    for _ in 0..BUFFERS {
        free.send(Vec::with_capacity(how.chunk_bytes)).expect("the other end is here");
    }
    let mut reader = Reader::start(path, buffers)?;
    let outlet = Outlet::new(sink, free)?;
    let (mut rounds, mut is_failed, mut last) = (Rounds::default(), false, Next::Abandoned);
    let mut next = reader.next();
    group::share_number(comm, next.as_ref().map_or(0, Vec::len) as u64)?;
    while let Some(mut chunk) = next {
        next = reader.next().filter(|_| !is_failed);
        last = match &next {
            Some(chunk) => Next::Chunk(u32::try_from(chunk.len())?),
            None if is_failed || reader.whole.is_none() => Next::Abandoned,
            None => Next::End,
        };
        ChunkHeader { next: last }.emit(&mut chunk);
        broadcast(comm, how, &mut chunk)?;
        progress.inc(chunk.len() as u64);
        outlet.take(chunk);
        let heard = rounds.on_chunk(comm, || None)?;
        is_failed |= !heard.is_good() || outlet.failure().is_some();
    }
    rounds.finish(comm)?;
    let whole = reader.whole.filter(|_| last == Next::End);
    share_sums(comm, whole.map(|whole| whole.sums))?;
    Ok(Ending { whole, copy: outlet.finish(), source_failure: reader.failure })
}

/// Receives what rank 0 sends, and writes it to `sink`.
///
/// Errors: another rank is gone, or rank 0 sends what is no stream.
pub fn receive(comm: &Communicator, how: How, sink: Sink) -> Result<Ending> {
    let (free, buffers) = mpsc::channel();
    for _ in 0..BUFFERS {
        free.send(Vec::new()).expect("the other end is here");
    }
    let outlet = Outlet::new(Some(sink), free)?;
    let mut rounds = Rounds::default();
    let mut bytes = usize::try_from(group::share_number(comm, 0)?)?;
    ensure!(bytes <= how.chunk_bytes, "rank 0 announces a chunk of {bytes} bytes");
    while bytes > 0 {
        let mut chunk = buffers.recv().context("the writer ended before its time")?;
        chunk.resize(bytes, 0);
        broadcast(comm, how, &mut chunk)?;
        let header = ChunkHeader::parse(&chunk, how.chunk_bytes)?;
        outlet.take(chunk);
        rounds.on_chunk(comm, || outlet.failure())?;
        bytes = match header.next {
            Next::Chunk(bytes) => bytes as usize,
            Next::End | Next::Abandoned => 0,
        };
    }
    rounds.finish(comm)?;
    let sums = share_sums(comm, None)?;
    let whole = sums.map(|sums| Whole { sums, totals: Totals::default() });
    Ok(Ending { whole, copy: outlet.finish(), source_failure: None })
}

fn broadcast(comm: &Communicator, how: How, chunk: &mut [u8]) -> Result<()> {
    match how.algorithm {
        Some(algorithm) => comm.bcast_with(0, chunk, algorithm)?,
        None => comm.bcast(0, chunk)?,
    }
    Ok(())
}

/// Rank 0's checksum at every rank; `None` if it gave up.
fn share_sums(comm: &Communicator, mine: Option<Sums>) -> Result<Option<Sums>> {
    let mut bytes = [0; 1 + SUMS_BYTES];
    if let Some(sums) = mine {
        bytes[0] = 1;
        bytes[1..].copy_from_slice(&sums.to_bytes());
    }
    let [is_whole, sums @ ..] = group::share(comm, bytes)?;
    Ok((is_whole == 1).then(|| Sums::from_bytes(&sums)))
}

/// The reading thread's other end.
struct Reader {
    read: Receiver<Read>,
    /// Set when the last chunk has been taken.
    whole: Option<Whole>,
    failure: Option<String>,
}

impl Reader {
    /// The thread ends by itself: at the source's end, or when no buffer comes back any more.
    fn start(path: &Path, buffers: Receiver<Vec<u8>>) -> Result<Self> {
        let (chunks, read) = mpsc::channel();
        let path = path.to_owned();
        std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || source::read(&path, buffers, &chunks))?;
        Ok(Self { read, whole: None, failure: None })
    }

    /// The next chunk; after the last one, or if there will be no more, `None`.
    fn next(&mut self) -> Option<Vec<u8>> {
        if self.whole.is_some() || self.failure.is_some() {
            return None;
        }
        match self.read.recv() {
            Ok(Read::Chunk(chunk)) => return Some(chunk),
            Ok(Read::Whole { sums, totals }) => self.whole = Some(Whole { sums, totals }),
            Ok(Read::Failed(error)) => self.failure = Some(error.to_string()),
            Err(mpsc::RecvError) => {
                self.failure = Some("the reader ended before its time".to_owned());
            }
        }
        None
    }
}

/// Where chunks go after their broadcast.
enum Outlet {
    Writer(Writer),
    /// Back to the reader: rank 0 has no copy of its own.
    Reader(Sender<Vec<u8>>),
}

impl Outlet {
    fn new(sink: Option<Sink>, free: Sender<Vec<u8>>) -> Result<Self> {
        Ok(match sink {
            Some(sink) => Self::Writer(Writer::start(sink, free)?),
            None => Self::Reader(free),
        })
    }

    fn take(&self, chunk: Vec<u8>) {
        match self {
            Self::Writer(writer) => writer.take(chunk),
            // The reader has ended if it does not take it.
            Self::Reader(free) => drop(free.send(chunk)),
        }
    }

    fn failure(&self) -> Option<String> {
        match self {
            Self::Writer(writer) => writer.failure(),
            Self::Reader(_) => None,
        }
    }

    fn finish(self) -> Option<Result<Sink, String>> {
        match self {
            Self::Writer(writer) => Some(writer.finish()),
            Self::Reader(_) => None,
        }
    }
}
