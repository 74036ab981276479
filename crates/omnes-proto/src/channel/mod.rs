//! Channels: reliable, ordered messages between all ranks, with receive buffers shared by all
//! senders.
//!
//! Source: PM, Modified ACK/NACK flow control [PM-R13–R18] and the first half of its context switch
//! [PM-R20, R21]. A channel connects all ranks [PM-R1]; this machine is one rank's end of it, and
//! all its state is in one place, so that it can be saved and restored.
//!
//! Guarantees: messages between two ranks on a channel arrive exactly once and match in the order
//! of sending; memory is bounded whatever the peers do [PM-R17]; a message of up to
//! [`ChannelConfig::eager_bytes`] is sent immediately, of a larger one only the head, and the
//! remaining data when the receiver's memory is known; data are placed directly in the receiver's
//! memory [PM-R11]; a message is sent as its bytes become available [PM-R7].
//!
//! Assumes: packets may be lost, duplicated, reordered and delayed arbitrarily; corrupted packets
//! never arrive here, as their tag is checked before. The caller drains moves, transmits and events
//! after each input.
//!
//! Deviations: D-01 only missing packets are sent again, where PM repeats k..i; D-02 a rejected
//! packet is repeated after a wait or a notice instead of immediately, so that a full receiver is
//! not flooded; D-03 large messages wait for their receive, so that they cannot block the channel;
//! D-04 a stopped channel still retransmits, since otherwise a lossy network would never let it
//! become stable.
//!
//! Cost: one packet per [`ChannelConfig::payload_bytes`], one answer per
//! [`ChannelConfig::ack_packets`], or none if data flow in the opposite direction. State: about 1
//! KiB per peer that has been heard from or is waited for, 40 B per packet in flight.

mod abandoned;
mod arrive;
mod asking;
mod bulk;
mod config;
mod cut;
mod emit;
mod failure;
mod interface;
mod lanes;
mod matching;
mod peer;
mod pool;
mod preview;
mod send_lane;
mod silence;
#[cfg(test)]
mod tests;

pub use config::{ChannelConfig, Checked, ConfigError};
pub(crate) use emit::Outbound;
pub use interface::{ChannelCounters, ChannelError, Event, Message, Reply};
pub use matching::Pattern;

use crate::limits::CREDIT_UNIT_BYTES;
use crate::packet::{Move, Origin, ReceiveId, SendId};
use matching::{Matched, Matching, Unexpected};
use omnes_wire::{ChannelId, CommunicatorId, Envelope, Instant, Rank};
use peer::{BulkPart, Destination, Lane, Peer, Peers};
use pool::Pool;
use slab::Slab;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

#[derive(Debug)]
struct Outgoing {
    message: Message,
    ordered: u64,
    ordered_packets: u32,
    ordered_next: u32,
    bulk_packets: u32,
    bulk_next: u32,
    answered: u64,
    is_granted: bool,
    /// Index of the packet on the ordered lane that cuts the message, if it has been abandoned;
    /// `bulk_cut` is that on the bulk lane.
    ordered_cut: Option<u32>,
    bulk_cut: Option<u32>,
}

impl Outgoing {
    fn packets(&self) -> u64 {
        u64::from(self.ordered_packets) + u64::from(self.bulk_packets)
    }
}

/// One rank's end of a channel; see the module header.
#[derive(Debug)]
pub struct Channel {
    id: ChannelId,
    index: usize,
    me: Rank,
    size: u32,
    config: Checked,
    peers: Peers,
    outgoing: Slab<Outgoing>,
    matching: Matching,
    pool: Pool,
    stashed: usize,
    senders: u32,
    /// Credits advertised in every header at present.
    credits: u16,
    ready: VecDeque<Rank>,
    burst: u32,
    moves: VecDeque<Move>,
    events: VecDeque<Event>,
    rejecting: Vec<Rank>,
    failed: BTreeSet<Rank>,
    /// See [`Self::abandon`].
    abandoned: BTreeSet<CommunicatorId>,
    wake_at: Option<Instant>,
    phase: Phase,
    counters: ChannelCounters,
}

/// Context switch, steps C1 to C4 [PM-R21].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    Stopping,
    Stable,
}

