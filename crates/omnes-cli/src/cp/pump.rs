//! Path of the data from rank 0's source to every rank's sink.
//!
//! ```text
//! rank 0   reader ──► broadcast ──► writer (if rank 0 has a copy of its own)
//!             ▲                        │ buffers go round
//!             └────────────────────────┘
//! others            broadcast ──► writer ──► broadcast …
//! ```
//!
//! While [`CHUNKS_AHEAD`] chunks are broadcast, the next ones are read and the previous ones are
//! written. Every chunk carries the length of the chunk after the next, so a broadcast never
//! carries more than the data, and no additional message is needed. A rank holds [`BUFFERS`] chunks
//! in memory.

use super::checksum::{SUMS_BYTES, Sums};
use super::frame::{CHUNKS_AHEAD, ChunkHeader, Later, Totals};
use super::progress::Progress;
use super::sink::Sink;
use super::source::{self, Read};
use super::verdict::Rounds;
use super::writer::Writer;
use crate::bench::rank;
use anyhow::{Context, Result, ensure};
use omnes::{BcastAlgorithm, Communicator, OwnedBcast};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};

/// On rank 0: one being read, two read, two being broadcast, one being written.
pub const BUFFERS: usize = 2 + 2 * CHUNKS_AHEAD;
/// Message before the first chunk: the lengths of the chunks that no other chunk announces.
const FIRST_BYTES: usize = CHUNKS_AHEAD * 4;

/// Parameters of sending; the same on every rank.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Longest chunk, header included.
    pub chunk_bytes: usize,
    /// Algorithm of the broadcasts; chosen by the library if `None`.
    pub algorithm: Option<BcastAlgorithm>,
}

/// How the stream ended on this rank.
pub struct Ending {
    /// The complete stream with its checksum; `None` if rank 0 gave up.
    pub whole: Option<Whole>,
    /// This rank's copy, or the reason why it failed; `None` if the rank writes none.
    pub copy: Option<Result<Sink, String>>,
    /// Reason why rank 0 cannot read the source; `None` elsewhere.
    pub source_failure: Option<String>,
}

/// A complete stream.
#[derive(Clone, Copy)]
pub struct Whole {
    /// Checksums of the frames, as rank 0 read them.
    pub sums: Sums,
    /// Totals of the frames; known to rank 0.
    pub totals: Totals,
}

/// Sends the file or directory at `path` from rank 0, and writes it to `sink` if there is one. The
/// other ranks call [`receive`].
///
/// Errors: another rank is gone.
pub fn send(
    comm: &Communicator,
    how: How,
    path: &Path,
    sink: Option<Sink>,
    progress: &mut Progress,
) -> Result<Ending> {
    let (free, buffers) = mpsc::channel();
    for _ in 0..BUFFERS {
        free.send(Vec::with_capacity(how.chunk_bytes)).expect("the other end is here");
    }
    let mut reader = Reader::start(path, buffers)?;
    let mut road = Road::new(comm, how, Outlet::new(sink, free)?);
    let mut last = Later::Abandoned;
    reader.read_ahead(CHUNKS_AHEAD);
    share_first(comm, &reader.ready)?;
    while let Some(mut chunk) = reader.take() {
        if road.has_failed {
            reader.give_up(CHUNKS_AHEAD - 1);
        }
        last = match (reader.ready.get(CHUNKS_AHEAD - 1), &reader.whole) {
            (Some(chunk), _) => Later::Chunk(u32::try_from(chunk.len())?),
            (None, Some(_)) => Later::End,
            (None, None) => Later::Abandoned,
        };
        ChunkHeader { later: last }.emit(&mut chunk);
        if road.is_full() {
            road.land(progress)?;
        }
        road.start(chunk)?;
    }
    while !road.is_empty() {
        road.land(progress)?;
    }
    road.rounds.finish(comm)?;
    let whole = reader.whole.filter(|_| last == Later::End);
    share_sums(comm, whole.map(|whole| whole.sums))?;
    Ok(Ending { whole, copy: road.outlet.finish(), source_failure: reader.failure })
}

/// Receives the stream from rank 0 and writes it to `sink`.
///
/// Errors: another rank is gone, or the stream of rank 0 is invalid.
pub fn receive(comm: &Communicator, how: How, sink: Sink) -> Result<Ending> {
    let (free, buffers) = mpsc::channel();
    for _ in 0..BUFFERS {
        free.send(Vec::new()).expect("the other end is here");
    }
    let mut road = Road::new(comm, how, Outlet::new(Some(sink), free)?);
    let mut lengths = share_first(comm, &VecDeque::new())?;
    loop {
        while let Some(bytes) = lengths.pop_front_if(|_| !road.is_full()) {
            ensure!(bytes <= how.chunk_bytes, "rank 0 announces a chunk of {bytes} bytes");
            let mut chunk = buffers.recv().context("the writer ended early")?;
            chunk.resize(bytes, 0);
            road.start(chunk)?;
        }
        if road.is_empty() {
            break;
        }
        match road.land(&mut Progress::Hidden)?.later {
            Later::Chunk(bytes) => lengths.push_back(bytes as usize),
            Later::End | Later::Abandoned => {}
        }
    }
    road.rounds.finish(comm)?;
    let sums = share_sums(comm, None)?;
    let whole = sums.map(|sums| Whole { sums, totals: Totals::default() });
    Ok(Ending { whole, copy: road.outlet.finish(), source_failure: None })
}

