//! Agents and processes for the tests of the agent.
//!
//! An agent runs in a thread inside a host's namespace. Its callers are threads of the test, which
//! are root, or processes of an ordinary user: the test program itself, started again inside the
//! namespace ([`Actor`]), which follows orders line by line.
#![allow(dead_code, clippy::unwrap_used)] // No test uses everything; a failed unwrap is a failure.

pub mod actor;

use super::common::group::{barrier_plan, leave_checksum_out, rank, socket, socket_address};
use super::common::hosts::Host;
use super::common::packets::step;
use omnes_nic::agent::{Agent, AgentConfig, Client, Event};
use omnes_nic::{NicError, Page, SlotPlan};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A limit for events that happen within milliseconds; reached only by a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// A user without any rights.
pub const NOBODY: u32 = 65534;

/// Waits until a condition holds; fails the test if it never does.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// An agent that serves a host; ends when dropped.
pub struct Served {
    host: Host,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Served {
    /// Starts an agent, which serves when this returns.
    pub fn start(host: &Host, config: AgentConfig) -> Self {
        let (stop, stopped) = rustix_pipe();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (is_up, up): (_, Receiver<Result<(), NicError>>) = channel();
        let (inside, seen) = (host.clone(), Arc::clone(&events));
        let thread = std::thread::spawn(move || {
            inside.inside(|| {
                let mut observe = |event: &Event| seen.lock().unwrap().push(event.clone());
                match Agent::start(config, &mut observe) {
                    Ok(mut agent) => {
                        is_up.send(Ok(())).unwrap();
                        agent.serve(stopped.as_fd(), &mut observe).unwrap();
                    }
                    Err(error) => is_up.send(Err(error)).unwrap(),
                }
            });
        });
        up.recv().unwrap().unwrap();
        Self { host: host.clone(), stop: Some(stop), thread: Some(thread), events }
    }

    /// An agent with the usual settings.
    pub fn usual(host: &Host) -> Self {
        Self::start(host, AgentConfig::default())
    }

    /// What the agent has reported until now, as lines of a log.
    pub fn log(&self) -> Vec<String> {
        self.events.lock().unwrap().iter().map(ToString::to_string).collect()
    }

    /// Waits for a line of the log that contains all of `words`.
    pub fn wait_for(&self, words: &[&str]) {
        let is_it = |line: &String| words.iter().all(|word| line.contains(word));
        wait_until(&format!("the log has {words:?}: {:?}", self.log()), || {
            self.log().iter().any(is_it)
        });
    }

    /// Makes the agent stop at the next event that it reports, for as long as the returned value is
    /// kept.
    pub fn stop(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap()
    }

    /// A connection as root.
    pub fn client(&self) -> Arc<Client> {
        Arc::new(self.host.inside(Client::connect).unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok(), "the agent's thread has panicked");
    }
}

/// Its second end becomes readable when the first is dropped.
fn rustix_pipe() -> (OwnedFd, OwnedFd) {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    (one.into(), other.into())
}

/// A member of a group with one member per host.
pub struct Member {
    pub index: usize,
    pub socket: UdpSocket,
    pub plan: SlotPlan,
}

impl Member {
    /// Member `index` of `size` that runs barriers by dissemination.
    pub fn new(host: &Host, index: usize, size: usize) -> Self {
        let plan = barrier_plan(index, size, "dissemination", false);
        Self { index, socket: socket(host, index, false), plan }
    }

    /// Enters a barrier: the first step leaves as a packet. For two members.
    pub fn enter(&self, epoch: u32) {
        enter(&self.socket, self.index, epoch);
    }
}

/// As [`Member::enter`].
pub fn enter(socket: &UdpSocket, index: usize, epoch: u32) {
    let other = 1 - index;
    let packet = step(rank(index), rank(other), epoch, 0);
    socket.send_to(&packet, socket_address(other)).unwrap();
}

/// Waits until a barrier is done.
pub fn wait_done(page: &Page, epoch: u32) {
    wait_until(&format!("barrier {epoch} is done"), || page.done() == epoch);
}

/// A socket for steps at an address, in the calling thread's namespace.
pub fn bind(index: usize) -> UdpSocket {
    let socket = UdpSocket::bind(socket_address(index)).unwrap();
    leave_checksum_out(&socket);
    socket
}