impl Channel {
    /// Creates the end of channel `id` at rank `me` of `size` ranks; `index` is returned in
    /// transmits and placements.
    pub fn new(id: ChannelId, index: usize, me: Rank, size: u32, config: Checked) -> Self {
        let pool = Pool::new(config.pool_slots);
        let credits = Self::credits(&config, 0);
        Self {
            id,
            index,
            me,
            size,
            pool,
            config,
            peers: Peers::default(),
            outgoing: Slab::new(),
            matching: Matching::default(),
            stashed: 0,
            senders: 0,
            credits,
            ready: VecDeque::new(),
            burst: 0,
            moves: VecDeque::new(),
            events: VecDeque::new(),
            rejecting: Vec::new(),
            failed: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            wake_at: None,
            phase: Phase::Running,
            counters: ChannelCounters::default(),
        }
    }

    /// Number of the channel.
    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// The checked settings.
    pub fn config(&self) -> &Checked {
        &self.config
    }

    /// Counters of the channel.
    pub fn counters(&self) -> &ChannelCounters {
        &self.counters
    }

    /// Starts to send a message.
    ///
    /// # Errors
    /// [`ChannelError`] names the invalid value; the call had no effect then.
    pub fn send(&mut self, message: Message) -> Result<SendId, ChannelError> {
        self.check(&message)?;
        let ordered = self.config.ordered_bytes(message.bytes);
        let outgoing = Outgoing {
            message,
            ordered,
            ordered_packets: self.config.ordered_packets(ordered) as u32,
            ordered_next: 0,
            bulk_packets: self.config.bulk_packets(message.bytes - ordered) as u32,
            bulk_next: 0,
            answered: 0,
            is_granted: false,
            ordered_cut: None,
            bulk_cut: None,
        };
        let id = SendId(self.outgoing.insert(outgoing) as u32);
        self.peer(message.to).messages.push_back(id);
        self.schedule(message.to);
        Ok(id)
    }

    fn check(&self, message: &Message) -> Result<(), ChannelError> {
        let Message { to, bytes, .. } = *message;
        if !self.is_other(to) {
            return Err(ChannelError::NoSuchRank { to, size: self.size, me: self.me });
        }
        if self.failed.contains(&to) {
            return Err(ChannelError::PeerFailed { rank: to });
        }
        let bytes_max = self.config.message_bytes_max();
        if bytes > bytes_max {
            return Err(ChannelError::MessageTooLarge { bytes, bytes_max });
        }
        Ok(())
    }

    fn is_other(&self, rank: Rank) -> bool {
        rank.0 < self.size && rank != self.me
    }

    /// Makes more of a message available for sending: its first `available` bytes are in memory
    /// [PM-R7].
    pub fn extend(&mut self, id: SendId, available: u64) {
        let outgoing = self.outgoing.get_mut(id.0 as usize);
        if let Some(outgoing) = outgoing.filter(|outgoing| !outgoing.is_cut()) {
            let most = outgoing.message.bytes;
            outgoing.message.available = available.clamp(outgoing.message.available, most);
            let to = outgoing.message.to;
            self.schedule(to);
        }
    }

    /// True if a driver copies a message of `bytes` bytes, so that its memory is free immediately:
    /// a message of one packet, or a short one that is sent without a grant.
    pub fn copies(&self, bytes: u64) -> bool {
        self.config.copies(bytes)
    }

    /// Number of bytes of a message that may have been sent: no others will be, unless it is
    /// extended.
    pub fn available_bytes(&self, id: SendId) -> u64 {
        self.outgoing.get(id.0 as usize).map_or(0, |outgoing| outgoing.message.available)
    }

    /// Offset of the first byte of a message that may still be sent, for the first time or again.
    pub fn unanswered_from(&self, id: SendId) -> u64 {
        let Some(outgoing) = self.outgoing.get(id.0 as usize) else { return 0 };
        let Some(peer) = self.peers.get(outgoing.message.to) else { return 0 };
        let ordered_next = outgoing.ordered_next;
        match peer.send[Lane::Ordered].first_of(id) {
            Some(index) => self.config.ordered_offset(index),
            None if ordered_next < outgoing.ordered_packets => {
                self.config.ordered_offset(ordered_next)
            }
            None => {
                let index = peer.send[Lane::Bulk].first_of(id).unwrap_or(outgoing.bulk_next);
                outgoing.ordered + u64::from(index) * u64::from(self.config.payload_bytes)
            }
        }
    }

