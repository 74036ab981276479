//! Output of the ranks: whole lines, each prefixed with its rank.
//!
//! One thread polls the pipes of all ranks, so that ranks that spin share the cores with one
//! sleeping thread and not with two per rank. A line is written in one piece, so lines of ranks
//! never mix; an unterminated line is terminated when its pipe ends, or when it reaches
//! [`LINE_BYTES_MAX`].
//!
//! Back-pressure is that of a pipeline: while our output is full, ranks block in `write`; if nobody
//! reads it any more, or standard output cannot be written, their pipes are closed, and they
//! receive PIPE. [`Pump::finish`] reports output that is lost because it cannot be written. If
//! standard error cannot be written, as on a full disk, there is nowhere to report it, and writing
//! there must not end the ranks: their standard error is read and dropped.
//!
//! A process that left its rank's group may hold a pipe open forever. So the end of the pipes is
//! not awaited: once all ranks are reaped, [`Pump::finish`] writes the remaining data of the pipes,
//! and stops.

use crate::print::{self, CannotWrite, Reader};
use std::fs::File;
use std::io::{IsTerminal, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

/// Longer lines are broken, so that a rank that writes no newlines cannot exhaust the memory.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Size of one read from a pipe; the size of a pipe's buffer.
const READ_BYTES: usize = 1 << 16;

/// Reads per pipe after the ranks have ended; times [`READ_BYTES`] it is the largest pipe that an
/// ordinary user may have (1 MiB), and it bounds what a process that keeps writing can add.
const DRAIN_READS_MAX: usize = 16;

/// Colours that are legible on light and dark backgrounds, cyclic by rank.
const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];

#[derive(Clone, Copy)]
enum Sink {
    Stdout,
    Stderr,
}

impl Sink {
    fn is_coloured(self) -> bool {
        let is_terminal = match self {
            Sink::Stdout => std::io::stdout().is_terminal(),
            Sink::Stderr => std::io::stderr().is_terminal(),
        };
        is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// Errors are those of standard output.
    fn write(self, bytes: &[u8]) -> Result<Reader, CannotWrite> {
        let _whole = print::alone();
        match self {
            Sink::Stdout => print::bytes(bytes),
            Sink::Stderr => {
                let written = print::settle(print::write_all(std::io::stderr().lock(), bytes));
                Ok(written.unwrap_or(Reader::Listens))
            }
        }
    }
}

/// One pipe from a rank.
struct Stream {
    pipe: File,
    sink: Sink,
    prefix: Vec<u8>,
    /// Start of an incomplete line.
    line: Vec<u8>,
    /// True if a line was broken here, so that a newline that follows immediately is skipped.
    is_broken: bool,
}

/// The copying thread, and the pipe whose closing ends it.
pub struct Pump {
    ended: Receiver<Result<(), CannotWrite>>,
    stop: PipeWriter,
}

/// Pipes of all ranks, before copying starts.
pub struct Streams {
    streams: Vec<Stream>,
    digits: usize,
}

impl Streams {
    /// Creates an empty set for ranks `0..size`; `size` determines the width of the prefix.
    pub fn new(size: usize) -> Self {
        Self { streams: Vec::new(), digits: (size - 1).to_string().len() }
    }

    /// Adds the pipes of `rank`.
    pub fn push(&mut self, rank: usize, stdout: OwnedFd, stderr: OwnedFd) {
        for (pipe, sink) in [(stdout, Sink::Stdout), (stderr, Sink::Stderr)] {
            let prefix = prefix(rank, self.digits, sink.is_coloured().then_some(&COLOURS));
            self.streams.push(Stream {
                pipe: pipe.into(),
                sink,
                prefix,
                line: Vec::new(),
                is_broken: false,
            });
        }
    }

