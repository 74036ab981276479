//! Reliable broadcast over multicast: one packet from the root reaches all ranks, and packets that
//! some ranks have lost are repaired.
//!
//! Source: the broadcast paper, all designs of which are values of [`Policy`] [BC-R4–R7, R9–R23].
//! Beyond the paper: gap reports with all gaps in one map, repairs by unicast, by multicast, or of
//! different losses by one packet, numbered repairs, timers that follow measured round trips, and
//! questions where no other packet would bring an answer.
//!
//! Path of a packet:
//!
//! ```text
//!   root: send ─▶ Sending numbers it ─▶ emit ─▶ everybody
//!   else: arrive ─▶ Incoming places it ─▶ report ─▶ Collector of whom Roles names ─▶ emit: repairs
//! ```
//!
//! A group is closed with its communicator, and forgotten when nothing in it is in progress any
//! more (`closed_groups.rs`).
//!
//! Guarantees: every member receives the messages of a root to a group once and in order, even if
//! packets are lost, duplicated or reordered; memory is bounded by windows and pool; without loss,
//! the root sends each packet once, however many ranks receive it. If a member fails, all groups
//! that contain it are broken: operations in progress in them end with an error that names it, as
//! no rank can know which data it would have forwarded.
//!
//! Assumes: all members open a group with the same settings and post their receives in the order of
//! the root's messages. The caller drains moves, transmits and events after each input.
//!
//! Deviations: D-05 with a full window the root waits for acknowledgements that are due anyway,
//! where [BC-R7] sends everything again; D-06 repairs may go to all ranks, also several packets
//! combined in one, contrary to [BC-R9]; D-07 each receiver advertises credits for its own buffers,
//! instead of every rank counting them for every other [BC-R23], which takes memory for all pairs.
//!
//! Cost: one packet per payload and, with the default policy, one acknowledgement per receiver for
//! a lone message, delayed if the message is short, and a sixteenth of one for a message in a
//! stream. State: less than 2 KiB per (group, root) in use at a receiver and 80 B for each buffered
//! packet; 80 B per reporter, and 60 KiB at a rank that repairs. Handling a report takes a few
//! steps, however many ranks report.

mod answer_timer;
mod arrive;
mod closed_groups;
mod collector;
mod config;
mod emit;
mod history;
mod incoming;
mod interface;
mod least;
mod policy;
mod roles;
mod sending;
mod silence;
mod slots;
mod stash;
mod stream;
#[cfg(test)]
mod tests;
mod wants;

pub use config::{BroadcastConfig, CheckedBroadcast};
pub(crate) use emit::Outbound;
pub use interface::{
    BroadcastCounters, BroadcastError, CastGroupConfig, CastMessage, Event, GroupId,
};
pub use policy::{AckRule, Asking, Collection, GapReports, Hold, Policy, PolicyError};
pub(crate) use silence::Suspicion;

use crate::lane::earliest;
use crate::packet::{Move, ReceiveId, Segment, SendId};
use closed_groups::DormantStreams;
use omnes_wire::{Instant, Rank};
use slab::Slab;
use slots::{Common, Slots};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stream::{Stream, StreamKey};

/// Most streams of groups not open yet whose packets are remembered.
const KNOCKS_MAX: usize = 256;

#[derive(Debug)]
struct Group {
    config: CastGroupConfig,
    broken_by: Option<Rank>,
}

/// One rank's end of all broadcasts; see the module header.
#[derive(Debug)]
pub struct Broadcast {
    index: usize,
    me: Rank,
    size: u32,
    common: Common,
    groups: BTreeMap<GroupId, Group>,
    streams: Slab<Stream>,
    /// Next timer of each stream, by index; contiguous, because few are due at a time. The entries
    /// of ready streams may be out of date.
    wakes: Vec<Option<Instant>>,
    by_key: BTreeMap<StreamKey, usize>,
    latest: Cell<usize>,
    sends: Slab<()>,
    /// Index of the stream of each receive in progress.
    receives: Slab<usize>,
    ready: VecDeque<usize>,
    knocks: BTreeSet<StreamKey>,
    dormant: DormantStreams,
    failed: BTreeSet<Rank>,
    departed: BTreeSet<Rank>,
    heard: BTreeSet<Rank>,
    hellos: u32,
    suspicions: BTreeSet<Suspicion>,
    /// Streams whose timers are due; kept to reuse the allocation.
    due: Vec<usize>,
    wake_at: Option<Instant>,
}

