//! The ranks' output: whole lines, each with its rank before it.
//!
//! One thread polls the pipes of all ranks, so that ranks that spin share the cores with one
//! sleeping thread and not with two per rank. A line is written in one piece, so lines of ranks
//! never mix; a line without an end is given one when its pipe ends, or when it reaches
//! [`LINE_BYTES_MAX`].
//!
//! Back-pressure is that of a pipeline: while our output is full, ranks wait in `write`; when
//! nobody reads it any more, or standard output cannot be written, their pipes are closed, and they
//! get PIPE. What is lost since it cannot be written is told by [`Pump::finish`]. Where standard
//! error cannot be written, as on a full disk, there is nobody to tell, and what ranks say there
//! must not end them: it is read and dropped.
//!
//! A process that left its rank's group may hold a pipe open for ever. So the end of the pipes is
//! not awaited: once all ranks are reaped, [`Pump::finish`] writes what the pipes hold, and stops.

use crate::print::{self, CannotWrite, Reader};
use std::fs::File;
use std::io::{IsTerminal, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

/// Longer lines are broken, so that a rank that writes no line ends cannot fill the memory.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Bytes taken from a pipe at once; the size of a pipe's buffer.
const READ_BYTES: usize = 1 << 16;

/// Reads per pipe after the ranks have ended; times [`READ_BYTES`] it is the largest pipe that an
/// ordinary user may have (1 MiB), and it bounds what a process that goes on writing can add.
const DRAIN_READS_MAX: usize = 16;

/// Colours that can be read on light and dark ground, in turn by rank.
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
    /// Start of a line whose end has not come.
    line: Vec<u8>,
    /// A line was broken where it is now, so that its end, if it comes next, is there already.
    is_broken: bool,
}

/// The thread that copies, and the pipe whose closing ends it.
pub struct Pump {
    ended: Receiver<Result<(), CannotWrite>>,
    stop: PipeWriter,
}

/// Pipes of all ranks, before the copying starts.
pub struct Streams {
    streams: Vec<Stream>,
    digits: usize,
}

impl Streams {
    /// None yet, for ranks `0..size`; `size` sets the width of the prefix.
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

    /// Starts to copy from all that were added. Errors if no thread or no pipe can be made.
    pub fn start(&mut self) -> std::io::Result<Pump> {
        let (stopped, stop) = std::io::pipe()?;
        let (end, ended) = channel();
        let streams = std::mem::take(&mut self.streams);
        let copy = move || {
            // Whoever has ceased to wait is told nothing.
            let _ = end.send(copy(streams, &stopped));
        };
        std::thread::Builder::new().name("output".to_owned()).spawn(copy)?;
        Ok(Pump { ended, stop })
    }
}

impl Pump {
    /// Writes what the pipes hold, and returns, at the latest at `until`; call it when all ranks
    /// are reaped. Errors if any of the ranks' output is lost, but not if it is only not read in
    /// time.
    pub fn finish(self, until: Option<Instant>) -> Result<(), CannotWrite> {
        drop(self.stop);
        await_end(&self.ended, until).unwrap_or(Ok(()))
    }
}

/// What a thread says at its end; `None` if it is still writing at `until`.
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

/// Copies until `stopped`; gives the first error, if there was one.
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

/// Whether a stream has more to come; notes an error unless there was one before.
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

/// Whether more may come out of a pipe, and into our output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Maybe,
    No,
}

impl Stream {
    /// One read, and the lines it completes.
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

    /// The line without an end, if there is one.
    fn flush(&mut self) -> Result<(), CannotWrite> {
        if self.line.is_empty() {
            return Ok(());
        }
        let mut whole = Vec::new();
        self.take_line(&mut whole);
        self.sink.write(&whole).map(drop)
    }
}

/// How long to wait for a descriptor that can be read.
#[derive(Clone, Copy)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until there is one.
    Forever,
}

/// Which of the descriptors can be read, or are at their end; in the same order.
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
    // SAFETY: `polled` is valid for `count` entries. An interrupted call leaves no bit set, and
    // the caller comes back.
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
    fn colours_go_round() {
        assert_eq!(prefix(7, 1, Some(&COLOURS)), b"\x1b[33m[7]\x1b[0m ");
    }
}