    /// Posts a receive for a message of at most `capacity` bytes.
    ///
    /// # Errors
    /// [`ChannelError::PeerFailed`] if the only possible sender has failed and left no message.
    pub fn receive(
        &mut self,
        now: Instant,
        pattern: Pattern,
        capacity: u64,
    ) -> Result<ReceiveId, ChannelError> {
        if let Some(message) = self.matching.take_unexpected(&pattern) {
            let id = self.matching.add(pattern, capacity);
            self.adopt(id, message);
            return Ok(id);
        }
        if let Some(rank) = pattern.source.filter(|source| self.failed.contains(source)) {
            return Err(ChannelError::PeerFailed { rank });
        }
        let id = self.matching.add(pattern, capacity);
        self.matching.post(id);
        self.resume_awaited(pattern.source);
        self.on_posted(now, &pattern);
        Ok(id)
    }

    /// Cancels a receive that no message has been matched with. False if one has: the receive will
    /// complete.
    pub fn cancel(&mut self, id: ReceiveId) -> bool {
        let Some(receive) = self.matching.cancel(id) else { return false };
        self.on_cancelled(&receive.pattern);
        true
    }

    /// Sender, tag and length of the oldest message that matches and has no receive yet; at least
    /// its first packet has arrived.
    pub fn probe(&self, pattern: &Pattern) -> Option<(Rank, u32, u64)> {
        let message = self.matching.peek_unexpected(pattern)?;
        Some((message.from, message.envelope.tag, message.envelope.bytes))
    }

    /// True if no message has arrived since [`Self::seek`] that would have to be probed.
    pub fn is_seeking(&self, pattern: &Pattern) -> bool {
        match pattern.source {
            Some(rank) => self.peers.get(rank).is_some_and(|peer| peer.watch.is_sought),
            None => self.matching.seeks_any,
        }
    }

    /// Does what a receive would do for a message that [`Self::probe`] has not found: it is asked
    /// for if it is overdue, and there is buffer space for the messages before it.
    /// [`Event::Sought`] reports the next message of such a rank that no receive takes, after which
    /// the caller may have to seek again.
    ///
    /// # Errors
    /// [`ChannelError::PeerFailed`] if the only possible sender has failed.
    pub fn seek(&mut self, now: Instant, pattern: &Pattern) -> Result<(), ChannelError> {
        if let Some(rank) = pattern.source.filter(|source| self.failed.contains(source)) {
            return Err(ChannelError::PeerFailed { rank });
        }
        match pattern.source {
            Some(rank) => {
                self.peer(rank).watch.is_sought = true;
                self.watch(now, rank);
                self.note_deadline(rank);
            }
            None => self.matching.seeks_any = true,
        }
        self.resume_awaited(pattern.source);
        Ok(())
    }

    /// Number of bytes from the start of the message that have arrived without a gap.
    pub fn received_bytes(&self, id: ReceiveId) -> u64 {
        let Some(receive) = self.matching.receives.get(id.0 as usize) else { return 0 };
        let Some(matched) = receive.matched else { return 0 };
        let Some(peer) = self.peers.get(matched.from) else { return 0 };
        let ordered = self.config.ordered_bytes(matched.envelope.bytes);
        if matched.ordered_done < ordered {
            return matched.ordered_done; // It may have been cut there.
        }
        let expects = peer.receive[Lane::Bulk].expects();
        let part = peer.bulk_parts.iter().find(|part| part.receive == id);
        let done = part.map_or(0, |part| {
            let packets = if expects.precedes(part.first) { 0 } else { expects.since(part.first) };
            (u64::from(packets) * u64::from(self.config.payload_bytes)).min(part.bytes)
        });
        ordered + done
    }

    /// Stops sending except for answers and repairs [PM-R21 C1]; [`Event::Stable`] follows when
    /// everything sent has been answered and every answer owed has been given [PM-R21 C2–C4].
    /// Incoming data are still received and answered [PM-R23].
    pub fn stop(&mut self, now: Instant) {
        self.phase = Phase::Stopping;
        for rank in self.peers.ranks() {
            self.peer(rank).ask_nothing();
            let ack = crate::lane::AckWhen::After(1);
            for lane in self.peer(rank).receive.iter_mut() {
                lane.owe(now, ack, Duration::ZERO);
            }
            self.schedule(rank);
        }
        self.check_stable();
    }