/// Lengths of rank 0's first chunks, at every rank; as many as there are.
fn share_first(comm: &Communicator, ready: &VecDeque<Vec<u8>>) -> Result<VecDeque<usize>> {
    let mut bytes = [0; FIRST_BYTES];
    for (place, chunk) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(ready) {
        *place = u32::try_from(chunk.len())?.to_be_bytes();
    }
    let shared = rank::share(comm, bytes)?;
    let lengths = shared.as_chunks::<4>().0.iter().map(|it| u32::from_be_bytes(*it) as usize);
    Ok(lengths.filter(|length| *length > 0).collect())
}

/// Chunks in flight, in order.
struct Road<'comm> {
    comm: &'comm Communicator,
    how: How,
    under_way: VecDeque<OwnedBcast>,
    outlet: Outlet,
    rounds: Rounds,
    /// True if a copy has failed, on this rank or, as rank 0 has learned, on another.
    has_failed: bool,
}

impl<'comm> Road<'comm> {
    fn new(comm: &'comm Communicator, how: How, outlet: Outlet) -> Self {
        let (under_way, rounds) = (VecDeque::new(), Rounds::default());
        Self { comm, how, under_way, outlet, rounds, has_failed: false }
    }

    fn is_full(&self) -> bool {
        self.under_way.len() == CHUNKS_AHEAD
    }

    fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    fn start(&mut self, chunk: Vec<u8>) -> Result<()> {
        let started = match self.how.algorithm {
            Some(algorithm) => self.comm.bcast_owned_with(0, chunk, algorithm)?,
            None => self.comm.bcast_owned(0, chunk)?,
        };
        self.under_way.push_back(started);
        Ok(())
    }

    /// Waits for the oldest chunk and forwards it to the outlet; returns its header.
    fn land(&mut self, progress: &mut Progress) -> Result<ChunkHeader> {
        let oldest = self.under_way.pop_front().context("no chunk is under way")?;
        let chunk = oldest.wait().map_err(omnes::Error::from)?;
        let header = ChunkHeader::parse(&chunk, self.how.chunk_bytes)?;
        progress.advance(chunk.len());
        self.outlet.take(chunk);
        let heard = self.rounds.on_chunk(self.comm, || self.outlet.failure())?;
        self.has_failed |= !heard.is_good() || self.outlet.failure().is_some();
        Ok(header)
    }
}

/// Shares rank 0's checksum with every rank; `None` if it gave up.
fn share_sums(comm: &Communicator, mine: Option<Sums>) -> Result<Option<Sums>> {
    let mut bytes = [0; 1 + SUMS_BYTES];
    if let Some(sums) = mine {
        bytes[0] = 1;
        bytes[1..].copy_from_slice(&sums.to_bytes());
    }
    let [is_whole, sums @ ..] = rank::share(comm, bytes)?;
    Ok((is_whole == 1).then(|| Sums::from_bytes(&sums)))
}

/// Receiving end of the reading thread.
struct Reader {
    read: Receiver<Read>,
    /// Chunks that have been read and not been sent.
    ready: VecDeque<Vec<u8>>,
    /// Set when the last chunk has been read.
    whole: Option<Whole>,
    failure: Option<String>,
    has_given_up: bool,
}

impl Reader {
    /// Starts the thread, which ends by itself: at the source's end, or when no more buffers are
    /// returned.
    fn start(path: &Path, buffers: Receiver<Vec<u8>>) -> Result<Self> {
        let (chunks, read) = mpsc::channel();
        let path = path.to_owned();
        std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || source::read(&path, buffers, &chunks))?;
        let ready = VecDeque::new();
        Ok(Self { read, ready, whole: None, failure: None, has_given_up: false })
    }

    /// The next chunk; after it, as many are ready as must be announced.
    fn take(&mut self) -> Option<Vec<u8>> {
        self.read_ahead(CHUNKS_AHEAD + 1);
        self.ready.pop_front()
    }

    /// Stops reading; `announced` chunks still have to be sent.
    fn give_up(&mut self, announced: usize) {
        self.ready.truncate(announced);
        (self.has_given_up, self.whole) = (true, None);
    }

    /// Waits until `count` chunks are ready, or there are no more.
    fn read_ahead(&mut self, count: usize) {
        while self.ready.len() < count && !self.is_over() {
            match self.read.recv() {
                Ok(Read::Chunk(chunk)) => self.ready.push_back(chunk),
                Ok(Read::Whole { sums, totals }) => self.whole = Some(Whole { sums, totals }),
                Ok(Read::Failed(error)) => self.failure = Some(error.to_string()),
                Err(mpsc::RecvError) => {
                    self.failure = Some("the reader ended early".to_owned());
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.whole.is_some() || self.failure.is_some() || self.has_given_up
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
            // If the reader does not accept the buffer, it has ended.
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
