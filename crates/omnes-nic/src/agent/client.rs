//! A process's side: borrowing slots from the agent.

use super::channel::{self, Peer, agent_address, unix_socket};
use super::error::AgentError;
use super::limits::{ANSWER_WAIT, LINE_BYTES_MAX};
use super::protocol::{Answer, Lines, Report, Request, emit};
use crate::{NicError, Page, Queue, QueuePlan, SlotPlan};
use rustix::io::Errno;
use rustix::net::{RecvFlags, connect, recv, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection to the agent. All slots borrowed over it go back when it and they are dropped, or
/// when the process ends.
pub struct Client {
    /// `None` after a failure: answers could no longer be told apart.
    connection: Mutex<Option<OwnedFd>>,
}

/// A slot that the agent has lent; given back when dropped.
pub struct Lent {
    client: Arc<Client>,
    slot: u32,
    page: Page,
}

/// A receive queue that the agent has lent; given back when dropped.
pub struct LentQueue {
    client: Arc<Client>,
    number: u32,
    pub(crate) queue: Queue,
}

/// Borrows one slot over a connection of its own; see [`Client::lend`].
///
/// # Errors
/// [`NicError::Agent`], or that the page cannot be mapped.
pub fn borrow(
    plan: &SlotPlan,
    socket: BorrowedFd<'_>,
    group: Option<BorrowedFd<'_>>,
) -> Result<Lent, NicError> {
    Arc::new(Client::connect()?).lend(plan, socket, group)
}

impl Client {
    /// Connects to the agent of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`AgentError::Absent`]; [`AgentError::NotRoot`], for then who listens must not get the
    /// job's keys; [`AgentError::Refused`] for another version of the protocol.
    pub fn connect() -> Result<Self, AgentError> {
        let failed = |source: io::Error| AgentError::System { what: "no connection", source };
        let connection = unix_socket(true).map_err(failed)?;
        for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            let set = sockopt::set_socket_timeout(&connection, which, Some(ANSWER_WAIT));
            set.map_err(|error| failed(error.into()))?;
        }
        let address = agent_address().map_err(failed)?;
        connect(&connection, &address).map_err(|error| match error {
            Errno::CONNREFUSED => AgentError::Absent,
            Errno::AGAIN => AgentError::Silent,
            error => failed(error.into()),
        })?;
        let Peer { uid, pid } = channel::peer(connection.as_fd()).map_err(failed)?;
        if uid != 0 {
            return Err(AgentError::NotRoot { uid, pid });
        }
        let client = Self { connection: Mutex::new(Some(connection)) };
        client.ask_and_get_done(Request::Hello)?;
        Ok(client)
    }

    /// Borrows a slot. `socket` is bound to the plan's address, has no other socket beside it at
    /// that port, and may go no earlier than the slot; `group` likewise for the plan's group.
    ///
    /// # Errors
    /// [`NicError::Agent`], or that the page cannot be mapped.
    pub fn lend(
        self: &Arc<Self>,
        plan: &SlotPlan,
        socket: BorrowedFd<'_>,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Lent, NicError> {
        let descriptors: Vec<BorrowedFd<'_>> = [socket].into_iter().chain(group).collect();
        let request = Request::Lend { plan: Box::new(plan.clone()) };
        let (slot, map) = self.ask_and_get_map(request, &descriptors)?;
        match Page::map(map.as_fd()) {
            Ok(page) => Ok(Lent { client: Arc::clone(self), slot, page }),
            Err(error) => {
                self.give_back(slot);
                Err(error)
            }
        }
    }

    /// Borrows a receive queue; `sockets` are those of the plan, then its group's.
    ///
    /// # Errors
    /// [`NicError::Agent`], or that the queue cannot be mapped.
    pub fn lend_queue(
        self: &Arc<Self>,
        plan: &QueuePlan,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<LentQueue, NicError> {
        plan.check()?;
        let request = Request::LendQueue { plan: plan.clone() };
        let (number, map) = self.ask_and_get_map(request, sockets)?;
        match Queue::map(map.as_fd()) {
            Ok(queue) => Ok(LentQueue { client: Arc::clone(self), number, queue }),
            Err(error) => {
                self.give_back(number);
                Err(error)
            }
        }
    }

    /// What the agent has attached and lent; of other users' slots only their number, unless root
    /// asks.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn report(&self) -> Result<Report, AgentError> {
        match self.ask(Request::List, &[])? {
            (Answer::Report(report), _) => Ok(report),
            _ => Err(AgentError::Nonsense),
        }
    }

    /// Lets the agent attach the firmware to an interface; for root.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn attach(&self, interface: &str) -> Result<(), AgentError> {
        self.ask_and_get_done(Request::Attach { interface: interface.to_owned() })
    }

    /// Lets the agent take the firmware off an interface, which it then leaves alone until
    /// [`Self::attach`]; for root. Slots that are lent there are lost if `by_force`, and a reason
    /// to refuse otherwise.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn detach(&self, interface: &str, by_force: bool) -> Result<(), AgentError> {
        self.ask_and_get_done(Request::Detach { interface: interface.to_owned(), by_force })
    }

    /// Lets the agent end; for root. All slots are lost.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn end(&self) -> Result<(), AgentError> {
        match self.ask_and_get_done(Request::End) {
            // It was quicker than its answer.
            Err(AgentError::Gone) => Ok(()),
            other => other,
        }
    }

    /// True if the agent has ended or has closed the connection: then no packet finds its slots.
    /// One system call.
    pub fn is_gone(&self) -> bool {
        let mut byte = [0];
        match &*self.connection() {
            None => true,
            Some(connection) => {
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                match recv(connection, &mut byte[..], flags) {
                    Ok((count, _)) => count == 0,
                    Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
                }
            }
        }
    }

    fn connection(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, slot: u32) {
        let mut connection = self.connection();
        let Some(open) = &*connection else { return };
        if send_all(open.as_fd(), &emit(Request::Return { slot }), &[]).is_err() {
            // The agent takes back what is lent over a connection that closes.
            *connection = None;
        }
    }

    fn ask_and_get_done(&self, request: Request) -> Result<(), AgentError> {
        match self.ask(request, &[])? {
            (Answer::Done, _) => Ok(()),
            _ => Err(AgentError::Nonsense),
        }
    }

    fn ask_and_get_map(
        &self,
        request: Request,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(u32, OwnedFd), AgentError> {
        match self.ask(request, sockets)? {
            (Answer::Lent { slot }, Some(map)) => Ok((slot, map)),
            _ => Err(AgentError::Nonsense),
        }
    }

    /// Asks and waits for the answer, at most [`ANSWER_WAIT`] for each part of it.
    fn ask(
        &self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Option<OwnedFd>), AgentError> {
        let mut connection = self.connection();
        let Some(open) = &*connection else { return Err(AgentError::Gone) };
        let sent = send_all(open.as_fd(), &emit(request), descriptors);
        let received = match sent {
            Err(AgentError::Silent) => Err(AgentError::Silent),
            // A refusal may have come before all was sent.
            _ => receive_line(open.as_fd()),
        };
        let (line, given) = match received {
            Ok(received) => received,
            Err(error) => {
                *connection = None;
                return Err(error);
            }
        };
        match serde_json::from_slice(&line) {
            Ok(Answer::Refused { reason }) => Err(AgentError::Refused { reason }),
            Ok(answer) => Ok((answer, given)),
            Err(_) => {
                *connection = None;
                Err(AgentError::Nonsense)
            }
        }
    }
}