    /// Resumes sending [PM-R21 C8].
    pub fn resume(&mut self, now: Instant) {
        self.phase = Phase::Running;
        for rank in self.peers.ranks() {
            let peer = self.peer(rank);
            for lane in peer.lanes().iter().copied() {
                peer.probe_due[lane as usize] |= peer.send[lane].on_resumed();
            }
            self.watch(now, rank);
            self.schedule(rank);
        }
    }

    /// True if the channel is stopped and stable [PM-R20].
    pub fn is_stable(&self) -> bool {
        self.phase == Phase::Stable
    }

    fn check_stable(&mut self) {
        if self.phase == Phase::Stopping && self.peers.values().all(Peer::is_stable) {
            self.phase = Phase::Stable;
            self.events.push_back(Event::Stable);
        }
    }

    /// Next data to move, before anything else is handled.
    pub(crate) fn poll_move(&mut self) -> Option<Move> {
        let next = self.moves.pop_front()?;
        if let Origin::Slot(slot) = next.origin {
            self.pool.give_back(slot);
        }
        Some(next)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time at which [`Self::handle_timeout`] is to be called next, if any.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }

    /// True if nothing is queued, in flight or owed: every message sent has arrived.
    pub fn is_idle(&self) -> bool {
        self.outgoing.is_empty() && self.peers.values().all(Peer::is_stable)
    }

