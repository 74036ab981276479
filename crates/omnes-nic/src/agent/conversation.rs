//! Requests and answers between a process and the agent over one connection, on the process's side.
//!
//! Several threads may ask; one at a time waits for its answer. A thread that checks whether the
//! agent has gone, or returns a loan, waits for none of them. A late answer is read and discarded
//! before the next request is made, so slots stay lent however slow the agent is; a slot that such
//! an answer lends is returned. Only a request of which the agent has received a part, which does
//! not happen to a short one, ends the connection.
//!
//! Numbers of slots are reused. So each loan has a serial of its own, and a loan that its holder
//! returns after the agent has taken it back, and has lent the number once more, is not reported.

use super::channel;
use super::error::AgentError;
use super::limits::LINE_BYTES_MAX;
use super::protocol::{Answer, Lines, Request, emit};
use crate::lock::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, TryLockError};

/// See the module header.
pub(super) struct Conversation {
    connection: OwnedFd,
    talk: Mutex<Talk>,
    loans: Mutex<Loans>,
}

/// An answer, and the descriptor that came with it.
type Answered = (Answer, Option<OwnedFd>);

/// The exchange in progress.
#[derive(Default)]
struct Talk {
    /// An answer is outstanding that no thread waits for any more.
    is_owed: bool,
    lines: Lines,
    descriptors: Vec<OwnedFd>,
}

/// Loans over the connection.
#[derive(Default)]
struct Loans {
    serials: BTreeMap<u32, u64>,
    next: u64,
    /// Returned numbers that the agent has not been notified of yet.
    returns: Vec<u32>,
}

/// One loan of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Borrowed {
    pub(super) number: u32,
    serial: u64,
}

impl Conversation {
    /// Creates a conversation over a connection whose sends and receives have a time limit.
    pub(super) fn new(connection: OwnedFd) -> Self {
        Self { connection, talk: Mutex::default(), loans: Mutex::default() }
    }

