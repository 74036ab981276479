//! The agent: one thread that waits for its callers and serves those that are ready.

use super::channel::{Peer, agent_address, peer, unix_socket};
use super::descriptor_closer::DescriptorCloser;
use super::interfaces;
use super::kept::Kept;
use super::limits::{
    CONNECTIONS_MAX, CONNECTIONS_PER_TURN, CONNECTIONS_PER_USER_MAX, SLOTS_PER_USER,
};
use super::proof;
use super::protocol::{Answer, Form};
use super::session::{Parting, Session};
use crate::{Kernel, NicError, Page, Queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, connect, listen};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Wait before new connections are accepted again, after the agent has run out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two checks whether lent ports still belong to their tenants.
const PORTS_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of connections that the kernel holds until the agent accepts them.
const BACKLOG: i32 = 128;

/// Configuration of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// Names of the interfaces that it serves; if empty, all that have an Ethernet network and an
    /// address. In either case interfaces that appear later are included.
    pub interfaces: Vec<String>,
    /// Maximum number of slots of one user, including root.
    pub slots_per_user: u32,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self { interfaces: Vec::new(), slots_per_user: SLOTS_PER_USER }
    }
}

/// What an agent has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The firmware is attached to an interface.
    Attached {
        /// Its name.
        interface: String,
    },
    /// The firmware is detached from an interface.
    Detached {
        /// Its name.
        interface: String,
    },
    /// An interface that is to be served does not exist when the agent starts. The firmware is
    /// attached to it when a process asks for a slot there.
    Absent {
        /// Its name.
        interface: String,
    },
    /// A slot is lent.
    Lent {
        /// Its number.
        slot: u32,
        /// To whom and for what.
        tenant: Tenant,
    },
    /// A slot is free again.
    Returned {
        /// Its number.
        slot: u32,
        /// Who had it.
        tenant: Tenant,
        /// Why.
        reason: &'static str,
    },
    /// A request is refused, or a connection closed because of what arrived over it.
    Refused {
        /// The user.
        uid: u32,
        /// The process.
        pid: i32,
        /// Why.
        reason: String,
    },
}

/// Who has a slot, and for what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// The user.
    pub uid: u32,
    /// The process.
    pub pid: i32,
    /// The job's number.
    pub job: u32,
    /// The communicator's number.
    pub communicator: u32,
    /// The header's channel.
    pub channel: u8,
    /// The member's rank in the job.
    pub rank: u32,
    /// Members of the group, or sockets of the queue.
    pub size: u32,
    /// What the slot does.
    pub form: Form,
    /// The member's socket.
    pub socket: SocketAddr,
    /// Name of the interface.
    pub interface: String,
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, pid, job, communicator, rank, size, socket, interface, .. } = self;
        let form = match &self.form {
            Form::Barrier(algorithm) => format!("barrier {algorithm}"),
            Form::Tree(tree) => format!("tree {tree}"),
            Form::Queue => "receive queue".to_owned(),
        };
        write!(
            f,
            "uid {uid} pid {pid} job {job:08x} communicator {communicator} rank {rank} \
             ({size} members, {form}) at {socket} on {interface}"
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attached { interface } => write!(f, "attached to {interface}"),
            Self::Detached { interface } => write!(f, "detached from {interface}"),
            Self::Absent { interface } => {
                write!(f, "no interface {interface} yet: attached to when a rank needs it")
            }
            Self::Lent { slot, tenant } => write!(f, "lent slot {slot}: {tenant}"),
            Self::Returned { slot, tenant, reason } => {
                write!(f, "returned slot {slot} ({reason}): {tenant}")
            }
            Self::Refused { uid, pid, reason } => {
                write!(f, "refused uid {uid} pid {pid}: {reason}")
            }
        }
    }
}

/// A slot or a queue that is lent.
pub(super) struct Loan {
    pub(super) tenant: Tenant,
    pub(super) interface: u32,
    /// Ranks whose packets the slot takes, or addresses by which packets find the queue.
    pub(super) entries: usize,
    pub(super) since: Instant,
    pub(super) shown: Shown,
    /// The descriptor of the page or queue.
    pub(super) map: Arc<OwnedFd>,
    /// Sockets that hold the ports for the slot, unless the tenant gives them up; UDP sockets, so
    /// they close without waiting. Each with the address that it was bound to when the slot was
    /// lent.
    pub(super) sockets: Vec<(OwnedFd, SocketAddr)>,
}