    /// Fires all timers that are due at `now`; harmless if none is.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.wake_at.is_none_or(|at| at > now) {
            return;
        }
        for rank in self.peers.due(now) {
            self.on_deadlines(now, rank);
        }
        self.wake_at = self.peers.wake_at();
    }

    fn on_deadlines(&mut self, now: Instant, rank: Rank) {
        let allowance = self.config.allowance();
        let peer = self.peer(rank);
        let mut is_due = false;
        let mut timeouts = 0;
        for lane in peer.lanes().iter().copied() {
            is_due |= peer.receive[lane].on_deadline(now);
            let send = &mut peer.send[lane];
            if send.on_deadline(now) {
                is_due = true;
                timeouts += 1;
                peer.probe_due[lane as usize] = send.is_blocked();
                let rtt = &peer.rtt;
                send.arm(now, rtt, allowance);
            }
        }
        self.counters.timeouts += timeouts;
        self.judge_silence(now, rank);
        is_due |= self.is_overdue(now, rank);
        if is_due {
            self.schedule(rank);
        } else {
            self.note_deadline(rank);
        }
    }

    fn note_deadline(&mut self, rank: Rank) {
        let Some(at) = self.peers.note_deadline(rank) else { return };
        self.wake_at = Some(self.wake_at.map_or(at, |wake_at| wake_at.min(at)));
    }

    /// Reports that this rank did not run for some time before `now`: answers owed by other ranks
    /// are owed only from now on. Unanswered packets are retransmitted by their timers, which have
    /// expired meanwhile.
    pub fn on_pause(&mut self, now: Instant) {
        self.peers.values_mut().for_each(|peer| peer.on_pause(now));
    }

    /// Limits the data in flight to `rank` to `bytes` bytes of truesize, the capacity of the path;
    /// a single packet may always be sent.
    pub fn limit_flight(&mut self, rank: Rank, bytes: u32) {
        self.peer(rank).flow.path_bytes = bytes;
    }

    /// Returns the peer's entry, created on first use.
    #[inline]
    fn peer(&mut self, rank: Rank) -> &mut Peer {
        let credit = self.config.initial_credit_bytes;
        self.peers.entry(rank, || Peer::new(credit))
    }

    /// Appends a peer to the queue of peers to send to, if anything may be due to it.
    fn schedule(&mut self, rank: Rank) {
        let peer = self.peer(rank);
        peer.has_only_data = false;
        if !peer.is_ready && peer.has_due() {
            peer.is_ready = true;
            self.ready.push_back(rank);
        }
        self.note_deadline(rank);
    }

    /// Space of the socket buffer that this rank advertises to one sender, in units of the header's
    /// credits field. The free space is shared by the ranks that are sending [PM-R17].
    fn credits(config: &Checked, senders: u32) -> u16 {
        let share = config.receive_truesize_bytes / (senders.max(1) + 1) / CREDIT_UNIT_BYTES;
        share.clamp(1, u32::from(u16::MAX)) as u16
    }

    /// Number of ranks with state: ranks that have sent to this one, and ranks that this one has
    /// sent to.
    pub fn peers_known(&self) -> usize {
        self.peers.len()
    }

    /// Updates the number of sending peers.
    fn recount(&mut self, rank: Rank) {
        let peer = self.peer(rank);
        let is_sending = peer.is_sending();
        match (std::mem::replace(&mut peer.is_counted, is_sending), is_sending) {
            (false, true) => self.senders += 1,
            (true, false) => self.senders -= 1,
            _ => return,
        }
        self.credits = Self::credits(&self.config, self.senders);
    }

    /// Matches a receive with a message that arrived before it.
    fn adopt(&mut self, id: ReceiveId, message: Unexpected) {
        let Unexpected { key, from, envelope, mut chain, is_cut, .. } = message;
        let ordered = self.config.ordered_bytes(envelope.bytes);
        let capacity = self.matching.receives[id.0 as usize].capacity;
        let mut offset = 0;
        while let Some((slot, bytes)) = self.pool.pop(&mut chain) {
            let fits = bytes.min(capacity.saturating_sub(offset) as usize);
            self.moves.push_back(Move {
                origin: Origin::Slot(slot),
                receive: id,
                offset,
                bytes: fits,
            });
            offset += bytes as u64;
        }
        let peer = self.peer(from);
        if let Some(assembling) = &mut peer.assembling
            && matches!(assembling.destination, Destination::Unexpected(own) if own == key)
        {
            assembling.destination = Destination::Receive(id);
            self.end_seeking(from);
        }
        self.matching.receives[id.0 as usize].matched =
            Some(Matched::new(from, envelope, offset, ordered));
        self.grant_rest(id);
        if is_cut {
            self.cut_ordered(id);
        }
        self.recount(from);
        self.complete_if_done(id);
        self.resume_rejected();
    }

    /// Grants the remaining data of a message whose destination is now known.
    fn grant_rest(&mut self, id: ReceiveId) {
        let receive = &mut self.matching.receives[id.0 as usize];
        let Some(matched) = &mut receive.matched else { return };
        let bytes = matched.envelope.bytes - matched.ordered;
        matched.is_bulk_done = bytes == 0;
        if bytes == 0 {
            return;
        }
        let Matched { from, envelope, ordered, .. } = *matched;
        let packets = self.config.bulk_packets(bytes) as u32;
        let peer = self.peer(from);
        let first = peer.bulk_end;
        peer.bulk_end = first.plus(packets);
        peer.bulk_parts.push_back(BulkPart { receive: id, first, packets, base: ordered, bytes });
        peer.grants.push_back(envelope.token);
        self.schedule(from);
    }

    fn complete_if_done(&mut self, id: ReceiveId) {
        let Some(receive) = self.matching.receives.get(id.0 as usize) else { return };
        let Some(matched) = receive.matched else { return };
        if matched.ordered_done == matched.ordered && matched.is_bulk_done {
            if self.matching.receives.remove(id.0 as usize).discards {
                return;
            }
            let Matched { from, envelope, is_cut, .. } = matched;
            let Envelope { tag, bytes, .. } = envelope;
            self.events.push_back(if is_cut {
                Event::Cut { id, from, tag }
            } else {
                Event::Received { id, from, tag, bytes }
            });
        }
    }

    /// Tells rejected senders that they may try again, as buffers are free.
    fn resume_rejected(&mut self) {
        self.resume_awaited(None);
    }

    /// As above for `source`, or for all ranks, when a receive for its messages is posted.
    fn resume_awaited(&mut self, source: Option<Rank>) {
        let is_awaited = |rank: &mut Rank| source.is_none_or(|source| source == *rank);
        let resumed: Vec<Rank> = self.rejecting.extract_if(.., is_awaited).collect();
        for rank in resumed {
            self.peer(rank).receive[Lane::Ordered].on_buffers();
            self.schedule(rank);
        }
    }
}