    /// True if either side has ended the connection. One system call.
    pub(super) fn is_over(&self) -> bool {
        let mut polled = [PollFd::new(&self.connection, PollFlags::RDHUP)];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(_) => !polled[0].revents().is_empty(),
            Err(error) => error != Errno::INTR,
        }
    }

    /// Sends a request and waits for the answer, at most as long as the connection's limit for each
    /// part.
    pub(super) fn ask(
        &self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answered, AgentError> {
        let asked = self.ask_in_turn(&mut lock(&self.talk), request, descriptors);
        // Loans that were returned meanwhile.
        self.send_returns();
        asked
    }

    /// Requests a slot or a queue, and waits.
    pub(super) fn borrow(
        &self,
        request: Request,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(Borrowed, OwnedFd), AgentError> {
        let mut talk = lock(&self.talk);
        let asked = self.ask_in_turn(&mut talk, request, sockets);
        let borrowed = match asked {
            // Before another thread asks.
            Ok((Answer::Lent { slot }, Some(map))) => Ok((lock(&self.loans).enter(slot), map)),
            Ok(_) => Err(AgentError::Nonsense),
            Err(error) => Err(error),
        };
        drop(talk);
        self.send_returns();
        borrowed
    }

    /// Returns a loan, without waiting.
    pub(super) fn give_back(&self, borrowed: Borrowed) {
        lock(&self.loans).leave(borrowed);
        self.send_returns();
    }

    fn ask_in_turn(
        &self,
        talk: &mut Talk,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answered, AgentError> {
        self.settle(talk)?;
        self.send_returns_in_turn();
        // A request that was not sent gets no answer; but a refusal may arrive before all of a
        // request is sent.
        let sent = self.send_all(&emit(request), descriptors);
        if let Err(error @ (AgentError::Silent | AgentError::System { .. })) = sent {
            return Err(error);
        }
        let (line, given) = self.receive(talk)?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Refused { reason }) => Err(AgentError::Refused { reason }),
            Ok(answer) => Ok((answer, given)),
            Err(_) => Err(self.end(AgentError::Nonsense)),
        }
    }

    /// Receives the answer that no thread waits for any more.
    fn settle(&self, talk: &mut Talk) -> Result<(), AgentError> {
        if !talk.is_owed {
            return Ok(());
        }
        let (line, _) = self.receive(talk)?;
        if let Ok(Answer::Lent { slot }) = serde_json::from_slice(&line) {
            let mut loans = lock(&self.loans);
            let late = loans.enter(slot);
            loans.leave(late);
        }
        Ok(())
    }

    /// Notifies the agent of returned loans, unless a thread is asking: that thread does it
    /// afterwards.
    fn send_returns(&self) {
        while !lock(&self.loans).returns.is_empty() {
            let _talk = match self.talk.try_lock() {
                Ok(talk) => talk,
                Err(TryLockError::Poisoned(talk)) => talk.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if !self.send_returns_in_turn() {
                return;
            }
        }
    }

    /// False if the connection has no room now: the next thread that sends does it.
    fn send_returns_in_turn(&self) -> bool {
        let mut loans = lock(&self.loans);
        while let Some(slot) = loans.returns.last() {
            let line = emit(Request::Return { slot: *slot });
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.connection, &line, flags) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return false,
                Ok(count) if count == line.len() => {}
                // The agent takes back what is lent over a connection that ends.
                _ => drop(self.end(AgentError::Gone)),
            }
            loans.returns.pop();
        }
        true
    }

    /// Sends a whole line; the descriptors go with its first byte.
    fn send_all(
        &self,
        mut line: &[u8],
        mut descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), AgentError> {
        let bytes = line.len();
        while !line.is_empty() {
            match channel::send(self.connection.as_fd(), line, descriptors) {
                Ok(count) => (line, descriptors) = (&line[count..], &[]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let error = failure(error);
                    return Err(if line.len() < bytes { self.end(error) } else { error });
                }
            }
        }
        Ok(())
    }

    /// Receives one line, and the descriptor that came with it. A line that does not arrive in time
    /// is owed.
    fn receive(&self, talk: &mut Talk) -> Result<(Vec<u8>, Option<OwnedFd>), AgentError> {
        let mut buffer = vec![0; LINE_BYTES_MAX.min(1 << 16)];
        talk.is_owed = true;
        loop {
            let Talk { lines, descriptors, .. } = talk;
            match channel::receive(self.connection.as_fd(), &mut buffer, descriptors) {
                Ok(0) => return Err(self.end(AgentError::Gone)),
                Ok(count) => {
                    let pushed = lines.push(&buffer[..count]);
                    pushed.map_err(|_| self.end(AgentError::Nonsense))?;
                    if let Some(line) = lines.next() {
                        talk.is_owed = false;
                        let given = talk.descriptors.pop();
                        talk.descriptors.clear();
                        return Ok((line, given));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let error = failure(error);
                    let is_late = matches!(error, AgentError::Silent);
                    return Err(if is_late { error } else { self.end(error) });
                }
            }
        }
    }

    /// Ends the conversation, because answers could no longer be told apart.
    fn end(&self, because: AgentError) -> AgentError {
        // The connection may be closed already.
        let _ = shutdown(&self.connection, Shutdown::Both);
        because
    }
}

impl Loans {
    /// Notes that a number is lent: its previous holder has lost it.
    fn enter(&mut self, number: u32) -> Borrowed {
        let serial = self.next;
        self.next += 1;
        self.returns.retain(|it| *it != number);
        self.serials.insert(number, serial);
        Borrowed { number, serial }
    }

    fn leave(&mut self, borrowed: Borrowed) {
        if self.serials.get(&borrowed.number) == Some(&borrowed.serial) {
            self.serials.remove(&borrowed.number);
            self.returns.push(borrowed.number);
        }
    }
}

fn failure(source: io::Error) -> AgentError {
    match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AgentError::Silent,
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AgentError::Gone,
        _ => AgentError::System { what: "the connection to omnesd", source },
    }
}