impl Broadcast {
    /// Creates the end of rank `me` of `size` ranks; `index` is returned in transmits and
    /// placements.
    pub fn new(index: usize, me: Rank, size: u32, config: CheckedBroadcast) -> Self {
        let common = Common {
            me,
            slots: Slots::new(config.pool_slots),
            config,
            moves: VecDeque::new(),
            events: VecDeque::new(),
            counters: BroadcastCounters::default(),
            coded_parts: Vec::new(),
            active: 0,
        };
        Self {
            index,
            me,
            size,
            common,
            groups: BTreeMap::new(),
            streams: Slab::new(),
            wakes: Vec::new(),
            by_key: BTreeMap::new(),
            latest: Cell::new(0),
            sends: Slab::new(),
            receives: Slab::new(),
            ready: VecDeque::new(),
            knocks: BTreeSet::new(),
            dormant: DormantStreams::default(),
            failed: BTreeSet::new(),
            departed: BTreeSet::new(),
            heard: BTreeSet::new(),
            hellos: 0,
            suspicions: BTreeSet::new(),
            due: Vec::new(),
            wake_at: None,
        }
    }

    /// The checked settings.
    pub fn config(&self) -> &CheckedBroadcast {
        &self.common.config
    }

    /// Counters of the machine.
    pub fn counters(&self) -> &BroadcastCounters {
        &self.common.counters
    }

    /// Number of free buffers in the pool.
    pub fn free_slots(&self) -> u32 {
        self.common.slots.free_slots()
    }

    /// Number of streams in which this rank expects or is receiving something; they share the space
    /// that it advertises.
    pub fn active_streams(&self) -> u32 {
        self.common.active
    }

    /// Announces this rank by multicast; see [`Self::heard`].
    pub fn announce(&mut self) {
        self.hellos = 1;
    }

    /// Number of ranks whose multicast has reached this rank.
    pub fn heard(&self) -> usize {
        self.heard.len()
    }

    // ---- groups and streams ---------------------------------------------------------------

    /// Opens a group; until then its packets are discarded, and repaired later. No effect if the
    /// group is already open. A group with a failed member is broken from the start.
    pub fn open(&mut self, group: CastGroupConfig) {
        let id = group.id;
        if self.groups.contains_key(&id) {
            return;
        }
        let broken_by = self.failed.iter().find(|rank| group.nodes.contains(**rank)).copied();
        self.groups.insert(id, Group { config: group, broken_by });
        let knocks = self.knocks.iter().filter(|key| key.group == id);
        let knocks: Vec<StreamKey> = knocks.copied().collect();
        for key in knocks {
            self.knocks.remove(&key);
            let Some(at) = self.stream(key).filter(|_| broken_by.is_none()) else { continue };
            if let Some(incoming) = &mut self.streams[at].incoming {
                incoming.lacks_rest = true;
                incoming.arrivals.answer();
            }
            self.schedule(at);
        }
    }

    fn group(&self, id: GroupId) -> Result<&Group, BroadcastError> {
        let group = self.groups.get(&id).ok_or(BroadcastError::NoSuchGroup { id })?;
        match group.broken_by {
            Some(rank) => Err(BroadcastError::PeerFailed { rank }),
            None => Ok(group),
        }
    }

    /// Index of an existing stream.
    fn find(&self, key: StreamKey) -> Option<usize> {
        let latest = self.latest.get();
        if self.streams.get(latest).is_some_and(|stream| stream.key == key) {
            return Some(latest);
        }
        let at = *self.by_key.get(&key)?;
        self.latest.set(at);
        Some(at)
    }