    /// Starts copying from all added pipes. Errors if no thread or no pipe can be created.
    pub fn start(&mut self) -> std::io::Result<Pump> {
        let (stopped, stop) = std::io::pipe()?;
        let (end, ended) = channel();
        let streams = std::mem::take(&mut self.streams);
        let copy = move || {
            // The receiver may have stopped waiting.
            let _ = end.send(copy(streams, &stopped));
        };
        std::thread::Builder::new().name("output".to_owned()).spawn(copy)?;
        Ok(Pump { ended, stop })
    }
}

impl Pump {
    /// Writes the remaining data of the pipes, and returns, at the latest at `until`; call it when
    /// all ranks are reaped. Errors if any output of the ranks is lost, but not if it is only not
    /// read in time.
    pub fn finish(self, until: Option<Instant>) -> Result<(), CannotWrite> {
        drop(self.stop);
        await_end(&self.ended, until).unwrap_or(Ok(()))
    }
}

/// Result of a thread at its end; `None` if it is still writing at `until`.
pub fn await_end<T>(ended: &Receiver<T>, until: Option<Instant>) -> Option<T> {
    let said = match until {
        None => ended.recv().map_err(RecvTimeoutError::from),
        Some(until) => ended.recv_timeout(until.saturating_duration_since(Instant::now())),
    };
    match said {
        Ok(said) => Some(said),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => unreachable!("threads that write do not panic"),
    }
}

fn prefix(rank: usize, digits: usize, colours: Option<&[u8]>) -> Vec<u8> {
    match colours {
        None => format!("[{rank:digits$}] "),
        Some(colours) => {
            format!("\x1b[{}m[{rank:digits$}]\x1b[0m ", colours[rank % colours.len()])
        }
    }
    .into_bytes()
}

/// Copies until `stopped`; returns the first error, if any.
fn copy(mut streams: Vec<Stream>, stopped: &PipeReader) -> Result<(), CannotWrite> {
    let mut buffer = vec![0; READ_BYTES];
    let mut first = Ok(());
    while !streams.is_empty() {
        let mut polled: Vec<RawFd> = streams.iter().map(|stream| stream.pipe.as_raw_fd()).collect();
        polled.push(stopped.as_raw_fd());
        let mut ready = poll_readable(&polled, Wait::Forever);
        if ready.pop() == Some(true) {
            break;
        }
        let mut ready = ready.into_iter();
        streams.retain_mut(|stream| {
            !ready.next().unwrap_or(false) || goes_on(stream.copy_once(&mut buffer), &mut first)
        });
    }
    for stream in &mut streams {
        goes_on(stream.drain(&mut buffer), &mut first);
    }
    first
}

/// True if a stream may have more data; stores an error unless there was one before.
fn goes_on(copied: Result<More, CannotWrite>, first: &mut Result<(), CannotWrite>) -> bool {
    match copied {
        Ok(more) => more == More::Maybe,
        Err(error) => {
            if first.is_ok() {
                *first = Err(error);
            }
            false
        }
    }
}

/// Whether a pipe may have more data, and our output may accept more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Maybe,
    No,
}

impl Stream {
    /// Performs one read, and writes the lines that it completes.
    fn copy_once(&mut self, buffer: &mut [u8]) -> Result<More, CannotWrite> {
        match self.pipe.read(buffer) {
            Ok(0) => self.flush().map(|()| More::No),
            Ok(length) => self.push(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(More::Maybe),
            Err(_) => Ok(More::No),
        }
    }

    fn drain(&mut self, buffer: &mut [u8]) -> Result<More, CannotWrite> {
        for _ in 0..DRAIN_READS_MAX {
            let is_ready = poll_readable(&[self.pipe.as_raw_fd()], Wait::No)[0];
            if !is_ready || self.copy_once(buffer)? == More::No {
                break;
            }
        }
        self.flush().map(|()| More::No)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<More, CannotWrite> {
        let mut whole = Vec::new();
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            if std::mem::take(&mut self.is_broken) && part == b"\n" {
                continue;
            }
            self.line.extend_from_slice(part);
            if self.line.len() >= LINE_BYTES_MAX || part.ends_with(b"\n") {
                self.take_line(&mut whole);
            }
        }
        if whole.is_empty() {
            return Ok(More::Maybe);
        }
        Ok(match self.sink.write(&whole)? {
            Reader::Listens => More::Maybe,
            Reader::Gone => More::No,
        })
    }

    fn take_line(&mut self, whole: &mut Vec<u8>) {
        whole.extend_from_slice(&self.prefix);
        whole.append(&mut self.line);
        if !whole.ends_with(b"\n") {
            whole.push(b'\n');
            self.is_broken = true;
        }
    }

    /// Writes the incomplete line, if there is one.
    fn flush(&mut self) -> Result<(), CannotWrite> {
        if self.line.is_empty() {
            return Ok(());
        }
        let mut whole = Vec::new();
        self.take_line(&mut whole);
        self.sink.write(&whole).map(drop)
    }
}

/// How long to wait for a readable descriptor.
#[derive(Clone, Copy)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until a descriptor is readable.
    Forever,
}

/// True for each descriptor that is readable or at its end; in the same order.
pub fn poll_readable(descriptors: &[RawFd], wait: Wait) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
        .collect();
    let count = libc::nfds_t::try_from(polled.len()).expect("lengths fit nfds_t");
    let timeout_ms = match wait {
        Wait::No => 0,
        Wait::Forever => -1,
    };
    // SAFETY: `polled` is valid for `count` entries. An interrupted call leaves no bit set, and the
    // caller calls again.
    unsafe { libc::poll(polled.as_mut_ptr(), count, timeout_ms) };
    polled.iter().map(|entry| entry.revents != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_right_aligned_to_the_largest_rank() {
        assert_eq!(prefix(3, 2, None), b"[ 3] ");
        assert_eq!(prefix(11, 2, None), b"[11] ");
    }

    #[test]
    fn prefix_colours_cycle_by_rank() {
        assert_eq!(prefix(7, 1, Some(&COLOURS)), b"\x1b[33m[7]\x1b[0m ");
    }
}
