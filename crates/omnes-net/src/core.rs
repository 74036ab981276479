//! The engine's inside: one endpoint, its sockets and its memory, driven step by step by the thread
//! that holds the lock.
//!
//! A packet's way in ([`inward`]): the packet is read (a large one straight into user memory, after
//! its head has been peeked at), [`Endpoint::handle_packet`] decides, or [`Endpoint::handle_run`]
//! for a run of packets, and [`Memory::place`] copies the data that are not in place yet. A
//! packet's way out ([`outward`]): [`Endpoint::poll_transmit`] hands it out,
//! [`Endpoint::continue_run`] the packets that continue it; it is lined up with others for the same
//! peer into a train, and the socket sends trains. Between ranks of one node it goes through a ring
//! in shared memory instead. [`messages`] starts and ends messages, [`broadcast`] broadcasts over
//! multicast, [`barrier`] barriers.

mod barrier;
mod blame;
mod broadcast;
mod inward;
mod messages;
mod outward;
mod pace;
mod queue;
mod standing;
mod suspension;
mod timer_grace;

pub use broadcast::{Cast, WhenFull};
pub use queue::QueueCounters;

use crate::cipher::Cipher;
use crate::clock::Clock;
use crate::core::barrier::Barriers;
use crate::core::inward::Inbound;
use crate::core::pace::{Interval, Pace};
use crate::core::queue::ReceiveQueue;
use crate::core::standing::Standing;
use crate::core::timer_grace::Occasion;
use crate::line::Line;
use crate::links::Links;
use crate::memory::Memory;
use crate::multicast::MulticastState;
use crate::operations::{Disruption, Operation, Operations, Outcome};
use crate::poller::Poller;
use crate::relay::Relay;
use crate::ring::Neighbours;
use crate::schedule::Running;
use crate::self_messages::SelfMessages;
use crate::watch::{News, Watch};
use omnes_proto::endpoint::{Endpoint, Event};
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::time::Duration;

/// Lines of trains sent in one step, and when an operation starts.
const LINES_PER_STEP: usize = 2;
const LINES_PER_SEND: usize = 4;
/// Longest time that a leaving rank waits for room in its sockets, for each time it says farewell.
const FAREWELL_MAX: Duration = Duration::from_millis(250);
/// Number of times it does so, because packets may be lost.
const FAREWELLS: usize = 2;

/// Where a step polls for packets.
#[derive(Clone, Copy)]
pub(crate) enum Look {
    /// Where packets of this rank arrive: the caller waits for one.
    At(Rank),
    /// Where packets of the group arrive.
    Group,
    /// In the NIC's pages only.
    Pages,
    /// Wherever packets can be expected.
    Anywhere,
    /// Everywhere.
    Everywhere,
}

/// See the module header.
pub(crate) struct Core {
    pub(crate) endpoint: Endpoint,
    pub(crate) links: Links,
    pub(crate) rings: Neighbours,
    pub(crate) memory: Memory,
    pub(crate) operations: Operations,
    pub(crate) watch: Watch,
    pub(crate) multicast: MulticastState,
    pub(crate) relays: Vec<Relay>,
    pub(crate) schedules: Vec<Running>,
    barriers: Barriers,
    queue: Option<ReceiveQueue>,
    /// Number of threads between [`Core::arm`] and [`Core::disarm`].
    sleepers: u32,
    own: SelfMessages,
    /// Set if the job encrypts user data.
    cipher: Option<Cipher>,
    me: Rank,
    packet_bytes: u32,
    keeping_place: Vec<usize>,
    line: Line,
    inbound: Inbound,
    /// Communicators that have been dropped, whose last broadcasts are still in progress.
    closing: Vec<CommunicatorId>,
    clock: Clock,
    pace: Pace,
    /// The last step stopped before all pending packets were sent.
    has_more: bool,
    pub(crate) standing: Standing,
}

// SAFETY: the io vectors in `line` point into `heads` of the same struct and into memory lent for
// the operations in progress, as `schedules` do; only the holder of the engine's lock dereferences
// them.
unsafe impl Send for Core {}

