//! Standard output: the only place that writes there.
//!
//! One rule for all commands. A text is written completely and immediately. If its reader has
//! stopped, as `head` does, that is not a failure: [`Reader::Gone`] tells commands that they may
//! stop printing, and the status is unchanged. If the output cannot be written, as on a full disk,
//! that is [`CannotWrite`], which ends the command with status 2.

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Whether the output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// As far as is known.
    Listens,
    /// No further output will be read.
    Gone,
}

/// Output has been lost.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the output")]
pub struct CannotWrite(#[source] pub io::Error);

/// Prints `text` unchanged; an empty text only checks for a reader.
pub fn text(text: &str) -> Result<Reader> {
    Ok(bytes(text.as_bytes())?)
}

/// Prints `line` and a newline.
pub fn line(line: impl Display) -> Result<Reader> {
    text(&format!("{line}\n"))
}

/// Prints `bytes` unchanged.
pub fn bytes(bytes: &[u8]) -> Result<Reader, CannotWrite> {
    if bytes.is_empty() {
        return Ok(reader());
    }
    settle(write_all(io::stdout().lock(), bytes))
}

/// Keeps other threads from writing to standard output or error while the guard lives, if both are
/// the same file: a pipe takes a long text in pieces.
pub fn alone() -> Option<MutexGuard<'static, ()>> {
    static ARE_ONE: LazyLock<bool> = LazyLock::new(|| {
        let identity = |of: BorrowedFd<'_>| fstat(of).map(|it| (it.st_dev, it.st_ino));
        let (stdout, stderr) = (io::stdout(), io::stderr());
        identity(stdout.as_fd()).is_ok_and(|it| Ok(it) == identity(stderr.as_fd()))
    });
    static WRITES: Mutex<()> = Mutex::new(());
    ARE_ONE.then(|| WRITES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Writes `bytes` unchanged; if `output` is nonblocking, as some parents pass it, waits until it
/// has room.
pub fn write_all(mut output: impl Write + AsFd, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written =
            if bytes.is_empty() { output.flush().map(|()| 0) } else { output.write(bytes) };
        match written {
            Ok(0) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room(&output)?,
            Err(error) => return Err(error),
        }
    }
}

/// Returns when the output is writable, or never will be again.
fn wait_for_room(output: &impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(output, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a reader remains, as far as can be determined without writing.
fn reader() -> Reader {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let is_known = poll(&mut polled, Some(&Timespec::default())).is_ok();
    let is_gone = polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
    if is_known && is_gone { Reader::Gone } else { Reader::Listens }
}

/// Classifies the result of writing to standard output elsewhere.
pub fn settle(written: io::Result<()>) -> Result<Reader, CannotWrite> {
    match written {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(CannotWrite(error)),
    }
}