/// Sends a whole line; the descriptors go with its first byte.
fn send_all(
    connection: BorrowedFd<'_>,
    mut line: &[u8],
    mut descriptors: &[BorrowedFd<'_>],
) -> Result<(), AgentError> {
    while !line.is_empty() {
        match channel::send(connection, line, descriptors) {
            Ok(count) => (line, descriptors) = (&line[count..], &[]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(())
}

/// Receives one line, and the descriptor that came with it.
fn receive_line(connection: BorrowedFd<'_>) -> Result<(Vec<u8>, Option<OwnedFd>), AgentError> {
    let (mut lines, mut descriptors) = (Lines::default(), Vec::new());
    let mut buffer = vec![0; LINE_BYTES_MAX.min(1 << 16)];
    loop {
        match channel::receive(connection, &mut buffer, &mut descriptors) {
            Ok(0) => return Err(AgentError::Gone),
            Ok(count) => {
                lines.push(&buffer[..count]).map_err(|_| AgentError::Nonsense)?;
                if let Some(line) = lines.next() {
                    return Ok((line, descriptors.pop()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failure(error)),
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

impl Lent {
    /// The slot's page.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// The slot's number.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// True if the slot is lost, for the agent has taken it back or has gone; see
    /// [`Client::is_gone`].
    pub fn is_lost(&self) -> bool {
        self.page.is_lost() || self.client.is_gone()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.client.give_back(self.slot);
    }
}

impl Drop for LentQueue {
    fn drop(&mut self) {
        self.client.give_back(self.number);
    }
}
