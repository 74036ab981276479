//! The process's side: borrowing slots from the agent.

use super::channel::{self, Peer, agent_address, unix_socket};
use super::conversation::{Borrowed, Conversation};
use super::error::AgentError;
use super::limits::ANSWER_WAIT;
use super::protocol::{Answer, Report, Request};
use crate::{NicError, Page, Queue, QueuePlan, SlotPlan};
use rustix::io::Errno;
use rustix::net::{connect, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A connection to the agent. All slots borrowed over it are returned when it and they are dropped,
/// or when the process ends.
pub struct Client(Conversation);

/// A slot that the agent has lent; returned when dropped.
pub struct Lent {
    client: Arc<Client>,
    borrowed: Borrowed,
    page: Page,
}

/// A receive queue that the agent has lent; returned when dropped.
pub struct LentQueue {
    client: Arc<Client>,
    borrowed: Borrowed,
    pub(crate) queue: Queue,
}

/// Borrows one slot over a connection of its own; see [`Client::lend`].
///
/// # Errors
/// [`NicError::Agent`], or an error if the page cannot be mapped.
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
    /// [`AgentError::Absent`]; [`AgentError::NotRoot`], because such a listener must not get the
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
        let client = Self(Conversation::new(connection));
        client.ask_and_get_done(Request::Hello)?;
        Ok(client)
    }

    /// Borrows a slot. `socket` is bound to the plan's address, shares its port with no other
    /// socket, and must not be closed before the slot; `group` likewise for the plan's group.
    ///
    /// # Errors
    /// [`NicError::Agent`], or an error if the page cannot be mapped.
    pub fn lend(
        self: &Arc<Self>,
        plan: &SlotPlan,
        socket: BorrowedFd<'_>,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Lent, NicError> {
        let descriptors: Vec<BorrowedFd<'_>> = [socket].into_iter().chain(group).collect();
        let request = Request::Lend { plan: Box::new(plan.clone()) };
        let (borrowed, map) = self.0.borrow(request, &descriptors)?;
        match Page::map(map.as_fd()) {
            Ok(page) => Ok(Lent { client: Arc::clone(self), borrowed, page }),
            Err(error) => {
                self.0.give_back(borrowed);
                Err(error)
            }
        }
    }

    /// Borrows a receive queue; `sockets` are the plan's, then its group's.
    ///
    /// # Errors
    /// [`NicError::Agent`], or an error if the queue cannot be mapped.
    pub fn lend_queue(
        self: &Arc<Self>,
        plan: &QueuePlan,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<LentQueue, NicError> {
        plan.check()?;
        let request = Request::LendQueue { plan: plan.clone() };
        let (borrowed, map) = self.0.borrow(request, sockets)?;
        match Queue::map(map.as_fd()) {
            Ok(queue) => Ok(LentQueue { client: Arc::clone(self), borrowed, queue }),
            Err(error) => {
                self.0.give_back(borrowed);
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
        match self.0.ask(Request::List, &[])? {
            (Answer::Report(report), _) => Ok(report),
            _ => Err(AgentError::Nonsense),
        }
    }

    /// Asks the agent to attach the firmware to an interface; for root.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn attach(&self, interface: &str) -> Result<(), AgentError> {
        self.ask_and_get_done(Request::Attach { interface: interface.to_owned() })
    }

    /// Asks the agent to detach the firmware from an interface, which it then leaves alone until
    /// [`Self::attach`]; for root. Slots that are lent there are lost if `by_force`, and a reason
    /// to refuse otherwise.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn detach(&self, interface: &str, by_force: bool) -> Result<(), AgentError> {
        self.ask_and_get_done(Request::Detach { interface: interface.to_owned(), by_force })
    }

    /// Asks the agent to end; for root. All slots are lost.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn end(&self) -> Result<(), AgentError> {
        match self.ask_and_get_done(Request::End) {
            // The agent has ended before its answer was sent.
            Err(AgentError::Gone) => Ok(()),
            other => other,
        }
    }

    /// True if the agent has ended or has closed the connection: then no packet finds its slots.
    /// One system call; does not wait for threads that are asking.
    pub fn is_gone(&self) -> bool {
        self.0.is_over()
    }

    fn ask_and_get_done(&self, request: Request) -> Result<(), AgentError> {
        match self.0.ask(request, &[])? {
            (Answer::Done, _) => Ok(()),
            _ => Err(AgentError::Nonsense),
        }
    }
}

impl Lent {
    /// The slot's page.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// The slot's number.
    pub fn slot(&self) -> u32 {
        self.borrowed.number
    }

    /// True if the slot is lost, because the agent has taken it back or has gone; see
    /// [`Client::is_gone`].
    pub fn is_lost(&self) -> bool {
        self.page.is_lost() || self.client.is_gone()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.client.0.give_back(self.borrowed);
    }
}

impl Drop for LentQueue {
    fn drop(&mut self) {
        self.client.0.give_back(self.borrowed);
    }
}