/// The parts of a core.
pub(crate) struct CoreParts {
    pub(crate) endpoint: Endpoint,
    pub(crate) links: Links,
    pub(crate) rings: Neighbours,
    pub(crate) memory: Memory,
    pub(crate) watch: Watch,
    pub(crate) multicast: MulticastState,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) me: Rank,
    /// Length in bytes of the job's longest IP packets.
    pub(crate) packet_bytes: u32,
    /// [`JobConfig::keeping_place`](crate::JobConfig).
    pub(crate) keeping_place: Vec<usize>,
    /// How long a caller waits before timers that had expired when it entered may fire.
    pub(crate) patience: Duration,
    /// Silence after which a rank has failed.
    pub(crate) peer_timeout: Duration,
    pub(crate) clock: Clock,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Self {
        Self {
            endpoint: parts.endpoint,
            links: parts.links,
            rings: parts.rings,
            memory: parts.memory,
            operations: Operations::default(),
            watch: parts.watch,
            multicast: parts.multicast,
            relays: Vec::new(),
            schedules: Vec::new(),
            barriers: Barriers::default(),
            queue: None,
            sleepers: 0,
            own: SelfMessages::default(),
            cipher: parts.cipher,
            me: parts.me,
            packet_bytes: parts.packet_bytes,
            keeping_place: parts.keeping_place,
            line: Line::new(),
            inbound: Inbound::new(),
            closing: Vec::new(),
            clock: parts.clock,
            pace: Pace::new(parts.patience, parts.peer_timeout),
            has_more: false,
            standing: Standing::default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Time of the last step: accurate enough for periodic work.
    pub(crate) fn stepped_at(&self) -> Instant {
        self.pace.stepped_at()
    }

    // ---- how operations end ---------------------------------------------------------------

    /// Returns the outcome of an operation if it has ended, or if a rank that concerns the caller
    /// has failed or left; the operation is gone then. `seen` is the value of [`Standing::changes`]
    /// at the caller's last check.
    pub(crate) fn try_end(
        &mut self,
        operation: Operation,
        concerns: &impl Fn(Disruption<'_>) -> bool,
        seen: &mut Option<u64>,
    ) -> Option<Outcome> {
        if let Some(outcome) = self.operations.take(operation.id) {
            return Some(outcome);
        }
        let changes = self.standing.changes;
        if seen.replace(changes) == Some(changes) {
            return None;
        }
        let failure = self.failure(concerns)?;
        self.abandon(operation);
        Some(Err(failure))
    }

    /// Says farewell, first to the ranks that watch this one; its connection notifies rank 0, too.
    pub(crate) fn leave(&mut self) {
        for _ in 0..FAREWELLS {
            self.endpoint.leave();
            self.send_all();
        }
        self.watch.leave(self.endpoint.first_failed());
        self.standing.on_own_farewell();
    }

    // ---- one step -------------------------------------------------------------------------

    /// Reads the packets that have arrived and, if there were any or every few polls, handles the
    /// consequences and the timers. True if packets arrived. Polls everywhere if that has not been
    /// done for a while: a caller that waits for one operation after the other, and finds each
    /// complete immediately, must also hear the other ranks.
    pub(crate) fn progress(&mut self, look: Look, poller: &Poller) -> bool {
        let look = if self.pace.is_sweep_due() { Look::Everywhere } else { look };
        let from_rings = self.read_rings();
        let from_pages = self.poll_pages();
        let from_queue = self.read_queue();
        let from_sockets = self.read_sockets(look, poller);
        let has_news = from_rings || from_pages || from_queue || from_sockets;
        let is_due = self.pace.on_look();
        if has_news || self.has_more {
            self.step_on(Occasion::News);
        } else if is_due {
            self.step();
        }
        has_news || self.has_more
    }

    /// Makes progress on everything while callers come and go, if none of them has for a while.
    pub(crate) fn catch_up(&mut self, poller: &Poller) {
        if self.pace.is_catch_up_due(self.now()) {
            self.progress(Look::Everywhere, poller);
            self.step();
        }
        self.watch_sometimes(poller);
    }

    /// Handles expired timers and sends what may be sent.
    pub(crate) fn step(&mut self) {
        self.step_on(Occasion::Idle);
    }

    fn step_on(&mut self, occasion: Occasion) {
        let mut now = self.now();
        let Interval { is_pause, is_long } = self.pace.begin_step(now);
        if is_pause {
            self.endpoint.on_pause(now);
        }
        if self.pace.fires(self.endpoint.poll_timeout(), now, occasion) {
            if is_long {
                self.read_all();
                now = self.now();
            }
            self.show_pages();
            self.endpoint.handle_timeout(now);
        }
        self.links.renew_membership(now);
        self.apply_events(now);
        self.transmit(now, LINES_PER_STEP);
        self.end_closing();
    }

    /// True if the last step has sent as much as one step may, and there may be more to send.
    pub(crate) fn may_send_on(&self) -> bool {
        self.has_more
    }

    /// How often this process has not run for a while, as detected by steps.
    pub(crate) fn pauses(&self) -> u64 {
        self.pace.pauses()
    }

    /// Called when a caller begins to wait.
    pub(crate) fn begin_wait(&mut self) {
        self.pace.begin_wait();
    }

    /// Reads the packets that have arrived and handles them and the timers, for a caller that asks
    /// whether an operation has ended.
    pub(crate) fn progress_for_test(&mut self, poller: &Poller) {
        if self.pace.begin_test(self.now()) {
            self.progress(Look::Everywhere, poller);
            self.step();
            self.watch_sometimes(poller);
            self.pace.end_test(self.now());
        }
    }

    /// Polls for packets of other ranks, if that has not been done for a while: a rank that starts
    /// one operation after the other and waits for none would send no more than a window, leave
    /// losses unrepaired and be considered dead.
    pub(crate) fn progress_if_stale(&mut self, poller: &Poller) {
        if self.pace.is_deaf(self.now()) {
            self.progress(Look::Anywhere, poller);
            self.step();
        }
    }

    /// Sends the packets of an operation that has just been started, before anything is read.
    pub(crate) fn send_now(&mut self) {
        self.send_at(self.now());
    }

    /// Sends all that may be sent, also to more ranks than one push reaches.
    fn send_all(&mut self) {
        let until = self.now() + FAREWELL_MAX;
        loop {
            self.send_now();
            let is_full = self.line.is_pending();
            if !is_full && !self.has_more || self.now() >= until {
                return;
            }
            if is_full {
                std::thread::yield_now();
            }
        }
    }

    /// As [`Self::send_now`], for a caller that has just read the clock.
    fn send_at(&mut self, now: Instant) {
        self.apply_events(now);
        self.transmit(now, LINES_PER_SEND);
    }

    /// As [`Self::check_watch`], but only periodically.
    pub(crate) fn watch_sometimes(&mut self, poller: &Poller) {
        if self.pace.take_watch() {
            self.check_watch(poller);
        }
    }

    /// Checks whether ranks have ended, as their connections to rank 0 show. Packets that a rank
    /// sent before it ended may still be in the sockets, and are read first.
    pub(crate) fn check_watch(&mut self, poller: &Poller) {
        while let Some(news) = self.watch.poll() {
            self.progress(Look::Everywhere, poller);
            let now = self.now();
            match news {
                News::Left(rank, cause) => self.endpoint.depart_rank(now, rank, cause),
                News::Lost(rank) => self.endpoint.fail_rank(now, rank),
            }
        }
        let now = self.now();
        self.apply_events(now);
        self.transmit(now, LINES_PER_SEND);
    }

    /// Requests wake-ups from all sources that offer them, before a sleep; false if there is news
    /// already, and then no request remains.
    pub(crate) fn arm(&mut self) -> bool {
        if !self.rings.arm() {
            return false;
        }
        self.sleepers += 1;
        self.set_pages_sleeping(true);
        self.set_queue_sleeping(true);
        let has_news = self.poll_pages() || self.has_queued();
        if has_news {
            self.disarm();
        }
        !has_news
    }

    /// Ends a sleep for which [`Self::arm`] returned true; true if another thread still sleeps.
    pub(crate) fn disarm(&mut self) -> bool {
        self.rings.disarm();
        self.sleepers -= 1;
        if self.sleepers == 0 {
            self.set_pages_sleeping(false);
            self.set_queue_sleeping(false);
        }
        self.sleepers > 0
    }

    /// Time until something must be done if no packet arrives before.
    pub(crate) fn next_timeout(&mut self) -> Option<Duration> {
        if self.has_more {
            return Some(Duration::ZERO);
        }
        let now = self.now();
        let due = self.endpoint.poll_timeout()?;
        Some(self.pace.until(due, now))
    }

    /// The socket in which packets wait for room, if any.
    pub(crate) fn blocked_socket(&self) -> Option<usize> {
        self.line.blocked_socket()
    }

    // ---- events ---------------------------------------------------------------------------

    fn apply_events(&mut self, now: Instant) {
        self.drain_moves();
        while let Some(event) = self.endpoint.poll_event(now) {
            match event {
                Event::Channel(channel, event) => self.on_channel_event(channel, event),
                Event::Broadcast(event) => self.on_broadcast_event(event),
                Event::Collective(event) => self.on_collective_event(event),
                Event::PeerFailed(rank) => {
                    self.standing.on_failure(rank);
                    self.links.on_gone(now, rank);
                }
                Event::PeerDeparted(rank) => {
                    self.standing.on_farewell(rank);
                    self.links.on_gone(now, rank);
                }
                Event::Excluded { by } => self.standing.on_exclusion(by),
            }
        }
        // Before any caller can take the outcome of a receive.
        self.pass_on();
        self.advance_schedules();
    }
}