    /// Index of a stream, created on first use; `None` if this rank has no part in it.
    fn stream(&mut self, key: StreamKey) -> Option<usize> {
        if let Some(at) = self.find(key) {
            return Some(at);
        }
        let group = self.groups.get(&key.group)?;
        let config = &self.common.config;
        let mut stream = Stream::new(&group.config, key.root, self.me, config)?;
        self.departed.iter().for_each(|rank| stream.forget(*rank));
        if self.departed.contains(&key.root) {
            stream.end_receives(&mut self.common, key.root);
        }
        if self.streams.is_empty() {
            self.streams.reserve_exact(1); // Most jobs have one root.
            self.wakes.reserve_exact(1);
        }
        stream.is_closed = self.dormant.is_closed(key.group.communicator);
        let at = self.streams.insert(stream);
        if at == self.wakes.len() {
            self.wakes.push(None);
        }
        self.by_key.insert(key, at);
        Some(at)
    }

    /// Indices of all streams.
    fn places(&self) -> Vec<usize> {
        self.streams.iter().map(|(at, _)| at).collect()
    }

    /// Appends a stream to the queue of streams that may have something to send.
    fn schedule(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        if !stream.is_ready {
            stream.is_ready = true;
            self.ready.push_back(at);
        }
        self.note_deadline(at);
    }

    fn note_deadline(&mut self, at: usize) {
        self.wakes[at] = self.streams[at].deadline();
        self.wake_at = earliest([self.wake_at, self.wakes[at]]);
    }

    /// Updates the number of active streams.
    fn recount(&mut self, at: usize) {
        let Some(incoming) = &mut self.streams[at].incoming else { return };
        let is_active = incoming.is_active();
        match (std::mem::replace(&mut incoming.is_counted, is_active), is_active) {
            (false, true) => self.common.active += 1,
            (true, false) => self.common.active -= 1,
            _ => {}
        }
    }

    // ---- commands -------------------------------------------------------------------------

    /// True if a further copied message of this rank fits into the window [BC-R5].
    pub fn has_room(&self, group: GroupId) -> bool {
        let Some(at) = self.find(StreamKey { group, root: self.me }) else { return true };
        let stream = &self.streams[at];
        let most = roles::window_messages(&stream.policy, self.common.config.window_messages);
        stream.sending.as_ref().is_none_or(|sending| sending.messages() < most as usize)
    }

    /// Starts to broadcast a message.
    ///
    /// # Errors
    /// [`BroadcastError`] names the invalid value; the call had no effect then.
    pub fn send(&mut self, message: CastMessage) -> Result<SendId, BroadcastError> {
        let CastMessage { group, bytes, reply } = message;
        self.group(group)?;
        let bytes_max = self.common.config.message_bytes_max();
        if bytes > bytes_max {
            return Err(BroadcastError::MessageTooLarge { bytes, bytes_max });
        }
        let root = self.me;
        let at = self.stream(StreamKey { group, root });
        let at = at.ok_or(BroadcastError::NoSuchRoot { root })?;
        let id = SendId(self.sends.insert(()) as u32);
        self.common.counters.messages_sent += 1;
        let stream = &mut self.streams[at];
        match &mut stream.sending {
            Some(sending) if stream.roles.takers > 1 => {
                sending.push(&self.common.config, id, bytes, reply);
            }
            _ => self.common.events.push_back(Event::Sent { id }),
        }
        self.schedule(at);
        Ok(id)
    }

    /// Posts a receive for the next message of `root` to the group for which none is posted. Its
    /// memory holds `capacity` bytes.
    ///
    /// # Errors
    /// [`BroadcastError`] names the invalid value; the call had no effect then.
    pub fn receive(
        &mut self,
        now: Instant,
        group: GroupId,
        root: Rank,
        capacity: u64,
    ) -> Result<ReceiveId, BroadcastError> {
        let nodes = &self.group(group)?.config.nodes;
        if root == self.me || !nodes.contains(root) {
            return Err(BroadcastError::NoSuchRoot { root });
        }
        let bytes_max = self.common.config.message_bytes_max();
        if capacity > bytes_max {
            return Err(BroadcastError::MessageTooLarge { bytes: capacity, bytes_max });
        }
        let at = self.stream(StreamKey { group, root });
        let at = at.ok_or(BroadcastError::NotLeader { rank: self.me })?;
        let id = ReceiveId(self.receives.insert(at) as u32);
        let stream = &mut self.streams[at];
        if let Some(incoming) = &mut stream.incoming {
            incoming.post(now, &mut self.common, id, capacity);
        }
        stream.free(&mut self.common);
        if self.departed.contains(&root) {
            stream.end_receives(&mut self.common, root);
        }
        self.recount(at);
        self.schedule(at);
        Ok(id)
    }