/// Where the agent reads the state of a slot or a queue.
pub(super) enum Shown {
    Page(Page),
    Queue(Queue),
}

/// What the agent waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Stop,
    Closed,
    Listener,
    Session(u64),
    Process(u64),
}

/// Receives the agent's events.
pub(super) type Observer<'a> = dyn FnMut(&Event) + 'a;

/// The node agent. What it has attached and lent ends with this value.
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) kernel: Kernel,
    pub(super) attached: BTreeMap<u32, String>,
    /// Detached by hand: stays detached until attached by hand.
    pub(super) barred: BTreeSet<u32>,
    pub(super) loans: BTreeMap<u32, Loan>,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) descriptor_closer: DescriptorCloser,
    pub(super) kept: Kept,
    pub(super) is_ending: bool,
    listener: OwnedFd,
    next_session: u64,
    /// The connection from which on the agent searches for the next one to serve.
    next_served: u64,
    /// Time until which no connections are accepted, after descriptors have run out.
    paused_until: Option<Instant>,
}

impl Agent {
    /// Takes the agent's name in the calling thread's network namespace, loads the firmware and
    /// attaches it.
    ///
    /// # Errors
    /// [`NicError`]; if another agent is running, [`NicError::System`] that says which.
    pub fn start(config: AgentConfig, observe: &mut dyn FnMut(&Event)) -> Result<Self, NicError> {
        // First, because the owner of the name is the agent.
        let listener = take_name()?;
        let what = "cannot make an event descriptor";
        let failed = |source| NicError::System { what, source };
        let descriptor_closer = DescriptorCloser::new().map_err(failed)?;
        let kept = Kept::new().map_err(failed)?;
        let mut agent = Self {
            kernel: Kernel::load()?,
            attached: BTreeMap::new(),
            barred: BTreeSet::new(),
            loans: BTreeMap::new(),
            sessions: BTreeMap::new(),
            descriptor_closer,
            kept,
            is_ending: false,
            listener,
            next_session: 0,
            next_served: 0,
            paused_until: None,
            config,
        };
        for name in agent.wanted()? {
            match interfaces::index_of(&name) {
                Some(index) => agent.attach(index, &name, observe)?,
                None => observe(&Event::Absent { interface: name }),
            }
        }
        Ok(agent)
    }

    /// Names of the interfaces to attach to at the start.
    fn wanted(&self) -> Result<Vec<String>, NicError> {
        if !self.config.interfaces.is_empty() {
            return Ok(self.config.interfaces.clone());
        }
        let what = "cannot list the interfaces";
        let all = interfaces::usable().map_err(|source| NicError::System { what, source })?;
        Ok(all.into_iter().map(|it| it.name).collect())
    }

    /// Attaches the firmware to an interface, unless it is attached already.
    pub(super) fn attach(
        &mut self,
        index: u32,
        name: &str,
        observe: &mut Observer<'_>,
    ) -> Result<(), NicError> {
        if self.attached.contains_key(&index) {
            return Ok(());
        }
        self.kernel.attach(index)?;
        self.attached.insert(index, name.to_owned());
        observe(&Event::Attached { interface: name.to_owned() });
        Ok(())
    }

    /// Serves until `stop` is readable or root asks for the end; reports events to `observe`.
    ///
    /// # Errors
    /// [`NicError::System`] if the agent cannot wait for its callers.
    pub fn serve(
        &mut self,
        stop: BorrowedFd<'_>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<(), NicError> {
        while !self.is_ending {
            let ready = self.wait(stop);
            let what = "cannot wait for callers";
            let ready = ready.map_err(|source| NicError::System { what, source })?;
            for (source, flags) in ready {
                match source {
                    Source::Stop => return Ok(()),
                    Source::Closed => self.descriptor_closer.collect(),
                    Source::Listener => self.let_in(observe),
                    Source::Process(id) => self.part(id, Parting::Left, observe),
                    Source::Session(id) => self.attend(id, flags, observe),
                }
            }
            self.take_back_unbound(observe);
            self.work(observe);
            self.disconnect_late(observe);
        }
        Ok(())
    }

