//! A process that is connected to the agent: the received part of its request, the answer that it
//! has yet to receive, and its slots.
//!
//! Nothing here waits. A process that does not read its answers is not read from either, so at most
//! one answer per process is stored here; a process that stops in the middle of a request or an
//! answer is late after [`PATIENCE`].

use super::channel::{self, Peer};
use super::limits::{BYTES_PER_TURN, DESCRIPTORS_MAX, PATIENCE};
use super::protocol::{Answer, Lines, line};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

pub(super) struct Session {
    pub(super) peer: Peer,
    pub(super) slots: BTreeSet<u32>,
    connection: OwnedFd,
    process: Option<OwnedFd>,
    lines: Lines,
    descriptors: Vec<OwnedFd>,
    answer: Option<Outgoing>,
    /// Time since which a request has been incomplete, or an answer unread.
    waits_since: Option<Instant>,
}

/// An answer that is being sent.
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    page: Option<OwnedFd>,
}

/// Why a caller is disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parting {
    /// The process has closed its connection, or ended.
    Left,
    /// The process breaks the rules.
    Misbehaves(&'static str),
}

impl Session {
    pub(super) fn new(connection: OwnedFd, peer: Peer) -> Self {
        let process = channel::peer_process(connection.as_fd());
        Self {
            peer,
            slots: BTreeSet::new(),
            connection,
            process,
            lines: Lines::default(),
            descriptors: Vec::new(),
            answer: None,
            waits_since: None,
        }
    }

    pub(super) fn connection(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Becomes readable when the process ends.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(OwnedFd::as_fd)
    }

    /// Reads at most the bytes of one turn.
    pub(super) fn read(&mut self) -> Result<(), Parting> {
        let mut buffer = [0; BYTES_PER_TURN];
        let into = &mut self.descriptors;
        let count = match channel::receive(self.connection.as_fd(), &mut buffer, into) {
            Ok(0) => return Err(Parting::Left),
            Ok(count) => count,
            Err(error) if is_later(&error) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Parting::Misbehaves("omnesd could not take a descriptor"));
            }
            Err(_) => return Err(Parting::Left),
        };
        if self.descriptors.len() > DESCRIPTORS_MAX {
            return Err(Parting::Misbehaves("too many descriptors"));
        }
        let pushed = self.lines.push(&buffer[..count]);
        pushed.map_err(|_| Parting::Misbehaves("the request is too long"))
    }

    /// The next request, unless the previous one's answer is still unread.
    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        let line = if self.answer.is_some() { None } else { self.lines.next() };
        if line.is_some() {
            self.waits_since = None;
        }
        line
    }

    /// True if there is a request to handle.
    pub(super) fn has_work(&self) -> bool {
        self.answer.is_none() && self.lines.has_line()
    }

    /// The descriptors that came with a request.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Descriptors that no request is pending for: the next request's may have arrived with it.
    pub(super) fn take_unused_descriptors(&mut self) -> Vec<OwnedFd> {
        if self.lines.is_empty() { self.take_descriptors() } else { Vec::new() }
    }

    /// True if requests may be read from the process.
    pub(super) fn wants_to_read(&self) -> bool {
        self.answer.is_none() && !self.lines.has_line()
    }

    /// True if an answer is still to be sent.
    pub(super) fn wants_to_write(&self) -> bool {
        self.answer.is_some()
    }

    /// Answers, as far as the connection has room now; `page` is the descriptor that goes along.
    pub(super) fn answer(&mut self, answer: &Answer, page: Option<OwnedFd>) -> Result<(), Parting> {
        self.answer = Some(Outgoing { bytes: line(answer), sent: 0, page });
        self.write()
    }

    /// Sends what the connection has room for.
    pub(super) fn write(&mut self) -> Result<(), Parting> {
        while let Some(answer) = &mut self.answer {
            let page: Vec<BorrowedFd<'_>> = answer.page.iter().map(OwnedFd::as_fd).collect();
            match channel::send(self.connection.as_fd(), &answer.bytes[answer.sent..], &page) {
                Ok(count) => {
                    answer.page = None; // It went with the first byte.
                    answer.sent += count;
                }
                Err(error) if is_later(&error) => break,
                Err(_) => return Err(Parting::Left),
            }
            if answer.sent == answer.bytes.len() {
                self.answer = None;
                self.waits_since = None;
            }
        }
        Ok(())
    }

    /// Notes whether the caller is in the middle of a request or an answer; returns its deadline if
    /// so.
    pub(super) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        let is_waiting = self.answer.is_some() || !(self.lines.is_empty() || self.has_work());
        self.waits_since = is_waiting.then(|| self.waits_since.unwrap_or(now));
        self.waits_since.map(|since| since + PATIENCE)
    }

    /// Descriptors to be closed by a thread that may wait.
    pub(super) fn into_remains(self) -> Vec<OwnedFd> {
        let Self { connection, mut descriptors, .. } = self;
        descriptors.push(connection);
        descriptors
    }
}

/// True if the call has to be repeated later.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