    /// Number of bytes from the start of the message that have arrived without a gap; 0 if the
    /// receive is not in progress.
    pub fn received_bytes(&self, id: ReceiveId) -> u64 {
        let at = self.receives.get(id.0 as usize);
        let stream = at.and_then(|at| self.streams.get(*at));
        let incoming = stream.and_then(|stream| stream.incoming.as_ref());
        incoming.map_or(0, |incoming| incoming.received_bytes(&self.common.config, id))
    }

    /// True if nothing is queued, unacknowledged or owed.
    pub fn is_idle(&self) -> bool {
        self.streams.iter().all(|(_, stream)| stream.is_idle())
    }

    // ---- what the driver drains -----------------------------------------------------------

    /// Next data to move, before anything else is handled.
    pub(crate) fn poll_move(&mut self) -> Option<Move> {
        self.common.moves.pop_front()
    }

    /// Parts combined in the coded packet that was handed out last.
    pub(crate) fn coded_parts(&self) -> &[Segment] {
        &self.common.coded_parts
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.common.events.pop_front()?;
        match event {
            Event::Sent { id } | Event::SendFailed { id, .. } => {
                self.sends.remove(id.0 as usize);
            }
            Event::Received { id, .. } | Event::ReceiveFailed { id, .. } => {
                self.receives.remove(id.0 as usize);
            }
        }
        Some(event)
    }

    /// Time at which [`Self::handle_timeout`] is to be called next, if any.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Fires all timers that are due at `now`; harmless if none is.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.wake_at.is_none_or(|at| at > now) {
            return;
        }
        for at in self.ready.iter().copied() {
            self.wakes[at] = self.streams[at].deadline();
        }
        let wakes = self.wakes.iter().enumerate();
        let is_due =
            |(at, wake): (usize, &Option<Instant>)| wake.filter(|it| *it <= now).map(|_| at);
        let mut due = std::mem::take(&mut self.due);
        due.extend(wakes.filter_map(is_due));
        for at in due.drain(..) {
            if self.streams[at].on_deadline(now, &mut self.common) {
                self.schedule(at)
            } else {
                self.wakes[at] = self.streams[at].deadline()
            }
            self.judge_silence(now, at);
        }
        self.due = due;
        self.wake_at = self.wakes.iter().flatten().min().copied();
    }

    /// Reports that this rank did not run for some time before `now`: answers owed by other ranks
    /// are owed only from now on.
    pub fn on_pause(&mut self, now: Instant) {
        self.streams.iter_mut().for_each(|(_, stream)| stream.collector.on_pause(now));
    }

    // ---- ranks that go --------------------------------------------------------------------

    /// Handles the failure of a rank: all groups that contain it are broken, and operations in
    /// progress in them end with an error.
    pub fn fail_peer(&mut self, rank: Rank) {
        self.failed.insert(rank);
        for group in self.groups.values_mut() {
            let is_member = group.config.nodes.contains(rank);
            if is_member && group.broken_by.is_none() {
                group.broken_by = Some(rank);
            }
        }
        for at in self.places() {
            let stream = &mut self.streams[at];
            let group = self.groups.get(&stream.key.group);
            if group.is_some_and(|group| group.broken_by == Some(rank)) {
                stream.break_off(&mut self.common, rank);
                self.recount(at);
                if !self.make_dormant(at) {
                    self.note_deadline(at);
                }
            }
        }
    }

    /// Handles the departure of a rank in good order: it needs and sends nothing more.
    pub fn depart_peer(&mut self, now: Instant, rank: Rank) {
        self.departed.insert(rank);
        for at in self.places() {
            let stream = &mut self.streams[at];
            stream.forget(rank);
            if stream.key.root == rank {
                stream.end_receives(&mut self.common, rank);
                if stream.is_closed {
                    stream.discard_rest(&mut self.common);
                }
            }
            stream.free(&mut self.common);
            stream.on_progress_below();
            stream.arm(now, &self.common);
            self.recount(at);
            self.schedule(at);
        }
    }
}