    /// Waits until a source is ready or a caller is late; returns the sources that are ready.
    fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Vec<(Source, PollFlags)>> {
        let now = Instant::now();
        let looks_at = (!self.loans.is_empty()).then(|| now + PORTS_LOOK_INTERVAL);
        let mut limit = self.paused_until.into_iter().chain(looks_at).min();
        for session in self.sessions.values_mut() {
            let deadline = if session.has_work() { Some(now) } else { session.deadline(now) };
            limit = limit.into_iter().chain(deadline).min();
        }
        let mut sources = vec![(Source::Stop, stop, PollFlags::IN)];
        sources.push((Source::Closed, self.descriptor_closer.bell(), PollFlags::IN));
        if self.paused_until.is_none() {
            sources.push((Source::Listener, self.listener.as_fd(), PollFlags::IN));
        }
        for (id, session) in &self.sessions {
            let mut flags = PollFlags::empty();
            if session.wants_to_read() && !self.descriptor_closer.is_busy_with(session.peer.uid) {
                flags |= PollFlags::IN;
            }
            if session.wants_to_write() {
                flags |= PollFlags::OUT;
            }
            sources.push((Source::Session(*id), session.connection(), flags));
            let process = session.process().map(|it| (Source::Process(*id), it, PollFlags::IN));
            sources.extend(process);
        }
        let mut polled: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let left = limit.map(|limit| limit.saturating_duration_since(now));
        let left = left.map(|left| Timespec::try_from(left).expect("limits are short"));
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.paused_until.is_some_and(|until| Instant::now() >= until) {
            self.paused_until = None;
        }
        let ready = sources.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        Ok(ready.map(|((source, ..), polled)| (*source, polled.revents())).collect())
    }

    /// Accepts new connections.
    fn let_in(&mut self, observe: &mut Observer<'_>) {
        for _ in 0..CONNECTIONS_PER_TURN {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept_with(&self.listener, flags) {
                Ok(connection) => self.welcome(connection, observe),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.paused_until = Some(Instant::now() + PAUSE);
                    return;
                }
                Err(_) => return, // No connection is waiting any more.
            }
        }
    }

    fn welcome(&mut self, connection: OwnedFd, observe: &mut Observer<'_>) {
        let Ok(peer) = peer(connection.as_fd()) else { return };
        let of_user = self.sessions.values().filter(|it| it.peer.uid == peer.uid).count();
        let mut session = Session::new(connection, peer);
        let reason = if self.sessions.len() >= CONNECTIONS_MAX {
            "too many connections"
        } else if of_user >= CONNECTIONS_PER_USER_MAX {
            "too many connections of this user"
        } else {
            self.sessions.insert(self.next_session, session);
            self.next_session += 1;
            return;
        };
        // The connection has room for a short line; whether the process reads it does not matter.
        let _ = session.answer(&Answer::Refused { reason: reason.to_owned() }, None);
        let Peer { uid, pid } = peer;
        observe(&Event::Refused { uid, pid, reason: reason.to_owned() });
        self.descriptor_closer.close(uid, session.into_remains());
    }

    /// Serves a caller that has sent something, has room, or is gone.
    fn attend(&mut self, id: u64, flags: PollFlags, observe: &mut Observer<'_>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut done = if flags.intersects(gone) { Err(Parting::Left) } else { Ok(()) };
        if flags.contains(PollFlags::OUT) {
            done = done.and_then(|()| session.write());
        }
        if flags.contains(PollFlags::IN) {
            done = done.and_then(|()| session.read());
        }
        if let Err(parting) = done {
            self.part(id, parting, observe);
        }
    }

    /// Handles requests that have arrived: one of each user, however many connections that user
    /// has, and of these in turn.
    fn work(&mut self, observe: &mut Observer<'_>) {
        let behind = self.sessions.range(self.next_served..);
        let in_turn = behind.chain(self.sessions.range(..self.next_served));
        let mut users = BTreeSet::new();
        let is_next = |(_, it): &(&u64, &Session)| it.has_work() && users.insert(it.peer.uid);
        let next: Vec<u64> = in_turn.filter(is_next).map(|(id, _)| *id).collect();
        // The first connection here is served, whoever owns the others.
        self.next_served = next.first().map_or(0, |first| first + 1);
        for id in next {
            let line = self.sessions.get_mut(&id).and_then(Session::next_line);
            let Some(line) = line else { continue };
            if let Err(parting) = self.handle(id, &line, observe) {
                self.part(id, parting, observe);
            }
        }
    }

    fn disconnect_late(&mut self, observe: &mut Observer<'_>) {
        let now = Instant::now();
        let is_late = |it: &mut Session| it.deadline(now).is_some_and(|deadline| deadline <= now);
        let late = self.sessions.iter_mut().filter_map(|(id, it)| is_late(it).then_some(*id));
        for id in late.collect::<Vec<_>>() {
            let parting = Parting::Misbehaves("it stopped in the middle of a line");
            self.part(id, parting, observe);
        }
    }

    /// Forgets a caller, and takes its slots back.
    fn part(&mut self, id: u64, parting: Parting, observe: &mut Observer<'_>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let Peer { uid, pid } = session.peer;
        let reason = match parting {
            Parting::Left => "its process has left",
            Parting::Misbehaves(reason) => {
                observe(&Event::Refused { uid, pid, reason: reason.to_owned() });
                "its process was sent away"
            }
        };
        self.take_all_back(&session.slots, reason, observe);
        self.descriptor_closer.close(uid, session.into_remains());
    }

    /// Takes back loans for sockets that have given their ports up, which may be another user's by
    /// now.
    fn take_back_unbound(&mut self, observe: &mut Observer<'_>) {
        let is_bound = |(socket, address): &(OwnedFd, SocketAddr)| {
            proof::is_bound_to(socket.as_fd(), *address)
        };
        let unbound = self.loans.iter().filter(|(_, loan)| !loan.sockets.iter().all(is_bound));
        let unbound: BTreeSet<u32> = unbound.map(|(slot, _)| *slot).collect();
        self.take_all_back(&unbound, "its port has been given up", observe);
    }

    /// Closes slots and queues, all queues in one change.
    pub(super) fn take_all_back(
        &mut self,
        slots: &BTreeSet<u32>,
        reason: &'static str,
        observe: &mut Observer<'_>,
    ) {
        self.kernel.close_queues(slots.iter().copied());
        for slot in slots {
            self.take_back(*slot, reason, observe);
        }
    }

    /// Closes a slot, and marks its page as lost, or closes a queue. No caller has it any more: its
    /// number may be another's next.
    pub(super) fn take_back(
        &mut self,
        slot: u32,
        reason: &'static str,
        observe: &mut Observer<'_>,
    ) {
        self.kernel.close(slot);
        for session in self.sessions.values_mut() {
            session.slots.remove(&slot);
        }
        if let Some(Loan { tenant, shown, map, .. }) = self.loans.remove(&slot) {
            if let Shown::Page(page) = shown {
                page.set_lost();
            }
            self.kept.add(tenant.uid, tenant.form == Form::Queue, map);
            observe(&Event::Returned { slot, tenant, reason });
        }
    }
}

/// Takes the agent's name and returns the listening socket. The error says who has the name
/// already.
fn take_name() -> Result<OwnedFd, NicError> {
    let failed = |source: io::Error| NicError::System { what: "cannot be the agent", source };
    let address = agent_address().map_err(failed)?;
    let listener = unix_socket(false).map_err(failed)?;
    match bind(&listener, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            let other = unix_socket(false).map_err(failed)?;
            let other = match connect(&other, &address) {
                Ok(()) => peer(other.as_fd()).ok(),
                Err(_) => None,
            };
            let who = other
                .map_or("somebody who does not listen".to_owned(), |Peer { uid, pid }| {
                    format!("process {pid} of user {uid}")
                });
            let reason = format!("{who} is already the agent of this network namespace");
            return Err(failed(io::Error::other(reason)));
        }
        Err(error) => return Err(failed(error.into())),
    }
    listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
    Ok(listener)
}
